"""What is about several pods, or beside a decision: gangs, quotas, shadow, records, `across`.

CPU time of the thread. A gang is tried by the scheduler itself, slice after slice; in none longer
than the longest anything else waits.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from zoneinfo import ZoneInfo

from msgspec import structs

from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.cycle import conclude, decide
from engine.framework.decision import Placed
from engine.framework.runtime import Framework
from engine.policy.shadow import Shadow
from engine.policy.world import Worlds
from engine.records import Records
from engine.signals.store import SignalStore
from engine.simulate.lab import Lab
from engine.telemetry import Telemetry
from tests.bench.decisions import bundle_of_lines, framework_with
from tests.bench.measure import Measurement, seconds_each
from tests.builders import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
GANG = "gang: by pod.label[gang] min number(pod.label[size])"
PLAIN = "filter: pod.name contains other -> node.label test=test"
QUOTA = "quota: by pod.namespace max cpu 100000"
SHADOWED = (
    "mode: shadow\n"
    "filter: pod.name contains nginx -> node.label test=test\n"
    "score: node.cpu.free normalize minmax\n"
)
ACROSS = (
    "require: count(zone.pods where it.label app=db) == 0\n"
    "preempt: victims where it.priority < pod.priority across 2 nodes\n"
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    nodes: int = 5000
    members: int = 100
    domains: int = 50
    rounds: int = 5
    across: int = 100


QUICK = Sizes(rounds=3)
TOY = Sizes(nodes=20, members=4, domains=4, rounds=1, across=6)


class ThreadClock(ManualClock):
    """Monotonic time is the thread's: slices are as long as on a core of its own."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.thread_time()


def measure(sizes: Sizes) -> Iterator[Measurement]:
    """All rows."""
    for within in ("", " within zone"):
        for classes in (1, sizes.members):
            yield _gang(sizes, within, classes)
    yield _gang(sizes, " within zone", sizes.members, fits=False)
    yield _quota(sizes)
    yield _shadow(sizes)
    yield _record(sizes)
    yield _across(sizes)


def _lab(text: str, sizes: Sizes, clock: ManualClock) -> Lab:
    lab = Lab(framework_with(bundle_of_lines(f"{text}\n")), clock=clock, signals=SignalStore(clock))
    lab.add(
        make_node(
            f"node-{i:05}", cpu="16", memory="64Gi", labels={ZONE: f"zone-{i % sizes.domains}"}
        )
        for i in range(sizes.nodes)
    )
    return lab


# ---- gangs ---------------------------------------------------------------------------------------


def _gang(sizes: Sizes, within: str, classes: int, *, fits: bool = True) -> Measurement:
    each = [_tried(sizes, within, classes, fits=fits) for _ in range(sizes.rounds)]
    first, later, longest = (1e6 * statistics.median(own) for own in zip(*each, strict=True))
    kinds = "alike" if classes == 1 else "no two alike"
    size = f"gang of {sizes.members}{within}, {kinds}, {sizes.nodes} nodes"
    values = {"us": later, "other_us": longest, "ratio": longest / later, "first_us": first}
    name = size if fits else f"{size}, no room"
    return Measurement("language", name, values, {"other": "its longest slice"})


def _tried(sizes: Sizes, within: str, classes: int, *, fits: bool) -> tuple[float, float, float]:
    """Seconds of the first gang, of the second, and the longest slice of that."""
    lab = _lab(GANG + within, sizes, ThreadClock())
    took: list[float] = []
    longest = 0.0
    for name in ("first", "second"):
        labels = {"gang": name, "size": str(sizes.members)}
        base = 100 if fits else 16_000 * sizes.nodes // sizes.members // sizes.domains
        lab.add(
            make_pod(f"{name}-{i}", cpu=f"{base + i % classes}m", labels=labels).pod
            for i in range(sizes.members)
        )
        slices = asyncio.run(_slices(lab, sizes.members if fits else 0))
        took.append(sum(slices))
        longest = max(slices)
    return took[0], took[1], longest


async def _slices(lab: Lab, bound: int) -> list[float]:
    """Seconds of each until nothing is to be done."""
    found, before, more = [], len(lab.written.bound), True
    while more:
        began = time.thread_time()
        more = lab.scheduler.work()
        found.append(time.thread_time() - began)
    await lab.turn()
    if len(lab.written.bound) - before != bound:
        raise RuntimeError(f"{len(lab.written.bound) - before} members are bound, not {bound}")
    return found


# ---- a decision with and without -----------------------------------------------------------------


def _decided(lab: Lab, framework: Framework) -> Callable[[], object]:
    """A decision about a pod of a known class; nothing changes."""
    number = count()
    return lambda: decide(make_pod(f"nginx-{next(number)}", cpu="100m"), lab.snapshot(), framework)


def _quota(sizes: Sizes) -> Measurement:
    calls = {}
    for text in (QUOTA, PLAIN):
        lab = _lab(text, sizes, ManualClock())
        calls[text] = _decided(lab, lab.frameworks.of(make_pod("p")))
    took = seconds_each(calls, rounds=20 * sizes.rounds, repeat=50)
    return _row(
        "decision of a known class under a quota", took[QUOTA], min(took.values()), "without"
    )


def _shadow(sizes: Sizes) -> Measurement:
    lab, clock = _lab(PLAIN, sizes, ManualClock()), ManualClock()
    framework = lab.frameworks.of(make_pod("p"))
    bundle = bundle_of_lines(SHADOWED)
    shadow = Shadow(
        worlds=Worlds(ZoneInfo("UTC"), BerthDocument().gpu_resources),
        frameworks=lambda: framework,
        clock=clock,
        telemetry=Telemetry(),
        tell=lambda _: None,
    )
    (plan,) = bundle.plans
    shadow.use([structs.replace(plan, name=f"shadow-{n}") for n in range(10)])
    placed = _placed(lab, framework)
    took = seconds_each(
        {"shadow": lambda: shadow.placed(placed), "decision": _decided(lab, framework)},
        rounds=sizes.rounds,
        repeat=20,
    )
    return _row(
        "ten policies in shadow, a decision", took["shadow"], took["decision"], "the decision"
    )


def _placed(lab: Lab, framework: Framework) -> Placed:
    snapshot = lab.snapshot()
    return Placed(decide(make_pod("nginx-0", cpu="100m"), snapshot, framework), snapshot, 0.001)


def _record(sizes: Sizes) -> Measurement:
    lab = _lab(PLAIN, sizes, ManualClock())
    framework = lab.frameworks.of(make_pod("p"))
    # The best nodes are worked out in a hundredth of the time: here, where none goes by, once.
    clock = ManualClock()
    records = Records(lambda: None, clock)
    placed = _placed(lab, framework)
    took = seconds_each(
        {"record": lambda: records.placed(placed), "decision": _decided(lab, framework)},
        rounds=20 * sizes.rounds,
        repeat=200,
    )
    return _row(
        "record of a decision", took["record"], took["decision"], "the decision", us_at_most=5.0
    )


def _across(sizes: Sizes) -> Measurement:
    lab = _lab(ACROSS, sizes, ManualClock())
    app = {"app": "db"}
    for number in range(sizes.across):
        low = make_pod(f"low-{number}", cpu="100m", labels=app)
        lab.cache.add_pod(low, f"node-{number:05}")
    framework = lab.frameworks.of(make_pod("p"))
    pod = make_pod("high", cpu="100m", labels=app, priority=10)
    took: list[float] = []
    for _ in range(sizes.rounds):
        began = time.thread_time()
        found = conclude(pod, lab.snapshot(), framework)
        took.append(time.thread_time() - began)
    if found.rescue is None:
        raise RuntimeError(found.message)
    values = {"us": 1e6 * statistics.median(took)}
    name = f"victims across 2 nodes, {sizes.across} nodes with one, {sizes.nodes} nodes"
    return Measurement("language", name, values)


def _row(
    name: str, ours: float, other: float, what: str, *, us_at_most: float | None = None
) -> Measurement:
    tags: dict[str, str | int | float] = {"other": what}
    if us_at_most is not None:
        tags["us_at_most"] = us_at_most
    values = {"us": 1e6 * ours, "other_us": 1e6 * other, "ratio": ours / other}
    return Measurement("language", name, values, tags)
