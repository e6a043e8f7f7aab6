"""`berth eval`: an expression in, its type, level and values out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import click

from dsl import reference
from dsl.diagnostics import render
from dsl.evaluate import BUDGET, SIZE, Understood, understand
from dsl.nearest import closest
from dsl.parser import Parser
from dsl.plan import MetricSpec
from dsl.quantities import parse_number, parse_time
from dsl.schema import CATALOGUE
from dsl.types import Level, is_missing, show
from engine.cli import options
from engine.cli.manifests import Objects
from engine.clock import SystemClock
from engine.objects import ObjectMeta, Pod
from engine.pods.podinfo import make_pod_info
from engine.policy.world import DEFAULT_GPUS, PodSubject, Worlds
from engine.simulate.samples import Samples
from engine.text.display import LINE, plain, takes_color

#: A metric and the node it is of, or None for all -> its sample as written.
Given = Mapping[tuple[str, str | None], str]
#: Node and value; one that does not differ between nodes has no name.
Values = tuple[tuple[str, Any], ...]
_PERCENT: Final = 0.01
_LEAST: Final = 0.001


def samples_of(
    given: Given, specs: Iterable[MetricSpec], nodes: Iterable[str], now: float
) -> Samples:
    """The samples of the command line for what policies read, all of them new."""
    columns: dict[str, dict[str, float]] = {}
    taken: dict[str, dict[str, float]] = {}
    others: dict[str, list[tuple[list[str], float]]] = {}
    nodes = list(nodes)
    for spec in specs:
        every = given.get((spec.name, None))
        own = {node: given.get((spec.name, node), every) for node in nodes}
        said = {node: _sample(text, spec) for node, text in own.items() if text is not None}
        taken[spec.id] = dict.fromkeys(said, now)
        others[spec.id] = [] if every is None else [([], _sample(every, spec))]
        columns[spec.id] = said
        if spec.default is not None:
            columns[spec.id] = dict.fromkeys(nodes, spec.default) | said
    samples = Samples()
    samples.replace(columns, taken, others)
    return samples


def _sample(text: str, spec: MetricSpec) -> float:
    plain = text.endswith("%") and spec.scale == _PERCENT
    return parse_number(text) * (1.0 if plain else spec.scale)


def read_metrics(given: tuple[str, ...], objects: Objects) -> dict[tuple[str, str | None], str]:
    """Reads `NAME=VALUE` and `NAME@NODE=VALUE`.

    Raises:
        click.ClickException: one of them is neither, or names no node.
    """
    samples: dict[tuple[str, str | None], str] = {}
    for one in given:
        left, equals, value = one.partition("=")
        name, at, node = left.strip().partition("@")
        if not equals or not name or is_missing(parse_number(value.strip())):
            raise click.ClickException(f"{one} is neither NAME=NUMBER nor NAME@NODE=NUMBER")
        if at and node not in objects.nodes:
            raise click.ClickException(f"{one}: no --node file holds a node called {node}")
        samples[name, node if at else None] = value.strip()
    return samples


def values_of(
    understood: Understood, objects: Objects, given: Given, now: float, option: str = "--"
) -> Values | str:
    """Evaluates: a value for each node; or why there is none.

    `option` is what stands before the names of options, as the user writes them.
    """
    if understood.of_pod and objects.pod is None:
        return f"needs a pod: {option}pod FILE"
    of_node = understood.expr.level is Level.NODE
    if of_node and not objects.nodes:
        return f"needs nodes: {option}node FILE"
    cache = objects.cache()
    samples = samples_of(given, understood.metrics.values(), objects.nodes, now)
    snapshot = cache.snapshot(now, samples.view(cache, now))
    world = Worlds(UTC, DEFAULT_GPUS).of(snapshot)
    nobody = Pod(metadata=ObjectMeta(name="pod", namespace="default", uid="pod"))
    subject = PodSubject(objects.pod or make_pod_info(nobody), snapshot, DEFAULT_GPUS)
    places = {name: cache.nodes.row(name) for name in objects.nodes} if of_node else {"": -1}
    return tuple(
        (name, reference.evaluate(understood.expr, reference.View(world, subject, row)))
        for name, row in places.items()
    )


def properties(understood: Understood) -> tuple[tuple[str, str], ...]:
    """Type, unit, level, reads and cost of an expression, in words."""
    kind = understood.expr.type
    unit = "none" if kind.unit is None or kind.unit.is_plain else str(kind.unit)
    share = understood.units / BUDGET
    cost = "nearly nothing" if share < _LEAST else f"{share:.1%} of what a policy may take"
    return (
        ("type", kind.kind.value if kind.is_number else str(kind)),
        *((("unit", unit),) if kind.is_number else ()),
        ("level", understood.expr.level.noun),
        ("reads", ", ".join(understood.reads) or "nothing"),
        ("cost", f"{cost}, with {SIZE.nodes:,} nodes and {SIZE.pods:,} pods"),
    )


def value_lines(understood: Understood, values: Values | str) -> Iterator[str]:
    """The values as they are shown, one line for each node."""
    if isinstance(values, str):
        yield f"<none>  {values}"
        return
    width = max(len(node) for node, _ in values)
    for node, value in values:
        name = f"{node:<{width}}  " if node else ""
        shown = show(value, understood.expr.type)
        yield plain(f"{name}{shown}", len(shown) + LINE)


@click.command("eval", help="Evaluate an expression of the policy language.")
@click.argument("expression")
@click.option("--pod", "pods", multiple=True, type=options.FILE,
              help="Manifests of pods; the first without a node is the one to place.")  # fmt: skip
@click.option("--node", "nodes", multiple=True, type=options.FILE,
              help="Manifests of nodes, the pods on them, and namespaces.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME[@NODE]=VALUE",
              help="The value of a metric, on one node or on all.")  # fmt: skip
@click.option("--now", metavar="TIME", help="Time of the cycle, such as 2025-03-01T10:00:00Z.")
def command(
    expression: str,
    pods: tuple[Path, ...],
    nodes: tuple[Path, ...],
    metrics: tuple[str, ...],
    now: str | None,
) -> None:
    """Exit 1 if the expression is wrong."""
    objects = Objects()
    for path in (*nodes, *pods):
        objects.read(path)
    given = read_metrics(metrics, objects)
    moment = read_time(now)
    understood, found = understand(Parser(), expression)
    if found:
        click.echo(render(found, color=takes_color(sys.stdout)), err=understood is not None)
    if understood is None:
        sys.exit(1)
    _known_metrics({name for name, _ in given}, understood)
    values = values_of(understood, objects, given, moment)
    for name, words in properties(understood):
        click.echo(f"{name:<6} {words}")
    for number, line in enumerate(value_lines(understood, values)):
        click.echo(f"{'value' if number == 0 else '':<6} {line}")


def _known_metrics(given: Iterable[str], understood: Understood) -> None:
    """Refuses a sample of a metric that is not there: hardly anything but a slip of the pen.

    Raises:
        click.ClickException: names it, and the one that may be meant.
    """
    read = {one.name for one in understood.metrics.values()}
    for name in sorted(set(given) - read - set(CATALOGUE)):
        near = closest(name, sorted(read)) or closest(name, sorted(CATALOGUE))
        hint = f"; did you mean {near}?" if near else ""
        raise click.ClickException(f"--metric {name}: there is no such metric{hint}")


def read_time(text: str | None) -> float:
    """Epoch seconds of a time as written; of now without one.

    Raises:
        click.ClickException: it is no time.
    """
    if text is None:
        return SystemClock().time()
    moment = parse_time(text)
    if is_missing(moment):
        raise click.ClickException(f"{text} is not a time; write one like 2025-03-01T10:00:00Z")
    return moment
