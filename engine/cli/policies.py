"""`berth policies`: the bundled policies, all by name or one as text."""

from __future__ import annotations

import click

import policies
from engine.text.display import nearest


def description(text: str) -> str:
    """The line that a policy describes itself with; empty without one."""
    start = "description: "
    found = next((one for one in text.splitlines() if one.startswith(start)), start)
    return found.removeprefix(start).strip('"')


@click.command("policies", help="List the bundled policies, or show one.")
@click.argument("name", required=False)
@click.option("--tests", is_flag=True, help="Show its tests instead.")
def command(name: str | None, *, tests: bool) -> None:
    """Without a name: names and descriptions; with one: its text."""
    names = policies.names()
    if name is None:
        if tests:
            raise click.UsageError("--tests needs the name of a policy")
        width = max(len(one) for one in names)
        for one in names:
            click.echo(f"{one:<{width}}  {description(policies.text(one))}")
        click.echo("\nberth policies NAME shows one; `use NAME` in a policy takes it.", err=True)
        return
    name = name.removesuffix(".policy")
    if name not in names:
        hint = nearest(name, names) or "; berth policies lists them"
        raise click.ClickException(f"there is no bundled policy {name}{hint}")
    click.echo((policies.tests if tests else policies.text)(name), nl=False)
