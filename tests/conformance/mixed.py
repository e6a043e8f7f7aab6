"""Mixed pods on a real API server: every decision put to kube-scheduler's own libraries.

    ORACLE=path python -m tests.conformance.mixed [--nodes 200] [--pods 2000] [--seed N]

Berth schedules the pods and writes its journal. Each decision of it is asked anew of the oracle,
with the nodes and pods as Berth's cache then had them: the chosen node is among the best, as many
nodes are feasible, the texts are equal; for a preemption the node is among those that are tied, and
its victims are the same. Then kube-scheduler schedules the same pods, twice: Berth leaves no more
of a kind pending than it does, give or take what its two runs differ by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.cluster import create
from tests.cluster.berth import PROFILE, Berth
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.process import wait_until
from tests.conformance.fuzz import HOW, Oracle

Json = dict[str, Any]
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
PODS: Final = "/api/v1/namespaces/default/pods"
QUIET_SECONDS: Final = 20.0
"""So long nothing has moved when a run is over: twice the longest wait between two tries."""
EVICTED: Final = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
MORE: Final = 0.02
"""Of a kind's pods, and one: so many more may be pending than two runs of the other differ by."""


# ---- the cluster and its pods --------------------------------------------------------------------


def nodes_of(count: int, chance: random.Random) -> list[Json]:
    """Nodes in three zones, of three sizes, some with an ssd or a taint that is not liked."""
    out = []
    for number in range(count):
        cpu = chance.choice(("2", "4", "8"))
        labels = {HOST: f"n{number:03}", ZONE: f"z{number % 3}"}
        labels["disk"] = chance.choice(("ssd", "hdd"))
        taint = {"key": "busy", "effect": "PreferNoSchedule"}
        spec = {"taints": [taint]} if chance.random() < 0.2 else {}
        amounts = {"cpu": cpu, "memory": f"{int(cpu) * 2}Gi", "pods": "12"}
        status = {"allocatable": amounts, "capacity": amounts}
        out.append(_named("v1", "Node", f"n{number:03}", labels, spec=spec, status=status))
    return out


def volumes_of(count: int) -> Iterator[Json]:
    """Claims that are bound, each to a volume of one zone."""
    for number in range(count):
        claim, volume = f"claim-{number:03}", f"volume-{number:03}"
        size = {"storage": "1Gi"}
        modes = ["ReadWriteOnce" if number % 2 else "ReadWriteOncePod"]
        there = {"key": ZONE, "operator": "In", "values": [f"z{number % 3}"]}
        required = {"nodeSelectorTerms": [{"matchExpressions": [there]}]}
        spec: Json = {"accessModes": modes, "storageClassName": "", "capacity": size}
        spec |= {"local": {"path": "/x"}, "nodeAffinity": {"required": required}}
        spec["claimRef"] = {"namespace": "default", "name": claim}
        yield _named("v1", "PersistentVolume", volume, spec=spec)
        wants: Json = {"accessModes": modes, "storageClassName": "", "volumeName": volume}
        wants["resources"] = {"requests": size}
        one = _named("v1", "PersistentVolumeClaim", claim, spec=wants)
        one["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        one["metadata"]["namespace"] = "default"
        yield one


def pods_of(count: int, chance: random.Random, claims: int) -> list[Json]:
    """Pods of all kinds, in random order; the name begins with the kind."""
    return [_pod(chance.choice(list(KINDS)), number, chance, claims) for number in range(count)]


def _affinity(kind: str, key: str, app: str) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(key: str, when: str, app: str) -> list[Json]:
    selector = {"matchLabels": {"app": app}}
    one = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
    return [one]


def _preferring() -> Json:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "soft"}}}
    liked = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    return {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "podAffinityTerm": term}
            ]
        },
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 20, "preference": liked}]
        },
    }


KINDS: Final[dict[str, Json]] = {
    "plain": {},
    "soft": {"topologySpreadConstraints": _spread(ZONE, "ScheduleAnyway", "soft")},
    "hard": {"topologySpreadConstraints": _spread(ZONE, "DoNotSchedule", "hard")},
    "alone": {"affinity": _affinity("podAntiAffinity", HOST, "alone")},
    "near": {"affinity": _affinity("podAffinity", ZONE, "near")},
    "preferring": {"affinity": _preferring()},
    "port": {},
    "volume": {},
    "ssd": {"nodeSelector": {"disk": "ssd"}},
    "large": {},
    "first": {},
}
"""What is asked by kind. A `first` pod may evict others; a `large` one fits hardly anywhere."""


def _pod(kind: str, number: int, chance: random.Random, claims: int) -> Json:
    cpu = {"large": "3500m", "first": "1500m"}.get(kind) or chance.choice(("100m", "300m", "700m"))
    container: Json = {"name": "c", "image": "registry.example/app:1"}
    container["resources"] = {"requests": {"cpu": cpu, "memory": "128Mi"}}
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0, **KINDS[kind]}
    # Each priority once: of victims that are equal kube-scheduler takes any.
    spec["priority"] = number if kind != "first" else 1_000_000 + number
    if kind != "first":
        spec["preemptionPolicy"] = "Never"
    if kind == "port":
        port = chance.choice((8080, 8081))
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    if kind == "volume":
        claim = {"claimName": f"claim-{chance.randrange(claims):03}"}
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
    out = _named("v1", "Pod", f"{kind}-{number:04}", {"app": kind}, spec=spec)
    out["metadata"]["namespace"] = "default"
    return out


def _named(version: str, kind: str, name: str, labels: Json | None = None, **fields: Any) -> Json:
    metadata: Json = {"name": name} | ({"labels": labels} if labels else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


# ---- a run of one scheduler ----------------------------------------------------------------------


class World:
    """A control plane with nodes and claims, and the pods that each scheduler is given."""

    def __init__(self, folder: Path, nodes: int, pods: int, seed: int) -> None:
        # Each pod has its own priority, which admission would take from a class.
        flags = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority",)
        chance = random.Random(seed)
        claims = max(1, pods // 20)
        self.nodes, self.volumes = nodes_of(nodes, chance), list(volumes_of(claims))
        self.pods = pods_of(pods, chance, claims)
        self.plane = ControlPlane(folder, apiserver_flags=flags)

    def start(self) -> None:
        """The API server, with the nodes and claims."""
        self.plane.start()
        for path, items in (
            ("/api/v1/nodes", self.nodes),
            ("/api/v1/persistentvolumes", self.volumes[::2]),
            ("/api/v1/namespaces/default/persistentvolumeclaims", self.volumes[1::2]),
        ):
            asyncio.run(create(self.plane, path, items))

    def settled(self, scheduler: Berth | KubeScheduler, name: str) -> Counter[str]:
        """How many pods of each kind are pending when nothing moves any more; all are gone then.

        Those that may evict others come to a full cluster. All others wait when the scheduler
        starts: which is tried first must not depend on how fast a scheduler is.
        """
        pods = [{**pod, "spec": {**pod["spec"], "schedulerName": name}} for pod in self.pods]
        late = [one for one in pods if "preemptionPolicy" not in one["spec"]]
        early = [one for one in pods if "preemptionPolicy" in one["spec"]]
        asyncio.run(create(self.plane, PODS, early))
        scheduler.process.start()
        try:
            first = f"{PODS}?fieldSelector=spec.nodeName!=&limit=1"
            wait_until("a pod is on a node", lambda: bool(self._list(first)), seconds=300.0)
            self._rest()
            asyncio.run(create(self.plane, PODS, late))
            found = self._rest()
        finally:
            scheduler.process.stop(seconds=10)
        self._delete(PODS)
        return Counter(one["metadata"]["name"].split("-")[0] for one in found if _waits(one))

    def _rest(self) -> list[Json]:
        items: list[Json] = []
        last: object = None
        since = time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            items = self._list(PODS)
            now = {one["metadata"]["uid"]: one["spec"].get("nodeName") for one in items}
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(1.0)
        return items

    def _list(self, path: str) -> list[Json]:
        code, answer = self.plane.request("GET", path)
        if code != 200:
            raise RuntimeError(f"GET {path}: {answer}")
        items: list[Json] = answer["items"]
        return items

    def _delete(self, path: str) -> None:
        code, answer = self.plane.request("DELETE", path)
        if code != 200:
            raise RuntimeError(f"DELETE {path}: {answer}")
        while self._list(path):
            time.sleep(0.2)


def _waits(pod: Json) -> bool:
    return not pod["spec"].get("nodeName")


# ---- the journal, asked anew ---------------------------------------------------------------------


class Retold:
    """Berth's journal line by line; `decisions` gives each as a case for the oracle."""

    def __init__(self, fixed: Iterable[Json], pods: Iterable[Json]) -> None:
        self._fixed = list(fixed)
        self._manifests = {pod["metadata"]["name"]: pod for pod in pods}
        self._on: dict[str, Json] = {}
        self._promised: dict[str, Json] = {}

    def decisions(self, lines: Iterable[bytes]) -> Iterator[tuple[Json, Json]]:
        """The case, and the line of the decision."""
        for line in lines:
            entry = json.loads(line)
            if entry["what"] == "decision":
                yield self._case(entry), entry
            else:
                self._take(entry)

    def _take(self, entry: Json) -> None:
        match entry:
            case {"what": "assume" | "add_pod", "args": [told, node, *_]}:
                self._place(self._stored(told), node, going="deletionTimestamp" in told["metadata"])
            case {"what": "carry", "args": [told, *_]} if told["metadata"]["uid"] in self._on:
                node = self._on[told["metadata"]["uid"]]["spec"]["nodeName"]
                self._place(self._stored(told), node, going="deletionTimestamp" in told["metadata"])
            case {"what": "forget" | "remove_pod", "args": [uid, *_]}:
                self._on.pop(uid, None)
            case {"what": "nominate", "args": [told, node, *_]}:
                self._promise(self._stored(told), node)
            case {"what": "withdraw", "args": [uid, *_]}:
                self._promised.pop(uid, None)
            case _:
                pass  # the other kinds of object stay as they were created

    def _promise(self, pod: Json, node: str | None) -> None:
        uid = pod["metadata"]["uid"]
        self._promised.pop(uid, None)
        if node and uid not in self._on:
            self._promised[uid] = {**pod, "status": {"nominatedNodeName": node}}

    def _stored(self, told: Json) -> Json:
        """The pod as it was created, with the identity that the server gave it."""
        said = told["metadata"]
        pod = self._manifests[said["name"]]
        return {**pod, "metadata": {**pod["metadata"], "uid": said["uid"]}}

    def _place(self, pod: Json, node: str, *, going: bool) -> None:
        """The pod is on the node; who goes was evicted."""
        uid = pod["metadata"]["uid"]
        self._promised.pop(uid, None)
        status: Json = {"phase": "Running"}
        if going:
            pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}
            status["conditions"] = [EVICTED]
        self._on[uid] = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}

    def _case(self, entry: Json) -> Json:
        pod = self._stored(entry["pod"])
        uid = pod["metadata"]["uid"]
        # Known from the promise on, not only when the server has told the pod's new status.
        pod |= {"status": self._promised[uid]["status"]} if uid in self._promised else {}
        promised = [one for key, one in self._promised.items() if key != uid]
        objects = [*self._fixed, *self._on.values(), *promised]
        kind = "cycle" if entry.get("chosen") else "preempt"
        return {"id": pod["metadata"]["name"], "kind": kind, "objects": objects, "pod": pod}


def differences(entry: Json, want: Json) -> Iterator[str]:
    """What of a decision kube-scheduler would not have done or said."""
    if "error" in want:
        yield f"the oracle failed: {want['error']}"
        return
    if chosen := entry.get("chosen"):
        if chosen not in want["best"]:
            yield f"chose {chosen}, of the best {want['best'][:5]}"
        if entry["feasible"] != len(want["feasible"]):
            yield f"{entry['feasible']} feasible, {len(want['feasible'])} are"
        return
    yield from _unplaced(entry, want)


def _unplaced(entry: Json, want: Json) -> Iterator[str]:
    nominated = entry.get("nominated")
    tied = want.get("tied") or ([want["chosen"]] if want.get("chosen") else [])
    if want["feasible"]:
        yield f"no node, {want['feasible'][:5]} are feasible"
    elif nominated:
        if nominated not in tied:
            yield f"promised {nominated}, of {tied}"
        elif sorted(entry["victims"]) != sorted(want["candidates"][nominated]["victims"]):
            yield f"victims {entry['victims']}, not {want['candidates'][nominated]['victims']}"
    elif tied:
        yield f"no preemption, {tied} would do; said {entry['message']!r}"
    else:
        said = f"{want['message']} {want.get('postFilterMessage') or ''}".strip()
        if entry["message"] != said:
            yield f"said {entry['message']!r}, not {said!r}"


# ---- the whole -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="mixed pods, each decision put to the oracle")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="so many differences are told")
    given = parser.parse_args()
    if not os.environ.get("ORACLE"):
        print(HOW, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), given.nodes, given.pods, given.seed)
        try:
            world.start()
            return _run(world, Path(folder), given.show)
        finally:
            world.plane.stop()


def _run(world: World, folder: Path, show: int) -> int:
    journal = folder / "journal.jsonl"
    berth = Berth(world.plane, folder / "berth", "--record", journal)
    ours = world.settled(berth, PROFILE)
    differ = _asked(world, journal, show)
    theirs = [
        world.settled(KubeScheduler(world.plane), "default-scheduler") for _ in ("first", "second")
    ]
    print(f"{'pending':12}{'berth':>8}{'kube-scheduler, twice':>24}")
    for kind, many in sorted(
        Counter(one["metadata"]["labels"]["app"] for one in world.pods).items()
    ):
        first, second = (one[kind] for one in theirs)
        more = too_many(ours[kind], first, second, many)
        differ += more
        print(f"{kind:12}{ours[kind]:8}{first:12}{second:12}{'  too many' if more else ''}")
    return 1 if differ else 0


def too_many(ours: int, first: int, second: int, many: int) -> bool:
    """Whether more of a kind's pods are pending than two runs of kube-scheduler explain."""
    # Fewer is no fault: had a pod got a node, or a victim gone, that may not, its decision differs.
    return ours - min(first, second) > abs(first - second) + max(1, MORE * many)


def _asked(world: World, journal: Path, show: int) -> int:
    """Puts each decision to the oracle; how many differ."""
    oracle = Oracle(os.environ["ORACLE"])
    asked: Counter[str] = Counter()
    retold = Retold([*world.nodes, *world.volumes], world.pods)
    with journal.open("rb") as lines:
        for case, entry in retold.decisions(lines):
            found = list(differences(entry, oracle.ask(case)))
            placed = "placed" if entry.get("chosen") else "not placed"
            asked["promised" if entry.get("nominated") else placed] += 1
            asked["differ"] += bool(found)
            for text in found if asked["differ"] <= show else ():
                print(f"{case['id']}: {text}")
    print(f"{dict(asked)}, {asked['differ']} of {sum(asked.values()) - asked['differ']} differ")
    return asked["differ"]


if __name__ == "__main__":
    sys.exit(main())
