"""`berth inventory`: what a cluster has, as a file for `berth check --inventory`.

A JSON object: `inventory` (1), `nodes` and `namespaces` (each with `name` and `labels`), `images`
(texts, those of running pods) and `pods` (how many there are, without finished ones).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from engine.kube.session import KubeClient

_PAGE: Final = "500"
_FINISHED: Final = ("Succeeded", "Failed")


@click.command("inventory", help="Write down labels, namespaces and images of a cluster.")
@click.option(
    "--kubeconfig", metavar="FILE", help="Cluster to ask; without it, the one it runs in."
)
@click.option(
    "-o", "output", metavar="FILE", type=click.Path(path_type=Path), help="Where to write it."
)
def command(kubeconfig: str | None, output: Path | None) -> None:
    """Asks once and ends; changes nothing in the cluster."""
    import asyncio  # noqa: PLC0415 - see engine.cli

    from engine.kube.errors import KubeError  # noqa: PLC0415 - see engine.cli

    try:
        found = asyncio.run(_ask(kubeconfig))
    except KubeError as failed:
        raise click.ClickException(str(failed)) from failed
    text = json.dumps(found, ensure_ascii=False, indent=1)
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as failed:
        raise click.ClickException(f"{output}: cannot be written: {failed.strerror}") from failed
    counts = f"{len(found['nodes'])} nodes, {len(found['namespaces'])} namespaces"
    click.echo(f"{output}: {counts}, {found['pods']} pods", err=True)


async def _ask(kubeconfig: str | None) -> dict[str, Any]:
    from engine.kube.session import Session  # noqa: PLC0415 - see engine.cli

    session = await Session.connect(kubeconfig)
    try:
        return await take(session)
    finally:
        await session.close()


async def take(client: KubeClient) -> dict[str, Any]:
    """Returns the inventory of a cluster.

    Raises:
        KubeError: the server cannot be asked.
    """
    from engine.objects import Namespace, Node, Pod  # noqa: PLC0415 - see engine.cli

    nodes = await _list(client, "/api/v1/nodes", Node)
    spaces = await _list(client, "/api/v1/namespaces", Namespace)
    pods = [
        one for one in await _list(client, "/api/v1/pods", Pod) if one.status.phase not in _FINISHED
    ]
    images = {
        each.image
        for pod in pods
        for each in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if each.image
    }
    return {
        "inventory": 1,
        "nodes": [_named(one) for one in nodes],
        "namespaces": [_named(one) for one in spaces],
        "images": sorted(images),
        "pods": len(pods),
    }


def _named(item: Any) -> dict[str, object]:  # noqa: ANN401 - any object of the API
    labels = item.metadata.labels or {}
    return {"name": item.metadata.name, "labels": dict(sorted(labels.items()))}


async def _list(client: KubeClient, path: str, kind: Any) -> list[Any]:  # noqa: ANN401 - see above
    from engine.kube.decoding import BadObject, Decoders  # noqa: PLC0415 - see engine.cli

    decoders = Decoders(kind)
    found: list[Any] = []
    params = {"limit": _PAGE}
    while True:
        answer = (await client.request("GET", path, params=params)).checked()
        meta, items = decoders.items(answer.body)
        found.extend(one for one in items if not isinstance(one, BadObject))
        if not meta.continue_:
            return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))
        params = {"limit": _PAGE, "continue": meta.continue_}
