"""What the webhook says of a ConfigMap is what the scheduler would do with it."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cli import main
from engine.clock import ManualClock
from engine.objects import ConfigMap, ObjectMeta
from engine.policy.reloader import Kept, digest
from engine.policy.sources import files_of, passed_over
from engine.serving.server import BadCallError
from engine.webhook.judging import Answer, Judge, Question
from tests.effort import examples
from tests.engine.policy.builders import in_force

NAMED, OTHER, CHOSEN = ("berth", "policies"), ("berth", "more"), ("teams", "green")
TENANT = ("team-a", "own")
TENANTS = {"configMap": "own", "namespaces": ["team-*"]}
SOURCES = [
    {"configMap": "berth/policies"},
    {"configMap": "berth/more"},
    {"selector": "policies=yes,stage in (a, b)", "namespace": "teams"},
]
LABELS = {"policies": "yes", "stage": "a"}
GOOD = "filter: node.label test=test\n"
BROKEN = "filter: node.lable test=test\n"
SORTS = "sort: pod.priority desc\n"
WARNS = "filter: pod.name contains nginx\nfilter: pod.name contains nginx\n"


def config_map(key, labels=None, binary=None, **texts):
    namespace, name = key
    return ConfigMap(
        ObjectMeta(name, namespace, labels=labels or {}),
        {name if "." in name else f"{name}.policy": text for name, text in texts.items()},
        None if binary is None else {"x.policy": base64.b64encode(binary).decode()},
    )


class Process:
    """The policies of a process, fed with ConfigMaps by hand."""

    def __init__(self, *sources, there=(3, 10), clock=None):
        policies = {"sources": sources or SOURCES, "tenants": TENANTS}
        self.clock = clock or ManualClock()
        self.there = there
        self.remembered = {}
        self.not_ready = ""
        self.in_force = in_force(policies, clock=self.clock, there=lambda: self.there)
        self.in_force.connect(None, None, lambda: False)
        self.seen = {}
        for _, handler in self.in_force.configured.watched:
            handler.on_synced()

    async def _remember(self):
        return self.remembered

    def put(self, config_map):
        key = config_map.metadata.namespace, config_map.metadata.name
        old, self.seen[key] = self.seen.get(key), config_map
        for resource, handler in self.in_force.configured.watched:
            within = f"/{key[0]}/" in resource.path or "namespaces" not in resource.path
            by_name = resource.field_selector == f"metadata.name={key[1]}"
            if within and (by_name or resource.label_selector):
                handler.on_add(config_map) if old is None else handler.on_update(old, config_map)
        while any(work.step(1e9) for work in self.in_force.background):
            pass

    def refusal(self, config_map):
        source = self.in_force.configured.source_of(config_map.metadata)
        return self.in_force.reloader_of(source).refusal_of(source)

    def judge(self, new, old=None):
        async def main():
            judge = Judge(
                self.in_force,
                self.clock,
                remembered=self._remember,
                not_ready=lambda: self.not_ready,
            )
            return await judge.judge(Question("u", "UPDATE", old, new))

        return asyncio.run(main())


@pytest.fixture
def process():
    made = Process()
    made.put(config_map(NAMED, a=GOOD))
    made.put(config_map(OTHER, b="score: 50\n"))
    return made


def test_a_broken_policy_is_answered_with_what_check_prints(process, tmp_path):
    answer = process.judge(config_map(NAMED, a=BROKEN, c=GOOD))
    folder = tmp_path / "berth/policies"
    folder.mkdir(parents=True)
    (folder / "a.policy").write_text(BROKEN)
    printed = CliRunner().invoke(main, ["check", str(folder / "a.policy")]).stdout
    assert "^" in printed
    assert answer.refusal == (
        "ConfigMap berth/policies was refused, and nothing changed:\n\n"
        + printed.replace(f"{tmp_path}/", "")
    )
    assert process.refusal(config_map(NAMED)) is None, "nothing was put in force"
    assert process.in_force.bundle.files["berth/policies/a.policy"] == GOOD


def test_a_good_policy_passes_with_its_own_warnings(process):
    assert process.judge(config_map(NAMED, a=GOOD, c="sort: pod.created\n")) == Answer()
    process.put(config_map(OTHER, other=WARNS))
    (warning,) = process.judge(config_map(NAMED, a=WARNS)).warnings
    assert warning.startswith("berth/policies/a.policy:2:")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (config_map(NAMED), "ConfigMap berth/policies has no file whose name ends in .policy"),
        (config_map(NAMED, **{"readme.md": "x"}), "it has readme.md"),
        (config_map(NAMED, a=GOOD, binary=b"\xff\xfe"), "berth/policies/x.policy:1:1"),
        (config_map(NAMED, b="policy: more\nscore: 1\n", c="policy: more\nscore: 2\n"), "more"),
        (config_map(NAMED, z="policy: b\nscore: 1\n"), "b"),
        (config_map(CHOSEN, LABELS, z=BROKEN), "teams/green/z.policy:1"),
        (config_map(TENANT, z=SORTS), "team-a/own/z.policy:1"),
        (config_map(NAMED, a="x" * 200_000), "a.policy"),
    ],
)
def test_what_the_scheduler_would_refuse_is_refused(process, new, said):
    answer = process.judge(new)
    assert said in answer.refusal
    process.put(new)
    assert process.refusal(new) is not None


def test_many_mistakes_are_told_whole_up_to_a_bound(process):
    answer = process.judge(config_map(NAMED, a=BROKEN * 900))
    assert len(answer.refusal) < 9_000
    findings = answer.refusal.count("error[")
    assert answer.refusal.endswith(f"\nand {900 - findings} more\n")
    assert answer.refusal.count("  = help") >= findings, "none is cut in the middle"


def test_an_empty_key_is_a_policy_without_rules(process):
    assert process.judge(config_map(NAMED, a="")).refusal == ""


def test_what_is_no_source_is_let_in(process):
    for one in (
        config_map(("berth", "elsewhere"), a=BROKEN),
        config_map(("teams", "green"), {"policies": "yes"}, a=BROKEN),
        config_map(("other", "green"), LABELS, a=BROKEN),
        config_map(("other", "own"), a=BROKEN),
    ):
        answer = process.judge(one)
        assert (answer.refusal, answer.warnings) == ("", ())


def test_one_that_goes_is_let_go_with_a_warning(process):
    (stays,) = process.judge(None, config_map(NAMED, a=GOOD)).warnings
    assert (
        stays
        == "ConfigMap berth/policies is a source of policies: its rules stay in force without it"
    )
    was = config_map(CHOSEN, LABELS, a=GOOD)
    goes = "ConfigMap teams/green is no longer selected: its rules are withdrawn"
    goes += ", unless it was the last"
    assert process.judge(None, was).warnings == (goes,)
    assert process.judge(config_map(CHOSEN, a=BROKEN), was).warnings == (goes,)
    (theirs,) = process.judge(None, config_map(TENANT, a=GOOD)).warnings
    assert theirs == "ConfigMap team-a/own is no longer selected: its rules are withdrawn"


def test_texts_that_stay_are_not_judged_again(process):
    broken = config_map(NAMED, a=BROKEN)
    process.put(broken)
    answer = process.judge(config_map(NAMED, {"team": "x"}, a=BROKEN), broken)
    assert answer.refusal == ""
    (warning,) = answer.warnings
    assert "ConfigMap berth/policies was refused" in warning


def test_what_cannot_be_judged_is_let_in_and_said(process):
    process.not_ready = "not listed yet: configmaps"
    (warning,) = process.judge(config_map(NAMED, a=BROKEN)).warnings
    assert warning.startswith("the policies were not checked: not listed yet: configmaps;")


class Racing(ManualClock):
    """Every look at it takes a second."""

    def monotonic(self):
        self.advance(1.0)
        return super().monotonic()


def test_what_takes_too_long_is_let_in_and_said():
    slow = Process(clock=Racing())
    answer = slow.judge(config_map(NAMED, a=BROKEN * 10))
    assert answer.warnings[0].startswith(
        "the policies were not checked: checking takes longer than 3 s;"
    )


def test_more_at_once_than_can_be_kept_waiting_are_let_in(process):
    async def main():
        held = asyncio.Event()

        async def remembered():
            await held.wait()
            return {}

        judge = Judge(
            process.in_force,
            process.clock,
            remembered=remembered,
            not_ready=lambda: "",
        )
        question = Question("u", "CREATE", None, config_map(NAMED, a=BROKEN))
        asked = [asyncio.ensure_future(judge.judge(question)) for _ in range(9)]
        last = await asked[-1]
        held.set()
        return last, await asyncio.gather(*asked[:-1])

    last, others = asyncio.run(main())
    assert last.warnings[0].startswith("the policies were not checked: too many wait;")
    assert all("error[" in one.refusal for one in others)


def test_what_the_scheduler_took_back_is_not_let_in_again(process):
    bad = {"a.policy": SORTS}
    process.put(config_map(NAMED, a=SORTS))
    title = "ConfigMap berth/policies"
    process.remembered = {title: Kept({"a.policy": GOOD}, barred=digest(bad))}
    process.put(config_map(NAMED, a=GOOD))
    answer = process.judge(config_map(NAMED, a=SORTS))
    assert "was taken back before; it is not tried again before it changes" in answer.refusal
    # Of what was taken back nothing is in force: another source may sort.
    process.put(config_map(NAMED, a=SORTS))
    assert process.judge(config_map(OTHER, b=SORTS)).refusal == ""


def test_what_is_in_force_of_a_source_that_is_no_good_counts(process):
    again = Process()
    again.put(config_map(NAMED, a=BROKEN))
    again.put(config_map(OTHER, b="score: 50\n"))
    assert again.judge(config_map(OTHER, b=SORTS)).refusal == ""
    again.remembered = {"ConfigMap berth/policies": Kept({"a.policy": SORTS})}
    assert "P501" in again.judge(config_map(OTHER, b=SORTS)).refusal


def test_costs_are_bounded_for_the_cluster_that_the_scheduler_told(process):
    dear = config_map(NAMED, a="filter: count(cluster.pods where it.name contains x) < 9\n")
    assert process.judge(dear).refusal == ""
    process.there = (5_000, 5_000_000)
    assert "P321" in process.judge(dear).refusal


def test_a_call_is_answered_or_said_to_be_none(process):
    judge = Judge(process.in_force, process.clock, remembered=process._remember, not_ready=str)
    with pytest.raises(BadCallError, match="not an AdmissionReview"):
        asyncio.run(judge.answered(b"{"))
    request = {
        "uid": "u-7",
        "kind": {"kind": "ConfigMap"},
        "operation": "CREATE",
        "object": {
            "metadata": {"namespace": "berth", "name": "policies"}, "data": {"a.policy": BROKEN}
        },
    }  # fmt: skip
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    told = json.loads(asyncio.run(judge.answered(json.dumps(body).encode())))["response"]
    assert (told["uid"], told["allowed"]) == ("u-7", False)
    assert told["status"]["message"].count("^") >= 1


TEXTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "readme.md"]),
    st.sampled_from(
        [GOOD, BROKEN, SORTS, WARNS, "", "# none\n", "policy: a\nscore: 1\n",
         "use network-traffic\n", "bind: with Nobody\n", "score: 1 +\n", "param x\nscore: x\n"]
    ),
    max_size=3,
)  # fmt: skip
EDITS = st.lists(
    st.tuples(
        st.sampled_from([NAMED, OTHER, CHOSEN, TENANT]), TEXTS, st.sampled_from([None, b"\xff"])
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(100), deadline=None)
@given(EDITS)
def test_what_is_let_in_is_taken_and_what_is_refused_is_not(edits):
    webhook, scheduler = Process(), Process()
    for one in (config_map(NAMED, n="# none\n"), config_map(OTHER, o="# none\n")):
        webhook.put(one)
        scheduler.put(one)
    for key, texts, binary in edits:
        labels = LABELS if key == CHOSEN else {}
        new = config_map(key, labels, binary, **texts)
        old = webhook.seen.get(key)
        answer = webhook.judge(new, old)
        scheduler.put(new)
        refusal = scheduler.refusal(new)
        if old is None or (files_of(old) or passed_over(old)) != (
            files_of(new) or passed_over(new)
        ):
            assert bool(answer.refusal) == (refusal is not None), (answer, refusal)
        elif refusal is not None:
            assert answer.warnings == (refusal.summary,)
        webhook.put(new)
        assert (webhook.in_force.bundle is None) == (scheduler.in_force.bundle is None)
