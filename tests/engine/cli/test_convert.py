"""`berth convert`: what comes out is understood, does the same, and says what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from engine.cli import main
from engine.configuration.settings import load
from engine.plugins.profiles import make_profiles
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.findings import new_compiler
from engine.policy.sources import policies_in
from tests.engine.policy.builders import compiled

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
NETWORK = {
    "score": {
        "enabled": [{"name": "NetworkTraffic", "weight": 5}],
        "disabled": [{"name": "ImageLocality"}],
    }
}


def profile(name, plugins=None, **args):
    configs = [{"name": plugin, "args": of} for plugin, of in args.items()]
    return {"schedulerName": name, "plugins": plugins or {}, "pluginConfig": configs}


class World:
    def __init__(self, tmp_path):
        self.file = tmp_path / "kube-scheduler.yaml"
        self.folder = tmp_path / "out"

    def write(self, *profiles, **more):
        self.file.write_text(HEAD + yaml.safe_dump({"profiles": list(profiles), **more}), "utf-8")

    def convert(self, *flags):
        return CliRunner().invoke(main, ["convert", str(self.file), *flags])

    def loaded(self):
        """The settings and the bundle of what was written, as a start has them."""
        done = self.convert("-o", os.path.relpath(self.folder))
        assert done.exit_code == 0, done.output
        settings = load(str(self.folder / "config.yaml"))
        assert all(Path(one.dir).is_absolute() for one in settings.berth.policies.all_sources)
        policies = settings.berth.policies
        files = {
            f"{one.folder if policies.in_folders else ''}{name}": text
            for one in policies.all_sources
            for name, text in policies_in(self.folder / one.folder)[0].items()
        }
        made = compile_at_once(new_compiler(), files, compile_settings(settings.berth))
        assert isinstance(made, Bundle), made.text
        return settings, made

    def told(self):
        lines = self.convert().stderr.splitlines()
        return [line.removeprefix("not the same: ") for line in lines]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_what_the_stock_scheduler_reads_stays_as_it_is(world):
    fit = {"scoringStrategy": {"type": "MostAllocated"}}
    world.write(
        profile(
            "packed", {"score": {"disabled": [{"name": "ImageLocality"}]}}, NodeResourcesFit=fit
        )
    )
    assert world.convert("-o", str(world.folder)).exit_code == 0
    settings = load(str(world.folder / "config.yaml"))
    [one] = settings.profiles
    assert one.plugin_config[0].args == fit
    assert [each.name for each in one.plugins.score.disabled] == ["ImageLocality"]
    assert world.told() == []


def test_whose_rights_a_kubeconfig_has_is_asked(world):
    world.write(profile("packed"), clientConnection={"kubeconfig": "/etc/k/scheduler.conf"})
    [said] = world.told()
    assert said.startswith("clientConnection.kubeconfig: /etc/k/scheduler.conf is kept; its user ")


def test_a_plugin_that_asks_prometheus_becomes_a_policy_of_the_same_weight(world):
    args = {"ip": "10.0.0.3", "deviceName": "ens3", "timeRange": 5}
    world.write(profile("net", NETWORK, NetworkTraffic=args))
    settings, bundle = world.loaded()
    assert settings.berth.prometheus.url == "http://10.0.0.3:9090"
    [plan] = [one for one in bundle.plans if one.used]
    assert (plan.name, plan.weight) == ("network-traffic", 5)
    [metric] = plan.metrics
    assert '{device="ens3"}[5m])' in metric.query
    [one] = make_profiles(settings)
    names = [each.plugin.name for each in one.plugins]
    assert "NodeResourcesFit" in names
    assert len(names) > 10
    assert "is no bandwidth" in world.told()[0]


@pytest.mark.parametrize(
    ("address", "url"),
    [("10.0.0.3:80", "http://10.0.0.3:80"), ("https://p.example/x", "https://p.example/x")],
)
def test_addresses_of_prometheus(world, address, url):
    world.write(profile("net", NETWORK, NetworkTraffic={"prometheusAddress": address}))
    assert world.loaded()[0].berth.prometheus.url == url


@pytest.mark.parametrize(
    ("label", "said", "means"),
    [
        ("test=test", 0, "test=test"),
        ("disktype", 0, "disktype"),
        ("test/test", 0, "test=test"),
        ("example.com/disk/ssd", 0, "example.com/disk=ssd"),
        ("example.com/disk", 1, "example.com/disk"),
    ],
)
def test_a_label_filter_is_known_by_its_arguments(world, label, said, means):
    args = {"node_label": label, "workload_name": "nginx"}
    plugins = {"filter": {"enabled": [{"name": "AnyName"}]}}
    world.write(profile("mine", plugins, AnyName=args))
    _, bundle = world.loaded()
    assert [one.name for one in bundle.plans if one.used] == ["label-filter"]
    assert f'node_label = "{means}"' in world.convert().stdout
    assert len(world.told()) == said


def test_what_is_of_one_profile_stays_of_it_and_the_order_is_of_all(world):
    sort = {"queueSort": {"enabled": [{"name": "QOSSort"}], "disabled": [{"name": "*"}]}}
    allocatable = {
        "mode": "Most",
        "resources": [{"name": "cpu", "weight": 1 << 30}, {"name": "memory", "weight": 1}],
    }
    score = {"score": {"enabled": [{"name": "NodeResourcesAllocatable"}]}}
    world.write(
        profile("one", sort | score, NodeResourcesAllocatable=allocatable), profile("two", sort)
    )
    settings, bundle = world.loaded()
    assert bundle.profiles["node-resources-allocatable"] == {"one"}
    assert "qos-sort" not in bundle.profiles
    assert len(make_profiles(settings)) == 2
    assert world.told() == []


def test_a_plugin_of_two_profiles_is_a_policy_of_each_with_its_own_arguments(world):
    both = {"multiPoint": {"enabled": [{"name": "NodeResourcesAllocatable", "weight": 2}]}}
    quotas = {"preFilter": {"enabled": [{"name": "CapacityScheduling"}]}}
    world.write(
        profile("one", both | quotas, NodeResourcesAllocatable={"mode": "Most"}),
        profile("x.two", both | quotas, NodeResourcesAllocatable={"mode": "Least"}),
        profile("X-Two", both, NodeResourcesAllocatable={"mode": "Least"}),
    )
    _, bundle = world.loaded()
    assert bundle.profiles["node-resources-allocatable-3"] == {"X-Two"}
    assert bundle.profiles["node-resources-allocatable"] == {"one"}
    assert bundle.profiles["node-resources-allocatable-2"] == {"x.two"}
    assert bundle.profiles["capacity-scheduling-2"] == {"x.two"}
    assert world.told() == []


def test_what_is_of_a_profile_has_its_name_where_all_can_be_names(world):
    both = {"multiPoint": {"enabled": [{"name": "NodeResourcesAllocatable"}]}}
    world.write(profile("batch", both), profile("default-scheduler", both))
    settings, bundle = world.loaded()
    assert [one.folder for one in settings.berth.policies.sources] == [
        "policies-batch/", "policies-default-scheduler/"
    ]  # fmt: skip
    assert bundle.profiles["node-resources-allocatable-default-scheduler"] == {"default-scheduler"}
    maps = [one for one in yaml.safe_load_all(world.convert().stdout) if "data" in one]
    assert [(one["metadata"]["name"], *one["data"]) for one in maps] == [
        ("policies-batch", "plugin-noderesourcesallocatable.policy"),
        (
            "policies-default-scheduler",
            "plugin-noderesourcesallocatable-default-scheduler.policy",
        ),
    ]


def test_a_plugin_that_sorts_has_the_same_arguments_in_all_profiles(world):
    gangs = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}
    world.write(
        profile("one", gangs, Coscheduling={"permitWaitingTimeSeconds": 120}),
        profile("two", gangs, Coscheduling={"permitWaitingTimeSeconds": 30}),
    )
    done = world.convert()
    assert done.exit_code == 1
    assert "Coscheduling: what sorts the queue must have the same" in done.stderr


@pytest.mark.parametrize(
    ("resources", "mode", "rule"),
    [
        ({"memory": 2}, "Most", '((number(node.resource["memory"].allocatable ?? 0)*2) / 2)'),
        ({"x/gpu": 1}, "Least", '((number(node.resource["x/gpu"].allocatable ?? 0)*1) / 1)'),
        (
            {"cpu": 3, "x/gpu": 1},
            None,
            '((number(node.resource["cpu"].allocatable ?? 0)*3000'
            ' + number(node.resource["x/gpu"].allocatable ?? 0)*1) / 4)',
        ),
    ],
)
def test_other_resources_of_nodes_are_weighed_by_rules_of_their_own(world, resources, mode, rule):
    args = {"mode": mode, "resources": [{"name": n, "weight": w} for n, w in resources.items()]}
    score = {"score": {"enabled": [{"name": "NodeResourcesAllocatable", "weight": 10}]}}
    world.write(profile("a", score, NodeResourcesAllocatable=args))
    [plan] = world.loaded()[1].plans
    assert plan.weight == 10
    *_, policies = yaml.safe_load_all(world.convert().stdout)
    [text] = policies["data"].values()
    sign = "" if mode == "Most" else "-"
    assert f"let size = floor{rule}\nscore: {sign}size normalize minmax\n" in text
    assert world.told() == []


def test_the_plugins_of_kubernetes_behind_gates_become_a_gang(world):
    names = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
    every = {"multiPoint": {"enabled": [{"name": one} for one in names]}}
    world.write(profile("a", every), profile("b", every))
    assert [plan.gangs[0].text for plan in world.loaded()[1].plans] == ["gang: by pod.group"] * 2
    assert [line.partition(":")[0] for line in world.told()] == [*names] * 2


def test_what_the_policy_for_gangs_does_not_have_is_said(world):
    def use(**args):
        world.write(
            profile("a", {"permit": {"enabled": [{"name": "Coscheduling"}]}}, Coscheduling=args)
        )
        return [line for line in world.convert().stdout.splitlines() if "    use" in line]

    assert use(permitWaitingTimeSeconds=0) == [
        "    use coscheduling (permit_wait = 60s, backoff = 0s)"
    ]
    assert world.told() == []
    [line] = use(podGroupBackoffSeconds=7200, deniedPGExpirationTimeSeconds=3)
    assert line == "    use coscheduling (permit_wait = 60s, backoff = 3600s)"
    [longer, old] = world.told()
    assert "7200 seconds are more than the hour" in longer
    assert "its argument deniedPGExpirationTimeSeconds, which newer versions lack" in old
    world.loaded()


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_the_share_of_a_group_that_may_be_missing_is_kept(world, percent):
    args = {"permitWaitingTimeSeconds": 7, "podGroupRejectPercentage": percent}
    two = [
        profile(name, {"permit": {"enabled": [{"name": "Coscheduling"}]}}, Coscheduling=args)
        for name in "ab"
    ]
    world.write(*two)
    _, bundle = world.loaded()
    own, usual = bundle.plans[0], compiled({"p.policy": "use coscheduling (permit_wait = 7s)\n"})
    words = own.gangs[0].text.split()
    assert " ".join(words[-4:]) == f"reject above {percent}% missing"
    [same] = [plan for plan in usual.plans if plan.gangs]
    assert " ".join(words[:-7]) == " ".join(same.gangs[0].text.split()[:-7])
    assert [" ".join(one.text.split()) for one in own.sorts] == [
        " ".join(one.text.split()) for one in same.sorts
    ]
    assert world.told() == []


@pytest.mark.parametrize(
    ("kind", "strategy", "best"),
    [("Number", "Lowest", "lowest"), ("Timestamp", "Newest", "highest")],
)
def test_nodes_by_their_metadata(world, kind, strategy, best):
    args = {
        "metadataKey": "example.com/at",
        "metadataSource": "Annotation",
        "metadataType": kind,
        "scoringStrategy": strategy,
    }
    score = {"score": {"enabled": [{"name": "NodeMetadata", "weight": 5}]}}
    world.write(profile("a", score, NodeMetadata=args))
    use = f'use node-score-by-label (key = "example.com/at", best = {best}) weight 5'
    assert use in world.convert().stdout
    world.loaded()
    world.write(profile("a", score, NodeMetadata={**args, "timestampFormat": "2006-01-02"}))
    assert world.told() == ["NodeMetadata: no policy reads times written as 2006-01-02"]


def test_the_configuration_that_the_chart_of_scheduler_plugins_writes(world):
    """A plugin is enabled at all points at once, and what sorted before is disabled there."""
    plugins = {
        "multiPoint": {
            "enabled": [{"name": "Coscheduling"}],
            "disabled": [{"name": "PrioritySort"}, {"name": "ImageLocality"}],
        }
    }
    world.write(profile("one", plugins), profile("two", plugins))
    settings, bundle = world.loaded()
    assert len(make_profiles(settings)) == 2
    assert "coscheduling" not in bundle.profiles
    plugins = settings.profiles[0].plugins
    assert [one.name for one in plugins.queue_sort.enabled] == ["PrioritySort"], "to give way"
    assert "ImageLocality" in [one.name for one in plugins.multi_point.disabled]


@pytest.mark.parametrize("at", ["queueSort", "multiPoint"])
@pytest.mark.parametrize("off", ["PrioritySort", "*"])
def test_a_plugin_that_sorts_is_enabled_at_all_points_and_the_other_disabled_anywhere(
    world, at, off
):
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}, {"name": "DefaultBinder"}]}}
    plugins.setdefault(at, {})["disabled"] = [{"name": off}]
    world.write(profile("one", plugins))
    assert len(make_profiles(world.loaded()[0])) == 1


def test_a_plugin_of_one_profile_alone_that_sorts_nothing_leaves_the_order_of_all(world):
    plugins = {"multiPoint": {"enabled": [{"name": "EBSLimits"}]}}
    world.write(profile("one", plugins), profile("two"))
    assert len(make_profiles(world.loaded()[0])) == 2


OLD = HEAD.replace("v1\n", "v1beta2\n")


def test_an_older_configuration_in_the_manifest_of_its_scheduler(world):
    """As `--write-config-to` wrote it, plugins that are gone and versions of arguments included."""
    config = yaml.safe_load(OLD) | {
        "parallelism": 8,
        "profiles": [
            profile(
                "old",
                {"filter": {"enabled": [{"name": "EBSLimits"}]}},
                InterPodAffinity={
                    "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
                    "kind": "InterPodAffinityArgs",
                    "hardPodAffinityWeight": 5,
                },
                NodeResourcesMostAllocated={},
            )
        ],
    }
    data = {"note": "a: [", "config.yaml": yaml.safe_dump(config)}
    objects = [{"kind": "ConfigMap", "data": data}, {"kind": "Deployment"}]
    world.file.write_text(yaml.safe_dump({"kind": "List", "items": objects}), "utf-8")
    [only] = world.loaded()[0].profiles
    assert only.plugin_config[0].args["hardPodAffinityWeight"] == 5
    told = [
        "default weights: TaintToleration has 3",
        "EBSLimits: NodeVolumeLimits counts",
        "NodeResourcesMostAllocated: give NodeResourcesFit scoringStrategy: {type: Most",
        "parallelism: 8 has no effect",
    ]
    for line, said in zip(world.told(), told, strict=True):
        assert line.startswith(said)


@pytest.mark.parametrize("profiles", ["", "profiles: []\n", "profiles: [{}]\n"])
def test_without_a_name_it_stays_the_scheduler_of_pods_that_name_none(world, profiles):
    world.file.write_text(HEAD + profiles, "utf-8")
    assert world.loaded()[0].scheduler_name == "default-scheduler"


def test_what_a_start_would_refuse_is_refused_here(world):
    world.write(profile("a", {"multiPoint": {"disabled": [{"name": "PrioritySort"}]}}))
    done = world.convert()
    assert done.exit_code == 1
    assert "profiles.0: a profile needs exactly one plugin that sorts the queue" in done.output


def test_what_cannot_be_carried_over_is_said(world):
    names = "TargetLoadPacking", "OwnPlugin", "Dynamic", "LoadAwareScheduling"
    score = {"score": {"enabled": [{"name": name} for name in names]}}
    sort = {"queueSort": {"enabled": [{"name": "Coscheduling"}]}}
    extender = {"urlPrefix": "http://x", "filterVerb": "filter"}
    world.write(profile("a", score | sort), profile("b", sort), extenders=[extender])
    told = world.told()
    assert "docs/cookbook.md#target-load-packing" in told[0]
    assert told[1] == "OwnPlugin: no policy is known for it"
    assert "docs/cookbook.md#node-annotations-as-load" in told[2]
    assert "`use load-aware`" in told[3]
    settings, _ = world.loaded()
    assert settings.extenders[0].url_prefix == "http://x"


def test_what_is_printed_can_be_applied(world):
    world.write(profile("net", NETWORK, NetworkTraffic={}))
    scheduler, berth, policies = yaml.safe_load_all(world.convert().stdout)
    assert scheduler["profiles"][0]["plugins"] == {
        "score": {"disabled": [{"name": "ImageLocality"}]}
    }
    assert berth["policies"] == {"configMap": "berth-system/policies"}
    assert policies["metadata"] == {"name": "policies", "namespace": "berth-system"}
    assert list(policies["data"]) == ["plugin-networktraffic.policy"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "cannot be read"),
        ("kind: Pod\napiVersion: v1\n---\n" * 2, "names), found Pod of v1, Pod of v1"),
        ("# nothing", "expected one KubeSchedulerConfiguration"),
        ("filter: node.ready", "in a ConfigMap or not (it is what --config names), found none\n"),
        (
            HEAD.replace("v1\n", "v1alpha1\n"),
            "of kubescheduler.config.k8s.io/v1, v1beta3, v1beta2 or",
        ),
        (f"{HEAD}---\n{HEAD}", "config.k8s.io/v1, KubeSchedulerConfiguration of"),
        (f"{HEAD}---\nkind: BerthConfiguration", ", BerthConfiguration of None"),
        (HEAD + "paralelism: 3", "did you mean parallelism"),
        (HEAD + "profiles: [x]", "profiles.0: "),
        (HEAD + "profiles: [{plugins: {score: {enabled: [PodState]}}}]", "score.enabled.0: "),
        (HEAD + "profiles: [{pluginConfig: [{args: {}}]}]", "pluginConfig.0.name: "),
        (
            HEAD + "profiles: [{pluginConfig: [{name: Coscheduling, args: {permit: 3}}]}]",
            "profiles.0.pluginConfig: Coscheduling: Object contains unknown field `permit`",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: []\n",
            "found ConfigMap of",
        ),
    ],
)
def test_what_is_no_such_configuration(world, text, said):
    world.file.write_text(text, "utf-8")
    done = world.convert()
    assert done.exit_code == 1
    assert said in done.output
