"""Aggregates as other languages say them: loops, other names, words outside of the brackets.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import KEYWORDS, Place
from dsl.parser.complaints.queries import grouped
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS, POD_SETS
from dsl.spelling import AGGREGATES, closest
from dsl.types import Kind

#: Aggregates as other languages call them.
_QUANTIFIERS: Final = MappingProxyType(
    {
        **dict.fromkeys(("exists", "some", "exist", "anyof", "any_of"), "any"),
        **dict.fromkeys(("every", "forall", "each", "for_all"), "all"),
        **dict.fromkeys(("none", "no", "not_exists", "notexists", "noneof"), "not any"),
        **dict.fromkeys(("size", "len", "length", "number", "filter", "num", "number_of"), "count"),
        **dict.fromkeys(("total", "add"), "sum"),
        **dict.fromkeys(
            (
                "unique",
                "uniq",
                "nunique",
                "count_distinct",
                "distinct_count",
                "countdistinct",
                "distinctcount",
                "cardinality",
                "uniques",
                "count_unique",
            ),
            "distinct",
        ),
        **dict.fromkeys(("mean", "average"), "avg"),
        **dict.fromkeys(("maximum", "highest"), "max"),
        **dict.fromkeys(("minimum", "lowest"), "min"),
    }
)
_NAMES: Final = "|".join(AGGREGATES)
#: What a condition is told by, where a value is none.
_IS_TEST: Final = re.compile(
    r"[<>=]|\b(?:is|like|contains|matches|in|not)\b|(?:label|annotation|taint)[ \t]+[\w\"]"
)
#: The last comparison of a stretch.
_COMPARED: Final = re.compile(r"[ \t]*(?:[<>]=?|[!=]=)[ \t]*[\w$.]+%?[ \t]*\Z")


def where_or_over(place: Place) -> Refusal | None:
    """`some(node.pods where ..)`, `sum(it.cpu) over node.pods`, `count(node.pods) where ..`."""
    if place.met not in ("where", "over"):
        return None
    opened = _opened(place)
    if opened >= 0:
        return _renamed(place, opened) or _where_first(place, opened)
    return _behind(place)


def _opened(place: Place) -> int:
    """Returns where the bracket around the place opens, -1 where none does."""
    depth = 0
    for at in range(place.start - 1, -1, -1):
        sign = place.bare[at]
        depth += (sign in ")]") - (sign in "([")
        if depth < 0:
            return at if sign == "(" else -1
    return -1


def _renamed(place: Place, opened: int) -> Refusal | None:
    name = re.search(r"(?:\bnot[ \t]+)?(?<![\w.$])([A-Za-z_]\w*)\Z", place.bare[:opened])
    better = None
    if name is not None:
        better = _QUANTIFIERS.get(name[1].lower()) or closest(name[1], AGGREGATES)
    if name is None or better is None:
        return None
    span = name.span(1)
    if better == "not any" and name.group().startswith("not"):
        span, better = name.span(), "any"
    if not place.mends(*span, better):
        return None
    end = place.closing(opened) + 1
    rest = place.text[opened:end] if end else "(...)"
    return Refusal(
        "P106", f"there is no function `{name[1]}`", *name.span(1),
        helps=(f"write  {better}{rest}",), fix=better, fix_at=span,
    )  # fmt: skip


def _where_first(place: Place, opened: int) -> Refusal | None:
    """`sum(it.cpu where it.ready over node.pods)`: the pods come first."""
    close = place.closing(opened)
    inside = place.bare[opened + 1 : place.start]
    where = re.search(r"[ \t]+where\b", inside)
    if place.met != "over" or close < 0 or where is None:
        return None
    name = re.search(r"\w*\Z", place.bare[:opened])
    value = place.text[opened + 1 : opened + 1 + where.start()]
    condition = place.text[opened + 1 + where.start() : place.start].strip()
    better = f"{value} {place.text[place.start : close].strip()} {condition}"
    if not place.mends(opened + 1, close, better):
        return None
    return Refusal(
        "P001", "`over` stands before `where`", place.start, place.end,
        helps=(f"write  {name[0] if name else ''}({better})",), fix=better,
        fix_at=(opened + 1, close),
    )  # fmt: skip


def _behind(place: Place) -> Refusal | None:
    """What belongs into the brackets stands behind them, or there are none."""
    call = re.search(rf"(?<![\w.$])(?:{_NAMES})\([^()]*\)\Z", place.before)
    pods = re.search(r"(?<![\w.$])[a-z]+\.[a-z]+\Z", place.before)
    if call is None and (pods is None or pods.group() not in POD_SETS):
        return None
    found = call or pods
    assert found is not None
    head = place.text[found.start() : found.end()]
    head = head[:-1] if call is not None else f"count({head}"
    stop = re.compile(r"->|\b(?:message|weight|status|normalize|missing)\b|\n").search(
        place.bare, place.start
    )
    limit = stop.start() if stop is not None else place.line(place.start)[1]
    span = (place.start, len(place.bare[:limit].rstrip()))
    ends = _ends(place, *span)
    compared = bool(ends) and ends[0] < span[1]
    rule = place.keyword in ("filter", "require", "forbid", "gate", "reserve")
    if call is None and not compared and rule:
        head = f"any({found.group()}"
    if call is None and not compared and not rule and place.keyword != "score":
        ends = []
    for end in ends:
        better = f"{head} {place.text[place.start : end]})"
        if place.heals(found.start(), end, better):
            return Refusal(
                "P001", f"`{place.met}` stands within the brackets", place.start, place.end,
                helps=(f"write  {better}",), fix=better, fix_at=(found.start(), end),
            )  # fmt: skip
    if place.met == "over":
        return None
    which = place.text[slice(*span)]
    helps = [f"write  {head} where CONDITION)"]
    if call is None:
        own = found.group()
        helps = [f"write  any({own} {which})   or   count({own} where CONDITION) < NUMBER"]
    return place.refuse("P001", "`where` stands within the brackets of an aggregate", *helps)


def _ends(place: Place, start: int, end: int) -> list[int]:
    """Returns where the inside of the brackets may end: the last comparison is of the result."""
    compared = _COMPARED.search(place.bare[start:end])
    if compared is None:
        return [end]
    last = start + compared.start()
    inside = place.bare[start:last].split(None, 1)[-1].strip()
    field = FIELDS.get(inside)
    is_test = _IS_TEST.search(inside) is not None or (field is not None and _is_flag(inside))
    return [last] if is_test or place.met == "over" else []


def _is_flag(name: str) -> bool:
    return FIELDS[name].type.kind is Kind.BOOL


def unbracketed(place: Place) -> Refusal | None:
    """`count node.pods`, `sum by (node) (x)`, `any(x for p in node.pods)`, `[p for p in ...]`."""
    loop = re.search(r"\bfor[ \t]+(\w+)[ \t]+in[ \t]+([\w.]+)(?:[ \t]+if[ \t]+(.*?))?(?=[)\]]|$)",
                     place.bare)  # fmt: skip
    if loop is not None:
        return _loop(place, loop)
    named = re.search(rf"\b({'|'.join(AGGREGATES)})(\([^()]*\))?[ \t]*\Z", place.before)
    by = re.match(r"(by|without|on)[ \t]*\([^()]*\)[ \t]*(\([^()]*\))?", place.behind)
    if named is not None and by is not None:
        return grouped(place, named, by)
    bare = re.search(rf"(?<![\w.$])({'|'.join(AGGREGATES)})\Z", place.before)
    ranked = place.keyword in ("prefer", "avoid")
    if bare is None or ranked:
        return None
    if re.match(r"[A-Za-z]", place.met) and place.met not in KEYWORDS:
        better = f"{bare[1]}({place.met})"
        if place.mends(bare.start(), place.end, better):
            return place.instead(
                (bare.start(), place.end), "P001", f"`{bare[1]}` takes its value in parentheses",
                better,
            )  # fmt: skip
    return None


def _loop(place: Place, found: re.Match[str]) -> Refusal:
    """`count(...)` or `any(...)` for a loop over pods; the words of its condition as written."""
    condition = _of_item(place.text[found.start(3) : found.end(3)] if found[3] else "", found[1])
    values = re.search(
        rf"\b(sum|max|min|avg|median)\([ \t]*\[?[ \t]*({found[1]}\.[^()]*?)[ \t]*\Z",
        place.text[: found.start()],
    )
    if values is not None:
        value, over = _of_item(values[2], found[1]), f" over {found[2]}"
        if found[2] == "nodes":
            # What is said of a node is said of the candidates, without naming them.
            plain = value.removeprefix("it.")
            value, over = (f"node.{plain}" if f"node.{plain}" in FIELDS else plain), " over nodes"
        where = f" where {condition}" if condition else ""
        return place.at(
            found.start(), found.end(), "P001",
            f"there are no loops here: `{place.text[found.start() : found.end()]}`",
            f"write  {values[1]}({value}{over}{where})",
        )  # fmt: skip
    head = re.search(rf"\b(any|all)\((.*?)\bfor[ \t]+{found[1]}\b", place.text)
    if head is not None:
        condition = condition or _of_item(head[2].strip(), found[1])
    text = place.text[found.start() : found.end()]
    where = f" where {condition}" if condition else ""
    name = head[1] if head is not None else "count"
    return place.at(
        found.start(), found.end(), "P001", f"there are no loops here: `{text}`",
        f"write  {name}({found[2]}{where})",
    )  # fmt: skip


def _of_item(condition: str, name: str) -> str:
    """Returns a condition about a loop's variable as one about `it`."""
    parts = re.split(r"(\"[^\"]*\"|'[^']*')", condition)
    for at in range(0, len(parts), 2):
        text = re.sub(rf"\b{name}\.", "it.", parts[at])
        text = re.sub(r"\bit\.metadata\.", "it.", text)
        parts[at] = re.sub(r"\bit\.(label|annotation)s?\.(\w+)", r"it.\1[\2]", text)
    return "".join(parts)
