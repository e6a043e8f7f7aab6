"""What nodes and pods use of cores and memory, as the metrics API (metrics.k8s.io) says.

It cannot be watched: each call is one list. Source: k8s.io/metrics/pkg/apis/metrics/v1beta1.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from engine.kube.decoding import BadObject, Decoders
from engine.kube.session import KubeClient
from engine.objects import Identity, ResourceList

PATHS: Final = MappingProxyType(
    {"node": "/apis/metrics.k8s.io/v1beta1/nodes", "pod": "/apis/metrics.k8s.io/v1beta1/pods"}
)
"""Whose usage -> where it is listed."""


class ContainerUsage(msgspec.Struct, frozen=True):
    """What a container uses."""

    usage: ResourceList = {}


class Usage(msgspec.Struct, frozen=True):
    """What a node uses, or the containers of a pod, and when that was measured."""

    metadata: Identity = Identity()
    timestamp: str = ""
    usage: ResourceList | None = None
    containers: list[ContainerUsage] | None = None

    def parts(self) -> Sequence[ResourceList]:
        """What is to be added up."""
        if self.usage is not None:
            return (self.usage,)
        return tuple(one.usage for one in self.containers or ())


class UsageReader:
    """Lists usage."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._decoders = Decoders(Usage)

    async def read(self, of: str) -> list[Usage]:
        """What each `node` or `pod` uses; one that cannot be read is left out.

        Raises:
            KubeError: the server cannot be asked, or has no metrics API.
        """
        answer = await self._client.request("GET", PATHS[of])
        _, items = self._decoders.items(answer.checked().body)
        return [one for one in items if not isinstance(one, BadObject)]
