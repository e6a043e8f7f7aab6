"""Words of English that join two conditions, `A unless B`, and the rule that is meant.

A rule is `CONDITION -> DEMAND` here. Whichever side a word puts first, the rule is written out
and tried; where it is not clear which side is meant, both are shown and neither is proposed.
"""

import re
from itertools import product
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal

_END: Final = r"(?![\w./-])"
#: `A if B`, `A <- B`: B says for what A is demanded.
_IF: Final = re.compile(
    r"(?:if|when|whenever|where"
    r"|for(?:[ \t]+(?:all|any|every|each|pods?|with|that|whose|where|of|in))*"
    rf"|(?:provided|given)(?:[ \t]+that)?|as[ \t]+long[ \t]+as){_END}"
    r"|<-+(?!\d)",
    re.IGNORECASE,
)
#: `A unless B`: where B holds, A is not demanded.
_UNLESS: Final = re.compile(rf"unless{_END}", re.IGNORECASE)
#: `A except B`: the nodes of B, or the pods of B, are left out.
_EXCEPT: Final = re.compile(
    rf"(?:except|excluding|but[ \t]+not)(?:[ \t]+(?:if|when|where|for|on))?{_END}", re.IGNORECASE
)
#: `A must be on B`: A says for what B is demanded.
_MUST: Final = re.compile(
    r"(?:must|should|shall|has[ \t]+to|have[ \t]+to|requires?|needs?|wants?|only|on|goes|go|runs?)"
    r"(?:[ \t]+(?:be|have|run|go|only|placed|scheduled|land|on|to|onto|at|nodes?|with|that))*"
    + _END,
    re.IGNORECASE,
)
_ONLY_IF: Final = re.compile(rf"only[ \t]+(?:if|when|where|for){_END}", re.IGNORECASE)
_NOR: Final = re.compile(rf"nor{_END}", re.IGNORECASE)
#: Whatever a text of several words does not go on with.
WORDS: Final = frozenset(
    {"if", "when", "whenever", "where", "for", "provided", "given", "unless", "except", "must",
     "should", "shall", "has", "have", "requires", "require", "needs", "need", "wants", "only",
     "on", "goes", "go", "runs", "run", "nor", "but", "either", "neither", "as", "while", "then",
     "implies", "than", "first", "last", "per", "before", "after", "xor"}
)  # fmt: skip
_CLAUSE: Final = re.compile(r"[ \t\n]+(?:message|status|weight|normalize|missing)\b")
#: Rules that refuse or disfavour: what they name is not demanded.
_AGAINST: Final = ("forbid", "avoid")
#: What is said of the pods of a set is no condition of the rule.
_OF_SET: Final = re.compile(r"(?<![\w.])it\.(?![^()]*\))")
_SEVERAL: Final = re.compile(r"\b(?:or|and|if)\b|->")


def joined(place: Place) -> Refusal | None:
    """`A if B`, `A unless B`, `A must be on B`, `unless A`."""
    head = re.match(r"[A-Za-z]+(?:[ \t]+to)?[ \t]*:[ \t]*", place.text)
    if head is None or place.kind == "end":
        return None
    last = re.search(r"[A-Za-z]+\Z", place.before)
    starts = (place.start, last.start() if last is not None else place.start)
    for (pattern, of), at in product(_KINDS, starts):
        found = pattern.match(place.bare, at)
        if found is None or found.end() < len(place.before):
            continue
        clause = _CLAUSE.search(place.bare, found.end())
        end = clause.start() if clause is not None else place.line(found.end())[1]
        first = place.text[head.end() : found.start()].strip()
        second = place.text[found.end() : end].strip()
        if (
            not second
            or _OF_SET.search(second)
            or _depth(place.bare[: found.start()])
            or _depth(place.bare[:end])
        ):
            return None
        rules = of(place, first, second)
        if not rules:
            return None
        span = (head.end(), end)
        written = " ".join(found.group().split())
        sure = len(rules) == 1 and place.heals(*span, rules[0])
        if not sure and not all(place.heals(*span, one) for one in rules):
            return None
        start = place.text[: head.end()].strip()
        return Refusal(
            "P001", f"`{written}` does not fit here", *found.span(),
            helps=("write  " + "   or   ".join(f"{start} {one}" for one in rules),),
            fix=rules[0] if sure else None, fix_at=span,
        )  # fmt: skip
    return _neither(place)


_OF_NODE: Final = re.compile(r"(?<![\w.$])(?:node|zone|region|rack)\.")


def _if(place: Place, first: str, second: str) -> list[str]:
    if place.keyword == "score":
        return [f"if {second} then {first} else 0"]
    if not first or (place.keyword in ("prefer", "avoid", "first") and _OF_NODE.search(second)):
        # What is preferred for some pods is not for some nodes.
        return []
    condition, demand = _parts(first)
    if condition:
        return [f"{_side(condition)} and {_side(second)} -> {demand}"]
    return [f"{second} -> {demand}"]


def _unless(place: Place, first: str, second: str) -> list[str]:
    if not first:
        return [_not(second)]
    if place.keyword == "score":
        return [f"if {second} then 0 else {first}"]
    condition, demand = _parts(first)
    if place.keyword in _AGAINST and not condition:
        return [f"{_side(first)} and {_not(second)}"]
    return [f"{_side(condition)} and {_not(second)} -> {demand}"] if condition else [
        f"{_not(second)} -> {demand}"
    ]  # fmt: skip


def _except(place: Place, first: str, second: str) -> list[str]:
    if re.search(r"\bpod\.", second) or not first or place.keyword == "score":
        return _unless(place, first, second)
    condition, demand = _parts(first)
    better = f"{_side(demand)} and {_not(second)}"
    return [f"{condition} -> {better}" if condition else better]


def _must(place: Place, first: str, second: str) -> list[str]:
    if "->" in first or not first or place.keyword == "score":
        return []
    word = re.fullmatch(r"[A-Za-z0-9][\w.-]*", second)
    if word is not None and not re.match(r"(?:pod|node|namespace|zone|time|cluster)\.", second):
        second = f"node.name is {second}"
    if place.keyword in _AGAINST:
        return [f"{_side(first)} and {_side(second)}"]
    if re.search(r"\bnode\.", first) and re.search(r"\bpod\.", second):
        return [f"{second} -> {first}"]
    return [f"{first} -> {second}"]


def _either_way(place: Place, first: str, second: str) -> list[str]:
    if "->" in first or not first or place.keyword in ("score", *_AGAINST):
        return []
    return [f"{second} -> {first}", f"{first} -> {second}"]


def _neither(place: Place) -> Refusal | None:
    """`A nor B`; `is neither a nor b`."""
    found = re.search(
        r"\bis[ \t]+(not[ \t]+)?(neither|either)[ \t]+([\w.-]+)[ \t]+n?or[ \t]+([\w.-]+)",
        place.bare,
    )
    if found is not None and found.start() < place.start <= found.end():
        no = "not " if found[1] or found[2] == "neither" else ""
        better = f"{no}in [{found[3]}, {found[4]}]"
        return place.instead(found.span(), "P001", "several values stand in a list", better)
    nor = _NOR.match(place.bare, place.start)
    if nor is None:
        return None
    return place.refuse(
        "P001", "`nor` does not fit here", "write  not A and not B   or, of several values,  not in"
    )


_KINDS: Final = (
    (_ONLY_IF, _either_way),
    (_IF, _if),
    (_UNLESS, _unless),
    (_EXCEPT, _except),
    (_MUST, _must),
)


def _parts(rule: str) -> tuple[str, str]:
    """Returns the condition of a rule, if it has one, and its demand."""
    condition, arrow, demand = rule.partition("->")
    return (condition.strip(), demand.strip()) if arrow else ("", rule)


def _side(condition: str) -> str:
    """Returns a condition as one side of `and`."""
    return f"({condition})" if re.search(r"\b(?:or|if)\b", condition) else condition


def _not(condition: str) -> str:
    if _SEVERAL.search(condition) is not None:
        return f"not ({condition})"
    return condition[4:].lstrip() if condition.startswith("not ") else f"not {condition}"


def _depth(text: str) -> int:
    return sum(text.count(one) for one in "([{") - sum(text.count(one) for one in ")]}")
