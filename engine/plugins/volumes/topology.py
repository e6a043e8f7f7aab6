"""Where storage can be reached from: selectors of the storage API as masks over node rows.

Knows labels only: as for kube-scheduler, a node's name makes no difference to a volume.

Source: k8s.io/component-helpers storage/volume/helpers.go (CheckNodeAffinity); kubernetes
pkg/apis/core/v1/helper/helpers.go (MatchTopologySelectorTerms); k8s.io/apimachinery
meta/v1/helpers.go (LabelSelectorAsSelector).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engine.framework.snapshot import BoolColumn, CodeColumn, Rows, Snapshot, label_column
from engine.objects import LabelSelector, NodeSelector, NodeSelectorTerm, SelectorRequirement
from engine.objects.storage import TopologyTerm
from engine.plugins.node_selector import MOST_REQUIREMENTS, NodeTerms, Term, parse_terms
from engine.pods.selectors import what_it_selects


def of_volume(required: NodeSelector | None) -> NodeTerms | None:
    """The nodes that can reach a persistent volume of this affinity."""
    if required is None:
        return None
    terms = []
    for term in required.node_selector_terms or ():
        if term.match_fields:
            fields = NodeSelectorTerm(match_fields=term.match_fields)
            if parse_terms(NodeSelector([fields])).flaw:
                continue
            if not term.match_expressions:
                return None
        terms.append(term.match_expressions)
    return _selector(terms)


def of_class(allowed: Sequence[TopologyTerm]) -> NodeTerms | None:
    """The nodes for which a class may make volumes."""
    if not allowed:
        return None
    return _selector(
        [
            SelectorRequirement(one.key, "In", one.values)
            for one in term.match_label_expressions or ()
        ]
        for term in allowed
    )


def of_labels(selector: LabelSelector | None) -> NodeTerms | None:
    """The nodes (or volumes) that a label selector selects; without one, none."""
    found = what_it_selects(selector).requirements
    if found is None or len(found) > MOST_REQUIREMENTS:
        return NodeTerms(())
    return NodeTerms((Term(found),)) if found else None


def _selector(terms: Iterable[list[SelectorRequirement] | None]) -> NodeTerms:
    return parse_terms(NodeSelector([NodeSelectorTerm(one) for one in terms]))


class Reach:
    """Some rows, and which of them selectors reach."""

    def __init__(self, snapshot: Snapshot, rows: Rows) -> None:
        self.size = len(snapshot.nodes.present[rows])
        self.snapshot = snapshot
        self.rows = rows

    def mask(self, selector: NodeTerms | None) -> BoolColumn:
        """(n,) the rows that it reaches; None reaches all."""
        if selector is None:
            return np.ones(self.size, dtype=np.bool_)
        return selector.mask(self.snapshot.nodes, self.rows)

    def codes(self, label: str) -> CodeColumn:
        """(n,) the values of a label, as codes."""
        return self.snapshot.nodes.text(*label_column(label))[self.rows]
