"""Pods that wait, under everything that can happen to them: nobody is lost, or bound twice."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.queue import SubQueue
from tests.builders import changed, make_node, pod_object
from tests.effort import examples
from tests.engine.policy.builders import chain
from tests.engine.test_preemption import being_deleted
from tests.engine.test_scheduler import BOUND, REFUSED, UNKNOWN, World

RULES = (
    "permit: wait 40s until pod.annotation go=yes\n",
    "permit: wait 1h until count(cluster.pods) > 3, then allow\n",
    "permit: pod.annotation go=no -> reject\nprebind: label a.b/c = node.name\n",
    "reserve: count(node.pods) < 3\npermit: pod.name contains 1 -> wait 5s until pod.cpu > 9\n",
    "score: 50\n",
)
NODES = ("n1", "n2")


class Waiting(RuleBasedStateMachine):
    """Turns until nothing moves after each step; time stands still between them."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self.loop.run_until_complete(self._world())
        self.pods = {}
        self.number = 0

    async def _world(self):
        return World({"p.policy": RULES[0]}, nodes=NODES)

    def teardown(self):
        self.turn()
        self.loop.run_until_complete(self.world.scheduler.drain())
        self.loop.close()

    def turn(self):
        async def main():
            for _ in range(40):
                self.world.scheduler.work()
                await asyncio.sleep(0)

        self.loop.run_until_complete(main())

    def some(self, which):
        names = sorted(self.pods)
        return names[which % len(names)]

    def replaced(self, name, pod):
        self.world.handlers.pods.on_update(self.pods[name], pod)
        self.pods[name] = pod

    @rule(cpu=st.sampled_from(["100m", "1"]), priority=st.sampled_from([0, 0, 10]))
    def comes(self, cpu, priority):
        self.number += 1
        name = f"p{self.number}"
        self.pods[name] = pod_object(name, cpu=cpu, priority=priority)
        self.world.handlers.pods.on_add(self.pods[name])
        self.turn()

    @precondition(lambda self: self.pods)
    @rule(which=st.integers(0, 9), go=st.sampled_from(["yes", "no"]))
    def is_annotated(self, which, go):
        name = self.some(which)
        self.replaced(name, changed(self.pods[name], metadata={"annotations": {"go": go}}))
        self.turn()

    @precondition(lambda self: self.pods)
    @rule(which=st.integers(0, 9), at_once=st.booleans())
    def is_deleted(self, which, at_once):
        name = self.some(which)
        if not at_once:
            self.replaced(name, being_deleted(self.pods[name]))
            self.turn()
        self.world.handlers.pods.on_delete(self.pods.pop(name))
        self.turn()

    @precondition(lambda self: self.pods)
    @rule(which=st.integers(0, 9), node=st.sampled_from(NODES))
    def somebody_else_binds(self, which, node):
        name = self.some(which)
        if not self.pods[name].spec.node_name:
            there = self.world.assigned(name)
            self.is_on(name, there[0] if there else node)
            self.turn()

    def is_on(self, name, node):
        self.replaced(name, changed(self.pods[name], spec={"node_name": node}))

    @rule(seconds=st.sampled_from([1.0, 6.0, 40.0, 400.0]))
    def time_passes(self, seconds):
        self.world.clock.advance(seconds)
        self.turn()

    @rule(text=st.sampled_from(RULES), known=st.booleans())
    def rules_change(self, text, known):
        changed = frozenset({"p"}) if known else None
        self.world.scheduler.use(chain({"p.policy": text}), changed)
        self.turn()

    @rule(name=st.sampled_from(NODES))
    def a_node_goes_and_comes(self, name):
        self.world.handlers.nodes.on_delete(make_node(name, cpu="2"))
        self.turn()
        for pod, (node, _) in self.world.cache.assigned().items():
            if node == name and not self.world.cache.is_assumed(pod):
                gone = pod.removeprefix("uid-default-")
                self.world.handlers.pods.on_delete(self.pods.pop(gone))
        self.world.handlers.nodes.on_add(make_node(name, cpu="2"))
        self.turn()

    @rule(answers=st.lists(st.sampled_from([BOUND, REFUSED, UNKNOWN]), max_size=2))
    def the_server_answers(self, answers):
        self.world.edge.bind_answers.clear()
        self.world.edge.bind_answers.extend(answers)

    @invariant()
    def who_waits_is_known_alike_everywhere(self):
        world = self.world
        held = {one.pod.uid for one in world.scheduler.waiting_pods}
        queued = [one for one in world.queue.pending() if one.where is SubQueue.WAITING]
        assert held == {one.pod.uid for one in queued} == set(world.cache.waiting)
        assert all(world.cache.is_assumed(uid) for uid in held)

    @invariant()
    def every_pod_is_in_one_place(self):
        world = self.world
        for name, pod in self.pods.items():
            waits, there = world.where(name), world.assigned(name)
            if pod.spec.node_name:
                assert (waits, there) == (None, (pod.spec.node_name, False))
            elif waits in (None, SubQueue.WAITING, SubQueue.IN_FLIGHT):
                assert there is not None, f"{name} is lost"
            else:
                assert there is None
        known = {f"uid-default-{name}" for name in self.pods}
        assert set(world.cache.assigned()) <= known

    @invariant()
    def nobody_is_bound_twice(self):
        bound = Counter(
            name for name, kind, reason, _ in self.world.edge.events if reason == "Scheduled"
        )
        assert all(times == 1 for times in bound.values())


Waiting.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None
)
TestWaiting = Waiting.TestCase
