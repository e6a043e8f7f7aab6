"""Quotas on a running scheduler against a naive model, whatever fails on the way.

The server of the model answers, fails and forgets as it is told. At each decision the model counts
everything anew and says whether the pod may have a node, and whom a preemptor may evict.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from types import MappingProxyType

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.objects import Condition
from tests.builders import changed, make_node, pod_object
from tests.effort import examples
from tests.engine.policy.builders import chain
from tests.engine.test_quotas import ELASTIC, Quotas
from tests.engine.test_scheduler import BOUND, GONE, REFUSED, UNKNOWN

NAMESPACES = ("a", "b", "c", "free")
START = {"a": (2, 4), "b": (3, 5), "c": (0, 3)}
AGAIN = 400.0


class Server:
    """Pods by UID as the server has them, and what the watch has not told yet."""

    def __init__(self, world):
        self.world = world
        self.pods, self.told = {}, {}
        self.binds, self.evictions = Counter(), Counter()
        self.bind_faults, self.evict_faults = deque(), deque()
        for name in ("bind", "resolve", "evict"):
            setattr(world.edge, name, getattr(self, name))

    async def bind(self, effect):
        await asyncio.sleep(0)
        fault = self.bind_faults.popleft() if self.bind_faults else None
        if fault is REFUSED:
            return fault
        pod = self.pods.get(effect.pod.uid)
        if pod is None:
            return GONE
        self.binds[effect.pod.uid] += 1
        self.pods[effect.pod.uid] = changed(pod, spec={"node_name": effect.node})
        return fault or BOUND

    async def resolve(self, effect):
        await asyncio.sleep(0)
        pod = self.pods.get(effect.pod.uid)
        if pod is None:
            return GONE
        return BOUND if pod.spec.node_name == effect.node else REFUSED

    async def evict(self, effect):
        await asyncio.sleep(0)
        if self.evict_faults:
            return self.evict_faults.popleft()
        uid = effect.pod.uid
        if uid in self.pods:
            self.evictions[uid] += 1
            self.ends(uid, Condition("DisruptionTarget", "True", "PreemptionByScheduler"))
        return ""

    def ends(self, uid, *conditions):
        """Its deletion was asked for; it goes when its kubelet says so."""
        pod = self.pods[uid]
        self.pods[uid] = changed(
            pod,
            metadata={"deletion_timestamp": "2025-03-01T10:00:00Z"},
            status={"conditions": list(conditions)},
        )

    def watch(self):
        """Tells what is new."""
        handlers = self.world.handlers.pods
        for uid in [*self.told]:
            if uid not in self.pods:
                handlers.on_delete(self.told.pop(uid))
        for uid, pod in self.pods.items():
            old = self.told.get(uid)
            if old is None:
                handlers.on_add(pod)
            elif old is not pod:
                handlers.on_update(old, pod)
            self.told[uid] = pod


class Model(RuleBasedStateMachine):
    """`free` has no quota at the start; amounts are whole cores, and nodes never full."""

    policy = ELASTIC
    nodes = MappingProxyType({"n1": 100})
    """Their cores."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self.loop.run_until_complete(self._make())
        self.server = Server(self.world)
        self.limits = dict(START)
        self.quotas = True
        self.count = 0
        self.world.scheduler.observe(self.judge)

    async def _make(self):
        limits = {one: tuple(map(str, both)) for one, both in START.items()}
        made = Quotas(self.policy, nodes=(), **limits)
        for name, cpu in self.nodes.items():
            made.handlers.nodes.on_add(make_node(name, cpu=str(cpu)))
        return made

    # ---- the naive model

    def pods(self):
        cache = self.world.cache
        return [cache.pods.pod(cache.pods.row(uid)) for uid in cache.assigned()]

    def goes(self, pod):
        return pod.terminating or pod.uid in self.world.cache.nominations.leaving

    def judge(self, placed):
        decision = placed.decision
        assert decision.error is None, decision.message
        if not self.quotas:
            return
        pod, used = decision.pod, Counter()
        for one in self.pods():
            used[one.namespace] += cores(one)
        key, own = pod.namespace, used[pod.namespace] + cores(pod)
        if decision.node is not None and key in self.limits:
            assert own <= self.limits[key][1], "its maximum"
            lent = sum(used[one] for one in self.limits) + cores(pod)
            assert lent <= sum(least for least, _ in self.limits.values()), "what all guarantee"
        if decision.rescue is not None and decision.rescue.evictions:
            # One counts with the priority of its victims, and so does the pod that has had some.
            nominations = self.world.cache.nominations
            ranks = nominations.ranks
            promised = [
                one for one in nominations
                if one.namespace == key and one.uid != pod.uid
                and ranks[one.uid] >= ranks.get(pod.uid, pod.priority)
            ]  # fmt: skip
            within = key in self.limits and own + sum(map(cores, promised)) <= self.limits[key][0]
            self.judge_victims(pod, [one.pod for one in decision.rescue.evictions], within=within)

    def judge_victims(self, pod, victims, *, within):
        key = pod.namespace
        victims = [one for one in victims if not self.goes(one)]
        for one in victims:
            if within:
                assert one.namespace in self.limits
                assert one.namespace != key
            else:
                assert one.priority < pod.priority
                mine = one.namespace == key
                assert mine if key in self.limits else one.namespace not in self.limits
        for owner in {one.namespace for one in victims} if within else ():
            sizes = [cores(one) for one in victims if one.namespace == owner]
            stays = [
                cores(one) for one in self.pods() if one.namespace == owner and not self.goes(one)
            ]
            # Without the last to go the owner still used more than it is guaranteed.
            assert sum(stays) - sum(sizes) + max(sizes) > self.limits[owner][0], "its minimum"

    # ---- what happens

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        cpu=st.integers(1, 2),
        priority=st.sampled_from([0, 0, 5]),
        many=st.integers(1, 5),
    )
    def pods_come(self, namespace, cpu, priority, many):
        for _ in range(many):
            name = f"p{self.count}"
            self.count += 1
            pod = pod_object(name, namespace=namespace, cpu=str(cpu), priority=priority)
            self.server.pods[pod.metadata.uid] = pod
        self.server.watch()
        self.works_a_little()

    @rule()
    def works(self):
        self.loop.run_until_complete(self._works(drained=True))

    @rule()
    def works_a_little(self):
        self.loop.run_until_complete(self._works(drained=False))

    async def _works(self, *, drained):
        self.world.scheduler.work()
        await asyncio.sleep(0)
        if drained:
            await self.world.scheduler.drain()

    @rule()
    def watch(self):
        self.server.watch()

    @rule(seconds=st.sampled_from([1.0, 20.0, AGAIN]))
    def time_passes(self, seconds):
        self.world.clock.advance(seconds)

    @rule(fault=st.sampled_from([REFUSED, UNKNOWN]))
    def a_binding_will_fail(self, fault):
        self.server.bind_faults.append(fault)

    @rule()
    def an_eviction_will_fail(self):
        self.server.evict_faults.append("the server is away")

    @rule(pick=st.integers(0, 99), graceful=st.booleans())
    def a_pod_is_deleted(self, pick, graceful):
        there = sorted(self.server.pods)
        if there:
            uid = there[pick % len(there)]
            if graceful and self.server.pods[uid].spec.node_name:
                self.server.ends(uid)
            else:
                del self.server.pods[uid]

    @rule()
    def what_ends_is_gone(self):
        pods = self.server.pods
        for uid in [u for u, one in pods.items() if one.metadata.deletion_timestamp is not None]:
            del pods[uid]

    @rule(namespace=st.sampled_from(NAMESPACES), least=st.integers(0, 3), more=st.integers(0, 2))
    def a_quota_changes(self, namespace, least, more):
        self.limits[namespace] = least, least + more
        self.world.quota(namespace, str(least), str(least + more))

    @rule(namespace=st.sampled_from(NAMESPACES))
    def a_quota_goes(self, namespace):
        if self.limits.pop(namespace, None) is not None:
            self.world.objects.on_delete(self.world.known.pop(namespace))

    @rule(quotas=st.booleans())
    def policies_are_reloaded(self, quotas):
        text = self.policy if quotas else "score: 50\n"
        self.quotas = quotas
        self.world.scheduler.use(chain({"p.policy": text}), frozenset({"p"}))

    @rule(there=st.booleans())
    def a_node_goes_or_comes(self, there):
        if there:
            self.world.handlers.nodes.on_add(make_node("n2", cpu="100"))
        else:
            self.world.handlers.nodes.on_delete(make_node("n2", cpu="100"))

    # ---- what always holds

    @invariant()
    def nobody_is_bound_or_evicted_twice(self):
        assert all(count == 1 for count in self.server.binds.values())
        assert all(count == 1 for count in self.server.evictions.values())

    @invariant()
    def accounts_are_what_pods_ask_for(self):
        naive = {}
        for one in self.pods():
            own = naive.setdefault(one.namespace, Counter())
            own.update(one.requests)
        for account in self.world.cache.pods._ledgers.values():
            assert {k: Counter(v) for k, v in account.used.items()} == naive
            if account.limits is not None:
                pool = Counter()
                for owner in set(naive) & set(account.limits):
                    pool.update(naive[owner])
                assert +Counter(account.pool) == +pool

    def teardown(self):
        """In the end all is written and told, and nobody waits who could run."""
        self.server.bind_faults.clear()
        self.server.evict_faults.clear()
        self.policies_are_reloaded(quotas=True)
        # Pods whose node is gone count, and cannot make room.
        self.a_node_goes_or_comes(there=True)
        for _ in range(12):
            self.works()
            self.what_ends_is_gone()
            self.watch()
            self.time_passes(AGAIN)
        self.works()
        used = Counter()
        for one in self.pods():
            used[one.namespace] += cores(one)
        lent = sum(used[one] for one in self.limits)
        pool = sum(least for least, _ in self.limits.values())
        for uid, pod in self.server.pods.items():
            if self.world.cache.node_of(uid) is None:
                key = pod.metadata.namespace
                asked = cores(self.world.queue.get(uid).pod)
                assert key in self.limits, "it has no quota"
                assert used[key] + asked > self.limits[key][1] or lent + asked > pool
                if lent + asked > pool:
                    assert used[key] + asked > self.limits[key][0], "its minimum was not given back"
        self.loop.close()


def cores(pod):
    return pod.requests["cpu"] // 1000


TestQuotas = Model.TestCase
TestQuotas.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
