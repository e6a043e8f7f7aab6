"""Kubernetes quantities as whole numbers: `"1500m"`, `"0.5Gi"`, `8e9` in, int64 amounts out.

Amounts are exact in nano-units and rounded away from zero when they are read, as kube-scheduler
does. What does not fit 64 bits saturates, so that an absurd request fits nowhere; Go wraps there or
counts nothing.

Source: k8s.io/apimachinery pkg/api/resource/quantity.go (ParseQuantity, Value, MilliValue).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from engine.objects import Quantity

CPU: Final = "cpu"
MAX_INT64: Final = (1 << 63) - 1
NANO: Final = 10**9
_MILLI_NANO: Final = 10**6
_CACHED: Final = 1 << 16
_LONGEST: Final = 256
_LARGEST_EXPONENT: Final = 40
_MOST_NANO: Final = MAX_INT64 * NANO
_SHOWN: Final = 60

_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?", re.ASCII
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=_CACHED)
def nano(quantity: Quantity) -> int:
    """The quantity in units of 1e-9; finer parts are rounded away from zero.

    Raises:
        ValueError: it is no quantity; the message shows what was seen.
    """
    if isinstance(quantity, int):
        return _bounded(quantity * NANO)
    text = quantity if isinstance(quantity, str) else repr(quantity)
    text = text.strip()
    match = _QUANTITY.fullmatch(text) if 0 < len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"not a quantity: {_shown(text)}")
    sign, whole, fraction, suffix, power = match.groups()
    fraction = fraction or ""
    mantissa = int(whole + fraction or "0")
    if suffix in _BINARY:
        mantissa <<= _BINARY[suffix]
        exponent = 0
    elif power is None:
        exponent = _DECIMAL.get(suffix, 0)
    else:
        exponent = int(power)
    amount = _scaled(mantissa, exponent - len(fraction) + 9)
    return _bounded(-amount if sign == "-" else amount)


@lru_cache(maxsize=_CACHED)
def value(quantity: Quantity) -> int:
    """Whole units, within int64; parts of a unit count as one.

    Raises:
        ValueError: it is no quantity.
    """
    return units(nano(quantity))


@lru_cache(maxsize=_CACHED)
def milli_value(quantity: Quantity) -> int:
    """Thousandths, within int64; finer parts count as one.

    Raises:
        ValueError: it is no quantity.
    """
    return milli_units(nano(quantity))


def resource_amount(resource: str, quantity: Quantity) -> int:
    """The quantity as the engine counts that resource: milli-cores for cpu, units for all others.

    Raises:
        ValueError: it is no quantity.
    """
    return milli_value(quantity) if resource == CPU else value(quantity)


def units(amount_nano: int) -> int:
    """Nano-units as whole units, rounded away from zero, within int64."""
    return _away_from_zero(amount_nano, NANO)


def milli_units(amount_nano: int) -> int:
    """Nano-units as thousandths, rounded away from zero, within int64."""
    return _away_from_zero(amount_nano, _MILLI_NANO)


def _away_from_zero(amount: int, unit: int) -> int:
    size = min(-(-abs(amount) // unit), MAX_INT64)
    return size if amount >= 0 else -size


def _scaled(mantissa: int, exponent: int) -> int:
    """The mantissa times 10^exponent, rounded up."""
    if exponent >= 0:
        # INVARIANT: anything from 1e40 nano on saturates, so larger powers need not be computed.
        power: int = 10 ** min(exponent, _LARGEST_EXPONENT)
        return mantissa * power
    power = 10 ** min(-exponent, _LONGEST + _LARGEST_EXPONENT)
    return -(-mantissa // power)


def _bounded(amount: int) -> int:
    return max(-_MOST_NANO, min(_MOST_NANO, amount))


def _shown(text: str) -> str:
    if not text:
        return "an empty text"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
