"""Whatever a namespace writes, pods of others are decided as without it."""

from datetime import UTC

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dsl.compiler import Compiler
from dsl.plan import effects_of, stop_by
from dsl.tenants import Tenant
from engine.configuration.berth import BerthDocument
from engine.configuration.settings import Settings
from engine.cycle import conclude, decide
from engine.framework.status import Status
from engine.plugins.profiles import make_profiles
from engine.policy.bundle import Refusal, compile_at_once, compile_settings
from engine.policy.chain import frameworks_of
from engine.policy.findings import new_compiler
from engine.policy.world import Worlds
from tests.builders import Cache, make_node, make_pod, scored
from tests.effort import examples
from tests.properties import policies as p
from tests.properties import test_language_evaluators as evaluators

COMPILER = Compiler()
NOBODY = Tenant("nobody", cost=1e12)
GANG = st.just("gang: by pod.label[app] min 2\ngang: by pod.name min 1\n")
statements = st.one_of(
    evaluators.filters(),
    evaluators.scores(),
    evaluators.tiers(),
    evaluators.permits(),
    evaluators.actions(),
    evaluators.conditions("gate", p.POD),
    evaluators.conditions("prefilter", p.PREFILTER),
    evaluators.conditions("reserve", p.CHOSEN),
    GANG,
)
headers = st.sampled_from(("", "applies to: any(pod.containers where it.name is web)\n"))


@settings(max_examples=examples(100), deadline=None)
@given(headers, st.lists(statements, min_size=1, max_size=3), evaluators.worlds(),
       evaluators.subjects)  # fmt: skip
def test_no_rule_of_a_namespace_applies_to_a_pod_of_another(header, texts, world, pod):
    text = header + p.HEADER + "\n".join(texts)
    result = COMPILER.compile({"a.policy": text}, size=evaluators.SMALL, tenant=NOBODY)
    for plan in result.understood:
        rows = np.flatnonzero(world.present)
        assert all(
            rule.prepare(pod, world) is None for rule in (*plan.filters, *plan.scores, *plan.tiers)
        )
        assert stop_by((*plan.gates, *plan.prefilters), pod, world) is None
        assert plan.preferred(pod, world, rows) is None
        assert all(rule.key(pod, world) is None for rule in plan.gangs)
        for row in rows.tolist():
            assert stop_by(plan.reserves, pod, world, row) is None
            assert plan.permitted(pod, world, row).verdict == "allow"
            acting = (*plan.prebinds, *plan.postbinds)
            assert effects_of(acting, pod, world, row, evaluators.RESULTS) == ()


# ---- whole decisions -----------------------------------------------------------------------------

TENANTS = {"configMap": "berth-policies", "namespaces": ["team-a"]}
SETTINGS = compile_settings(
    BerthDocument.model_validate({"policies": {"configMap": "x/own", "tenants": TENANTS}})
)
OWNERS = {
    "x/own/a.policy": "filter: count(node.pods where it.label[app] is red) < 2\n"
    "score: 100 - node.cpu.requested/max*100\n"
}
LINES = (
    "filter: node.label zone = a\n",
    'prefilter: count(cluster.pods) < 1 message "never"\n',
    'gate: pod.label[app] is present message "not yet"\n',
    "score: 100 - node.cpu.free/max*100\n",
    "weight: 1000\nscore: if node.name is n0 then 100 else 0\n",
    "first: node.name is n1\n",
    "forbid: count(zone.pods where it.namespace is default) > 0\n",
    "gang: by pod.label[app] min 2 wait 1m\n",
    "permit: wait 1m until count(cluster.pods) > 5\n",
    "mode: shadow\nfilter: node.name is nowhere\n",
    "filter: now - pod.created > 3min\nfilter: node.cpu.free > 100\n",
)
pods = st.lists(
    st.tuples(
        st.sampled_from(("default", "team-a")),
        st.sampled_from(("red", "blue")),
        st.sampled_from(("500m", "2", "9")),
    ),
    min_size=1,
    max_size=12,
)


ENGINE = new_compiler()


def frameworks(files):
    bundle = compile_at_once(ENGINE, OWNERS | files, SETTINGS)
    assert not isinstance(bundle, Refusal), bundle.text
    return frameworks_of(make_profiles(Settings()), bundle, worlds=Worlds(UTC, ()))


def cluster():
    cache = Cache()
    for number in range(4):
        cache.add_node(make_node(f"n{number}", labels={"zone": "ab"[number % 2]}))
    return cache


def said(frameworks, pod, cache):
    """All that comes of a pod, as bytes."""
    snapshot = cache.snapshot(1e9)
    gate = frameworks.of(pod).pre_enqueue(pod, snapshot)
    if gate is not Status.SUCCESS:
        return repr(gate).encode(), None
    framework = frameworks.of(pod)
    decision = conclude(pod, snapshot, framework)
    told = decision.node, decision.message, decision.total, decision.feasible, decision.evaluated
    details = scored(decision, snapshot, framework)
    return repr((told, details, frameworks.of(pod).kin(pod, snapshot))).encode(), decision.node


@settings(max_examples=examples(40), deadline=None, phases=[Phase.generate])
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=4, unique=True), pods)
def test_pods_of_other_namespaces_are_decided_byte_for_byte_as_without_it(lines, asked):
    files = {f"team-a/berth-policies/p{n}.policy": line for n, line in enumerate(lines)}
    without, within, cache = frameworks({}), frameworks(files), cluster()
    for number, (namespace, app, cpu) in enumerate(asked):
        pod = make_pod(f"p{number}", namespace=namespace, cpu=cpu, labels={"app": app})
        alone, node = said(without, pod, cache)
        beside, its = said(within, pod, cache)
        if namespace == "default":
            assert beside == alone
        node = node if namespace == "default" else its
        if node is not None:
            cache.assume(pod, node)


def test_the_rules_do_apply_to_their_own_pods():
    within, cache = frameworks({"team-a/berth-policies/p.policy": LINES[0]}), cluster()
    for namespace, names in (("team-a", {"n0", "n2"}), ("default", {"n0", "n1", "n2", "n3"})):
        pod = make_pod("p", namespace=namespace, cpu="1")
        framework = within.of(pod)
        found = decide(pod, cache.snapshot(1e9), framework)
        assert found.node in names
        assert found.feasible == len(names)


@pytest.mark.parametrize("line", [one for one in LINES if "mode" not in one])
def test_each_of_these_lines_compiles(line):
    assert frameworks({"team-a/berth-policies/p.policy": line})
