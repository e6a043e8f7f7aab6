"""Long work of a gang's turn in slices, and what of the cluster is otherwise while one is at work.

Between two slices the cluster is as it is: watches are followed, and nobody sees what is only
thought.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Final

from engine.cache import Cache
from engine.clock import Clock
from engine.collective.packing import Found, Steps

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

    A slice is two milliseconds, or as long as entering took where that is more: to think a
    thousand pods away takes longer, and what does no step in a slice never ends.

    Raises:
        OutdatedError: `holds` says so after a pause.
    """
    while True:
        began = clock.monotonic()
        with ExitStack() as stack:
            for one in thought:
                stack.enter_context(one)
            entered = clock.monotonic()
            until = entered + max(SLICE_SECONDS, entered - began)
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
        self._back: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        """They leave, those that are there still."""
        for uid in self._uids:
            self._leave(uid)

    def __exit__(self, *_: object) -> None:
        """They are where they were."""
        while self._back:
            self._back.pop()()

    def send(self, uid: str) -> None:
        """This one, too, from now on."""
        self._uids[uid] = None
        self._leave(uid)

    def recall(self) -> None:
        """Nobody any longer."""
        self.__exit__()
        self._uids.clear()

    def _leave(self, uid: str) -> None:
        cache, back, row = self._cache, self._back, self._cache.pods.row(uid)
        if row < 0:
            return
        pod, node, waiting = cache.pods.pod(row), cache.node_of(uid) or "", cache.waiting.get(uid)
        if waiting is not None:
            back.append(partial(cache.wait, waiting))
        if cache.is_assumed(uid):
            back.append(partial(cache.assume, pod, node, pod.assumed_at))
            cache.forget(uid)
        else:
            back.append(partial(cache.add_pod, pod, node))
            cache.remove_pod(uid)
