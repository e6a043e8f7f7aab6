"""The frameworks of a process, one a profile: which of them is asked about a pod.

They share the queue, and with it the plugin that sorts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.framework.events import ClusterEventWithHint, HintFn, QueueingHint, Seen, never
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo


class Frameworks:
    """What the queue asks of a `Framework`, asked of that of the pod's profile."""

    def __init__(self, frameworks: Sequence[Framework]) -> None:
        """At least one, each of another scheduler name, all with the same bundle."""
        self._first = frameworks[0]
        self._by_name = {one.profile.scheduler_name: one for one in frameworks}
        self.sorter, self.sort_key = self._first.sorter, self._first.sort_key
        """The plugin that sorts the queue, and the keys by which it does."""
        self.gates_volatile = any(one.gates_volatile for one in frameworks)
        """Whether PreEnqueue looks at more than the pod."""
        self.keys_volatile = any(one.keys_volatile for one in frameworks)
        """Whether `class_key` looks at more than the pod."""
        self.gangs = frozenset[str]().union(*[one.gangs for one in frameworks])
        """The plugins that know gangs."""

    def __iter__(self) -> Iterator[Framework]:
        """In the order of the profiles."""
        return iter(self._by_name.values())

    def of(self, pod: PodInfo) -> Framework:
        """The one that decides for the pod: by name, the first for a pod that names none."""
        return self._by_name.get(pod.pod.spec.scheduler_name, self._first)

    def hints(self) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """See `Framework.hints`; each speaks for the pods of its profile alone."""
        if len(self._by_name) == 1:
            return self._first.hints()
        found: dict[str, list[ClusterEventWithHint]] = {}
        for framework in self:
            for plugin, registered in framework.hints().items():
                found.setdefault(plugin, []).extend(
                    replace(one, hint=self._only(framework, one.hint)) for one in registered
                )
        return found

    def _only(self, framework: Framework, hint: HintFn | None) -> HintFn:
        if hint is never:
            return never

        def ask(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
            if self.of(pod) is not framework:
                return QueueingHint.SKIP
            return QueueingHint.QUEUE if hint is None else hint(pod, before, after, snapshot)

        return ask
