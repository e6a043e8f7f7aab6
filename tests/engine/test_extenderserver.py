"""What a stock kube-scheduler is told of policies: questions as it asks them, answers."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cli import main
from engine.configuration.scheduler import SchedulerDocument
from engine.configuration.settings import parse
from engine.extenders import messages
from engine.extenders.server import NOT_READY, PATHS, advice_on, calls_of, unsaid
from engine.framework.profile import Weighted
from engine.framework.runtime import Frameworks
from engine.plugins.no_nodes import PrioritySort
from engine.policy.world import Worlds
from engine.serving.server import BadCallError
from tests.builders import make_node, make_pod
from tests.effort import examples
from tests.engine.policy.builders import chain, compiled
from tests.engine.test_scheduler import World

TEXT = """\
filter: pod.name contains nginx -> node.label test=test
score: if node.name is n1 then 100 else 25
"""


class Advised:
    """The three questions, as kube-scheduler asks them, of a world with these policies."""

    def __init__(self, text=TEXT, *, nodes=("n1", "n2", "n3"), ready=True):
        files = {"a.policy": text}
        framework = chain(files, in_tree=(Weighted(PrioritySort()),))
        self.world = World(rules=framework, nodes=())
        self.world.add(
            [make_node(name, labels={"test": "test"} if name == "n3" else {}) for name in nodes]
        )
        bundle = compiled(files)
        worlds = Worlds(ZoneInfo("UTC"), ())
        frameworks = Frameworks([framework]) if ready else None
        self.in_force = frameworks, bundle
        self.rules = advice_on(lambda: self.in_force, worlds)
        self.calls = calls_of(self.rules, self.world.snapshot)

    def asks(self, verb, body):
        return json.loads(asyncio.run(self.calls[f"/{verb}"].answer(body)))

    def filter(self, pod, names=("n1", "n2", "n3"), *, whole=False):
        nodes = {name: _whole(name) for name in names} if whole else None
        return self.asks("filter", messages.about(_json(pod), list(names), nodes))

    def scores(self, pod, names):
        found = self.asks("prioritize", messages.about(_json(pod), list(names), None))
        return {one["Host"]: one["Score"] for one in found}

    def preempt(self, pod, victims, *, by_uid=True):
        found = self.asks("preempt", messages.about_victims(_json(pod), victims, by_uid=by_uid))
        each = found["NodeNameToMetaVictims"]
        return {node: [one["UID"] for one in found["Pods"]] for node, found in each.items()}


def _json(pod):
    return msgspec.json.encode(pod.pod)


def _whole(name):
    return json.dumps({"metadata": {"name": name}, "spec": {"providerID": name}}).encode()


def test_names_in_names_out_and_why_not():
    advised = Advised()
    found = advised.filter(make_pod("nginx-1"), ("n3", "n1", "n9"))
    assert found["NodeNames"] == ["n3"]
    assert found["FailedNodes"]["n9"] == "berth has not seen this node yet"
    both = {**found["FailedNodes"], **found["FailedAndUnresolvableNodes"]}
    assert sorted(both) == ["n1", "n9"]
    assert "node.label test=test" in both["n1"]
    free = advised.filter(make_pod("other"))
    assert free["NodeNames"] == ["n1", "n2", "n3"]
    assert (free["FailedNodes"], free["FailedAndUnresolvableNodes"]) == ({}, {})


def test_whole_nodes_come_back_whole():
    found = Advised().filter(make_pod("nginx-1"), whole=True)
    [kept] = found["Nodes"]["items"]
    assert kept == {"metadata": {"name": "n3"}, "spec": {"providerID": "n3"}}
    assert "NodeNames" not in found


def test_a_prefilter_rejects_the_pod_on_every_node_and_no_rules_are_an_error():
    found = Advised("prefilter: pod.label team\n").filter(make_pod("p"))
    assert found["NodeNames"] == []
    told = {**found["FailedNodes"], **found["FailedAndUnresolvableNodes"]}
    assert sorted(told) == ["n1", "n2", "n3"]
    assert all("pod.label team" in why for why in told.values())
    assert Advised(ready=False).filter(make_pod("p")) == {"Error": NOT_READY}


def test_scores_are_in_an_extenders_points_and_zero_where_nobody_knows():
    advised = Advised()
    assert advised.scores(make_pod("p"), ("n2", "n9", "n1")) == {"n2": 2, "n9": 0, "n1": 10}
    assert Advised("filter: node.label a\n").scores(make_pod("p"), ("n1",)) == {"n1": 0}
    assert Advised(ready=False).scores(make_pod("p"), ("n1",)) == {"n1": 0}


def test_who_may_be_evicted_for_whom():
    spare, kept = make_pod("spare", node="n1", labels={"spare": "yes"}), make_pod("k", node="n2")
    both = {"n1": ([spare], 0), "n2": ([kept], 1)}
    advised = Advised("preempt: pod.label vip -> victims where it.label spare=yes\n")
    advised.world.add([one.pod for one in (spare, kept)])
    vip = make_pod("vip", labels={"vip": "yes"}, priority=10)
    assert advised.preempt(vip, both) == {"n1": [spare.uid]}
    assert advised.preempt(vip, both, by_uid=False) == {"n1": [spare.uid]}
    assert advised.preempt(make_pod("other", priority=10), both) == {
        "n1": [spare.uid],
        "n2": [kept.uid],
    }
    never = Advised("preempt: never\n")
    assert never.preempt(vip, both) == {}
    assert Advised(ready=False).preempt(vip, both) == {}, "nobody is evicted in the dark"


_VERB = st.sampled_from(PATHS)
_FIELDS = ["Pod", "Nodes", "NodeNames", "NodeNameToMetaVictims", "Pods", "UID", "items", "n1"]
_FIELDS += ["metadata", "name", "NumPDBViolations", "spec", "containers"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_FIELDS), inner),
)
ADVISED = Advised()


@given(verb=_VERB, body=st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=examples(300))
def test_whatever_is_asked_it_is_answered_or_refused(verb, body):
    with suppress(BadCallError):
        assert json.loads(asyncio.run(ADVISED.calls[verb].answer(body))) is not None


def test_what_a_stock_scheduler_does_not_hear_of_is_told_by_line():
    text = (
        "sort: pod.name\ngate: pod.label go\nfirst: node.label spot\n"
        "preempt: victims order it.priority\nfilter: node.label a\n"
    )
    told = list(unsaid(compiled({"a.policy": text}).plans))
    assert [line.partition(": ")[0] for line in told] == [f"a.policy:{n}" for n in (1, 2, 3, 4)]
    assert told[1].endswith(
        "has no effect through an extender: kube-scheduler asks no extender before the queue"
    )
    assert list(unsaid(compiled({"a.policy": TEXT}).plans)) == []


# ---- the command


def run(*arguments):
    return CliRunner().invoke(main, ["extender", *arguments])


def test_what_the_page_shows_is_read_by_a_scheduler():
    page = (Path(__file__).parents[2] / "docs" / "stock-scheduler.md").read_text("utf-8")
    shown = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    [one] = parse("f", SchedulerDocument, {**head, **yaml.safe_load(shown)}).extenders
    assert (one.url_prefix, one.enable_https) == ("https://127.0.0.1:8888", True)
    verbs = one.filter_verb, one.prioritize_verb, one.preempt_verb
    assert tuple(f"/{verb}" for verb in verbs) == PATHS


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--plain-http", "--client-ca-file", "ca.crt"), "--client-ca-file needs HTTPS: leave"),
        (
            ("--plain-http", "--tls-cert-file", "x", "--tls-private-key-file", "y"),
            "--tls-cert-file needs HTTPS: leave --plain-http out",
        ),
        (("--plain-http", "--tls-private-key-file", "y"), "--tls-private-key-file needs HTTPS"),
        (("--scheduler-name", ""), "--scheduler-name: schedulerName: must not be empty"),
    ],
)
def test_flags_that_cannot_work_together(flags, said):
    done = run("--policies", "x", *flags)
    assert done.exit_code == 1
    assert said in done.output


def test_its_pods_profile_may_have_policies_of_its_own(tmp_path):
    """As that of the scheduler whose configuration it shares may."""
    path = tmp_path / "config.yaml"
    sources = [{"dir": "a", "profiles": ["berth"]}, {"dir": "b", "profiles": ["default-scheduler"]}]
    path.write_text(
        yaml.safe_dump({"kind": "BerthConfiguration", "policies": {"sources": sources}})
    )
    done = run("--config", str(path), "--plain-http", "--client-ca-file", "none")
    assert "--client-ca-file needs HTTPS" in done.output, "the file was good"


def test_without_policies_there_is_nothing_to_serve():
    done = run()
    assert done.exit_code == 1
    assert "there are no policies to serve: give --policies" in done.output


def test_the_preemption_is_made_once_for_all_calls_by_the_same_rules():
    asked = Advised()
    before = asked.rules()
    assert before is asked.rules()
    asked.in_force = Advised("score: 50\n").in_force
    assert asked.rules()[1] is not before[1]
    assert asked.rules()[0] is next(iter(asked.in_force[0]))
    asked.in_force = None, None
    assert asked.rules() is None
