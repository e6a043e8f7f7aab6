"""Puts pods on nodes, as the watch brings them, and prints the resident bytes at each count."""

from __future__ import annotations

import gc
import json
import sys

from engine.clock import ManualClock
from engine.eventhandlers import EventHandlers
from engine.framework.status import Status
from engine.kube.listing import Decoders
from engine.kube.sharing import PodSharing
from engine.objects import Pod, object_key
from engine.queue import QueueHooks, SchedulingQueue
from tests.bench.measure import resident_mib
from tests.builders import Cache, make_node

NODES, PAGE = 5_000, 500


def manifest(i: int) -> dict[str, object]:
    app = f"app-{i % 1000}"
    hash_of = "5d4f8c7b9d"
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{i % 60:02}Z"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": {
            "name": f"{app}-{hash_of}-{i:05x}",
            "namespace": f"ns-{i % 100}",
            "uid": f"{i:08x}-1234-4567-89ab-cdef01234567",
            "resourceVersion": str(10**6 + i),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "pod-template-hash": hash_of, "team": f"t{i % 10}"},
            "annotations": {"cni/podIP": f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{app}-{hash_of}"}],
        },
        "spec": {
            "containers": [{"name": "m", "image": f"{app}:1.2.3", "resources": resources}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "volumes": [{"name": f"kube-api-access-{i:05x}", "projected": {}}],
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "nodeName": f"node-{i % NODES:05}",
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:05Z",
            "qosClass": "Burstable",
            "conditions": conditions,
            "containerStatuses": [{"name": "m", "restartCount": 0}],
        },
    }


def main(counts: list[int]) -> None:
    cache = Cache()
    queue = SchedulingQueue(
        clock=ManualClock(),
        hooks=QueueHooks(lambda pod, at: (at,), lambda pod: Status.SUCCESS, {}),
        snapshot=lambda: cache.snapshot(0.0),
    )
    handlers = EventHandlers(
        cache, queue, scheduler_names={"berth"}, on_refused=lambda pod, reason: None
    )
    for i in range(NODES):
        handlers.nodes.on_add(make_node(f"node-{i:05}"))
    decoders, share, known = Decoders(Pod), PodSharing(frozenset()), {}
    for start in range(0, counts[-1], PAGE):
        items = [manifest(i) for i in range(start, start + PAGE)]
        _, pods = decoders.items(json.dumps({"metadata": {}, "items": items}).encode())
        for pod in pods:
            share(pod)
            known[object_key(pod.metadata)] = pod
            handlers.pods.on_add(pod)
        if start + PAGE in counts:
            assert cache.pods.size == len(known) == start + PAGE
            del items, pods, pod
            gc.collect()
            print(int(resident_mib() * (1 << 20)))


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]])
