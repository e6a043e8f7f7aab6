"""One table of kinds: what is watched, what the embedded cluster serves, what the role allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from engine.embedded.resources import BY_PATH
from engine.framework.events import Resource as Wakes
from engine.kube import resources
from engine.kube.resources import (
    KINDS,
    LEASES,
    WORKLOAD_KINDS,
    Kind,
    Resource,
    config_maps,
    pods,
)
from engine.policy.objectreads import LEASES as NODES

RBAC = Path(__file__).parents[3] / "deploy/kustomize/components/every-policy/role.yaml"


def allowed(base: str, plural: str) -> set[str]:
    role = next(one for one in yaml.safe_load_all(RBAC.read_text()) if one["kind"] == "ClusterRole")
    group = base.split("/")[1] if base.startswith("apis/") else ""
    return {
        verb
        for rule in role["rules"]
        if group in rule["apiGroups"] and plural in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_embedded_cluster_serves_it_and_the_role_allows_it(kind: Kind) -> None:
    base, _, plural = kind.path.strip("/").rpartition("/")
    if (
        "v1beta1" not in kind.path
    ):  # the other kind of the name is off by default in the API server, too
        assert BY_PATH[base, plural].kind == kind.name
    assert {"list", "watch"} <= allowed(base, plural)
    assert kind.wakes is None or kind.wakes.value.endswith(kind.name)
    assert kind.resource().optional


@pytest.mark.parametrize("kind", [*WORKLOAD_KINDS, LEASES], ids=lambda kind: kind.name)
def test_what_is_watched_when_a_policy_reads_it_may_be_watched(kind: Kind) -> None:
    base, _, plural = kind.path.strip("/").rpartition("/")
    base = base.removesuffix(f"/namespaces/{NODES}")
    assert BY_PATH[base, plural].kind == kind.name.removesuffix("Scale")
    assert {"list", "watch"} <= allowed(base, plural)
    assert not kind.resource(optional=False).optional


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (resources.NODES, "nodes"),
        (resources.NAMESPACES, "namespaces"),
        (pods(), "pods"),
        (config_maps("a", "b"), "configmaps a/b"),
        (config_maps("a", label_selector="x=y"), "configmaps a/x=y"),
        (config_maps("", "b"), "configmaps b"),
        (LEASES.resource(), "leases.coordination.k8s.io kube-node-lease"),
    ],
)
def test_what_is_watched_has_a_name_of_its_own(resource: Resource[Any], name: str) -> None:
    assert resource.name == name


def test_every_api_server_has_all_but_the_groups_of_pods_and_quotas() -> None:
    kinds = [kind.resource() for kind in (*KINDS, *WORKLOAD_KINDS, LEASES)]
    lacking = {one.name for one in kinds if not one.everywhere}
    assert lacking == {
        "elasticquotas.scheduling.x-k8s.io",
        "podgroups.scheduling.x-k8s.io",
        "podgroups.scheduling.k8s.io",
    }
    assert all(
        one.everywhere
        for one in (pods(), resources.NODES, resources.NAMESPACES, config_maps("a", "b"))
    )
    assert not replace(pods(), path="/apis/apps/v1/deploymentz").everywhere


def test_no_two_kinds_have_one_name() -> None:
    names = [kind.resource().name for kind in (*KINDS, *WORKLOAD_KINDS)]
    assert len(set(names)) == len({kind.path for kind in (*KINDS, *WORKLOAD_KINDS)})


def test_every_event_of_storage_has_its_kind() -> None:
    told = {kind.wakes for kind in KINDS}
    ours = {"AssignedPod", "UnscheduledPod", "TargetPod", "Node", "Namespace", "Signal", "Time"}
    ours |= {"FinishedPod", "Nomination", "Lease", "Workload", "Object"}
    assert {one for one in Wakes if one.value not in ours | {"Policy", "*"}} == told - {None}
