"""The plan and the reference agree bit for bit, on full passes and on single rows.

Every statement that a plan runs by itself; `preempt:`, `gang:` and `quota:` have tests of their
own.
"""

import math
import random
import re
from collections import Counter
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption
from msgspec import structs

from dsl import ir, reasons, reference
from dsl.analysis import Size
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.lower import Memo, lower_values
from dsl.plan import Effect, Plan, effects_of, stop_by
from dsl.schema import FIELDS, POD_SETS
from dsl.types import Kind, show
from tests.dsl import oracle
from tests.dsl.bothways import effects, policy_score, prefers, sort_key
from tests.dsl.random_worlds import RandomPod, RandomWorld, Rows
from tests.dsl.worlds import FakePod, FakeWorld
from tests.effort import examples
from tests.properties import policies as p

COMPILER = Compiler()
#: The bound on costs is no matter of what a policy means.
SMALL = Size(nodes=10, pods=10)
RESULTS = {"score.total": 93.5, "score[a]": 12.25}
#: What a long expression may be refused for although it is well typed.
TOO_MUCH = {"P321", "P006"}

seeds = st.integers(0, 2**32).map(str)


def written(kind):
    """A strategy of what `kind(writer)` writes."""

    @st.composite
    def text(draw):
        return kind(p.Writer(draw))

    return text()


@st.composite
def worlds(draw):
    own = draw(seeds)
    # Sometimes so many that single rows are brought up to date instead of all.
    count = draw(st.sampled_from((1, 2, 3, 3, 4, 4, 5, 24)))
    empty = draw(st.sets(st.integers(1, 4), max_size=1))
    nodes = tuple("" if row in empty else f"{own}/node {row}" for row in range(count))
    rows = [row for row, one in enumerate(nodes) if one]

    def pods(name, places, most):
        return tuple(
            (f"{own}/{name} {at}", draw(st.sampled_from(places)))
            for at in range(draw(st.integers(0, most)))
        )

    running = pods("pod", (-1, *rows, *rows), 7)
    tables = (
        ("queue", pods("queued", (0,), 3)),
        ("nominated", pods("nominated", (-1, *rows), 3)),
        ("finished", pods("finished", (-1, *rows), 3)),
    )
    return RandomWorld(Rows(nodes, running, own, tables))


subjects = seeds.map(RandomPod)


def compiled(text):
    result = COMPILER.compile({"a.policy": p.HEADER + text}, size=SMALL)
    errors = {one.code for one in result.diagnostics if one.is_error}
    if errors and errors <= TOO_MUCH:
        reject()
    assert result.ok, text + "\n" + render(result.diagnostics)
    return result.plans[0]


def same(left, right):
    """Equal bit for bit, but for the sign of zero, of one kind, missing ones alike."""
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and left == right


def all_same(left, right):
    return len(left) == len(right) and all(map(same, left, right))


def rows_of(world):
    return np.flatnonzero(world.present)


# ---- filters


def check_filter(plan, world, pod, change):
    rule = plan.filters[0]
    parts = rule.prepare(pod, world)
    rows = rows_of(world)
    expected = [oracle.passes(rule.core, world, pod, row) for row in rows.tolist()]
    if parts is None:
        assert all(expected)
        return
    hash(parts)
    column = rule.verdict(parts, world, slice(0, world.nodes))
    assert column.dtype == np.bool_
    assert column.shape == (world.nodes,)
    assert column[rows].tolist() == expected
    assert rule.verdict(parts, world, rows).tolist() == expected
    for row, passed in zip(rows.tolist(), expected, strict=True):
        assert rule.verdict(parts, world, np.array([row])).tolist() == [passed]
        if not passed:
            view = reference.View(world, pod, row)
            said = rule.message(pod, world, row)
            assert said == reasons.message(rule.core, plan.source.text, reference.asked(view))
    old = column.copy()
    after, touched = change(world)
    parts = rule.prepare(pod, after)
    if parts is not None:
        # The row pass first, so that nothing can be left over from the full one.
        some = rule.verdict(parts, after, touched)
        full = rule.verdict(parts, after, slice(0, after.nodes))
        assert some.tolist() == full[touched].tolist()
        for row in touched.tolist():
            assert full[row] == oracle.passes(rule.core, after, pod, row)
        if rule.row_local:
            old[touched] = some
            assert old[rows].tolist() == full[rows].tolist()


@st.composite
def changes(draw):
    """What changes some rows of a world, and tells which."""
    chosen = draw(st.lists(st.integers(0, 4), min_size=1, max_size=2))
    own = draw(seeds)

    def change(world):
        rows = rows_of(world)
        touched = np.unique([rows[one % len(rows)] for one in chosen])
        return world.after(touched.tolist(), own), touched

    return change


def side(place, depth):
    return written(lambda w: w.flag(place, depth))


@st.composite
def filters(draw, depth=3):
    w = p.Writer(draw)
    if w.one((True,) + (False,) * 12):
        by = w.one(("", f" peers by {w.one(('pod.label[app]', 'pod.priority', 'pod.namespace'))}"))
        return f"spread: over {w.one(DOMAINS)} skew {w.one('123')}{by} hard"
    left = f"{w.flag(p.DECIDES, depth - 2)} -> " if w.one((True, False)) else ""
    hole = f' message "no: {{{w.number(p.NODE, 1)}}}{{{{}}}}"' if w.one((True, False)) else ""
    return f"{w.one(('filter', 'require', 'forbid'))}: {left}{w.flag(p.DECIDES, depth)}{hole}"


DOMAINS = ("node", "zone", "region", "rack", '"k"')


# ---- scores


def check_score(plan, world, pod, candidates, change):
    rule = plan.scores[0]
    parts = rule.prepare(pod, world)
    expected = oracle.scores(rule.core, world, pod, candidates.tolist())
    if parts is None:
        assert expected is None
        return
    hash(parts)
    raw = rule.column(parts, world, candidates, candidates).copy()
    assert raw.dtype == np.float64
    chosen = tuple(candidates.tolist())
    for row, one in zip(chosen, raw.tolist(), strict=True):
        view = reference.View(world, pod, row, chosen)
        assert same(one, float(reference.evaluate(rule.core.value, view)))
        single = rule.column(parts, world, np.array([row]), candidates)
        assert same(single.tolist()[0], one)
    full = rule.column(parts, world, slice(0, world.nodes), candidates)
    assert all_same(full[candidates].tolist(), raw.tolist())
    finished = rule.finish(raw)
    assert (None if finished is None else finished.tolist()) == expected
    if finished is not None:
        assert ((finished >= 0) & (finished <= 100)).all()
    total = plan.score([one.prepare(pod, world) for one in plan.scores], world, candidates)
    all_parts = [(one.weight, oracle.scores(one.core, world, pod, chosen)) for one in plan.scores]
    whole = policy_score(all_parts)
    assert (None if total is None else total.tolist()) == whole
    old = full.copy()
    after, touched = change(world)
    parts = rule.prepare(pod, after)
    if parts is not None:
        some = rule.column(parts, after, touched, candidates).copy()
        full = rule.column(parts, after, slice(0, after.nodes), candidates)
        assert all_same(some.tolist(), full[touched].tolist())
        if rule.row_local:
            old[touched] = some
            rows = rows_of(after)
            assert all_same(old[rows].tolist(), full[rows].tolist())


@st.composite
def scores(draw, depth=3):
    w = p.Writer(draw)
    lines = [f"normalize: {w.one(p.NORMS)}"] if w.one((True, False, False)) else []
    if w.one((True, False, False)):
        lines.append(f"prescore: {w.flag(p.SCORED, 1)}")
    for _ in range(w.one((1, 1, 2))):
        left = f"{w.flag(p.SCORED, 1)} -> " if w.one((True, False, False)) else ""
        weight = w.one(("", "", " weight 2", " weight 0.5", " weight 0"))
        lines.append(_score_line(w, depth, left) + weight)
    return "\n".join(lines)


def _score_line(w, depth, left):
    shape = w.one(("score", "score", "score", "score", "bare", "prefer", "avoid", "most", "spread"))
    missing = w.one(("", "", " missing 40"))
    norm = ""
    if w.one((True, False)):
        norm = f" normalize {w.one((*p.NORMS, ''))} {w.one(('', 'reverse'))}".rstrip()
        norm = "" if norm == " normalize" else norm
    if shape == "score":
        return f"score: {left}{w.number(p.NODE, depth)}{norm}{missing}"
    if shape == "bare":
        name, function = w.one(("m1", "node.pods.free", "node.gpu.free")), w.one(p.REDUCERS)
        return f"score: {left}100 - {name}/{function}*100{norm}{missing}"
    if shape in ("prefer", "avoid"):
        return f"{shape}: {left}{w.flag(p.NODE, depth)}"
    if shape == "most":
        kind = w.one(("cores", "bytes", "seconds", "time"))
        return f"prefer: {left}{w.one(('least', 'most'))} {w.sized(p.NODE, depth, kind)}{missing}"
    by = w.one(("", " peers by pod.label[app]"))
    return f"spread: {left}over {w.one(DOMAINS)}{w.one(('', ' skew 2'))}{by}"


# ---- before the nodes, and on the chosen one


def told(rules, world, pod, row, text):
    """What conditions say of a pod: the first that refuses, and its words."""
    for rule in rules:
        if not oracle.passes(rule.core, world, pod, row):
            message = reasons.message(
                rule.core, text, reference.asked(reference.View(world, pod, row))
            )
            return rule.id, message
    return None


def stopped(stop):
    return None if stop is None else (stop.rule.id, stop.message)


@st.composite
def conditions(draw, point, place):
    """Several lines of one point."""
    w = p.Writer(draw)
    lines = []
    for _ in range(w.one((1, 2))):
        left = f"{w.flag(place, 1)} -> " if w.one((True, False)) else ""
        words = f' message "why: {{{w.text(place, 1)}}}"' if w.one((True, False)) else ""
        lines.append(f"{point}: {left}{w.flag(place, 3)}{words}")
    return "\n".join(lines)


def check_gates(plan, world, pod):
    text = plan.source.text
    assert stopped(stop_by(plan.gates, pod, world)) == told(plan.gates, world, pod, -1, text)
    assert stopped(stop_by(plan.prefilters, pod, world)) == told(
        plan.prefilters, world, pod, -1, text
    )


def check_reserves(plan, world, pod):
    for row in rows_of(world).tolist():
        expected = told(plan.reserves, world, pod, row, plan.source.text)
        assert stopped(stop_by(plan.reserves, pod, world, row)) == expected


@st.composite
def permits(draw):
    w = p.Writer(draw)
    lines = []
    for _ in range(w.one((1, 2, 3))):
        left = f"{w.flag(p.DECIDES, 2)} -> " if w.one((True, True, False)) else ""
        words = f' message "later: {{{w.number(p.NODE, 1)}}}"' if w.one((True, False)) else ""
        until = w.flag(p.DECIDES, 2)
        decision = w.one(
            (
                "allow",
                f"reject{words}",
                f"wait 60s until {until}{words}",
                f"wait $span until {until}, then allow",
                f"wait 2m until {until}, then reject{words}",
            )
        )
        lines.append(f"permit: {left}{decision}")
    return "\n".join(lines)


def permission(plan, world, pod, row, waited):
    """What the first `permit:` that applies says, in the words of the reference."""
    for rule in plan.permits:
        core, view = rule.core, reference.View(world, pod, row)
        if not oracle.at_node(core.guard, core.left, view):
            continue
        verdict = core.decision
        if verdict == "wait" and reference.evaluate(core.until, view):
            verdict = "allow"
        elif verdict == "wait" and waited >= core.seconds:
            verdict = core.then
        ask = reference.asked(view)
        told = rule.text if core.message is None else reasons.filled(core.message, ask)
        return verdict, rule, told if verdict != "allow" else ""
    return "allow", None, ""


def check_permits(plan, world, pod):
    for row in rows_of(world).tolist():
        for waited in (0.0, 75.0, 1e4):
            found = plan.permitted(pod, world, row, waited)
            expected = permission(plan, world, pod, row, waited)
            assert (found.verdict, found.rule, found.message) == expected


@st.composite
def actions(draw):
    w = p.Writer(draw)
    lines = []
    for _ in range(w.one((1, 2))):
        left = f"{w.flag(p.NODE, 2)} -> " if w.one((True, False)) else ""
        done = ", ".join(_action(w, at) for at in range(w.one((1, 2, 3))))
        lines.append(f"{w.one(('prebind', 'postbind'))}: {left}{done}")
    return "\n".join(lines)


def _action(w, at):
    value = any_value(w, p.RESULT, 2)
    if w.one((True, False, False)):
        return f'event "{at}: {{{value}}} and {{{{}}}}"'
    return f"{w.one(('annotate', 'label'))} example.com/k{at} = {value}"


def any_value(w, place, depth):
    kind = w.one(("number", "number", "text", "text", "flag", "sized"))
    if kind == "sized":
        return w.sized(place, depth, w.one(("cores", "bytes", "seconds", "time")))
    return getattr(w, kind)(place, depth)


def check_actions(plan, world, pod):
    for row in rows_of(world).tolist():
        view = reference.View(world, pod, row, results=RESULTS)
        for rules in (plan.prebinds, plan.postbinds):
            expected = [one for rule in rules for one in effects(rule.core, view)]
            done = effects_of(rules, pod, world, row, RESULTS)
            assert list(done) == expected
            assert all(isinstance(one, Effect) for one in done)


@st.composite
def orders(draw):
    w = p.Writer(draw)
    keys = []
    for _ in range(w.one((1, 2, 3))):
        if w.one((True, False, False, False)):
            keys.append(w.one(("pod.qos [Guaranteed, BestEffort]", "pod.name [db, web]")))
            continue
        kind = w.one(("number", "text", "time"))
        value = w.sized(p.QUEUE, 2, kind) if kind == "time" else getattr(w, kind)(p.QUEUE, 2)
        keys.append(f"({value}) {w.one(('', 'asc', 'desc'))}".rstrip())
    return f"sort: {', '.join(keys)}"


def check_orders(plan, world, pods):
    core = plan.sorts[0].core
    found = [plan.sort_key(pod, world) for pod in pods]
    expected = [sort_key(core, world, pod) for pod in pods]
    assert [repr(one) for one in found] == [repr(one) for one in expected]
    assert sorted(found) == sorted(expected)


@st.composite
def tiers(draw):
    w = p.Writer(draw)
    lines = []
    for _ in range(w.one((1, 2, 3))):
        left = f"{w.flag(p.SCORED, 1)} -> " if w.one((True, False, False)) else ""
        lines.append(f"first: {left}{w.flag(p.NODE, 2)}")
    return "\n".join(lines)


def check_tiers(plan, world, pod, candidates):
    best = [True] * len(candidates)
    for rule in plan.tiers:
        expected = prefers(rule.core, world, pod, candidates.tolist())
        parts = rule.prepare(pod, world)
        assert (parts is None) == (expected is None)
        if parts is None or expected is None:
            continue
        hash(parts)
        assert rule.mask(parts, world, candidates).tolist() == expected
        both = [a and b for a, b in zip(best, expected, strict=True)]
        best = both if any(both) else best
    found = plan.preferred(pod, world, candidates)
    if found is not None:
        assert found.tolist() == best
    else:
        assert all(best)


@st.composite
def binders(draw):
    w = p.Writer(draw)
    return f"bind: {w.flag(p.SCORED, 2)} -> {w.one(('default', 'dry run', 'with other'))}"


def check_binders(plan, world, pod):
    expected = (rule for rule in plan.binds if oracle.applies(rule.core.guard, world, pod))
    assert plan.binder(pod, world) is next(expected, None)


def check_value(expression, world, pod):
    """Any value on each node, as the plan and as the reference have it."""
    values = lower_values(Memo())
    for row in rows_of(world).tolist():
        view = reference.View(world, pod, row, results=RESULTS)
        expected = reference.evaluate(expression, view)
        found = values(pod, world, row, RESULTS)(expression)
        assert same(found, expected), (found, expected)
        assert isinstance(show(found, expression.type), str)


# ---- the properties

SETTINGS = settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def chosen_of(data, world):
    rows = rows_of(world).tolist()
    return np.array(data.draw(st.lists(st.sampled_from(rows), unique=True)), np.intp)


@settings(SETTINGS, max_examples=examples(150))
@given(filters(), worlds(), subjects, changes())
def test_filters_agree(text, world, pod, change):
    check_filter(compiled(text), world, pod, change)


@settings(SETTINGS, max_examples=examples(150))
@given(scores(), worlds(), subjects, changes(), st.data())
def test_scores_agree(text, world, pod, change, data):
    check_score(compiled(text), world, pod, chosen_of(data, world), change)


@SETTINGS
@given(
    written(lambda w: w.number(p.NODE, 2)), written(lambda w: w.flag(p.NODE, 2)),
    written(lambda w: w.text(p.NODE, 2)), worlds(), subjects, changes(),
)  # fmt: skip
def test_lets_agree(number, flag, word, world, pod, change):
    text = (
        f"let a = {number}\nlet b = {flag}\nlet d = {word}\n"
        "let c = if b and d in words then a + a else a ?? len(d)\n"
        "score: c - a * max(c where b) + count(node.pods where it.name == d or a > it.priority)\n"
    )
    check_score(compiled(text), world, pod, rows_of(world), change)


@SETTINGS
@given(conditions("gate", p.POD), conditions("prefilter", p.PREFILTER), worlds(), subjects)
def test_gates_and_prefilters_agree(gates, prefilters, world, pod):
    check_gates(compiled(f"{gates}\n{prefilters}"), world, pod)


@SETTINGS
@given(conditions("reserve", p.CHOSEN), worlds(), subjects)
def test_reserves_agree(text, world, pod):
    check_reserves(compiled(text), world, pod)


@SETTINGS
@given(permits(), worlds(), subjects)
def test_permits_agree(text, world, pod):
    check_permits(compiled(text), world, pod)


@settings(SETTINGS, max_examples=examples(80))
@given(actions(), worlds(), subjects)
def test_actions_agree(text, world, pod):
    check_actions(compiled(text), world, pod)


@SETTINGS
@given(orders(), worlds(), st.lists(subjects, min_size=2, max_size=4))
def test_orders_agree(text, world, pods):
    check_orders(compiled(text), world, pods)


@SETTINGS
@given(tiers(), worlds(), subjects, st.data())
def test_tiers_agree(text, world, pod, data):
    check_tiers(compiled(text), world, pod, chosen_of(data, world))


@SETTINGS
@given(binders(), worlds(), subjects)
def test_binders_agree(text, world, pod):
    check_binders(compiled(text), world, pod)


def test_what_the_whole_cluster_has_is_not_a_matter_of_one_row():
    """A verdict about the cluster is asked anew of all nodes when one of them changes."""
    assert not compiled("filter: cluster.cpu.free >= 2").filters[0].row_local
    assert not compiled("filter: node.gpu.free < cluster.nodes").filters[0].row_local
    assert compiled("filter: node.gpu.free < pod.gpu").filters[0].row_local


def verdict_of(plan, world, pod):
    rule = plan.filters[0]
    return rule.verdict(rule.prepare(pod, world), world, slice(0, world.nodes))


def test_a_text_that_no_column_had_before_is_found_in_the_first_list():
    """The dictionary has a text only once its column was read."""
    plan = compiled("filter: node.images contains nginx or pod.image in node.images")
    world = FakeWorld([{"node.images": ("nginx",)}, {"node.images": ("redis",)}, {}])
    pod = FakePod.of({"pod.image": "redis"})
    assert verdict_of(plan, world, pod).tolist() == [True, True, False]


# ---- every field, once


def a_world(number):
    own = f"w{number}"
    nodes = tuple(f"{own}/{row}" if row != 1 else "" for row in range(4))
    pods = tuple((f"{own}/pod {at}", (0, 0, 2, 3, -1, 3)[at]) for at in range(6))
    tables = tuple(
        (name, tuple((f"{own}/{name} {at}", (0, 2)[at]) for at in range(2)))
        for name in ("queue", "nominated", "finished")
    )
    return RandomWorld(Rows(nodes, pods, own, tables))


def every_leaf():
    """Each leaf where it may stand: the statement's value, and how `it` gets its meaning."""
    for place, form in (
        (p.RESULT, "{}"),
        (p._its(p.RESULT, "node.pods"), "{} over node.pods"),
        (p._its(p.RESULT, "node.finished"), "{} over node.finished"),
        (p._its(p.RESULT, "zone.pods"), "{} over zone.pods"),
        (p._its(p.RESULT, "queue.pods"), "{} over queue.pods"),
        (p._CONTAINER, "{} over pod.containers"),
    ):
        for kind, texts in p.leaves(place).items():
            for text in texts:
                yield kind, text, form


def one_value(kind, text, form):
    """An expression of one value that has the leaf in it."""
    if form == "{}":
        return f"len({text})" if kind == "list" and not text.startswith("[") else text
    if kind == "list":
        text, kind = f"'web' in {text}", "flag"
    if kind == "text":
        text, kind = f"({text} ?? 'none') in [web, db, none]", "flag"
    if "score" in text:
        return None
    return f"{'count' if kind == 'flag' else 'max'}({form.format(text)})"


def values_of(texts):
    """Each expression compiled, many in one file."""
    kept = [one for one in texts if one is not None and not one.startswith("[")]
    for start in range(0, len(kept), 60):
        lines = [f"postbind: annotate k{at} = {one}" for at, one in enumerate(kept[start:][:60])]
        plan = compiled("\n".join(lines))
        for rule in plan.postbinds:
            yield rule.text, rule.core.actions[0].value


@pytest.mark.slow
def test_every_leaf_agrees_and_every_field_is_one():
    read = set()
    pods = [RandomPod(f"s{number}") for number in range(2)]
    spread = [a_world(number) for number in range(2)]
    texts = list(dict.fromkeys(one_value(*one) for one in every_leaf()))
    for _, expression in values_of(texts):
        for node in ir.walk(expression):
            if isinstance(node, ir.Read | ir.KeyedRead):
                read.add(node.field)
            elif isinstance(node, ir.ContainerRead):
                read.add(f"it.{node.field}")
        for world in spread:
            for pod in pods:
                check_value(expression, world, pod)
    # Sets are no values; `victims` are known in `pick` alone.
    sets = (Kind.PODS, Kind.NODES)
    others = {name for name, one in FIELDS.items() if one.type.kind in sets}
    others |= {name for name in FIELDS if name.startswith("victims.")}
    assert set(FIELDS) - read == others


class Seeded(p.Writer):
    """Writes the same on every run."""

    def __init__(self, number):
        self._random = random.Random(number)

    def one(self, choices):
        return self._random.choice(choices)


def some_texts():
    """Values of all shapes, and each aggregate over each set."""
    sets = (*p.POD_SETS, *p.NODE_SETS, "nodes", "candidates", "pod.containers")
    functions = len(AGGREGATES)
    for number in range(264):
        w = Seeded(number)
        yield any_value(w, p.NODE, 4)
        yield w.call(p.NODE, 1)
        yield w.text_test(p.NODE, 1)
        function = AGGREGATES[number % functions]
        kind = "flag" if function in p.TESTS else "number"
        kind = w.one(("text", "number", "time")) if function == "distinct" else kind
        yield w.aggregate_over(p.NODE, 2, function, kind, sets[number // functions % len(sets)])


@pytest.mark.slow
def test_every_function_aggregate_and_operator_is_written():
    """What some runs of the strategies write has all there is."""
    names, kinds, sets, signs = Counter(), Counter(), Counter(), Counter()
    texts = list(some_texts())
    names.update(name for text in texts for name in re.findall(r"\b([a-z_0-9]+)\(", text))
    for _, expression in values_of(texts):
        for node in ir.walk(expression):
            kinds[type(node)] += 1
            if isinstance(node, ir.PodAggregate):
                sets[node.over, node.table] += 1
                signs[node.function, "pods"] += 1
            elif isinstance(node, ir.NodeAggregate):
                signs[node.function, node.over] += 1
            elif isinstance(node, ir.ContainerAggregate):
                signs[node.function, "containers"] += 1
            elif isinstance(node, ir.Compare | ir.TextTest):
                signs[node.operator] += 1
    # `peers` stands for an aggregate and is written by `spread:`.
    assert set(FUNCTIONS) - set(names) == {"peers"}
    assert {leaf for one in ir.Expr.__args__ for leaf in one.__subclasses__() or [one]} == set(
        kinds
    )
    assert set(POD_SETS.values()) <= set(sets)
    assert any(over.startswith("label:") for over, _ in sets)
    for over in ("pods", "nodes", "candidates", "containers", "zone", "region", "rack", "label:k"):
        assert {(name, over) for name in AGGREGATES} <= set(signs), over
    assert {"==", "<", "<=", ">", ">=", *p.TEXT_TESTS} <= set(signs)


@pytest.mark.slow
def test_what_is_always_written_agrees():
    """Conditions and values of all kinds, the same on every run."""

    def change(world):
        return world.after([0], "new"), np.array([0])

    for number in range(400):
        w, world, pod = Seeded(number), a_world(number % 3), RandomPod(f"s{number}")
        with suppress(UnsatisfiedAssumption):
            check_filter(compiled(f"filter: {w.flag(p.DECIDES, 3)}"), world, pod, change)
            plan = compiled(f"score: {w.number(p.NODE, 3)}")
            check_score(plan, world, pod, rows_of(world), change)


def test_every_statement_is_written():
    """Each tuple of rules of a plan is checked here or by the tests of the engines."""
    checked = {
        "filters", "scores", "gates", "sorts", "prefilters", "tiers", "reserves", "permits",
        "prebinds", "binds", "postbinds",
    }  # fmt: skip
    of_engines = {"preempts", "gangs", "quotas"}
    slots = {one.name for one in structs.fields(Plan) if "Rule, ..." in str(one.type)}
    assert slots == checked | of_engines


@pytest.mark.slow
@settings(SETTINGS, max_examples=examples(250))
@given(filters(5), worlds(), subjects, changes())
def test_deep_filters_agree(text, world, pod, change):
    check_filter(compiled(text), world, pod, change)


@pytest.mark.slow
@settings(SETTINGS, max_examples=examples(250))
@given(scores(5), worlds(), subjects, changes(), st.data())
def test_deep_scores_agree(text, world, pod, change, data):
    check_score(compiled(text), world, pod, chosen_of(data, world), change)
