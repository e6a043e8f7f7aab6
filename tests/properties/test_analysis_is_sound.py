"""Whatever the analysis says of conditions, rules and bounds, no world disproves it."""

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dsl import ir, reference
from dsl.analysis.cubes import Cubes, Unknown
from dsl.analysis.facts import FileFacts
from dsl.analysis.ranges import Ranges
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.dsl import oracle
from tests.dsl.worlds import FakePod, FakeWorld
from tests.effort import examples

COMPILER = Compiler()
WORDS = ["web", "db", "web-1", "a-web", "w", "1", "2Gi", "3"]
MAYBE = [None, *WORDS]
TEXTS = ["node.label[k]", "node.label[app]", "node.zone", "pod.name", "pod.namespace",
         "pod.label[k]", "namespace.name", "namespace.label[k]"]  # fmt: skip
NUMBERS = ["pod.priority", "node.gpu.free", "node.gpu.capacity", "time.hour", "pod.gpu",
           "number(node.label[k])", "number(pod.label[k])", "(number(node.label[k]) ?? 2)",
           "count(node.pods where it.name contains web)", "(pod.priority + node.gpu.free)",
           "(node.gpu.free / pod.gpu)", "hash(pod.name)", "-pod.priority", "m1", "(m1 ?? 1)",
           "len(pod.name)", "abs(pod.priority)", "max(pod.priority, node.gpu.free)"]  # fmt: skip
LIMITS = ["0", "1", "2", "3", "23", "-1", "0.5"]
PATTERNS = ["w*", "*b", "*e*", "web", "w?b*", "*", "db*1", "*-*"]
REGEXES = ["w.*", "(web|db)", ".*", "[a-z]+-[0-9]"]


def is_test(draw, text):
    word = draw(st.sampled_from(WORDS))
    shape = draw(st.integers(0, 11))
    words = ", ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
    other = draw(st.sampled_from(TEXTS))
    return [
        f"{text} is {word}",
        f"{text} is not {word}",
        f"{text} in [{words}]",
        f"{text} not in [{words}]",
        f"{text} contains {word}",
        f"{text} starts with {word}",
        f"{text} ends with {word}",
        f"{text} like '{draw(st.sampled_from(PATTERNS))}'",
        f"{text} matches '{draw(st.sampled_from(REGEXES))}'",
        f"{text} is {draw(st.sampled_from(['missing', 'present']))}",
        f"{text} {draw(st.sampled_from(['==', '!=']))} {other}",
        f"({text} ?? {other}) is {word}",
    ][shape]


@st.composite
def condition(draw, depth):
    if depth > 0 and draw(st.integers(0, 3)) > 0:
        a, b = draw(condition(depth - 1)), draw(condition(depth - 1))
        shape = draw(st.integers(0, 9))
        if shape <= 4:
            return f"({a} and {b})"
        if shape <= 6:
            return f"({a} or {b})"
        if shape <= 8:
            return f"not ({a})"
        return f"({a}) == ({b})"
    shape = draw(st.integers(0, 9))
    if shape <= 4:
        text = draw(st.sampled_from(TEXTS[: draw(st.sampled_from([2, 8]))]))
        if draw(st.integers(0, 5)) == 0:
            text = f"lower({text})"
        return is_test(draw, text)
    if shape <= 7:
        number = draw(st.sampled_from(NUMBERS[: draw(st.sampled_from([3, len(NUMBERS)]))]))
        sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        limit = draw(st.sampled_from([*LIMITS, *LIMITS, *NUMBERS[:6]]))
        return draw(
            st.sampled_from(
                [f"{number} {sign} {limit}"] * 3
                + [
                    f"{number} in 1..3",
                    f"{number} not in [0, 1, 2.5]",
                    f"{number} is missing",
                    f"(if node.ready then {number} else {limit}) {sign} 1",
                ]
            )
        )
    return draw(
        st.sampled_from(
            ["node.ready", "node.taint t", "pod.qos is BestEffort", "pod.qos is not Burstable",
             "node.label k>2", "node.label k=web", "node.label k", "pod.tolerates_all",
             "pod.images contains web", "any(node.pods where it.name is web)"]
        )
    )  # fmt: skip


def one_node(rng):
    free = rng.choice([-1.0, 0.0, 1.0, 2.0, 3.0])
    fields = {
        "node.name": rng.choice(["n-1", "web"]),
        "node.label[k]": rng.choice(MAYBE),
        "node.label[app]": rng.choice(MAYBE),
        "node.zone": rng.choice(MAYBE),
        "node.gpu.free": free,
        "node.gpu.capacity": rng.choice([0.0, 1.0, 3.0, 24.0]),
        "node.ready": rng.random() < 0.5,
        "node.taint[t]": rng.random() < 0.5,
        "metrics": {"m1": rng.choice([0.0, 1.0, 2.0])} if rng.random() < 0.6 else {},
    }
    return {name: one for name, one in fields.items() if one is not None}


def one_pod(rng):
    space = rng.choice(WORDS)
    fields = {
        "pod.name": rng.choice([*WORDS, "Web", "web-web"]),
        "pod.namespace": space,
        "namespace.name": space,
        "pod.label[k]": rng.choice(MAYBE),
        "namespace.label[k]": rng.choice(MAYBE),
        "pod.priority": rng.choice([-1.0, 0.0, 1.0, 2.0, 3.0, 23.0]),
        "pod.gpu": rng.choice([0.0, 1.0, 2.0]),
        "pod.qos": rng.choice(["Guaranteed", "Burstable", "BestEffort"]),
        "pod.tolerates_all": rng.random() < 0.5,
        "pod.images": tuple(rng.sample(WORDS, rng.randrange(3))),
    }
    return {name: one for name, one in fields.items() if one is not None}


def make_worlds(seed, count):
    rng = random.Random(seed)
    worlds = []
    for _ in range(count):
        nodes = [one_node(rng) for _ in range(25)]
        pods = [{"it.name": rng.choice(WORDS), "on": rng.randrange(25)} for _ in range(20)]
        cycle = {"time.hour": float(rng.randrange(24)), "cluster.nodes": 25.0}
        subjects = [FakePod.of(one_pod(rng)) for _ in range(25)]
        worlds.append((FakeWorld(nodes, pods, cycle=cycle), subjects))
    return worlds


WORLDS = make_worlds(1, 3)
HEADER = 'metric m1 = promql "a" by node\nscore: m1 ?? 1\n'
SETTINGS = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def compiled(text):
    result = COMPILER.compile({"a.policy": text})
    refused = {one.code for one in result.diagnostics if one.is_error}
    return result if result.ok else (None if refused == {"P231"} else pytest.fail(text))


def everywhere(plan):
    for world, subjects in WORLDS:
        world.knows(plan)
        for subject in subjects:
            for row in range(world.nodes):
                yield world, subject, row


def empty(found):
    try:
        return found() == ()
    except Unknown:
        return False


def rejects(core, place):
    return not oracle.passes(core, *place)


def check_condition(text):
    result = compiled(HEADER + f"filter: {text}\n")
    if result is None:
        return 0
    plan = result.plans[0]
    cubes, right = Cubes(), plan.filters[0].core.right
    verdicts = [
        (wanted, part)
        for part in ir.walk(right)
        if part.type == right.type and part.level < 4
        for wanted in (True, False)
        if empty(lambda part=part, wanted=wanted: cubes.of(part, wanted=wanted))
    ]
    for wanted, part in verdicts:
        for world, subject, row in everywhere(plan):
            value = bool(reference.evaluate(part, reference.View(world, subject, row)))
            assert value != wanted, (text, part, row)
    return len(verdicts)


def check_rules(rules):
    result = compiled(HEADER + "".join(rules))
    if result is None:
        return
    plan = result.plans[0]
    first, second = (one.core for one in plan.filters)
    found = {one.code: one for one in result.diagnostics}
    if "P304" in found:
        for place in everywhere(plan):
            if rejects(second, place):
                assert rejects(first, place), render(result.diagnostics)
    if "P302" in found:
        check_contradiction(plan, first, second)


def check_contradiction(plan, *cores):
    """That no place passes two rules, for the pods that both are about."""
    for world, pod, row in everywhere(plan):
        if all(oracle.applies(one.guard, world, pod) for one in cores):
            assert any(rejects(one, (world, pod, row)) for one in cores), cores


@st.composite
def two_gates(draw):
    point = draw(st.sampled_from(["gate", "prefilter"]))
    first = draw(of_pod(1))
    second = draw(st.sampled_from([f"not ({first})", draw(of_pod(1)), draw(of_pod(0))]))
    left = [draw(st.sampled_from(["", f"{draw(of_pod(0))} -> "])) for _ in range(2)]
    return f"{point}: {left[0]}{first}\n{point}: {left[1]}{second}\n"


def check_gates(text):
    """Whether two gates were said to let no pod pass."""
    result = COMPILER.compile({"a.policy": HEADER + text})
    if not result.ok or "P302" not in {one.code for one in result.diagnostics}:
        return False
    plan = result.plans[0]
    check_contradiction(plan, *(one.core for one in plan.gates or plan.prefilters))
    return True


# ---- statements of which the first decides, waits and tiers

POD_TEXTS = ["pod.name", "pod.namespace", "pod.label[k]", "namespace.name", "namespace.label[k]",
             "pod.workload", "pod.priority_class", "pod.image", "pod.owner.name"]  # fmt: skip


@st.composite
def of_pod(draw, depth):
    """A condition of the pod alone."""
    if depth > 0 and draw(st.booleans()):
        a, b = draw(of_pod(depth - 1)), draw(of_pod(depth - 1))
        return draw(st.sampled_from([f"({a} and {b})", f"({a} or {b})", f"not ({a})"]))
    text, word = draw(st.sampled_from(POD_TEXTS)), draw(st.sampled_from(WORDS))
    number = draw(st.sampled_from(["pod.priority", "pod.gpu", "time.hour"]))
    limit = draw(st.sampled_from(["0", "1", "2", "23"]))
    return draw(
        st.sampled_from(
            [f"{text} is {word}", f"{text} is not {word}", f"{text} contains {word}",
             f"{text} in [{word}, web]", f"{text} is missing", f"{text} is present",
             f"{number} > {limit}", f"{number} <= {limit}", f"{number} == {limit}",
             f"pod.images contains {word}", "pod.host_network"]
        )
    )  # fmt: skip


def all_hold(conditions, place):
    view = reference.View(*place)
    return all(bool(reference.evaluate(one, view)) for one in conditions if one is not None)


def takes(core):
    """What must hold for a statement to apply."""
    return [core.guard, *([core.left] if isinstance(core, ir.PermitCore) else [])]


@st.composite
def two_that_decide(draw):
    point = draw(st.sampled_from(["permit", "bind", "preempt"]))
    some = condition if point == "permit" else of_pod
    first, second = draw(some(2)), draw(some(1))
    if draw(st.integers(0, 2)):
        more = draw(some(0))
        second = draw(st.sampled_from([f"({first}) and {more}", first, f"{more} and ({first})"]))
    ends = {
        "permit": ("allow", "reject"),
        "bind": ("dry run", "with other"),
        "preempt": ("never", "victims where it.priority < pod.priority"),
    }[point]
    head = draw(st.sampled_from(["", f"applies to: {draw(of_pod(0))}\n"]))
    a, b = draw(st.sampled_from(ends)), draw(st.sampled_from(ends))
    left = draw(st.sampled_from(["", f"{first} -> "]))
    return f"{head}{point}: {left}{a}\n{point}: {second} -> {b}\n"


def check_decided(text):
    """Whether it was said that the second line never decides; fails where it does."""
    result = COMPILER.compile({"a.policy": HEADER + text})
    found = {one.code: one for one in result.diagnostics}
    if any(one.is_error and one.code != "P504" for one in result.diagnostics):
        assert set(found) <= {"P231", "P504", *(one for one in found if one[1] == "3")}, text
        return False
    (plan,) = result.understood
    first, second = (one.core for one in plan.permits or plan.binds or plan.preempts)
    never = bool({"P304", "P504"} & set(found))
    line = HEADER.count("\n") + text.count("\n")
    dead = any(
        one.code == "P301"
        and one.message == "this rule never applies"
        and one.source.position(one.span.start)[0] == line
        for one in result.diagnostics
    )
    for place in everywhere(plan) if never or dead else ():
        if all_hold(takes(second), place):
            assert not dead, render(result.diagnostics)
            assert all_hold(takes(first), place), render(result.diagnostics)
    if "P504" in found:
        assert (first.kind, first.name) != (second.kind, second.name)
    return never


def rule(draw):
    keyword = draw(st.sampled_from(["filter", "forbid"]))
    left = draw(st.sampled_from(["", draw(condition(1)) + " -> "]))
    return f"{keyword}: {left}{draw(condition(2))}\n"


@st.composite
def two_rules(draw):
    first = rule(draw)
    if draw(st.booleans()):
        head, _, tail = first.partition(" ")
        more = draw(condition(0))
        left, arrow, right = tail.rstrip("\n").rpartition(" -> ")
        if arrow:
            return [first, f"{head} ({left}) and {more} -> {right}\n"]
        return [
            first,
            draw(st.sampled_from([f"{head} {more} -> {right}\n", f"{head} ({right})\n"])),
        ]
    return [first, rule(draw)]


PLAIN = ["cpu_usage", "time.hour", "node.gpu.capacity", "hash(node.name)", "pod.gpu", "2", "50",
         "100", "0.5", "bandwidth/max", "node.gpu.free", "len(node.name)"]  # fmt: skip


@st.composite
def number(draw, depth):
    if depth <= 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(PLAIN[:-3] if depth < 0 else PLAIN))
    a, b = draw(number(depth - 1)), draw(number(depth - 1))
    return draw(
        st.sampled_from(
            [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"min({a}, {b})",
             f"max({a}, {b})", f"clamp({a}, 0, 100)", f"abs({a})", f"-({a})", f"({a} ?? {b})",
             f"(if node.ready then {a} else {b})", f"max({a} over nodes)"]
        )
    )  # fmt: skip


def check_bounds(text):
    plan = COMPILER.compile({"a.policy": f"score: {text} normalize minmax\n"}).plans
    if not plan or not plan[0].scores:
        return
    (policy,) = plan
    core = policy.scores[0].core
    metrics = {one.name: one for one in policy.metrics}
    found = Ranges(FileFacts(policy.source, (), (), metrics)).range(core.value)
    rng = random.Random(text)
    for world, subjects in make_worlds(rng.random(), 1):
        for node in world._nodes:
            node["metrics"] = {"cpu_usage": rng.choice([0.0, 0.5, 1.0]),
                               "bandwidth": rng.choice([0.0, 5.0, 9.0])}  # fmt: skip
        world.knows(policy)
        rows = tuple(range(world.nodes))
        for subject in subjects[:5]:
            known = {}
            for row in rows:
                view = reference.View(world, subject, row, rows, known=known)
                value = reference.evaluate(core.value, view)
                slack = 1e-9 * max(1.0, abs(value))
                assert value != value or found.low - slack <= value <= found.high + slack, text


@SETTINGS
@given(condition(3))
def test_never_and_always_hold_in_all_worlds(text):
    check_condition(text)


@SETTINGS
@given(two_rules())
def test_implied_and_contradicting_rules_are_so(rules):
    check_rules(rules)


@SETTINGS
@given(two_gates())
def test_gates_that_let_nothing_pass_do_not(text):
    check_gates(text)


@pytest.mark.parametrize(
    "text",
    [
        "gate: pod.workload is a\ngate: pod.workload is b\n",
        "gate: time.hour in 3..5\ngate: time.hour in 8..9\n",
        "gate: pod.images contains web -> pod.name is a\ngate: pod.name is b\n",
        "prefilter: pod.priority > 2 -> pod.label k=a\nprefilter: pod.label k=b\n",
    ],
)
def test_gates_that_are_told_of(text):
    assert check_gates(text)


@SETTINGS
@given(number(3))
def test_numbers_stay_within_their_bounds(text):
    check_bounds(text)


@SETTINGS
@given(two_that_decide())
def test_lines_that_never_decide_do_not(text):
    check_decided(text)


def test_something_is_found_at_all():
    assert check_decided("permit: pod.gpu > 0 -> allow\npermit: pod.gpu > 1 -> reject\n")
    assert check_decided("bind: dry run\nbind: pod.gpu > 1 -> with other\n")
    assert check_decided("preempt: pod.gpu > 0 -> never\npreempt: pod.gpu > 0 -> never\n")
    assert check_condition("pod.priority > 5 and pod.priority < 3")
    found = compiled(
        "filter: pod.priority > 3 -> node.ready\nfilter: pod.priority > 5 -> node.ready\n"
    )
    assert [one.code for one in found.diagnostics] == ["P304"]
