"""Writes to the API server: bindings, pod conditions, patches and evictions; outcomes come back.

Nothing here decides what to write. A write whose outcome is known is never repeated, and one whose
outcome is not is asked for, not guessed: by whoever wanted it, as often as it takes. ::

    POST binding ─┬─ 2xx, 409 assigned to our node ──────────▶ BOUND
                  ├─ 409 assigned to another ────────────────▶ TAKEN
                  ├─ 404 pods "...", 409 other UID or going ─▶ GONE
                  ├─ 401, 429 ── Retry-After, until the bound ▶ PUT_OFF
                  ├─ nothing was sent ───────────────────────▶ PUT_OFF
                  ├─ 409 held by gates, other 4xx ───────────▶ REFUSED
                  └─ other 409, 5xx, no answer, broken ──────▶ UNKNOWN ──▶ GET pod
    GET pod ──────┬─ bound to our node ──────────────────────▶ BOUND
                  ├─ to another ─────────────────────────────▶ TAKEN
                  ├─ 404, other UID, being deleted ──────────▶ GONE
                  ├─ not bound ──────────────────────────────▶ PUT_OFF
                  └─ no answer ──────────────────────────────▶ UNKNOWN
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from engine.clock import stamp
from engine.framework.edge import BindOutcome
from engine.framework.effects import POD_SCHEDULED, Bind, Evict, Patch, SetUnschedulable, condition
from engine.kube import errors
from engine.kube.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Requests, segment
from engine.kube.gate import SLOW_DOWN_LEAST_SECONDS, Gate, Place, Priority, within
from engine.kube.resources import KINDS, Kind
from engine.kube.wiring import Wiring
from engine.objects import Pod
from engine.pods.podinfo import PodInfo
from engine.telemetry import Count

_LOG = logging.getLogger(__name__)

_ASSIGNED = re.compile(r'already assigned to node "?([^\s"]+)"?')
_NEVER_BOUND_AGAIN = ("Precondition failed: UID", "is being deleted")
_NO_POD = 'pods "'
_GATED = "non-empty .spec.schedulingGates"
_CREATED, _BAD_REQUEST = 201, 400
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_INVALID = 422
_MOST_DOUBLINGS = 8
"""Of the second between two tries of a condition that was not written."""

_encoder = msgspec.json.Encoder()
_pod = msgspec.json.Decoder(Pod)

Answer = tuple[BindOutcome, str]
_SLOW_DOWN_LIMIT_SECONDS: Final = 5.0
"""How long a 429 may put one binding off, all its Retry-After together."""


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"


class KubeBinder:
    """Binds pods; a `framework.edge.Binder`. `is_gone` tells by UID who was deleted meanwhile."""

    def __init__(self, gate: Gate, *, is_gone: Callable[[str], bool] = lambda _: False) -> None:
        self._gate = gate
        self._is_gone = is_gone
        self._lane = gate.lane(Priority.BINDING)

    async def bind(self, effect: Bind) -> Answer:
        """See `framework.edge.Binder.bind`."""
        path = f"{pod_path(effect.pod.namespace, effect.pod.name)}/binding"
        body = _encoder.encode(_binding(effect))
        put_off = 0.0
        while True:
            try:
                with await self._gate.place(Priority.BINDING) as place:
                    if self._is_gone(effect.pod.uid):
                        return BindOutcome.GONE, "deleted before its binding was sent"
                    answer = await place.request("POST", path, body=body)
            except (errors.Unreachable, errors.Fenced) as error:
                return BindOutcome.PUT_OFF, str(error)
            except errors.Interrupted as error:
                return BindOutcome.UNKNOWN, str(error)
            if answer.status == _CREATED:  # a 200 is of another that answers in the server's place
                return BindOutcome.BOUND, ""
            refusal = answer.error()
            # So says a server whose roles are not loaded yet, too; webhooks refuse in other words.
            nobody = refusal.code == _FORBIDDEN and "cannot create resource" in str(refusal)
            if nobody or refusal.code == _UNAUTHORIZED:
                return BindOutcome.PUT_OFF, str(refusal)
            if not isinstance(refusal, errors.TooManyRequests):
                return _refused(effect, refusal)
            wait = max(refusal.retry_after_seconds or 0.0, SLOW_DOWN_LEAST_SECONDS)
            put_off += wait
            if put_off > _SLOW_DOWN_LIMIT_SECONDS:
                return BindOutcome.PUT_OFF, str(refusal)
            # The gate keeps the next one waiting for as long as the server asked.

    async def resolve(self, effect: Bind) -> Answer:
        """See `framework.edge.Binder.resolve`."""
        path = pod_path(effect.pod.namespace, effect.pod.name)
        try:
            answer = await self._lane.request("GET", path)
            pod = answer.decoded(_pod.decode, f"pod {effect.pod.key}")
        except errors.KubeError as error:
            if isinstance(error, errors.NotFound) and error.of_object:
                return BindOutcome.GONE, "the pod is not found"
            return BindOutcome.UNKNOWN, str(error)
        if pod.metadata.uid != effect.pod.uid:
            return BindOutcome.GONE, "another pod has its name"
        if pod.node_name == effect.node:
            return BindOutcome.BOUND, ""
        if pod.node_name:
            return BindOutcome.TAKEN, f"it is bound to {pod.node_name}"
        if pod.metadata.deletion_timestamp is not None:
            return BindOutcome.GONE, "it is being deleted"
        return BindOutcome.PUT_OFF, "it is not bound"


def _refused(effect: Bind, error: errors.StatusError) -> Answer:
    """What it means that the server did not bind the pod, as far as its answer says."""
    outcome = BindOutcome.REFUSED
    if error.server_fault or error.code < _BAD_REQUEST:
        outcome = BindOutcome.UNKNOWN
    elif isinstance(error, errors.NotFound):
        # A pod that is dropped comes back with a change only: a 404 of another server, of a webhook
        # or about its namespace, which may have been removed before the pod, does not do.
        gone = error.message.startswith(_NO_POD)
        outcome = BindOutcome.GONE if gone else BindOutcome.REFUSED
    elif not isinstance(error, errors.Conflict):
        pass
    elif any(text in error.message for text in _NEVER_BOUND_AGAIN):
        outcome = BindOutcome.GONE
    elif assigned := _ASSIGNED.search(error.message):
        if assigned[1] == effect.node:
            return BindOutcome.BOUND, ""
        outcome = BindOutcome.TAKEN
    elif _GATED not in error.message:
        # So the server wraps whatever its storage says, that it had no answer in time, too.
        # Source: kubernetes pkg/registry/core/pod/storage/storage.go, assignPod.
        outcome = BindOutcome.UNKNOWN
    return outcome, str(error)


def _binding(effect: Bind) -> dict[str, Any]:
    pod = effect.pod
    metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if effect.annotations:
        metadata["annotations"] = effect.annotations
    target = {"apiVersion": "v1", "kind": "Node", "name": effect.node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


class KubePodStatusWriter:
    """Patches the condition PodScheduled, when it changes; a `framework.edge.PodStatusWriter`.

    One at a time for each pod, and the newest only. What the server may take later is written
    again: of a pod that a gate holds nobody else would say it once more. Run `run` as a task;
    `flush` before it is cancelled.
    """

    def __init__(self, gate: Gate, wiring: Wiring) -> None:
        self._gate = gate
        self._wiring = wiring
        self._waiting: dict[str, SetUnschedulable] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._resting: dict[str, SetUnschedulable] = {}
        self._tries: dict[str, int] = {}
        """How often the server failed at what rests, or waits after a rest."""
        self._withdrawn: set[str] = set()
        self._failures = 0
        self._there = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def set_unschedulable(self, effect: SetUnschedulable) -> None:
        """See `framework.edge.PodStatusWriter.set_unschedulable`."""
        uid = effect.pod.uid
        before = self._waiting.get(uid) or self._resting.pop(uid, None)
        if before is None and uid not in self._writing and effect.is_known:
            return
        self._want(uid, effect if before is None else _both(before, effect))

    async def withdraw(self, uid: str) -> None:
        """See `framework.edge.PodStatusWriter.withdraw`."""
        for each in (self._waiting, self._resting, self._tries):
            each.pop(uid, None)
        writing = self._writing.get(uid)
        if writing is not None:
            self._withdrawn.add(uid)
            await asyncio.wait({writing})

    async def run(self) -> None:
        """Writes until cancelled. Never ends for network causes."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._there.wait()
                place = await self._gate.place(Priority.CONDITION)
                uid = next((one for one in self._waiting if one not in self._writing), None)
                if uid is None:
                    place.release()
                    self._there.clear()
                    self._rest()
                    continue
                effect = self._waiting.pop(uid)
                self._writing[uid] = group.create_task(self._write(place, effect))

    async def flush(self, seconds: float) -> bool:
        """Writes what is left; False if that took longer than `seconds`."""
        return await within(seconds, self._idle, lambda: len(self._waiting), "conditions")

    def _want(self, uid: str, effect: SetUnschedulable) -> None:
        self._waiting[uid] = effect
        self._there.set()
        self._idle.clear()

    async def _write(self, place: Place, effect: SetUnschedulable) -> None:
        uid = effect.pod.uid
        tries = self._tries.pop(uid, 0)
        try:
            with place:
                await self._send(place, effect)
        except errors.KubeError as error:
            if isinstance(error, errors.NotFound) and error.of_object:
                self._failures = 0
                return
            self._failures += 1
            if self._failures == 1 and not tries:
                _LOG.warning("condition of pod %s cannot be written: %s", effect.pod.key, error)
            if _may_pass(error) and uid not in self._withdrawn:
                newer = self._waiting.get(uid)
                if newer is not None:
                    self._waiting[uid] = _both(effect, newer)
                else:
                    self._resting[uid], self._tries[uid] = effect, tries + 1
        else:
            self._failures = 0
            self._wiring.telemetry.add(Count.STATUS_PATCHES)
        finally:
            del self._writing[uid]
            self._withdrawn.discard(uid)
            if self._waiting:
                self._there.set()
            self._rest()
        if uid in self._resting:
            seconds = 2.0 ** min(tries, _MOST_DOUBLINGS) * (1.0 + self._wiring.random.random())
            await self._wiring.reach.rest(self._wiring.sleep, seconds)
            if self._resting.get(uid) is effect:
                self._want(uid, self._resting.pop(uid))

    def _rest(self) -> None:
        if not self._waiting and not self._writing:
            self._idle.set()

    async def _send(self, place: Place, effect: SetUnschedulable) -> None:
        pod = effect.pod
        known = condition(pod, POD_SCHEDULED)
        changed = known is None or known.status != "False"
        at = self._wiring.clock.time() if changed else None
        said = []
        if effect.reason:
            said = [_said(pod, POD_SCHEDULED, "False", effect.reason, effect.message, at)]
        await _patch_status(place, pod, said, effect.nominated)


def _may_pass(error: errors.KubeError) -> bool:
    """Whether the server may take the same condition later."""
    if isinstance(error, errors.StatusError):
        # An API server that has just begun does not know its roles yet, and answers 403.
        return error.may_pass or error.code == _FORBIDDEN
    return not isinstance(error, errors.Fenced)


def _both(earlier: SetUnschedulable, later: SetUnschedulable) -> SetUnschedulable:
    """One write for two: what the later one leaves as it is, is as the earlier one wanted it."""
    said = later if later.reason else earlier
    nominated = earlier.nominated if later.nominated is None else later.nominated
    return SetUnschedulable(later.pod, said.reason, said.message, nominated)


def _said(
    pod: PodInfo, kind: str, status: str, reason: str, message: str, changed_at: float | None
) -> dict[str, Any]:
    """A condition on the wire; its time of transition only if the status changes."""
    condition: dict[str, Any] = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": pod.pod.metadata.generation,
    }
    if changed_at is not None:
        condition["lastTransitionTime"] = stamp(changed_at)
    return condition


async def _patch_status(
    client: Requests,
    pod: PodInfo,
    conditions: list[dict[str, Any]],
    nominated: str | None = None,
) -> None:
    """The UID makes the server refuse the patch of another pod with this name, in words of its own.

    Raises:
        NotFound: the pod is gone.
        KubeError: it was not patched, or that is not known.
    """
    status: dict[str, Any] = {"conditions": conditions}
    if nominated is not None:
        status["nominatedNodeName"] = nominated or None
    answer = await client.request(
        "PATCH",
        f"{pod_path(pod.namespace, pod.name)}/status",
        body=_encoder.encode({"metadata": {"uid": pod.uid}, "status": status}),
        content_type=STRATEGIC_MERGE_PATCH,
    )
    try:
        answer.checked()
    except errors.StatusError as error:
        if error.code == _INVALID and "metadata.uid" in error.message:
            raise errors.NotFound(error.code, error.reason, "another pod has its name") from error
        raise


class KubeEffectWriter:
    """Patches and evictions; a `framework.edge.EffectWriter`. Never raises for network causes."""

    def __init__(self, gate: Gate, wiring: Wiring, kinds: Iterable[Kind] = KINDS) -> None:
        own = {"Pod": "/api/v1/pods", "Node": "/api/v1/nodes"}
        self._collections = {kind.name: kind.path for kind in kinds} | own
        self._patches = gate.lane(Priority.BINDING)
        self._evictions = gate.lane(Priority.EVICTION)
        self._wiring = wiring

    async def patch(self, effect: Patch) -> str:
        """See `framework.edge.EffectWriter.patch`."""
        try:
            path, body = self._path_of(effect), _encoder.encode(effect.body)
        except (LookupError, TypeError, ValueError) as wrong:
            return f"a plugin's patch of {effect.kind} cannot be written: {wrong!r}"
        try:
            answer = await self._patches.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            answer.checked()
        except errors.KubeError as error:
            return str(error)
        return ""

    async def evict(self, effect: Evict) -> str:
        """See `framework.edge.EffectWriter.evict`."""
        pod = effect.pod
        told = _said(
            pod,
            "DisruptionTarget",
            "True",
            "PreemptionByScheduler",
            effect.message,
            self._wiring.clock.time(),
        )
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
        path = pod_path(pod.namespace, pod.name)
        try:
            await _patch_status(self._evictions, pod, [told])
            body = _encoder.encode(options)
            (await self._evictions.request("DELETE", path, body=body)).checked()
        except errors.KubeError as error:
            another = isinstance(error, errors.Conflict) and "UID" in error.message  # has its name
            is_gone = another or (isinstance(error, errors.NotFound) and error.of_object)
            return "" if is_gone else str(error)
        self._wiring.telemetry.add(Count.PODS_EVICTED)
        return ""

    def _path_of(self, effect: Patch) -> str:
        collection = self._collections[effect.kind]
        if effect.namespace:
            group, _, plural = collection.rpartition("/")
            collection = f"{group}/namespaces/{segment(effect.namespace)}/{plural}"
        return f"{collection}/{segment(effect.name)}"
