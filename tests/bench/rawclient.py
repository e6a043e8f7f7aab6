"""`python -m tests.bench.rawclient`: what the API server could take, if nobody had to decide.

Binds each waiting pod of the namespace to the next node and writes the Event that a scheduler
writes, over the scheduler's own connections: the calls of a scheduler without the scheduler. Pods
that fit nowhere get their condition and Event after that.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain, cycle

import click
import msgspec

from engine.cli.loop import run_in_loop
from engine.clock import SystemClock
from engine.kube.client import STRATEGIC_MERGE_PATCH
from engine.kube.session import Session

IN_FLIGHT = 200
IN_VAIN = "never"
"""So the names of pods begin that fit nowhere."""
_FULL = "0/5000 nodes are available: 5000 Insufficient cpu."
_json = msgspec.json.encode


@click.command()
@click.option("--kubeconfig", required=True)
@click.option("--namespace", required=True)
def main(kubeconfig: str, namespace: str) -> None:
    """Binds what waits, and then stays until it is ended."""
    run_in_loop(_bind(kubeconfig, namespace))


async def _bind(kubeconfig: str, namespace: str) -> None:
    session = await Session.connect(kubeconfig, clock=SystemClock())
    nodes = [one["metadata"]["name"] for one in await _items(session, "/api/v1/nodes")]
    path = f"/api/v1/namespaces/{namespace}/pods"
    waiting = [one for one in await _items(session, path) if not one["spec"].get("nodeName")]
    pods = [one["metadata"] for one in waiting]
    placed = [one for one in pods if not one["name"].startswith(IN_VAIN)]
    in_vain = [one for one in pods if one["name"].startswith(IN_VAIN)]
    bindings = zip(placed, cycle(nodes), strict=False)
    calls = chain(
        (partial(_bound, session, pod, node) for pod, node in bindings),
        (partial(_rejected, session, pod) for pod in in_vain),
    )

    async def work() -> None:
        for call in calls:
            await call()

    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    await asyncio.Event().wait()


async def _bound(session: Session, pod: dict[str, str], node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": _named(pod), "target": target}
    (await session.request("POST", f"{_path(pod)}/binding", body=_json(body))).checked()
    note = f"Successfully assigned {pod['namespace']}/{pod['name']} to {node}"
    await _told(session, pod, "Normal", "Scheduled", note)


async def _rejected(session: Session, pod: dict[str, str]) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": _FULL,
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    body = {"metadata": {"uid": pod["uid"]}, "status": {"conditions": [condition]}}
    answer = await session.request(
        "PATCH", f"{_path(pod)}/status", body=_json(body), content_type=STRATEGIC_MERGE_PATCH
    )
    answer.checked()
    await _told(session, pod, "Warning", "FailedScheduling", _FULL)


async def _told(session: Session, pod: dict[str, str], kind: str, reason: str, note: str) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pod['name']}.{pod['uid'][:8]}", "namespace": pod["namespace"]},
        "eventTime": "2025-01-01T00:00:00.000000Z",
        "reportingController": "raw",
        "reportingInstance": "raw-0",
        "action": "Binding" if reason == "Scheduled" else "Scheduling",
        "reason": reason,
        "type": kind,
        "regarding": {"apiVersion": "v1", "kind": "Pod", **_named(pod)},
        "note": note,
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{pod['namespace']}/events"
    (await session.request("POST", path, body=_json(event))).checked()


def _named(pod: dict[str, str]) -> dict[str, str]:
    return {"name": pod["name"], "namespace": pod["namespace"], "uid": pod["uid"]}


def _path(pod: dict[str, str]) -> str:
    return f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"


async def _items(session: Session, path: str) -> list[dict[str, dict[str, str]]]:
    answer = (await session.request("GET", path)).checked()
    return list(msgspec.json.decode(answer.body)["items"])


if __name__ == "__main__":
    main()
