"""`berth inventory` writes what `berth check --inventory` reads."""

import asyncio
import json

from dsl.analysis import read_inventory
from engine.cli.inventory import take
from engine.kube import resources
from engine.kube.client import Response
from engine.kube.listing import list_all

PAGES = {
    "/api/v1/nodes": [
        [{"metadata": {"name": "b", "labels": {"disk": "ssd"}}}],
        [{"metadata": {"name": "a", "labels": {"disk": "hdd"}}}],
    ],
    "/api/v1/namespaces": [[{"metadata": {"name": "prod", "labels": {"team": "ml"}}}]],
    "/api/v1/pods": [
        [
            {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
            {"metadata": {"name": "y"}, "status": {"phase": "Succeeded"}},
        ]
    ],
}


class Server:
    async def request(self, method, path, *, params=None, **_):
        assert method == "GET"
        at = int(params.get("continue", 0))
        pages = PAGES[path]
        meta = {"continue": str(at + 1)} if at + 1 < len(pages) else {}
        body = {"metadata": meta, "items": pages[at]}
        return Response(200, {}, json.dumps(body).encode())


def test_written_and_read():
    async def taken():
        server = Server()
        return await take(server, await list_all(server, resources.NODES))

    found = json.loads(json.dumps(asyncio.run(taken())))
    assert [one["name"] for one in found["nodes"]] == ["a", "b"]
    stock = read_inventory(found)
    assert (stock.nodes, stock.pods) == (2, 1)
    assert stock.node_labels == {"disk": {"ssd": 1, "hdd": 1}}
    assert stock.namespaces == {"prod": {"team": "ml"}}
