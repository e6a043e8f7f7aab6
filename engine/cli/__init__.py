"""The command line, one file a command; a command's module is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

_COMMANDS: Final = {
    "check": "Check policy files and say what is wrong with them.",
    "demo": "Show it all in half a minute, with a cluster of its own.",
    "eval": "Evaluate an expression of the policy language.",
    "explain": "Explain an error code, a pod or a node.",
    "fmt": "Put policies and their tests into the one style.",
    "install": "Put Berth into a cluster, or print the manifests.",
    "inventory": "Write down labels, namespaces and images of a cluster.",
    "policies": "List the bundled policies, or show one.",
    "repl": "Try expressions of the policy language line by line.",
    "replay": "Make the decisions of a journal again and compare.",
    "run": "Run the scheduler against a cluster.",
    "status": "Show which policies are in force in a cluster.",
    "test": "Run policy tests.",
    "up": "Keep an embedded cluster running to play with.",
    "version": "Print the version.",
}


class _Lazy(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """See `click.Group.list_commands`."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """See `click.Group.get_command`."""
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"engine.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """See `click.Group.format_commands`."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Berth: a Kubernetes scheduler whose plugins are text."""
