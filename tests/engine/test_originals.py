"""Who ends where, by the tests of the original plugins: their configuration, objects and pods.

Each scenario is one of scheduler-plugins' own (test/integration and unit tables at 903da7df), set
up from a KubeSchedulerConfiguration as `berth convert` reads it. Evicted pods go at once, as those
of the originals do (their grace period is zero).
"""

from __future__ import annotations

import pytest
import yaml

from engine.cache.otherpods import QUEUE, TIMES
from engine.cli.convert import converted
from engine.configuration.scheduler import ProfileDocument
from engine.framework.events import Resource
from engine.objects import from_builtins
from engine.objects.workloads import ElasticQuota, PodGroup
from engine.plugins.profiles import make_profile
from tests.builders import make_node, pod_object
from tests.engine.policy.builders import chain
from tests.engine.test_quotas_against_model import Server
from tests.engine.test_scheduler import World

LOW, MID, HIGH = 0, 100, 1000
GROUP = "scheduling.x-k8s.io/pod-group"


def rules(tmp_path, plugins, args=None):
    """A profile with these plugins as `berth convert` has it, policies included."""
    profile = {"plugins": plugins}
    if args:
        profile["pluginConfig"] = [{"name": name, "args": of} for name, of in args.items()]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.dump(document), encoding="utf-8")
    found = converted(path)
    (own,) = found.scheduler["profiles"]
    texts = {name: text for of in found.policies.values() for name, text in of.items()}
    in_tree = make_profile(ProfileDocument.model_validate(own)).plugins
    return chain(texts, in_tree=in_tree)


def enabled(*names, without=None):
    found = {"enabled": [{"name": one} for one in names]}
    return found | ({"disabled": [{"name": without}]} if without else {})


COSCHEDULING = {
    "queueSort": enabled("Coscheduling", without="*"),
    "preFilter": enabled("Coscheduling"),
    "postFilter": enabled("Coscheduling"),
    "permit": enabled("Coscheduling"),
}
CAPACITY = {
    "preFilter": enabled("CapacityScheduling"),
    "postFilter": enabled("CapacityScheduling", without="*"),
    "reserve": enabled("CapacityScheduling"),
}


class Original(World):
    """A cluster with a server of its own, where pods go as soon as they are evicted."""

    def __init__(self, tmp_path, plugins, args=None):
        super().__init__(rules=rules(tmp_path, plugins, args), nodes=())
        self.server = Server(self)
        self.queue.on_change = lambda queued: self.cache.set_queued(queued.pod, queued.times)
        self.cache.attend(frozenset({QUEUE, TIMES}))

    def quotas(self, **amounts):
        """Namespace -> (minimum, maximum), each `cpu=..., memory=...`."""
        for namespace, (least, most) in amounts.items():
            meta, spec = {"name": "eq", "namespace": namespace}, {"min": least, "max": most}
            made = from_builtins(ElasticQuota, {"metadata": meta, "spec": spec})
            self.handlers.of(Resource.ELASTIC_QUOTA).on_add(made)

    def groups(self, *, least=None, **minimums):
        for name, minimum in minimums.items():
            spec = {"minMember": minimum}
            if least:
                spec["minResources"] = {"memory": least[name]}
            meta = {"name": name, "namespace": "default"}
            made = from_builtins(PodGroup, {"metadata": meta, "spec": spec})
            self.handlers.of(Resource.POD_GROUP).on_add(made)

    def comes(self, name="p", *, group="", labels=None, **how):
        labels = {**(labels or {}), **({GROUP: group} if group else {})}
        pod = pod_object(name, labels=labels, **how)
        self.server.pods[pod.metadata.uid] = pod
        self.server.watch()
        return pod

    async def ends(self, seconds=40):
        """Who is on which node after so many seconds."""
        for _ in range(seconds):
            await self.turn(after=1.0)
            self.server.watch()
            for uid, pod in [*self.server.pods.items()]:
                if pod.metadata.deletion_timestamp and pod.metadata.name not in self.terminating:
                    del self.server.pods[uid]
            self.server.watch()
        pods = self.server.pods.values()
        return {one.metadata.name: one.spec.node_name for one in pods if one.spec.node_name}

    terminating = frozenset()
    """Pods that do not go."""


# ---- Coscheduling


GANGS = {
    "pg1 meets min and pg2 does not": (
        {"pg1": 3, "pg2": 4}, None, "a1 a2 a3 b1 b2 b3 b4", "a1 a2 a3"),
    "the same, not in order": ({"pg1": 3, "pg2": 4}, None, "a1 b1 a2 b2 a3 b3 b4", "a1 a2 a3"),
    "pg1 does not meet min beside pods of no group": ({"pg1": 4}, None, "a1 r1 a2 r2 a3", "r1 r2"),
    "the more important group": ({"pg1": 3, "pg2": 3}, None, "B1 B2 B3 H1 H2 H3", "H1 H2 H3"),
    "the more important group, not in order": (
        {"pg1": 3, "pg2": 3}, None, "B1 H1 B2 H2 B3 H3", "H1 H2 H3"),
    "more important pods of no group": ({"pg1": 3}, None, "a1 R1 a2 R2 a3 R3", "R1 R2 R3"),
    "two groups that do not meet min": (
        {"pg1": 3, "pg2": 4, "pg3": 4}, None, "a1 b1 c1 a2 b2 c2 a3 b3 c3 b4 c4", "a1 a2 a3"),
    "two that do not, with minResources": (
        {"pg1": 3, "pg2": 4, "pg3": 4}, {"pg1": "150", "pg2": "400", "pg3": "400"},
        "a1 b1 c1 a2 b2 c2 a3 b3 c3 b4 c4", "a1 a2 a3"),
    "one that does not, with minResources": (
        {"pg1": 3, "pg2": 4}, {"pg1": "150", "pg2": "400"}, "a1 b1 a2 b2 a3 b3 b4", "a1 a2 a3"),
}  # fmt: skip
KINDS = {
    "a": ("pg1", "50", MID),
    "b": ("pg2", "100", MID),
    "c": ("pg3", "100", MID),
    "B": ("pg1", "100", MID),
    "H": ("pg2", "50", HIGH),
    "r": ("", "100", MID),
    "R": ("", "100", HIGH),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("case", GANGS)
async def test_coscheduling(tmp_path, case, at_once):
    groups, least, pods, there = GANGS[case]
    made = Original(tmp_path, COSCHEDULING, {"Coscheduling": {"permitWaitingTimeSeconds": 3}})
    made.handlers.nodes.on_add(make_node("fake-node", cpu="100", memory="300", pods="32"))
    made.groups(least=least, **groups)
    for name in pods.split():
        group, memory, priority = KINDS[name[0]]
        made.comes(name, group=group, memory=memory, priority=priority)
        if not at_once:
            await made.turn()
            made.server.watch()
    ends = await made.ends()
    # A gang that has started loses as many members as a more important one needs.
    assert ends.keys() - ({"B1", "B2", "B3"} if not at_once else set()) == {*there.split()}


async def test_coscheduling_finished_members_do_not_count(tmp_path):
    args = {"permitWaitingTimeSeconds": 3, "podGroupBackoffSeconds": 1}
    made = Original(tmp_path, COSCHEDULING, {"Coscheduling": args})
    made.handlers.nodes.on_add(make_node("fake-node-1", cpu="6", pods="32"))
    made.groups(pg1=6)
    made.comes("p1", group="pg1", cpu="1", node="fake-node-1", status={"phase": "Succeeded"})
    for number in range(2, 7):
        made.comes(f"p{number}", group="pg1", cpu="1", priority=MID)
    assert set(await made.ends(10)) <= {"p1"}


async def test_coscheduling_a_group_that_fails_keeps_no_other_waiting(tmp_path):
    args = {"permitWaitingTimeSeconds": 3, "podGroupBackoffSeconds": 1}
    made = Original(tmp_path, COSCHEDULING, {"Coscheduling": args})
    for number, cpu in enumerate("6222"):
        made.handlers.nodes.on_add(make_node(f"fake-node-{number}", cpu=cpu, pods="32"))
    made.groups(pg1=6, pg2=1)
    for number in range(6):
        made.comes(f"p1-{number}", group="pg1", cpu="4", priority=MID)
    made.comes("p2", group="pg2", cpu="2", priority=MID)
    assert sorted(await made.ends()) == ["p2"]


@pytest.mark.parametrize(
    ("percent", "room", "waits"),
    [(10, 9, True), (10, 8, False), (0, 9, False), (100, 1, True), (50, 6, True), (50, 4, False)],
)
async def test_coscheduling_members_wait_if_few_are_missing(tmp_path, percent, room, waits):
    args = {"permitWaitingTimeSeconds": 10, "podGroupRejectPercentage": percent}
    made = Original(tmp_path, COSCHEDULING, {"Coscheduling": args})
    made.handlers.nodes.on_add(make_node("fake-node", cpu=str(room)))
    made.groups(pg1=10)
    for number in range(10):
        made.comes(f"p{number}", group="pg1", cpu="1")
    await made.turn()
    assert len(made.scheduler.waiting_pods) == (room if waits else 0)


# ---- CapacityScheduling


def amounts(memory, cpu):
    return {"memory": str(memory), "cpu": f"{cpu}m"}


BOTH = (amounts(100, 100), amounts(200, 200))
TWO = {"ns1": BOTH, "ns2": BOTH}
THREE = {
    "ns1": (amounts(100, 1), amounts(200, 3)),
    "ns2": (amounts(100, 3), amounts(200, 3)),
    "ns3": (amounts(100, 3), amounts(200, 4)),
}
QUOTAS = {
    "from another namespace": (
        TWO,
        "p1 ns1 50 10 mid 1, p2 ns1 50 10 mid 1, p3 ns1 50 10 low 2",
        "p4 ns2 50 10 mid, p5 ns2 50 10 mid, p6 ns2 50 10 low",
        "p1 p2 p4 p5",
    ),
    "in a namespace": (
        TWO,
        "p1 ns1 50 10 mid 1, p2 ns1 50 10 low 1, p3 ns2 50 10 mid 2, p4 ns2 50 10 low 2",
        "p5 ns1 50 10 mid, p6 ns2 50 10 mid",
        "p1 p3 p5 p6",
    ),
    "without quotas": (
        {},
        "p1 ns1 50 10 high 1, p2 ns1 50 10 low 1, p3 ns2 50 10 high 2, p4 ns2 50 10 low 2",
        "p5 ns1 50 10 mid, p6 ns2 50 10 mid",
        "p1 p3 p5 p6",
    ),
    "no node is large enough": (
        TWO,
        "p1 ns1 50 10 mid 1, p2 ns1 50 10 mid 1, p3 ns1 50 10 low 2, p4 ns2 50 10 mid 2",
        "p5 ns1 150 10 high, p6 ns2 150 10 high",
        "p1 p2 p3 p4",
    ),
    "who uses too much evicts nobody of others": (
        TWO,
        "p1 ns1 50 10 mid 1, p2 ns2 50 10 high 1, p3 ns2 50 10 high 2, p4 ns2 50 10 high 2",
        "p5 ns2 50 10 high",
        "p1 p2 p3 p4",
    ),
    "victims on one node are not enough": (
        TWO,
        "p1 ns1 50 10 low 1, p2 ns1 50 10 low 2, p3 ns2 50 10 mid 1, p4 ns2 50 10 mid 2",
        "p5 ns1 100 20 high, p6 ns2 100 20 high",
        "p1 p2 p3 p4",
    ),
    "three quotas": (
        THREE,
        "p1 ns1 0 1 high 1, p2 ns1 0 1 mid 2, p3 ns1 0 1 mid 2,"
        " p5 ns2 0 1 mid 2, p6 ns2 0 1 mid 1, p7 ns2 0 1 mid 2",
        "p9 ns3 0 1 mid, p10 ns3 0 1 mid, p11 ns3 0 1 mid, p12 ns3 0 1 mid",
        "p1 p10 p11 p5 p6 p7 p9",
    ),
}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("case", QUOTAS)
async def test_capacity_scheduling(tmp_path, case, at_once):
    quotas, running, pods, there = QUOTAS[case]
    made = Original(tmp_path, CAPACITY)
    for number in (1, 2):
        made.handlers.nodes.on_add(make_node(f"fake-node-{number}", memory="100", cpu="100"))
    made.quotas(**quotas)
    for one in f"{running}, {pods}".split(", "):
        name, namespace, memory, cpu, priority, *node = one.split()
        made.comes(
            name,
            namespace=namespace,
            memory=memory,
            cpu=f"{cpu}m",
            priority={"low": LOW, "mid": MID, "high": HIGH}[priority],
            node=f"fake-node-{node[0]}" if node else "",
        )
        if not at_once:
            await made.turn()
            made.server.watch()
    assert sorted(await made.ends()) == there.split()


VICTIMS = {
    "in its namespace": (
        {"ns1": (50, 200), "ns2": (200, 200)},
        "p1 ns1 mid, p2 ns2 mid, p3 ns2 mid",
        "p p2 p3",
    ),
    "of another namespace": (
        {"ns1": (150, 200), "ns2": (50, 200)},
        "p1 ns1 mid, p2 ns2 mid, p3 ns2 mid",
        "p p1 p2|p p1 p3",
    ),
    "of another namespace, the less important one": (
        {"ns1": (150, 200), "ns2": (50, 200)},
        "p1 ns1 mid, p2 ns2 high, p3 ns2 mid",
        "p p1 p2",
    ),
}


@pytest.mark.parametrize("case", VICTIMS)
async def test_capacity_scheduling_victims_of_a_node(tmp_path, case):
    quotas, running, there = VICTIMS[case]
    made = Original(tmp_path, CAPACITY)
    made.handlers.nodes.on_add(make_node("node-a", memory="150", cpu="100"))
    made.quotas(
        **{name: ({"memory": str(a)}, {"memory": str(b)}) for name, (a, b) in quotas.items()}
    )
    for one in running.split(", "):
        name, namespace, priority = one.split()
        priority = {"mid": MID, "high": HIGH}[priority]
        made.comes(name, namespace=namespace, memory="50", priority=priority, node="node-a")
    made.comes("p", namespace="ns1", memory="50", priority=HIGH)
    assert " ".join(sorted(await made.ends())) in there.split("|")


# ---- CrossNodePreemption, PodState, QOSSort, NodeResourcesAllocatable


FOO = {"matchExpressions": [{"key": "foo", "operator": "Exists"}]}
ACROSS = {
    "spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": FOO,
            }
        ]
    },
    "apart": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": FOO, "topologyKey": "zone"}
                ]
            }
        }
    },
}


@pytest.mark.parametrize("case", ACROSS)
async def test_cross_node_preemption(tmp_path, case):
    made = Original(tmp_path, {"postFilter": enabled("CrossNodePreemption")})
    for name, zone, pods in (("a", "1", "32"), ("b", "1", "32"), ("x", "2", "0")):
        node = make_node(f"node-{name}", labels={"zone": f"zone{zone}"}, pods=pods)
        made.handlers.nodes.on_add(node)
    for name in "ab":
        made.comes(f"pod-{name}", node=f"node-{name}", labels={"foo": ""})
    made.comes("p", priority=HIGH, labels={"foo": ""}, spec=ACROSS[case])
    assert sorted(await made.ends()) == ["p"]


async def test_pod_state(tmp_path):
    none = {"disabled": [{"name": "*"}]}
    made = Original(
        tmp_path, {"preScore": none, "score": none | {"enabled": [{"name": "PodState"}]}}
    )
    for name in "abc":
        labels = {"nominated": "true"} if name == "c" else {}
        made.handlers.nodes.on_add(make_node(f"node-{name}", labels=labels))
    port = {"containers": [{"name": "c", "ports": [{"hostPort": 8080, "containerPort": 8080}]}]}
    there = {"nodeSelector": {"nominated": "true"}, **port}
    made.terminating = {f"pod-{number}" for number in range(1, 6)}
    for number, node in enumerate("aabb", 1):
        deleted = "2025-03-01T10:00:00Z" if node == "a" else None
        made.comes(f"pod-{number}", node=f"node-{node}", deleted=deleted)
    made.comes("pod-5", spec={"nodeName": "node-c", **there})
    made.comes("pod-6", spec=there, priority=HIGH)
    await made.ends(2)
    assert made.cache.nominations.node_of("uid-default-pod-6") == "node-c"
    made.comes("p1")
    assert (await made.ends(2))["p1"] == "node-a"


async def test_qos_sort(tmp_path):
    made = Original(tmp_path, {"queueSort": enabled("QOSSort", without="*")})
    made.handlers.nodes.on_add(make_node("fake-node", cpu="500m", memory="500", pods="32"))

    def resources(cpu, memory):
        return {"cpu": cpu, "memory": memory}

    some = {"requests": resources("50m", "100"), "limits": resources("100m", "200")}
    all_of = {one: resources("100m", "100") for one in ("requests", "limits")}
    each = {"besteffort": {}, "burstable": some, "guaranteed": all_of}
    for name, of in each.items():
        made.comes(name, spec={"containers": [{"name": "c", "resources": of}]})
    for number in (1, 2, 3):
        made.clock.advance(1.0)
        made.comes(f"later-{number}", spec={"containers": [{"name": "c", "resources": all_of}]})
    await made.ends(2)
    order = ["guaranteed", "later-1", "later-2", "later-3", "burstable", "besteffort"]
    assert [uid.removeprefix("uid-default-") for uid in made.server.binds] == order


@pytest.mark.parametrize("mode", ["Least", "Most"])
async def test_allocatable(tmp_path, mode):
    none = {"disabled": [{"name": "*"}]}
    score = none | {"enabled": [{"name": "NodeResourcesAllocatable", "weight": 50000}]}
    args = {"mode": mode, "resources": [{"name": "memory", "weight": 10}]}
    made = Original(
        tmp_path, {"preScore": none, "score": score}, {"NodeResourcesAllocatable": args}
    )
    for name, memory in (("small-1", "500"), ("small-2", "500"), ("big", "5000")):
        made.handlers.nodes.on_add(make_node(name, cpu="500m", memory=memory, pods="32"))
    for number in range(4):
        made.comes(f"pod-{number}", memory="100")
    made.comes("pod-big", memory="2000")
    ends = await made.ends(2)
    assert ends.pop("pod-big") == "big"
    assert len(ends) == 4
    assert {one.split("-")[0] for one in ends.values()} == {"small" if mode == "Least" else "big"}
