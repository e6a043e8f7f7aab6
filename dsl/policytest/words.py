"""The words of test files: what a line starts with, which attributes and expectations there are.

Tables, and the reading of one value; nothing else.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dsl.quantities import parse_duration, parse_quantity, parse_time
from dsl.schema import QOS
from dsl.types import is_missing

#: Attributes written NAME KEY=VALUE.
KEYED: Final = (
    "label", "annotation", "request", "limit", "resource", "taint", "toleration", "condition",
    "node_selector", "min", "max", "image_size",
)  # fmt: skip
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
    "runtime_class": TEXT,
    "active_deadline": SPAN,
    **dict.fromkeys(("previous_node", "phase", "from"), TEXT),
    **dict.fromkeys(("count", "priority", "attempts", "volumes", "restarts"), WHOLE),
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
            **dict.fromkeys(("kubelet_version", "os_image", "container_runtime"), TEXT),
            **dict.fromkeys(("pods", "ips", "volumes_limit", "volumes_attached"), WHOLE),
            **dict.fromkeys(("ready", "unschedulable"), FLAG),
            **dict.fromkeys(("created", "heartbeat"), TIME),
            "metric": AMOUNT,
        },
        "pod": {**_POD, "chosen": TEXT, "waited": SPAN},
        "running": _POD,
        "finished": {name: kind for name, kind in _POD.items() if name != "bound"},
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

#: Attributes written NAME VALUE.
PLAIN: Final = tuple(
    sorted({name for known in ATTRIBUTES.values() for name in known}.difference(KEYED))
)

#: Expectations that name nodes, and those that name given pods.
OF_NODES: Final = ("feasible", "rejected", "score", "best", "nominated")
OF_GIVEN: Final = ("order", "gated", "ungated")

#: What something in a cluster may be called, and more.
NAME: Final = re.compile(r"[\w.-]+")
#: The value of an attribute; durations are seconds, amounts and times texts.
Plain = str | int | float | bool | tuple[str, ...]


def _amount(text: str) -> str | None:
    amount = parse_quantity(text)
    return None if is_missing(amount) or amount < 0 else text


def _whole(text: str) -> int | None:
    digits = text.removeprefix("-")
    short = digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS
    return int(text) if short else None


def _seconds(text: str) -> float | None:
    seconds = parse_duration(text)
    return None if is_missing(seconds) else seconds


_READERS: Final[Mapping[str, Callable[[str], Plain | None]]] = MappingProxyType(
    {
        AMOUNT: _amount,
        WHOLE: _whole,
        FLAG: {"true": True, "false": False}.get,
        TIME: lambda text: None if is_missing(parse_time(text)) else text,
        SPAN: _seconds,
    }
)


def read_value(kind: str, name: str, text: str) -> Plain | None:
    """Returns what a text is as the value of an attribute; None where it is none of its kind."""
    if kind == TEXT:
        if name == "name" and NAME.fullmatch(text) is None:
            return None
        return None if text not in CHOICES.get(name, (text,)) else text
    read = _READERS[kind](text) if kind in _READERS else None
    if isinstance(read, int) and not isinstance(read, bool):
        low = 1 if name == "count" else -MOST if name == "priority" else 0
        return read if low <= read <= (MAX_PODS if name == "count" else MOST) else None
    return read
