"""Plugins of other packages, by entry points of the group `berth.plugins`.

Nothing of a package is imported before a profile names its plugin. Whatever is wrong with it then
is told by the plugin's name, and nothing runs.

Its answers are held against the type hints of `engine.framework`: what a hint says is the only
table there is of what may stand in an answer. Of functions in it, only that they can be called is
looked at. Libraries that check types at run time look at the class of a dataclass alone, not at its
fields.
"""

from __future__ import annotations

import logging
import math
import re
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from numbers import Integral, Real
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import json, structs
from numpy.typing import NDArray

from engine.framework.decision import PostFilterResult
from engine.framework.events import EVERYTHING, ClusterEventWithHint
from engine.framework.gang import MAYBE_NAN, Membership
from engine.framework.interface import (
    PermitResult,
    Plugin,
    Points,
    PreBindResult,
    ReserveResult,
    Scores,
    StatusGroups,
    Verdicts,
)
from engine.framework.profile import Profile
from engine.framework.runner import exception_text
from engine.framework.snapshot import Rows, Snapshot
from engine.framework.trials import Trial
from engine.objects import Described
from engine.pods.podinfo import PodInfo

_OURS: Final = "engine.framework."
_UNREAD: Final = ("grouped", "joint")
"""What is taken out of the answers of others, whatever it is."""
_UNIONS: Final = (Union, types.UnionType)
_KINDS: Final[Mapping[object, Any]] = {
    Any: object,
    Hashable: object,
    float: Real,
    int: Integral,
    bool: (bool, np.bool_),
}
"""Of some hints what may stand there; of the others it is the class that they name."""
_DTYPES: Final = ((np.bool_, "b"), (np.integer, "iu"), (np.floating, "iuf"))
"""Types of arrays in hints, and the kinds of NumPy that do."""


class Misfit(TypeError):  # noqa: N818 - raised as the TypeError that it is
    """Something else stands there than the hint says: `at` within the value, `told` what."""

    def __init__(self, told: str, at: str = "") -> None:
        super().__init__(f"{at} is {told}" if at else told)
        self.told, self.at = told, at


def check(hint: Any, value: object, at: str = "") -> None:  # noqa: ANN401 - any type hint
    """Holds a value, which stands there in an answer, against a hint.

    Raises:
        Misfit: it is something else.
    """
    each = _read(hint)
    for kind, origin, args in each:
        if isinstance(value, kind):
            _look_into(origin, args, value, at)
            return
    words = " | ".join([getattr(one, "__name__", str(one)) for _, one, _ in each])
    raise Misfit(f"{type(value).__name__} instead of {words.replace('NoneType', 'None')}", at)


@cache
def _read(hint: Any) -> Sequence[tuple[Any, Any, tuple[Any, ...]]]:  # noqa: ANN401 - as `check`
    """By alternative what `isinstance` takes, the hint without arguments, and its arguments."""
    found = []
    for one in get_args(hint) if get_origin(hint) in _UNIONS else (hint,):
        origin, args = get_origin(one) or one, get_args(one)
        origin = args[0] if origin is Annotated else origin
        found.append((_KINDS.get(origin, origin), origin, args))
    return found


def _look_into(origin: Any, args: tuple[Any, ...], value: Any, at: str) -> None:  # noqa: ANN401 - as `check`
    if origin is float:
        if isinstance(value, bool):
            raise Misfit("bool instead of float", at)
        if MAYBE_NAN not in args and math.isnan(value):
            raise Misfit("NaN", at)
    elif origin is Hashable:
        try:
            hash(value)
        except Exception as wrong:  # noqa: BLE001 - its own `__hash__` may raise anything
            raise Misfit(exception_text(wrong), at) from None
    elif origin is np.ndarray:
        (dtype,) = get_args(args[1])
        kinds = next(kinds for of, kinds in _DTYPES if issubclass(dtype, of))
        is_empty_list = value.shape == (0,) and kinds == "iu"  # that is one of floats
        if not is_empty_list and (value.dtype.kind not in kinds or value.ndim != 1):
            raise Misfit(f"an array of {value.dtype} {value.shape}", at)
    else:
        _look_at_parts(origin, args, value, at)


def _look_at_parts(origin: Any, args: tuple[Any, ...], value: Any, at: str) -> None:  # noqa: ANN401 - as `check`
    if not args:
        for name, one in _fields(origin):
            check(one, getattr(value, name), f"{at}.{name}")
    elif issubclass(origin, Mapping):
        for name, one in value.items():
            check(args[0], name, f"{at}[{name!r}]")
            check(args[1], one, f"{at}[{name!r}]")
    elif issubclass(origin, Collection):
        alike = origin is not tuple or args[1:] == (...,)
        if isinstance(value, str | bytes) or not (alike or len(value) == len(args)):
            raise Misfit(f"{type(value).__name__} of {len(value)}", at)
        for number, one in enumerate(value):
            check(args[0 if alike else number], one, f"{at}[{number}]")


@cache
def _fields(of: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any type
    """The fields of a record of ours that are looked at, with their hints."""
    if not getattr(of, "__module__", "").startswith(_OURS):
        return []
    names: Iterable[str] = getattr(of, "__struct_fields__", ())
    if is_dataclass(of):
        names = [one.name for one in fields(of)]
    return [(name, hints_of(of)[name]) for name in names if name not in _UNREAD]


@cache
def hints_of(of: type) -> Mapping[str, Any]:
    """The hints of a record of ours, by field."""
    return get_type_hints(of, localns={"Trial": Trial}, include_extras=True)


GROUP: Final = "berth.plugins"
_COLLECTION: Final = re.compile(r"/apis?(/[a-z0-9.-]+)+/[a-z][a-z0-9-]*")
_SOONEST: Final = 1.0
"""Seconds; who asks to be asked again at once would be asked all the time."""
_REJECTS: Final = ("pre_enqueue", "pre_filter", "filter", "reserve", "permit")
_NOTHING: Final[Mapping[str, object]] = {
    "reserve": ReserveResult(),
    "permit": PermitResult(),
    "pre_bind": PreBindResult(),
    "bind": None,
    "post_bind": (),
}
"""The answers about pods that a plugin does not act on."""
_LACKS: Final = "what a gang's group lacks: the gang waits"
_ANY_EVENT: Final = (ClusterEventWithHint(EVERYTHING),)
_Ask = Callable[..., Any]
_T = TypeVar("_T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A plugin of another package, whose name and functions were asked for once.

    Its functions raise if what they return cannot be used: the pod fails then, as when they raise.
    """

    plugin: Plugin
    name: str
    checked: Points

    def points(self) -> Points:
        """See `Plugin.points`."""
        return self.checked


def checked(points: Points) -> Points:
    """The same, with functions that raise if they return what the scheduler cannot use.

    What is only for speed, and would be called where no pod can fail of it, is left out: `joint`,
    `grouped`, and `ranks` and `choices` of a PostFilter.

    Raises:
        Misfit: a field is not what `Points` says.
    """
    check(Points, points)
    changed: dict[str, Any] = {
        name: partial(_asked, name, ask, hint, _RULES.get(name))
        for name, hint in _ANSWERS.items()
        if (ask := getattr(points, name)) is not None
    }
    changed["joint"] = None
    if points.score is not None and points.normalize is None:
        changed["normalize"] = _without_normalize
    if points.acts_on is not None:
        acts_on = changed["acts_on"]
        changed |= {
            one: partial(_if_it_acts, acts_on, changed[one], nothing)
            for one, nothing in _NOTHING.items()
            if one in changed
        }
    rejects = any(getattr(points, one) is not None for one in _REJECTS)
    if rejects and not points.events and points.recheck_at is None:
        # As kube-scheduler does of a plugin without EnqueueExtensions.
        changed["events"] = _ANY_EVENT
    if points.unfiltered is not None:
        changed["unfiltered"] = checked(points.unfiltered)
    return replace(points, **changed)


def _if_it_acts(acts_on: _Ask, ask: _Ask, nothing: object, pod: PodInfo, *args: object) -> object:
    return ask(pod, *args) if acts_on(pod) else nothing


def notes(profiles: Iterable[Profile]) -> Iterator[str]:
    """What is to be said at start of plugins that work otherwise than their authors may think."""
    for profile in profiles:
        for one in profile.plugins:
            if one.plugin.points().events is _ANY_EVENT:
                yield (
                    f"profile {profile.scheduler_name}: plugin {one.plugin.name!r} names no events:"
                    " pods that it rejected are tried again after each event of any kind"
                )


def _asked(point: str, ask: _Ask, hint: Any, rule: _Ask | None, *args: Any) -> Any:  # noqa: ANN401 - what the point returns
    try:
        found = ask(*args)
        check(hint, found)
        if point in _COLUMNS:
            _check_lengths(_COLUMNS[point](found, *args))
        return found if rule is None else rule(found, *args)
    except Misfit as misfit:
        said = f": its answer{misfit.at} is" if misfit.at else " returns"
        raise TypeError(f"{point}{said} {misfit.told}") from None
    except BaseException as ended:
        if isinstance(ended, Exception | KeyboardInterrupt):
            raise
        raise RuntimeError(f"{point} raises {type(ended).__name__}") from ended


def _answers() -> Iterator[tuple[str, Any]]:
    """By function of `Points`, the hint of what it returns."""
    for name, hint in hints_of(Points).items():
        for one in (hint, *get_args(hint)):
            if get_origin(one) is Callable:
                yield name, get_args(one)[-1]


_ANSWERS: Final = dict(_answers())


# ---- what no hint says -------------------------------------------------------------------------


def _check_lengths(columns: Iterable[tuple[Any, int]]) -> None:
    for column, length in columns:
        if column is not None and len(column) != length:
            raise Misfit(f"an array of {column.dtype} {column.shape} for {length} rows")


def _of_rows(column: object, snapshot: Snapshot, rows: Rows) -> list[tuple[object, int]]:
    return [(column, len(snapshot.nodes.present[rows]))]


_COLUMNS: Final[Mapping[str, _Ask]] = {
    "filter": lambda found, _state, _pod, *rows: _of_rows(found.passed, *rows),
    "score": lambda found, _state, _pod, *rows: _of_rows(found, *rows),
    "yields": lambda found, _state, _pod, *rows: _of_rows(found, *rows),
    "normalize": lambda found, _state, scores: [(found, len(scores))],
    "tiers": lambda found, _pod, _snapshot, rows: [(one, len(rows)) for one in found],
    "rooms": lambda found, _pod, snapshot: [
        *[(one, snapshot.nodes.size) for room in found for one in (room.limit, room.used)],
        *[(room.holds, snapshot.pods.size) for room in found],
    ],
    "gang": lambda found, _pod, snapshot: [(found and found.domain, snapshot.nodes.size)],
}
"""By point the columns of an answer, and how long each has to be."""


def _without_normalize(*_: object) -> Any:  # noqa: ANN401 - never returns
    raise ValueError("pre_score says Normalization.CUSTOM, and there is no normalize")


def _inside(what: str, rows: NDArray[np.integer] | None, length: int) -> None:
    if rows is not None and len(rows) and (rows.min() < 0 or rows.max() >= length):
        raise ValueError(f"{what}: rows outside 0..{length - 1}")


def _worked_out(found: Any, _: PodInfo, snapshot: Snapshot) -> Any:  # noqa: ANN401 - of a PreFilter or PreScore
    version = found.version and partial(_asked, "version", found.version, Hashable, None)
    found = structs.replace(found, grouped=None, version=version)
    if getattr(found, "rows", None) is None:
        return found
    _inside("pre_filter", found.rows, snapshot.nodes.size)
    return structs.replace(found, rows=found.rows.astype(np.intp))


def _post_filter(found: PostFilterResult, *_: object) -> PostFilterResult:
    return replace(found, ranks=(), choices=None)


def _filter(
    found: Verdicts, _state: object, _pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Verdicts:
    length = len(snapshot.nodes.present[rows])

    def groups() -> StatusGroups:
        told = np.zeros(length, dtype=np.bool_)
        raw = found.groups()
        check(StatusGroups, raw)
        each = [(status, positions.astype(np.intp)) for status, positions in raw]
        for status, positions in each:
            if not status.rejected:
                raise ValueError(f"a node is rejected with {status.code}: {status.reasons}")
            _inside("groups of filter", positions, length)
            told[positions] = True
        if found.passed is not None and not (told | found.passed).all():
            raise ValueError("groups of filter: no reason for a row that does not pass")
        return each

    return Verdicts(found.passed, groups)


def _score(
    found: Scores | None, _state: object, _pod: PodInfo, snapshot: Snapshot, rows: Rows
) -> Scores | None:
    present = snapshot.nodes.present[rows]
    if found is not None and not (np.isfinite(found) | ~present).all():
        raise ValueError("a score is not a finite number, be it of a node that does not fit")
    return found


def _normalize(found: Scores, *_: object) -> Scores:
    if not np.isfinite(found).all():
        raise ValueError("normalize: a score is not a finite number")
    return found


def _sort_key(found: tuple[Any, ...], *_: object) -> tuple[Any, ...]:
    if any(part != part for part in found):  # as it compares with nothing, others lose their place
        raise ValueError("sort_key: NaN")
    return found


def _recheck_at(found: float, _: PodInfo, snapshot: Snapshot) -> float:
    return max(float(found), snapshot.now + _SOONEST)


def _gang(found: Membership | None, _: PodInfo, snapshot: Snapshot) -> Membership | None:
    """What is called later, where no pod fails of it, answers even if the plugin's own raises."""
    if found is None:
        return None
    ask_mates = found.mates

    def mates() -> Sequence[int]:
        told = ask_mates()
        check(Sequence[int], told, ".mates()")
        rows: NDArray[np.intp] = np.asarray(told, dtype=np.intp)
        _inside("mates of gang", rows, snapshot.pods.size)
        each: list[int] = rows.tolist()
        return each

    mates()
    shortage = partial(_asked, "shortage of gang", found.shortage, str, None)
    return replace(
        found,
        mates=partial(_or_else, "mates of a gang: as if none had a node", mates, lambda _: ()),
        shortage=partial(_or_else, _LACKS, shortage, exception_text),
    )


def _or_else(what: str, ask: Callable[[], _T], otherwise: Callable[[Exception], _T]) -> _T:
    try:
        return ask()
    except Exception as fault:
        log.exception("a plugin cannot tell %s", what)
        return otherwise(fault)


_RULES: Final[Mapping[str, Callable[..., Any]]] = {
    "pre_filter": _worked_out,
    "what_if": _worked_out,
    "pre_score": _worked_out,
    "post_filter": _post_filter,
    "filter": _filter,
    "score": _score,
    "normalize": _normalize,
    "sort_key": _sort_key,
    "recheck_at": _recheck_at,
    "gang": _gang,
}


def names() -> set[str]:
    """The plugins that are installed."""
    return entry_points(group=GROUP).names


def load(name: str, args: Mapping[str, Any]) -> Loaded | None:
    """A new plugin; None if no package has one of that name.

    Raises:
        ValueError: it cannot be used, or does not take the arguments.
    """
    found = {(one.value, _package(one)): one for one in entry_points(group=GROUP, name=name)}
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found.values())))
        raise ValueError(f"several packages have one of that name: {packages}")
    for entry in found.values():
        return _made(entry, args)
    return None


def _made(entry: EntryPoint, args: Mapping[str, Any]) -> Loaded:
    where = f"{entry.value} of {_package(entry)}"
    try:
        make = entry.load()
    except (Exception, SystemExit) as broken:
        raise ValueError(f"{where} cannot be loaded: {_words(broken)}") from broken
    try:
        plugin = make(args)
        points, called = plugin.points(), plugin.name
    except (Exception, SystemExit) as broken:
        raise ValueError(f"{where} fails: {_words(broken)}") from broken
    if not isinstance(points, Points):
        raise ValueError(f"{where} returns {type(points).__name__} instead of Points")  # noqa: TRY004 - all that is wrong with a plugin is a ValueError
    objects: Any = points.objects
    for path, struct in objects.items() if isinstance(objects, Mapping) else ():
        is_kind = isinstance(struct, type) and issubclass(struct, Described)
        if not is_kind or not _COLLECTION.fullmatch(path):
            raise ValueError(f"{where} has objects at {path!r}: no collection, or not Described")
        try:
            json.Decoder(struct)
        except Exception as broken:
            told = f"{struct.__name__} cannot be decoded: {_words(broken)}"
            raise ValueError(f"{where} has objects at {path!r}: {told}") from broken
    if called != entry.name:
        raise ValueError(f"{where} has the name {called!r}")
    try:
        return Loaded(plugin, entry.name, checked(points))
    except Misfit as misfit:
        raise ValueError(f"{where} has points{misfit.at} that is {misfit.told}") from misfit


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name


def _words(error: BaseException) -> str:
    return " ".join(exception_text(error).split())
