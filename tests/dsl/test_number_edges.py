"""Arithmetic over columns is that of scalars, bit for bit."""

import math

import numpy as np
import pytest

from dsl import functions
from dsl.lower import numbers
from tests.dsl import oracle


def same(left, right):
    return left == right or (math.isnan(left) and math.isnan(right))


ODD = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1e-9, 100.0, 2.0**52 + 0.5, 2.0**53]
ODD += [-(2.0**53), 1e300, -1e308, 1.7e308, math.nan]


def agree(left, right):
    return all(map(same, np.asarray(left, np.float64).tolist(), map(float, right)))


@pytest.mark.parametrize("name", sorted(numbers.NUMBER_FUNCTIONS))
def test_functions_of_numbers(name):
    of_columns, of_scalars = numbers.NUMBER_FUNCTIONS[name], functions.NUMBER_FUNCTIONS[name]
    with np.errstate(all="ignore"):
        if name in ("pow", "mod", "max", "min", "median"):
            for other in ODD:
                column = np.full(len(ODD), other)
                expected = [of_scalars(one, other) for one in ODD]
                assert agree(of_columns(np.array(ODD), column), expected)
                assert agree(of_columns(np.array(ODD), other), expected)
        else:
            assert agree(of_columns(np.array(ODD)), map(of_scalars, ODD))


@pytest.mark.parametrize("sign", "+-*/")
def test_arithmetic(sign):
    step, column = functions.ARITHMETIC[sign], np.array(ODD)
    with np.errstate(all="ignore"):
        for other in ODD:
            right = [step(one, other) for one in ODD]
            left = [step(other, one) for one in ODD]
            for there in (other, np.full(len(ODD), other)):
                assert agree(numbers.settle(numbers.chain((sign,), (column, there))), right)
                assert agree(numbers.settle(numbers.chain((sign,), (there, column))), left)
            for one in ODD:
                found = numbers.settle(numbers.chain((sign,), (one, other)))
                assert same(found, step(one, other))


def test_a_divisor_column_is_left_as_it_was():
    left, right = np.array([0.0, 1.0, 4.0]), np.array([0.0, 0.0, 2.0])
    with np.errstate(all="ignore"):
        assert agree(numbers.settle(numbers.divide(left, right)), [0.0, math.nan, 2.0])
    assert (left.tolist(), right.tolist()) == ([0.0, 1.0, 4.0], [0.0, 0.0, 2.0])


def test_infinities_are_missing_and_a_sum_that_overflows_is_none():
    fine = np.array([1.7e308, 1.7e308, 1.0])
    with np.errstate(all="ignore"):
        assert numbers.settle(fine) is fine
        assert agree(
            numbers.settle(np.array([math.inf, 1.0, -math.inf])), [math.nan, 1.0, math.nan]
        )
    assert same(numbers.settle(math.inf), math.nan)
    gone = np.array([math.nan, 2.0])
    assert agree(numbers.settle(gone), [math.nan, 2.0])


COLUMNS = [
    [],
    [math.nan],
    [math.nan, math.nan],
    [3.0],
    [3.0, 1.0, 2.0],
    [4.0, math.nan, 1.0, 3.0],
    [0.1, 0.2, 0.3],
    [0.1] * 10,
    [1e16, 1.0, -1e16, 1.0],
    [2.0**53 - 1, 1.0],
    [2.0**53, 1.0, 1.0],
    [2.0**52, 2.0**52, 1.0],
    [1e308, 1e308, -1e308],
    [-1.0, -2.0, -2.0],
    [0.5, 0.5],
]
REDUCING = ("max", "min", "sum", "avg", "median", "distinct")


@pytest.mark.parametrize("function", REDUCING)
def test_reductions(function):
    for column in COLUMNS:
        with np.errstate(all="ignore"):
            found = numbers.reduce(function, np.array(column, np.float64))
        assert type(found) is float
        assert same(found, functions.REDUCERS[function](column)), column


@pytest.mark.parametrize("function", REDUCING)
def test_reductions_by_group(function):
    """Each column above is a group; a group in the middle and the last one have no pods."""
    pairs = [(at * 2, one) for at, column in enumerate(COLUMNS) for one in column]
    for chosen in (pairs, pairs[::-1], [one for one in pairs if not math.isnan(one[1])]):
        count = 2 * len(COLUMNS) + 1
        group = np.array([at for at, _ in chosen], np.intp)
        column = np.array([one for _, one in chosen], np.float64)
        wanted = [
            functions.REDUCERS[function]([one for place, one in chosen if place == at])
            for at in range(count)
        ]
        with np.errstate(all="ignore"):
            found = numbers.grouped(function, group, column, count)
        assert found.dtype == np.float64
        assert agree(found, wanted)


@pytest.mark.parametrize("function", REDUCING)
def test_reductions_by_group_of_small_whole_numbers(function):
    group, column = np.array([2, 0, 2, 2]), np.array([5.0, 1.0, 2.0, 2.0])
    wanted = [functions.REDUCERS[function](one) for one in ([1.0], [], [5.0, 2.0, 2.0], [])]
    with np.errstate(all="ignore"):
        found = numbers.grouped(function, group, column, 4)
        none = numbers.grouped(function, group[:0], column[:0], 2)
    assert agree(found, wanted)
    assert agree(none, [functions.REDUCERS[function]([])] * 2)


@pytest.mark.parametrize("function", [one for one in REDUCING if one != "sum"])
def test_reductions_of_several_values_on_each_row(function):
    """Each column above is a row, what it lacks is missing; then those of small whole numbers."""
    longest = max(map(len, COLUMNS))
    small = [[], [3.0], [3.0, 1.0, 2.0], [4.0, 1.0, 3.0, 1.0], [-1.0, -2.0], [2.0, 0.0]]
    small.append([6.0, 1.0, 9.0, 2.0, 7.0, 4.0])
    for rows in (COLUMNS, small):
        for gap in ("before", "behind"):
            gaps = [[math.nan] * (longest - len(one)) for one in rows]
            pairs = zip(gaps, rows, strict=True)
            full = [space + one if gap == "before" else one + space for space, one in pairs]
            with np.errstate(all="ignore"):
                found = numbers.of_items(function, np.array(full).T)
            assert found.dtype == np.float64
            assert agree(found, map(functions.REDUCERS[function], rows)), gap


def test_different_texts_of_several_items_are_counted_by_their_codes():
    found = numbers.of_items("distinct", np.array([[0, 5, -1], [7, 5, -1], [0, -1, -1]], np.int32))
    assert (found.dtype, found.tolist()) == (np.float64, [2.0, 1.0, 0.0])


def test_different_texts_are_counted_by_their_codes():
    """Few or many: of groups and values that are too many for a table, the pairs are sorted."""
    rng = np.random.default_rng(7)
    for kind, groups, values in ((np.int32, 5, 9), (np.int32, 3000, 3000), (float, 3000, 3000)):
        group = rng.integers(0, groups - 1, 6000)
        column = rng.integers(-1, values, 6000).astype(kind)
        if kind is float:
            column[column < 0] = np.nan
        pairs = [(at, one) for at, one in zip(group.tolist(), column.tolist(), strict=True)]
        known = [[one for at, one in pairs if at == which and one >= 0] for which in range(4)]
        found = numbers.grouped("distinct", group, column, groups)
        assert agree(found[:4], [functions.distinct(one) for one in known])
        assert found[groups - 1] == 0.0
        there = [one for _, one in pairs if one >= 0]
        assert numbers.reduce("distinct", column) == functions.distinct(there)
    assert numbers.reduce("distinct", np.zeros(0, np.int32)) == 0.0
    assert numbers.grouped("distinct", np.zeros(0, np.intp), np.zeros(0, np.int32), 2).tolist() == [
        0.0,
        0.0,
    ]
    assert functions.distinct(["a", None, "b", "a"]) == 2.0


def test_sums_are_added_plainly_only_where_the_order_does_not_matter():
    assert numbers.whole_and_small(np.array([2.0**53 - 2, -1.0]))
    assert not numbers.whole_and_small(np.array([2.0**53 - 1, -1.0]))
    assert not numbers.whole_and_small(np.array([2.0**53]))
    assert not numbers.whole_and_small(np.array([1.0, 0.5]))
    assert numbers.whole_and_small(np.array([]))


def test_medians_of_several_values():
    columns = [np.array([1.0, 5.0, math.nan, 1e308]), 2.0, np.array([9.0, 4.0, 1.0, 1e308])]
    expected = [functions.median([float(one) for one in row]) for row in ((1, 2, 9), (5, 2, 4))]
    found = numbers.NUMBER_FUNCTIONS["median"](*columns)
    assert agree(found, [*expected, math.nan, 1e308])
    with np.errstate(all="ignore"):
        even = numbers.NUMBER_FUNCTIONS["median"](*columns, np.array([3.0, 3.0, 3.0, 1e308]))
    assert agree(even, [2.5, 3.5, math.nan, math.nan])


NORMS = ("none", "minmax", "default", "rank")
RAWS = [
    [5.0],
    [0.0, 0.0],
    [7.0, 7.0, 7.0],
    [1.0, 2.0, 4.0],
    [-3.0, -1.0, -2.0],
    [-5.0, 0.0, 5.0],
    [50.0, 150.0, -20.0, 33.3333333],
    [math.nan, 1.0, 3.0],
    [math.nan, math.nan],
    [3.0, 1.0, 3.0, 1.0, 2.0],
    [1e-7, 5e-7, 4.9999999e-7],
    [0.0000005, 12.3456785, 99.9999995],
    [1.5e308, -1.5e308, 0.0],
    [1.5e308, -1.5e308, 3e307],
    [1.5e308, 1.5e308, 0.0],
]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("missing", [None, 0.0, 40.0])
def test_scores_from_raw_values(norm, reverse, missing):
    for raw in RAWS:
        with np.errstate(all="ignore"):
            found = numbers.finish(np.array(raw), norm, missing, reverse=reverse)
        if missing is None and all(map(math.isnan, raw)):
            assert found is None
            continue
        expected = oracle.finished(raw, norm, missing, reverse=reverse)
        assert found.tolist() == expected, raw
        assert all(0.0 <= one <= 100.0 for one in expected)


def test_no_candidates_have_no_scores():
    assert numbers.finish(np.array([]), "minmax", 5.0, reverse=False) is None
