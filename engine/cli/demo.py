"""`berth demo`: the whole promise in half a minute, checked as it goes.

An embedded cluster, the scheduler against it over HTTP, the two policies in a ConfigMap, an edit, a
broken edit. What is shown is what the scheduler decided; what is promised is checked against the
cluster's own state, and a broken promise ends with exit 1.
"""

from __future__ import annotations

import asyncio
import logging
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.app import App, Hooks
from engine.cli.logs import log_to_stderr
from engine.cli.loop import run_in_loop
from engine.cli.up import options_of
from engine.clock import Clock, SystemClock
from engine.embedded import EmbeddedCluster
from engine.explain.scores import rules_of
from engine.framework.decision import Placed
from engine.policy.bundle import Bundle, Refusal

NAMESPACE: Final = "demo"
CONFIG_MAP: Final = "berth-policies"
FILE: Final = "demo.policy"
FILTER_LINE: Final = "filter: pod.name contains nginx -> node.label test=test"
SCORE_LINE: Final = "score: 100 - bandwidth/max*100"
EDITED_LINE: Final = FILTER_LINE.replace("test=test", "tier=edge")
BROKEN_LINE: Final = FILTER_LINE.replace("node.label test=test", "node.lable test=test")
EDGE_NODES: Final = 3
BURST: Final = 300
TEMPLATES: Final = (
    ("nginx-web", "100m", "64Mi"),
    ("redis-cache", "50m", "128Mi"),
    ("worker", "150m", "96Mi"),
    ("nginx-api", "80m", "64Mi"),
    ("batch", "60m", "48Mi"),
)
URGENT: Final = "urgent"
DEADLINE: Final = 28.0
_STEP_SECONDS: Final = 8.0
_POLL_SECONDS: Final = 0.02
_COLUMNS: Final = ("node", "label", "bandwidth", "nginx pods", "other pods")
_PIPED_WIDTH: Final = 1000
_PICTURE_WIDTH: Final = 140
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class BrokenPromiseError(Exception):
    """Something that the demo says happens did not happen."""


class Story:
    """The steps of the demo, in order; hooks of the scheduler tell it what happens.

    Attributes:
        bundles, refusals: what came into force, and what was refused.
    """

    def __init__(self, cluster: EmbeddedCluster, app: App, console: Console, clock: Clock) -> None:
        self._cluster = cluster
        self._app = app
        self._console = console
        self._steps = 0
        self._clock = clock
        self.bundles: list[Bundle] = []
        self.refusals: list[Refusal] = []
        self._placed: dict[str, tuple[str, str]] = {}
        """By pod: its node, and each rule's part in that."""
        self._seconds: list[float] = []
        self._decided_at: dict[str, float] = {}
        self._messages: dict[str, str] = {}
        self._obeyed_seconds = 0.0
        self._burst_rate = 0.0

    # ---- what the scheduler tells --------------------------------------------------------------

    def placed(self, placed: Placed) -> None:
        """An observer of decisions."""
        self._seconds.append(placed.seconds)
        pod = placed.decision.pod
        frameworks = self._app.frameworks
        if placed.decision.node is None or frameworks is None:
            self._messages[pod.name] = placed.decision.message
            return
        self._decided_at[pod.name] = self._clock.monotonic()
        why = "; ".join(rules_of(placed, frameworks.of(pod)))
        self._placed[pod.name] = placed.decision.node, why

    # ---- the steps -----------------------------------------------------------------------------

    async def tell(self) -> None:
        """Runs all steps.

        Raises:
            BrokenPromiseError: one of them did not do what it says.
        """
        await self._two_lines()
        await self._first_pods()
        await self._burst()
        await self._edit()
        await self._broken_edit()
        await self._preemption()
        self._summary()

    async def _two_lines(self) -> None:
        nodes = self._cluster.list("nodes")
        for node in nodes[-EDGE_NODES:]:
            self._cluster.patch(
                "nodes", node["metadata"]["name"], {"metadata": {"labels": {"tier": "edge"}}}
            )
        zones = {n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in nodes}
        test = len(self._nodes_with("test", "test"))
        self._step(
            f"A cluster of {len(nodes)} nodes in {len(zones)} zones, {test} of them labelled"
            " test=test, each with a changing bandwidth."
        )
        self._put_lines(FILTER_LINE, SCORE_LINE)
        self._step(f"Two lines of policy, in ConfigMap {NAMESPACE}/{CONFIG_MAP}:")
        self._code(f"{FILTER_LINE}\n{SCORE_LINE}")
        await self._until(lambda: bool(self.bundles), "the two lines never came into force")
        signals = self._app.signals
        sampled = "no bandwidth came from Prometheus"
        await self._until(lambda: any(one.matched for one in signals.status()), sampled)

    async def _first_pods(self) -> None:
        self._step("Pods that ask for schedulerName: berth, and the lines that decided:")
        names = [f"{kind}-{number}" for kind in ("nginx", "redis") for number in range(1, 4)]
        for name in names:
            self._create_pod(name, "100m", "64Mi")
            await self._show_bound(name)
        self._check_nginx(names, "test", "test")

    async def _burst(self) -> None:
        self._step(f"A burst of {BURST} pods from {len(TEMPLATES)} templates:")
        names = []
        started = self._clock.monotonic()
        for number in range(BURST):
            name, cpu, memory = TEMPLATES[number % len(TEMPLATES)]
            names.append(f"{name}-{number}")
            self._create_pod(names[-1], cpu, memory)
        await self._until(
            lambda: all(map(self._node_of, names)), "not all were bound", 2 * _STEP_SECONDS
        )
        self._burst_rate = BURST / (self._clock.monotonic() - started)
        self._show_nodes()
        self._check_nginx(names, "test", "test")
        for name in names[:: BURST // 5]:
            self._show(name)

    async def _edit(self) -> None:
        self._step("The ConfigMap is edited; no restart, no rebuild:")
        self._code(f"- {FILTER_LINE}\n+ {EDITED_LINE}")
        before = len(self.bundles)
        edited = self._clock.monotonic()
        self._put_lines(EDITED_LINE, SCORE_LINE)
        await self._until(lambda: len(self.bundles) > before, "the edit was not obeyed")
        names = [f"nginx-edited-{number}" for number in range(1, 4)]
        for name in names:
            self._create_pod(name, "100m", "64Mi")
        for name in names:
            await self._show_bound(name)
        self._obeyed_seconds = self._decided_at[names[0]] - edited
        self._check_nginx(names, "tier", "edge")

    async def _broken_edit(self) -> None:
        self._step("A broken edit is refused with place and fix; the old rules stay:")
        in_force = len(self.bundles)
        self._put_lines(BROKEN_LINE, SCORE_LINE)
        await self._until(lambda: bool(self.refusals), "the broken edit was not refused")
        refusal = self.refusals[-1]
        if "^" not in refusal.text or "node.label" not in refusal.text:
            raise BrokenPromiseError(f"the refusal does not show the place:\n{refusal.text}")
        self._code(refusal.text)
        name = "nginx-after-broken-edit"
        self._create_pod(name, "100m", "64Mi")
        await self._show_bound(name)
        if len(self.bundles) != in_force:
            raise BrokenPromiseError("the broken edit came into force")
        self._check_nginx([name], "tier", "edge")

    async def _preemption(self) -> None:
        self._step("A pod of high priority evicts a less important one, and says so:")
        urgent = {"metadata": {"name": URGENT}, "value": 1000}
        self._cluster.create("priorityclasses", urgent)
        pods = Counter(pod["spec"].get("nodeName") for pod in self._cluster.list("pods"))
        node = min(self._cluster.nodes.names, key=pods.__getitem__)
        # More than half of the node each, so that two do not fit.
        cpu = self._cluster.get("nodes", node)["status"]["allocatable"]["cpu"]
        asked = f"{int(cpu) * 600}m"
        self._create_pod("filler", asked, "64Mi", node=node)
        await self._show_bound("filler")
        self._create_pod(URGENT, asked, "64Mi", node=node, priority_class=URGENT)
        await self._until(lambda: URGENT in self._messages, "the urgent pod found room at once")
        self._code(self._messages[URGENT])
        await self._show_bound(URGENT)
        if "filler" in {pod["metadata"]["name"] for pod in self._cluster.list("pods")}:
            raise BrokenPromiseError("the pod of low priority is still there")
        del self._placed["filler"]

    def _summary(self) -> None:
        pods = [p for p in self._cluster.list("pods") if p["spec"].get("nodeName")]
        expected = len(self._placed)
        if len(pods) != expected:
            raise BrokenPromiseError(f"{expected} pods were decided, {len(pods)} are bound")
        seconds = self._seconds
        cuts = statistics.quantiles(seconds, n=100)
        self._console.print(
            Text("\nAll of this happened, as the state of the cluster confirms.", "bold green")
        )
        for name, fact in (
            ("pods bound", f"{len(pods)}"),
            ("end to end", f"{self._burst_rate:,.0f} pods/s in the burst"),
            ("decisions", f"{len(seconds) / sum(seconds):,.0f}/s"),
            ("one decision", f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"),
            ("edit to effect", f"{self._obeyed_seconds * 1e3:.0f} ms"),
        ):
            self._console.print(Text.assemble(f"   {name:<16} ", (fact, "bold")))

    # ---- what is shown -------------------------------------------------------------------------

    def _step(self, text: str) -> None:
        before = "\n" if self._steps else ""
        self._steps += 1
        number = f"{self._steps}. ", "bold cyan"
        self._console.print(Text.assemble(before, number, (text, "bold")))

    def _code(self, text: str) -> None:
        """A policy, or what the checker says of one."""
        for line in text.splitlines():
            style = {"-": "red", "+": "green", "e": "bold red"}.get(line[:1], "yellow")
            self._console.print(Text(f"     {line}", style))

    def _show(self, name: str) -> None:
        node, why = self._placed[name]
        if node != self._node_of(name):
            raise BrokenPromiseError(f"{name} was decided for {node}, the cluster differs")
        shown = (f"{node:<10}", "green"), " ", (why, "dim")
        self._console.print(Text.assemble(f"   {name:<24} -> ", *shown))

    def _show_nodes(self) -> None:
        pods = [pod for pod in self._cluster.list("pods") if pod["spec"].get("nodeName")]
        of = Counter((p["spec"]["nodeName"], "nginx" in p["metadata"]["name"]) for p in pods)
        test = self._nodes_with("test", "test")
        table = Table(*_COLUMNS, box=None, pad_edge=False, padding=(0, 2))
        for node in self._cluster.nodes.names:
            bandwidth = f"{self._cluster.nodes.bandwidth(node) / 1e6:.1f} MB/s"
            counts = f"{of[node, True]}", f"{of[node, False]}"
            table.add_row(node, "test=test" if node in test else "", bandwidth, *counts)
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))
        self._console.line()

    # ---- the cluster ---------------------------------------------------------------------------

    def _put_lines(self, *lines: str) -> None:
        data = {FILE: "".join(f"{line}\n" for line in lines)}
        names = {c["metadata"]["name"] for c in self._cluster.list("configmaps")}
        if CONFIG_MAP in names:
            self._cluster.patch("configmaps", CONFIG_MAP, {"data": data}, namespace=NAMESPACE)
        else:
            config_map = {"metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE}, "data": data}
            self._cluster.create("configmaps", config_map, namespace=NAMESPACE)

    def _create_pod(
        self, name: str, cpu: str, memory: str, *, node: str = "", priority_class: str = ""
    ) -> None:
        container = {
            "name": "main",
            "image": f"registry.example/{name.partition('-')[0]}",
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }
        self._cluster.create(
            "pods",
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"schedulerName": self._app.settings.scheduler_name,
                         "containers": [container],
                         "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
                         "priorityClassName": priority_class},
            },
            namespace=NAMESPACE,
        )  # fmt: skip

    def _node_of(self, name: str) -> str | None:
        node = self._cluster.get("pods", name, namespace=NAMESPACE)["spec"].get("nodeName")
        return None if node is None else str(node)

    def _nodes_with(self, key: str, value: str) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in self._cluster.list("nodes")
            if node["metadata"]["labels"].get(key) == value
        }

    # ---- promises ------------------------------------------------------------------------------

    def _check_nginx(self, names: list[str], key: str, value: str) -> None:
        allowed = self._nodes_with(key, value)
        for name in names:
            if "nginx" in name and self._node_of(name) not in allowed:
                raise BrokenPromiseError(
                    f"{name} is on {self._node_of(name)}, which is not labelled {key}={value}"
                )

    async def _show_bound(self, name: str) -> None:
        await self._until(lambda: self._node_of(name) is not None, f"{name} waits")
        self._show(name)

    async def _until(
        self, true: Callable[[], bool], otherwise: str, seconds: float = _STEP_SECONDS
    ) -> None:
        deadline = self._clock.monotonic() + seconds
        while not true():
            if self._clock.monotonic() > deadline:
                raise BrokenPromiseError(otherwise)
            await asyncio.sleep(_POLL_SECONDS)


async def _demo(console: Console) -> None:
    clock = SystemClock()
    async with EmbeddedCluster(nodes=12, seed=1, clock=clock) as cluster:
        cluster.create("namespaces", {"metadata": {"name": NAMESPACE}})
        hooks = Hooks()
        options = options_of(cluster, f"{NAMESPACE}/{CONFIG_MAP}")
        app = App(options, clock=clock, hooks=hooks)
        story = Story(cluster, app, console, clock)
        hooks.observers.append(story.placed)
        hooks.accepted.append(story.bundles.append)
        hooks.refused.append(story.refusals.append)
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(app.run(stop))
        telling = asyncio.get_running_loop().create_task(story.tell())
        try:
            async with asyncio.timeout(DEADLINE):
                await asyncio.wait({running, telling}, return_when="FIRST_COMPLETED")
            if running.done():
                await running
                raise BrokenPromiseError("the scheduler stopped by itself")
            await telling
        except TimeoutError as late:
            raise BrokenPromiseError(f"it took longer than {DEADLINE:.0f} s") from late
        finally:
            telling.cancel()
            stop.set()
            await running


@click.command("demo", help="Show Berth at work in half a minute, on an embedded cluster.")
@click.option("--plain", is_flag=True, help="Plain lines even on a terminal.")
@click.option("--svg", metavar="FILE", hidden=True, help="Draw the run; makes docs/demo.svg.")
def command(svg: str | None, *, plain: bool) -> None:
    """Tells the story; exit 1 if anything it says did not happen."""
    # What the scheduler logs is shown by the story itself.
    log_to_stderr(logging.CRITICAL, "%(message)s")
    width = None if sys.stdout.isatty() and not plain else _PIPED_WIDTH
    console = Console(highlight=False, force_terminal=False if width else None, width=width)
    if svg is not None:
        console = Console(record=True, file=StringIO(), width=_PICTURE_WIDTH,
                          color_system="truecolor", highlight=False)  # fmt: skip
    try:
        run_in_loop(_demo(console))
    except BrokenPromiseError as broken:
        click.echo(f"The demo did not do what it promises: {broken}", err=True)
        sys.exit(1)
    if svg is not None:
        # Fonts are the viewer's: nothing is fetched.
        drawn = console.export_svg(title="make demo", unique_id="berth")
        Path(svg).write_text(_FONT_FACE.sub("", drawn), "utf-8")
