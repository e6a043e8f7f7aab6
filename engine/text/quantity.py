"""Kubernetes quantities as whole numbers: `"1500m"`, `"0.5Gi"`, `8e9` in, int64 amounts out.

An `Amount` is exact in nano-units; reading it rounds away from zero. What does not fit 64 bits
becomes what Go makes of it, which depends on how the amount was written: `"12E"` is nothing, and
`"12000000000000000000"` wraps. So an absurd request counts here as it counts for kube-scheduler.

Source: k8s.io/apimachinery pkg/api/resource: quantity.go (ParseQuantity, Value, MilliValue, Add),
amount.go, math.go (positiveScaleInt64), scale_int.go.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from engine.objects import Quantity

CPU: Final = "cpu"
NANO: Final = 10**9
_MILLI_NANO: Final = 10**6
_INT64: Final = 1 << 63
_CACHED: Final = 1 << 13  # of at most `_LONGEST` letters each
_LONGEST: Final = 256
_LARGEST_EXPONENT: Final = 80
_SHOWN: Final = 60
_SMALLEST_SCALE: Final = -9
_MOST_DIGITS: Final = 18
_MOST_BINARY_DIGITS: Final = 14
_WRAPPING_SCALES: Final = frozenset((1, 2, 3, 6, 9))

_QUANTITY: Final = re.compile(
    r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?", re.ASCII
)
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class Amount(NamedTuple):
    """An exact amount, ordered by its size.

    `scale`: it is held as a 64-bit number times 10^scale; None: as a decimal of any size.
    """

    nano: int
    scale: int | None

    def units(self) -> int:
        """Whole units; parts of a unit count as one."""
        return self._read(NANO, 0)

    def milli_units(self) -> int:
        """Thousandths; finer parts count as one."""
        return self._read(_MILLI_NANO, 3)

    def plus(self, other: Amount) -> Amount:
        """The sum, held as Go would hold it."""
        total = self.nano + other.nano
        if self.scale is None or other.scale is None:
            return Amount(total, None)
        if not other.nano:
            return self
        if not self.nano:
            return other
        scale = min(self.scale, other.scale)
        unit = 10 ** min(scale - _SMALLEST_SCALE, _LARGEST_EXPONENT)
        fits = all(-_INT64 <= n // unit < _INT64 for n in (self.nano, other.nano, total))
        return Amount(total, scale if fits else None)

    def most(self, other: Amount) -> Amount:
        """The larger of both, held as Go would hold it after comparing them."""
        if other.nano <= self.nano:
            return self
        return Amount(other.nano, None) if self.scale is None else other

    def _read(self, unit: int, power: int) -> int:
        size = -(-abs(self.nano) // unit)
        amount = size if self.nano >= 0 else -size
        if -_INT64 <= amount < _INT64:
            return amount
        if self.scale is not None and self.scale + power not in _WRAPPING_SCALES:
            return 0
        return wrap_int64(amount)


@lru_cache(maxsize=_CACHED)
def parse(quantity: Quantity) -> Amount:
    """The quantity as an amount; what is finer than 1e-9 is rounded away from zero.

    Raises:
        ValueError: it is no quantity; the message shows what was seen.
    """
    text = quantity.strip() if isinstance(quantity, str) else repr(quantity)
    match = _QUANTITY.fullmatch(text) if 0 < len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f"not a quantity: {_shown(text)}")
    sign, whole, fraction, suffix, power = match.groups()
    whole, fraction = whole or "0", fraction or ""
    mantissa = int(whole + fraction)
    digits = len(whole) + len(fraction)
    if suffix in _BINARY:
        amount = _binary(mantissa, _BINARY[suffix], len(fraction), digits)
    else:
        scale = (_DECIMAL.get(suffix, 0) if power is None else int(power)) - len(fraction)
        small = digits <= _MOST_DIGITS and scale >= _SMALLEST_SCALE
        amount = Amount(_scaled(mantissa, scale - _SMALLEST_SCALE), scale if small else None)
    return Amount(-amount.nano, amount.scale) if sign == "-" else amount


def resource_amount(resource: str, quantity: Quantity) -> int:
    """The quantity as the engine counts that resource: milli-cores for cpu, units for all others.

    Raises:
        ValueError: it is no quantity.
    """
    amount = parse(quantity)
    return amount.milli_units() if resource == CPU else amount.units()


def wrap_int64(number: int) -> int:
    """The number as 64 bits hold it; what does not fit wraps around, as Go's arithmetic does."""
    if -_INT64 <= number < _INT64:
        return number
    return (number + _INT64) % (2 * _INT64) - _INT64


def _binary(mantissa: int, exponent: int, fraction: int, digits: int) -> Amount:
    amount = mantissa << exponent
    if not fraction and digits + exponent * 3 // 10 <= _MOST_BINARY_DIGITS and amount < _INT64:
        return Amount(amount * NANO, 0)
    return Amount(min(_scaled(amount, -fraction - _SMALLEST_SCALE), (_INT64 - 1) * NANO), None)


def _scaled(mantissa: int, exponent: int) -> int:
    """The mantissa times 10^exponent, rounded up."""
    if exponent >= 0:
        # INVARIANT: 10^80 and all higher powers are too large for 64 bits, and 0 in the low ones.
        power: int = 10 ** min(exponent, _LARGEST_EXPONENT)
        return mantissa * power
    power = 10 ** min(-exponent, _LONGEST + _LARGEST_EXPONENT)
    return -(-mantissa // power)


def _shown(text: str) -> str:
    if not text:
        return "an empty text"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
