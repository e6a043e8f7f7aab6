"""Prometheus' query API for the simulated nodes: a query in, an instant vector out.

Reads no PromQL: a query is answered by which well-known series it mentions, whatever is around it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from engine.clock import Clock
from engine.embedded.nodes import CPU, LOAD, MEMORY, RECEIVE, TRANSMIT, SimulatedNodes

SERIES = (
    ("node_network_receive", RECEIVE),
    ("node_network_transmit", TRANSMIT),
    ("node_cpu", CPU),
    ("node_memory", MEMORY),
    ("node_load", LOAD),
)
"""What a query may mention -> the signal that answers it. The first that fits wins."""
EXPORTER_PORT = 9100


class PrometheusApi:
    """The part of Prometheus' HTTP API that a client of instant queries uses."""

    def __init__(self, nodes: SimulatedNodes, clock: Clock) -> None:
        self._nodes = nodes
        self._clock = clock

    async def handle(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Answer one request; `path` is relative to the mount."""
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
        signal = next((signal for name, signal in SERIES if name in query), None)
        now = self._clock.time()
        walks = self._nodes.signals[signal] if signal is not None else {}
        vector = [
            {
                "metric": {
                    "instance": f"{name}:{EXPORTER_PORT}",
                    "job": "node-exporter",
                    "node": name,
                    "nodename": name,
                },
                "value": [round(now, 3), repr(walk.value)],
            }
            for name, walk in walks.items()
        ]
        data = {"resultType": "vector", "result": vector}
        return _json({"status": "success", "data": data})


def _json(value: dict[str, Any], *, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")
