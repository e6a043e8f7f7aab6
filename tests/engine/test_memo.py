"""What is remembered of what others send is bounded by bytes."""

from __future__ import annotations

from engine.memo import Memo
from engine.pods import podinfo
from tests.engine.plugins.builders import make_pod
from tests.engine.test_podinfo import container


def test_bytes_bound_what_is_remembered() -> None:
    memo: Memo[int, str] = Memo(4_000)
    for key in range(100):
        memo.put(key, str(key), 100)
        assert memo.get(0) == "0", "what is asked for stays"
    assert len(memo) <= 40
    assert memo.get(1) is None
    memo.put(1, "large", (16 << 10) + 1)
    assert memo.get(1) is None


def test_large_pods_leave_nothing_behind() -> None:
    asked = {f"example.com/r{i}": "1" for i in range(200)}
    make_pod(requests={"cpu": "77m"})
    before = len(podinfo._worked_out)
    make_pod(requests=asked)
    make_pod(containers=[container(f"c{i}", cpu=f"{i + 1}m") for i in range(200)])
    assert len(podinfo._worked_out) == before


def test_equal_requests_are_worked_out_once() -> None:
    pods = [make_pod(requests={"cpu": "78m"}) for _ in range(2)]
    assert pods[0].requests is pods[1].requests


def test_sidecars_and_init_containers_cost_their_entries(monkeypatch) -> None:
    """Counted: how many amounts are looked at for 300 resources and 300 init containers."""
    looked = 0
    for name in ("_add", "_raise_to"):
        real = getattr(podinfo, name)

        def counted(total, more, real=real):
            nonlocal looked
            looked += len(more)
            real(total, more)

        monkeypatch.setattr(podinfo, name, counted)
    gpus = {f"example.com/r{i}": "1" for i in range(300)}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": gpus}}
    inits = [container(f"i{i}", cpu="1", **{"example.com/r0": "2"}) for i in range(300)]
    pod = make_pod(containers=[container()], initContainers=[sidecar, *inits])
    assert pod.requests["example.com/r0"] == 3
    assert pod.requests["example.com/r1"] == 1
    assert looked < 20 * 600
