"""Rules under all that may come to them: one is prepared at a time, and the last are whole."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from engine.clock import ManualClock
from engine.objects import ConfigMap, ObjectMeta
from engine.policy.bundle import together
from engine.policy.guard import Load
from tests.effort import examples
from tests.engine.policy.builders import in_force, prepared

TEXTS = (
    "filter: node.label a\n",
    "filter: node.lable a\n",
    "score: 1\n",
    "filter: now - node.heartbeat < 1m\n",
    "sort: pod.priority desc\n",
    "",
    None,
)
POLICIES = {
    "sources": [
        {"configMap": "berth/one"},
        {"configMap": "berth/two"},
        {"selector": "a=b", "namespace": "berth"},
    ],
    "tenants": {"configMap": "mine", "namespaces": ["*"]},
    "guard": {"pending": 5, "within": "1min"},
}
#: ConfigMaps, and by which watch they come.
HANDLERS = {"berth/one": 0, "berth/two": 1, "berth/x": 2, "berth/y": 2, "a/mine": 3, "b/mine": 3}


class Rules(RuleBasedStateMachine):
    """Edits of the owner and of namespaces, while lists come and go and pods wait."""

    def __init__(self):
        super().__init__()
        self.clock, self.waiting, self.lacks, self.length = ManualClock(), 0, False, 3
        self.seen, self.prepares, self.put = {}, [], []
        self.made = in_force(
            POLICIES,
            clock=self.clock,
            load=lambda **_: Load(self.waiting, 0),
            prepare=prepared(lambda *what: self.put.append(what), self.steps),
            missing=lambda bundle, _: ("leases",) if self.lacks and bundle.needs.attended else (),
        )
        self.made.connect(None, None, lambda: True)
        self.handlers = [handler for _, handler in self.made.configured.watched]
        for where in ("berth/one", "berth/two"):
            self.edit(where, "score: 1\n")
        for one in self.handlers:
            one.on_synced()
        self.settle()

    def steps(self, bundle, _):
        assert not self.prepares, "one at a time"
        self.prepares.append(bundle)
        try:
            for _ in range(self.length):
                yield
        finally:
            self.prepares.pop()

    def step(self, seconds=0.0):
        until = self.clock.monotonic() + seconds
        return sum(one.step(until) for one in self.made.background)

    @rule(
        where=st.sampled_from(tuple(HANDLERS)),
        text=st.sampled_from(TEXTS),
    )
    def edit(self, where, text):
        namespace, _, name = where.partition("/")
        data = {f"{name}.policy": text} if text else {}
        new = ConfigMap(ObjectMeta(name=name, namespace=namespace, uid="u"), data=data)
        old, handler = self.seen.get(where), self.handlers[HANDLERS[where]]
        if text is not None:
            self.seen[where] = new
            handler.on_add(new) if old is None else handler.on_update(old, new)
        elif old is not None:
            handler.on_delete(self.seen.pop(where))

    @rule(lacks=st.booleans())
    def a_list_is_refused_or_there(self, lacks):
        self.lacks = lacks

    @rule(waiting=st.sampled_from((0, 9, 20)))
    def pods_wait(self, waiting):
        self.waiting = waiting

    @rule(seconds=st.sampled_from((0.3, 1.0, 70.0)))
    def time_goes_on(self, seconds):
        self.clock.advance(seconds)

    @rule(steps=st.integers(1, 60), length=st.sampled_from((0, 3, 30)))
    def others_have_their_turn(self, steps, length):
        self.length = length
        for _ in range(steps):
            self.step()

    def settle(self):
        for _ in range(20):
            while self.step(1e9):
                pass
            self.clock.advance(5.0)

    def teardown(self):
        self.lacks, self.waiting = False, 0
        self.settle()
        made, owner = self.made, self.made.reloader
        own = together(owner.bundle, made._tenants.parts, made._settings.policies.tenants)
        assert (self.put[-1][0].files, made.bundle.hash) == (own.files, own.hash)
        kept = {
            one.folder: owner.kept()[one.title].files
            for one in owner.sources
            if one.title in owner.kept()
        }
        texts = {f"{of}{name}": text for of, files in kept.items() for name, text in files.items()}
        assert texts == owner.bundle.files
        for source in owner.sources:
            state = owner._states[source.title]
            good = state.offered is not None and state.offered == state.good
            assert (state.refusal is None) == good
        for (before, _), (bundle, changed) in zip(self.put, self.put[1:], strict=False):
            assert changed in (None, bundle.changed_since(before))


TestRules = Rules.TestCase
TestRules.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
