"""Random cases for the fuzz: small clusters whose amounts, labels and times lie at the edges.

One seed gives one case, the same in every process. A case is about one theme or about all of them.
Some clusters are spacious, so that several nodes are left to be scored; in some all nodes and the
pods on them are alike, so that preemption has equals to choose from.
Values come from short lists, so that pods, nodes and volumes meet each other often.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Json = dict[str, Any]
_T = TypeVar("_T")

HOST, ZONE, REGION = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
KINDS = ("cycle", "preempt", "sequence", "hint")
THEMES = (
    *("taints", "affinity", "ports", "images", "resources", "spread", "interpod", "volumes"),
    *("nominated", "features"),
)
OFTEN = {"volumes": 37, "spread": 19, "interpod": 18, "affinity": 14, "resources": 12, "taints": 7}
OFTEN["images"] = 4
RICH = tuple(theme for theme, times in OFTEN.items() for _ in range(times))
"""Themes with many answers, drawn more often."""
APP = "app"
CSI = "csi.example.com"
FILTERS = (
    *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts"),
    *("NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"),
    *("PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures"),
)
WEIGHED = (
    *("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"),
    *("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "VolumeBinding"),
)
OWNERS = ("ReplicationController", "ReplicaSet", "StatefulSet")
EXTENDED = {
    "example.com/gpu": ("0", "1", "2"),
    "hugepages-2Mi": ("0", "2Mi", "4Mi"),
    "ephemeral-storage": ("0", "1Mi", "1Gi", "2Gi"),
    "kubernetes.io/batch": ("0", "1", "2"),
}
TIMES = [f"2026-03-01T0{hour}:00:00Z" for hour in range(4)]
KIND_OF = {
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "StorageClass": "storage.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "CSIDriver": "storage.k8s.io/v1",
    "CSIStorageCapacity": "storage.k8s.io/v1",
    "VolumeAttachment": "storage.k8s.io/v1",
    "Service": "v1",
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Namespace": "v1",
    "PodDisruptionBudget": "policy/v1",
    "Node": "v1",
    "Pod": "v1",
}


def draw_case(seed: int) -> Json:
    """The case of this seed."""
    return Drawn(seed).case()


def apart(objects: Sequence[Json]) -> None:
    """Pods of nodes with more than twelve start one after the other.

    Beyond twelve Go sorts in no stable order, so that of equal victims any is as right.
    """
    on: dict[str, list[Json]] = {}
    for one in objects:
        if one["kind"] == "Pod":
            on.setdefault(one["spec"]["nodeName"], []).append(one)
    for pods in on.values():
        for number, one in enumerate(pods if len(pods) > 12 else ()):
            one["status"]["startTime"] = f"2026-03-01T04:{number:02}:00Z"


class Drawn:
    """One case in the making."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.themes: set[str] = set(THEMES)
        self.nodes: list[str] = []
        self.spacious = self.alike = False
        self.scarce = self.one(*EXTENDED)

    # ---- chance ------------------------------------------------------------------------------

    def one(self, *values: _T) -> _T:
        return self.chance.choice(values)

    def odds(self, of_ten: float) -> bool:
        return self.chance.random() * 10 < of_ten

    def some(self, values: Sequence[_T], most: int = 2, least: int = 0) -> list[_T]:
        return self.chance.sample(values, min(len(values), self.chance.randint(least, most)))

    def many(self, make: Callable[[], _T], most: int, least: int = 0) -> list[_T]:
        return [make() for _ in range(self.chance.randint(least, most))]

    def maybe(self, of_ten: float, **fields: Callable[[], Any]) -> Json:
        return {k: make() for k, make in fields.items() if self.odds(of_ten)}

    # ---- the case ----------------------------------------------------------------------------

    def case(self) -> Json:
        kind = self.chance.choices(KINDS, (11, 3.8, 0.8, 5.4))[0]
        if self.odds(9):
            self.themes = set(self.some((*THEMES, *RICH), 2, 1))
            if kind == "preempt":
                self.themes.add("resources")
        self.spacious = kind != "preempt" and self.odds(5)
        self.alike = kind == "preempt" and self.odds(2)
        sizes = (5, 6, 8) if self.spacious else (1, 2, 3, 4, 6)
        self.nodes = [f"n{i}" for i in range(self.chance.choice(sizes))]
        self.priorities = (0, 0, 1, 5) if kind == "preempt" or self.odds(3) else (0,)
        objects = self.equals() if self.alike else self.mixed(kind)
        if kind == "preempt":
            apart(objects)
        objects += self.around()
        out: Json = {"id": f"fuzz-{self.seed}", "kind": kind, "objects": objects}
        if self.odds(3):
            out["profile"] = self.profile()
        if kind == "sequence":
            out["pods"] = [self.pod(f"p{i}") for i in range(self.chance.randint(2, 4))]
            return out
        out["pod"] = self.pod("new", self.one(0, 5, 9, 9, 9) if kind == "preempt" else None)
        if self.alike:
            out["pod"]["spec"]["containers"] = [self.asking("2")]
        if kind == "hint":
            out["pod"]["metadata"]["uid"] = "new"
            out["pod"]["spec"].pop("nodeName", None)
            out["rejectedBy"] = self.some(FILTERS, len(FILTERS), self.one(1, len(FILTERS)))
            out["event"] = self.event(objects, out["pod"])
        for pod in (*[one for one in objects if one["kind"] == "Pod"], out["pod"]):
            objects += self.made_for(pod)
        return out

    def made_for(self, pod: Json) -> list[Json]:
        """The claims that a controller makes for the pod's volumes; some names are another's."""
        meta, out = pod["metadata"], list[Json]()
        for volume in pod["spec"].get("volumes", ()) if "namespace" not in meta else ():
            if "ephemeral" in volume and self.odds(4):
                uid = meta.setdefault("uid", f"uid-{meta['name']}")
                theirs = self.odds(1) and meta["name"] == "new"
                owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
                found = self.claim(f"{meta['name']}-{volume['name']}")
                found[0]["metadata"]["ownerReferences"] = [
                    {**owner, "uid": "other" if theirs else uid}
                ]
                out += found
        return out

    def mixed(self, kind: str) -> list[Json]:
        most = (5 if kind == "preempt" else 3) * len(self.nodes)
        nodes = [self.node(name) for name in self.nodes]
        return nodes + [self.bound(f"b{i}") for i in range(self.chance.randint(0, most))]

    def equals(self) -> list[Json]:
        """Nodes that differ by name alone, each with a pod or two that are in the way."""
        has = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        out = [self.named("Node", name, status={"allocatable": has}) for name in self.nodes]
        some, asked = self.labels(), self.one("3", "1500m")
        for number in range(self.one(1, 2) * len(self.nodes)):
            spec = {"priority": 0, "nodeName": self.nodes[number % len(self.nodes)]}
            spec["containers"] = [self.asking(asked)]
            status = {"phase": "Running", "startTime": TIMES[0]}
            out.append(self.named("Pod", f"b{number}", labels=some, spec=spec, status=status))
        return out

    def asking(self, cpu: str) -> Json:
        return {"name": "c0", "image": "img", "resources": {"requests": {"cpu": cpu}}}

    def around(self) -> list[Json]:
        """What is there besides nodes and bound pods."""
        out = [self.named("Namespace", "other", labels=self.labels())] if self.odds(4) else []
        if self.odds(5) and "spread" in self.themes:
            for kind in self.some(("Service", *OWNERS), 3):
                out.append(self.owner(kind))
        if "volumes" in self.themes:
            out += self.volumes()
        if self.odds(9 if self.priorities[-1] else 3):
            out += [self.budget(f"pdb{i}") for i in range(self.chance.randint(1, 2))]
        if "nominated" in self.themes:
            for i in range(self.chance.randint(1, 2)):
                pod = self.pod(f"w{i}", self.one(0, 5, 9))
                pod["status"] = {"nominatedNodeName": self.one(*self.nodes)}
                out.append(self.named("Pod", pod["metadata"]["name"], **pod))
        return out

    def named(self, kind: str, name: str, **fields: Any) -> Json:
        meta = {"name": name, **fields.pop("metadata", {}), **fields.pop("meta", {})}
        if "labels" in fields:
            meta["labels"] = fields.pop("labels")
        return {"apiVersion": KIND_OF[kind], "kind": kind, "metadata": meta, **fields}

    def labels(self) -> dict[str, str]:
        keys = ((APP, ("a", "b")), ("version", ("1", "2", "")), ("tier", ("x",)))
        return {key: self.one(*values) for key, values in keys if self.odds(6)}

    def selector(self) -> Json:
        match self.chance.randint(0, 4):
            case 0:
                return {}
            case 1 | 2:
                return {"matchLabels": {APP: self.one("a", "b")}}
            case _:
                return {"matchExpressions": self.many(self.expression, 2, 1)}

    def of_spaces(self) -> Json:
        named = {"kubernetes.io/metadata.name": self.one("default", "other")}
        return {"matchLabels": named} if self.odds(3) else self.selector()

    def expression(self) -> Json:
        operator = self.one("In", "NotIn", "Exists", "DoesNotExist")
        out: Json = {"key": self.one(APP, "version", "tier"), "operator": operator}
        return out | ({"values": self.some(("a", "1", ""), 2, 1)} if "In" in operator else {})

    # ---- nodes -------------------------------------------------------------------------------

    def node(self, name: str) -> Json:
        labels = {HOST: name} if self.odds(9) else {}
        for key, values in ((ZONE, "ab"), (REGION, "r"), ("disk", "12"), ("gen", ("5", "x", "-3"))):
            if self.odds(9 if self.spacious else 7):
                labels[key] = self.one(*values)
        if self.odds(1):
            labels["failure-domain.beta.kubernetes.io/zone"] = self.one("a", "b")
        has = {"cpu": self.one("2", "4", "8", "1500m"), "pods": self.one("3", "5", "110")}
        has["memory"] = self.one("2Gi", "3000Mi", "4Gi", "8Gi")
        if self.spacious:
            has |= {"cpu": self.one("8", "16"), "memory": self.one("8Gi", "32Gi"), "pods": "110"}
        spec: Json = {}
        status: Json = {"allocatable": has}
        if "resources" in self.themes:
            has |= {
                key: self.one(*EXTENDED[key])
                for key in sorted({self.scarce, *self.some(list(EXTENDED), 3)})
            }
        if "taints" in self.themes:
            taints = {(t["key"], t["effect"]): t for t in self.many(self.taint, 3)}
            spec |= {"taints": list(taints.values())} | self.maybe(1, unschedulable=lambda: True)
        if "images" in self.themes:
            status["images"] = self.many(self.image, 3)
        if "features" in self.themes:
            names = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport")
            status["declaredFeatures"] = sorted(self.some((*names, "VolumeBindMountOptions"), 3))
        return self.named("Node", name, labels=labels, spec=spec, status=status)

    def taint(self) -> Json:
        keys = ("k", "node.kubernetes.io/unschedulable", "l")
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        soft = self.spacious and self.odds(9)
        effect = "PreferNoSchedule" if soft else self.one(*effects)
        return {"key": self.one(*keys), "effect": effect} | self.maybe(
            5, value=lambda: self.one("v", "w", "5")
        )

    def image(self) -> Json:
        names = self.some(("img:latest", "img", "img:2", "reg/img@sha256:00", "big:1"), 2, 1)
        return {
            "names": names,
            "sizeBytes": self.one(0, 23 << 20, 90 << 20, 700 << 20, 3 << 30, 9 << 30),
        }

    # ---- pods --------------------------------------------------------------------------------

    def bound(self, name: str) -> Json:
        pod = self.pod(name)
        status: Json = {"phase": "Running", "startTime": self.one(*TIMES)}
        if self.odds(1):
            pod["metadata"] |= {"deletionTimestamp": TIMES[3], "deletionGracePeriodSeconds": 30}
        if self.odds(1):
            status["phase"] = self.one("Succeeded", "Failed", "Pending")
        if "resources" in self.themes and self.odds(2):
            status |= self.resize()
        pod["spec"]["nodeName"] = self.one(*self.nodes, "gone") if self.odds(3) else self.nodes[0]
        if self.odds(7):
            pod["spec"]["nodeName"] = self.one(*self.nodes)
        return self.named("Pod", name, **pod, status=status)

    def resize(self) -> Json:
        state: Json = {"name": "c0", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        state |= self.maybe(5, allocatedResources=self.amounts)
        state |= self.maybe(7, resources=lambda: {"requests": self.amounts()})
        why = {"type": "PodResizePending", "status": "True"}
        out: Json = {"containerStatuses": [state]}
        out |= self.maybe(3, allocatedResources=self.pod_level)
        out |= self.maybe(3, resources=lambda: {"requests": self.pod_level()})
        reason = self.one(None, "Infeasible", "Deferred")
        return out | ({"conditions": [{**why, "reason": reason}]} if reason else {})

    def amounts(self) -> Json:
        out = {"cpu": self.one("100m", "500m", "1", "0", "2"), "memory": self.one("64Mi", "1Gi")}
        if self.odds(3):
            out.pop(self.one("cpu", "memory"))
        if "resources" in self.themes and self.odds(1.5 if len(self.themes) > 2 else 4):
            out |= {self.scarce: self.one(*EXTENDED[self.scarce])}
        return out

    def container(self, name: str) -> Json:
        out: Json = {"name": name, "image": self.one("img", "img:2", "reg/img@sha256:00", "big:1")}
        if self.odds(8):
            requests = self.amounts()
            out["resources"] = {"requests": requests}
            if self.odds(2):
                out["resources"] = {"limits": requests}
        if "ports" in self.themes and self.odds(7):
            out["ports"] = self.many(self.port, 2, 1)
        if "features" in self.themes and self.odds(1 if len(self.themes) > 2 else 3):
            rule = {
                "action": "RestartAllContainers",
                "exitCodes": {"operator": "In", "values": [1]},
            }
            out |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
        return out

    def port(self) -> Json:
        out: Json = {"containerPort": 80, "protocol": self.one("TCP", "UDP", "SCTP")}
        out |= self.maybe(8, hostPort=lambda: self.one(80, 81))
        return out | self.maybe(
            5, hostIP=lambda: self.one("0.0.0.0", "127.0.0.1", "::", "10.0.0.1")
        )

    def pod(self, name: str, priority: int | None = None) -> Json:
        spec: Json = {"containers": [self.container(f"c{i}") for i in range(self.one(1, 1, 2))]}
        spec["priority"] = self.one(*self.priorities) if priority is None else priority
        spec |= self.maybe(0.8, preemptionPolicy=lambda: "Never")
        for theme in THEMES:
            if theme in self.themes and self.odds(2.5 if len(self.themes) > 2 else 8):
                getattr(self, f"add_{theme}", lambda _: None)(spec)
        meta: Json = {"name": name, "labels": self.labels(), "creationTimestamp": TIMES[0]}
        meta |= self.maybe(2, namespace=lambda: "other")
        if "spread" in self.themes:
            meta |= self.maybe(4, ownerReferences=lambda: [self.owned_by(self.one(*OWNERS))])
        if name[0] == "n":
            spec |= self.maybe(0.2, nodeName=lambda: self.one(*self.nodes))
            spec |= self.maybe(0.3, schedulingGates=lambda: [{"name": "g"}])
        out: Json = {"metadata": meta, "spec": spec}
        if name[0] in "np" and "nominated" in self.themes and self.odds(4):
            out["status"] = {"nominatedNodeName": self.one(*self.nodes)}
        return out

    def add_taints(self, spec: Json) -> None:
        def toleration() -> Json:
            out = self.maybe(
                8, key=lambda: self.taint()["key"], effect=lambda: self.taint()["effect"]
            )
            if "key" not in out or self.odds(5):
                return out | {"operator": "Exists"}
            return out | self.maybe(7, value=lambda: self.one("v", "w"))

        spec["tolerations"] = self.many(toleration, 3, 1)

    def node_term(self) -> Json:
        def asked() -> Json:
            operator = self.one("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
            out = {"key": self.one("disk", "gen", ZONE, HOST, "none"), "operator": operator}
            if operator in ("Gt", "Lt"):
                return out | {"key": self.one("disk", "gen"), "values": [self.one("1", "4", "-5")]}
            return out | ({"values": self.some("12ab5x", 3, 1)} if "In" in operator else {})

        def field() -> Json:
            out = {"key": "metadata.name", "operator": self.one("In", "In", "NotIn")}
            return out | {"values": [self.one(*self.nodes, "gone")]}

        out = self.maybe(8, matchExpressions=lambda: self.many(asked, 2, 1))
        return out | self.maybe(2, matchFields=lambda: [field()])

    def add_affinity(self, spec: Json) -> None:
        node: Json = {}
        if self.odds(1 if self.spacious else 5):
            terms = self.many(self.node_term, 2, 1)
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.odds(8 if self.spacious else 6):
            node["preferredDuringSchedulingIgnoredDuringExecution"] = self.many(
                lambda: {"weight": self.one(10, 40, 50, 100), "preference": self.node_term()}, 4, 2
            )
        spec.setdefault("affinity", {})["nodeAffinity"] = node
        spec |= self.maybe(1, nodeSelector=lambda: {"disk": self.one("1", "2")})

    def add_ports(self, spec: Json) -> None:
        if self.odds(1):
            spec["hostNetwork"] = True
            for container in spec["containers"]:
                for port in container.get("ports", ()):
                    port["hostPort"] = port["containerPort"]

    def add_images(self, spec: Json) -> None:
        if self.odds(2):
            image = {"reference": self.one("img:2", "big:1"), "pullPolicy": "IfNotPresent"}
            spec.setdefault("volumes", []).append({"name": "oci", "image": image})

    def add_resources(self, spec: Json) -> None:
        def init(number: int) -> Json:
            return self.container(f"i{number}") | self.maybe(5, restartPolicy=lambda: "Always")

        spec |= self.maybe(3, initContainers=lambda: [init(i) for i in range(self.one(1, 2, 3))])
        spec |= self.maybe(2, overhead=lambda: {"cpu": "50m", "memory": self.one("1Mi", "1Gi")})
        spec |= self.maybe(2, resources=lambda: {self.one("requests", "limits"): self.pod_level()})

    def pod_level(self) -> Json:
        return {k: v for k, v in self.amounts().items() if k in ("cpu", "memory", "hugepages-2Mi")}

    def add_features(self, spec: Json) -> None:
        if self.odds(3):
            spec |= {"hostNetwork": True, "hostUsers": self.one(True, False)}

    def add_spread(self, spec: Json) -> None:
        def constraint() -> Json:
            hard = self.odds(3 if self.spacious else 6)
            out: Json = {
                "maxSkew": self.one(1, 1, 2),
                "topologyKey": self.one(ZONE, ZONE, HOST, HOST, REGION, "disk"),
                "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            }
            out |= self.maybe(9, labelSelector=self.selector)
            if "labelSelector" in out:
                out |= self.maybe(2, matchLabelKeys=lambda: ["version"])
            out |= {"minDomains": self.one(1, 2, 4)} if hard and self.odds(3) else {}
            policy = ("Honor", "Ignore")
            out |= self.maybe(2, nodeAffinityPolicy=lambda: self.one(*policy))
            return out | self.maybe(2, nodeTaintsPolicy=lambda: self.one(*policy))

        made = {(c["topologyKey"], c["whenUnsatisfiable"]): c for c in self.many(constraint, 3)}
        spec["topologySpreadConstraints"] = list(made.values())

    def add_interpod(self, spec: Json) -> None:
        def term() -> Json:
            out: Json = {"topologyKey": self.one(HOST, ZONE, REGION, "disk")}
            out |= self.maybe(9, labelSelector=self.selector)
            out |= self.maybe(2, namespaces=lambda: self.some(("default", "other", "gone"), 2, 1))
            out |= self.maybe(2, namespaceSelector=self.of_spaces)
            if "labelSelector" in out:
                out |= self.maybe(1, matchLabelKeys=lambda: ["version"])
                out |= self.maybe(1, mismatchLabelKeys=lambda: ["tier"])
            return out

        def terms() -> Json:
            out: Json = {}
            if self.odds(2 if self.spacious else 4):
                out["requiredDuringSchedulingIgnoredDuringExecution"] = self.many(term, 2, 1)
            if self.odds(5):
                out["preferredDuringSchedulingIgnoredDuringExecution"] = self.many(
                    lambda: {"weight": self.one(1, 50, 100), "podAffinityTerm": term()}, 2, 1
                )
            return out

        into = spec.setdefault("affinity", {})
        into |= self.maybe(5, podAffinity=terms, podAntiAffinity=terms)

    def add_volumes(self, spec: Json) -> None:
        names = self.some([f"c{i}" for i in range(5)], 3)
        names += ["absent"] if self.odds(0.7) else []
        volumes = [
            {"name": f"v-{name}", "persistentVolumeClaim": {"claimName": name}} for name in names
        ]
        disk: list[Json] = [
            {"gcePersistentDisk": {"pdName": "d", "readOnly": self.odds(5)}},
            {"awsElasticBlockStore": {"volumeID": "d"}},
            {"iscsi": {"targetPortal": "t", "iqn": self.one("q", "r"), "lun": 0, "readOnly": True}},
            {"rbd": {"monitors": ["m"], "image": self.one("i", "j"), "readOnly": self.odds(5)}},
            {"csi": {"driver": CSI}},
            {"emptyDir": {}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": self.claim_spec()}}},
        ]
        volumes += [{"name": f"d{i}", **one} for i, one in enumerate(self.some(disk, 2))]
        spec.setdefault("volumes", []).extend(volumes)

    # ---- volumes, owners, budgets ------------------------------------------------------------

    def claim_spec(self) -> Json:
        modes = self.one(["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOncePod"])
        size = {"requests": {"storage": self.one("1Gi", "5Gi", "20Gi")}}
        out: Json = {"accessModes": modes, "resources": size}
        out |= self.maybe(0.3, volumeMode=lambda: "Block", selector=self.selector)
        return out | self.maybe(
            9,
            storageClassName=lambda: self.one(
                "late", "late", "now", "none", "none", "lost", "lost", ""
            ),
        )

    def volumes(self) -> list[Json]:
        out = [
            self.named("StorageClass", name, provisioner=maker, volumeBindingMode=mode)
            | self.maybe(3, allowedTopologies=self.topologies)
            for name, maker, mode in (
                ("late", CSI, "WaitForFirstConsumer"),
                ("now", CSI, "Immediate"),
                ("none", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
            )
        ]
        shelved = self.spacious and self.odds(9)
        for number in range(5):
            out += (
                self.unbound(f"c{number}") if shelved and number % 2 else self.claim(f"c{number}")
            )
        out += [self.free(f"free{i}") for i in range(self.one(0, 2, 5))]
        if shelved:
            out += [self.shelf(name) for name in self.nodes]
        for node in self.some(self.nodes, 4):
            count: Json = {"allocatable": {"count": self.one(0, 1, 2)}} if self.odds(7) else {}
            driver = {"name": self.one(CSI, CSI, "pd.csi.storage.gke.io"), "nodeID": node, **count}
            moved = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}
            meta = {"annotations": moved} if self.odds(4) else {}
            out.append(self.named("CSINode", node, meta=meta, spec={"drivers": [driver]}))
        if self.odds(8):
            says = {"storageCapacity": self.odds(8), "preventPodSchedulingIfMissing": self.odds(2)}
            out.append(self.named("CSIDriver", CSI, spec=says))
            out += [self.capacity(f"cap{i}") for i in range(self.one(0, 2, 3, 4))]
        if self.odds(6):
            source = {"persistentVolumeName": self.one("pv-c0", "pv-c1")}
            spec = {"attacher": CSI, "nodeName": self.one(*self.nodes), "source": source}
            out.append(self.named("VolumeAttachment", "va", spec=spec, status={"attached": True}))
        return out

    def topologies(self) -> list[Json]:
        labels = {"key": ZONE, "values": self.some("ab", 2, 1)}
        return [{"matchLabelExpressions": [labels]}]

    def capacity(self, name: str) -> Json:
        out = self.named("CSIStorageCapacity", name, storageClassName=self.one("late", "now"))
        out["metadata"]["namespace"] = "default"
        out["capacity"] = self.one("1Gi", "10Gi", "100Gi", "0", "0")
        out |= self.maybe(2, maximumVolumeSize=lambda: self.one("1Gi", "5Gi"))
        return out | self.maybe(8, nodeTopology=lambda: {"matchLabels": {ZONE: self.one("a", "b")}})

    def claim(self, name: str) -> list[Json]:
        spec = self.claim_spec()
        claim = self.named("PersistentVolumeClaim", name, spec=spec, status={"phase": "Pending"})
        claim["metadata"]["namespace"] = "default"
        if self.odds(1.3):
            claim["metadata"]["deletionTimestamp"] = TIMES[3]
        if self.odds(0.5):
            claim["status"]["phase"] = "Lost"
        if self.odds(5) and spec.get("storageClassName") != "none":
            spec["storageClassName"] = "late"
        if self.odds(5):
            node = self.one(*self.nodes)
            chosen = {"volume.kubernetes.io/selected-node": node} if self.odds(1) else {}
            claim["metadata"]["annotations"] = chosen
            return [claim]
        spec["volumeName"] = f"pv-{name}"
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        volume = self.volume(f"pv-{name}")
        volume["spec"]["claimRef"] = {"name": name, "namespace": "default"}
        return [claim, volume] if self.odds(7.5) else [claim]

    def volume(self, name: str) -> Json:
        spec: Json = {"capacity": {"storage": self.one("1Gi", "5Gi", "20Gi", "21Gi")}}
        spec["accessModes"] = self.some(
            ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"), 2, 1
        )
        spec["storageClassName"] = self.one("late", "now", "none", "none")
        source: list[Json] = [
            {"csi": {"driver": CSI, "volumeHandle": self.one(name, "same")}},
            {"gcePersistentDisk": {"pdName": "d"}},
            {"local": {"path": "/x"}},
        ]
        spec |= self.one(*source)
        if self.odds(5):
            terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
            if self.odds(5):
                terms[0]["matchExpressions"][0] |= {"key": HOST, "values": [self.one(*self.nodes)]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        if self.odds(0.3):
            spec["claimRef"] = {"name": self.one("c0", "c1"), "namespace": "default"}
        # Of two zones such a disk has no region here, which is a stated difference.
        zones = ("a", "b") if "gcePersistentDisk" in spec else ("a", "b", "a__b")
        labels = {ZONE: self.one(*zones)} if self.odds(5) else {}
        status = {"phase": self.one("Available", "Available", "Bound")}
        return self.named("PersistentVolume", name, labels=labels, spec=spec, status=status)

    def free(self, name: str) -> Json:
        """A volume that a claim may find."""
        out = self.volume(name)
        if self.odds(7):
            modes = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]
            out["spec"] |= {"accessModes": modes, "storageClassName": self.one("late", "none")}
            out["spec"]["capacity"] = {"storage": self.one("5Gi", "20Gi", "50Gi")}
        return out

    def unbound(self, name: str) -> list[Json]:
        """A claim that only a volume on the pod's node will do for."""
        size = {"requests": {"storage": self.one("1Gi", "5Gi")}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": size, "storageClassName": "none"}
        meta = {"namespace": "default"}
        return [self.named("PersistentVolumeClaim", name, meta=meta, spec=spec)]

    def shelf(self, node: str) -> Json:
        """A volume that only this node has, so that nodes differ in the room that is left."""
        out = self.free(f"shelf-{node}")
        out["spec"] |= {"storageClassName": "none", "accessModes": ["ReadWriteOnce"]}
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        out["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        return out

    def owner(self, kind: str) -> Json:
        selector: Any = {APP: self.one("a", "b")}
        if kind == "Service":
            return self.named(
                kind, "svc", meta={"namespace": "default"}, spec={"selector": selector}
            )
        template = {"metadata": {"labels": selector}, "spec": {"containers": [{"name": "c"}]}}
        plain = kind == "ReplicationController"
        selector = selector if plain else {"matchLabels": selector}
        spec = {"selector": selector, "template": template, "replicas": 1}
        spec |= {"serviceName": "svc"} if kind == "StatefulSet" else {}
        return self.named(kind, kind.lower(), meta={"namespace": "default"}, spec=spec)

    def owned_by(self, kind: str) -> Json:
        reference: Json = {"apiVersion": KIND_OF[kind], "kind": kind, "name": kind.lower()}
        return reference | {"uid": "u", "controller": self.odds(9)}

    def budget(self, name: str) -> Json:
        status: Json = {"disruptionsAllowed": self.one(0, 0, 0, 1), "currentHealthy": 1}
        status |= {"desiredHealthy": 1, "expectedPods": 1}
        status |= self.maybe(2, disruptedPods=lambda: {"b0": TIMES[0]})
        spec = self.maybe(9, selector=self.selector)
        meta = {"namespace": self.one("default", "default", "other")}
        return self.named("PodDisruptionBudget", name, meta=meta, spec=spec, status=status)

    # ---- profiles and events -----------------------------------------------------------------

    def profile(self) -> Json:
        out: Json = {"schedulerName": "default-scheduler"}
        weights = [{"name": name, "weight": self.one(1, 3, 50)} for name in self.some(WEIGHED, 2)]
        off = [{"name": w["name"]} for w in weights]
        plugins: Json = {"multiPoint": {"disabled": off, "enabled": weights}} if weights else {}
        if self.odds(4):
            # Without NodeName's there is a stated difference, about pods that nobody schedules.
            off = sorted(set(FILTERS) - {"NodeName"})
            plugins["filter"] = {"disabled": [{"name": self.one(*off)}]}
        if self.odds(3):
            plugins["score"] = {"disabled": [{"name": self.one(*WEIGHED, "*")}]}
        out |= {"plugins": plugins} if plugins else {}
        args = dict(one for one in self.arguments() if self.odds(3))
        version = "kubescheduler.config.k8s.io/v1"
        out["pluginConfig"] = [
            {"name": name, "args": {"apiVersion": version, "kind": f"{name}Args", **fields}}
            for name, fields in args.items()
        ]
        return out

    def arguments(self) -> list[tuple[str, Json]]:
        def resource(name: str) -> Json:
            return {"name": name, "weight": self.one(1, 5)}

        shape = [{"utilization": 0, "score": self.one(0, 10)}, {"utilization": 80, "score": 4}]
        strategy: Json = {"type": self.one("LeastAllocated", "MostAllocated")}
        names = ["cpu", *self.some(("memory", "example.com/gpu"), 2)]
        if self.odds(4):
            strategy = {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {"shape": shape},
            }
        strategy["resources"] = [resource(name) for name in names]
        constraint = {"maxSkew": 1, "topologyKey": ZONE}
        constraint["whenUnsatisfiable"] = self.one("DoNotSchedule", "ScheduleAnyway")
        terms = {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
        return [
            (
                "NodeResourcesFit",
                {"scoringStrategy": strategy, "ignoredResources": ["example.com/gpu"]},
            ),
            ("NodeResourcesFit", {"scoringStrategy": strategy}),
            (
                "NodeResourcesBalancedAllocation",
                {"resources": [{"name": n, "weight": 1} for n in names]},
            ),
            ("PodTopologySpread", {"defaultingType": "List", "defaultConstraints": [constraint]}),
            ("PodTopologySpread", {"defaultingType": "List"}),
            ("InterPodAffinity", {"hardPodAffinityWeight": self.one(0, 1, 100)}),
            ("InterPodAffinity", {"ignorePreferredTermsOfExistingPods": True}),
            (
                "NodeAffinity",
                {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            ),
            ("VolumeBinding", {"bindTimeoutSeconds": 1, "shape": shape}),
        ]

    def event(self, objects: list[Json], pod: Json) -> Json:
        """One of the objects comes, goes or changes; `objects` become the state after it."""
        skip = ("Namespace", "Service", *OWNERS, "PodDisruptionBudget")
        kinds = sorted({one["kind"] for one in objects} - set(skip))
        more = sorted({"CSINode", "VolumeAttachment", "CSIStorageCapacity"} & set(kinds))
        meant = self.one("Node", "Node", *more) if self.odds(5) else self.one(*kinds)
        new = self.chance.choice([one for one in objects if one["kind"] == meant])
        kind, name = new["kind"], new["metadata"]["name"]
        action = self.one("Add", "Delete", "Update", "Update", "Update")
        if action == "Add":
            return {"resource": kind, "action": action, "new": new}
        if action == "Delete":
            objects.remove(new)
            return {"resource": kind, "action": action, "old": new}
        other = self.again(new)
        if kind == "Pod" and "nodeName" in new["spec"] and self.odds(2):
            before = {**new["status"], **self.resize()}  # what its kubelet says alone
            return {
                "resource": kind,
                "action": action,
                "old": {**new, "status": before},
                "new": new,
            }
        if kind == "Pod" and self.odds(2):
            own = self.named("Pod", "new", **pod)
            changed = self.pod("new") | {"metadata": {**pod["metadata"], "labels": self.labels()}}
            changed["spec"].pop("nodeName", None)
            return {"resource": kind, "action": action, "old": own, "new": {**own, **changed}}
        for key in self.some(sorted(set(new) - {"metadata", "kind", "apiVersion"}), 2):
            if key in other:
                new[key] = other[key]
        old = {**new, **other}
        old["metadata"] = (
            {**new["metadata"]} | self.maybe(5, labels=lambda: other["metadata"]["labels"])
            if "labels" in other["metadata"]
            else new["metadata"]
        )
        assert name == old["metadata"]["name"]
        return {"resource": kind, "action": action, "old": old, "new": new}

    def again(self, one: Json) -> Json:
        """The object as it might have been, under its name."""
        kind, name = one["kind"], one["metadata"]["name"]
        match kind:
            case "Node":
                return self.node(name)
            case "Pod":
                return (
                    self.bound(name)
                    if "nodeName" in one["spec"]
                    else self.named("Pod", name, **self.pod(name))
                )
            case _:
                made = {(o["kind"], o["metadata"]["name"]): o for o in self.volumes()}
                return made.get((kind, name), one)
