"""Loops over the pods of a node or the containers of a pod, as other languages write them.

Each attempt looks for one form; a replacement that is proposed has been tried: the statement can
be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS

_SET: Final = r"((?:(?:pod|object|input)\.)?(?:spec\.)?(?:init)?[Cc]ontainers|[a-z]+\.[a-z]+|nodes)"
_ITEMS: Final = re.compile(r"(?:\[(?:_|\*)?\])?")
#: `some c in S; P`, `every c in S { P }`, `exists p in S where P`, `for all p in S: P`.
_QUANTIFIED: Final = re.compile(
    r"(?P<word>some|any|exists?|there[ \t]+(?:is|exists)|every|all|for[ \t]*all|for[ \t]+each|no)"
    rf"[ \t]+(?:an?[ \t]+)?(?P<name>[a-z]\w*)[ \t]+(?:in|of|on)[ \t]+{_SET}[ \t]*"
    r"(?P<part>\{|;|:|\||,|where\b|with\b|such[ \t]+that\b|satisfies\b)[ \t]*(?P<test>[^\n]*?)"
    r"[ \t]*(?=\n|\Z|->|\)[ \t]*(?:\n|\Z))"
)
_WORDS: Final = {"every": "all", "all": "all", "for": "all", "no": "not any"}
#: `count({p | p := S[_]; P})`, `[S[] | select(P)] | length`, `(SELECT COUNT(*) FROM S WHERE P)`.
_COUNTED: Final = (
    re.compile(
        rf"count\([ \t]*[{{\[][ \t]*(?P<name>\w+)[ \t]*\|[ \t]*(?P=name)[ \t]*:?=[ \t]*{_SET}"
        r"\[_?\][ \t]*;[ \t]*(?P<test>[^{}\n]*?)[ \t]*[}\]][ \t]*\)"
    ),
    re.compile(
        rf"(?P<open>\[)?[ \t]*{_SET}\[\][ \t]*\|[ \t]*select\((?P<name>)(?P<test>[^()\n]*)\)[ \t]*"
        r"(?(open)\])[ \t]*\|[ \t]*(?:length|count)"
    ),
    re.compile(
        rf"\([ \t]*(?i:select)[ \t]+(?i:count)[ \t]*\([ \t]*(?:\*|1)[ \t]*\)[ \t]+(?i:from)[ \t]+"
        rf"{_SET}(?P<name>)(?:[ \t]+(?i:where)[ \t]+(?P<test>[^()\n]*?))?[ \t]*\)"
    ),
    re.compile(
        rf"len\([ \t]*\[?[ \t]*(?P<name>\w+)[ \t]+for[ \t]+(?P=name)[ \t]+in[ \t]+{_SET}[ \t]+if"
        r"[ \t]+(?P<test>[^()\n]*?)[ \t]*\]?[ \t]*\)"
    ),
)
#: `any(P for p in S)`, `sum(p.cpu for p in S if P)`.
_LOOP: Final = re.compile(
    r"(?P<word>any|all|sum|max|min|avg|median)\([ \t]*[\[{]?[ \t]*(?P<value>.*?)[ \t]+for[ \t]+"
    rf"(?P<name>\w+)[ \t]+in[ \t]+{_SET}(?:[ \t]+if[ \t]+(?P<test>[^\n]*?))?[ \t]*[\]}}]?[ \t]*\)"
    r"(?=[ \t]*(?:[<>=!*+/-]|\n|\Z|->|\)|and\b|or\b|message\b|weight\b))"
)
_PODS: Final = (".pods", ".nominated", ".finished")


def looped(place: Place) -> Refusal | None:
    """A loop, a comprehension or a query over a set: an aggregate with its condition."""
    for form in (_QUANTIFIED, *_COUNTED, _LOOP):
        for found in form.finditer(place.text):
            if not found.start() <= place.start <= found.end():
                continue
            better = _better(found, form)
            if better is None or not place.mends(*found.span(), better):
                continue
            loop = re.search(r"\b(?:for|some|every|all|exists?)[ \t]+\w+[ \t]+in\b", found.group())
            message = "pods and containers are counted and asked by `count`, `any` and `all`"
            if loop is not None:
                message = f"there are no loops here: `{' '.join(loop.group().split())} ...`"
            return place.instead(found.span(), "P001", message, better)
    return None


def _better(found: re.Match[str], form: re.Pattern[str]) -> str | None:
    groups = found.groupdict()
    name, test = groups.get("name") or "", (groups.get("test") or "").strip()
    of = _set_of(found)
    if of is None:
        return None
    if form is _QUANTIFIED:
        if groups["part"] == "{":
            if not test.endswith("}"):
                return None
            test = test[:-1].strip()
        word = _WORDS.get(groups["word"].split()[0].removesuffix("all") or "all", "any")
        return f"{word}({of} where {_of_item(test, name)})" if test else None
    if form is _LOOP:
        value = _of_item(groups["value"], name)
        word = groups["word"]
        if word in ("any", "all"):
            return None if test else f"{word}({of} where {value})"
        which = f" where {_of_item(test, name)}" if test else ""
        if word == "sum" and value == "1":
            return f"count({of}{which})"
        if of == "nodes":
            plain = value.removeprefix("it.")
            value = f"node.{plain}" if f"node.{plain}" in FIELDS else plain
        return f"{word}({value} over {of}{which})"
    which = f" where {_of_item(test, name, bare=not name)}" if test else ""
    return f"count({of}{which})"


def _set_of(found: re.Match[str]) -> str | None:
    """Returns the set of a form; the one group without a name."""
    named = set(found.re.groupindex.values())
    (which,) = (one for one in range(1, found.re.groups + 1) if one not in named)
    text = found[which]
    if text.lower().endswith("containers"):
        return "pod.init_containers" if "init" in text else "pod.containers"
    known = text in FIELDS or text == "nodes"
    return text if known or text.endswith(_PODS) else None


def _of_item(test: str, name: str, *, bare: bool = False) -> str:
    """Returns a condition about a loop's variable as one about `it`.

    With `bare` the names of the query's columns are those of the pod, or of its labels.
    """
    parts = re.split(r"(\"[^\"]*\"|'[^']*')", test)
    for at in range(0, len(parts), 2):
        text = parts[at]
        text = re.sub(rf"(?<![\w.])(?:{name})\." if name else r"(?<![\w.\]])\.", "it.", text)
        text = re.sub(r"\bit\.metadata\.", "it.", text)
        text = re.sub(r"\bit\.(label|annotation)s?\.(\w+)", r"it.\1[\2]", text)
        parts[at] = re.sub(r"\bit\.(labels|annotations)\[", lambda one: f"it.{one[1][:-1]}[", text)
    text = "".join(parts)
    # A call whose value stands inside: `startswith(it.image, "x")`.
    text = re.sub(
        r"\b(starts|ends)_?with\((it\.[\w.]+)[ \t]*,[ \t]*(\"[^\"]*\"|'[^']*')\)", r"\2 \1 with \3",
        text,
    )  # fmt: skip
    text = re.sub(
        r"(it\.[\w.]+)\.(starts|ends)_?[wW]ith\((\"[^\"]*\"|'[^']*')\)", r"\1 \2 with \3", text
    )
    return re.sub(r"(?<![\w.])([a-z]\w*)[ \t]*==?[ \t]*(['\"])([\w.-]+)\2", _column, text) if (
        bare
    ) else text  # fmt: skip


def _column(found: re.Match[str]) -> str:
    field = f"it.{found[1]}"
    return f"{field} is {found[3]}" if field in FIELDS else f"it.label {found[1]}={found[3]}"


def bare_label(place: Place) -> Refusal | None:
    """`count(node.pods where app=web)`: whose label it is stands in front."""
    if place.behind[:1] != "=" or place.behind[1:2] in ("=", ">"):
        return None
    key = re.search(
        r"\bwhere[ \t]+(?:[^()]*\b(?:and|or|not)[ \t]+)?([a-z][\w./-]*)\Z", place.before
    )
    value = re.match(r"=[ \t]*([\w./-]+|\"_*\")", place.behind)
    if key is None or value is None or key[1].startswith(("it.", "pod.", "node.", "namespace.")):
        return None
    text = place.text[place.start + value.start(1) : place.start + value.end()]
    field = f"it.{key[1]}"
    better = f"{field} is {text}" if field in FIELDS else f"it.label {key[1]}={text}"
    span = (key.start(1), place.start + value.end())
    if not place.mends(*span, better):
        return None
    return place.instead(span, "P014", "whose label this is stands in front", better)
