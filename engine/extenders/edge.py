"""What extenders need of the API server: whole objects, and bindings that one of them makes.

    bind ─┬─ an extender's: answered well ──▶ BOUND
          │     └─ anything else ──▶ GET pod ─┬─ bound ──────▶ as the binding says
          │                                   └─ not bound ──▶ REFUSED, or ours if it is ignorable
          └─ nobody's ──▶ ours

Source: kubernetes pkg/scheduler schedule_one.go, extendersBinding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from engine.extenders import messages
from engine.extenders.client import ExtenderError, Extenders
from engine.extenders.messages import Whole
from engine.framework.edge import Binder, BindOutcome
from engine.framework.effects import Bind
from engine.kube.errors import KubeError, NotFound
from engine.kube.reflector import Handler
from engine.kube.resources import Resource
from engine.kube.session import KubeClient
from engine.kube.writer import pod_path
from engine.objects import Identity, PodSpec
from engine.pods.podinfo import PodInfo

log = logging.getLogger(__name__)

NODES = Resource(Whole, "/api/v1/nodes")
"""Watched where an extender is sent whole nodes."""
_encode = msgspec.json.Encoder().encode
_spec = msgspec.json.Decoder(PodSpec)


class WholeObjects(Handler[Whole]):
    """Pods and nodes as the server has them; as a handler it is told of nodes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.nodes: dict[str, bytes] = {}
        """By name; none where no extender is sent them."""

    async def pod(self, pod: PodInfo) -> bytes | None:
        """The pod's JSON; None: it is gone, or on a node.

        Raises:
            LookupError: the server cannot be asked; the message says why.
        """
        try:
            answer = await self._client.request("GET", pod_path(pod.namespace, pod.name))
            found, body = messages.whole(answer.checked().body)
            node = _spec.decode(found.spec).node_name
        except (KubeError, msgspec.DecodeError) as error:
            if isinstance(error, NotFound) and error.of_object:
                return None
            raise LookupError(f"the pod cannot be read for extenders: {error}") from error
        return None if found.metadata.uid != pod.uid or node else body

    # ---- reflector.Handler

    def on_add(self, node: Whole) -> None:
        """See `reflector.Handler`."""
        self.nodes[node.metadata.name] = _encode(node)

    def on_delete(self, node: Whole) -> None:
        """See `reflector.Handler`."""
        self.nodes.pop(node.metadata.name, None)

    def on_unreadable(self, meta: Identity, reason: str) -> None:
        """See `reflector.Handler`."""
        log.error('Node cannot be sent to extenders node="%s" reason="%s"', meta.name, reason)


@dataclass(frozen=True, slots=True)
class ExtenderBinder:
    """A `framework.edge.Binder`: an extender's pods are bound by it, all others by ours.

    `may_write` is the fence of a leader, which an extender knows nothing of.
    """

    extenders: Extenders
    ours: Binder
    may_write: Callable[[], bool]

    async def bind(self, effect: Bind) -> tuple[BindOutcome, str]:
        """See `Binder.bind`."""
        one = self.extenders.binder_of(effect.pod)
        if one is None:
            return await self.ours.bind(effect)
        verb, body = one.document.bind_verb, messages.to_bind(effect.pod, effect.node)
        try:
            await one.ask(verb, body, messages.done, may_leave=self.may_write)
        except ExtenderError as error:
            # It may have bound the pod all the same.
            outcome, why = await self.ours.resolve(effect)
            if outcome is not BindOutcome.PUT_OFF:
                return outcome, f"{error}; {why}"
            if one.document.ignorable:
                log.warning("%s; it is ignorable and was skipped", error)
                return await self.ours.bind(effect)
            return outcome, str(error)
        return BindOutcome.BOUND, ""

    async def resolve(self, effect: Bind) -> tuple[BindOutcome, str]:
        """See `Binder.resolve`."""
        return await self.ours.resolve(effect)
