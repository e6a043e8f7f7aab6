"""All objects of one resource, asked for once, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from engine.kube.decoding import BadObject, Decoders, ListMeta
from engine.kube.resources import KubeObject, Resource
from engine.kube.session import KubeClient

T = TypeVar("T", bound=KubeObject)
_PAGE: Final = "500"
_SILENCE_SECONDS: Final = 60.0


async def pages(
    client: KubeClient,
    resource: Resource[T],
    decoders: Decoders[T],
    version: str = "",
    *,
    paged: bool = True,
) -> AsyncIterator[tuple[ListMeta, Sequence[T | BadObject]]]:
    """The pages of a list, or all of it as one, not older than `version`; "": the newest.

    Raises:
        KubeError: the server cannot be asked, or refuses; pages may have come before.
    """
    asked = resource.params() | ({"limit": _PAGE} if paged else {})
    # Said in so many words: with a limit and no match, a server takes a version for exact.
    at = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"} if version else {}
    params = asked | at
    while True:
        answer = await client.request(
            "GET", resource.path, params=params, timeout_seconds=_SILENCE_SECONDS
        )
        meta, items = decoders.items(answer.checked().body)
        yield meta, items
        if not meta.continue_:
            return
        # What follows is of the version of the first page.
        params = {**asked, "continue": meta.continue_}


async def each(client: KubeClient, resource: Resource[T]) -> AsyncIterator[T]:
    """The objects as they come; those that cannot be read are left out.

    Raises:
        KubeError: the server cannot be asked, or refuses.
    """
    async for _, items in pages(client, resource, Decoders(resource.kind)):
        for one in items:
            if not isinstance(one, BadObject):
                yield one


async def list_all(client: KubeClient, resource: Resource[T]) -> list[T]:
    """All of them by namespace and name.

    Raises:
        KubeError: the server cannot be asked, or refuses.
    """
    found = [one async for one in each(client, resource)]
    return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))
