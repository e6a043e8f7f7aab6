"""Effective requests of pods; the suites `fit` and `extra` compare them with the real ones."""

from __future__ import annotations

import pytest

from engine.pods.podinfo import (
    NONZERO_CPU,
    NONZERO_MEMORY,
    PodInfo,
    UnreadablePod,
    is_extended_resource,
    is_scalar_resource,
)
from tests.engine.plugins.builders import make_pod

MI = 1 << 20


def container(name: str = "c", restart: str | None = None, **requests: str) -> dict[str, object]:
    requests = {key.replace("_", "-"): value for key, value in requests.items()}
    spec: dict[str, object] = {"name": name, "resources": {"requests": requests}}
    return {**spec, "restartPolicy": restart} if restart else spec


def nonzero(pod: PodInfo) -> tuple[int, int]:
    return pod.readings.sums[NONZERO_CPU], pod.readings.sums[NONZERO_MEMORY]


def test_a_plain_pod_has_one_set_of_requests() -> None:
    pod = make_pod(requests={"cpu": "250m", "memory": "64Mi", "example.com/gpu": "1"})
    assert pod.requests == {"cpu": 250, "memory": 64 * MI, "example.com/gpu": 1}
    assert pod.filter_requests is pod.requests
    assert pod.score_requests == pod.requests
    assert nonzero(pod) == (250, 64 * MI)


def test_containers_that_ask_for_nothing_count_for_scoring_only() -> None:
    pod = make_pod(containers=[container("a", cpu="1"), container("b")])
    assert pod.requests == {"cpu": 1000}
    assert nonzero(pod) == (1100, 400 * MI)
    assert pod.score_requests == {"cpu": 1100, "memory": 400 * MI}


def test_an_explicit_zero_is_no_missing_request() -> None:
    pod = make_pod(requests={"cpu": "0"})
    assert nonzero(pod) == (0, 200 * MI)


def test_init_containers_count_at_their_peak_and_sidecars_all_along() -> None:
    pod = make_pod(
        containers=[container(cpu="1")],
        initContainers=[
            container("i0", cpu="500m"),
            container("s", "Always", cpu="300m"),
            container("i1", cpu="2"),
        ],
    )
    assert pod.requests == {"cpu": 2300}


def test_overhead_is_added() -> None:
    pod = make_pod(requests={"cpu": "1"}, overhead={"cpu": "250m", "memory": "16Mi"})
    assert pod.requests == {"cpu": 1250, "memory": 16 * MI}
    assert pod.score_requests == {"cpu": 1250, "memory": 216 * MI}


def test_pod_level_requests_count_for_the_filter_and_not_for_the_score() -> None:
    level = {"requests": {"cpu": "2", "example.com/gpu": "3"}}
    pod = make_pod(containers=[container(cpu="1")], resources=level)
    assert pod.requests == {"cpu": 2000}
    assert pod.filter_requests == {"cpu": 2000}
    assert pod.score_requests["cpu"] == 1000


def resized(reason: str | None, allocated: str, actual: str) -> dict[str, object]:
    status: dict[str, object] = {
        "containerStatuses": [
            {
                "name": "c",
                "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": actual}},
            }
        ]
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "reason": reason}]
    return status


@pytest.mark.parametrize(
    ("reason", "allocated", "actual", "held"),
    [
        (None, "1", "1", 1000),
        (None, "3", "1", 3000),
        (None, "500m", "4", 4000),
        ("Deferred", "500m", "500m", 1000),
        ("Infeasible", "500m", "250m", 500),
        ("Infeasible", "500m", "750m", 750),
    ],
)
def test_a_resize_in_flight_holds_the_most(
    reason: str | None, allocated: str, actual: str, held: int
) -> None:
    pod = make_pod(requests={"cpu": "1"}, status=resized(reason, allocated, actual))
    assert pod.requests == {"cpu": held}
    assert pod.filter_requests == {"cpu": 1000}


def test_equal_pods_have_equal_keys() -> None:
    a = make_pod("a", {"cpu": "1", "memory": "1Gi"})
    b = make_pod("b", {"memory": "1024Mi", "cpu": "1000m"})
    assert a.requests_key == b.requests_key
    assert a.requests_key != make_pod("c", {"cpu": "1"}).requests_key


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"requests": {"cpu": "lots"}}, "spec.containers[0].resources.requests.cpu"),
        ({"overhead": {"memory": "1 Gi"}}, "spec.overhead.memory"),
        (
            {"initContainers": [container("i"), container("j", memory="x")]},
            "spec.initContainers[1].resources.requests.memory",
        ),
        ({"resources": {"requests": {"cpu": ""}}}, "spec.resources.requests.cpu"),
        (
            {"status": {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "x"}}]}},
            "status.containerStatuses[0].allocatedResources.cpu",
        ),
    ],
)
def test_an_unreadable_quantity_is_named(spec: dict[str, object], path: str) -> None:
    with pytest.raises(UnreadablePod) as caught:
        make_pod("bad", **spec)  # type: ignore[arg-type]  # wrong on purpose
    assert f"pod default/bad: {path}: " in str(caught.value)


def test_hundreds_of_containers_are_added_up() -> None:
    pod = make_pod(containers=[container(f"c{i}", cpu="10m", memory="1Mi") for i in range(300)])
    assert pod.requests == {"cpu": 3000, "memory": 300 * MI}


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("cpu", False, False),
        ("pods", False, False),
        ("example.com/gpu", True, True),
        ("requests.example.com/gpu", False, False),
        ("example.com/bad name", False, False),
        ("kubernetes.io/batch", False, True),
        ("x.kubernetes.io/y", False, True),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-x", False, True),
    ],
)
def test_which_resources_are_counted(name: str, extended: bool, scalar: bool) -> None:
    assert is_extended_resource(name) is extended
    assert is_scalar_resource(name) is scalar
