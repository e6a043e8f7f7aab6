"""`berth explain`: an error code, a word of the language, a pod, a node."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from dsl.codes import GONE, OLD
from dsl.nearest import closest
from engine.cli import options, reference
from engine.display import plain

_CODE = re.compile(r"P[0-9]{3}")
_SUBJECTS = ("pod", "node")
_FLAGS = ("policies", "policy_configmap", "scheduler_name", "prometheus_url")
"""Those of `berth run`."""


_HELP = """Explain an error code, a word of the language, a pod or a node.

\b
berth explain P203               the lesson behind an error code
berth explain filter             a statement, field, function or metric
berth explain pod NS/NAME        why a pod is where it is, or is nowhere
berth explain node NAME          which pending pods could come to a node

A pod is decided about anew, and nothing is changed. The cluster is that of the
kubeconfig; with -f one of manifests; with --journal a pod is explained as it was
decided then. Name the policies in force, as for berth run.

With --scheduler nothing is decided: a running scheduler is asked what it decided
last, over a port-forward to the replica that leads, for instance.
"""


@click.command("explain", help=_HELP)
@click.argument("words", nargs=-1, required=True, metavar="CODE | WORD | pod NS/NAME | node NAME")
@click.option("-f", "--filename", "paths", multiple=True, type=options.FILE,
              help="Manifests instead of a cluster.")  # fmt: skip
@click.option("--journal", type=options.READABLE, help="A journal of `berth run --record`.")
@options.KUBECONFIG
@click.option("--config", metavar="FILE", help="Configuration file, as for berth run.")
@click.option("--policies", metavar="PATH", help="Folder of policies in force, or one file.")
@click.option("--policy-configmap", metavar="NS/NAME", help="ConfigMap of policies in force.")
@click.option("--scheduler-name", metavar="NAME", help="Name that pods ask for.")
@options.PROMETHEUS_URL
@click.option("--metric", "metrics", multiple=True, metavar="NAME[@NODE]=VALUE",
              help="With -f: a sample of a metric, of one node or of all.")  # fmt: skip
@click.option("--now", metavar="TIME", help="With -f: the time, as 2025-03-01T10:00:00Z.")
@click.option("--node", "nodes", multiple=True, metavar="NAME",
              help="A node to hear of, wherever it comes.")  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=10, show_default=True,
              help="So many of the nodes that cannot take the pod.")  # fmt: skip
@click.option("--scheduler", metavar="URL", help="What that one remembers of a pod.")
@click.option("--token-file", type=options.READABLE, help="With --scheduler: who asks.")
@click.option("--ca-file", type=options.READABLE,
              help="With --scheduler: whose certificate it has.")  # fmt: skip
@click.option("--insecure", is_flag=True, help="With --scheduler: any certificate will do.")
@options.FORMAT
def command(words: tuple[str, ...], style: str, now: str | None, **given: Any) -> None:  # noqa: ANN401 - click's options by name
    """One word is of the language; two are `pod` or `node` and a name."""
    if len(words) == 1 and words[0] not in _SUBJECTS:
        _word(words[0])
        return
    subject, *names = words
    if len(names) != 1 or subject not in _SUBJECTS:
        raise click.UsageError("write one of: CODE, WORD, pod NS/NAME, node NAME")
    asked = {one: given.pop(one) for one in ("scheduler", "token_file", "ca_file", "insecure")}
    if asked["scheduler"] is not None:
        _remembered(subject, names[0], asked, as_json=style == "json")
        return
    if given["paths"] and given["journal"] is not None:
        raise click.UsageError("-f and --journal exclude each other")
    if (given["metrics"] or now is not None) and not given["paths"]:
        raise click.UsageError("--metric and --now need -f FILE")
    # The scheduler is imported when it is needed: it costs what a page should not.
    from engine.cli.eval import read_time
    from engine.cli.why import Request, answer

    flags = {one: given.pop(one) for one in _FLAGS}
    request = Request(**given, flags=flags, now=read_time(now), as_json=style == "json")
    answer(subject, names[0], request)


def _remembered(subject: str, name: str, asked: dict[str, Any], *, as_json: bool) -> None:
    """Prints what a running scheduler remembers of a pod."""
    from engine.cli.recorded import lines_of, record_of

    if subject != "pod":
        raise click.UsageError("--scheduler is for a pod")
    record = record_of(name if "/" in name else f"default/{name}", **asked)
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False, indent=2))
        return
    for line in lines_of(record):
        click.echo(plain(line, len(line)))


def _word(word: str) -> None:
    """Prints what is known of a code, a statement, a field, a function or a metric."""
    if _CODE.fullmatch(word.upper()):
        _page(word.upper())
        return
    lines = reference.told(word)
    if not lines:
        near = closest(word, reference.words())
        raise click.ClickException(
            f"`{word}` is no code, statement, field, function or metric of the policy language; "
            + (f"did you mean `{near}`?" if near else "codes look like P203, fields like pod.name")
        )
    click.echo("\n".join(lines).rstrip())


def _page(code: str) -> None:
    """Prints the page of a code."""
    if code in GONE:
        click.echo(f"{code} is no longer said. {GONE[code]}")
        return
    pages = reference.shipped("errors")
    page = pages / f"{code}.md"
    if not page.is_file():
        raise click.ClickException(f"{code} is no code of the policy language; they look like P203")
    click.echo(page.read_text("utf-8").rstrip())
    for new in OLD.get(code, ()):
        title = (pages / f"{new}.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        click.echo(f"Part of it has a code of its own now: {title}")
