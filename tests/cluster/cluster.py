"""One namespace of a control plane, a Berth that rules it, and what became of its pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.berth import PROFILE, Berth, node, pod
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import wait_until

Object = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
IN_FORCE = "Policies in force"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


class Cluster:
    """Makes objects as admin; `rules` starts the scheduler, `stop` ends it."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.plane, self.namespace, self.folder = plane, namespace, folder
        self.berths: list[Berth] = []
        self._classes: list[str] = []

    # ---- objects

    def path(self, plural: str, name: str = "", group: str = "api/v1") -> str:
        return f"/{group}/namespaces/{self.namespace}/{plural}/{name}".rstrip("/")

    def create(self, path: str, item: Object) -> Object:
        status, answer = self.plane.request("POST", path, item)
        assert status == 201, answer
        return dict(answer)

    def node(self, name: str, labels: dict[str, str] | None = None, **amounts: str) -> None:
        self.create("/api/v1/nodes", node(name, labels, **amounts))

    def pod(
        self,
        name: str,
        *,
        scheduler: str = PROFILE,
        labels: dict[str, str] | None = None,
        meta: Object | None = None,
        spec: Object | None = None,
        **requests: str,
    ) -> None:
        item: Object = pod(name, self.namespace, scheduler, **requests)
        item["metadata"] |= {"labels": labels or {}, **(meta or {})}
        item["spec"] |= spec or {}
        self.create(self.path("pods"), item)

    def config_map(self, name: str = "policies", **texts: str) -> None:
        """It holds these policies and nothing else from here on."""
        data = {f"{key}.policy": text for key, text in texts.items()}
        body = {"metadata": {"name": name}, "data": data}
        if self.plane.request("PUT", self.path("configmaps", name), body)[0] == 404:
            self.create(self.path("configmaps"), body)

    def priority(self, value: int) -> str:
        """The name of a priority class of the test's own; such classes have no namespace."""
        name = f"{self.namespace}-{value}"
        self.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
        self._classes.append(name)
        return name

    def annotate(self, name: str, **annotations: str) -> None:
        body = {"metadata": {"annotations": annotations}}
        assert self.plane.request("PATCH", self.path("pods", name), body)[0] == 200

    def delete(self, name: str) -> None:
        path = self.path("pods", name)
        assert self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")[0] == 200

    # ---- schedulers

    @property
    def berth(self) -> Berth:
        """The scheduler that was started last."""
        return self.berths[-1]

    def starts(self, *flags: str | Path, until: str = IN_FORCE, **how: Any) -> Berth:
        folder = self.folder / f"berth-{len(self.berths)}"
        self.berths.append(Berth(self.plane, folder, *flags, **how))
        self.berth.start(until)
        return self.berth

    def rules(self, *flags: str | Path, **texts: str) -> None:
        """These policies are in force from here on: the first ones start a scheduler."""
        if self.berths:
            before = self.berth.log.read_text().count(IN_FORCE)
            self.config_map(**texts)
            self.berth.wait_for_log(IN_FORCE, count=before + 1)
        else:
            self.config_map(**texts)
            self.starts("--policy-configmap", f"{self.namespace}/policies", *flags)

    def stop(self) -> None:
        try:
            for one in self.berths:
                code = one.end() if one.process.running else one.process.stop()
                assert code == 0, one.process.tail()
        finally:
            for name in self._classes:
                self.plane.request("DELETE", f"{PRIORITIES}/{name}")

    # ---- what became of it

    def get(self, name: str) -> Object | None:
        """A pod, if it is there."""
        status, found = self.plane.request("GET", self.path("pods", name))
        return found if status == 200 else None

    def where(self) -> dict[str, str | None]:
        """The nodes of all pods."""
        _, found = self.plane.request("GET", self.path("pods"))
        return {one["metadata"]["name"]: one["spec"].get("nodeName") for one in found["items"]}

    def bound(self) -> set[str]:
        return {name for name, there in self.where().items() if there}

    def node_of(self, name: str) -> str | None:
        return self.where().get(name)

    def placed(self, *names: str) -> list[str]:
        """Waits until all of them have a node, and says which."""
        wait_until(f"{names} are bound", lambda: self.bound().issuperset(names))
        where = self.where()
        return [str(where[name]) for name in names]

    def goes(self, name: str, **more: Any) -> str:
        """A pod of that name is made, and goes there."""
        self.pod(name, **more)
        return self.placed(name)[0]

    def refused(self, name: str, words: str = "") -> tuple[str, str]:
        """Waits until the pod's condition says why it has no node: reason and message."""

        def why() -> list[tuple[str, str]]:
            conditions = (self.get(name) or {"status": {}})["status"].get("conditions", ())
            told = [one for one in conditions if one["type"] == "PodScheduled"]
            said = [(o["reason"], o["message"]) for o in told if o["status"] == "False"]
            return [one for one in said if words in one[1]]

        wait_until(f"{name} has no node: {words}", lambda: bool(why()))
        return why()[0]

    def notes(self, name: str) -> list[str]:
        """What Events say of an object of the namespace: `Reason: message`."""
        _, events = self.plane.request("GET", self.path("events"))
        about = [one for one in events["items"] if one["involvedObject"]["name"] == name]
        return [f"{one['reason']}: {one['message']}" for one in about]

    def told(self, name: str, *words: str) -> str:
        """Waits for an Event with all these words, which may come after a binding."""

        def there() -> list[str]:
            return [one for one in self.notes(name) if all(word in one for word in words)]

        wait_until(f"{name} is told {words!r}", lambda: bool(there()))
        return there()[0]


def defined(group: str, version: str, plural: str, kind: str, scope: str = "Namespaced") -> Object:
    """A kind of objects of any shape, as the API server is told of it."""
    shape = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups of Kubernetes' own need somebody's approval.
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [{**served, "schema": {"openAPIV3Schema": shape}}],
        },
    }
