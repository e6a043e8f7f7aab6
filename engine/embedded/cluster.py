"""The embedded cluster as one object: API server, nodes, kubelets and Prometheus on loopback.

Owns the tasks and the sockets; everything it is made of is passed its clock and randomness.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from engine.clock import Clock, SystemClock
from engine.embedded.api import Api
from engine.embedded.errors import Object
from engine.embedded.nodes import SimulatedNodes, SimulatedVolumes
from engine.embedded.resources import BY_PLURAL
from engine.embedded.server import HOST, ApiServer

PROMETHEUS_ROOT = "prometheus"
EXPORTER_PORT = 9100


class Pace(msgspec.Struct, frozen=True):
    """How often things happen by themselves, in seconds; infinity means never."""

    kubelet_seconds: float = 0.2
    """How often kubelets look for pods that were bound or deleted, drivers for claims."""
    signal_seconds: float = 1.0
    """How often the nodes' load changes."""
    bookmark_seconds: float = 5.0
    """How often idle watches send bookmarks."""


REAL_PACE = Pace()


class EmbeddedCluster:
    """A small Kubernetes in the process, for `berth demo`, `berth up` and tests.

    Use it as an asynchronous context manager, or call `start` and `stop`. There is no
    authentication: it listens on loopback only and refuses requests of web pages.
    """

    def __init__(
        self,
        *,
        nodes: int = 12,
        seed: int = 0,
        clock: Clock | None = None,
        port: int = 0,
        pace: Pace = REAL_PACE,
    ) -> None:
        """So many nodes; `seed` decides names, uids and the walk of the nodes' load.

        `port` 0 takes a free one.
        """
        self._clock = clock = clock or SystemClock()
        random = Random(seed)
        self.api = Api(clock=clock, random=random)
        self.nodes = SimulatedNodes(self.api, count=nodes, random=random)
        self.volumes = SimulatedVolumes(self.api)
        self._server = ApiServer(
            self.api,
            clock=clock,
            bookmark_seconds=pace.bookmark_seconds,
            mounts={PROMETHEUS_ROOT: self._prometheus},
        )
        self._port = port
        self._pace = pace
        self._life: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen, and let the nodes live."""
        self._port = await self._server.start(self._port)
        kubelets = self.nodes.run_kubelets(self._pace.kubelet_seconds)
        signals = self.nodes.run_signals(self._pace.signal_seconds)
        volumes = self.volumes.run(self._pace.kubelet_seconds)
        self._life = [asyncio.create_task(each) for each in (kubelets, signals, volumes)]

    async def stop(self) -> None:
        """End the nodes' life and the watches, close the sockets. The objects stay."""
        for task in self._life:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._life = []
        await self._server.stop()

    async def __aenter__(self) -> EmbeddedCluster:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The base URL of the Kubernetes API."""
        return f"http://{HOST}:{self._port}"

    @property
    def prometheus_url(self) -> str:
        """The base URL of the Prometheus API."""
        return f"{self.url}/{PROMETHEUS_ROOT}"

    def kubeconfig(self) -> Object:
        """A kubeconfig, as data, for kubectl and every other client."""
        name = "berth-embedded"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }

    # Shortcuts past HTTP, for demonstrations. What they return is the store's own: copy to change.

    def create(self, plural: str, item: Object, *, namespace: str = "") -> Object:
        """Create an object of a resource (`pods`); returns it as stored."""
        return self.api.create(BY_PLURAL[plural], namespace, item)

    def patch(self, plural: str, name: str, patch: Object, *, namespace: str = "") -> Object:
        """Merge-patch an object; returns it as stored."""
        key = (namespace, name)
        return self.api.patch(BY_PLURAL[plural], key, patch, strategic=False)

    def delete(self, plural: str, name: str, *, namespace: str = "") -> None:
        """Delete an object."""
        self.api.delete(BY_PLURAL[plural], (namespace, name), {})

    def get(self, plural: str, name: str, *, namespace: str = "") -> Object:
        """An object as stored."""
        return self.api.get(BY_PLURAL[plural], namespace, name)

    def list(self, plural: str) -> list[Object]:
        """All objects of a resource as stored, in the order of their creation."""
        return [*self.api.collection(BY_PLURAL[plural]).items.values()]

    # ---- Prometheus

    async def _prometheus(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Prometheus' query API for the simulated nodes; `path` is relative to the mount.

        Reads no PromQL: a query is answered by which well-known series it mentions.
        """
        match path:
            case "api/v1/query":
                parameters = dict(request.query)
                if request.method == "POST":
                    form = parse_qs((await request.content.read()).decode())
                    parameters |= {key: values[-1] for key, values in form.items()}
                return self._query(parameters.get("query", ""))
            case "" | "-/healthy" | "-/ready":
                return web.Response(text="Prometheus Server is Healthy.\n")
            case _:
                return web.Response(text="404 page not found\n", status=404)

    def _query(self, query: str) -> web.Response:
        if not query.strip():
            message = 'invalid parameter "query": unknown position: parse error: no expression '
            message += "found in input"
            error = {"status": "error", "errorType": "bad_data", "error": message}
            return _json(error, status=400)
        values = next((of for name, of in self.nodes.signals.items() if name in query), {})
        now = self._clock.time()
        vector = [
            {
                "metric": {
                    "instance": f"{name}:{EXPORTER_PORT}",
                    "job": "node-exporter",
                    "node": name,
                    "nodename": name,
                },
                "value": [round(now, 3), repr(value)],
            }
            for name, value in values.items()
        ]
        data = {"resultType": "vector", "result": vector}
        return _json({"status": "success", "data": data})


def _json(value: dict[str, Any], *, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")
