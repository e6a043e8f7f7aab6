"""Colons, commas and semicolons between values and conditions, and what is written here instead.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.lists import in_parens
from dsl.parser.complaints.place import FIELD, LAST_VALUE, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS


def colon(place: Place) -> Refusal | None:
    """`if x: y`, `zone:a`, `pod.name: nginx`."""
    if place.met != ":":
        return None
    return _colon_of_choice(place) or _colon_of_rule(place)


def _colon_of_choice(place: Place) -> Refusal | None:
    word = re.search(r"\b(then|else)\Z", place.before)
    if word is not None:
        return Refusal("P014", f"`{word[1]}` takes no colon", place.start, place.start + 1, fix="")
    rule = re.match(r"(?:filter|require|forbid|gate|prefilter|reserve):[ \t]*(if)[ \t]+",
                    place.bare)  # fmt: skip
    if rule is not None and "->" not in place.before:
        left = place.text[rule.end() : place.start].strip()
        return Refusal(
            "P014", "a rule for some pods is written with `->`", place.start, place.start + 1,
            helps=(f"write  {left} -> ...",), fix=f"{left} ->",
            fix_at=(rule.start(1), place.start + 1),
        )  # fmt: skip
    if re.search(r"\bif\b[^:]*\Z", place.before.split("->")[-1].split(":", 1)[-1]):
        missing = "then" if "THEN" in place.accepts else "else"
        return Refusal(
            "P014", f"`{missing}` stands here instead of `:`", place.start, place.start + 1,
            helps=("write  if CONDITION then A else B",),
            # With more of them it is a list of choices, of which one word is not enough.
            fix=f" {missing}" if _colons(place.behind) == 1 else None,
        )  # fmt: skip
    return None


def _colons(text: str) -> int:
    """How many colons stand in a text, those of `else:` left out."""
    return text.count(":") - len(re.findall(r"\belse[ \t]*:", text))


def _colon_of_rule(place: Place) -> Refusal | None:
    value = re.match(r":[ \t]*([\w./-]+)", place.behind)
    arrow = place.mends(place.start, place.start + 1, " ->") if "_ARROW" in place.accepts else False
    if arrow and place.before.endswith(tuple('abcdefghijklmnopqrstuvwxyz0123456789"])')):
        left = LAST_VALUE.search(place.before)
        if left is not None and left.group().split("[")[0] in FIELDS and value is not None:
            better = f"{left.group()} is {value[1]}"
            return place.instead(
                (left.start(), place.start + value.end()), "P014", "`:` is not a comparison", better
            )
        return Refusal(
            "P014", "`:` has no meaning here", place.start, place.start + 1,
            helps=("condition and demand are parted by `->`",), fix=" ->",
        )  # fmt: skip
    if place.before.endswith(":"):
        return Refusal("P014", "one colon is enough", place.start, place.start + 1, fix="")
    return None


def comma(place: Place) -> Refusal | None:
    """`a, message "x"`, `x = a, b`, `1,5`, `[a, , b]`, `[a, b,]`."""
    if place.text[place.start : place.start + 1] != ",":
        return _no_comma(place)
    digits = re.search(r"(\d+)\Z", place.bare[: place.start])
    more = re.match(r",(\d+)\b", place.behind)
    if digits is not None and more is not None and "COMMA" not in place.accepts:
        span = (digits.start(), place.start + more.end())
        thousands = re.fullmatch(r"\d{3}", more[1]) is not None
        better = digits[1] + more[1] if thousands else f"{digits[1]}.{more[1]}"
        return place.instead(span, "P007", "a number has a point, not a comma", better)
    paren = in_parens(place)
    if paren is not None:
        return paren
    if not place.behind[1:].strip():
        return Refusal(
            "P014", "nothing follows this comma", place.start, place.start + 1,
            helps=("leave it out",), fix="",
        )  # fmt: skip
    if place.before.endswith((",", "[")):
        gap = len(place.behind[1:]) - len(place.behind[1:].lstrip(" \t"))
        return Refusal(
            "P001", "an item of the list is missing", place.start, place.start + 1,
            helps=("leave the comma out",), fix="", fix_at=(place.start, place.start + 1 + gap),
        )  # fmt: skip
    if re.match(
        r",[ \t]*(message|status|weight|missing|normalize|by|every|stale|min|max|wait"
        r"|backoff|reject|within|elastic|reclaim|skew|hard|limit|order|pick|across)\b",
        place.behind,
    ):
        apart = place.behind[1:2].isspace() or place.before != place.bare[: place.start]
        return Refusal(
            "P014", "clauses stand one behind the other, without commas", place.start, place.end,
            helps=("leave it out",), fix="" if apart else " ",
        )  # fmt: skip
    choice = re.match(r",[ \t]*(else[ \t]+if|else|if)\b", place.behind)
    if choice is not None and re.search(r"\bthen\b", place.before):
        better = " else" if choice[1] == "else" else " else if"
        span = (place.start, place.start + choice.end())
        return Refusal(
            "P014", "the parts of `if` stand without commas", place.start, place.start + 1,
            helps=(f"write {better} ...",), fix=better, fix_at=span,
        )  # fmt: skip
    return _alternatives(place)


def _alternatives(place: Place) -> Refusal | None:
    """`zone = a, b`, `contains nginx, redis`, `condition, condition`, `spread: zone, node`."""
    words = re.match(
        r"((?:,[ \t]*[\w./-]+)+)[ \t]*(?=$|\n|\)|->|and\b|or\b|message|status|weight)", place.behind
    )
    tested = re.search(
        r"((?:pod|node|(?:it\.)?namespace|it|time)\.\w+(?:\[[^\]]*\])?(?:[ \t]+[\w./-]+)?)[ \t]*"
        r"(=|==|\bis|\bin|\bcontains)[ \t]*([\w./-]+)\Z",
        place.before,
    )
    if words is not None and tested is not None and tested[2] != "contains":
        items = f"{tested[3]}{words[1]}"
        better = f"{tested[1]} in [{items}]"
        return place.instead(
            (tested.start(), place.start + words.end(1)), "P014",
            "several values stand in a list", better,
        )  # fmt: skip
    if words is not None and tested is not None:
        each = [one.strip() for one in f"{tested[3]}{words[1]}".split(",")]
        better = " or ".join(f"{tested[1]} contains {one}" for one in each)
        return place.instead(
            (tested.start(), place.start + words.end(1)), "P014",
            "`contains` looks for one text", better,
        )  # fmt: skip
    return _values(place) or _of_statement(place) or _conditions(place)


def _values(place: Place) -> Refusal | None:
    """`let zones = a, b`, `let zones = (a, b)`."""
    item = r"(?:[\w./$-]+|\"_*\")"
    items = rf"(\(?)({item}(?:[ \t]*,[ \t]*{item})+)(\)?)[ \t]*(?=$|\n)"
    found = re.match(
        rf"(?:let|param)[ \t]+\w+(?:[ \t]*:[ \t]*list[^=]*)?[ \t]*=[ \t]*{items}", place.bare
    )
    if found is None or bool(found[1]) != bool(found[3]):
        return None
    better = f"[{place.text[found.start(2) : found.end(2)]}]"
    span = (found.start(1), found.end(3))
    return place.instead(span, "P014", "several values stand in a list", better)


def _of_statement(place: Place) -> Refusal | None:
    """Statements of which each line says one thing: `first: A, B`, `spread: zone, node`."""
    word = place.keyword
    depth = sum(place.before.count(one) for one in "([") - sum(
        place.before.count(one) for one in ")]"
    )
    by = re.search(r"\bby[ \t]+(.*)\Z", place.before)
    if word in ("quota", "gang") and by is not None and not depth:
        more = FIELD.match(
            place.bare, place.start + len(place.behind) - len(place.behind[1:].lstrip())
        )
        if more is None:
            return None
        one, two = place.text[by.start(1) : len(place.before)], more.group()
        better = f'join({one}, "/", {place.text[more.start() : more.end()]})'
        return Refusal(
            "P014", f"`by` takes one value: `{one}` and `{two}` are joined", place.start,
            place.start + 1, helps=(f"write  by {better}",), fix=better,
            fix_at=(by.start(1), more.end()),
        )  # fmt: skip
    if word not in _ONE_EACH or depth:
        return None
    if word == "spread" and not re.search(r"\bover\b", place.before):
        both = re.match(r"spread:[ \t]*((\w+)[ \t]*,[ \t]*(\w+))", place.text)
        if both is None:
            return None
        better = f"over {both[2]}\nspread: over {both[3]}"
        return Refusal(
            "P014", "each line of `spread` says one thing", place.start, place.start + 1,
            helps=(f"write  spread: over {both[2]}   and, on a line of its own, "
                   f" spread: over {both[3]}",),
            fix=better, fix_at=both.span(1),
        )  # fmt: skip
    condition = place.before.rfind("->")
    head = place.text[: condition + len("->")] if condition >= 0 else f"{word}:"
    if word == "spread":
        head = place.text[: place.bare.index("over") + len("over")]
    gap = len(place.behind[1:]) - len(place.behind[1:].lstrip())
    span = (place.start, place.start + 1 + gap)
    better = f"\n{head} "
    second = place.text[span[1] : place.line(place.start)[1]]
    return Refusal(
        "P014", f"each line of `{word}` says one thing", place.start, place.start + 1,
        helps=(f"write on a line of its own  {head} {second}",),
        fix=better if place.mends(*span, better) else None, fix_at=span,
    )  # fmt: skip


#: Statements that may stand several times, for several things.
_ONE_EACH: Final = ("first", "prefer", "avoid", "score", "spread")


def _conditions(place: Place) -> Refusal | None:
    """`condition, condition`; two values of one field are alternatives."""
    labels = re.search(r"\.(?:labels|annotations)\Z", place.before)
    if labels is not None:
        path = re.search(r"[\w.]+\Z", place.before)
        assert path is not None
        return place.at(
            *path.span(), "P009", f"`{path.group()}` needs a key",
            f"write  {path.group()[:-1]}[KEY]",
        )  # fmt: skip
    left = re.search(rf"{_EQUALS}[\w./\"-]+\Z", place.before)
    right = re.match(rf",[ \t]*{_EQUALS}", place.behind)
    same = left is not None and right is not None and left[1].split() == right[1].split()
    word = "or" if same else "and"
    if place.keyword in _NO_CONDITIONS or not place.mends(place.start, place.start + 1, f" {word}"):
        return None
    help_ = "write  ... or ..." if same else (
        "write  ... and ...   or, to demand it of some pods,  ->"
    )  # fmt: skip
    return Refusal(
        "P014", "conditions are joined by `and` or `or`, not by a comma", place.start,
        place.start + 1, helps=(help_,), fix=f" {word}",
    )  # fmt: skip


#: What is compared with one value.
_EQUALS: Final = (
    r"((?:pod|node|(?:it\.)?namespace|it|zone)\.\w+(?:\[[^\]]*\])?(?:[ \t]+[\w./-]+)?)"
    r"[ \t]*(?:==?|\bis)[ \t]*"
)
#: Statements that hold no conditions, or other things besides.
_NO_CONDITIONS: Final = (
    "sort", "queueSort", "prebind", "preBind", "quota", "gang", "spread", "score", "prescore",
    "let", "param", "metric",
)  # fmt: skip


def _no_comma(place: Place) -> Refusal | None:
    """`[a b]`, `[a, b,]`."""
    if place.met == "]" and place.before.endswith(","):
        at = len(place.before) - 1
        return Refusal("P001", "an item of the list is missing", at, at + 1, fix="",
                       helps=("leave the comma out",))  # fmt: skip
    if {"COMMA", "RSQB"} <= place.accepts and place.met in ("or", "and"):
        return Refusal(
            "P001", "items of a list are parted by commas", place.start, place.end,
            helps=(f"write  , instead of {place.met}",), fix=",",
            fix_at=(len(place.before), place.end),
        )  # fmt: skip
    if {"COMMA", "RSQB"} <= place.accepts and re.match(r"[\w\"]", place.met):
        return Refusal(
            "P001", "items of a list are parted by commas", place.start, place.end,
            helps=(f"write  , {place.met}",), fix=f", {place.met}",
            fix_at=(len(place.before), place.end),
        )  # fmt: skip
    return None
