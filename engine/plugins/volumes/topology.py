"""Where storage can be reached from: selectors of the storage API as masks over node rows.

Knows labels only: as for kube-scheduler, a node's name makes no difference to a volume.

Source: k8s.io/component-helpers storage/volume/helpers.go (CheckNodeAffinity); kubernetes
pkg/apis/core/v1/helper/helpers.go (MatchTopologySelectorTerms); k8s.io/apimachinery
meta/v1/helpers.go (LabelSelectorAsSelector).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import BoolColumn, CodeColumn, Rows, Snapshot, label_column
from engine.objects import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    TopologyTerm,
)
from engine.plugins.node_selector import Selector, parse_selector

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def of_volume(required: NodeSelector | None) -> Selector | None:
    """The nodes that can reach a persistent volume of this affinity."""
    if required is None:
        return None
    terms = []
    for term in required.node_selector_terms or ():
        if term.match_fields:
            fields = NodeSelectorTerm(match_fields=term.match_fields)
            if parse_selector(NodeSelector([fields])).flawed:
                continue
            if not term.match_expressions:
                return None
        terms.append(NodeSelectorTerm(term.match_expressions))
    return parse_selector(NodeSelector(terms))


def of_class(allowed: Sequence[TopologyTerm]) -> Selector | None:
    """The nodes for which a class may make volumes."""
    if not allowed:
        return None
    return parse_selector(
        NodeSelector(
            [
                NodeSelectorTerm(
                    [
                        SelectorRequirement(each.key, "In", each.values)
                        for each in term.match_label_expressions or ()
                    ]
                )
                for term in allowed
            ]
        )
    )


def of_labels(selector: LabelSelector | None) -> Selector | None:
    """The nodes (or volumes) that a label selector selects; without one, none."""
    if selector is None:
        return Selector(())
    expressions = list(selector.match_expressions or ())
    if any(each.operator not in _OPERATORS for each in expressions):
        return Selector(())
    equal = (selector.match_labels or {}).items()
    expressions += [SelectorRequirement(key, "In", [value]) for key, value in sorted(equal)]
    if not expressions:
        return None
    return parse_selector(NodeSelector([NodeSelectorTerm(expressions)]))


class Reach:
    """Which rows selectors reach: one question for many selectors over the same rows.

    Of storage that is in one place each (a disk in a node), each selector names its label: rows are
    then looked up by the label's value instead of being compared one by one.
    """

    def __init__(self, snapshot: Snapshot, rows: Rows) -> None:
        self.size = len(snapshot.nodes.present[rows])
        self._snapshot = snapshot
        self._rows = rows
        self._sorted: dict[str, tuple[NDArray[np.intp], CodeColumn]] = {}

    def mask(self, selector: Selector | None) -> BoolColumn:
        """Which of the rows it reaches; None reaches all."""
        if selector is None:
            return np.ones(self.size, dtype=np.bool_)
        return selector.mask(self._snapshot, self._rows)

    def positions(self, selector: Selector | None) -> NDArray[np.intp]:
        """The positions of the rows it reaches, ascending."""
        named = None if selector is None else selector.only_value
        if named is None:
            return np.flatnonzero(self.mask(selector))
        key, value = named
        order, codes = self._by_value(key)
        code = self._snapshot.dictionary.find(value)
        start, end = np.searchsorted(codes, (code, code + 1)) if code >= 0 else (0, 0)
        return np.sort(order[start:end])

    def _by_value(self, key: str) -> tuple[NDArray[np.intp], CodeColumn]:
        known = self._sorted.get(key)
        if known is None:
            codes = self._snapshot.nodes.text(*label_column(key))[self._rows]
            order = np.argsort(codes, kind="stable")
            known = self._sorted[key] = order, codes[order]
        return known
