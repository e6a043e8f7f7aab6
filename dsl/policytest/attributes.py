"""Which attributes a fixture has and which expectations a test: the tables, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dsl.functions import parse_time
from dsl.schema import QOS

DEFAULT_NOW: Final = "2025-03-01T10:00:00Z"
NOW: Final = parse_time(DEFAULT_NOW)
MAX_PODS: Final = 10_000
MAX_DIGITS: Final = 10
MOST: Final = 2**31 - 1
TEXT, AMOUNT, WHOLE, FLAG, TIME, SPAN, TEXTS = (
    "a text", "an amount", "a whole number", "true or false", "a time", "a duration", "a list",
)  # fmt: skip
EXAMPLES: Final = {
    AMOUNT: "500m, 4 or 8Gi",
    WHOLE: "3",
    TIME: f'"{DEFAULT_NOW}"',
    SPAN: "30s, 5m or 1h30m",
    TEXTS: '["nginx:1.25", redis]',
}
CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "qos": QOS,
        "phase": ("Pending", "Running", "Succeeded", "Failed"),
        "preemption_policy": ("PreemptLowerPriority", "Never"),
    }
)
_POD: Final = {
    **dict.fromkeys(("name", "namespace", "uid", "qos", "workload", "owner_kind"), TEXT),
    **dict.fromkeys(("owner_name", "image", "scheduler", "service_account"), TEXT),
    **dict.fromkeys(("preemption_policy", "priority_class", "nominated_node"), TEXT),
    **dict.fromkeys(("previous_node", "phase", "from"), TEXT),
    **dict.fromkeys(("count", "priority", "attempts", "volumes"), WHOLE),
    **dict.fromkeys(("cpu", "memory", "storage", "gpu", "request", "limit"), AMOUNT),
    **dict.fromkeys(("label", "annotation", "node_selector", "toleration"), TEXT),
    "images": TEXTS,
    **dict.fromkeys(("host_network", "ready", "bound", "terminating", "tolerates_all"), FLAG),
    **dict.fromkeys(("created", "queued_at", "first_attempt_at", "started_at"), TIME),
    **dict.fromkeys(("scheduled_at", "finished_at"), TIME),
    "metric": AMOUNT,
}
ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "node": {
            **dict.fromkeys(("cpu", "memory", "storage", "gpu", "resource", "image_size"), AMOUNT),
            **dict.fromkeys(("label", "annotation", "taint", "condition", "kernel", "from"), TEXT),
            **dict.fromkeys(("pods", "ips", "volumes_limit", "volumes_attached"), WHOLE),
            **dict.fromkeys(("ready", "unschedulable"), FLAG),
            **dict.fromkeys(("created", "heartbeat"), TIME),
            "metric": AMOUNT,
        },
        "pod": {**_POD, "chosen": TEXT, "waited": SPAN},
        "running": _POD,
        "finished": _POD,
        "pending": _POD,
        "namespace": {"label": TEXT, "annotation": TEXT, "metric": AMOUNT},
        "workload": {
            "replicas": WHOLE,
            "label": TEXT,
            "annotation": TEXT,
            "metric": AMOUNT,
        },
        "group": {
            "namespace": TEXT,
            "min_member": WHOLE,
            "schedule_timeout": SPAN,
            "created": TIME,
            "last_failure": TIME,
        },
        "quota": {"min": AMOUNT, "max": AMOUNT},
        "pdb": {"namespace": TEXT, "label": TEXT, "allowed": WHOLE},
    }
)
"""Kind of fixture -> attribute -> what its value is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands behind an expectation: a list or a word, then perhaps a value."""

    example: str
    listed: bool = False
    none: bool = False
    words: tuple[str, ...] = ()
    valued: bool = False
    message: bool = False
    status: bool = False


EXPECTATIONS: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "feasible": Shape("feasible [a, b]", listed=True, none=True),
        "rejected": Shape(
            'rejected [a] message "no room"', listed=True, none=True, message=True, status=True
        ),
        "score": Shape("score a 75", valued=True),
        "best": Shape("best a"),
        "order": Shape("order [p1, p2]", listed=True),
        "victims": Shape("victims [web-1]", listed=True, none=True),
        "nominated": Shape("nominated a", none=True),
        "permit": Shape("permit wait", words=("allow", "reject", "wait"), message=True),
        "gated": Shape("gated p", message=True),
        "ungated": Shape("ungated p"),
        "skipped": Shape("skipped 1"),
        "annotation": Shape("annotation example.com/score 75", valued=True),
        "unset": Shape("unset example.com/score"),
        "events": Shape('events ["placed on a"]', listed=True, none=True),
        "error": Shape("error P102"),
    }
)
OF_NODES: Final = ("feasible", "rejected", "score", "best", "nominated")
OF_GIVEN: Final = ("order", "gated", "ungated")
