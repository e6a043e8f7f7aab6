"""Terms of existing pods: their affinities in, those that find a given pod out.

Pods with equal terms share them, so that a thousand replicas are one term with counts by node row.
Knows nothing of what the terms are used for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

from engine.cache.podsets import Counts, Labels, SelectorIndex, Tally
from engine.pods.podterms import PodTerm
from engine.pods.selectors import NOTHING

_DIGEST = 8


class CountedTerm(Tally, Protocol):
    """A term, and how many pods on each row have it."""

    @property
    def term(self) -> PodTerm:
        """The term."""
        ...

    @property
    def identity(self) -> bytes:
        """Equal for equal terms in every process."""
        ...


class Term(Counts):
    """A term, and how many pods on each row have it; see `CountedTerm`."""

    __slots__ = ("identity", "serial", "term")

    def __init__(self, term: PodTerm, serial: int) -> None:
        super().__init__()
        self.term = term
        self.serial = serial
        self.identity = hashlib.blake2b(_text(term).encode(), digest_size=_DIGEST).digest()


class TermIndex:
    """All terms of pods on known nodes."""

    def __init__(self) -> None:
        self._terms: dict[PodTerm, Term] = {}
        self._index: SelectorIndex[Term] = SelectorIndex()
        self._serial = 0

    def change(self, terms: Iterable[PodTerm], row: int, sign: int) -> int:
        """A pod with these terms came to a row (sign 1) or went from it (sign -1).

        Returns:
            How many terms came that no pod had, or went with the last pod that had them.
        """
        before = self._serial
        for key in terms:
            term = self._terms.get(key)
            if term is None:
                self._serial += 1
                term = self._terms[key] = Term(key, self._serial)
                self._index.put(_namespaces(key), key.term.selector, term)
            term.count(row, sign)
            if not term.counts:
                self._serial += 1
                term.live = False
                del self._terms[key]
                self._index.remove(_namespaces(key), key.term.selector, term)
        return self._serial - before

    def on(self, namespace: str, namespace_labels: Labels, labels: Labels) -> list[Term]:
        """See `Topology.terms_on`."""
        if not self._terms:
            return []
        found = []
        for term in self._index.find(namespace, labels):
            about = term.term.term
            if namespace in about.namespaces or about.namespace_selector.matches(namespace_labels):
                found.append(term)
        found.sort(key=_serial)
        return found


def _serial(term: Term) -> int:
    return term.serial


def _namespaces(key: PodTerm) -> frozenset[str] | None:
    """The only namespaces it can find pods in, None if that depends on their labels."""
    return key.term.namespaces if key.term.namespace_selector == NOTHING else None


def _text(term: PodTerm) -> str:
    about = term.term
    return repr((term[:2], sorted(about.namespaces), *map(repr, about[1:])))
