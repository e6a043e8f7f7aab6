"""What others call the attributes of fixtures, and states and labels that are attributes there.

Tables, all by the letters of a word in lower case.
"""

from types import MappingProxyType
from typing import Final

from dsl.schema import WELL_KNOWN_LABELS

#: Attributes as others call them, letters only.
SAME: Final = MappingProxyType(
    {
        **dict.fromkeys(("mem", "ram", "memorybytes"), "memory"),
        **dict.fromkeys(("disk", "ephemeralstorage", "ephemeral"), "storage"),
        **dict.fromkeys(("core", "processor", "vcpu"), "cpu"),
        **dict.fromkeys(("prio", "importance"), "priority"),
        **dict.fromkeys(("ns", "project"), "namespace"),
        **dict.fromkeys(("named", "called", "podname"), "name"),
        **dict.fromkeys(("selector", "nodeselector", "nodelabel", "affinity"), "node_selector"),
        **dict.fromkeys(("tolerate", "tolerating"), "toleration"),
        **dict.fromkeys(("tainted",), "taint"),
        **dict.fromkeys(("labelled", "labeled", "tag", "lbl"), "label"),
        **dict.fromkeys(("annotated", "anno"), "annotation"),
        **dict.fromkeys(("asking", "asks", "req"), "request"),
        **dict.fromkeys(("owner", "ownedby", "controller"), "owner_name"),
        **dict.fromkeys(("deployment", "parent"), "workload"),
        **dict.fromkeys(("sa", "serviceaccountname"), "service_account"),
        **dict.fromkeys(("schedulername",), "scheduler"),
        **dict.fromkeys(("priorityclassname",), "priority_class"),
        **dict.fromkeys(("qosclass",), "qos"),
        **dict.fromkeys(("maxpods", "podslots", "slots", "podlimit"), "pods"),
        **dict.fromkeys(("times", "number", "amount", "copies"), "count"),
        **dict.fromkeys(("retries", "attempt", "tries"), "attempts"),
        **dict.fromkeys(("creationtimestamp", "createdat", "creation", "age"), "created"),
        **dict.fromkeys(("starttime", "started"), "started_at"),
        **dict.fromkeys(("queued", "enqueuedat", "enqueued"), "queued_at"),
        **dict.fromkeys(("finished", "completedat", "completed"), "finished_at"),
        **dict.fromkeys(("uuid", "id"), "uid"),
        **dict.fromkeys(("kernelversion",), "kernel"),
        **dict.fromkeys(("kubelet", "kubeletversion"), "kubelet_version"),
        **dict.fromkeys(("osimage",), "os_image"),
        **dict.fromkeys(("runtime", "containerruntimeversion"), "container_runtime"),
        **dict.fromkeys(("runtimeclassname", "runtimeclass"), "runtime_class"),
        **dict.fromkeys(("activedeadlineseconds", "deadline"), "active_deadline"),
        **dict.fromkeys(("restartcount", "restarted"), "restarts"),
        **dict.fromkeys(("waiting", "waits"), "waited"),
        **dict.fromkeys(("file", "manifest", "yaml"), "from"),
        **dict.fromkeys(("minmember", "minmembers", "minavailable", "size"), "min_member"),
        **dict.fromkeys(("disruptionsallowed", "allow"), "allowed"),
        **dict.fromkeys(("container", "containers"), "images"),
        **dict.fromkeys(("node", "on", "nodename", "placedon"), "chosen"),
        **dict.fromkeys(("toleratesall", "tolerateseverything"), "tolerates_all"),
    }
)
#: Words that say what an attribute is, letters only.
STATES: Final = MappingProxyType(
    {
        **dict.fromkeys(("cordoned", "drained", "draining", "cordon"), ("unschedulable", True)),
        **dict.fromkeys(("schedulable", "uncordoned"), ("unschedulable", False)),
        **dict.fromkeys(("notready", "unready", "down", "unhealthy", "broken"), ("ready", False)),
        **dict.fromkeys(("up", "healthy"), ("ready", True)),
        **dict.fromkeys(("deleting", "deleted", "evicting"), ("terminating", True)),
        **dict.fromkeys(("assumed", "unbound"), ("bound", False)),
        **dict.fromkeys(("hostnet",), ("host_network", True)),
    }
)
YES: Final = MappingProxyType({"true": True, "yes": True, "false": False, "no": False})
#: Labels of nodes that have a name of their own elsewhere, letters only.
LABELS: Final = MappingProxyType(
    {
        **{field.removeprefix("node.").replace("_", ""): key
           for field, key in WELL_KNOWN_LABELS.items()},
        **dict.fromkeys(("hostname", "host"), "kubernetes.io/hostname"),
        "architecture": WELL_KNOWN_LABELS["node.arch"],
        "az": WELL_KNOWN_LABELS["node.zone"],
        "availabilityzone": WELL_KNOWN_LABELS["node.zone"],
        "instance": WELL_KNOWN_LABELS["node.instance_type"],
    }
)  # fmt: skip
