"""`berth explain`: the lesson behind an error code; why a pod is where it is; who fits a node."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import click

from dsl.codes import OLD

_CODE = re.compile(r"P[0-9]{3}")
_SUBJECTS = ("pod", "node")
_FLAGS = ("policies", "policy_configmap", "scheduler_name", "prometheus_url")
"""Those of `berth run`."""


def pages() -> Traversable:
    """The folder of the pages: in the wheel beside the language, in a checkout under docs/."""
    shipped = files("dsl") / "errors"
    return shipped if shipped.is_dir() else files("dsl") / ".." / "docs" / "errors"


_HELP = """Explain an error code, a pod or a node.

\b
berth explain P203               the lesson behind an error code
berth explain pod NS/NAME        why a pod is where it is, or is nowhere
berth explain node NAME          which pending pods could come to a node

A pod is decided about anew, and nothing is changed. The cluster is that of the
kubeconfig; with -f one of manifests; with --journal a pod is explained as it was
decided then. Name the policies in force, as for berth run.
"""


@click.command("explain", help=_HELP)
@click.argument("words", nargs=-1, required=True, metavar="CODE | pod NS/NAME | node NAME")
@click.option("-f", "--filename", "paths", multiple=True, metavar="FILE",
              type=click.Path(path_type=Path), help="Manifests instead of a cluster.")  # fmt: skip
@click.option("--journal", metavar="FILE", help="A journal of `berth run --record`.",
              type=click.Path(path_type=Path, exists=True, dir_okay=False))  # fmt: skip
@click.option("--kubeconfig", metavar="FILE", help="Cluster to ask; else the one it runs in.")
@click.option("--config", metavar="FILE", help="Configuration file, as for berth run.")
@click.option("--policies", metavar="PATH", help="Folder of policies in force, or one file.")
@click.option("--policy-configmap", metavar="NS/NAME", help="ConfigMap of policies in force.")
@click.option("--scheduler-name", metavar="NAME", help="Name that pods ask for.")
@click.option("--prometheus-url", metavar="URL", help="Where metrics are asked for.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME[@NODE]=VALUE",
              help="With -f: a sample of a metric, of one node or of all.")  # fmt: skip
@click.option("--now", metavar="TIME", help="With -f: the time, as 2025-03-01T10:00:00Z.")
@click.option("--node", "nodes", multiple=True, metavar="NAME",
              help="A node to hear of, wherever it comes.")  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=10, show_default=True,
              help="So many of the nodes that cannot take the pod.")  # fmt: skip
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="How to print it.")  # fmt: skip
def command(words: tuple[str, ...], style: str, now: str | None, **given: Any) -> None:  # noqa: ANN401 - click's options by name
    """One word is a code; two are `pod` or `node` and a name."""
    if len(words) == 1:
        _page(words[0].upper())
        return
    subject, name = words[0], words[1]
    if len(words) > len(_SUBJECTS) or subject not in _SUBJECTS:
        raise click.UsageError("write one of: CODE, pod NS/NAME, node NAME")
    if given["paths"] and given["journal"] is not None:
        raise click.UsageError("-f and --journal exclude each other")
    if (given["metrics"] or now is not None) and not given["paths"]:
        raise click.UsageError("--metric and --now need -f FILE")
    # The scheduler is imported when it is needed: it costs what a page should not.
    from engine.cli.eval import read_time
    from engine.cli.why import Request, answer

    flags = {one: given.pop(one) for one in _FLAGS}
    request = Request(**given, flags=flags, now=read_time(now), as_json=style == "json")
    answer(subject, name, request)


def _page(code: str) -> None:
    """Prints the page of a code."""
    page = pages() / f"{code}.md"
    if not _CODE.fullmatch(code) or not page.is_file():
        raise click.ClickException(f"{code} is no code of the policy language; they look like P203")
    click.echo(page.read_text("utf-8").rstrip())
    for new in OLD.get(code, ()):
        title = (pages() / f"{new}.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        click.echo(f"Part of it has a code of its own now: {title}")
