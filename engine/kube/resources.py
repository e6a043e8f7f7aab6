"""Which objects are listed and watched: kind, path and selectors. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from engine.kube.session import segment
from engine.kube.sharing import PodSharing
from engine.objects import ConfigMap, Namespace, Node, ObjectMeta, Pod


class KubeObject(Protocol):
    """Any struct of `engine.objects` that has metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """`metadata`."""
        ...


T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """What is listed and watched; `path` is the collection's, its namespace included."""

    kind: type[T]
    path: str
    label_selector: str = ""
    field_selector: str = ""
    share: Callable[[T], None] | None = None
    """Makes equal parts of objects that are kept one, to save memory."""

    @property
    def name(self) -> str:
        """The plural, for logs."""
        return self.path.rsplit("/", 1)[-1]

    def params(self) -> dict[str, str]:
        """The selectors as query parameters."""
        params = {}
        if self.label_selector:
            params["labelSelector"] = self.label_selector
        if self.field_selector:
            params["fieldSelector"] = self.field_selector
        return params


def pods(field_selector: str = "status.phase!=Succeeded,status.phase!=Failed") -> Resource[Pod]:
    """All pods that are not finished, as kube-scheduler watches them."""
    return Resource(Pod, "/api/v1/pods", field_selector=field_selector, share=PodSharing())


def nodes(label_selector: str = "") -> Resource[Node]:
    """All nodes, or those of a selector."""
    return Resource(Node, "/api/v1/nodes", label_selector=label_selector)


def namespaces() -> Resource[Namespace]:
    """All namespaces."""
    return Resource(Namespace, "/api/v1/namespaces")


def config_maps(namespace: str, name: str = "", label_selector: str = "") -> Resource[ConfigMap]:
    """ConfigMaps of a namespace: one by name, or those of a selector."""
    return Resource(
        ConfigMap,
        f"/api/v1/namespaces/{segment(namespace)}/configmaps",
        label_selector=label_selector,
        field_selector=f"metadata.name={name}" if name else "",
    )


def object_key(meta: ObjectMeta) -> str:
    """`namespace/name`, or the name alone where there are no namespaces."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
