"""`berth inventory`: what a cluster has, as a file for `berth check --inventory`.

A JSON object: `inventory` (1), `nodes` and `namespaces` (each with `name` and `labels`), `images`
(texts, those of running pods), `pods` (how many there are, without finished ones) and `metrics`:
for each query its label (`by`), how many series it gave, how many nodes (or namespaces, pods, ...)
have one, and why the server refused it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

import policies
from dsl.analysis import question_of
from dsl.plan import OF_NODES, MetricSpec
from dsl.schema import CATALOGUE, MetricDefinition
from engine.cli import options
from engine.cli.check import beside, expanded, read
from engine.cli.refusals import of_file, reported
from engine.cli.settings import with_flags
from engine.clock import SystemClock
from engine.configuration.berth import PrometheusSection
from engine.configuration.settings import ConfigError, load
from engine.kube import resources
from engine.kube.client import KubeClient
from engine.kube.errors import KubeError
from engine.kube.listing import list_all
from engine.kube.session import Session
from engine.objects import Node
from engine.policy.bundle import compile_settings
from engine.policy.findings import new_compiler
from engine.signals.prometheus import ask_once
from engine.signals.spec import SignalStatus
from engine.text.display import without_user

_FINISHED: Final = ("Succeeded", "Failed")
#: What any Prometheus answers.
_PROBE: Final = MetricSpec("", "", "vector(1)", None, 15.0, 120.0, None, "")


@click.command("inventory", help="Save the labels, namespaces and images of a cluster.")
@options.KUBECONFIG
@options.CONTEXT
@click.option("-o", "output", type=options.FILE, help="File to write.  [default: stdout]")
@click.option(
    "--config", metavar="FILE", help="Configuration file, for its Prometheus and metrics."
)
@click.option("--prometheus-url", "url", metavar="URL", help="Query the bundled metrics, too.")
@click.option(
    "--policies", "files", metavar="PATH", multiple=True, type=click.Path(path_type=Path),
    help="Policy file or folder whose metrics are queried beside the bundled ones.",
)  # fmt: skip
@reported(ConfigError, KubeError, ConnectionError)
def command(
    kubeconfig: str | None,
    context: str | None,
    output: Path | None,
    config: str | None,
    url: str | None,
    files: tuple[Path, ...],
) -> None:
    """Asks once and ends; changes nothing in the cluster."""
    settings = with_flags(load(config), {"prometheus_url": url})
    section = settings.berth.prometheus
    if files and section.url is None:
        raise click.UsageError("--policies needs --prometheus-url, or --config with one")
    defined = compile_settings(settings.berth).metrics
    specs = [] if section.url is None else metrics_of(files, defined)
    found = asyncio.run(_ask(kubeconfig or settings.kubeconfig, context, section, specs))
    text = json.dumps(found, ensure_ascii=False, indent=1)
    if output is None:
        click.echo(text)
        return
    with of_file(output, "written"):
        output.write_text(text + "\n", encoding="utf-8")
    counts = f"{len(found['nodes'])} nodes, {len(found['namespaces'])} namespaces"
    more = f", {len(found['metrics'])} metrics" if "metrics" in found else ""
    click.echo(f"{output}: {counts}, {found['pods']} pods{more}", err=True)


def metrics_of(
    paths: Sequence[Path], defined: Mapping[str, MetricDefinition] | None = None
) -> list[MetricSpec]:
    """The metrics of Prometheus that policy files read, and the bundled ones.

    `defined` are those of the configuration.
    """
    compiler, metrics = new_compiler(), defined or {}
    texts = {str(path): read(path) for path in expanded(paths)}
    lines = {f"{name}.policy": f"score: {name} normalize minmax\n" for name in CATALOGUE}
    bundled = policies.texts() | beside(texts, texts)
    found = [
        *compiler.compile(lines, metrics=metrics).understood,
        *compiler.compile(texts, metrics=metrics, bundled=bundled).understood,
    ]
    return [spec for plan in found for spec in plan.metrics if spec.source == "promql"]


async def _ask(
    kubeconfig: str | None,
    context: str | None,
    section: PrometheusSection,
    specs: Sequence[MetricSpec],
) -> dict[str, Any]:
    async with await Session.connect(kubeconfig, context) as session:
        nodes = await list_all(session, resources.NODES)
        found = await take(session, nodes)
        if section.url is not None:
            found["metrics"] = await ask_metrics(section, specs, nodes)
    return found


async def ask_metrics(
    section: PrometheusSection, specs: Iterable[MetricSpec], nodes: Sequence[Node]
) -> list[dict[str, Any]]:
    """What Prometheus says to each query; without nodes, `nodes` of what they have is None.

    Raises:
        ConnectionError: the server does not answer.
    """
    questions = sorted({question_of(spec): spec for spec in specs}.items(), key=lambda one: one[0])
    probe = await _asked(section, _PROBE, ())
    if probe.error:
        raise ConnectionError(
            f"Prometheus at {without_user(section.url or '')} cannot be asked: {probe.error}"
        )
    # One at a time, so that a query that times out does not take the others with it.
    told = [await _asked(section, spec, nodes) for _, spec in questions]
    return [
        {
            "query": query,
            "by": by,
            "series": status.series,
            "nodes": status.matched if nodes or spec.of not in OF_NODES else None,
            "error": status.error,
        }
        for ((query, by), spec), status in zip(questions, told, strict=True)
    ]


async def _asked(
    section: PrometheusSection, spec: MetricSpec, nodes: Sequence[Node]
) -> SignalStatus:
    [status] = (await ask_once(section, [spec], nodes, SystemClock())).status()
    return status


async def take(client: KubeClient, nodes: Sequence[Node]) -> dict[str, Any]:
    """Returns the inventory of a cluster with these nodes.

    Raises:
        KubeError: the server cannot be asked.
    """
    spaces = await list_all(client, resources.NAMESPACES)
    there = await list_all(client, resources.pods(""))
    pods = [one for one in there if one.status.phase not in _FINISHED]
    images = {
        each.image
        for pod in pods
        for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if each.image
    }
    return {
        "inventory": 1,
        "nodes": [_named(one) for one in nodes],
        "namespaces": [_named(one) for one in spaces],
        "images": sorted(images),
        "pods": len(pods),
    }


def _named(item: Any) -> dict[str, object]:  # noqa: ANN401 - any object of the API
    labels = item.metadata.labels or {}
    return {"name": item.metadata.name, "labels": dict(sorted(labels.items()))}
