"""The one table of functions, and the arithmetic that both evaluators share bit for bit.

Scalars only; `lower` gives the same meaning to columns.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

from msgspec import Struct

from dsl.patterns import fits
from dsl.quantities import parse_duration, parse_number, parse_quantity, parse_time
from dsl.types import EXACT, MISSING, number_text

_FNV_START: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1
_MAX_MATCHED: Final = 4096
_MAX_GROWN: Final = 65_536
_MAX_GLOB: Final = 1024


class FunctionSpec(Struct, frozen=True):
    """One function: what it takes, what it gives, what it is for.

    Attributes:
        takes: one letter an argument: `n` plain number, `u` number of any unit, `s` text,
            `a` anything, `l` text or list, `i` list, `m` name of a metric, `t` topology,
            `k` key of a label.
        gives: a type as the table of fields calls it, `same` (the unit of the first argument) or
            `item` (of the first argument).
        variadic: whether the last argument may be repeated.
    """

    name: str
    takes: str
    gives: str
    doc: str
    variadic: bool = False


#: A function a line: its name, what it takes (`...`: the last may be repeated), gives and is for.
_TABLE: Final = """
abs  u  same  distance from 0
floor  n  number  next whole number below
ceil  n  number  next whole number above
round  n  number  nearest whole number, halves away from 0
sqrt  n  number  square root, missing below 0
log2  n  number  logarithm to base 2, missing at 0 and below
exp  n  number  e to the power x
pow  nn  number  x to the power y
mod  uu  same  remainder with the sign of the divisor
clamp  uuu  same  x, but not below lo or above hi
len  l  number  characters of a text, items of a list
lower  s  text  text in lower case
upper  s  text  text in upper case
trim  s  text  text without the blanks around it
before  ss  text  what stands before the first separator
after  ss  text  what stands after the first separator
before_last  ss  text  what stands before the last separator
after_last  ss  text  what stands after the last separator
replace  sss  text  text with each of a part made another
join  a...  text  the arguments one after the other
ordinal  s  number  number at the end of a name
number  a  number  number of a text, or of a quantity without its unit
quantity  s  number  number of a Kubernetes quantity
version  s  number  number that is greater for a later version
duration  s  seconds  duration of a text such as 1m30s
time  s  time  time of an RFC 3339 text
string  a  text  text of a number
cores  n  cores  a number of cores
bytes  n  bytes  a number of bytes
seconds  n  seconds  a number of seconds
hash  a...  number  stable share between 0 and 1
metric_age  m  seconds  age of a metric's last sample
rank  u  number  share of the other candidates with less, 0..1
peers  t  number  pods of the same workload in the domain
pods_in  k  pods  set of the pods of all nodes with an equal label
nodes_in  k  nodes  set of all nodes with an equal label
split  ss  texts  list of the parts of a text
item  in  item  an item of a list, counted from 0; -1 is the last
"""
FUNCTIONS: Final[Mapping[str, FunctionSpec]] = {
    name: FunctionSpec(name, takes.removesuffix("..."), gives, doc, takes.endswith("..."))
    for name, takes, gives, doc in (one.split("  ") for one in _TABLE.strip().splitlines())
}
AGGREGATES: Final = ("max", "min", "sum", "avg", "count", "any", "all", "median", "distinct")


# ---- arithmetic: total, missing where there is no finite number


def settle(value: float) -> float:
    """Returns a finite number or the missing one."""
    return value if math.isfinite(value) else MISSING


def divide(left: float, right: float) -> float:
    """Returns the quotient; `0 / 0` is 0 and `x / 0` is missing."""
    if right == 0:
        return 0.0 if left == 0 else MISSING
    return settle(left / right)


def _finite(function: Callable[..., float]) -> Callable[..., float]:
    """Returns a function that is missing where it has no finite real value."""

    def total_function(*values: float) -> float:
        if any(map(math.isnan, values)):
            return MISSING
        try:
            return settle(float(function(*values)))
        except (ArithmeticError, ValueError):
            return MISSING

    return total_function


ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: settle(left + right),
    "-": lambda left, right: settle(left - right),
    "*": lambda left, right: settle(left * right),
    "/": divide,
}


#: Of two values that are there.
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def round_half_away(value: float) -> float:
    """Returns the nearest whole number; halves go away from 0."""
    if math.isnan(value):
        return MISSING
    whole = math.trunc(value) if abs(value) < EXACT else value
    rest = value - whole
    if abs(rest) >= 0.5:  # noqa: PLR2004 - one half is what the name says
        whole += math.copysign(1.0, value)
    return float(whole)


def _there(values: Iterable[float]) -> list[float]:
    return [one for one in values if not math.isnan(one)]


def total(values: Iterable[float]) -> float:
    """Returns the correctly rounded sum, whatever the order; of nothing it is 0."""
    there = _there(values)
    try:
        return settle(math.fsum(there))
    except OverflowError:
        try:
            return settle(float(sum(map(Fraction, there))))
        except OverflowError:
            return MISSING


def average(values: Iterable[float]) -> float:
    """Returns the mean of the values that are there."""
    there = _there(values)
    return divide(total(there), float(len(there))) if there else MISSING


def median(values: Iterable[float]) -> float:
    """Returns the middle value; of an even number the mean of the middle two."""
    there = sorted(_there(values))
    if not there:
        return MISSING
    middle = len(there) // 2
    if len(there) % 2:
        return there[middle]
    return divide(settle(there[middle - 1] + there[middle]), 2.0)


def distinct(values: Iterable[float | str | None]) -> float:
    """Returns how many different values are there."""
    return float(len({one for one in values if one is not None and one == one}))


#: Of values, of which those that are missing are left out; the last three of conditions.
REDUCERS: Final[Mapping[str, Callable[[Iterable[Any]], float]]] = {
    "max": lambda values: max(_there(values), default=MISSING),
    "min": lambda values: min(_there(values), default=MISSING),
    "sum": total,
    "avg": average,
    "median": median,
    "distinct": distinct,
    "count": lambda holds: float(sum(holds)),
    "any": any,
    "all": all,
}


# ---- texts


TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": operator.contains,
    "starts with": str.startswith,
    "ends with": str.endswith,
    "like": lambda text, pattern: glob_match(pattern, text),
    "matches": lambda text, pattern: len(text) <= _MAX_MATCHED and fits(pattern, text),
}


@lru_cache(maxsize=256)
def _glob(pattern: str) -> tuple[int, int, dict[str, int], int]:
    """Returns a pattern as an automaton; bit n of a number stands for n signs passed.

    Where a `*` takes any character, where a `?` takes one, where those take one that the pattern
    names, and the bit of all signs passed.
    """
    staying, any_sign, bit = 0, 0, 1
    taking: dict[str, int] = {}
    for sign in pattern:
        if sign == "*":
            staying |= bit
            continue
        if sign == "?":
            any_sign |= bit
        else:
            taking[sign] = taking.get(sign, 0) | bit
        bit <<= 1
    return staying, any_sign, taking, bit


def glob_match(pattern: str, text: str) -> bool:
    """Whether a whole text fits a pattern of `*` and `?` (of at most 1,024 characters).

    Patterns may come from annotations, so the time is that of one walk over the text.
    """
    if len(pattern) > _MAX_GLOB:
        return False
    staying, any_sign, taking, last = _glob(pattern)
    state = 1
    for char in text:
        state = (state & (taking.get(char, 0) | any_sign)) << 1 | state & staying
        if not state:
            return False
    return bool(state & last)


_VERSION: Final = re.compile(r"[vV]?(\d+(?:[.-]\d+)*)", re.ASCII)
_VERSION_PARTS: Final = 4
_VERSION_DIGITS: Final = 4
#: Whole numbers below 9000 * 10**12 are all floats.
_VERSION_FIRST: Final = 9000


def _side(text: str, separator: str, *, last: bool = False, behind: bool = False) -> str | None:
    """Returns what stands before or behind the first or last separator; missing without one."""
    at = text.rfind(separator) if last else text.find(separator)
    if at < 0:
        return None
    return text[at + len(separator) :] if behind else text[:at]


def join(*parts: str) -> str | None:
    """Returns texts one after the other; missing where they come to far too much."""
    grown = sum(map(len, parts))
    return None if grown > max(_MAX_GROWN, *map(len, parts)) else "".join(parts)


def replace(text: str, part: str, by: str) -> str | None:
    """Returns a text with each `part` made `by`; missing for an empty part and far too long."""
    if not part:
        return None
    # Replacements of replacements could grow without end.
    grown = len(text) + text.count(part) * max(len(by) - len(part), 0)
    return None if grown > max(len(text), _MAX_GROWN) else text.replace(part, by)


def version(text: str) -> float:
    """Returns the first four numbers of a version as one; missing where there is none.

    `v1.31.4` and `5.10.0-8-amd64` begin with numbers between dots and hyphens; what comes behind
    these is not looked at. A number of more than four digits makes it missing, and a first one
    from 9000 on, as a float holds no more.
    """
    found = _VERSION.match(text)
    if found is None:
        return MISSING
    parts = [one.lstrip("0") for one in re.split("[.-]", found[1], maxsplit=_VERSION_PARTS)]
    parts = [*parts[:_VERSION_PARTS], *[""] * (_VERSION_PARTS - len(parts))]
    if max(map(len, parts)) > _VERSION_DIGITS or int(parts[0] or "0") >= _VERSION_FIRST:
        return MISSING
    return float("".join(one.zfill(_VERSION_DIGITS) for one in parts))


def split(text: str, separator: str) -> tuple[str, ...] | None:
    """Returns the parts of a text; missing for an empty separator."""
    return tuple(text.split(separator)) if separator else None


def item(items: Sequence[str] | Sequence[float], place: float) -> str | float | None:
    """Returns the item at a place, from 0 on or from -1, the last, back; missing outside."""
    if place != place or place != int(place) or not -len(items) <= place < len(items):
        return None
    return items[int(place)]


def share_of_smaller(value: float, others: Iterable[float]) -> float:
    """Returns which share of the other values is smaller; `others` holds the value itself."""
    if math.isnan(value):
        return MISSING
    there = _there(others)
    return sum(one < value for one in there) / max(len(there) - 1, 1)


def ordinal(text: str) -> float:
    """Returns the number at the end of a name: `web-12` gives 12."""
    found = re.search(r"\d{1,15}\Z", text, re.ASCII)
    return float(found.group()) if found else MISSING


def hash_share(parts: Sequence[str]) -> float:
    """Returns FNV-1a 64 of the parts joined by NUL, as a share of 2^64."""
    state = _FNV_START
    for byte in "\0".join(parts).encode("utf-8", "surrogatepass"):
        state = ((state ^ byte) * _FNV_PRIME) & _MASK
    return state / 2.0**64


NUMBER_FUNCTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "abs": abs,
    "floor": _finite(math.floor),
    "ceil": _finite(math.ceil),
    "round": round_half_away,
    "sqrt": _finite(math.sqrt),
    "log2": _finite(math.log2),
    "exp": _finite(math.exp),
    "pow": _finite(math.pow),
    "mod": _finite(operator.mod),
    "max": _finite(max),
    "min": _finite(min),
    "median": _finite(lambda *values: median(values)),
}

#: Functions of texts; an argument that is missing makes the result missing before they are asked.
TextFunction = Callable[..., float | str | tuple[str, ...] | None]
TEXT_FUNCTIONS: Final[Mapping[str, TextFunction]] = {
    "len": lambda text: float(len(text)),
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "before": _side,
    "after": partial(_side, behind=True),
    "before_last": partial(_side, last=True),
    "after_last": partial(_side, last=True, behind=True),
    "replace": replace,
    "split": split,
    "ordinal": ordinal,
    "number": parse_number,
    "quantity": parse_quantity,
    "duration": parse_duration,
    "time": parse_time,
    "version": version,
    "join": join,
    "hash": lambda *parts: hash_share(parts),
    "string": lambda number: None if math.isnan(number) else number_text(number),
}


# ---- scores


def place(
    value: float | str | None, direction: str, items: Sequence[float | str]
) -> tuple[bool, Any]:
    """Returns what compares as the place of a value in an order; missing ones come last."""
    if value is None or value != value:
        return True, 0.0
    if direction == "listed":
        return False, float(items.index(value)) if value in items else float(len(items))
    if direction == "asc":
        return False, value
    if isinstance(value, str):
        # Longer texts come before what they begin with.
        return False, (*(-ord(one) for one in value), 1)
    return False, -value
