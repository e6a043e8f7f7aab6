"""Fields: a dot too few or too many, a word right behind one, one where a word stands.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.labels import TEST
from dsl.parser.complaints.place import CLAUSES, FIELD, KEYWORDS, LAST_VALUE, Place, written_here
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS
from dsl.spelling import closest
from dsl.types import Kind

_OWNER: Final = re.compile(r"(?<![\w.$])(pod|node|it|namespace)\Z")


def no_dot(place: Place) -> Refusal | None:
    """`node label gpu=true`, `pod app=web`, `node zone is a`: the dot is missing."""
    owner = _OWNER.search(place.before)
    word = re.match(r"([A-Za-z][\w./-]*)", place.behind)
    if owner is None or word is None or place.start == owner.end():
        return None
    if place.text[owner.end() : place.start].strip():
        return None
    name = f"{owner[1]}.{word[1]}"
    span = (owner.start(), place.start + word.end())
    label = re.fullmatch(r"(label|annotation|taint)s?", word[1])
    test = re.match(r"[ \t]*(!?=)(?!=)[ \t]*([\w./-]*)", place.behind[word.end() :])
    if label is not None:
        better = f"{owner[1]}.{label[1]}"
    elif name in FIELDS and not FIELDS[name].keyed:
        better = name
        if test is not None:
            better += f" is {test[2]}" if test[1] == "=" else f" is not {test[2]}"
            span = (span[0], span[1] + test.end())
    elif test is not None and word[1] not in (*KEYWORDS, *CLAUSES):
        better = f"{owner[1]}.label {word[1]}"
    else:
        return None
    if not place.mends(*span, better):
        return None
    rest = (
        place.text[span[1] : span[1] + test.end()]
        if test is not None and name not in FIELDS
        else ""
    )
    return Refusal(
        "P001", f"a dot stands between `{owner[1]}` and what is asked of it", *span,
        helps=(f"write  {better}{rest}",), fix=better,
    )  # fmt: skip


def dots(place: Place) -> Refusal | None:
    """`pod..name`, `.pod.name`, `pod.name.`."""
    found = re.search(r"[A-Za-z_][\w.]*\Z", place.bare[: place.start])
    start = found.start() if found is not None else place.start
    whole = re.match(r"\.?[A-Za-z_][\w]*(?:\.+[A-Za-z_]\w*)*\.?(?!\w)", place.text[start:])
    if whole is None or "." not in place.text[place.start : place.start + 2]:
        return None
    if ".." in whole.group() and place.text[:start].rstrip().endswith(" in"):
        ends = ", ".join(one for one in whole.group().split(".") if one)
        words = "mon, tue, wed" if "weekday" in place.before else ends
        return place.at(
            start, start + whole.end(), "P001", "a range holds numbers; words stand in a list",
            f"write  [{words}]",
        )  # fmt: skip
    better = re.sub(r"\.+", ".", whole.group()).strip(".")
    span = (start, start + whole.end())
    if better == whole.group() or not place.mends(*span, better):
        return None
    return place.instead(span, "P001", "one dot stands between the words of a field", better)


def word_after_field(place: Place) -> Refusal | None:
    """`node.lable test=test`, `pod.namespace prod`, `node.taints contains x`."""
    found = re.search(r"(?<![\w.$])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\Z", place.before)
    if found is None or not re.fullmatch(r"[A-Za-z_][\w.]*|\"_*\"", place.met or place.behind):
        quoted = place.behind.startswith('"')
        if found is None or not quoted:
            return None
    field = found[1]
    if place.keyword in ("quota", "gang", "spread", "sort", "queueSort"):
        return None
    if field in FIELDS and not FIELDS[field].keyed:
        value = re.match(r"\"_*\"|[\w./-]+", place.behind)
        if value is None or closest(value.group(), KEYWORDS) is not None:
            return None
        text = place.text[place.start : place.start + value.end()]
        if FIELDS[field].type.kind is not Kind.TEXT:
            return None
        if not place.mends(place.start, place.start + value.end(), f"is {text}"):
            return None
        # `notinside` may be an operator of another language: the word it is is not said for sure.
        sure = not re.match(r"not|un|no_|non", text)
        return Refusal(
            "P001", f"`{text}` does not fit here", place.start, place.start + value.end(),
            helps=(f"write  {field} is {text}",), fix=f"is {text}" if sure else None,
        )  # fmt: skip
    labels = ("node.label", "pod.label", "namespace.label", "it.label", "node.annotation",
              "pod.annotation", "namespace.annotation", "it.annotation", "node.taint")  # fmt: skip
    near = closest(field, (*labels, *FIELDS)) if field not in FIELDS else None
    if near is None or not place.mends(*found.span(1), near):
        return None
    return place.at(
        *found.span(1), "P101", f"there is no field `{field}`", f"did you mean `{near}`?", fix=near
    )


def compared(place: Place) -> Refusal | None:
    """`node.label[pool] is pod.label[pool]`: a field where a word stands."""
    path = re.search(r"(?<![\w.$-])(?:pod|node|namespace|it|workload)(?:\.\w+)+\Z", place.before)
    close = place.closing(place.start) if place.behind.startswith("[") else -1
    if path is None or path.end() != place.start or close < 0:
        return None
    whole = FIELD.match(place.text, path.start())
    end = whole.end() if whole is not None else close + 1
    field = written_here(place.text[path.start() : end])
    before = place.bare[: path.start()].rstrip()
    label = re.search(rf"{TEST}[ \t]*(!?=)\Z", before)
    if label is not None:
        key = place.text[label.start(3) : label.end(3)]
        sign = "!=" if label[4] == "!=" else "=="
        better = f"{label[1]}[{key}] {sign} {field}"
        what = "a label test compares with a word, not with another field"
        return place.instead((label.start(), end), "P001", what, better)
    operator = re.search(
        r"(?<![\w.])(?:(is)|(is[ \t]+not)|(contains|starts[ \t]+with|ends[ \t]+with|like))\Z",
        before,
    )
    if operator is None:
        return _in_list(place, before, (path.start(), end), field)
    better = (
        f"{operator[3]} ({field})" if operator[3] else f"{'!=' if operator[2] else '=='} {field}"
    )
    word = " ".join(operator.group().split())
    what = f"a word stands behind `{word}`; fields are compared by `==`"
    if operator[3]:
        what = f"a word stands behind `{word}`; a field stands in brackets"
    left = LAST_VALUE.search(place.bare[: operator.start()].rstrip())
    shown = f"{place.text[left.start() : left.end()]} {better}" if left is not None else better
    return Refusal(
        "P001", what, path.start(), end, helps=(f"write  {shown}",), fix=better,
        fix_at=(operator.start(), end),
    )  # fmt: skip


def _in_list(place: Place, before: str, span: tuple[int, int], field: str) -> Refusal | None:
    """`node.label[x] in [pod.label[a], b]`: a list holds words."""
    opened = re.search(r"(?:(not)[ \t]+)?in[ \t]*(\[)[^\[\]]*\Z", before)
    if opened is None:
        return None
    close, items = place.arguments(opened.start(2))
    left = LAST_VALUE.search(before[: opened.start()].rstrip())
    what = "a list holds words, not fields"
    if close < 0 or left is None:
        return place.at(*span, "P001", what, f"compare with it by  == {field}")
    tested = place.text[left.start() : left.end()]
    each = [
        f"{tested} == {written_here(one)}" if FIELD.fullmatch(one) else f"{tested} is {one}"
        for one in items
    ]
    better = f"({' or '.join(each)})"
    better = f"not {better}" if opened[1] else better
    return Refusal(
        "P001", what, *span, helps=(f"write  {better}",), fix=better, fix_at=(left.start(), close),
    )  # fmt: skip
