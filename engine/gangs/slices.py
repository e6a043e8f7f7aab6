"""Long work of a gang's turn in slices, and what of the cluster is otherwise while one is at work.

Between two slices the cluster is as it is: watches are followed, and nobody sees what is only
thought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from engine.cache import Cache
from engine.clock import Clock
from engine.collective.packing import Found, Steps
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Waiting

SLICE_SECONDS: Final = 0.002


class OutdatedError(Exception):
    """What the work began with is no longer so."""


def in_slices(
    steps: Steps[Found],
    clock: Clock,
    *thought: AbstractContextManager[None],
    holds: Callable[[], bool] = lambda: True,
) -> Steps[Found]:
    """Does the steps within contexts, which it leaves after each slice.

    Raises:
        OutdatedError: `holds` says so after a pause.
    """
    while True:
        until = clock.monotonic() + SLICE_SECONDS
        with ExitStack() as stack:
            for one in thought:
                stack.enter_context(one)
            try:
                while clock.monotonic() < until:
                    next(steps)
            except StopIteration as end:
                found: Found = end.value
                return found
        yield
        if not holds():
            raise OutdatedError


class Absent:
    """Pods on nodes that are thought away, within its context only."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._uids: dict[str, None] = {}
        self._away: list[tuple[PodInfo, str, Waiting | None]] = []

    def __enter__(self) -> None:
        """They leave their nodes, those that are there still."""
        for uid in self._uids:
            self._leave(uid)

    def __exit__(self, *_: object) -> None:
        """They are where they were."""
        for pod, node, waiting in reversed(self._away):
            if waiting is None:
                self._cache.add_pod(pod, node)
            else:
                self._cache.assume(waiting.pod, node, waiting.since)
                self._cache.wait(waiting)
        self._away.clear()

    def send(self, uid: str) -> None:
        """This one, too, from now on."""
        self._uids[uid] = None
        self._leave(uid)

    def recall(self) -> None:
        """Nobody any longer."""
        self.__exit__()
        self._uids.clear()

    def _leave(self, uid: str) -> None:
        row, waiting = self._cache.pod_row(uid), self._cache.waiting.get(uid)
        if row < 0 or (waiting is None and self._cache.is_assumed(uid)):
            return
        self._away.append((self._cache.pods.pod(row), self._cache.node_of(uid) or "", waiting))
        if waiting is None:
            self._cache.remove_pod(uid)
        else:
            self._cache.forget(uid)


class Unpromised:
    """Pods that are promised no node, within its context only: it is in the others' way."""

    def __init__(self, cache: Cache, pods: Sequence[PodInfo]) -> None:
        self._cache = cache
        self._pods = pods
        self._promised: list[tuple[PodInfo, str]] = []

    def __enter__(self) -> None:
        """What each is promised now is taken back."""
        each = [(pod, self._cache.promised(pod.uid)) for pod in self._pods]
        self._promised = [one for one in each if one[1]]
        for pod, _ in self._promised:
            self._cache.withdraw(pod.uid)

    def __exit__(self, *_: object) -> None:
        """And promised again."""
        for pod, node in self._promised:
            self._cache.nominate(pod, node)
