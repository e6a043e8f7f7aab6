"""Several profiles in one process: whose plugins decide, whom an event wakes, which nodes count."""

from __future__ import annotations

import asyncio
from datetime import UTC

import pytest
from click.testing import CliRunner

from engine.basis import queue_hooks
from engine.cli import main as berth_main
from engine.configuration.berth import BerthDocument
from engine.configuration.scheduler import ProfileDocument
from engine.configuration.settings import ConfigError, Settings
from engine.cycle import conclude, decide
from engine.framework.events import QueueingHint
from engine.plugins.profiles import make_profiles
from engine.policy.chain import frameworks_of
from engine.policy.world import Worlds
from tests.builders import Cache, make_node, make_pod, scored
from tests.engine.policy.builders import compiled
from tests.engine.test_app import Process, embedded, settings_of

ADDED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gold", "operator": "Exists"}]}]
    }
}
GOLD = {"name": "NodeAffinity", "args": {"addedAffinity": ADDED}}
PACKS = {
    "name": "NodeResourcesFit",
    "args": {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    },
}
ALONE = {
    "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}
}


def settings(*profiles, **berth):
    documents = tuple(ProfileDocument.model_validate(one) for one in profiles)
    return Settings(profiles=documents, berth=BerthDocument.model_validate(berth))


def frameworks(given, files=None):
    return frameworks_of(make_profiles(given), compiled(files or {}), worlds=Worlds(UTC, ()))


def cluster(*nodes):
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    return cache


TWO = settings(
    {"schedulerName": "a"}, {"schedulerName": "b", "pluginConfig": [GOLD, PACKS], "plugins": ALONE}
)


def test_each_pod_is_decided_by_its_own_profile():
    both = frameworks(TWO, {"p.policy": "filter: node.name is not third\n"})
    labels = {"gold": "yes"}
    cache = cluster(
        make_node("plain"),
        make_node("first", labels=labels),
        make_node("second", labels=labels),
        make_node("third", labels=labels),
    )
    cache.add_pod(make_pod("there", cpu="1", node="second"), "second")
    pods = {name: make_pod(name, scheduler=name, cpu="1") for name in "ab"}
    snapshot = cache.snapshot(0.0)
    found = {name: decide(pod, snapshot, both.of(pod)) for name, pod in pods.items()}
    assert (found["a"].feasible, found["b"].feasible) == (3, 2), "the policy is of both"
    assert found["b"].node == "second", "packed"
    _, given = scored(found["b"], snapshot, both.of(pods["b"]))
    assert {plugin: weight for plugin, (*_, weight) in given.items()} == {"NodeResourcesFit": 5}
    assert found["a"].node in {"plain", "first"}


def test_the_queue_asks_the_profile_of_a_pod():
    both = frameworks(TWO)
    cache = cluster(make_node("n"))
    hooks = queue_hooks(both, lambda: cache.snapshot(0.0))
    a, b = (make_pod("p", uid="1", scheduler=name) for name in "ab")
    assert hooks.class_key(a) != hooks.class_key(b)
    assert hooks.sort_key(a, 1.0) == hooks.sort_key(b, 1.0)

    def woken_by(pod, node):
        hints = [one.hint for one in hooks.hints["NodeAffinity"]]
        return QueueingHint.QUEUE in [one(pod, None, node, cache.snapshot(0.0)) for one in hints]

    assert woken_by(a, make_node("n"))
    assert not woken_by(b, make_node("n")), "b waits for gold"
    assert woken_by(b, make_node("n", labels={"gold": "yes"}))


def test_one_profile_is_asked_as_if_there_were_no_others():
    [only] = both = frameworks(Settings())
    assert both.hints() == only.hints()
    assert both.of(make_pod("p", scheduler="")) is only


def test_what_a_plugin_registered_stays_what_it_is_beside_another_profile():
    both = frameworks(TWO)
    each = [framework.hints() for framework in both]
    for plugin, registered in both.hints().items():
        alone = [one for hints in each for one in hints[plugin]]
        assert [(one.event, one.finer, one.ours) for one in registered] == [
            (one.event, one.finer, one.ours) for one in alone
        ]


# ---- the nodes that a profile sees ---------------------------------------------------------------

NARROW = settings({"schedulerName": "berth"}, profiles={"berth": {"nodeSelector": {"pool": "x"}}})
SEEN = {"pool": "x"}


def test_nodes_that_a_profile_does_not_see_are_not_counted():
    [narrow] = frameworks(NARROW)
    cache = cluster(make_node("out", cpu="64"), make_node("in", cpu="1", labels=SEEN))
    small, large = make_pod("small", cpu="1"), make_pod("large", cpu="2", priority=5)
    assert decide(small, cache.snapshot(0.0), narrow).node == "in"
    decision = conclude(large, cache.snapshot(0.0), narrow)
    assert decision.message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 Preemption is not helpful for scheduling."
    )
    assert decision.fit_error.plugins == {"NodeResourcesFit", "nodeSelector of the profile"}
    cache.add_node(make_node("in", cpu="1"))
    assert decide(small, cache.snapshot(0.0), narrow).message == (
        "no nodes available to schedule pods"
    )
    cache.add_node(make_node("out", cpu="64", labels=SEEN))
    assert decide(large, cache.snapshot(0.0), narrow).node == "out"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"nodeName": "out"}, "1 node(s) didn't satisfy plugin(s) [NodeName]"),
        (
            {"nodeSelector": {"kubernetes.io/hostname": "x"}},
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {
                                            "key": "metadata.name",
                                            "operator": "In",
                                            "values": ["out"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]},
            'persistentvolumeclaim "gone" not found',
        ),
    ],
)
def test_whoever_rejects_speaks_of_the_nodes_that_are_seen(spec, said):
    [narrow] = frameworks(NARROW)
    cache = cluster(make_node("out"), make_node("out2"), make_node("in", labels=SEEN))
    decision = decide(make_pod("p", spec=spec), cache.snapshot(0.0), narrow)
    assert decision.message == f"0/1 nodes are available: {said}."


def test_nobody_is_evicted_from_nodes_that_are_not_seen():
    [narrow] = frameworks(NARROW)
    cache = cluster(make_node("out", cpu="1"), make_node("in", cpu="1", labels=SEEN))
    for node in ("out", "in"):
        cache.add_pod(make_pod(f"on-{node}", cpu="1", node=node), node)
    decision = conclude(make_pod("p", cpu="1", priority=9), cache.snapshot(0.0), narrow)
    assert decision.rescue.nominated == "in"


def test_a_node_that_comes_into_sight_wakes():
    [narrow] = frameworks(NARROW)
    (registered,) = narrow.hints()["nodeSelector of the profile"]
    pod, snapshot = make_pod("p"), Cache().snapshot(0.0)
    out, seen = make_node("n"), make_node("n", labels=SEEN)
    says = [registered.hint(pod, *pair, snapshot) for pair in ((out, seen), (None, seen))]
    assert says == [QueueingHint.QUEUE] * 2
    says = [registered.hint(pod, *pair, snapshot) for pair in ((seen, seen), (seen, out))]
    assert says == [QueueingHint.SKIP] * 2


# ---- profiles that cannot be used ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (
            {"plugins": {"filter": {"enabled": [{"name": "NodePort"}]}}},
            "no plugin is named 'NodePort'; did you mean NodePorts?",
        ),
        ({"pluginConfig": [{"name": "Nope"}]}, "no plugin is named 'Nope'"),
        (
            {"pluginConfig": [{"name": "VolumeBinding", "args": {"kind": "NodeAffinityArgs"}}]},
            "plugin 'VolumeBinding': its arguments have kind NodeAffinityArgs instead of"
            " VolumeBindingArgs",
        ),
        (
            {"pluginConfig": [{"name": "InterPodAffinity", "args": {"apiVersion": "v1"}}]},
            "plugin 'InterPodAffinity': its arguments have apiVersion v1 instead of"
            " kubescheduler.config.k8s.io/v1",
        ),
        (
            {
                "pluginConfig": [
                    {
                        "name": "NodeAffinity",
                        "args": {
                            "addedAffinity": {
                                "preferredDuringSchedulingIgnoredDuringExecution": [
                                    {"weight": 1, "preference": {"matchExpression": []}}
                                ]
                            }
                        },
                    }
                ]
            },
            "plugin 'NodeAffinity': unknown field `matchExpression`; did you mean"
            " matchExpressions?",
        ),
        (
            {
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["a/b"]}}
                ]
            },
            "plugin 'NodeResourcesFit': ignoredResourceGroups: 'a/b': a group has no slash",
        ),
        (
            {
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"ignoredResources": ["a.b/c d"]}}
                ]
            },
            "plugin 'NodeResourcesFit': ignoredResources: 'a.b/c d' is not the name of a"
            " resource or group",
        ),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {}}}]},
            "plugin 'NodeResourcesFit': scoringStrategy.type: '' is not LeastAllocated,"
            " MostAllocated or RequestedToCapacityRatio",
        ),
        (
            {"plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}},
            "no plugin is named 'Coscheduling'; "
            "`berth convert` writes policies in its place, and says what they leave out",
        ),
        (
            {"plugins": {"score": {"enabled": [{"name": "NodeMetadata"}]}}},
            "no plugin is named 'NodeMetadata'; "
            "`berth convert` writes policies in its place, and says what they leave out",
        ),
        (
            {"plugins": {"score": {"enabled": [{"name": "TargetLoadPacking"}]}}},
            "no plugin is named 'TargetLoadPacking'; "
            "`berth convert` writes policies in its place, and says what they leave out",
        ),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"strategy": 1}}]},
            "plugin 'NodeResourcesFit': Object contains unknown field `strategy`",
        ),
        (
            {"plugins": {"score": {"enabled": [{"name": "NodeName"}]}}},
            "plugins.score: plugin 'NodeName' has no such point",
        ),
        (
            {"plugins": {"preScore": {"enabled": [{"name": "DynamicResources"}]}}},
            "plugins.preScore: plugin 'DynamicResources' has no such point",
        ),
        (
            {"pluginConfig": [{"name": "DynamicResources", "args": {"timeout": "1s"}}]},
            "plugin 'DynamicResources': Object contains unknown field `timeout`",
        ),
        (
            {"pluginConfig": [{"name": "DynamicResources", "args": {"filterTimeout": "1d"}}]},
            "plugin 'DynamicResources': filterTimeout: '1d' is not a duration; write one like 10s",
        ),
        (
            {"plugins": {"multiPoint": {"disabled": [{"name": "PrioritySort"}]}}},
            "a profile needs exactly one plugin that sorts the queue; got none",
        ),
        (
            {"plugins": {"multiPoint": {"disabled": [{"name": "DefaultBinder"}]}}},
            "at least one bind plugin is needed",
        ),
        (
            {"plugins": {"score": {"enabled": [{"name": "ImageLocality"}] * 2}}},
            "plugins.score: a plugin is enabled twice",
        ),
        (
            {"plugins": {"multiPoint": {"enabled": [{"name": "NodeName"}] * 2}}},
            "plugins.multiPoint: a plugin is enabled twice",
        ),
    ],
)
def test_what_is_wrong_with_a_profile_is_told_with_its_place(profile, said):
    given = settings({"schedulerName": "a"}, {"schedulerName": "b", **profile})
    with pytest.raises(ConfigError) as error:
        make_profiles(given, "f.yaml")
    assert str(error.value) == f"f.yaml: profiles.1: {said}"


def test_a_section_for_no_profile_is_refused():
    with pytest.raises(
        ConfigError, match=r"^profiles.bert: no such profile; did you mean berth\?$"
    ):
        make_profiles(settings({"schedulerName": "berth"}, profiles={"bert": {}}))


# ---- the whole process ---------------------------------------------------------------------------


async def test_two_profiles_in_one_process(tmp_path):
    """Also: rules that change are of both, and the journal of it replays."""
    files = {"p.policy": "filter: pod.name contains held -> node.label test=never\n"}
    profiles = [{"scheduler_name": "berth"}, {"scheduler_name": "narrow"}]
    own = {"narrow": {"nodeSelector": {"test": "test"}}}
    base = settings_of(profiles=own)
    given = Settings.model_validate({**base.model_dump(), "profiles": profiles})
    async with embedded(files=files) as cluster:
        with (tmp_path / "journal").open("wb") as journal:
            made = Process(cluster, given, cluster.kubeconfig(), journal)
            seen = made.test_nodes
            assert 0 < len(seen) < 6
            names = [made.pod(f"n-{number}", scheduler="narrow") for number in range(6)]
            assert {await made.lands(name) for name in names} <= seen
            assert await made.lands(made.pod("wide"))
            made.pod("held-wide")
            made.pod("held-narrow", scheduler="narrow")
            await made.until(lambda: made.condition("held-wide"))
            await made.until(lambda: made.condition("held-narrow"))
            assert made.condition("held-wide")[2].startswith("0/6 nodes are available")
            told = made.condition("held-narrow")[2]
            assert told.startswith(f"0/{len(seen)} nodes are available")
            made.rules({"p.policy": "filter: node.label test=test\n"})
            assert await made.lands("held-narrow") in seen
            assert await made.lands("held-wide") in seen
            made.stop.set()
            await asyncio.wait_for(made.task, 5)
    replayed = CliRunner().invoke(berth_main, ["replay", str(tmp_path / "journal")])
    assert replayed.exit_code == 0, replayed.output
