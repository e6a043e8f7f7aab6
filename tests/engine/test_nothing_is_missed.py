"""Whatever happened, a scheduler that starts now finds nobody to bind whom the running one left.

Who waits is not tried again before something may have helped: what a hint, or a change without an
event, leaves out shows here.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from engine.evictions import going
from engine.framework.events import Resource
from engine.objects import Namespace, Pod, from_builtins
from engine.objects.workloads import ElasticQuota
from engine.simulate.lab import Lab
from tests.builders import make_node, pod_object
from tests.effort import examples
from tests.engine.policy.builders import chain
from tests.engine.test_scheduler import BOUND, GONE, TAKEN, FakeEdge, World

GANGS = (
    "gang: by pod.label[job] min 3 wait 4s",
    "gang: by pod.label[job] min 3 wait 4s backoff 1s reject above 40% missing within zone",
    "score: 50",
)
QUOTAS = (
    "quota: by pod.namespace elastic reclaim it.priority",
    "quota: by pod.namespace min cpu 2 max cpu 5 elastic",
    "quota: by pod.namespace max cpu 5",
    "score: 50",
)
OTHERS = (
    "filter: count(zone.pods where it.label[app] == pod.label[app]) < 4",
    "filter: pod.label app=a -> any(zone.pods where it.label app=b)",
    "gate: count(cluster.pods where it.label[app] == pod.label[app]) < 4",
    "prefilter: count(nodes where node.cpu.free >= pod.cpu) >= 2",
    "reserve: count(zone.pods) < 7",
    "permit: pod.label app=a -> wait 5s until count(node.pods) > 2, then allow",
    "bind: pod.label app=b -> dry run",
    "preempt: victims where it.priority < pod.priority order it.name limit 2",
    "preempt: victims where it.label app=a and it.priority <= pod.priority limit 1",
    "preempt: victims where it.quota.over_min limit 1",
    "preempt: pod.label app=b and namespace.label[calm] is missing -> never",
    "filter: count(node.pods where it.namespace.label[calm] is present) < 2",
    "spread: over zone skew 2 hard peers by pod.label[app]",
)
replaced = msgspec.structs.replace


class Server(FakeEdge):
    """Does what it is asked for; the watch tells of it a little later."""

    def __init__(self, pods: dict[str, Pod]) -> None:
        super().__init__()
        self.pods = pods
        self.dying: list[str] = []
        """Being deleted, each by who evicted it."""
        self.told: deque[tuple[Pod, Pod | None]] = deque()

    def change(self, uid: str, **parts: Any) -> None:
        old = self.pods[uid]
        self.pods[uid] = replaced(old, **parts)
        self.told.append((old, self.pods[uid]))

    def delete(self, uid: str) -> None:
        if uid in self.pods:
            self.told.append((self.pods.pop(uid), None))

    async def bind(self, effect: Any) -> Any:
        await asyncio.sleep(0)
        pod = self.pods.get(effect.pod.uid)
        if pod is None or pod.node_name:
            return GONE if pod is None else TAKEN
        self.change(effect.pod.uid, spec=replaced(pod.spec, node_name=effect.node))
        self.binds.append((effect.pod.name, effect.node))
        return BOUND

    async def evict(self, effect: Any) -> str:
        await asyncio.sleep(0)
        self.evictions.append(effect.pod.name)
        pod = self.pods.get(effect.pod.uid)
        if pod is not None:
            gone = going(pod, effect.message, 0.0)
            self.change(effect.pod.uid, metadata=gone.metadata, status=gone.status)
            self.dying.append(effect.pod.uid)
        return ""

    def set_unschedulable(self, effect: Any) -> None:
        pod = self.pods.get(effect.pod.uid)
        if pod is not None and effect.nominated is not None:
            status = replaced(pod.status, nominated_node_name=effect.nominated)
            self.change(effect.pod.uid, status=status)


class Cluster:
    """Objects that outlive a scheduler, and the one that runs."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes: dict[str, Any] = {}
        self.quotas: dict[str, ElasticQuota] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.pods: dict[str, Pod] = {}
        self.number = 0
        self.rules = self.some_rules()
        self.world = self.scheduler(None)

    def some_rules(self) -> dict[str, str]:
        lines = [self.chance.choice(each) for each in (GANGS, QUOTAS)]
        lines += self.chance.sample(OTHERS, self.chance.randint(0, 3))
        return {f"p{number}.policy": f"{line}\n" for number, line in enumerate(lines)}

    def scheduler(self, clock: Any) -> World:
        made = World(nodes=(), rules=chain(self.rules), edge=Server(self.pods), clock=clock)
        made.quotas = made.handlers.of(Resource.ELASTIC_QUOTA)
        made.add(self.nodes.values())
        for quota in self.quotas.values():
            made.quotas.on_add(quota)
        for namespace in self.namespaces.values():
            made.handlers.namespaces.on_add(namespace)
        made.add(self.pods.values())
        return made

    async def settle(self, world: World, seconds: int) -> None:
        for _ in range(seconds):
            world.clock.advance(1.0)
            await self.turn(world)

    async def turn(self, world: World) -> None:
        for _ in range(8):
            if world.edge.dying and self.chance.random() < 0.3:
                world.edge.delete(world.edge.dying.pop())
            while world.edge.told:
                old, new = world.edge.told.popleft()
                pods = world.handlers.pods
                pods.on_delete(old) if new is None else pods.on_update(old, new)
            await Lab.turn(world)

    # ---- what happens

    def pod(self, name: str, **labels: str) -> None:
        labels = {"app": self.chance.choice("abc"), **labels}
        made = pod_object(
            name,
            namespace=self.chance.choice(("x", "y")),
            cpu=self.chance.choice(("500m", "1", "2", "3")),
            priority=self.chance.choice((0, 0, 10)),
            labels=labels,
        )
        self.pods[made.metadata.uid] = made
        self.world.handlers.pods.on_add(made)

    def pods_come(self) -> None:
        self.number += 1
        if self.chance.random() < 0.3:
            for member in range(3):
                self.pod(f"g{self.number}-{member}", job=f"g{self.number}")
        else:
            self.pod(f"p{self.number}")

    def pod_goes(self) -> None:
        if self.pods:
            self.world.edge.delete(self.chance.choice(sorted(self.pods)))

    def namespace_changes(self) -> None:
        name, labels = self.chance.choice("xy"), {"calm": self.chance.choice(("yes", None))}
        body = {"metadata": {"name": name, "labels": {k: v for k, v in labels.items() if v}}}
        new, old = from_builtins(Namespace, body), self.namespaces.get(name)
        self.namespaces[name] = new
        namespaces = self.world.handlers.namespaces
        namespaces.on_add(new) if old is None else namespaces.on_update(old, new)

    def pod_changes(self) -> None:
        if self.pods:
            uid = self.chance.choice(sorted(self.pods))
            meta = self.pods[uid].metadata
            labels = {**(meta.labels or {}), "app": self.chance.choice("abc")}
            self.world.edge.change(uid, metadata=replaced(meta, labels=labels))

    def somebody_else_binds(self) -> None:
        waiting = sorted(uid for uid, pod in self.pods.items() if not pod.node_name)
        if waiting and self.nodes:
            uid, node = self.chance.choice(waiting), self.chance.choice(sorted(self.nodes))
            self.world.edge.change(uid, spec=replaced(self.pods[uid].spec, node_name=node))

    def node_changes(self) -> None:
        name, cpu = self.chance.choice(("n1", "n2", "n3", "n4")), self.chance.choice("248")
        new = make_node(name, cpu=cpu, labels={"topology.kubernetes.io/zone": f"z{name[1:]}"[:2]})
        old = self.nodes.get(name)
        self.nodes[name] = new
        nodes = self.world.handlers.nodes
        nodes.on_add(new) if old is None else nodes.on_update(old, new)

    def node_goes(self) -> None:
        if len(self.nodes) > 2:
            name = self.chance.choice(sorted(self.nodes))
            self.world.handlers.nodes.on_delete(self.nodes.pop(name))
            for uid in [uid for uid, pod in self.pods.items() if pod.node_name == name]:
                self.world.edge.delete(uid)

    def quota_changes(self) -> None:
        name, least = self.chance.choice("xy"), self.chance.randint(1, 6)
        spec = {"min": {"cpu": least}, "max": {"cpu": least + self.chance.randint(0, 6)}}
        body = {"metadata": {"name": "quota", "namespace": name}, "spec": spec}
        new, old = from_builtins(ElasticQuota, body), self.quotas.get(name)
        self.quotas[name] = new
        quotas = self.world.quotas
        quotas.on_add(new) if old is None else quotas.on_update(old, new)

    def rules_change(self) -> None:
        self.rules = self.some_rules()
        self.world.scheduler.use(chain(self.rules), None)

    def time_passes(self) -> None:
        self.world.clock.advance(self.chance.choice((0.2, 1.0, 12.0)))


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(examples(100)))
async def test_a_scheduler_that_starts_finds_nobody_whom_the_running_one_left(seed: int) -> None:
    made = Cluster(seed)
    often: list[tuple[Callable[[], None], int]] = [
        (made.pods_come, 8), (made.pod_goes, 3), (made.node_changes, 3), (made.node_goes, 1),
        (made.quota_changes, 2), (made.rules_change, 1), (made.time_passes, 4),
        (made.pod_changes, 3), (made.namespace_changes, 1), (made.somebody_else_binds, 1),
    ]  # fmt: skip
    steps, weights = zip(*often, strict=True)
    for step in made.chance.choices(steps, weights, k=60):
        step()
        if made.chance.random() < 0.5:
            await made.turn(made.world)
    await made.settle(made.world, 65)  # a gate that holds one from now on has its minute
    claims = made.world.cache.nominations.nodes
    assert not claims, "nothing makes room there any more, or a gate holds them"
    fresh = made.scheduler(made.world.clock)
    await made.settle(fresh, 12)
    assert (fresh.edge.binds, fresh.edge.evictions) == ([], [])
