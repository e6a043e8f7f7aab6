"""Lists and watches that are not always there: what each of them waits for, and what it feeds.

Besides lists for the cache these are two kinds of metrics. `usage` asks the metrics API as often as
policies want. `object` watches fields of objects of any kind but Secrets: a kind is `GROUP/PLURAL`;
the group of the core is `core`, `v1` or empty. Which version of it the server has is asked before
each list. Of an object its name, labels and the numbers read are kept.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import force_setattr, replace

from dsl.quantities import parse_number, parse_time
from dsl.types import is_missing
from engine.cache import Cache
from engine.clock import Clock
from engine.framework.events import Action, ClusterEvent
from engine.framework.events import Resource as Wakes
from engine.kube.client import KubeClient, segment
from engine.kube.errors import KubeError, NotFound, StatusError
from engine.kube.listing import each
from engine.kube.protocol import Phase, Wait
from engine.kube.reflector import Handler, Reflector
from engine.kube.resources import Resource
from engine.kube.wiring import Wiring
from engine.objects import Identity, Pod, ResourceList, object_key
from engine.objects.ondemand import Metadata
from engine.pods.legible import as_far_as_legible
from engine.policy.podreads import finished_at
from engine.queue import SchedulingQueue
from engine.signals.samples import Series
from engine.signals.spec import OBJECT, Question
from engine.signals.store import SignalStore
from engine.tasks import tasks
from engine.text.quantity import parse

_LOG = logging.getLogger(__name__)

FINISHED_CAME: Final = ClusterEvent(Wakes.FINISHED_POD, Action.ADD)
FINISHED_WENT: Final = ClusterEvent(Wakes.FINISHED_POD, Action.DELETE)
_FORBIDDEN: Final = "403"
_AGAIN_SECONDS: Final = 1.0
USAGE: Final = "usage"
_NANO: Final = 1e9
_LEAST_SECONDS: Final = 1.0
_ASK_AGAIN_SECONDS: Final = 5.0
_UNAVAILABLE: Final = 503
_A_STEP: Final = 256
"""Objects of an answer that are freed at a stretch."""
_PAUSE: Final = 0.05
"""Between two answers: many objects may change at once."""
_CORE: Final = ("", "core", "v1")
SECRETS: Final = frozenset({f"{group}/secrets" for group in _CORE})
"""They are read by no policy."""
_METADATA: Final = "metadata"
_DIGITS: Final = 9
"""Of a place in a list, at most."""
_LARGEST: Final = sys.float_info.max
"""Servers other than the API server's own may write integers of any length."""
#: Names by which a metric says whose it is, and that are an object's own.
_OWN_NAMES: Final = frozenset({"name", "workload", "pod"})


class Source(ABC):
    """Something that is read from the server while it is needed."""

    @abstractmethod
    def awaited(self) -> str:
        """What is not there yet, and why if that is known; empty once all of it is."""

    @abstractmethod
    async def run(self) -> None:
        """Reads until cancelled."""

    @property
    def lacks(self) -> bool:
        """Whether there are metrics that have nothing of it yet, and soon will."""
        return False

    def feed(self) -> None:  # noqa: B027 - most have no metrics
        """Other metrics are asked for: they get what is known."""

    def forget(self) -> None:  # noqa: B027 - what most have fed is dropped by who keeps it
        """Nobody reads it any more."""


@dataclass(eq=False)
class Listed(Source):
    """A list that is watched; `gone` is told when that ends."""

    reflector: Reflector[Any]
    gone: Callable[[], None] = lambda: None

    def awaited(self) -> str:
        """See `Source`: there once it was listed, and may be watched."""
        one = self.reflector
        refused = one.failures and one.last_error.startswith(_FORBIDDEN)
        if one.synced.is_set() and not refused:
            return ""
        return f"{one.name} ({one.last_error})" if one.last_error else one.name

    async def run(self) -> None:
        """See `Source`."""
        await self.reflector.run()

    def forget(self) -> None:
        """See `Source`."""
        self.gone()


@dataclass(eq=False)
class FinishedHandler(Handler[Pod]):
    """Pods that have finished: to the cache, for an hour."""

    cache: Cache
    queue: SchedulingQueue
    clock: Clock
    on_work: Callable[[], None]

    def on_add(self, pod: Pod) -> None:
        """It has finished, or has changed since."""
        info = as_far_as_legible(pod)
        at = finished_at(info)
        # One that does not say when is new, as far as anybody knows.
        self.cache.set_finished(info, self.clock.time() if at != at else at)
        self.cache.expire(self.clock.time())
        self.queue.move(FINISHED_CAME, None, pod)
        self.on_work()

    def on_delete(self, pod: Pod) -> None:
        """It is gone."""
        self.cache.remove_finished(pod.metadata.uid)
        self.queue.move(FINISHED_WENT, pod, None)
        self.on_work()

    def on_synced(self) -> None:
        """All that there were are told."""
        self.on_work()


@dataclass(eq=False)
class PodParts(Source):
    """Parts of pods on nodes that were dropped so far: all pods are listed once more for them."""

    reflector: Reflector[Pod]
    done: Callable[[], None]
    wiring: Wiring
    _awaited: str = field(default="pods once more, for fields that were not kept", init=False)

    def awaited(self) -> str:
        """See `Source`."""
        return self._awaited

    async def run(self) -> None:
        """See `Source`."""
        while self._awaited:
            try:
                await self.reflector.again()
                self._awaited = ""
            except KubeError as error:
                self._awaited = f"pods once more ({error})"
                await self.wiring.sleep(_AGAIN_SECONDS)
        self.done()


# ---- metrics from `usage`


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


@dataclass(eq=False)
class Measured(Source):
    """What gives metrics their samples. A thread reads what is known: that may be much."""

    client: KubeClient
    store: SignalStore
    wiring: Wiring
    came: Callable[[], None]
    source: ClassVar[str]
    pauses: ClassVar[float]
    """Between two answers, of the time that one takes."""
    _fed: set[Question] = field(default_factory=set, init=False)
    """Those that were given what is known now; of `_given`: anything since they are asked for."""
    _given: set[Question] = field(default_factory=set, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _told: bool = field(default=False, init=False)

    @abstractmethod
    async def _read(self) -> None:
        """Reads from the server until cancelled."""

    @abstractmethod
    def _answers(self, question: Question) -> bool:
        """Whether it is one for this source."""

    @abstractmethod
    def _series(self, question: Question) -> Iterator[Series]:
        """What is known."""

    @property
    @abstractmethod
    def _whole(self) -> bool:
        """Whether that is all that there was at one time."""

    @property
    def _questions(self) -> Mapping[Question, float]:
        """Those of the metrics that are asked for which it answers, and how often in seconds."""
        questions = self.store.questions(self.source).items()
        return {one: every for one, every in questions if self._answers(one)}

    async def run(self) -> None:
        """See `Source`."""
        async with tasks() as group:
            group.create_task(self._read())
            group.create_task(self._tell_news())

    def feed(self) -> None:
        """See `Source`. The samples of a metric are gone when nobody asks for it any more."""
        asked = self._questions.keys()
        self._fed.intersection_update(asked)
        self._given.intersection_update(asked)
        if asked - self._fed:
            self._news.set()

    @property
    def lacks(self) -> bool:
        """See `Source`."""
        return self._whole and not self._questions.keys() <= self._given

    def _changed(self) -> None:
        """Something else is known now."""
        self._fed = set()
        self._news.set()

    async def _tell_news(self) -> None:
        while True:
            await self._news.wait()
            began = self.wiring.clock.monotonic()
            if self._whole:
                self._news.clear()
                await self._tell()
                self.came()
            took = self.wiring.clock.monotonic() - began
            await self.wiring.sleep(_PAUSE + self.pauses * took)

    async def _tell(self) -> None:
        fed = self._fed  # another one, if something changes meanwhile
        for question in self._questions.keys() - fed:
            read = partial(self._series, question)
            await self.store.read_in(question, read, whole=self.source == OBJECT)
            if question in self._questions:
                fed.add(question)
                self._given.add(question)
        self._told = True


@dataclass(eq=False)
class UsageSource(Measured):
    """What each `node` or each `pod` uses; see `sources.Source`."""

    of: str
    source = USAGE
    pauses = 0.0

    def __post_init__(self) -> None:
        self._resource = Resource(Usage, f"/apis/metrics.k8s.io/v1beta1/{self.of}s")
        self._away = False
        self._error = ""
        self._found: list[Usage] | None = None

    def awaited(self) -> str:
        """See `Source`: there once it answered, or said that it is not there."""
        if (self._told or self._away) and not self.lacks:
            return ""
        what = f"the usage of {self.of}s (metrics.k8s.io)"
        return f"{what}: {self._error}" if self._error else what

    @property
    def _whole(self) -> bool:
        return self._found is not None and not self._error

    async def _read(self) -> None:
        while True:
            try:
                found = [one async for one in each(self.client, self._resource)]
            except KubeError as error:
                self._failed(error)
                wait = _ASK_AGAIN_SECONDS
            else:
                before, self._found, self._error = self._found, found, ""
                self._changed()
                while before:  # all at once would take long
                    del before[-_A_STEP:]
                    await asyncio.sleep(0)
                every = self._questions.values()
                wait = max(_LEAST_SECONDS, min(every, default=_ASK_AGAIN_SECONDS))
            await self.wiring.sleep(wait)

    def _failed(self, error: KubeError) -> None:
        # A cluster without the API, or whose metrics server is away, has no values for now.
        unavailable = isinstance(error, StatusError) and error.code == _UNAVAILABLE
        self._away |= unavailable or isinstance(error, NotFound)
        if str(error) != self._error:
            _LOG.warning("the usage of %ss is unknown: %s", self.of, error)
        self._error = str(error)
        for question in self._questions:
            self.store.fail(question, str(error))
        self.came()

    def _answers(self, question: Question) -> bool:
        return question.of == self.of

    def _series(self, question: Question) -> Iterator[Series]:
        """The samples of `cpu` (cores) or `memory` (bytes)."""
        now = self.wiring.clock.time()
        for one in self._found or ():
            own = [] if one.usage is None else [one.usage]
            parts = own or [each.usage for each in one.containers or ()]
            try:
                amounts = [parse(part.get(question.query, 0)).nano / _NANO for part in parts]
            except ValueError:
                continue
            meta, at = one.metadata, parse_time(one.timestamp)
            names = (meta.name,) if question.of == "node" else (meta.namespace, meta.name)
            if amounts:
                yield Series(names, sum(amounts), now if at != at else at)


# ---- metrics from `object`


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: list[_Version] = []


class _Resources(msgspec.Struct, frozen=True):
    resources: list[Identity] = []


_group, _resources = msgspec.json.Decoder(_Group), msgspec.json.Decoder(_Resources)


class Known(msgspec.Struct, frozen=True):
    """What is kept of an object: who it is, and its numbers by path, None where it has none."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    numbers: Mapping[str, float | None]


class _Moving(Reflector[Any]):
    """Objects that a server may come to have in another version, where they are listed then."""

    async def _list(self) -> Wait | None:
        try:
            self._resource = replace(self._resource, path=await self._find())
        except KubeError as error:
            return self._no_list(error, while_paging=False)
        return await super()._list()

    async def _find(self) -> str:
        """The path of the collection, in the version that the server likes most of those it has.

        Raises:
            KubeError: it is not there, or that cannot be told.
        """
        _, root, group, *_, plural = self._resource.path.split("/")
        if root == "api":
            return self._resource.path
        path = f"/apis/{group}"
        found = (await self._client.request("GET", path)).decoded(_group.decode, path)
        for one in found.versions:  # the preferred one first
            there = f"{path}/{segment(one.version)}"
            answer = await self._client.request("GET", there)
            kinds = answer.decoded(_resources.decode, there).resources
            if any(kind.name == plural for kind in kinds):
                return f"{there}/{plural}"
        raise NotFound(404, "", f"no version of {group} has {plural}")


@dataclass(eq=False)
class ObjectSource(Handler[Any], Measured):
    """The objects of one kind; see `sources.Source`."""

    kind: str
    paths: Collection[str]
    source = OBJECT
    pauses = 10.0  # one that changes all the time would leave no time for others

    def __post_init__(self) -> None:
        group, plural = map(segment, self.kind.partition("/")[::2])
        path = f"/api/v1/{plural}" if group in _CORE else f"/apis/{group}/*/{plural}"
        resource = Resource(struct_of(self.paths), path)
        self.reflector = _Moving(self.client, resource, self, self.wiring)
        self._known: dict[str, Known] = {}

    # ---- the source

    def awaited(self) -> str:
        """See `Source`: there once it was listed and told, or is no kind that the server has."""
        error = self.reflector.last_error
        if self._told and not self.lacks:
            return ""
        return f"{self.kind} ({error})" if error else self.kind

    @property
    def _whole(self) -> bool:  # half a list is not
        return self.reflector.synced.is_set() and self.reflector.phase is not Phase.LISTING

    async def _read(self) -> None:
        await self.reflector.run()

    def _answers(self, question: Question) -> bool:
        kind, _, path = question.query.partition("#")
        return kind == self.kind and path in self.paths

    def _series(self, question: Question) -> Iterator[Series]:
        now, path = self.wiring.clock.time(), question.query.partition("#")[2]
        for one in tuple(self._known.values()):  # they may change meanwhile
            value = one.numbers[path]
            if value is not None:
                yield Series(_names(one, question), value, now)

    # ---- the handler of its watch

    def on_add(self, item: Any) -> None:  # noqa: ANN401 - a struct made for these fields
        """The object is new, or changed."""
        numbers = {path: _number(item, path.split(".")) for path in self.paths}
        for name in type(item).__struct_fields__:
            if name != _METADATA:
                force_setattr(item, name, None)  # it was read, and may be large
        meta: Metadata = item.metadata
        known = Known(meta.name, meta.namespace, meta.labels or {}, numbers)
        key = object_key(meta)
        if known != self._known.get(key):
            self._known[key] = known
            self._changed()

    def on_delete(self, item: Any) -> None:  # noqa: ANN401 - see `on_add`
        """The object is gone."""
        self._known.pop(object_key(item.metadata), None)
        self._changed()

    def on_synced(self) -> None:
        """All that there were are told."""
        self._changed()
        self.came()


def struct_of(paths: Collection[str]) -> type[Any]:
    """A struct with what these paths begin with; nothing else of the object is decoded."""
    first = {path.partition(".")[0] for path in paths} - {_METADATA}
    # No kind has a field of another name: such a path leads nowhere.
    fields = [(name, Any, None) for name in sorted(first) if name.isidentifier() and name[0] != "_"]
    return msgspec.defstruct("Object", [(_METADATA, Metadata, Metadata()), *fields], frozen=True)


def _number(there: Any, path: Sequence[str]) -> float | None:  # noqa: ANN401 - any JSON value
    """The number at a path; a quantity, a time or a truth value is one, too."""
    for part in path:
        if isinstance(there, dict):
            there = there.get(part)
        elif isinstance(there, list):
            at = int(part) if part.isdecimal() and len(part) <= _DIGITS else len(there)
            there = there[at] if at < len(there) else None
        else:
            there = None if part.startswith("_") else getattr(there, part, None)
    if there in ("true", "false"):  # ConfigMaps hold texts alone
        there = there == "true"
    if isinstance(there, bool | int | float):
        return float(there) if abs(there) <= _LARGEST else None
    if not isinstance(there, str):
        return None
    number = parse_number(there)
    number = parse_time(there) if is_missing(number) else number
    return None if is_missing(number) else number


def _names(one: Known, question: Question) -> tuple[str, ...]:
    """What says whose value an object's is: its own name, its namespace, or a label of it."""
    if question.of == "namespace":
        return (one.namespace or one.name,)
    # Without `by` the labels that are usual for series: objects are named like nodes instead.
    if question.of == "node" and len(question.by) > 1:
        return (one.name,)
    own = {"namespace": one.namespace, **dict.fromkeys(_OWN_NAMES, one.name)}
    return tuple([own[by] if by in own else one.labels.get(by, "") for by in question.by])
