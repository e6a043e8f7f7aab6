"""Lists and ranges: brackets that are missing or of another kind, lists where one value stands.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re

from dsl.parser.complaints.place import FIELD, LAST_VALUE, OWNER, PATH, Place, written_here
from dsl.parser.refusal import Refusal
from dsl.spelling import quoted_key


def listed(place: Place) -> Refusal | None:
    """`in (a, b)`, `in a, b`, `in "a,b"`, `contains [a, b]`, `in 9-17`, `in [9..17]`."""
    operator = re.search(r"(?<![\w.$])(in|IN|contains|is|like|starts with|ends with|=)\Z",
                         place.before)  # fmt: skip
    if re.search(r"\bis[ \t]+(not[ \t]+)?in\Z", place.before):
        return None
    ranges = re.match(r"[\[(]?[ \t]*(\d\w*)[ \t]*(?:\.\.\.?|to|-|:00[ \t]*\.\.)[ \t]*(\d\w*)"
                      r"(?::00)?[ \t]*[\])]?", place.text[place.start :])  # fmt: skip
    if operator is not None and operator[1] == "in" and ranges is not None:
        better = f"{ranges[1]}..{ranges[2]}"
        return place.instead(
            (place.start, place.start + ranges.end()), "P001", "a range is written with `..`",
            better,
        )  # fmt: skip
    after = re.search(r"\bin[ \t]+[\[(]?[ \t]*(\d\w*)(?::00)?\Z", place.before)
    upto = re.match(r"(?:\.\.\.?|to|-|:00[ \t]*(?:\.\.|-)|\.\.)[ \t]*\.?(\d+)(?::00)?[ \t]*[\])]?",
                    place.behind)  # fmt: skip
    if after is not None and upto is not None:
        start = after.start() + len("in")
        span = (start + len(place.bare[start:]) - len(place.bare[start:].lstrip()),
                place.start + upto.end())  # fmt: skip
        return place.instead(span, "P001", "a range is written with `..`", f"{after[1]}..{upto[1]}")
    sign = place.text[place.start : place.start + 1]
    owner = re.search(rf"({OWNER}\.(?:label|annotation|taint)s?)[ \t]+in\Z",
                      place.before)  # fmt: skip
    if owner is not None and sign == "[":
        items = place.text[place.start : max(place.closing(place.start), place.start) + 1]
        return place.at(
            *owner.span(), "P009", f"`{owner[1]}` needs the key of a label",
            f"write  {owner[1]} KEY in {items}",
        )  # fmt: skip
    gives = place.keyword in ("let", "param") and "=" not in place.before[:-1]
    if operator is not None and sign and sign in "([" and not gives:
        return _bracketed(place, operator[1])
    if operator is not None and operator[1] == "in" and "LSQB" in place.accepts:
        end = place.line(place.start)[1]
        field = FIELD.match(place.text, place.start)
        if field is not None and "[" in field.group():
            return _split(place, field)
        words = re.match(r"(\"[^\"]*\"|'[^']*'|[\w./-]+)(?:[ \t]*,[ \t]*[\w./\"'-]+)*",
                         place.text[place.start : end])  # fmt: skip
        if words is not None:
            inner = words.group()
            of_let = _in_a_let(place, inner)
            if of_let:
                # Which of the two is meant, the file knows; so no text is put in.
                return place.at(
                    place.start, place.start + words.end(), "P001", "a list stands in brackets",
                    f"write  [{inner}]   or, for a `let {inner} = [...]`,  {of_let}",
                )  # fmt: skip
            inner = inner[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", inner) else inner
            return place.instead(
                (place.start, place.start + words.end()), "P001", "a list stands in brackets",
                f"[{', '.join(one.strip() for one in inner.split(','))}]",
            )  # fmt: skip
    return None


def _in_a_let(place: Place, name: str) -> str:
    """`node.label pool in pools`: what reads a list by its name."""
    test = re.search(rf"({OWNER}\.\w+)[ \t]+([\w./-]+)[ \t]+((?:not[ \t]+)?in)\Z", place.before)
    if test is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return ""
    return f"{written_here(test[1] + '[')}{quoted_key(test[2])}] {test[3]} {name}"


def _split(place: Place, field: re.Match[str]) -> Refusal | None:
    """`node.label pool in pod.annotation[pools]`: a text that holds several words."""
    test = re.search(rf"({OWNER}\.\w+)[ \t]+([\w./-]+)[ \t]+(not[ \t]+)?in\Z", place.before)
    if test is None:
        return None
    no = "not " if test[3] else ""
    better = f'{test[1]}[{quoted_key(test[2])}] {no}in split({written_here(field.group())}, ",")'
    span = (test.start(), field.end())
    return place.instead(span, "P001", "a text that holds several words is split", better)


def _bracketed(place: Place, operator: str) -> Refusal | None:
    close = place.closing(place.start)
    if close < 0:
        return None
    inside = place.text[place.start + 1 : close].strip()
    items = [one.strip() for one in inner_items(inside)]
    if operator.lower() == "in":
        better = f"[{', '.join(items)}]"
        return place.instead(
            (place.start, close + 1), "P001", "a list stands in square brackets", better
        )
    left = LAST_VALUE.search(place.before[: -len(operator)].rstrip())
    label = re.search(rf"{OWNER}\.\w+[ \t]+(?:[\w./-]+|\"_*\")\Z",
                      place.before[: -len(operator)].rstrip())  # fmt: skip
    left = label or left
    if left is None:
        return None
    value = place.text[left.start() : left.end()]
    if operator in ("is", "=", "!="):
        better = f"{value} {'not in' if operator == '!=' else 'in'} [{', '.join(items)}]"
    else:
        better = " or ".join(f"{value} {operator} {one}" for one in items)
        better = f"({better})" if len(items) > 1 else better
    return place.instead(
        (left.start(), close + 1), "P001", f"`{operator}` takes one text, not a list", better
    )


def inner_items(text: str) -> list[str]:
    """Returns the items of a list without its brackets."""
    return [one for one in re.split(r",(?=(?:[^\"']*[\"'][^\"']*[\"'])*[^\"']*\Z)", text) if one]


def in_parens(place: Place) -> Refusal | None:
    """`in (a, b)`, `node.label app = (a, b)`, met at its comma."""
    opened = re.search(
        r"(?:\b(in|IN|is|contains)"
        rf"|{OWNER}\.\w+[ \t]+(?:[\w./-]+|\"_*\")[ \t]*(!?=))[ \t]*\([^()]*\Z",
        place.before,
    )
    if opened is None:
        return None
    at = place.before.rindex("(")
    inside = Place(place.text, place.bare, at, at + 1, place.accepts, place.kind, "(",
                   place.alone, place.read)  # fmt: skip
    return _bracketed(inside, opened[1] or opened[2])


def any_of(place: Place) -> Refusal | None:
    """`pod.name contains any of [a, b]`: one test for each."""
    found = re.search(
        rf"({PATH})[ \t]+(contains|starts with|ends with|like)[ \t]+(any|one|either|some|all|both)"
        r"(?:[ \t]+of)?[ \t]*(?:[\[(]([^\[\]()]*)[\])]|[ \t]([\w-]+(?:[ \t]*,[ \t]*[\w-]+)+))",
        place.bare,
    )
    if found is None or not found.start() < place.start <= found.end():
        return None
    inside = found.span(4) if found[4] is not None else found.span(5)
    items = place.text[slice(*inside)].split(",")
    joint = " and " if found[3] in ("all", "both") else " or "
    value = place.text[found.start(1) : found.end(1)]
    better = f"({joint.join(f'{value} {found[2]} {one.strip()}' for one in items)})"
    return place.instead(found.span(), "P001", f"`{found[2]}` takes one text, not a list", better)
