"""Clauses of rules: those of other statements, before what they are about, without their word.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import CLAUSES, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS
from dsl.types import Kind

#: Clauses and the statements that take them.
_BELONGS: Final = MappingProxyType(
    {
        "weight": "score, prefer, avoid and spread",
        "normalize": "score",
        "missing": "score",
        "message": "gate, prefilter, filter, require, forbid, reserve, permit and quota",
        "status": "gate, prefilter, filter, require, forbid, reserve and permit",
        "skew": "spread", "hard": "spread", "limit": "preempt", "pick": "preempt",
        "across": "preempt", "stale": "metric", "every": "metric", "unit": "metric",
        "backoff": "gang", "elastic": "quota", "reclaim": "quota",
    }
)  # fmt: skip


def clause_first(place: Place) -> Refusal | None:
    """`score: weight=5 node.cpu.free`: clauses stand behind what they are about."""
    found = re.match(
        r"(\w+:[ \t]*)(weight|missing|normalize|message|status)\b[ \t]*[=:]?[ \t]*(\"_*\"|[\w.]+%?)"
        r"(?:[ \t]*[,:])?[ \t]+(?=\S)",
        place.bare,
    )
    if found is None or place.alone or not found.start(2) <= place.start <= found.end():
        return None
    end = place.line(found.end())[1]
    value = place.text[found.start(3) : found.end(3)]
    rest = place.text[found.end() : end].strip()
    better = f"{rest} {found[2]} {value}"
    span = (found.start(2), end)
    fix = better if place.mends(*span, better) else None
    return Refusal(
        "P001", f"`{found[2]}` stands behind the expression", *found.span(2),
        helps=(f"write  {found[1].strip()} {better}",), fix=fix, fix_at=span,
    )  # fmt: skip


def lone_weight(place: Place) -> Refusal | None:
    """`prefer: node.label zone=a 5`."""
    if "WEIGHT" not in place.accepts or not re.fullmatch(r"\d[\d.]*", place.met):
        return None
    if place.keyword == "score":
        head = re.match(r"score:[ \t]*", place.text)
        whole = (head.end() if head is not None else 0, place.end)
        test = place.text[whole[0] : len(place.before)]
        chosen = f"if {test} then {place.met} else 0"
        if place.heals(*whole, chosen):
            return Refusal(
                "P001", f"`{place.met}` does not fit here", place.start, place.end,
                helps=(f"write  score: {chosen}",), fix=chosen, fix_at=whole,
            )  # fmt: skip
    better = f"weight {place.met}"
    return place.refuse("P001", f"`{place.met}` does not fit here", f"write  {better}", fix=better)


def foreign_clause(place: Place) -> Refusal | None:
    """A clause that another statement takes, or a text without `message`."""
    field = re.search(r"(?<![\w.])([A-Za-z_][\w.]*)\Z", place.before)
    spec = FIELDS.get(field[1]) if field is not None else None
    text = spec is not None and spec.type.kind is Kind.TEXT
    # A word that is neither a field nor the text of a test: what stands behind it is its own.
    bare = re.search(r"(?:[:(<>+*/-]|[.]\w+)[ \t]*[A-Za-z_]\w*\Z", place.before)
    word = bare is not None and place.before.rsplit(None, 1)[-1].strip(":(<>+*/-")
    text = text or (spec is None and bool(word) and word not in CLAUSES)
    if place.behind.startswith('"') and "MESSAGE" in place.accepts and not text:
        return Refusal(
            "P001", "a text alone says nothing here", place.start, place.start + 1,
            helps=("write  message " + place.text[place.start : place.line(place.start)[1]],),
            fix="message ", fix_at=(place.start, place.start),
        )  # fmt: skip
    owners = _BELONGS.get(place.met)
    if owners is None or place.alone or not place.keyword or place.kind == "end":
        return None
    own = [one for one in _BELONGS if one.upper() in place.accepts]
    known = " and ".join(f"`{one}`" for one in own)
    hints = [f"a `{place.keyword}` takes {known}"] if own else []
    what = f"`{place.met}` is a clause of {owners}, not of `{place.keyword}`"
    return place.refuse("P001", what, *hints)


def scale(place: Place) -> Refusal | None:
    """`normalize min-max`, `status UnschedulableAndUnresolvable`."""
    rest = re.match(r"[\w-]+", place.behind)
    if rest is None:
        return None
    span = (place.start, place.start + rest.end())
    plain = re.sub(r"[-_]", "", rest.group()).lower()
    if "NORM" in place.accepts and "MINMAX" not in place.accepts:
        better = {"minmax": "minmax", "linear": "minmax", "zeroone": "minmax", "max": "default",
                  "maxscore": "default", "percentile": "rank", "reversed": "reverse",
                  "defaultnormalizescore": "default", "inverse": "reverse"}.get(plain)  # fmt: skip
        if better is not None and rest.group() != better:
            message = f"there is no scale `{rest.group()}`"
            return place.instead(span, "P001", message, better)
    if "STATUS_CODE" in place.accepts and plain.startswith("unschedulable"):
        better = "unresolvable" if "and" in plain else "unschedulable"
        return place.instead(span, "P001", f"there is no status `{rest.group()}`", better)
    if ("REVERSE" in place.accepts and plain == "reversed") or (
        plain == "reversed" and place.before.endswith(("minmax", "default", "rank"))
    ):
        return place.instead(span, "P001", "`reversed` does not fit here", "reverse")
    return None
