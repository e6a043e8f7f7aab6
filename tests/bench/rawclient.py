"""`python -m tests.bench.rawclient`: what the API server could take, if nobody had to decide.

Binds each waiting pod of the namespace to the next node and writes the Event that a scheduler
writes, over the scheduler's own connections: the calls of a scheduler without the scheduler.
"""

from __future__ import annotations

import asyncio
from itertools import cycle

import click
import msgspec

from engine.cli.loop import run_in_loop
from engine.clock import SystemClock
from engine.kube.session import Session

IN_FLIGHT = 200
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
    left = zip(waiting, cycle(nodes), strict=False)

    async def work() -> None:
        for pod, node in left:
            await _one(session, pod["metadata"], node)

    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    await asyncio.Event().wait()


async def _one(session: Session, pod: dict[str, str], node: str) -> None:
    place = f"/namespaces/{pod['namespace']}"
    named = {"name": pod["name"], "namespace": pod["namespace"], "uid": pod["uid"]}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": named, "target": target}
    path = f"/api/v1{place}/pods/{pod['name']}/binding"
    (await session.request("POST", path, body=_json(binding))).checked()
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pod['name']}.{pod['uid'][:8]}", "namespace": pod["namespace"]},
        "eventTime": "2025-01-01T00:00:00.000000Z",
        "reportingController": "raw",
        "reportingInstance": "raw-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", **named},
        "note": f"Successfully assigned {pod['namespace']}/{pod['name']} to {node}",
    }
    path = f"/apis/events.k8s.io/v1{place}/events"
    (await session.request("POST", path, body=_json(event))).checked()


async def _items(session: Session, path: str) -> list[dict[str, dict[str, str]]]:
    answer = (await session.request("GET", path)).checked()
    return list(msgspec.json.decode(answer.body)["items"])


if __name__ == "__main__":
    main()
