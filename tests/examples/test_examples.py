"""Every example does what its comment says: compiled, tried on small clusters, run end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from click.testing import CliRunner

from engine.app import App, Hooks, RunOptions
from engine.cli import main
from engine.clock import SystemClock
from engine.configuration.settings import Settings, load
from engine.cycle import decide
from engine.embedded import EmbeddedCluster, Pace
from engine.framework.decision import Decision, Placed
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.plugins.profiles import make_profiles
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.chain import framework_of
from engine.policy.findings import new_compiler
from engine.policy.world import Worlds
from tests.builders import Cache, Given, default_plugins, make_node, pod_object, scored

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Those of the cookbook have a test of their own.
POLICIES = sorted({*EXAMPLES.glob("**/*.policy")} - {*EXAMPLES.glob("cookbook/*")})
ZONE = "topology.kubernetes.io/zone"
COMPILER = new_compiler()
NOON, NIGHT = 12 * 3600.0, 3 * 3600.0
GPU = "nvidia.com/gpu"


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / path).read_text("utf-8")))


def pod(name: str = "p", *, node: str = "", cpu: str = "1", **more: Any) -> PodInfo:
    return make_pod_info(pod_object(name, cpu=cpu, node=node, **more))


def bundle_of(name: str, settings: Settings | None = None) -> Bundle:
    path = EXAMPLES / "policies" / f"{name}.policy"
    given = compile_settings((settings or Settings()).berth)
    made = compile_at_once(COMPILER, {path.name: path.read_text("utf-8")}, given)
    assert isinstance(made, Bundle), made.text
    return made


def world(
    name: str, nodes: list[Any], placed: list[PodInfo] | None = None, *,
    now: float = NOON, settings: Settings | None = None,
) -> tuple[Snapshot, Framework]:  # fmt: skip
    """Where only this policy and the default plugins have a say."""
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    for other in placed or []:
        cache.add_pod(other, other.pod.spec.node_name)
    framework = framework_of(
        Profile("berth", default_plugins()),
        bundle_of(name, settings),
        worlds=Worlds(ZoneInfo("UTC"), (GPU,)),
    )
    return cache.snapshot(now), framework


def tried(name: str, waiting: PodInfo, *about: Any, **how: Any) -> Decision:
    """What becomes of the pod in such a `world`."""
    return decide(waiting, *world(name, *about, **how))


def given(name: str, waiting: PodInfo, nodes: list[Any]) -> Given:
    """What each plugin gave the node that the pod goes to there."""
    snapshot, framework = world(name, nodes)
    return scored(decide(waiting, snapshot, framework), snapshot, framework)[1]


# ---- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_every_policy_is_checked_without_a_word(path):
    result = CliRunner().invoke(main, ["check", "--deny-warnings", str(path)])
    assert result.exit_code == 0, result.output


def test_every_policy_is_in_the_table_and_has_a_test():
    table = (EXAMPLES / "README.md").read_text("utf-8")
    here = Path(__file__).read_text("utf-8")
    for path in (EXAMPLES / "policies").iterdir():
        assert f"`policies/{path.name}`" in table
        assert f'"{path.stem}"' in here


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("**/*.yaml")), ids=lambda path: path.name)
def test_every_yaml_file_is_yaml(path):
    assert all(d["kind"] for d in documents(str(path.relative_to(EXAMPLES))))


def test_the_configuration_loads_and_means_what_it_says():
    settings = load(str(EXAMPLES / "config.yaml"))
    assert settings.scheduler_name == "berth"
    assert (settings.election.resource_namespace, settings.notes) == ("berth-system", ())
    plain, packed = make_profiles(settings)
    assert (packed.scheduler_name, packed.node_selector) == ("berth-packed", {"pool": "batch"})
    assert not plain.node_selector
    assert settings.kubeconfig == "/etc/berth/kubeconfig"
    assert settings.berth.policies.config_map == "berth-system/policies"
    assert settings.berth.time_zone == "Europe/Berlin"
    assert bundle_of("night-batch", settings).plans[0].mode == "off"
    node, big = make_node("n", memory="10Gi"), pod(memory="8500Mi")
    assert not tried("memory-headroom", big, [node]).node
    assert tried("memory-headroom", big, [node], settings=settings).node


# ---- one by one ----------------------------------------------------------------------------------


def test_dedicated_nodes():
    nodes = [make_node("ml", labels={"dedicated": "ml"})]
    assert tried("dedicated-nodes", pod(labels={"team": "ml"}), nodes).node
    refused = tried("dedicated-nodes", pod(labels={"team": "web"}), nodes)
    assert refused.fit_error is not None
    assert refused.fit_error.message() == (
        "0/1 nodes are available: 1 ml is for team ml (dedicated-nodes.policy:3)."
    )
    assert tried("dedicated-nodes", pod(), [*nodes, make_node("any")]).node == "any"


def test_gpu_nodes():
    nodes = [make_node("gpu", **{GPU: "4"}), make_node("plain")]
    assert tried("gpu-nodes", pod(), nodes).node == "plain"
    assert not tried("gpu-nodes", pod(), nodes[:1]).node
    asks = pod(spec={"containers": [{"name": "c", "resources": {"requests": {GPU: "1"}}}]})
    assert tried("gpu-nodes", asks, nodes).node == "gpu"


def test_home_zone():
    nodes = [make_node(name, labels={ZONE: name}) for name in ("a", "b", "c")]
    for zone in "abc":
        assert tried("home-zone", pod(labels={"zone": zone}), nodes).node == zone
    assert tried("home-zone", pod(labels={"zone": "d"}), nodes).node
    assert "home-zone" not in given("home-zone", pod(), nodes)


def test_memory_headroom():
    node = make_node("n", memory="10Gi")
    assert tried("memory-headroom", pod(memory="8Gi"), [node]).node
    assert not tried("memory-headroom", pod(memory="8Gi"), [node], [
        pod("other", memory="1Mi", node="n"),
    ]).node  # fmt: skip


def test_night_batch():
    night, node = pod(labels={"batch": "night"}), make_node("n")
    assert tried("night-batch", night, [node], now=NIGHT).node
    assert not tried("night-batch", night, [node], now=NOON).node
    assert tried("night-batch", pod(), [node], now=NOON).node


def test_pack():
    nodes = [make_node(name) for name in ("a", "b", "c")]
    for name in "abc":
        placed = [pod("there", node=name)]
        assert tried("pack", pod(), nodes, placed).node == name


def test_quiet_disks():
    own = given("quiet-disks", pod(), [make_node("a"), make_node("b")])["quiet-disks"]
    assert own[1] == 50.0
    (metric,) = bundle_of("quiet-disks").metrics
    assert "{device='nvme0n1'}" in metric.query
    assert (metric.every_seconds, metric.stale_seconds) == (30.0, 120.0)


def test_spread():
    nodes = [make_node(name, cpu="64") for name in ("a", "b", "c")]
    there = [pod(f"p{i}", cpu="10m", node=n, labels={"app": "web"}) for i, n in enumerate("aab")]
    assert tried("spread", pod(labels={"app": "web"}), nodes, there).node == "c"
    others = [pod("q", cpu="10m", node="c", labels={"app": "other"})]
    assert tried("spread", pod(labels={"app": "web"}), nodes, there + others).node == "c"


def test_team_limit():
    node = make_node("n", cpu="64")
    there = [pod(f"p{i}", cpu="3", node="n", labels={"team": "a"}) for i in range(2)]
    assert tried("team-limit", pod(cpu="2", labels={"team": "a"}), [node], there).node
    refused = tried("team-limit", pod(cpu="3", labels={"team": "a"}), [node], there)
    assert refused.fit_error is not None
    assert "team a may ask for 8 cores" in refused.fit_error.message()
    assert tried("team-limit", pod(cpu="3", labels={"team": "b"}), [node], there).node


# ---- two lines, end to end -----------------------------------------------------------------------


def test_two_lines_are_the_same_in_the_readme_the_files_and_the_config_map():
    files = {p.name: p.read_text("utf-8") for p in (EXAMPLES / "two-lines").glob("*.policy")}
    (config_map,) = [d for d in documents("two-lines/configmap.yaml") if d["kind"] == "ConfigMap"]
    assert config_map["data"] == files
    readme = (EXAMPLES.parent / "README.md").read_text("utf-8")
    assert all(text in readme for text in files.values())


def test_two_lines_place_pods_on_the_embedded_cluster():
    seen: list[Mapping[str, float]] = []
    asyncio.run(asyncio.wait_for(_two_lines(seen), 30))
    assert seen
    assert all(scores["quiet-network"] > 0 for scores in seen)


async def _two_lines(seen: list[Mapping[str, float]]) -> None:
    namespace, config_map = documents("two-lines/configmap.yaml")
    meta = config_map["metadata"]
    async with EmbeddedCluster(nodes=6, seed=1, pace=Pace(signal_seconds=0.2)) as cluster:
        cluster.create("namespaces", namespace)
        cluster.create("configmaps", config_map, namespace=meta["namespace"])
        berth = {
            "policies": {"configMap": f"{meta['namespace']}/{meta['name']}"},
            "prometheus": {"url": cluster.prometheus_url},
        }
        options = RunOptions(Settings.model_validate({"berth": berth}), cluster.kubeconfig())

        def observe(placed: Placed) -> None:
            assert app.scheduler is not None
            assert app.scheduler.framework is not None
            framework = app.scheduler.framework.of(placed.decision.pod)
            _, each = scored(placed.decision, placed.snapshot, framework)
            seen.append({plugin: normalized for plugin, (_, normalized, _) in each.items()})

        app = App(options, clock=SystemClock(), hooks=Hooks(observers=[observe]))
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(app.run(stop))
        await _until(lambda: any(status.matched for status in app.signals.status()))
        names = _create_pods(cluster)
        await _until(lambda: all(_node_of(cluster, name) for name in names))
        stop.set()
        await running
        test = {
            node["metadata"]["name"]
            for node in cluster.list("nodes")
            if node["metadata"]["labels"].get("test") == "test"
        }
        assert 0 < len(test) < 6
        assert {_node_of(cluster, name) for name in names if "nginx" in name} <= test


async def _until(there: Callable[[], bool]) -> None:
    for _ in range(1000):
        if there():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen in time")


def _create_pods(cluster: EmbeddedCluster) -> list[str]:
    """The pods of the example, and the Deployment's as its controllers would make them."""
    (deployment,) = documents("two-lines/deployment.yaml")
    spec = deployment["spec"]
    items = documents("two-lines/pods.yaml")
    for number in range(spec["replicas"]):
        meta = {**spec["template"]["metadata"], "name": f"nginx-5d4f-{number}"}
        items.append({"metadata": meta, "spec": spec["template"]["spec"]})
    for item in items:
        cluster.create("pods", item, namespace="default")
    return [item["metadata"]["name"] for item in items]


def _node_of(cluster: EmbeddedCluster, name: str) -> str | None:
    node: str | None = cluster.get("pods", name, namespace="default")["spec"].get("nodeName")
    return node
