"""What values a policy knows: kinds, units, levels, and how a value is shown.

A value is a Python scalar (`float` with NaN for missing, `str | None`, `bool`) or a column of them.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

#: The one missing number; parts of a class key compare equal because it is one object.
MISSING: Final = float("nan")

#: Cores are milli-cores inside, so that sums of requests stay whole numbers.
MILLI: Final = 1000

#: Whole numbers below are exact as floats.
EXACT: Final = 2.0**53

#: Characters of a value that a message quotes: who wrote the pod says how long its texts are.
QUOTED: Final = 256


class Unit(NamedTuple):
    """Exponents of core, byte and second."""

    core: int = 0
    byte: int = 0
    second: int = 0

    def times(self, other: "Unit", sign: int = 1) -> "Unit":
        """Returns the unit of a product (or, with `sign` -1, of a quotient)."""
        return Unit(*(one + sign * more for one, more in zip(self, other, strict=True)))

    @property
    def is_plain(self) -> bool:
        """Whether it is no unit at all."""
        return self == PLAIN

    def __str__(self) -> str:
        """Names the unit as a diagnostic does."""
        rate = self.second == -1
        shown = self._replace(second=0) if rate else self
        powers = zip(("cores", "bytes", "seconds"), shown, strict=True)
        words = [name if power == 1 else f"{name}^{power}" for name, power in powers if power]
        return " ".join(words or ["a plain number"]) + " per second" * rate


PLAIN: Final = Unit()
CORES: Final = Unit(core=1)
BYTES: Final = Unit(byte=1)
SECONDS: Final = Unit(second=1)


class Kind(Enum):
    """The kinds of values."""

    BOOL = "yes or no"
    NUMBER = "a number"
    TEXT = "text"
    TIME = "a time"
    LIST = "a list"
    PODS = "a set of pods"
    NODES = "a set of nodes"


#: Readers of the world by kind; of others `number`.
READERS: Final = {Kind.TEXT: "text", Kind.BOOL: "flag"}


class Level(IntEnum):
    """What a value may differ by; each level includes those before it."""

    CONST = 0
    CYCLE = 1
    POD = 2
    NODE = 3
    IT = 4

    @property
    def noun(self) -> str:
        """The word of diagnostics."""
        return ("a constant", "the cycle", "the pod", "the node", "each pod of a set")[self]


class Type(Struct, frozen=True):
    """A kind, with the unit of a number and the element of a list.

    A number whose unit is None is a constant that takes the unit of the other side.
    """

    kind: Kind
    unit: Unit | None = PLAIN
    element: Kind | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a number of any unit."""
        return self.kind is Kind.NUMBER

    @property
    def missing(self) -> float | None:
        """The missing value of a scalar."""
        return None if self.kind in (Kind.TEXT, Kind.LIST) else MISSING

    def __str__(self) -> str:
        """Names the type as a diagnostic does."""
        if self.kind is Kind.NUMBER:
            return str(PLAIN if self.unit is None else self.unit)
        if self.kind is Kind.LIST and self.element is not None:
            return "a list of texts" if self.element is Kind.TEXT else "a list of numbers"
        words: str = self.kind.value
        return words


BOOL: Final = Type(Kind.BOOL)
NUMBER: Final = Type(Kind.NUMBER)
TEXT: Final = Type(Kind.TEXT)
TIME: Final = Type(Kind.TIME)
DURATION: Final = Type(Kind.NUMBER, SECONDS)
TEXTS: Final = Type(Kind.LIST, element=Kind.TEXT)
PODS: Final = Type(Kind.PODS)
NODES: Final = Type(Kind.NODES)


def number_of(unit: Unit) -> Type:
    """Returns the type of numbers with a unit."""
    return Type(Kind.NUMBER, unit)


def scale_of(unit: Unit) -> float:
    """Returns what one of the unit is inside (a core is 1,000 milli-cores)."""
    return float(MILLI) ** unit.core


def is_missing(value: object) -> bool:
    """Whether a value of any kind is missing."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def show(value: object, kind: Type) -> str:
    """Returns a value as messages show it: `1500m`, `1.5Gi`, `1m30s`, `<none>`."""
    if is_missing(value):
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        element = TEXT if kind.element is Kind.TEXT else NUMBER
        # An empty text that nobody sees would make a list of one look like one of none.
        return "[" + ", ".join(show(one, element) or '""' for one in value) + "]"
    if isinstance(value, int | float):
        number = float(value)
        if kind.kind is Kind.TIME:
            return _clock(number)
        return _SHOWN.get(kind.unit or PLAIN, number_text)(number)
    return str(value)


def quoted(value: object, kind: Type) -> str:
    """Returns a value as a sentence holds it: as `show` does, but no longer than `QUOTED`."""
    text = show(value, kind)
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 4]} ..."


def number_text(number: float) -> str:
    """Returns a number as text: whole ones without fraction, others with six digits."""
    number += 0.0
    if number == int(number) and abs(number) < EXACT:
        return str(int(number))
    return f"{number:.6g}"


def _bytes(number: float) -> str:
    size, names = 1024.0, ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    if abs(number) < size:
        return number_text(number)
    index = min(int(math.log2(abs(number)) // 10), len(names))
    return f"{number_text(number / size**index)}{names[index - 1]}"


def _seconds(number: float) -> str:
    if number != int(number) or abs(number) >= 2**53:
        return f"{number_text(number)}s"
    rest, words = abs(int(number)), []
    for name, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count}{name}")
    return ("-" if number < 0 else "") + ("".join(words) or "0s")


_SHOWN: Final[dict[Unit, Callable[[float], str]]] = {
    CORES: lambda milli: (
        number_text(milli / MILLI) if milli % MILLI == 0 else f"{number_text(milli)}m"
    ),
    BYTES: _bytes,
    SECONDS: _seconds,
    Unit(byte=1, second=-1): lambda number: f"{_bytes(number)}/s",
}


def _clock(epoch: float) -> str:
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError):
        return f"{number_text(epoch)}s since 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
