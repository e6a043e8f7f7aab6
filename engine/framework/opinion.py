"""What extenders answered about a pod: nodes left and rejected, scores, victims. Data only.

Who asks them is `engine.extenders`; what they say is an input of the cycle like the snapshot, so
that a journal has it and a replay decides the same.

Source: kubernetes pkg/scheduler schedule_one.go: findNodesThatPassExtenders, prioritizeNodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import BoolColumn, IntColumn, NodeColumns
from engine.framework.status import Code, Status

NAME: Final = "Extender"
"""The plugin name under which all extenders reject pods."""
LEFT_OUT: Final = "node(s) were left out by an extender"
NOT_ASKED: Final = "node(s) came when the extenders had been asked"
SCALE: Final = 10
"""An extender's best score is 10, a plugin's 100."""
MOST: Final = 1 << 40
"""Bound of a score with its weight, in points of ours."""


class Scored(msgspec.Struct, frozen=True):
    """The scores of one extender, before they are scaled and weighted."""

    extender: str
    weight: int
    scores: dict[str, int]


class Opinion(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that extenders said in one cycle.

    `asked` are the nodes that the first was asked about, `passed` those that all left. `victims` is
    what is left of the nodes to evict pods from, with the victims' UIDs; None: nobody was asked.
    """

    asked: list[str] = []
    passed: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    scores: list[Scored] = []
    victims: dict[str, list[str]] | None = None
    error: str = ""
    """Why one of them that may not fail did; the cycle fails with it."""
    victims_error: str = ""
    """The same of those asked about victims."""

    def passes(self, nodes: NodeColumns) -> BoolColumn:
        """(N,) the nodes that are left."""
        mask = np.zeros(nodes.size, dtype=np.bool_)
        rows = np.fromiter(map(nodes.row, self.passed), np.intp, len(self.passed))
        mask[rows[rows >= 0]] = True
        return mask

    def points(self, nodes: NodeColumns, rows: NDArray[np.intp]) -> IntColumn:
        """(n,) the weighted scores that all of them add to these rows."""
        total = np.zeros(nodes.size, dtype=np.int64)
        for one in self.scores:
            for name, score in one.scores.items():
                row = nodes.row(name)
                if row >= 0:
                    total[row] += score * one.weight * SCALE
        return total[rows]

    def reasons(
        self, nodes: NodeColumns, rows: Sequence[int]
    ) -> list[tuple[Status, NDArray[np.intp]]]:
        """Why these rows were not left, by equal reasons."""
        asked = set(self.asked)
        found: dict[Status, list[int]] = defaultdict(list)
        for row in rows:
            name = nodes.name(row)
            if name not in asked:
                status = Status(Code.UNSCHEDULABLE, (NOT_ASKED,), NAME)
            elif name in self.failed and name not in self.unresolvable:
                status = Status(Code.UNSCHEDULABLE, (self.failed[name],), NAME)
            else:
                why = self.unresolvable.get(name, LEFT_OUT)
                status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (why,), NAME)
            found[status].append(row)
        return [(status, np.array(each, np.intp)) for status, each in found.items()]
