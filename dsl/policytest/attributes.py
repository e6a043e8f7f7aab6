"""The words of test files: what a line starts with, which attributes and expectations there are.

Tables, and whether a value is one; amounts stay texts, as in manifests: the engine reads them.
"""

import re
from typing import Final, NamedTuple

from dsl.nearest import called
from dsl.quantities import parse_duration, parse_quantity, parse_time
from dsl.schema import FIELDS, QOS
from dsl.types import is_missing

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
CHOICES: Final = {
    "qos": QOS,
    "phase": ("Pending", "Running", "Succeeded", "Failed"),
    "preemption_policy": FIELDS["pod.preemption_policy"].words,
}
#: Of which kind the values of attributes are.
_KINDS: Final = called(
    {
        AMOUNT: "cpu memory storage gpu request limit resource image_size metric min max"
        " min_resources",
        WHOLE: "count priority attempts volumes restarts pods ips volumes_limit replicas min_member"
        " allowed",
        FLAG: "host_network ready bound terminating tolerates_all unschedulable",
        TIME: "created queued_at first_attempt_at started_at scheduled_at finished_at heartbeat"
        " last_failure",
        SPAN: "active_deadline waited schedule_timeout",
        TEXTS: "images",
    }
)
_POD: Final = (
    "name namespace uid qos workload owner_kind owner_name image scheduler service_account"
    " preemption_policy priority_class nominated_node runtime_class active_deadline previous_node"
    " phase from count priority attempts volumes restarts cpu memory storage gpu request limit"
    " label annotation node_selector toleration images host_network ready terminating"
    " tolerates_all created queued_at first_attempt_at started_at scheduled_at finished_at metric"
)
#: Kind of fixture -> attribute -> what its value is.
ATTRIBUTES: Final = {
    kind: {name: _KINDS.get(name, TEXT) for name in names.split()}
    for kind, names in {
        "node": "cpu memory storage gpu resource image_size label annotation taint condition"
        " kernel from kubelet_version os_image container_runtime pods ips volumes_limit"
        " ready unschedulable created heartbeat metric",
        "pod": f"{_POD} bound chosen waited",
        "running": f"{_POD} bound",
        "finished": _POD,
        "pending": f"{_POD} bound",
        "namespace": "label annotation metric",
        "workload": "replicas label annotation metric",
        "group": "namespace min_member min_resources schedule_timeout created last_failure",
        "quota": "min max",
        "pdb": "namespace label allowed",
    }.items()
}


class Shape(NamedTuple):
    """What stands behind an expectation: an example, and what it takes (`a|b`: one of them)."""

    example: str
    takes: tuple[str, ...]


#: An expectation a line, by an example; two blanks part it from what it takes.
_SHAPES: Final = """
feasible [a, b]  list none
rejected [a] message "no room"  list none message status
score a 75  value
best a
order [p1, p2]  list
victims [web-1]  list none
nominated a  none
permit wait  allow|reject|wait message
gated p  message
ungated p
skipped 1
annotation example.com/score 75  value
label example.com/zone a  value
unset example.com/score
events ["placed on a"]  list none
error P102
"""
EXPECTATIONS: Final = {
    example.split()[0]: Shape(example, tuple(takes.split()))
    for example, _, takes in (line.partition("  ") for line in _SHAPES.strip().splitlines())
}

#: What others call an expectation.
CALLED: Final = called(
    {"feasible": "fits passes candidates allowed",
     "rejected": "filtered infeasible excluded denied", "best": "node chosen winner",
     "victims": "evicted evicts preempted preempts"}
)  # fmt: skip

#: Expectations that name nodes, and those that name given pods.
OF_NODES: Final = ("feasible", "rejected", "score", "best", "nominated")
OF_GIVEN: Final = ("order", "gated", "ungated")

#: What something in a cluster may be called, and more.
NAME: Final = re.compile(r"[\w.-]+")
#: The value of an attribute; durations are seconds, amounts and times texts.
Plain = str | int | float | bool | tuple[str, ...]


def _whole(name: str, text: str) -> int | None:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS):
        return None
    low = 1 if name == "count" else -MOST if name == "priority" else 0
    return int(text) if low <= int(text) <= (MAX_PODS if name == "count" else MOST) else None


def read_value(kind: str, name: str, text: str) -> Plain | None:
    """Returns what a text is as the value of an attribute; None where it is none of its kind."""
    match kind:
        case "a text":
            right = (name != "name" or NAME.fullmatch(text)) and text in CHOICES.get(name, (text,))
            return text if right else None
        case "an amount":
            return text if parse_quantity(text) >= 0 else None
        case "a whole number":
            return _whole(name, text)
        case "true or false":
            return {"true": True, "false": False}.get(text)
        case "a time":
            return None if is_missing(parse_time(text)) else text
        case "a duration":
            seconds = parse_duration(text)
            return None if is_missing(seconds) else seconds
        case _:
            return None
