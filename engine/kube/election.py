"""Who of several replicas writes: one holds a Lease, the others wait until it runs out.

::

    FOLLOWING ── no lease, released, or run out: written as ours ──▶ LEADING
                                                                      │  │
    the process ends ◀── LeaseLost: not renewed in time, or taken ────┘  └── release ──▶ nobody's

The rules are client-go's: a lease runs out on the local clock, so long after its record was last
seen to change, and clocks of different hosts are never compared. Three are stricter. The fence,
which is asked before every write, shuts when the renewal is overdue, counted from before the last
good one was sent, whether or not anybody has noticed; and after that nothing is renewed any more.
Whoever was seen to hold the lease keeps its time where somebody deletes the lease, empties or
shortens it by hand: it writes on until it finds out. A follower also watches the lease, so it takes
over at once what is released.

Source: client-go tools/leaderelection, k8s.io/api coordination/v1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.clock import stamp
from engine.configuration.forms import seconds
from engine.configuration.scheduler import LeaderElection
from engine.kube.client import KubeClient, segment
from engine.kube.errors import Conflict, KubeError, LeaseLost, NotFound
from engine.kube.gate import Gate, Priority
from engine.kube.reflector import Handler, Reflector
from engine.kube.resources import Resource
from engine.kube.wiring import Wiring
from engine.objects import ObjectMeta
from engine.tasks import first

_LOG = logging.getLogger(__name__)

_JITTER: Final = 1.2
_LATE: Final = "no answer in time"
_HELD_NO_MORE: Final = 1
"""The duration of a lease that was given up; the API server takes no 0."""

Object = dict[str, Any]
Spec = dict[str, Any]


class Lease(msgspec.Struct, frozen=True):
    """`coordination.k8s.io/v1 Lease`."""

    metadata: ObjectMeta
    spec: Spec = {}


_object = msgspec.json.Decoder(Object)


class Elector(Handler[Lease]):
    """This replica in the election, or one that leads unasked because there is none.

    `leading` is set once the lease is ours; `may_write` is the fence of the gate. Also the handler
    of a reflector that watches the lease.
    """

    def __init__(
        self, client: KubeClient, election: LeaderElection, me: str, wiring: Wiring
    ) -> None:
        self.election = election
        self.gate = Gate(client, wiring, may_write=self.may_write)
        self._until = float("-inf") if election.leader_elect else float("inf")
        self._wiring = wiring
        self._name = election.resource_name
        self._namespace = election.resource_namespace
        self._lease_seconds = int(seconds(election.lease_duration))
        self._renew_seconds = seconds(election.renew_deadline)
        self._retry_seconds = seconds(election.retry_period)
        self._lane = self.gate.lane(Priority.LEASE)
        self._me = me
        self._mine: Object | None = None
        self._seen: Spec = {}
        self._taken_until = float("-inf")
        self._changed = asyncio.Event()
        self._said = ""
        self._running: list[asyncio.Task[None]] = []
        self.leading = asyncio.Event()
        if not election.leader_elect:
            self.leading.set()
        namespace, field = segment(self._namespace), f"metadata.name={self._name}"
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._all}/{segment(self._name)}"
        resource = Resource(Lease, self._all, field_selector=field, optional=True)
        self._reflector = Reflector(client, resource, self, wiring)

    def may_write(self) -> bool:
        """Whether the lease is surely ours, by the monotonic clock."""
        return self._left > 0.0

    @property
    def _left(self) -> float:
        """For how many seconds we may write yet."""
        return self._until - self._wiring.clock.monotonic()

    @property
    def title(self) -> str:
        """The lease, for messages."""
        return f"{self._namespace}/{self._name}"

    @property
    def holder(self) -> str:
        """Who was last seen to lead, empty if nobody."""
        return str(self._seen.get("holderIdentity") or "")

    @property
    def overdue_seconds(self) -> float:
        """For how long we lead without the right to write; 0 while all is well."""
        return max(0.0, -self._left) if self.leading.is_set() else 0.0

    def start(self, start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        """Stands for election."""
        if self.election.leader_elect:
            self._running = [start(self.run()), start(self._reflector.run())]

    async def hurry(self, stop: asyncio.Event) -> None:
        """Once we are to stop, bindings that are not on their way yet are left to a successor."""
        await stop.wait()
        if self.election.leader_elect:
            self.gate.turn_away()

    async def resign(self) -> None:
        """No longer stands for election and gives up what we hold, once all is written."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
            await self.release()

    async def run(self) -> None:
        """Waits for the lease, then keeps it.

        Raises:
            LeaseLost: it was ours and is, or may be, no longer.
        """
        _LOG.info(
            'Attempting to acquire leader lease lease="%s" identity="%s"', self.title, self._me
        )
        # What came too late to be ours for sure is renewed first.
        while not (await self._attempt() and self.may_write()):
            await self._until_worth_trying()
        _LOG.info('Successfully acquired lease lease="%s" identity="%s"', self.title, self._me)
        self.leading.set()
        for watching in self._running[1:]:
            watching.cancel()  # it told of others; what is ours we know better than a watch
        while True:
            pause = min(self._retry_seconds, max(0.0, self._left))
            await self._wiring.reach.rest(self._wiring.sleep, pause)
            if not self.may_write():
                why = f": {self._said}" if self._said else ""
                raise LeaseLost(
                    f"lease {self.title} was not renewed for {self._renew_seconds:g} s{why}"
                )
            await self._attempt()

    async def release(self) -> None:
        """Gives the lease up if it is ours, so that another replica need not wait for its end."""
        self._until = float("-inf")
        self.gate.retire()
        mine, self._mine = self._mine, None
        if mine is None:
            return
        try:
            async with asyncio.timeout(self._retry_seconds):
                await self._give_up(mine)
        except (KubeError, TimeoutError) as error:
            _LOG.warning("lease %s was not released: %s", self.title, str(error) or _LATE)
        else:
            _LOG.info('Released lease="%s"', self.title)

    # ---- as a handler of what is watched -----------------------------------------------------

    def on_add(self, lease: Lease) -> None:
        """The lease is there, or changed."""
        if not self.leading.is_set():
            self._observe(lease.spec)

    def on_delete(self, lease: Lease) -> None:
        """The lease is gone."""
        self.on_add(replace(lease, spec={}))

    # ---- inside ------------------------------------------------------------------------------

    def _observe(self, spec: Spec) -> None:
        if spec == self._seen:
            return
        before, self._seen = self.holder, spec
        lasts = int(spec.get("leaseDurationSeconds") or 0)
        now = self._wiring.clock.monotonic()
        if self.holder not in ("", self._me):
            self._taken_until = now + max(lasts, self._lease_seconds)
        elif lasts == _HELD_NO_MORE:
            self._taken_until = float("-inf")
        else:
            self._taken_until = min(self._taken_until, now + self._lease_seconds)
        if self.holder not in ("", before, self._me):
            _LOG.info('Another replica leads lease="%s" holder="%s"', self.title, self.holder)
        self._changed.set()

    @property
    def _taken_for(self) -> float:
        """For how many seconds the lease may be another's yet; 0 if it may be taken."""
        return max(0.0, self._taken_until - self._wiring.clock.monotonic())

    async def _until_worth_trying(self) -> None:
        """Until the lease runs out or changes hands, and no longer than until the next look."""
        pause = self._retry_seconds * (1.0 + _JITTER * self._wiring.random.random())
        if self._taken_for:
            pause = min(pause, self._taken_for)
        self._changed.clear()
        await first(self._changed.wait(), self._wiring.sleep(pause))

    async def _attempt(self) -> bool:
        """Takes or renews the lease; False if it is another's, or nobody knows.

        Raises:
            LeaseLost: it was ours and is another's.
        """
        limit = self._left if self.leading.is_set() else None
        began = self._wiring.clock.monotonic()
        try:
            async with asyncio.timeout(limit):
                mine = await self._take()
        except (KubeError, TimeoutError) as error:
            if isinstance(error, Conflict) and limit is None:
                return False  # another replica was quicker, as where several start together
            # A try that is cut short by the end of our time says nothing new.
            text = str(error) or self._said or _LATE
            if text != self._said:
                _LOG.warning("lease %s: %s", self.title, text)
            self._said = text
            return False
        self._said = ""
        if mine is not None:
            # It is ours, for others at least as long as counted from when we began to ask.
            self._mine, self._seen = mine, mine.get("spec") or {}
            self._until = began + self._renew_seconds
        return mine is not None

    async def _take(self) -> Object | None:
        """The lease once it is ours; None: it is another's."""
        if self._mine is not None:
            try:
                return await self._asked("PUT", self._path, self._ours(self._mine))
            except (Conflict, NotFound):
                pass  # somebody else wrote it: look
        try:
            found = await self._asked("GET", self._path)
        except NotFound:
            if self._taken_for:
                return None
            made = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
            }
            return await self._asked("POST", self._all, self._ours(made))
        self._observe(found.get("spec") or {})
        if self._taken_for:
            if self.leading.is_set():
                raise LeaseLost(f"lease {self.title} was taken by {self.holder}")
            return None
        return await self._asked("PUT", self._path, self._ours(found))

    async def _asked(self, method: str, path: str, lease: Object | None = None) -> Object:
        """The lease as the server has it then.

        Raises:
            KubeError: it is not there, is another one, or is not known.
        """
        body = None if lease is None else msgspec.json.encode(lease)
        # Half: one that hangs leaves time for another on a new connection.
        answer = await self._lane.request(
            method, path, body=body, timeout_seconds=self._renew_seconds / 2
        )
        return answer.decoded(_object.decode, "the lease is not JSON")

    def _ours(self, lease: Object) -> Object:
        """The lease with us as its holder, as of now."""
        spec: Spec = lease.get("spec") or {}
        now = stamp(self._wiring.clock.time(), micro=True)
        mine: Spec = {
            "holderIdentity": self._me,
            "leaseDurationSeconds": self._lease_seconds,
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self._me:
            mine["acquireTime"] = now
            mine["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(spec)
        return {**lease, "spec": {**spec, **mine}}

    async def _give_up(self, mine: Object) -> None:
        try:
            await self._asked("PUT", self._path, self._nobodys(mine))
        except Conflict:
            # A renewal that was cut short may have been carried out.
            found = await self._asked("GET", self._path)
            if (found.get("spec") or {}).get("holderIdentity") == self._me:
                await self._asked("PUT", self._path, self._nobodys(found))

    def _nobodys(self, lease: Object) -> Object:
        now = stamp(self._wiring.clock.time(), micro=True)
        spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
        times = {"acquireTime": now, "renewTime": now, "leaseDurationSeconds": _HELD_NO_MORE}
        return {**lease, "spec": {**spec, **times}}
