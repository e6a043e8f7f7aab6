"""Members of a gang on rows: a plan is found wherever there is one, and every plan holds."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from engine.collective import packing
from engine.collective.packing import Alike, Search, SearchBudget, at_once

MEMBERS, NODES, DOMAINS = 12, 8, 3


def pack(kinds, left, wanted, budget, others=None):
    search = Search(kinds, left, np.arange(len(left)), budget, others)
    return at_once(packing.pack([search], wanted, budget))


def a_cluster(seed):
    """Kinds of members, what nodes have left, how many have to start, and nodes by domain."""
    chance = random.Random(seed)
    nodes = chance.randint(2, NODES)
    left = np.array(
        [[chance.randint(1, 16), chance.randint(1, 32), chance.choice([0, 0, 2, 4])]
         for _ in range(nodes)]
    )  # fmt: skip
    kinds, members = [], itertools.count()
    count = chance.randint(2, MEMBERS)
    for size in parts(chance, count):
        needs = np.array(
            [chance.randint(1, 7), chance.randint(1, 14), chance.choice([0, 0, 0, 1, 2])]
        )
        open_ = np.array([chance.random() < 0.8 for _ in range(nodes)])
        keys = np.array([chance.randint(0, 100) for _ in range(nodes)])
        kinds.append(Alike([next(members) for _ in range(size)], open_, needs, keys))
    wanted = count if chance.random() < 0.6 else chance.randint(1, count)
    domain = [chance.randrange(DOMAINS) for _ in range(nodes)]
    return kinds, left, wanted, [[n for n in range(nodes) if domain[n] == d] for d in range(3)]


def parts(chance, count):
    """The members, by kinds of which there are at most five."""
    sizes = []
    while count:
        most = count if len(sizes) == 4 else chance.randint(1, count)
        sizes.append(most)
        count -= most
    return sizes


def most_that_fit(kinds, left, nodes):
    """How many members the nodes take at most: all ways, node by node."""
    counts = tuple(len(kind.members) for kind in kinds)
    reached = {tuple(0 for _ in kinds)}
    for node in nodes:
        loads = [()]
        for kind in kinds:
            loads = [(*load, more) for load in loads for more in range(len(kind.members) + 1)
                     if more == 0 or kind.open[node]]  # fmt: skip
            loads = [load for load in loads if fits(kinds, load, left[node])]
        reached |= {
            tuple(map(min, map(sum, zip(before, load, strict=True)), counts))
            for before in reached
            for load in loads
        }
    return max(map(sum, reached))


def fits(kinds, load, left):
    used = sum((kind.needs * n for kind, n in zip(kinds, load, strict=False)), np.zeros(3, int))
    return bool((used <= left).all())


def within(kinds, nodes):
    """The members, if only some nodes count."""
    only = np.zeros(len(kinds[0].open), np.bool_)
    only[nodes] = True
    return [Alike(one.members, one.open & only, one.needs, one.keys) for one in kinds]


def check(kinds, left, found, nodes):
    """What was placed is where it may be, and no node has more than it takes."""
    used = np.zeros_like(left)
    for kind in kinds:
        for member in kind.members:
            if member in found.rows:
                row = found.rows[member]
                assert kind.open[row]
                assert row in nodes
                used[row] += kind.needs
    assert (used <= left).all()


@pytest.mark.parametrize("seed", range(200))
def test_a_plan_is_found_wherever_there_is_one(seed):
    kinds, left, wanted, domains = a_cluster(seed)
    for nodes in (list(range(len(left))), *filter(None, domains)):
        budget = SearchBudget()
        found = pack(within(kinds, nodes), left, wanted, budget)
        check(kinds, left, found, nodes)
        assert not budget.spent
        assert found.enough == (most_that_fit(kinds, left, nodes) >= wanted)
        assert not found.enough or len(found.rows) >= wanted


class Apart:
    """No two of these members on one row."""

    def __init__(self, members):
        self.members, self.there = members, []

    def takes(self, member, rows):
        return (member not in self.members) | ~np.isin(rows, [row for _, row in self.there])

    def put(self, member, row):
        self.there.append((member, row))

    def take(self, member):
        assert self.there.pop()[0] == member


def test_what_is_more_than_amounts_is_asked_about_and_left_as_it_was():
    # The large member has to have a row of its own that the small ones like best.
    small = Alike([0, 1], np.array([True, True]), np.array([1]), np.array([9, 1]))
    large = Alike([2], np.array([True, False]), np.array([3]), np.array([1, 1]))
    left = np.array([[3], [3]])
    assert pack([small, large], left, 3, SearchBudget()).rows == {0: 1, 1: 1, 2: 0}
    apart = Apart({0, 1})
    assert not pack([small, large], left, 3, SearchBudget(), apart).enough
    assert not apart.there
    assert len(pack([small], left, 2, SearchBudget(), apart).rows) == 2


def test_who_can_be_spared_is_left_out():
    kind = Alike([0, 1, 2], np.array([True, True]), np.array([2]), np.array([1, 2]))
    left = np.array([[3], [2]])
    assert not pack([kind], left, 3, SearchBudget()).enough
    assert pack([kind], left, 2, SearchBudget()).rows == {0: 1, 1: 0}


def test_a_search_ends_with_its_budget():
    """Two of them fit on a row and not three, though there is room enough in all."""
    members = [
        Alike([n], np.ones(11, np.bool_), np.array([340 + n]), np.zeros(11, int)) for n in range(24)
    ]
    left = np.arange(11)[:, None] + 990
    budget = SearchBudget(steps=300)
    found = pack(members, left, 24, budget)
    assert not found.enough
    assert budget.spent
    assert len(found.rows) == 22
