"""An example pod for a cube, only where there surely is one: plain fields that do not depend."""

import re
from math import ceil, floor, isinf
from typing import Final

from dsl import ir
from dsl.analysis.cubes import Cube
from dsl.analysis.keys import YES, Keys, bare, same_field
from dsl.analysis.sets import Limit, Numbers, Outcomes, Test, Texts
from dsl.types import Level, show

ANY_POD: Final = "any pod"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?")
_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?")
_WHOLE: Final = 2.0**31
#: Plain fields of a pod that are free to have any value beside any other of these.
_FREE: Final = (
    "pod.name",
    "pod.namespace",
    "pod.priority",
    "pod.label",
    "pod.annotation",
    "pod.qos",
    "pod.scheduler",
    "pod.gpu",
    "pod.cpu",
    "pod.memory",
    "pod.storage",
    "namespace.label",
    "namespace.annotation",
    "pod.service_account",
    "pod.workload",
    "pod.owner.kind",
    "pod.owner.name",
    "pod.image",
    "pod.images",
    "pod.priority_class",
    "pod.runtime_class",
    "pod.preemption_policy",
    "pod.host_network",
    "pod.volumes.count",
    "time.hour",
    "time.minute",
    "time.weekday",
    "time.day",
    "time.month",
)
_RESOURCES: Final = ("pod.gpu", "pod.cpu", "pod.memory", "pod.storage")
#: Fields of which one says something of the others; with two of them nothing is sure.
_TOGETHER: Final = (
    ("pod.workload", "pod.owner.kind", "pod.owner.name"),
    ("pod.image", "pod.images"),
    ("time.day", "time.month"),
    ("pod.priority", "pod.priority_class", "pod.preemption_policy"),
)
_NAMES: Final = (
    "pod.name",
    "pod.namespace",
    "pod.scheduler",
    "pod.service_account",
    "pod.workload",
    "pod.owner.name",
    "pod.priority_class",
    "pod.runtime_class",
)
_IMAGE: Final = re.compile(r"[a-z0-9]([A-Za-z0-9._:/@-]{0,200}[A-Za-z0-9])?")


def example(cube: Cube, keys: Keys) -> str | None:
    """Returns a pod within a cube in words; None where none is surely possible."""
    words: list[str] = []
    fields: set[str] = set()
    for key, limit in cube.items():
        node = keys.nodes.get(key)
        if isinstance(node, ir.Member):
            image = _one_image(node, limit)
            if image is None:
                return None
            fields.add("pod.images")
            words.append(image)
            continue
        if not isinstance(node, ir.Read) or node.level > Level.POD:
            return None
        name = same_field(node.field)
        if name not in _FREE:
            return None
        fields.add(name)
        if limit.missing:
            continue
        word = _value(node, name, limit)
        if word is None:
            return None
        words.append(word)
    if "pod.qos" in fields and fields & set(_RESOURCES):
        return None
    if any(len(fields & set(some)) > 1 for some in _TOGETHER):
        return None
    return ", ".join(words) or ANY_POD


def _one_image(node: ir.Member, limit: Limit) -> str | None:
    """Returns `pod.images contains nginx`; a pod may have any images side by side."""
    item, items = node.item, bare(node.items)
    if not isinstance(items, ir.Read) or items.field != "pod.images":
        return None
    if not isinstance(item, ir.Const) or not _IMAGE.fullmatch(str(item.value)):
        return None
    return f"{'' if limit.values == YES else 'not '}pod.images contains {item.value}"


def _value(node: ir.Read, name: str, limit: Limit) -> str | None:
    match limit.values:
        case Outcomes() as outcomes:
            return name if outcomes == YES else f"not {name}"
        case Numbers() as numbers:
            number = _whole(numbers)
            return None if number is None else f"{name} {show(number, node.type)}"
        case Texts() as texts:
            text = _text(texts)
            form = _NAME if name in _NAMES else _IMAGE if name == "pod.image" else _VALUE
            if text is None or not form.fullmatch(text):
                return None
            return f"{name} {text}" if node.key is None else f"{name} {node.key}={text}"
        case None:
            return None


def _whole(numbers: Numbers) -> float | None:
    """Returns a whole number of modest size within a set."""
    for (low, low_side), (high, high_side) in numbers.spans:
        first = 0.0 if isinf(low) else floor(low) + 1 if low_side else ceil(low)
        last = _WHOLE if isinf(high) else floor(high) if high_side else ceil(high) - 1
        if isinf(low):
            first = min(first, last)
        first = max(first, 0.0)
        if first <= last and first < _WHOLE:
            return float(first)
    return None


def _text(texts: Texts) -> str | None:
    """Returns a text that passes all tests; None where guessing does not find one."""
    if texts.only is not None:
        return next((one for one in sorted(texts.only) if texts.holds(one)), None)
    wanted = [one for one in sorted(texts.tests) if one.wanted]
    start = max((_literal(one, "starts with") for one in wanted), key=len, default="")
    end = max((_literal(one, "ends with") for one in wanted), key=len, default="")
    inner = [one.pattern for one in wanted if one.operator == "contains"]
    inner = [one for one in inner if one not in start + end]
    middle = "-".join(inner)
    for guess in (
        start + middle + end,
        start + end,
        f"{start}{middle}-1{end}",
        f"{start}x{middle}{end}",
        f"{start}{middle}x{end}",
        "some-pod",
        "x",
    ):
        if guess and texts.holds(guess) and _VALUE.fullmatch(guess):
            return guess
    return None


def _literal(test: Test, operator: str) -> str:
    if test.operator == operator:
        return test.pattern
    if test.operator == "like":
        parts = re.split(r"[*?]+", test.pattern)
        return parts[0] if operator == "starts with" else parts[-1]
    return ""
