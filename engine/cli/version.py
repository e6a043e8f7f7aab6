"""`berth version`."""

import platform

import click

import engine


@click.command("version", help="Print the version.")
def command() -> None:
    """Prints the versions of Berth and of what it runs on."""
    click.echo(
        f"berth {engine.__version__} (policy language 1, Python {platform.python_version()})"
    )
