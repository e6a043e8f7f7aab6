"""Metrics from `object`: fields of objects of any kind but Secrets, watched.

A kind is `GROUP/PLURAL`; the group of the core is `core`, `v1` or empty. Which version of it the
server has is asked once. What is kept of an object is its name, its labels and the numbers read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from dsl.quantities import parse_number, parse_time
from dsl.types import is_missing
from engine.kube.errors import KubeError, NotFound, Unreadable
from engine.kube.reflector import Handler, Reflector
from engine.kube.resources import Resource
from engine.kube.session import KubeClient, segment
from engine.kube.wiring import Wiring
from engine.objects import object_key
from engine.ondemand import Described
from engine.signals.samples import Series
from engine.signals.spec import Question
from engine.signals.store import SignalStore
from engine.watching.sources import Source

_LOG = logging.getLogger(__name__)

OBJECT: Final = "object"
_CORE: Final = ("", "core", "v1")
_SECRETS: Final = "secrets"
_METADATA: Final = "metadata"
_AGAIN_SECONDS: Final = 5.0
_ABSENT_SECONDS: Final = 30.0
#: Names by which a metric says whose it is, and that are an object's own.
_OWN_NAMES: Final = frozenset({"name", "workload", "pod"})


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    preferred_version: _Version = _Version()


_group = msgspec.json.Decoder(_Group)


class Known(msgspec.Struct, frozen=True):
    """What is kept of an object: who it is, and its numbers by path, None where it has none."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    numbers: Mapping[str, float | None]


@dataclass(eq=False)
class ObjectSource(Handler[Any], Source):
    """The objects of one kind; see `sources.Source`."""

    kind: str
    paths: Collection[str]
    client: KubeClient
    store: SignalStore
    wiring: Wiring
    came: Callable[[], None]
    news: bool = field(default=False, init=False)
    """Whether something has changed since it was fed."""

    def __post_init__(self) -> None:
        self._group, _, self._plural = self.kind.partition("/")
        self._known: dict[str, Known] = {}
        self._reflector: Reflector[Any] | None = None
        self._error = ""
        self._absent = False

    # ---- the source

    def awaited(self) -> str:
        """See `Source`: there once it was listed, or is no kind that the server has."""
        reflector = self._reflector
        if self._absent or (reflector is not None and reflector.synced.is_set()):
            return ""
        error = self._error if reflector is None else reflector.last_error
        return f"{self.kind} ({error})" if error else self.kind

    async def run(self) -> None:
        """See `Source`."""
        if self._group in _CORE and self._plural == _SECRETS:
            self._error, self._absent = "Secrets are read by no policy", True
            return
        while (path := await self._find()) is None:
            self.came()
            await self.wiring.sleep(_ABSENT_SECONDS if self._absent else _AGAIN_SECONDS)
        resource = Resource(struct_of(self.paths), path)
        self._reflector = Reflector(self.client, resource, self, self.wiring)
        await self._reflector.run()

    def feed(self) -> None:
        """See `Source`: each metric of these fields gets all that there is."""
        self.news = False
        now = self.wiring.clock.time()
        for question in self.store.questions(OBJECT):
            kind, _, path = question.query.partition("#")
            if kind == self.kind and path in self.paths:
                found = ((_names(one, question), one.numbers[path]) for one in self._known.values())
                series = [Series(names, value, now) for names, value in found if value is not None]
                self.store.replace(question, series)

    async def _find(self) -> str | None:
        """The path of the collection, None if it is not there or cannot be told."""
        if self._group in _CORE:
            return f"/api/v1/{segment(self._plural)}"
        path = f"/apis/{segment(self._group)}"
        try:
            answer = await self.client.request("GET", path)
            version = answer.decoded(_group.decode, path).preferred_version.version
            if not version:
                raise Unreadable("a group of the API without a version")
        except KubeError as error:
            if str(error) != self._error:
                _LOG.warning("%s: nothing is known of them (%s)", self.kind, error)
            self._error, self._absent = str(error), isinstance(error, NotFound)
            return None
        self._error, self._absent = "", False
        return f"{path}/{segment(version)}/{segment(self._plural)}"

    # ---- the handler of its watch

    def on_add(self, item: Any) -> None:  # noqa: ANN401 - a struct made for these fields
        """The object is new, or changed."""
        numbers = {path: _number(item, path.split(".")) for path in self.paths}
        for name in type(item).__struct_fields__:
            if name != _METADATA:
                force_setattr(item, name, None)  # it was read, and may be large
        meta: Described = item.metadata
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

    def _changed(self) -> None:
        self.news = True
        self.came()


def struct_of(paths: Collection[str]) -> type[Any]:
    """A struct with what these paths begin with; nothing else of the object is decoded."""
    first = {path.partition(".")[0] for path in paths} - {_METADATA}
    fields = [(name, Any, None) for name in sorted(first)]
    return msgspec.defstruct("Object", [(_METADATA, Described, Described()), *fields], frozen=True)


def _number(there: Any, path: Sequence[str]) -> float | None:  # noqa: ANN401 - any JSON value
    """The number at a path; a quantity, a time or a truth value is one, too."""
    for part in path:
        if isinstance(there, dict):
            there = there.get(part)
        elif isinstance(there, list):
            there = there[int(part)] if part.isdecimal() and int(part) < len(there) else None
        else:
            there = getattr(there, part, None)
    if there in ("true", "false"):  # ConfigMaps hold texts alone
        there = there == "true"
    if isinstance(there, bool | int | float):
        return float(there)
    if not isinstance(there, str):
        return None
    number = parse_number(there)
    number = parse_time(there) if is_missing(number) else number
    return None if is_missing(number) else number


def _names(one: Known, question: Question) -> tuple[str, ...]:
    """What says whose value an object's is: its own name, its namespace, or a label of it."""
    if question.of == "node":
        # Without `by` the labels that are usual for series: objects are named like nodes instead.
        [label, *more] = question.by
        return (one.name if more or label in _OWN_NAMES else one.labels.get(label, ""),)
    if question.of == "namespace":
        return (one.namespace or one.name,)
    return tuple([_name(one, label) for label in question.by])


def _name(one: Known, label: str) -> str:
    if label == "namespace":
        return one.namespace
    return one.name if label in _OWN_NAMES else one.labels.get(label, "")
