"""Manifests of nodes, pods and other objects, read from files into a small cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.cache import Cache
from engine.cli.refusals import of_file
from engine.objects import Namespace, Node, Pod, from_builtins
from engine.objects.ondemand import scale_kind
from engine.pods.podinfo import PodInfo, UnreadablePod, make_pod_info
from engine.pods.workloads import TEMPLATES, controller_of, pod_of_manifest, top_owner
from engine.text.files import MOST_OF_OBJECTS, bytes_in


@dataclass(slots=True)
class Objects:
    """What the files hold; the first pod without a node is the one to place."""

    nodes: dict[str, Node] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)
    """Services, volumes and what else plugins look up."""
    _pods: dict[str, PodInfo] = field(default_factory=dict)
    _templates: dict[str, PodInfo] = field(default_factory=dict)
    """The pods that workloads of a cluster describe, by the same keys."""

    @property
    def pods(self) -> list[PodInfo]:
        """Pods, and those that templates describe where the files have none of that workload."""
        there = {
            (one.namespace, of(one))
            for one in self._pods.values()
            for of in (controller_of, top_owner)
        }
        lacking = (
            one
            for key, one in self._templates.items()
            if key not in self._pods and (one.namespace, top_owner(one)) not in there
        )
        return [*self._pods.values(), *lacking]

    @property
    def pod(self) -> PodInfo | None:
        """The pod to place: the first that is on no node."""
        return next((one for one in self.pods if not one.pod.node_name), None)

    def read(self, path: Path) -> None:
        """Adds the objects of a file; those of the same name are replaced.

        Raises:
            click.ClickException: the file cannot be read or used.
        """
        from engine.text.documents import objects_in

        try:
            with of_file(path, "read"):
                text = bytes_in(path, MOST_OF_OBJECTS)
            trees = objects_in(text)
        except ValueError as failed:
            raise click.ClickException(f"{path} {failed}") from failed
        if not sum([self._add(tree, path) for tree in trees]):
            raise click.ClickException(f"{path} holds no Node, Pod, Namespace or workload")

    def cache(self) -> Cache:
        """The cluster of these objects, in which the pods with a node run."""
        cache = Cache()
        for node in self.nodes.values():
            cache.add_node(node)
        for namespace in self.namespaces.values():
            cache.set_namespace(namespace)
        for one in self.others:
            cache.set_object(one)
        for pod in self.pods:
            if pod.pod.node_name in self.nodes:
                cache.add_pod(pod, str(pod.pod.node_name))
        return cache

    def _add(self, tree: dict[str, Any], path: Path) -> bool:
        kind = tree.get("kind")
        try:
            if kind == "Node":
                node = from_builtins(Node, tree)
                self.nodes[node.metadata.name] = node
            elif kind == "Namespace":
                namespace = from_builtins(Namespace, tree)
                self.namespaces[namespace.metadata.name] = namespace
            elif kind == "Pod":
                self._add_pod(tree, self._pods)
            else:
                meta = tree.get("metadata")
                meta = meta if isinstance(meta, dict) else {}
                # What has an owner is a part of that, and may be an older one.
                if kind in TEMPLATES and not meta.get("ownerReferences"):
                    # One with a uid is from a cluster, which makes its pods itself.
                    self._add_pod(tree, self._templates if "uid" in meta else self._pods)
                    meta.setdefault("namespace", "default")
                return self._add_other(kind, tree)
        except (msgspec.ValidationError, UnreadablePod) as failed:
            raise click.ClickException(f"{path}: {failed}") from failed
        return True

    def _add_other(self, kind: object, tree: dict[str, Any]) -> bool:
        from engine.kube.resources import STRUCTS  # half a second, of few files

        named = [name for name in (str(kind), scale_kind(str(kind))) if name in STRUCTS]
        self.others += [from_builtins(STRUCTS[name], tree) for name in named]
        return bool(named)

    def _add_pod(self, tree: dict[str, Any], to: dict[str, PodInfo]) -> None:
        pod = make_pod_info(from_builtins(Pod, _pod(tree)))
        to.pop(pod.key, None)  # the newest is the last
        to[pod.key] = pod


def _pod(tree: dict[str, Any]) -> dict[str, Any]:
    """The pod of a manifest: its own, or the one of a workload's template; named and numbered."""
    tree = pod_of_manifest(tree)
    meta = tree["metadata"]
    meta["namespace"] = meta.get("namespace") or "default"
    meta["name"] = meta.get("name") or "pod"
    meta["uid"] = meta.get("uid") or f"{meta['namespace']}/{meta['name']}"
    return {"metadata": meta, "spec": tree.get("spec") or {}, "status": tree.get("status") or {}}
