"""The command line, one file a command; a command's module is imported when it is called."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from engine import __version__
from engine.garbage import seldom
from engine.text.display import nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_GROUPS: Final = {
    "Write policies": {
        "check": "Check policy files or ConfigMaps and report what is wrong.",
        "test": "Run policy tests.",
        "fmt": "Format policies and their tests.",
        "eval": "Evaluate an expression of the policy language.",
        "repl": "Evaluate expressions interactively.",
        "policies": "List the bundled policies, or show one.",
        "export-affinity": "Print filters as node affinity, for autoscalers.",
        "inventory": "Save the labels, namespaces and images of a cluster.",
    },
    "Understand": {
        "explain": "Explain an error code, a word of the language, a pod or a node.",
        "replay": "Replay the decisions of a journal and compare.",
    },
    "Run": {
        "demo": "Show Berth at work in half a minute, on an embedded cluster.",
        "up": "Keep an embedded cluster running to try things on.",
        "run": "Run the scheduler against a cluster.",
        "webhook": "Run the webhook that checks policies as they are applied.",
        "extender": "Serve policies to a kube-scheduler, as its HTTP extender.",
        "convert": "Convert a KubeSchedulerConfiguration for Berth.",
        "status": "Show which policies are in force in a cluster.",
        "install": "Install Berth in a cluster, or print its manifests.",
        "version": "Print the version.",
    },
}
_TERMINATED: Final = 128 + signal.SIGTERM
_COMMANDS: Final = {name: text for group in _GROUPS.values() for name, text in group.items()}
_EXAMPLE: Final = """Berth: a Kubernetes scheduler whose plugins are text.

\b
echo 'filter: pod.name contains nginx -> node.label test=test' > nginx.policy
berth check nginx.policy
berth up --no-scheduler --kubeconfig kubeconfig & sleep 2    # a cluster
berth run --policies . --kubeconfig kubeconfig
"""


class _Lazy(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            if ctx.resilient_parsing:  # a shell that completes words is told nothing
                return None
            ctx.fail(f"No such command {cmd_name!r}{nearest(cmd_name, _COMMANDS)}")
        if os.getpid() == 1:
            # From the first process of a container the kernel keeps a SIGTERM that has no handler;
            # until a command has its own, which takes seconds to import, this one ends it.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
        with seldom():
            command = import_module(f"engine.cli.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See `click.Group.shell_complete`; this one, too, imports no command."""
        from click.shell_completion import CompletionItem

        found = [item for item in sorted(_COMMANDS.items()) if item[0].startswith(incomplete)]
        items = [CompletionItem(name, help=text) for name, text in found]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """See `click.Group.invoke`; a place that may not even be looked at is no traceback."""
        try:
            return super().invoke(ctx)
        except PermissionError as refused:
            if refused.filename is None:
                raise
            raise click.ClickException(f"{refused.filename}: {refused.strerror}") from refused

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))


@click.group(cls=_Lazy, help=_EXAMPLE, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="berth")
def main() -> None:
    """See `_EXAMPLE`."""
