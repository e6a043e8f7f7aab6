"""Calls of methods and libraries, indexes and keys in brackets, and how they are written here.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re

from dsl.parser.complaints.place import PATH, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS
from dsl.spelling import call_for, field_for, quoted_key


def call(place: Place) -> Refusal | None:
    """`pod.name.startsWith("x")`, `node.label("x")`, `strings.Contains(a, b)`, `count(*)`."""
    if place.text[place.start : place.start + 1] != "(":
        return _star(place)
    name = re.search(rf"{PATH}(?:\([^()]*\)(?:\.\w+)*)?\Z", place.bare[: place.start])
    end, args = place.arguments(place.start)
    if name is None or end < 0:
        return None
    owner, _, method = name.group().rpartition(".")
    start = name.start()
    text = place.text[start : name.end()]
    if name.group() in ("node.label", "pod.label", "node.labels", "pod.labels", "it.label"):
        better = f"{text}[{args[0] if args else 'KEY'}]"
        return place.instead((start, end), "P001", "the key of a label stands in brackets", better)
    if not owner:
        return None
    of_pods = _of_pods(place, text.rpartition(".")[0], method, (start, end))
    if of_pods is not None:
        return of_pods
    found = call_for(text, args)
    message = f"there are no methods here: `.{method}(...)`"
    if found is None:
        return place.at(start + len(text) - len(method), name.end(), "P106", message)
    if not found.text:
        return place.at(start, end, "P106", message, found.note)
    return _called(place, (start, end), message, found.text)


def _called(place: Place, span: tuple[int, int], message: str, better: str) -> Refusal:
    start, end = span
    inner = re.match(r"(\S+)\[(.*)\]\Z", better)
    if inner is not None and field_for(inner[1], inner[2].strip("\"'")) is not None:
        better = f"{inner[1]}[{quoted_key(inner[2].strip(chr(34) + chr(39)))}]"
    index = re.match(r"\[(\d+)\]", place.text[end:])
    if index is not None:
        better, end = f"item({better}, {index[1]})", end + index.end()
    fits = place.mends(start, end, better)
    return Refusal(
        "P106", message, start, end, helps=(f"write  {better}",), fix=better if fits else None
    )


def _of_pods(place: Place, owner: str, method: str, span: tuple[int, int]) -> Refusal | None:
    """`node.pods.exists(p, p.name == "x")` and its like."""
    if re.fullmatch(r"(?:\w+\.)?(?:spec\.)?containers", owner):
        owner = "pod.containers"
    if not owner.endswith((".pods", ".nominated", ".finished", ".containers")):
        return None
    inside = place.text[place.start + 1 : span[1] - 1]
    words = re.match(r"[ \t]*(\w+)[ \t]*(?:,|=>|->|:)[ \t]*(.*)\Z", inside, re.DOTALL)
    function = {"exists": "any", "all": "all", "filter": "count", "some": "any", "any": "any",
                "every": "all", "count": "count", "size": "count", "length": "count",
                "len": "count"}.get(method)  # fmt: skip
    if function is None:
        help_ = f"write  sum(it.cpu over {owner})   or   count({owner} where CONDITION)"
        return place.at(*span, "P106", f"there are no methods here: `.{method}(...)`", help_)
    better = f"{function}({owner})"
    end = span[1]
    if words is not None:
        condition = re.sub(rf"\b{words[1]}\.", "it.", words[2])
        condition = re.sub(r"(it(?:\.\w+)+)\(([^()]*)\)", _plain_call, condition)
        better = f"{function}({owner} where {condition})"
    elif inside.strip():
        # What stands there is not known to be a condition unless it speaks of the pods.
        if re.search(r"(?<![\w.$])it\.", inside) is None:
            help_ = f"write  {function}({owner} where CONDITION)"
            return place.at(*span, "P106", f"there are no methods here: `.{method}(...)`", help_)
        better = f"{function}({owner} where {inside.strip()})"
    if words is not None:
        size = re.match(r"\.(size|length|len|count)\(\)", place.text[end:])
        end += size.end() if size is not None else 0
    around = re.search(r"\b(?:size|len|length|count)\([ \t]*\Z", place.bare[: span[0]])
    if around is not None and function == "count" and place.bare[end : end + 1] == ")":
        span, end = (around.start(), span[1]), end + 1
    fix = better if place.mends(span[0], end, better) else None
    return Refusal(
        "P106", f"there are no methods here: `.{method}(...)`", span[0], end,
        helps=(f"write  {better}",), fix=fix,
    )  # fmt: skip


def _plain_call(found: re.Match[str]) -> str:
    """Returns a call of a method of a pod as it is written here."""
    better = call_for(found[1], found[2].split(","))
    return better.text if better is not None and better.text else found.group()


def _star(place: Place) -> Refusal | None:
    """`count(*)`."""
    if place.text[place.start : place.start + 1] == "*" and place.before.lower().endswith("count("):
        start = len(place.before) - len("count(")
        end = place.bare.find(")", place.start) + 1
        if not end:
            return None
        return place.instead((start, end), "P001", "`count` is told of what", "count(node.pods)")
    return None


def index(place: Place) -> Refusal | None:
    """`bandwidth[5m]`, `node["zone"]`, `node.label [zone]`, `x.split("-")[0]`."""
    if place.text[place.start : place.start + 1] != "[":
        return None
    close = place.closing(place.start)
    inside = place.text[place.start + 1 : close].strip() if close > 0 else ""
    name = re.search(r"(?<![\w.$])([A-Za-z_][\w.]*)\Z", place.before)
    if close < 0 or name is None:
        return None
    if re.fullmatch(r"\d+(ms|[smhdwy])+", inside):
        return place.at(
            name.start(), close + 1, "P014", "a range of time belongs into the query of a metric",
            f'write above  metric NAME = promql "rate({name[1]}[{inside}])" by instance',
        )  # fmt: skip
    key = inside.strip("\"'")
    if place.start > name.end() and name[1].rpartition(".")[2] in ("label", "labels", "annotation"):
        better = f"{name[1]}[{inside or 'KEY'}]"
        return place.instead(
            (name.start(), close + 1), "P001", "no blank stands before the key", better
        )
    owner = {"labels": "node.label", "label": "node.label", "annotations": "node.annotation",
             "node": "node.label", "pod": "pod.label"}.get(name[1])  # fmt: skip
    if owner is not None:
        in_fields = f"{name[1]}.{key}"
        better = in_fields if in_fields in FIELDS else f"{owner}[{quoted_key(key)}]"
        return place.instead(
            (name.start(), close + 1), "P001", f"`{name[1]}[...]` is no field", better
        )
    return None


def without_brackets(place: Place) -> Refusal | None:
    """`pod.name.startsWith "a"`."""
    name = re.search(r"(?<![\w.$])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z", place.before)
    text = re.match(r"\"[^\"\n]*\"|'[^'\n]*'", place.text[place.start :])
    if name is None or text is None or name.group() in FIELDS:
        return None
    found = call_for(name.group(), [text.group()])
    end = place.start + text.end()
    if found is None or not found.text or not place.mends(name.start(), end, found.text):
        return None
    method = name.group().rpartition(".")[2]
    message = f"there are no methods here: `.{method}`"
    return place.instead((name.start(), end), "P106", message, found.text)
