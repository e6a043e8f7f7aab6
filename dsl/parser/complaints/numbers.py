"""Numbers, units and shares, and values that stand side by side without a sign.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import KEYWORDS, LAST_VALUE, PATH, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS
from dsl.types import Kind

_UNIT_WORDS: Final = MappingProxyType(
    {
        "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "m": "min", "min": "min",
        "mins": "min", "minute": "min", "minutes": "min", "h": "h", "hr": "h", "hrs": "h",
        "hour": "h", "hours": "h", "d": "d", "day": "d", "days": "d", "ms": "ms", "ki": "Ki",
        "mi": "Mi", "gi": "Gi", "ti": "Ti", "pi": "Pi", "kb": "Ki", "mb": "Mi", "gb": "Gi",
        "tb": "Ti", "pb": "Pi", "kib": "Ki", "mib": "Mi", "gib": "Gi", "tib": "Ti", "k": "k",
        "g": "Gi", "t": "Ti", "core": "", "cores": "", "cpu": "", "cpus": "", "vcpu": "",
        "vcpus": "", "c": "", "millis": "m", "millicores": "m", "mcpu": "m", "bytes": "",
        "byte": "", "b": "", "x": "", "u": "", "f": "", "l": "", "pods": "", "nodes": "",
        "percent": "%", "pct": "%", "gpu": "", "gpus": "", "celsius": "", "degrees": "",
        "watts": "", "watt": "",
    }
)  # fmt: skip


def number(place: Place) -> Refusal | None:
    """Numbers that are almost right: `.5`, `+5`, `1w`, `5 Gi`, `1_000`, `0x10`, `9am`."""
    rest = place.text[place.start :]
    again = re.search(r"(\d+(?:ms|min|[smhd]))\Z", place.before)
    more = re.match(r"(\d+(?:ms|min|[smhd]))\b", rest)
    if again is not None and more is not None:
        span = (again.start(), place.start + more.end())
        return place.instead(span, "P007", "a duration is one word", again[1] + more[1])
    digits = re.search(r"(?<![\w.])\d+\Z", place.bare[: place.start])
    if digits is not None and rest.startswith(".") and not re.match(r"\.[.\w]", rest):
        span = (digits.start(), place.start + 1)
        text = re.search(r"(contains|starts[ \t]+with|ends[ \t]+with)[ \t]+\d+\Z", place.before)
        if text is not None:
            better = f'"{digits.group()}."'
            return place.instead(span, "P001", f"`{digits.group()}.` needs quotes", better)
        return place.instead(span, "P007", "digits stand behind the point", digits.group())
    decimal = re.match(r"\.\d+([kKmMgGtTpP])i?[bB]\b", rest)
    if digits is not None and decimal is not None:
        # `1.5GB`, where the grammar stops at the point.
        whole = (digits.start(), place.start + decimal.end())
        amount = place.text[whole[0] : place.start + decimal.start(1)]
        return _size(place, whole, amount + _UNIT_WORDS[f"{decimal[1].lower()}b"])
    for form, better in _numbers(place, rest):
        span = (place.start, place.start + form)
        shown = place.text[place.start : span[1]]
        if better:
            return _size(place, span, better)
        help_ = "units are s min h d, m for thousandths, Ki Mi Gi Ti and k M G T"
        return place.at(*span, "P007", f"`{shown}` is not a number", help_)
    apart = _unit_apart(place)
    if apart is not None:
        return apart
    return None


def _size(place: Place, span: tuple[int, int], better: str) -> Refusal:
    """Refuses a number; of `512MB` says the exact number of bytes besides."""
    shown = place.text[slice(*span)]
    size = re.fullmatch(r"([\d.]+)([kKmMgGtTpP])[bB]", shown)
    exact = ""
    if size is not None and (place.takes_value or (shown[0].isdigit() and "." in shown)):
        exact = f"   or, exactly,  bytes({size[1]}{size[2].upper().replace('K', 'k')})"
    return Refusal(
        "P007", f"`{shown}` is not a number", *span, helps=(f"write  {better}{exact}",), fix=better
    )


def _unit_apart(place: Place) -> Refusal | None:
    """`5 min`, `2 Gi`, `2 cores`."""
    before = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\Z", place.before)
    unit = re.match(r"[A-Za-z]+(?!\w)", place.met)
    if before is None or unit is None or place.start == len(place.before):
        return None
    word = unit.group()
    known = _UNIT_WORDS.get(word.lower())
    if known is None:
        return None
    clause = re.search(r"(wait|every|stale|age|backoff)[ \t]+\d+\Z", place.before)
    if clause is None and not place.mends(before.start(), place.end, before[1] + known):
        return None
    message = "a number and its unit are one word" if known else f"`{word}` is no unit"
    if word.lower().startswith(("core", "cpu", "vcpu")):
        message = "cores are written without a unit"
    return place.instead((before.start(), place.end), "P007", message, before[1] + known)


def _numbers(place: Place, rest: str) -> Iterator[tuple[int, str]]:
    takes_value = place.takes_value or "NAME" in place.accepts or "WORD" in place.accepts
    found = re.match(r"\.\d+", rest)
    if found and not place.before.endswith("."):
        yield found.end(), f"0{found.group()}"
    found = re.match(r"\+[ \t]*(\d[\w.]*)", rest)
    if found and takes_value:
        yield found.end(), found[1]
    found = re.match(r"(\d{1,3})(?:[_'](\d{3}))+\b", rest)
    if found:
        yield found.end(), re.sub(r"[_']", "", found.group())
    found = re.match(r"0[xX]([0-9a-fA-F]+)\b", rest)
    if found:
        yield found.end(), str(int(found[1][:16], 16))
    found = re.match(r"(\d{1,2})(?::\d\d)?[ \t]?(am|pm)\b", rest)
    if found:
        yield found.end(), str(int(found[1]) % 12 + 12 * (found[2] == "pm"))
    found = re.match(r"(\d+(?:\.\d+)?)([A-Za-z]+)\b", rest)
    if found:
        amount, unit = found.groups()
        if unit in ("w", "wk", "weeks", "week"):
            yield found.end(), f"{float(amount) * 7:g}d"
        elif unit in ("y", "yr", "year", "years", "mo", "month", "months"):
            days = 365 if unit[0] == "y" else 30
            yield found.end(), f"{float(amount) * days:g}d"
        else:
            known = _UNIT_WORDS.get(unit.lower())
            yield found.end(), amount + known if known is not None else ""


def remainder(place: Place) -> Refusal | None:
    """`ordinal(pod.name) % 2 == 0`, `hash(pod.uid) % 10 == 0`."""
    if not place.behind.startswith("%"):
        return None
    call = re.search(r"(?<![\w.$])([a-z_]\w*)\([^()]*\)\Z", place.before)
    right = re.match(r"%[ \t]*(\d+|\$\w+)([ \t]*==[ \t]*\d+)?", place.behind)
    if call is None or right is None:
        return None
    value = place.text[call.start() : call.end()]
    span = (call.start(), place.start + right.end(1))
    better = f"mod({value}, {right[1]})"
    if call[1] == "hash":
        if right[2] is None or not right[1].isdigit() or 100 % max(int(right[1]), 1):
            return place.at(
                place.start, place.start + 1, "P014",
                "`hash` is a share, from 0 to 1", f"write for a tenth  {value} < 10%",
            )  # fmt: skip
        span = (span[0], place.start + right.end())
        better = f"{value} < {100 // max(int(right[1]), 1)}%"
    if not place.mends(*span, better):
        return None
    return Refusal(
        "P014", "`%` is not an operator here", place.start, place.start + 1,
        helps=(f"write  {better}",), fix=better, fix_at=span,
    )  # fmt: skip


def times(place: Place) -> Refusal | None:
    """`score: 100 cpu_usage`: no sign stands between a number and a value."""
    before = re.search(r"(?<![\w.])(\d+(?:\.\d+)?%?)\Z", place.before)
    value = re.match(PATH, place.behind)
    if before is None or value is None or place.keyword not in ("score", "prescore"):
        return None
    word = value.group()
    if word in KEYWORDS or place.start == before.end():
        return None
    if not place.mends(place.start, place.start, "* "):
        return None
    return Refusal(
        "P001", f"no sign stands between `{before[1]}` and `{word}`", place.start,
        place.start + value.end(), helps=(f"write  {before[1]} * {word}",), fix="* ",
        fix_at=(place.start, place.start),
    )  # fmt: skip


def beside(place: Place) -> Refusal | None:
    """`peers(node) 2`: no sign stands between two values."""
    number = re.match(r"\d[\w.]*%?(?![\w.])", place.behind)
    left = re.search(r"(?<![\w.$])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(\([^()]*\))?\Z", place.before)
    if number is None or left is None or "RELOP" not in place.accepts:
        return None
    field = FIELDS.get(left.group())
    if left[1] is None and (field is None or field.keyed):
        return None
    value = place.text[left.start() : left.end()]
    if not place.mends(place.start, place.start, "< "):
        return None
    return place.at(
        left.start(), place.start + number.end(), "P001",
        f"no comparison stands between `{value}` and `{number.group()}`",
        f"write  {value} < {number.group()}   or one of  <=  >  >=  ==  !=",
    )  # fmt: skip


def side_by_side(place: Place) -> Refusal | None:
    """`pod.name contains nginx node.label a=b`: nothing joins the two."""
    if "_ARROW" not in place.accepts and "AND" not in place.accepts:
        return None
    if re.search(r"(?:[:(]|->|\band|\bor|\bnot)[ \t]*[A-Za-z_]+\Z", place.before):
        return None
    path = re.match(r"(?:not[ \t]+)?(?:pod|node|namespace|it|cluster|zone|time)\.\w+", place.behind)
    if path is None or not place.mends(place.start, place.start, "and "):
        return None
    if not _is_test(place):
        return _operator_missing(place, path)
    arrow = "_ARROW" in place.accepts and place.mends(place.start, place.start, "-> ")
    hints = ["to demand it of some pods write  ->   between them"] if arrow else []
    return place.refuse(
        "P001", "two conditions stand side by side", *hints, "to ask for both write  and"
    )


#: What a condition is told by.
_TEST: Final = re.compile(
    r"[<>=]|\b(?:is|in|like|contains|matches|with|not|any|all|missing|present)\b"
    r"|\.(?:label|annotation|taint)s?[ \t]+[\w\"]"
)


def _is_test(place: Place) -> bool:
    """Whether what stands before the place is a condition, not a value."""
    before = re.sub(r"\Alet[ \t]+\w+[ \t]*=", "", place.before)
    last = re.split(r"->|\b(?:and|or)\b|[(:,](?!=)", before)[-1].strip()
    field = FIELDS.get(last)
    if field is not None:
        return field.type.kind is Kind.BOOL
    called = re.search(r"\)\Z", last) is not None
    return called or _TEST.search(last) is not None


def _operator_missing(place: Place, path: re.Match[str]) -> Refusal | None:
    """`let share = node.cpu.requested node.cpu.allocatable`: two values side by side."""
    left = LAST_VALUE.search(place.before)
    right = re.match(rf"(?:not[ \t]+)?{PATH}", place.behind)
    if left is None or right is None or path is None:
        return None
    one, two = place.text[left.start() : left.end()], right.group()
    fields = [FIELDS.get(side.split("[")[0]) for side in (one, two)]
    if None in fields:
        return None
    text = all(side is not None and side.type.kind is Kind.TEXT for side in fields)
    return place.at(
        left.start(), place.start + right.end(), "P001",
        f"no operator stands between `{one}` and `{two}`",
        f"write  {one} == {two}   or   {one} contains ({two})" if text else
        f"write for example  {one} / {two}   or   {one} < {two}",
    )  # fmt: skip
