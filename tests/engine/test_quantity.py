"""Quantities against what Go's Quantity gives (expected values from its documentation and code)."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.quantity import parse, resource_amount, wrap_int64

MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("text", "units", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("0.5", 1, 500),
        (".5", 1, 500),
        ("7.", 7, 7000),
        ("1500m", 2, 1500),
        ("1u", 1, 1),
        ("100n", 1, 1),
        ("0.0000000001", 1, 1),
        ("8e9", 8 * 10**9, 8 * 10**12),
        ("2E3", 2000, 2_000_000),
        ("1e-3", 1, 1),
        ("1k", 1000, 10**6),
        ("1.5G", 1_500_000_000, 1_500_000_000_000),
        ("3T", 3 * 10**12, 3 * 10**15),
        ("1Ki", 1024, 1_024_000),
        ("0.1Gi", 107_374_183, 107_374_182_400),
        ("1.5Ti", 3 << 39, (3 << 39) * 1000),
        ("+2", 2, 2000),
        ("-1", -1, -1000),
        ("-1500m", -2, -1500),
        ("007", 7, 7000),
        (" 5 ", 5, 5000),
        (3, 3, 3000),
        (0.25, 1, 250),
        (1e15, 10**15, 10**18),
    ],
)
def test_values(text: str | float, units: int, milli: int) -> None:
    assert resource_amount("memory", text) == units
    assert resource_amount("cpu", text) == milli


@pytest.mark.parametrize(
    "text", ["", " ", "1e", "abc", "1Kib", "1 G", "1_000", "٣", "1k3", "0x1", "--1", "1.2.3", "n1"]
)
def test_what_is_no_quantity_says_what_was_seen(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        resource_amount("memory", text)


@pytest.mark.parametrize("text", ["9" * 300, "1" + "0" * 10_000, float("nan"), float("inf")])
def test_endless_and_endless_like_are_refused_shortly(text: str | float) -> None:
    with pytest.raises(ValueError, match="not a quantity") as caught:
        resource_amount("memory", text)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("9223372036854775807", MAX),
        ("9223372036854775808", -MAX - 1),  # a decimal: the low 64 bits
        ("12E", 0),  # a scaled number: nothing
        ("8Ei", MAX),  # binary suffixes are capped
        ("1e1000000000", 0),
        ("1e-1000000000", 1),
    ],
)
def test_absurd_sizes_become_what_go_makes_of_them(text: str, units: int) -> None:
    assert resource_amount("memory", text) == units


def test_cpu_is_counted_in_thousandths() -> None:
    assert resource_amount("cpu", "1") == 1000
    assert resource_amount("memory", "1") == 1
    assert resource_amount("example.com/gpu", "2") == 2


def test_sums_are_rounded_once() -> None:
    half = parse("0.5")
    assert half.plus(half).units() == 1
    assert parse("100n").plus(parse("100n")).milli_units() == 1


@given(
    st.integers(-(10**12), 10**12),
    st.integers(0, 6),
    st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e2", "E-2"]),
)
def test_agrees_with_decimal_arithmetic(number: int, places: int, suffix: str) -> None:
    scale = {"": 1, "m": "0.001", "k": 1000, "M": 10**6, "e2": 100, "E-2": "0.01"}
    scale |= {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    amount = Decimal(number).scaleb(-places)
    exact = amount * Decimal(scale[suffix])
    whole = int(exact.to_integral_value(ROUND_UP))
    if abs(whole) <= MAX:
        assert resource_amount("memory", f"{amount:f}{suffix}") == whole


@given(st.text(max_size=12) | st.floats() | st.integers())
def test_anything_is_a_quantity_or_a_value_error(anything: str | float) -> None:
    try:
        amounts = (resource_amount("memory", anything), resource_amount("cpu", anything))
    except ValueError:
        return
    assert all(-MAX - 1 <= amount <= MAX for amount in amounts)


@given(st.integers())
def test_wrapping_is_arithmetic_modulo_64_bits(number: int) -> None:
    wrapped = wrap_int64(number)
    assert -MAX - 1 <= wrapped <= MAX
    assert (wrapped - number) % (1 << 64) == 0
