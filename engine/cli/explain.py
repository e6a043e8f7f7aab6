"""`berth explain CODE`: the lesson behind an error code."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

import click

from dsl.codes import GONE, OLD

_CODE = re.compile(r"P[0-9]{3}")


def pages() -> Traversable:
    """The folder of the pages: in the wheel beside the language, in a checkout under docs/."""
    shipped = files("dsl") / "errors"
    return shipped if shipped.is_dir() else files("dsl") / ".." / "docs" / "errors"


@click.command("explain", help="Explain an error code of the policy language.")
@click.argument("code")
def command(code: str) -> None:
    """Prints the page of the code."""
    code = code.upper()
    if code in GONE:
        click.echo(f"{code} is no longer said. {GONE[code]}")
        return
    page = pages() / f"{code}.md"
    if not _CODE.fullmatch(code) or not page.is_file():
        raise click.ClickException(f"{code} is no code of the policy language; they look like P203")
    click.echo(page.read_text("utf-8").rstrip())
    for new in OLD.get(code, ()):
        title = (pages() / f"{new}.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        click.echo(f"Part of it has a code of its own now: {title}")
