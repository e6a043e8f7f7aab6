"""Brackets and quotes without their partner.

Works on a statement as it was written, whether a policy's or a test's; where a bracket may belong
to several places, nothing is proposed.
"""

import re
from itertools import islice
from typing import Final

from dsl.functions import FUNCTIONS
from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.source import QUOTED_OR_COMMENT
from dsl.spelling import AGGREGATES

#: A call whose bracket is missing: `numberpod.annotation[size])`.
_CALLS: Final = "|".join(sorted({*FUNCTIONS, *AGGREGATES}, key=len, reverse=True))
_LOST: Final = re.compile(
    rf"(?<![\w.$])({_CALLS})(?=(?:it|pod|node|namespace|cluster|group)(?:\.|\b)|(?:{_CALLS})\()"
)
#: What binds values: with several kinds of it, a bracket decides what belongs together.
_BINDS: Final = re.compile(r"\b(?:and|or|not|if)\b|->|\?\?|[*/]|(?<=[ \t])[+-](?=[ \t])")


def open_text(place: Place) -> Refusal | None:
    """A quote without its partner."""
    plain = QUOTED_OR_COMMENT.sub(lambda found: " " * len(found.group()), place.text)
    for sign in ('"""', '"', "'"):
        at = plain.find(sign)
        if 0 <= at <= place.start:
            line = place.text[at:].split("\n", 1)[0].rstrip()
            end = at + len(line)
            thousands = re.search(r"\d+\Z", place.text[:at])
            if sign == "'" and thousands is not None and re.match(r"'\d{3}\b", line):
                span = (thousands.start(), at + len("'000"))
                better = place.text[span[0] : span[1]].replace("'", "")
                return place.instead(span, "P007", "a number has digits and a point only", better)
            other = "'" if sign == '"' else '"'
            if sign != '"""' and line.endswith(other) and line.count(other) == 1:
                # `"nginx'`: it is closed by the other one.
                return Refusal(
                    "P002", "this text is closed by another quote", at, at + len(sign),
                    helps=(f"write  {line[:-1]}{sign}",), fix=sign, fix_at=(end - 1, end),
                )  # fmt: skip
            return _closed(place, at, sign)
    raw = place.text.find('"""')
    if 0 <= raw <= place.start and place.text.count('"""') % 2:
        return place.at(raw, raw + 3, "P002", "this text is never closed", 'end it with  """')
    return None


#: Where a text may have ended that nobody closed.
_STOPS: Final = re.compile(
    r"[ \t]+(?=->|(?:and|or|message|status|weight|normalize|missing|by|from|one of|where|then|else"
    r"|every|stale|default|unit)\b)|(?=[\])},])"
)
#: How many of them are tried.
_MAX_STOPS: Final = 12
#: The only ones at which a text ends for sure, where its statement can be read so.
_SURE: Final = re.compile(r"\]|by[ \t]+\w|(?:every|stale|unit|default|status)[ \t]+\w")


def _closed(place: Place, at: int, sign: str) -> Refusal:
    """Closes a text: in front of what cannot be part of it, else where its line ends."""
    line = place.text[at:].split("\n", 1)[0].rstrip()
    end = at + len(line)
    message = "this text is never closed"
    stops = islice(_STOPS.finditer(line, 2), _MAX_STOPS) if sign != '"""' else ()
    ends = [at + one.start() for one in stops]
    inner = next((one for one in ends if place.heals(one, one, sign)), None)
    if inner is None:
        return Refusal(
            "P002", message, at, at + len(sign), helps=(f"write  {line}{sign}",), fix=sign,
            fix_at=(end, end),
        )  # fmt: skip
    better = f"{place.text[at:inner]}{sign}{place.text[inner:end]}"
    if place.heals(end, end, sign) and not _SURE.match(place.text[inner:end].lstrip()):
        helps = (f"write  {better}   or   {line}{sign}",)
        return Refusal("P002", message, at, at + len(sign), helps=helps)
    return Refusal(
        "P002", message, at, at + len(sign), helps=(f"write  {better}",), fix=sign,
        fix_at=(inner, inner),
    )  # fmt: skip


def unpaired(place: Place) -> Refusal | None:
    """Brackets that are open at the end, or close nothing."""
    opened: list[int] = []
    for at, sign in enumerate(place.bare[: place.start]):
        if sign in "([":
            opened.append(at)
        elif sign in ")]" and opened:
            opened.pop()
    if place.met in (")", "]") and not opened:
        return _closes_nothing(place)
    if not opened:
        return None
    sign = place.bare[opened[-1]]
    close = ")" if sign == "(" else "]"
    open_ended = place.kind == "end" or place.met == "->"
    if not open_ended and (place.closing(opened[-1]) >= 0 or not _closes(place, close)):
        return None
    at = _end_of_call(place, opened[-1]) or len(place.before)
    fix = close if place.mends(at, at, close) or place.kind == "end" else None
    return Refusal(
        "P002", f"this `{sign}` is never closed", opened[-1], opened[-1] + 1,
        helps=(f"close it with `{close}`",), fix=fix, fix_at=(at, at),
    )  # fmt: skip


def _closes_nothing(place: Place) -> Refusal:
    sign = place.met
    opens = "(" if sign == ")" else "["
    lost = _LOST.search(place.bare, 0, place.start) if sign == ")" else None
    if lost is not None:
        at = lost.end()
        word = re.compile(r"[\w.]+").match(place.bare, lost.start())
        assert word is not None
        return Refusal(
            "P002", f"no `(` stands behind `{lost[1]}`", lost.start(), word.end(),
            helps=(f"write  {lost[1]}({place.text[at : word.end()]}",), fix="(", fix_at=(at, at),
        )  # fmt: skip
    key = re.search(r"\b\w+\.\w+([ \t]+)[\w./-]+\Z", place.before) if sign == "]" else None
    if key is not None and place.mends(*key.span(1), "["):
        owner = place.text[key.start() : key.start(1)]
        return Refusal(
            "P002", f"no `[` stands behind `{owner}`", key.start(), place.end,
            helps=(f"write  {owner}[{place.text[key.end(1) : place.end]}",), fix="[",
            fix_at=key.span(1),
        )  # fmt: skip
    help_ = f"leave it out, or write `{opens}` where it opens"
    sure = len(set(_BINDS.findall(place.bare[: place.start]))) <= 1
    return place.refuse("P002", f"`{sign}` closes nothing", help_, fix="" if sure else None)


def _end_of_call(place: Place, opened: int) -> int | None:
    """`sort: time(x, pod.priority desc`: a call of one value ends before the comma."""
    name = re.search(r"[a-z_]+\Z", place.bare[:opened])
    spec = FUNCTIONS.get(name.group()) if name is not None else None
    if spec is None or spec.variadic or len(spec.takes) != 1:
        return None
    depth = 0
    for at in range(opened + 1, len(place.bare)):
        sign = place.bare[at]
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            return at
    return None


def _closes(place: Place, close: str) -> bool:
    return ("RPAR" if close == ")" else "RSQB") in place.accepts
