"""The best rows of groups, kept by the rows that changed: always what a look at all rows finds."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest

from engine.framework import groupedchoice
from engine.framework.groupedchoice import GroupedChoice
from engine.framework.interface import Moved
from engine.framework.keycolumn import NOWHERE, UNIT, KeyColumn
from engine.framework.snapshot import Snapshot
from tests.builders import Cache
from tests.effort import examples

ROWS, GROUPS = 24, 4


class Scored:
    """Groups that are told what they are."""

    def __init__(self, chance: random.Random) -> None:
        self.column = np.array([chance.randrange(GROUPS) for _ in range(ROWS)], np.int16)
        self.size = GROUPS
        self.moved: Moved = None
        self.points = [chance.randrange(101) for _ in range(GROUPS)]

    def __len__(self) -> int:
        return self.size

    def sync(self, snapshot: Snapshot) -> Moved:
        moved, self.moved = self.moved, {}
        return moved

    def scores(self, feasible):
        return self.points


def key_of(chance: random.Random, row: int) -> int:
    """Few scores, so that many rows are as good but for the order of ties."""
    feasible = chance.random() < 0.8
    return chance.randrange(20, 26) * UNIT | row * 31 % ROWS if feasible else NOWHERE


def change(chance: random.Random, keys: KeyColumn, member: Scored) -> None:
    """Rows get another key, another group, or both, one after another."""
    moved: dict[int, int] = {}
    for _ in range(chance.choice([0, 1, 1, 1, 2, 5, 40])):
        row = chance.randrange(ROWS)
        before, after = keys.cells[row], key_of(chance, row)
        if chance.random() < 0.7 and before != after:
            keys.cells[row] = after
            flips = (before < 0) is not (after < 0)
            keys.feasible += flips * (1 if before < 0 else -1)
            assert keys.log is not None
            keys.log.append(~row if flips else row)
        if chance.random() < 0.4:
            moved.setdefault(row, int(member.column[row]))
            if chance.random() < 0.1:
                member.size += 1
                member.points.append(chance.randrange(101))
            member.column[row] = chance.randrange(member.size)
    if member.moved is not None:
        member.moved = moved
    if chance.random() < 0.7:
        member.points[chance.randrange(member.size)] = chance.randrange(101)


def column(chance: random.Random) -> KeyColumn:
    keys = KeyColumn(0)
    keys.column = np.array([key_of(chance, row) for row in range(ROWS)], np.int64)
    keys.cells = keys.column.data
    keys.feasible = int((keys.column >= 0).sum())
    return keys


@pytest.mark.parametrize("leaders", [1, 2, groupedchoice.LEADERS])
@pytest.mark.sized
@pytest.mark.parametrize("seed", range(examples(50)))
def test_what_is_kept_finds_the_row_that_a_look_at_all_finds(monkeypatch, seed, leaders):
    monkeypatch.setattr(groupedchoice, "LEADERS", leaders)
    chance, snapshot = random.Random(seed), Cache().snapshot(0.0)
    member, keys = Scored(chance), column(chance)
    choice = GroupedChoice([], [(2, member)], deque())
    for _ in range(100):
        row, key, feasible = choice.choose(keys, snapshot)
        assert feasible == keys.feasible
        steps = 2 * np.array(member.points)[member.column] * UNIT
        sums = np.where(keys.column >= 0, keys.column + steps, NOWHERE)
        assert row == (sums.argmax() if feasible else -1)
        if feasible:
            assert choice.every(keys.column)[row] == key == sums[row]
            assert (choice.every(keys.column) >= 0).tolist() == (sums >= 0).tolist()
        change(chance, keys, member)


def test_the_best_rows_are_known_of_the_last_that_chose():
    chance, recent = random.Random(0), deque[GroupedChoice]()
    keys, snapshot = column(chance), Cache().snapshot(0.0)
    many = [GroupedChoice([], [(1, Scored(chance))], recent) for _ in range(40)]
    found = [[choice.choose(keys, snapshot) for choice in many] for _ in range(3)]
    assert found[0] == found[1] == found[2]
    assert len(recent) == groupedchoice.MOST_CHOICES < len(many)
    assert many[0]._leaders is None
    assert many[-1]._leaders is not None
