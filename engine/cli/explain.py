"""`berth explain`: an error code, a word of the language, a pod, a node."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import click

import policies
from dsl.codes import GONE, OLD
from dsl.foreign.fields import field_for
from dsl.nearest import closest
from engine.cli import options

_CODE = re.compile(r"P[0-9]{3}")
_ROW = re.compile(r"^\| *(.+?) *\|$")
_CELLS = re.compile(r" *(?<!\\)\| *")
_FORM = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"[A-Za-z][\w.]*")
_TOPICS = re.compile(r"\*\*([a-z, ]+)\*\*")
_SUBJECTS = ("pod", "node")
_FLAGS = ("policies", "policy_configmap", "scheduler_name", "prometheus_url")
"""Those of `berth run`."""


_HELP = """Explain an error code, a word of the language, a pod or a node.

\b
berth explain P203               what an error code means
berth explain filter             a statement, field, function, metric or bundled policy
berth explain pod NS/NAME        why a pod is where it is, or is nowhere
berth explain node NAME          which pending pods a node could take

The decision is made again, and nothing is changed. The state is read from the
cluster, from manifests (-f) or from a journal. Give the policies in force.

With --scheduler a running scheduler is asked for its last decision, for
example through a port-forward to the leader.
"""


@click.command("explain", help=_HELP)
@click.argument("words", nargs=-1, required=True, metavar="CODE | WORD | pod NS/NAME | node NAME")
@click.option("-f", "--filename", "paths", multiple=True, type=options.FILE,
              help="Manifests instead of a cluster.")  # fmt: skip
@click.option("--journal", type=options.READABLE, help="A journal of `berth run --record`.")
@options.KUBECONFIG
@options.CONTEXT
@click.option("--config", metavar="FILE", help="Configuration file, as for berth run.")
@click.option("--policies", metavar="PATH", help="Folder of policies in force, or one file.")
@click.option("--policy-configmap", metavar="NS/NAME", help="ConfigMap of policies in force.")
@click.option("--scheduler-name", metavar="NAME", help="schedulerName of the profile that decides.")
@options.PROMETHEUS_URL
@click.option("--metric", "metrics", multiple=True, metavar="NAME[@NODE]=VALUE",
              help="With -f: the value of a metric, on one node or on all.")  # fmt: skip
@click.option("--now", metavar="TIME", help="With -f: the time, as 2025-03-01T10:00:00Z.")
@click.option("--node", "nodes", multiple=True, metavar="NAME",
              help="A node to show, however it ranks.")  # fmt: skip
@click.option("--most", type=click.IntRange(1), default=10, show_default=True,
              help="How many of the nodes that cannot take the pod to show.")  # fmt: skip
@click.option("--scheduler", metavar="URL", help="Ask a running scheduler for its last decision.")
@click.option("--token-file", type=options.READABLE, help="With --scheduler: a bearer token.")
@click.option("--ca-file", type=options.READABLE,
              help="With --scheduler: the CA of its certificate.")  # fmt: skip
@click.option("--insecure", is_flag=True, help="With --scheduler: accept any certificate.")
@options.FORMAT
def command(words: tuple[str, ...], style: str, now: str | None, **given: Any) -> None:  # noqa: ANN401 - click's options by name
    """One word is of the language; two are `pod` or `node` and a name."""
    if len(words) == 1 and words[0] not in _SUBJECTS:
        if style == "json":
            raise click.UsageError("--format json is for pod NS/NAME and node NAME")
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
    from engine.cli.explain_pods import Request, answer

    flags = {one: given.pop(one) for one in _FLAGS}
    request = Request(**given, flags=flags, now=read_time(now), as_json=style == "json")
    answer(subject, names[0], request)


def _remembered(subject: str, name: str, asked: dict[str, Any], *, as_json: bool) -> None:
    import yaml

    from engine.cli.explain_recorded import record_of
    from engine.text.documents import Dumper

    if subject != "pod":
        raise click.UsageError("--scheduler explains pods only")
    record = record_of(name if "/" in name else f"default/{name}", **asked)
    if as_json:
        click.echo(json.dumps(record, ensure_ascii=False, indent=2))
    else:
        click.echo(yaml.dump(record, Dumper=Dumper, sort_keys=False, width=1000), nl=False)


def _word(word: str) -> None:
    if _CODE.fullmatch(word.upper()):
        _page(word.upper())
        return
    lines = told(word) or policies.texts().get(word, "").splitlines()
    if not lines:
        known = [*words(), *policies.names()]
        below = [one for one in known if one.startswith(f"{word}.")]
        meant = field_for(word) if "." in word else None
        near = "`, `".join(below) or closest(word, known) or (meant and meant.text)
        raise click.ClickException(
            f"`{word}` is not a code, statement, field, function, metric or bundled policy; "
            + (f"did you mean `{near}`?" if near else "codes look like P203, fields like pod.name")
        )
    click.echo("\n".join(lines).rstrip())


def _page(code: str) -> None:
    if code in GONE:
        click.echo(f"{code} is no longer used. {GONE[code]}")
        return
    pages = shipped("errors")
    page = pages / f"{code}.md"
    if not page.is_file():
        raise click.ClickException(f"{code} is not a code of the language; codes look like P203")
    click.echo(page.read_text("utf-8").rstrip())
    for new in OLD.get(code, ()):
        title = (pages / f"{new}.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        click.echo(f"Part of it has a code of its own now: {title}")


# ---- the page of the language; tests hold that its tables are those of the code


class Entry(NamedTuple):
    """A row: its names, what it looks like, and each further column with its heading."""

    names: tuple[str, ...]
    form: str
    about: tuple[tuple[str, str], ...]

    @property
    def clauses(self) -> set[str]:
        """The first words of what its columns show."""
        return {form.split()[0] for _, text in self.about for form in _FORM.findall(text)}


def shipped(name: str) -> Traversable:
    """A page or folder of docs/: in the wheel beside the language, in a checkout under docs/."""
    packed = files("dsl") / name
    return packed if packed.is_dir() or packed.is_file() else files("dsl") / ".." / "docs" / name


def entries() -> Iterator[Entry]:
    """All rows of tables that begin with a word of the language."""
    heading: list[str] = []
    for line in shipped("language.md").read_text("utf-8").splitlines():
        row = _ROW.match(line)
        if row is None:
            heading = []
            continue
        cells = _CELLS.split(row[1])
        if not heading:
            heading = cells
        elif "---" not in cells[0]:
            forms = _FORM.findall(cells[0])
            plain = [form.replace("[KEY]", "") for form in forms]
            names = tuple(found[0] for form in plain if (found := _NAME.match(form)))
            pairs = zip(heading[1:], cells[1:], strict=False)
            about = tuple((name, text) for name, text in pairs if text)
            yield Entry(names, cells[0].replace("`", ""), about)


def told(word: str) -> list[str]:
    """Lines about a word of the language, clauses too; none if the page does not know it."""
    lines: list[str] = []
    found = [entry for entry in entries() if word in entry.names]
    # A clause is told with its statements; what surprises comes behind what is meant.
    found = found or [entry for entry in entries() if word in entry.clauses]
    about = {word} | {name for entry in found for name in entry.names if word not in entry.names}
    for entry in sorted(found, key=lambda one: one.about[0][0] == "what happens"):
        lines += [entry.form, *(f"  {name}: {text}" for name, text in entry.about), ""]
    for paragraph in shipped("language.md").read_text("utf-8").split("\n\n"):
        topics = _TOPICS.match(paragraph)
        if topics is not None and about & {*topics[1].split(", ")}:
            lines += [*paragraph.replace("**", "").splitlines(), ""]
    return lines


def words() -> list[str]:
    """All words that `told` knows."""
    return sorted({name for entry in entries() for name in entry.names})
