"""All extenders in their order: a pod and nodes in, an `Opinion` out. Decides nothing.

One that may not fail and does ends the cycle; one that may (`ignorable`) is passed over. Scores of
one that fails are left out, whichever it is.

Source: kubernetes pkg/scheduler schedule_one.go: findNodesThatPassExtenders, prioritizeNodes;
framework/preemption, callExtenders; extender.go, IsInterested.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from engine.extenders import messages
from engine.extenders.client import Client, ExtenderError
from engine.extenders.messages import Victims
from engine.extendersections import ExtenderDocument
from engine.framework.opinion import Opinion, Scored
from engine.pods.podinfo import PodInfo

log = logging.getLogger(__name__)


class Extender:
    """One of them."""

    def __init__(self, document: ExtenderDocument) -> None:
        """Reads its certificates.

        Raises:
            ConfigError: they cannot be used.
        """
        self.document = document
        self.client = Client(document)
        self._managed = frozenset(one.name for one in document.managed_resources)

    def wants(self, pod: PodInfo) -> bool:
        """Whether it is asked about the pod: all pods, or those with a resource that it manages."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            asked = container.resources
            for amounts in () if asked is None else (asked.requests, asked.limits):
                if amounts and not self._managed.isdisjoint(amounts):
                    return True
        return False

    async def filter(
        self, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> messages.Filtered:
        """The nodes that it leaves.

        Raises:
            ExtenderError: it does not say.
        """
        by_name = self.document.node_cache_capable
        return await self.client.ask(
            self.document.filter_verb,
            messages.about(pod, names, None if by_name else nodes),
            lambda body: messages.filtered(body, names, by_name=by_name),
        )

    async def score(self, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]) -> Scored:
        """What it gives the nodes; nothing if it does not say."""
        document = self.document
        scores: dict[str, int] = {}
        try:
            scores = await self.client.ask(
                document.prioritize_verb,
                messages.about(pod, names, None if document.node_cache_capable else nodes),
                lambda body: messages.scored(body, names, document.weight),
            )
        except ExtenderError as error:
            log.warning("%s; it gives no score", error)
        return Scored(self.client.url, document.weight, scores)

    async def agree(self, pod: bytes, victims: Victims) -> dict[str, list[str]]:
        """The nodes that it leaves, and the victims there.

        Raises:
            ExtenderError: it does not say.
        """
        document = self.document
        return await self.client.ask(
            document.preempt_verb,
            messages.about_victims(pod, victims, by_uid=document.node_cache_capable),
            lambda body: messages.agreed(body, victims),
        )


class Extenders:
    """All extenders of a process."""

    def __init__(self, documents: Sequence[ExtenderDocument]) -> None:
        """In the order in which they are called.

        Raises:
            ConfigError: certificates of one cannot be used.
        """
        self._all = [Extender(one) for one in documents]
        self._deciding = [
            one
            for one in self._all
            if one.document.filter_verb or one.document.prioritize_verb or one.document.preempt_verb
        ]
        self.whole_nodes = any(
            not one.document.node_cache_capable
            and (one.document.filter_verb or one.document.prioritize_verb)
            for one in self._all
        )
        """Whether any is sent nodes as the server has them."""
        self.bind = any(one.document.bind_verb for one in self._all)
        """Whether any binds pods."""

    def concern(self, pod: PodInfo) -> bool:
        """Whether any has a say in where the pod goes."""
        return any(one.wants(pod) for one in self._deciding)

    def binder_of(self, pod: PodInfo) -> Extender | None:
        """Who binds the pod in our place."""
        return next((one for one in self._all if one.document.bind_verb and one.wants(pod)), None)

    def preempts(self, pod: PodInfo) -> bool:
        """Whether any is asked whom to evict for the pod."""
        return any(one.document.preempt_verb and one.wants(pod) for one in self._deciding)

    async def ask(
        self, pod: PodInfo, whole: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> Opinion:
        """Filters one after the other, then scores all at once, if more than one node is left."""
        asked = [one for one in self._deciding if one.wants(pod)]
        left, failed, unresolvable = list(names), dict[str, str](), dict[str, str]()
        for one in asked:
            if not one.document.filter_verb or not left:
                continue
            try:
                found = await one.filter(whole, left, nodes)
            except ExtenderError as error:
                if not one.document.ignorable:
                    return Opinion(asked=list(names), error=str(error))
                log.warning("%s; it is ignorable, and passed over", error)
                continue
            left = found.names
            failed.update(found.failed)
            unresolvable.update(found.unresolvable)
        scores: Sequence[Scored] = ()
        if len(left) > 1:
            scoring = [one for one in asked if one.document.prioritize_verb]
            each = (one.score(whole, left, nodes) for one in scoring)
            scores = await asyncio.gather(*each)
        return Opinion(
            asked=list(names),
            passed=left,
            failed=failed,
            unresolvable=unresolvable,
            scores=list(scores),
        )

    async def agree(
        self, pod: PodInfo, whole: bytes, victims: Victims
    ) -> tuple[dict[str, list[str]], str]:
        """What all leave of the nodes to evict pods from, or why one that may not fail did."""
        left = dict(victims)
        for one in self._deciding:
            if not (left and one.document.preempt_verb and one.wants(pod)):
                continue
            try:
                found = await one.agree(whole, left)
                for node in [node for node, uids in found.items() if not uids]:
                    if not one.document.ignorable:
                        why = f"extender {one.client.url}: it names no victim on node {node}"
                        return {}, why
                    del found[node]
            except ExtenderError as error:
                if not one.document.ignorable:
                    return {}, str(error)
                log.warning("%s; it is ignorable, and passed over", error)
                continue
            left = {
                node: ([pod for pod in left[node][0] if pod.uid in uids], left[node][1])
                for node, uids in found.items()
            }
        return {node: [one.uid for one in pods] for node, (pods, _) in left.items()}, ""

    def close(self) -> None:
        """Closes all connections."""
        for one in self._all:
            one.client.close()
