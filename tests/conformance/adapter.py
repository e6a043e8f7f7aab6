"""Answers conformance cases with our own engine, in the protocol of the recorded vectors.

    python -m tests.conformance.adapter < cases.jsonl > answers.jsonl

JSON Lines both ways: a case in, an answer with the case's id out. The cluster is put into a real
`Cache`, the profile's plugins into a real `Framework`; what is asked beyond a decision (every
plugin about every node) goes through the plugins' interface. A bad case answers {"id", "error"}.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.configuration.scheduler import ProfileDocument
from engine.configuration.settings import without_nulls
from engine.cycle import decide
from engine.framework.decision import NO_NODES
from engine.framework.effects import AssumeObject
from engine.framework.events import ClusterEvent, QueueingHint, Resource
from engine.framework.interface import Points, PreFilterResult, PreScoreResult
from engine.framework.runtime import Framework, PluginError, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.kube.resources import STRUCTS
from engine.objects import Namespace, Node, ObjectMeta, Pod, from_builtins
from engine.plugins.profiles import make_profile
from engine.pods.podinfo import PodInfo, make_pod_info
from tests.builders import Cache
from tests.conformance.events import moves, read_object
from tests.conformance.preempting import preempt

Answer = dict[str, Any]


def main() -> None:
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answer(json.loads(line)), ensure_ascii=False), flush=True)


def answer(case: Mapping[str, Any]) -> Answer:
    """The answer to one case; never raises for the case's sake."""
    head = {"id": case.get("id", ""), "kind": case.get("kind")}
    try:
        match case.get("kind"):
            case "cycle":
                return {**head, **cycle(case)}
            case "hint":
                return {**head, **hint(case)}
            case "sequence":
                return {**head, "steps": list(sequence(case))}
            case "preempt":
                pod = read_pod(case["pod"])
                return {**head, **preempt(pod, build(case, [pod])[0], framework_of(case))}
            case kind:
                return {**head, "error": f"kind {kind!r} is not answered"}
    except Exception as error:  # noqa: BLE001 - a bad case must not end the run
        return {**head, "error": f"{type(error).__name__}: {error}"}


# ---- the cluster -----------------------------------------------------------------------------


def read_pod(value: Mapping[str, Any]) -> PodInfo:
    pod = from_builtins(Pod, value)
    meta = pod.metadata
    namespace, uid = meta.namespace or "default", meta.uid
    uid = uid or f"uid:Pod:{namespace}/{meta.name}"
    if (namespace, uid) != (meta.namespace, meta.uid):
        raw = {
            **value,
            "metadata": {**value.get("metadata", {}), "namespace": namespace, "uid": uid},
        }
        pod = from_builtins(Pod, raw)
    return make_pod_info(pod)


def build(case: Mapping[str, Any], pods: Sequence[PodInfo]) -> tuple[Cache, list[str]]:
    """A cache with the case's objects, and the nodes in the order in which they came.

    `pods` are those to schedule: an object of that name is left out for them. Namespaces that no
    object describes are there, with the label of their name alone.
    """
    cache = Cache()
    nodes: list[Node] = []
    incoming = {pod.key for pod in pods}
    described = [value["metadata"].get("namespace", "default") for value in case.get("objects", [])]
    for name in {"default", *described, *(pod.namespace for pod in pods)}:
        labels = {"kubernetes.io/metadata.name": name}
        cache.set_namespace(Namespace(ObjectMeta(name=name, labels=labels)))
    for value in case.get("objects", []):
        kind = value.get("kind")
        if kind == "Node":
            nodes.append(from_builtins(Node, value))
            cache.add_node(nodes[-1])
        elif kind == "Namespace":
            cache.set_namespace(from_builtins(Namespace, value))
        elif kind == "Pod":
            other = read_pod(value)
            bound = other.pod.spec.node_name
            finished = other.pod.status.phase in ("Succeeded", "Failed")
            if finished or other.key in incoming:
                continue
            if bound:
                cache.add_pod(other, bound)
            else:
                cache.nominate(other, other.pod.status.nominated_node_name)
        elif kind in STRUCTS:
            cache.set_object(read_object(kind, value))
    for pod in pods:
        cache.nominate(pod, pod.pod.status.nominated_node_name)
    return cache, in_zone_turns(nodes)


def in_zone_turns(nodes: Sequence[Node]) -> list[str]:
    """The scheduler's own order: a node of each zone in turn, zones as they first came."""
    zones: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        labels = node.metadata.labels or {}
        region, zone = (
            labels.get(
                f"failure-domain.beta.kubernetes.io/{key}",
                labels.get(f"topology.kubernetes.io/{key}", ""),
            )
            for key in ("region", "zone")
        )
        zones.setdefault((region, zone), []).append(node.metadata.name)
    return [n for turn in itertools.zip_longest(*zones.values()) for n in turn if n is not None]


def framework_of(case: Mapping[str, Any]) -> Framework:
    document = ProfileDocument.model_validate(without_nulls(case.get("profile") or {}))
    return Framework(make_profile(document), on_fault=lambda _: None)


# ---- cycle -----------------------------------------------------------------------------------


def status_list(status: Status) -> list[str]:
    return [status.code.value, *status.reasons]


def cycle(case: Mapping[str, Any]) -> Answer:
    pod = read_pod(case["pod"])
    cache, order = build(case, [pod])
    framework = framework_of(case)
    snapshot = cache.snapshot(0.0)
    out: Answer = {
        "nodes": order,
        "feasible": [],
        "total": [],
        "best": [],
        "filter": {},
        "rejectedFirst": {},
        "score": {},
        "preScore": {"skip": [], "status": None},
        "preFilter": {"status": None, "nodes": None, "skip": [], "plugins": {}},
        "preEnqueue": {},
    }
    for name, points in framework.plugins:
        if points.pre_enqueue is not None:
            status = points.pre_enqueue(pod, snapshot)
            if not status.ok:
                out["preEnqueue"][name] = status_list(status)
                out["gated"] = True
    if out.get("gated"):
        return out
    out["preFilter"] = pre_filter(framework, pod, snapshot)
    if not order:  # then no plugin is asked
        out["preFilter"]["status"] = None
        out["message"] = NO_NODES
        return out
    if out["preFilter"]["status"] is None:
        out["filter"] = filters(framework, pod, snapshot, out["preFilter"]["nodes"])
    outcome(out, framework, pod, snapshot)
    return out


def pre_filtered(points: Points, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    return PreFilterResult() if points.pre_filter is None else points.pre_filter(pod, snapshot)


def pre_filter(framework: Framework, pod: PodInfo, snapshot: Snapshot) -> Answer:
    """The framework's PreFilter, and every plugin's on its own."""
    alone = {name: pre_filtered(p, pod, snapshot) for name, p in framework.pre_filters}
    failed = {
        name: result.status
        for name, result in alone.items()
        if not result.status.ok and result.status.code is not Code.SKIP
    }
    out: Answer = {"status": None, "nodes": None, "skip": []}
    out["plugins"] = {name: status_list(status) for name, status in failed.items()}
    names: frozenset[str] | None = None
    for name, result in alone.items():
        if name in failed:
            out["nodes"] = None
            out["status"] = [failed[name].code.value, name, *failed[name].reasons]
            return out
        if result.status.code is Code.SKIP:
            out["skip"].append(name)
        if result.names is not None:
            names = result.names if names is None else names & result.names
            out["nodes"] = sorted(names)
            if not names:
                break
    try:
        framework.class_of(pod, snapshot)
    except Unfit as unfit:
        message = unfit.fit_error.pre_filter_message
        out["status"] = ["UnschedulableAndUnresolvable", "", message]
    return out


def filters(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, names: Sequence[str] | None
) -> dict[str, dict[str, list[str]]]:
    """Every Filter plugin about every node that PreFilter leaves."""
    rows = np.flatnonzero(snapshot.nodes.present)
    if names is not None:
        wanted = [snapshot.nodes.row(name) for name in names]
        rows = np.array(sorted(row for row in wanted if row >= 0), dtype=np.intp)
    found: dict[str, dict[str, list[str]]] = {}
    for name, points in framework.filters:
        result = pre_filtered(points, pod, snapshot)
        if result.status.code is Code.SKIP or points.filter is None or not result.rejects:
            continue
        rejected = rejections(name, points, result.state, pod, snapshot, rows)
        if rejected:
            found[name] = rejected
    return found


def rejections(
    name: str, points: Points, state: Any, pod: PodInfo, snapshot: Snapshot, rows: Any
) -> dict[str, list[str]]:
    assert points.filter is not None
    verdicts = points.filter(state, pod, snapshot, rows)
    rejected = {}
    for status, positions in verdicts.groups():
        for position in positions:
            rejected[snapshot.nodes.name(int(rows[position]))] = status_list(status)
    passed = np.ones(len(rows), dtype=np.bool_) if verdicts.passed is None else verdicts.passed
    told = {snapshot.nodes.name(int(row)) for row in rows[~passed]}
    if told != set(rejected):
        raise AssertionError(f"{name}: mask and reasons disagree")
    return rejected


def outcome(out: Answer, framework: Framework, pod: PodInfo, snapshot: Snapshot) -> None:
    """What the decision comes to, and the scores it was made from."""
    decision = decide(pod, snapshot, framework)
    if decision.fit_error is not None:
        out["message"] = decision.fit_error.message()
        out["rejectedBy"] = sorted(decision.fit_error.plugins)
    if decision.error is not None:
        out["message"] = " ".join(decision.error.reasons)
        out["schedulerError"] = True
    ended = decision.rejections is not None and decision.rejections.ended is not None
    if out["preFilter"]["status"] is not None or ended:
        return
    known = framework.class_of(pod, snapshot)
    rows = framework.candidates(known, pod, snapshot)
    first = framework.rejections(pod, snapshot).by_plugin()
    nominated = pod.pod.status.nominated_node_name
    if nominated:
        row = snapshot.nodes.row(nominated)
        used = row in rows
        out["nominatedNode"] = {"node": nominated, "used": used}
        if used:  # then no other node is looked at
            rows, first = np.array([row], dtype=np.intp), {}
            assert decision.row == row
    names_of = {snapshot.nodes.name(int(row)) for row in rows}
    names = [name for name in out["nodes"] if name in names_of]
    out["feasible"] = names
    for plugin, rejected in first.items():
        # A nominated node is asked even if a PreFilter leaves it out, but not recorded.
        asked = (
            rejected if known.keys.allowed is None else np.intersect1d(rejected, known.keys.allowed)
        )
        out["rejectedFirst"].update({snapshot.nodes.name(int(row)): plugin for row in asked})
    if names:
        out.update(scores(framework, pod, snapshot, names, rows))
    if len(names) == 1:  # then scores do not count, were there any
        out["best"] = names


def scores(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, names: Sequence[str], rows: Any
) -> Answer:
    skipped = []
    for name, points in framework.plugins if framework.scorers else ():
        ask = points.pre_score
        if ask is None and points.score is None:
            continue
        status = (PreScoreResult() if ask is None else ask(pod, snapshot)).status
        if status.code is Code.SKIP:
            skipped.append(name)
        elif not status.ok:
            return {"preScore": {"skip": [], "status": status_list(status)}}
    out: Answer = {"preScore": {"skip": skipped, "status": None}, "score": {}}
    position = {snapshot.nodes.name(int(row)): i for i, row in enumerate(rows)}
    order = [position[name] for name in names]
    totals = np.zeros(len(rows))
    try:
        answers = framework.scores(pod, snapshot, rows)
    except PluginError:
        return out
    for name, weight, raw, normalized in answers:
        totals += normalized * weight
        out["score"][name] = {
            "weight": int(weight),
            "raw": [whole(raw[i]) for i in order],
            "normalized": [whole(normalized[i]) for i in order],
        }
    if not framework.scorers:  # then every node has 1
        totals += 1
    out["total"] = [whole(totals[i]) for i in order]
    out["best"] = [
        name for name, total in zip(names, out["total"], strict=True) if total == max(out["total"])
    ]
    return out


def whole(score: float) -> int:
    if score != int(score):
        raise AssertionError(f"{score} is not a whole number")
    return int(score)


# ---- sequence ------------------------------------------------------------------------------------


def sequence(case: Mapping[str, Any]) -> Iterator[Answer]:
    """Pods one after the other; each that fits is assumed on the first node by name of the best."""
    pods = [read_pod(value) for value in case["pods"]]
    cache, order = build(case, pods)
    framework = framework_of(case)
    for pod in pods:
        snapshot = cache.snapshot(0.0)
        step: Answer = {"pod": pod.name, "chosen": None, "best": [], "bestTotal": 0, "feasible": 0}
        gates = framework.pre_enqueue(pod, snapshot)
        if not gates.ok:
            yield {**step, "gated": True, "preEnqueue": {gates.plugin: status_list(gates)}}
            continue
        out: Answer = {"nodes": order, "preFilter": {"status": None}, "rejectedFirst": {}}
        out |= {"feasible": [], "total": [], "best": []}
        outcome(out, framework, pod, snapshot)
        if not order:
            out["message"] = NO_NODES
        step["feasible"] = len(out["feasible"])
        step |= {key: out[key] for key in ("message", "schedulerError") if key in out}
        step["best"], step["bestTotal"] = sorted(out["best"]), max(out["total"], default=0)
        if step["best"]:
            step["chosen"] = step["best"][0]
            place(cache, framework, pod, step["best"][0])
        yield step


def place(cache: Cache, framework: Framework, pod: PodInfo, node: str) -> None:
    cache.assume(pod, node)
    snapshot = cache.snapshot(0.0)
    for _, points in framework.plugins:
        if points.reserve is not None:
            reserved = points.reserve(pod, snapshot, snapshot.nodes.row(node))
            assert reserved.status.ok
            for effect in reserved.effects:
                assert isinstance(effect, AssumeObject)
                assert cache.assume_object(effect.value)


# ---- hint ------------------------------------------------------------------------------------


def hint(case: Mapping[str, Any]) -> Answer:
    pod = read_pod(case["pod"])
    framework = framework_of(case)
    snapshot = build(case, [pod])[0].snapshot(0.0)
    only = case.get("rejectedBy")
    happened = list(moves(case["event"], pod, read_pod))
    hints: dict[str, str] = {}
    matched: dict[str, list[str]] = {}
    unconditional: set[str] = set()
    for event, old, new in happened:
        waiting = pod
        if event.resource is Resource.TARGET_POD and isinstance(new, Pod):
            waiting = make_pod_info(new)
        for name, answer_of in _asked(framework, event, only):
            labels = matched.setdefault(name, [])
            if str(event) not in labels:
                labels.append(str(event))
            if answer_of is None:
                unconditional.add(name)
                hints[name] = "Queue"
            elif answer_of(waiting, old, new, snapshot) is QueueingHint.QUEUE:
                hints[name] = "Queue"
            else:
                hints.setdefault(name, "Skip")
    return {
        "events": [str(event) for event, _, _ in happened],
        "hints": hints,
        "matchedEvents": {name: ",".join(labels) for name, labels in matched.items()},
        "unconditional": sorted(unconditional),
        "requeue": any(said == "Queue" for said in hints.values()),
    }


def _asked(
    framework: Framework, event: ClusterEvent, only: Sequence[str] | None
) -> Iterator[tuple[str, Any]]:
    for name, registrations in framework.hints().items():
        if only is not None and name not in only:
            continue
        for registration in registrations:
            if registration.event.matches(event) and not registration.ours:
                yield name, registration.hint


if __name__ == "__main__":
    main()
