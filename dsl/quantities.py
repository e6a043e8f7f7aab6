"""What the letters behind a number mean: `10k` is 10,000, `1Ki` 1,024, `5m`, `1h30m`; and times.

Exact where a policy is read, floats where a rule is asked; missing for any other text.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Final

from dsl.types import MISSING

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_POWERS_OF_TEN: Final = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_SUFFIXES: Final = {one: Fraction(10) ** power for one, power in _POWERS_OF_TEN.items()} | {
    f"{one}i": Fraction(1024) ** power for power, one in enumerate("KMGTPE", 1)
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[smhd])", re.ASCII)
DURATION_SECONDS: Final[Mapping[str, Fraction]] = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_MAX_DIGITS: Final = 64
_PLAIN: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def exact_decimal(text: str) -> Fraction | None:
    """Returns a decimal number exactly; None for other texts and for absurd sizes."""
    if len(text) > _MAX_DIGITS or not _NUMBER.fullmatch(text):
        return None
    mantissa, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > 400:  # noqa: PLR2004 - beyond what a float can hold
        return None
    return Fraction(mantissa.removesuffix(".") if mantissa != "." else "0") * (
        Fraction(10) ** int(exponent or 0)
    )


def to_float(value: Fraction | None) -> float:
    """Returns the nearest float; missing when there is none."""
    if value is None:
        return MISSING
    try:
        return float(value)
    except OverflowError:
        return MISSING


def exact_quantity(text: str) -> Fraction | None:
    """Returns a Kubernetes quantity exactly: `500m`, `2Gi`, `1e3`."""
    plain = exact_decimal(text)
    if plain is not None:
        return plain
    for size in (2, 1):
        factor = _SUFFIXES.get(text[-size:])
        if factor is not None:
            # An exponent and a suffix are one too many: `1e3Ki` is none for Kubernetes either.
            bare = text[:-size]
            number = None if "e" in bare.lower() else exact_decimal(bare)
            return None if number is None else number * factor
    return None


def exact_duration(text: str) -> Fraction | None:
    """Returns the seconds of `1m30s`, `5min`, `100ms`."""
    if len(text) > _MAX_DIGITS:
        return None
    result, at = Fraction(0), 0
    for found in _DURATION.finditer(text):
        if found.start() != at:
            return None
        result += Fraction(found.group(1)) * DURATION_SECONDS[found.group(2)]
        at = found.end()
    return result if at == len(text) and at else None


def parse_quantity(text: str) -> float:
    """Returns a Kubernetes quantity; missing for other texts."""
    return to_float(exact_quantity(text))


def parse_number(text: str) -> float:
    """Returns a plain decimal, quantity or percentage; missing for other texts."""
    if text.endswith("%"):
        exact = exact_decimal(text[:-1])
        return MISSING if exact is None else to_float(exact / 100)
    if len(text) <= _MAX_DIGITS and _PLAIN.fullmatch(text):
        return float(text) + 0.0  # The nearest float, as of the exact number; no -0.
    return parse_quantity(text)


def parse_duration(text: str) -> float:
    """Returns the seconds of a duration; missing for other texts."""
    return to_float(exact_duration(text))


def parse_time(text: str) -> float:
    """Returns the epoch seconds of an RFC 3339 time; missing for other texts."""
    if not _TIME.fullmatch(text):
        return MISSING
    try:
        return datetime.fromisoformat(text.upper().replace(" ", "T")).timestamp()
    except (ValueError, OverflowError):
        return MISSING
