"""Metrics asked for once, one after the other, outside of any scheduler; counts come out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.clock import Clock
from engine.config import PrometheusSection
from engine.display import without_user
from engine.objects import Node
from engine.signals.prometheus import PrometheusRefresher
from engine.signals.spec import SignalSpec, SignalStatus
from engine.signals.store import SignalStore
from engine.telemetry import Telemetry

#: What any Prometheus answers.
_PROBE = SignalSpec("probe", "vector(1)")


async def ask_once(
    section: PrometheusSection, specs: Iterable[SignalSpec], nodes: Sequence[Node], clock: Clock
) -> tuple[SignalStatus, ...]:
    """How each metric is, in the order of `specs`; a refusal of one is in its `error`.

    Raises:
        ConnectionError: the server does not answer at all; the message says why.
    """
    probe = await _ask(section, _PROBE, (), clock)
    if probe.error:
        at = without_user(section.url or "")
        raise ConnectionError(f"Prometheus at {at} cannot be asked: {probe.error}")
    # One at a time, so that a query that times out does not take the others with it.
    return tuple([await _ask(section, spec, nodes, clock) for spec in specs])


async def _ask(
    section: PrometheusSection, spec: SignalSpec, nodes: Sequence[Node], clock: Clock
) -> SignalStatus:
    store = SignalStore(clock)
    store.set_specs([spec])
    for node in nodes:
        store.nodes_changed(None, node)
    refresher = PrometheusRefresher(store, section, clock=clock, telemetry=Telemetry())
    await refresher.turn()
    (status,) = store.status()
    return status
