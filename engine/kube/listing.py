"""All objects of one resource, asked for once: for commands that look and end."""

from __future__ import annotations

from typing import Final, TypeVar

from engine.kube.decoding import BadObject, Decoders
from engine.kube.resources import KubeObject, Resource
from engine.kube.session import KubeClient

T = TypeVar("T", bound=KubeObject)
_PAGE: Final = "500"


async def list_all(client: KubeClient, resource: Resource[T]) -> list[T]:
    """The objects by namespace and name, page by page; those that cannot be read are left out.

    Raises:
        KubeError: the server cannot be asked, or refuses.
    """
    decoders = Decoders(resource.kind)
    found: list[T] = []
    params = {**resource.params(), "limit": _PAGE}
    while True:
        answer = (await client.request("GET", resource.path, params=params)).checked()
        meta, items = decoders.items(answer.body)
        found.extend(one for one in items if not isinstance(one, BadObject))
        if not meta.continue_:
            return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))
        params = {**params, "continue": meta.continue_}
