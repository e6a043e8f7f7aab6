"""The words of test files: what a line starts with, which attributes and expectations there are.

Tables, and whether a value is one; amounts stay texts, as in manifests: the engine reads them.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dsl.nearest import called
from dsl.quantities import parse_duration, parse_number, parse_quantity, parse_time
from dsl.schema import FIELDS, QOS
from dsl.types import is_missing

DEFAULT_NOW: Final = "2025-03-01T10:00:00Z"
NOW: Final = parse_time(DEFAULT_NOW)
_DIGITS: Final = re.compile("-?[0-9]{1,10}")
_MOST: Final = 2**31 - 1

#: What something in a cluster may be called, and more.
NAME: Final = re.compile(r"[\w.-]+")
#: The value of an attribute; durations are seconds, amounts and times texts.
Plain = str | int | float | bool | tuple[str, ...]


class Kind(NamedTuple):
    """What a value is, by its name and an example; `read` gives it, None of a text that is none."""

    what: str
    example: str
    read: Callable[[str], Plain | None]


def _text(what: str, example: str, holds: Callable[[str], bool]) -> Kind:
    return Kind(what, example, lambda text: text if holds(text) else None)


def _whole(low: int = 0, high: int = _MOST) -> Kind:
    def read(text: str) -> int | None:
        return int(text) if _DIGITS.fullmatch(text) and low <= int(text) <= high else None

    return Kind("a whole number", "3", read)


def _one_of(words: Sequence[str]) -> Kind:
    return _text("one of these words", listed(words, "or"), lambda text: text in words)


def _measured(what: str, example: str, parse: Callable[[str], float]) -> Kind:
    return Kind(what, example, lambda text: None if is_missing(parse(text)) else parse(text))


def _is_sample(text: str) -> bool:
    return not (is_missing(parse_number(text)) and is_missing(parse_duration(text)))


def listed(words: Sequence[str], last: str = "and") -> str:
    """Names as a sentence has them: `a, b and c`."""
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


TEXT: Final = Kind("a text", "web-1", str)
AMOUNT: Final = _text("an amount", "500m, 4 or 8Gi", lambda text: parse_quantity(text) >= 0)
TIME: Final = _text("a time", f'"{DEFAULT_NOW}"', lambda text: not is_missing(parse_time(text)))
SPAN: Final = _measured("a duration", "30s, 5m or 1h30m", parse_duration)
SAMPLE: Final = _text("a number in the unit of the metric", "5 or 10Mi", _is_sample)
TEXTS: Final = Kind("a list", '["nginx:1.25", redis]', lambda _: None)
#: Numbers of expectations, as shapes call them.
NUMBERS: Final = {"number": _measured("a number", "75", parse_quantity), "count": _whole(1)}
_FLAG: Final = Kind("true or false", "true", {"true": True, "false": False}.get)
_NAME: Final = _text("a name", "web-1", lambda text: NAME.fullmatch(text) is not None)
#: Of which kind the values of attributes are that are no texts.
_KINDS: Final = {
    name: kind
    for kind, names in (
        (AMOUNT, "cpu memory storage gpu request limit resource image_size min max min_resources"),
        (SAMPLE, "metric"),
        (_whole(), "attempts volumes restarts pods volumes_limit replicas min_member allowed"),
        (_whole(1), "ips"),
        (_whole(1, 10_000), "count"),
        (_whole(-_MOST), "priority"),
        (_FLAG, "host_network ready bound terminating tolerates_all unschedulable"),
        (TIME, "created queued_at first_attempt_at started_at scheduled_at finished_at heartbeat"
               " last_failure"),
        (SPAN, "active_deadline waited schedule_timeout"),
        (TEXTS, "images"),
        (_NAME, "name"),
        (_one_of(QOS), "qos"),
        (_one_of(("Pending", "Running", "Succeeded", "Failed")), "phase"),
        (_one_of(FIELDS["pod.preemption_policy"].words), "preemption_policy"),
    )
    for name in names.split()
}  # fmt: skip
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
score a 75  value number
best a
order [p1, p2]  list
victims [web-1]  list none
nominated a  none
permit wait  allow|reject|wait message
gated p  message
ungated p
skipped 1  count
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
