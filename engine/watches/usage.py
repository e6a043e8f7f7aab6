"""Metrics from `usage`: the metrics API is asked as often as policies want, and samples go in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from dsl.quantities import parse_time
from engine.kube.errors import KubeError, NotFound, StatusError
from engine.kube.listing import list_all
from engine.kube.resources import Resource
from engine.kube.session import KubeClient
from engine.kube.wiring import Wiring
from engine.objects import Identity, ResourceList
from engine.signals.samples import Series
from engine.signals.spec import Question
from engine.signals.store import SignalStore
from engine.text.quantity import parse
from engine.watches.sources import Source

_LOG = logging.getLogger(__name__)

USAGE: Final = "usage"
_NANO: Final = 1e9
_LEAST_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 5.0
_UNAVAILABLE: Final = 503


class _Container(msgspec.Struct, frozen=True):
    usage: ResourceList = {}


class Usage(msgspec.Struct, frozen=True):
    """What a node uses, or the containers of a pod, and when that was measured.

    Source: k8s.io/metrics/pkg/apis/metrics/v1beta1.
    """

    metadata: Identity = Identity()
    timestamp: str = ""
    usage: ResourceList | None = None
    containers: list[_Container] | None = None

    def parts(self) -> Sequence[ResourceList]:
        """What is to be added up."""
        if self.usage is not None:
            return (self.usage,)
        return tuple(one.usage for one in self.containers or ())


@dataclass(eq=False)
class UsageSource(Source):
    """What each `node` or each `pod` uses; see `sources.Source`."""

    of: str
    client: KubeClient
    store: SignalStore
    wiring: Wiring
    came: Callable[[], None]

    def __post_init__(self) -> None:
        self._resource = Resource(Usage, f"/apis/metrics.k8s.io/v1beta1/{self.of}s")
        self._answered = False
        self._error = ""
        self._found: Sequence[Usage] = ()

    def awaited(self) -> str:
        """See `Source`: there once it answered, or said that it is not there."""
        if self._answered:
            return ""
        what = f"the usage of {self.of}s (metrics.k8s.io)"
        return f"{what}: {self._error}" if self._error else what

    async def run(self) -> None:
        """See `Source`."""
        while True:
            wait = _AGAIN_SECONDS
            try:
                found = await list_all(self.client, self._resource)
            except KubeError as error:
                self._failed(error)
            else:
                self._answered, self._error, self._found = True, "", found
                self.feed()
                every = self._questions().values()
                wait = max(_LEAST_SECONDS, min(every, default=_AGAIN_SECONDS))
            self.came()
            await self.wiring.sleep(wait)

    def feed(self) -> None:
        """See `Source`."""
        for question in self._questions() if self._answered and not self._error else ():
            self.store.ingest(question, series_of(self._found, question, self.wiring.clock.time()))

    def _questions(self) -> Mapping[Question, float]:
        questions = self.store.questions(USAGE)
        return {one: every for one, every in questions.items() if one.of == self.of}

    def _failed(self, error: KubeError) -> None:
        # A cluster without the API, or whose metrics server is away, has no values for now.
        away = isinstance(error, StatusError) and error.code == _UNAVAILABLE
        self._answered |= away or isinstance(error, NotFound)
        if str(error) != self._error:
            _LOG.warning("the usage of %ss is unknown: %s", self.of, error)
        self._error = str(error)
        for question in self._questions():
            self.store.fail(question, str(error))


def series_of(found: Sequence[Usage], question: Question, now: float) -> list[Series]:
    """The samples of `cpu` (cores) or `memory` (bytes)."""
    series = []
    for one in found:
        try:
            amounts = [parse(part.get(question.query, 0)).nano / _NANO for part in one.parts()]
        except ValueError:
            continue
        meta, at = one.metadata, parse_time(one.timestamp)
        names = (meta.name,) if question.of == "node" else (meta.namespace, meta.name)
        if amounts:
            series.append(Series(names, sum(amounts), now if at != at else at))
    return series
