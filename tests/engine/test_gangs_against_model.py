"""Gangs under random histories, faults included, against a model that only counts.

The model knows pods, nodes and amounts of one resource. It does not say where pods go, but what
must hold wherever they are: nobody is lost or bound twice, no node has more than it takes, nobody
keeps a node without cause, a gang is whole or not there, and who fits is not left waiting.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from zoneinfo import ZoneInfo

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.framework.profile import Profile
from engine.policy.chain import framework_of
from engine.policy.world import Worlds
from engine.queue import SubQueue
from tests.builders import changed, default_plugins, make_node
from tests.effort import examples
from tests.engine.policy.builders import compiled
from tests.engine.test_scheduler import BOUND, REFUSED, UNKNOWN, World

GANG = "gang: by pod.label[gang] min number(pod.label[size])"
WAITS = f"{GANG} wait 1m reject above 70% missing"
FORMS = (GANG, f"{GANG} backoff 5s", WAITS, WAITS)
NODE = 4
SIZES = {"a": 2, "b": 3, "c": 4}
LONGER_THAN_BACKOFF = 11.0
OFTEN = st.sampled_from([True, True, False])
bundle = functools.cache(lambda text: compiled({"p.policy": f"{text}\n"}))


def rules(text):
    """The default plugins and a policy, of no cluster yet."""
    worlds = Worlds(ZoneInfo("UTC"), ())
    return framework_of(Profile("berth", tuple(default_plugins())), bundle(text), worlds=worlds)


class Pod:
    """What the model knows of a pod: its gang, what it takes, the object as the server has it."""

    def __init__(self, obj, gang, cpu):
        self.obj, self.gang, self.cpu = obj, gang, cpu
        self.node = None  # once the server has bound it
        self.told = False  # whether the watch has said so


class GangMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = None
        self.pods, self.nodes = {}, set()
        self.spoiled = set()
        self.names = itertools.count()

    def teardown(self):
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    @initialize(form=st.sampled_from(FORMS), nodes=st.integers(1, 3))
    def begin(self, form, nodes):
        self.form = form
        self.ruled = True
        self.world = World(nodes=(), rules=rules(form))
        self.world.edge.bind = self._bind
        for _ in range(nodes):
            self.node_comes()
        self.answers = []

    async def _bind(self, effect):
        """The server: says what it was told to, and remembers whom it has bound."""
        await asyncio.sleep(0)
        answer = self.answers.pop() if self.answers else BOUND
        pod = self.pods.get(effect.pod.name)
        if pod is None:
            return BOUND
        assert pod.node is None, f"{effect.pod.name} was bound to {pod.node} already"
        if answer is REFUSED:
            self.spoiled.add(pod.gang)
        else:
            pod.node = effect.node
        return answer

    # ---- what happens

    @rule(cpu=st.sampled_from([1, 2, 3]), then=OFTEN)
    def a_pod_comes(self, cpu, then):
        self._come("", [cpu], then)

    @rule(
        gang=st.sampled_from(sorted(SIZES)),
        sizes=st.lists(st.sampled_from([1, 2, 3, 3]), min_size=1, max_size=5),
        then=OFTEN,
    )
    def a_gang_comes(self, gang, sizes, then):
        self._come(gang, sizes, then)

    def _come(self, gang, sizes, then):
        for cpu in sizes:
            name = f"{gang or 'p'}-{next(self.names)}"
            labels = {"gang": gang, "size": str(SIZES[gang])} if gang else {}
            obj = self.world.comes(name, cpu=str(cpu), labels=labels)
            self.pods[name] = Pod(obj, gang, cpu)
        if then:
            self.turn()

    @rule()
    def node_comes(self):
        name = f"n{next(self.names)}"
        self.nodes.add(name)
        self.world.handlers.nodes.on_add(make_node(name, cpu=str(NODE)))

    @precondition(lambda self: len(self.nodes) > 1)
    @rule(data=st.data())
    def node_goes(self, data):
        """With its pods."""
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        self.nodes.discard(name)
        self.world.handlers.nodes.on_delete(make_node(name, cpu=str(NODE)))
        for pod in [one for one in self.pods if self.pods[one].node == name]:
            self._goes(pod)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), many=st.integers(1, 3), then=OFTEN)
    def pods_go(self, data, many, then):
        for _ in range(min(many, len(self.pods))):
            self._goes(data.draw(st.sampled_from(sorted(self.pods))))
        if then:
            self.turn()

    def _goes(self, name):
        pod = self.pods.pop(name)
        self.spoiled.add(pod.gang)
        self.world.handlers.pods.on_delete(pod.obj)

    @rule(answers=st.lists(st.sampled_from([BOUND, REFUSED, UNKNOWN]), max_size=4))
    def the_server_will_answer(self, answers):
        self.answers = list(answers)

    @rule()
    def the_watch_catches_up(self):
        for pod in self.pods.values():
            if pod.node is not None and not pod.told:
                new = changed(pod.obj, spec={"node_name": pod.node})
                self.world.handlers.pods.on_update(pod.obj, new)
                pod.obj, pod.told = new, True

    @rule(seconds=st.sampled_from([1.0, 11.0, 31.0]))
    def time_passes(self, seconds):
        self.world.clock.advance(seconds)

    @rule(with_gangs=OFTEN)
    def new_rules(self, with_gangs):
        text = self.form if with_gangs else "score: 50"
        if not with_gangs:
            self.spoiled.update(SIZES)
        self.ruled = with_gangs
        self.world.scheduler.use(rules(text), frozenset({"p"}))

    @rule(slices=st.integers(1, 3))
    def a_few_members_are_tried(self, slices):
        """Something else may happen in the middle of a gang's turn."""
        scheduler = self.world.scheduler

        async def some():
            if not scheduler.gangs.busy:
                queued = self.world.queue.pop()
                if queued is not None:
                    scheduler.schedule_one(queued)
            for _ in range(slices):
                if scheduler.gangs.busy:
                    scheduler.gangs.step()

        self.loop.run_until_complete(some())

    @rule()
    def turn(self):
        self.loop.run_until_complete(self.world.turn())

    @rule()
    def all_is_done(self):
        """Nothing more happens: nobody who fits waits."""
        for _ in range(5):
            self.turn()
            self.world.clock.advance(LONGER_THAN_BACKOFF)
        self.turn()
        self._nobody_is_forgotten()

    # ---- what must hold

    @invariant()
    def nobody_is_lost_or_twice(self):
        if self.world is None:
            return
        cache, queue = self.world.cache, self.world.queue
        for pod in self.pods.values():
            uid = pod.obj.metadata.uid
            assert uid in queue or cache.node_of(uid) is not None
            assert pod.node is None or cache.node_of(uid) == pod.node
        known = {one.obj.metadata.uid for one in self.pods.values()}
        assert set(cache.assigned()) <= known

    @invariant()
    def no_node_has_more_than_it_takes(self):
        if self.world is None:
            return
        for name in self.nodes:
            assert self._left()[name] >= 0

    @invariant()
    def a_node_is_kept_for_cause(self):
        """Assumed are those being bound, those whose gang waits, and those whose gang is tried."""
        if self.world is None or self.world.scheduler.in_flight:
            return
        scheduler, cache = self.world.scheduler, self.world.cache
        if scheduler.gangs.busy:
            return
        assert not len(cache.nominations)
        for pod in self.pods.values():
            uid = pod.obj.metadata.uid
            if pod.node is None and cache.node_of(uid) is not None:
                assert self.world.queue.get(uid).where is SubQueue.WAITING

    @invariant()
    def a_gang_is_whole_or_not_there(self):
        if self.world is None or self.world.scheduler.in_flight:
            return
        for gang, size in SIZES.items():
            there = sum(pod.node is not None for pod in self._members(gang))
            if gang not in self.spoiled:
                assert there == 0 or there >= size

    # ---- the model's arithmetic

    def _members(self, gang):
        return [one for one in self.pods.values() if one.gang == gang]

    def _left(self):
        left = dict.fromkeys(self.nodes, NODE)
        for pod in self.pods.values():
            node = self.world.cache.node_of(pod.obj.metadata.uid)
            if node in left:
                left[node] -= pod.cpu
        return left

    def _nobody_is_forgotten(self):
        left = sorted(self._left().values())
        waiting = {}
        for pod in self.pods.values():
            if self.world.cache.node_of(pod.obj.metadata.uid) is None:
                gang = pod.gang if self.ruled else ""
                waiting.setdefault(gang, []).append(pod.cpu)
        for gang, sizes in waiting.items():
            there = len(self._members(gang)) - len(sizes)
            needed = SIZES[gang] - there if gang else 1
            smallest = sorted(sizes)[: max(needed, 1)]
            if len(smallest) >= needed:
                assert not fit(smallest, left), f"{smallest} of {gang!r} fit into {left}"


def fit(sizes, left):
    """Whether all of these fit; every way is tried."""
    if not sizes:
        return True
    *rest, most = sizes
    return any(
        fit(rest, [*left[:at], room - most, *left[at + 1 :]])
        for at, room in enumerate(left)
        if room >= most
    )


TestGangs = GangMachine.TestCase
TestGangs.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
