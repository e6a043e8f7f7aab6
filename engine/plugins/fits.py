"""Values of other packages held against the type hints of `engine.framework`.

What a hint says is the only table there is of what may stand in an answer. Of functions in it, only
that they can be called is looked at here.

Libraries that check types at run time look at the class of a dataclass alone, not at its fields.
"""

from __future__ import annotations

import collections.abc as abc
import math
import types
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from engine.framework.gang import MAYBE_NAN
from engine.framework.runner import exception_text
from engine.framework.trials import Trial

_OURS: Final = "engine.framework."
_UNREAD: Final = ("grouped", "joint")
"""What is taken out of the answers of others, whatever it is."""
_UNIONS: Final = (Union, types.UnionType)
_KINDS: Final[abc.Mapping[object, Any]] = {
    Any: object,
    abc.Hashable: object,
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


def check(value: Any, hint: Any, at: str = "") -> None:  # noqa: ANN401 - any value and type hint
    """Holds a value against a hint.

    Raises:
        Misfit: it is something else.
    """
    if get_origin(hint) in _UNIONS:
        fitting = [one for one in get_args(hint) if isinstance(value, _kind(one))]
        _demand(fitting, value, hint, at)
        hint = fitting[0]
    _demand(isinstance(value, _kind(hint)), value, hint, at)
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated or origin is float:
        _demand(not isinstance(value, bool), value, hint, at)
        if math.isnan(value) and MAYBE_NAN not in args:
            raise Misfit("NaN", at)
    elif origin is abc.Hashable:
        _check_hash(value, at)
    elif origin is np.ndarray:
        _check_array(value, args[1], at)
    elif args:
        _check_each(value, origin, args, at)
    else:
        for name, of_field in _fields(hint):
            check(getattr(value, name), of_field, f"{at}.{name}")


def _demand(fits: object, value: object, hint: Any, at: str) -> None:  # noqa: ANN401 - as `check`
    if not fits:
        each = get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
        words = " | ".join([getattr(one, "__name__", str(one)) for one in each])
        raise Misfit(f"{type(value).__name__} instead of {words.replace('NoneType', 'None')}", at)


def _kind(hint: Any) -> Any:  # noqa: ANN401 - what `isinstance` takes
    origin = get_origin(hint)
    return _kind(get_args(hint)[0]) if origin is Annotated else _KINDS.get(hint, origin or hint)


def _check_hash(value: object, at: str) -> None:
    try:
        hash(value)
    except Exception as wrong:  # noqa: BLE001 - its own `__hash__` may raise anything
        raise Misfit(exception_text(wrong), at) from None


def _check_array(value: np.ndarray[Any, Any], hint: Any, at: str) -> None:  # noqa: ANN401 - as `check`
    (dtype,) = get_args(hint)
    kinds = next(kinds for of, kinds in _DTYPES if issubclass(dtype, of))
    if value.dtype.kind not in kinds or value.ndim != 1:
        raise Misfit(f"an array of {value.dtype} {value.shape}", at)


def _check_each(value: Any, origin: type, args: tuple[Any, ...], at: str) -> None:  # noqa: ANN401 - as `check`
    if issubclass(origin, abc.Mapping):
        for name, one in value.items():
            check(name, args[0], f"{at}[{name!r}]")
            check(one, args[1], f"{at}[{name!r}]")
    elif issubclass(origin, abc.Collection):
        _demand(not isinstance(value, str | bytes), value, origin, at)
        alike = origin is not tuple or args[1:] == (...,)
        if not alike and len(value) != len(args):
            raise Misfit(f"{len(value)} values instead of {len(args)}", at)
        for number, one in enumerate(value):
            check(one, args[0 if alike else number], f"{at}[{number}]")


@cache
def _fields(of: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - as `check`
    """The fields of a record of ours with their hints; others have none to look at."""
    if not getattr(of, "__module__", "").startswith(_OURS):
        return []
    names: tuple[str, ...] = ()
    if is_dataclass(of):
        names = tuple([one.name for one in fields(of)])
    elif issubclass(of, msgspec.Struct):
        names = of.__struct_fields__
    return [(name, hints_of(of)[name]) for name in names if name not in _UNREAD]


@cache
def hints_of(of: type) -> abc.Mapping[str, Any]:
    """The hints of a record of ours, by field."""
    return get_type_hints(of, localns={"Trial": Trial}, include_extras=True)
