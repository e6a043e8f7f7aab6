"""What of pods is kept, and shared."""

from __future__ import annotations

import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import msgspec
import pytest

from engine.kube.sharing import EVERYTHING, PodSharing
from engine.objects import Pod, from_builtins
from engine.plugins.default_preemption import is_evicted
from engine.pods.podinfo import make_pod_info
from tests.builders import changed

ROOT = Path(__file__).parents[3]


def pod(name: str, node: str = "", **status: object) -> Pod:
    requests = {"requests": {"cpu": "1"}}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": name}]
    return from_builtins(
        Pod,
        {
            "metadata": {
                "name": name,
                "uid": name,
                "namespace": "".join(["name", "space"]),
                "labels": {"app": "x"},
                "annotations": {"a": name},
                "creationTimestamp": name,
                "ownerReferences": [{"kind": "Job", "name": name}],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": requests}],
                "volumes": [{"name": f"token-{name}"}],
            },
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": [{"name": "c", "restartCount": 3}],
                **status,
            },
        },
    )


def shared(keep: frozenset[str], *pods: Pod) -> tuple[Pod, ...]:
    sharing = PodSharing(keep)
    for one in pods:
        sharing(one)
    return pods


def test_of_pods_on_nodes_only_what_is_read_is_kept() -> None:
    one, two = shared(frozenset(), pod("a", "n"), pod("b", "n"))
    meta = one.metadata
    assert meta.annotations is meta.creation_timestamp is meta.owner_references is None
    assert meta.labels is two.metadata.labels
    assert meta.namespace is two.metadata.namespace
    assert one.status is two.status
    assert one.status == from_builtins(Pod, {"status": {"phase": "Running"}}).status
    assert one.spec.volumes is None
    assert make_pod_info(one).requests is make_pod_info(two).requests


def test_names_are_shared_but_not_kept_for_ever() -> None:
    one, two = shared(frozenset(), *(pod(name, "-".join(["node", "1"])) for name in "ab"))
    for path in ("metadata.namespace", "bound_to"):
        word, same = (attrgetter(path)(each) for each in (one, two))
        assert word is same
        assert sys.intern(word.encode().decode()) is not word, path  # some Pythons keep those


def test_what_somebody_reads_is_kept() -> None:
    (one,) = shared(frozenset({"annotations", "statuses"}), pod("a", "n"))
    assert one.metadata.annotations == {"a": "a"}
    assert one.metadata.creation_timestamp is None
    assert one.status.conditions[0].type == "Ready"
    (all_of_it,) = shared(EVERYTHING, pod("a", "n"))
    assert all_of_it.node_name == "n"
    whole = msgspec.structs.replace(pod("a", "n"), spec=all_of_it.spec, bound_to="n")
    assert all_of_it == whole


def unshared(one: object, other: object, path: str = "pod") -> set[str]:
    """What of one is an object that the other has not."""
    if one is other:
        return set()
    found = {path}
    if isinstance(one, msgspec.Struct):
        for name in one.__struct_fields__:
            found |= unshared(getattr(one, name), getattr(other, name), f"{path}.{name}")
    return found


def test_replicas_have_nothing_of_their_own_but_their_names() -> None:
    one, two = shared(frozenset(), pod("a", "n1"), pod("b", "n2"))
    assert (one.node_name, two.node_name) == ("n1", "n2")
    assert unshared(one, two) == {
        "pod", "pod.metadata", "pod.metadata.name", "pod.metadata.uid", "pod.bound_to",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("node", "status"),
    [
        ("", {}),
        ("n", {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}}]}),
        ("n", {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}),
    ],
)
def test_waiting_pods_and_those_in_a_resize_are_whole(node: str, status: dict) -> None:
    (one,) = shared(frozenset(), pod("a", node, **status))
    whole = pod("a", node, **status)
    assert one == msgspec.structs.replace(whole, spec=one.spec, bound_to=node)
    assert make_pod_info(one).requests == make_pod_info(whole).requests


@pytest.mark.slow
def test_of_a_pod_that_goes_it_is_known_who_evicted_it() -> None:
    """Whoever is promised its node does not look for other victims meanwhile."""
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    one = pod("a", "n", conditions=[evicted])
    one = changed(one, metadata={"deletion_timestamp": "now"})
    (one,) = shared(frozenset(), one)
    assert is_evicted(one)


@pytest.mark.slow
def test_a_pod_on_a_node_takes_few_bytes() -> None:
    """From 50,000 to 150,000 pods, the reflector's table of them included."""
    words = [sys.executable, "-m", "tests.engine.kube.many_pods", "50000", "150000"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert (many - few) / 100_000 <= 700
