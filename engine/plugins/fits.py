"""Values of other packages held against the type hints of `engine.framework`.

What a hint says is the only table there is of what may stand in an answer. It is read once for each
type; functions in an answer are held against theirs when they are called.

Libraries that check types at run time look at the class of a dataclass alone, not at its fields,
and put no guard around functions.
"""

from __future__ import annotations

import collections.abc as abc
import math
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from numbers import Integral, Real
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from engine.framework.events import QueueingHint
from engine.framework.gang import MAYBE_NAN
from engine.framework.runner import exception_text
from engine.framework.trials import Trial

Fit = Callable[[Any], Any]
"""Gives the value back, with its own functions checked; raises Misfit."""

_OURS: Final = "engine.framework."
_UNREAD: Final = ("grouped", "joint")
"""What is taken out of the answers of others, whatever it is."""
_KINDS: Final = ((np.bool_, "b"), (np.integer, "iu"), (np.floating, "iuf"), (object, "biuf"))
"""Types of arrays in hints, and the kinds of NumPy that do."""


class Misfit(TypeError):  # noqa: N818 - raised as the TypeError that it is
    """Something else stands there than the hint says: `at` within the value, `told` what.

    `near`: it is of the right type, and only what is in it is wrong.
    """

    def __init__(self, told: str, at: str = "", *, near: bool = False) -> None:
        super().__init__(f"{at} is {told}" if at else told)
        self.told, self.at, self.near = told, at, near or bool(at)


def _within(at: str, fit: Fit, value: object) -> Any:  # noqa: ANN401 - see `Fit`
    try:
        return fit(value)
    except Misfit as misfit:
        raise Misfit(misfit.told, at + misfit.at) from None


@cache
def fit_of(hint: Any) -> Fit:  # noqa: ANN401 - any type hint
    """What holds values against the hint."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return partial(_number, nan=MAYBE_NAN in args) if args[0] is float else fit_of(args[0])
    if origin in (Union, types.UnionType):
        return partial(_one_of, _words(hint), [fit_of(one) for one in args])
    if origin is np.ndarray:
        (dtype,) = get_args(args[1])
        return partial(_array, next(kinds for of, kinds in _KINDS if issubclass(dtype, of)))
    if origin is abc.Callable:
        # A hint is guarded where it is called; `never` has to stay the same function.
        answer = None if args[-1] is QueueingHint else fit_of(args[-1])
        return partial(_function, answer)
    if origin is tuple and args[1:] != (...,):
        return partial(_tuple, [fit_of(one) for one in args])
    if origin is not None and issubclass(origin, abc.Mapping):
        return partial(_mapping, fit_of(args[0]), fit_of(args[1]))
    if origin is not None and issubclass(origin, abc.Collection):
        return partial(_items, origin, fit_of(args[0]))
    if origin is type:
        return partial(_class, args[0])
    if origin is not None:
        return fit_of(origin)
    return _plain(hint)


def _plain(hint: Any) -> Fit:  # noqa: ANN401 - as `fit_of`
    if hint is float:
        return partial(_number, nan=False)
    if hint is abc.Hashable:
        return _hashable
    if not isinstance(hint, type) or hint in (object, Any):
        return lambda value: value
    is_data = is_dataclass(hint) or issubclass(hint, msgspec.Struct)
    if is_data and hint.__module__.startswith(_OURS):
        return partial(_record, hint)
    kind = {int: Integral, bool: (bool, np.bool_)}.get(hint, hint)
    return partial(_instance, hint, kind)


@cache
def _fields(of: type) -> list[tuple[str, Fit]]:
    hints = get_type_hints(of, localns={"Trial": Trial}, include_extras=True)
    names = [one.name for one in fields(of)] if is_dataclass(of) else of.__struct_fields__  # type: ignore[attr-defined] # a struct
    return [(name, fit_of(hints[name])) for name in names if name not in _UNREAD]


def _record(hint: type, value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    _instance(hint, hint, value)
    changed = {}
    for name, fit in _fields(hint):
        before = getattr(value, name)
        after = _within(f".{name}", fit, before)
        if after is not before:
            changed[name] = after
    change: Any = replace if is_dataclass(hint) else msgspec.structs.replace
    return change(value, **changed) if changed else value


def _instance(hint: type, kind: Any, value: object) -> object:  # noqa: ANN401 - of `isinstance`
    if not isinstance(value, kind):
        raise Misfit(f"{type(value).__name__} instead of {hint.__name__}")
    return value


def _number(value: Any, *, nan: bool) -> object:  # noqa: ANN401 - see `Fit`
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Misfit(f"{type(value).__name__} instead of float")
    if math.isnan(value) and not nan:
        raise Misfit("NaN", near=True)
    return value


def _hashable(value: object) -> object:
    try:
        hash(value)
    except Exception as wrong:  # noqa: BLE001 - its own `__hash__` may raise anything
        raise Misfit(exception_text(wrong)) from None
    return value


def _one_of(words: str, fits: list[Fit], value: object) -> object:
    if value is None and "None" in words:
        return value
    found = []
    for fit in fits:
        try:
            return fit(value)
        except Misfit as misfit:
            found.append(misfit.with_traceback(None))  # with it they would keep each other alive
    nearly = [misfit for misfit in found if misfit.near]
    raise nearly[0] if nearly else Misfit(f"{type(value).__name__} instead of {words}")


def _array(kind: str, value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise Misfit(f"{type(value).__name__} instead of numpy.ndarray")
    if value.shape == (0,) and "i" in kind:
        return value.astype(np.intp)  # an empty list is one of floats
    if value.dtype.kind not in kind or value.ndim != 1:
        raise Misfit(f"an array of {value.dtype} {value.shape}", near=True)
    return value


def _function(answer: Fit | None, value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if not callable(value):
        raise Misfit(f"{type(value).__name__} instead of a function")
    return value if answer is None else partial(_call, answer, value)


def _call(answer: Fit, ask: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - see `Fit`
    return _within(f"{getattr(ask, '__qualname__', 'function')}()", answer, ask(*args))


def _tuple(fits: list[Fit], value: object) -> object:
    if not isinstance(value, tuple | list) or len(value) != len(fits):
        raise Misfit(f"{type(value).__name__} instead of {len(fits)} values")
    each = zip(fits, value, strict=True)
    return tuple([_within(f"[{at}]", fit, one) for at, (fit, one) in enumerate(each)])


def _items(kind: type, fit: Fit, value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    others: dict[type, Any] = {tuple: (tuple, list), frozenset: abc.Set}
    wanted = others.get(kind, kind)
    if not isinstance(value, wanted) or isinstance(value, str | bytes):
        raise Misfit(f"{type(value).__name__} instead of {kind.__name__}")
    new = [_within(f"[{at}]", fit, one) for at, one in enumerate(value)]
    same = all(a is b for a, b in zip(new, value, strict=True))
    made = frozenset if kind is frozenset else tuple
    return value if same and isinstance(value, kind) else made(new)


def _mapping(key: Fit, fit: Fit, value: Any) -> Any:  # noqa: ANN401 - see `Fit`
    if not isinstance(value, abc.Mapping):
        raise Misfit(f"{type(value).__name__} instead of a mapping")
    for name in value:
        _within(f"[{name!r}]", key, name)
    new = {name: _within(f"[{name!r}]", fit, one) for name, one in value.items()}
    return value if all(new[name] is one for name, one in value.items()) else new


def _class(of: type, value: object) -> object:
    if not (isinstance(value, type) and issubclass(value, of)):
        raise Misfit(f"no subclass of {of.__name__}")
    return value


def _words(hint: Any) -> str:  # noqa: ANN401 - as `fit_of`
    each = [getattr(one, "__name__", str(one)) for one in get_args(hint)]
    return " | ".join(["None" if one == "NoneType" else one for one in each])
