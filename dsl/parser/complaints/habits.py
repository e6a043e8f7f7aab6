"""Lists, numbers, aggregates and choices of other languages within a statement, as they are here.

Each check looks for one habit and the first that recognises it speaks. A replacement that is
proposed has been tried where that is possible: the statement can be read further with it.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints import loops
from dsl.parser.place import FIELD, KEYWORDS, LAST_VALUE, PATH, Place, Refusal, written_here
from dsl.schema import FIELDS
from dsl.spelling import AGGREGATES, closest, quoted_key
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


# ---- lists


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
    owner = re.search(r"((?:pod|node|namespace|it)\.(?:label|annotation|taint)s?)[ \t]+in\Z",
                      place.before)  # fmt: skip
    if owner is not None and sign == "[":
        items = place.text[place.start : max(place.closing(place.start), place.start) + 1]
        return place.at(
            *owner.span(), "P009", f"`{owner[1]}` needs the key of a label",
            f"write  {owner[1]} KEY in {items}",
        )  # fmt: skip
    if operator is not None and sign and sign in "([":
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
    test = re.search(
        r"((?:pod|node|namespace|it)\.\w+)[ \t]+([\w./-]+)[ \t]+((?:not[ \t]+)?in)\Z", place.before
    )
    if test is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
        return ""
    return f"{written_here(test[1] + '[')}{quoted_key(test[2])}] {test[3]} {name}"


def _split(place: Place, field: re.Match[str]) -> Refusal | None:
    """`node.label pool in pod.annotation[pools]`: a text that holds several words."""
    test = re.search(
        r"((?:pod|node|namespace|it)\.\w+)[ \t]+([\w./-]+)[ \t]+(not[ \t]+)?in\Z", place.before
    )
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
    label = re.search(r"(?:pod|node|namespace|it)\.\w+[ \t]+[\w./-]+\Z",
                      place.before[: -len(operator)].rstrip())  # fmt: skip
    left = label or left
    if left is None:
        return None
    value = place.text[left.start() : left.end()]
    if operator in ("is", "="):
        better = f"{value} in [{', '.join(items)}]"
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
    """`in (a, b)`, met at its comma."""
    opened = re.search(r"\b(in|IN|is|contains)[ \t]*\(([^()]*)\Z", place.before)
    if opened is None:
        return None
    at = place.before.rindex("(")
    inside = Place(place.text, place.bare, at, at + 1, place.accepts, place.kind, "(",
                   place.alone, place.read)  # fmt: skip
    return _bracketed(inside, opened[1])


# ---- numbers


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
    found = re.match(r"\d+\.(?![.\w])", rest)
    if found:
        yield found.end(), f"{found.group()}0"


# ---- fields


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


def aggregate(place: Place) -> Refusal | None:
    """`count node.pods`, `sum by (node) (x)`, `any(x for p in node.pods)`, `[p for p in ...]`."""
    loop = re.search(r"\bfor[ \t]+(\w+)[ \t]+in[ \t]+([\w.]+)(?:[ \t]+if[ \t]+(.*?))?(?=[)\]]|$)",
                     place.bare)  # fmt: skip
    if loop is not None:
        return loops.loop(place, loop)
    grouped = re.search(rf"\b({'|'.join(AGGREGATES)})(\([^()]*\))?[ \t]*\Z", place.before)
    by = re.match(r"(by|without|on)[ \t]*\([^()]*\)[ \t]*(\([^()]*\))?", place.behind)
    if grouped is not None and by is not None:
        return loops.grouped(place, grouped, by)
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


def condition(place: Place) -> Refusal | None:
    """`if a then b` in a filter, `100 if a else 0`, `case when a then b else c end`."""
    if place.kind == "end" and "ELSE" in place.accepts:
        found = re.match(r"(\w+[ \t]*:[ \t]*)if\b[ \t]*(.*?)[ \t]*\bthen\b[ \t]*", place.bare)
        if found is not None and place.keyword in (
            "filter",
            "require",
            "forbid",
            "gate",
            "reserve",
        ):
            left = place.text[found.start(2) : found.end(2)]
            span = (found.end(1), found.end())
            return Refusal(
                "P014", "a rule for some pods is written with `->`", found.end(1),
                found.end(1) + 2, helps=(f"write  {left} -> ...",), fix=f"{left} -> ", fix_at=span,
            )  # fmt: skip
        at = place.bare.rfind("then", 0, place.start)
        return Refusal(
            "P009", "this `if` has no `else`", at, at + 4, helps=("end it with  else 0",),
            fix=" else 0", fix_at=(place.start, place.start),
        )  # fmt: skip
    if place.met == "if":
        found = re.match(r"if[ \t]+(.*?)[ \t]+else[ \t]+(\S+)", place.text[place.start :])
        value = LAST_VALUE.search(place.before)
        if found is not None and value is not None:
            first = place.text[value.start() : value.end()]
            better = f"if {found[1]} then {first} else {found[2]}"
            span = (value.start(), place.start + found.end())
            if place.mends(*span, better):
                return place.instead(span, "P014", "`if` stands in front", better)
    case = re.search(r"(?i)\bcase[ \t]+when\b(.*?)\bthen\b(.*?)\belse\b(.*?)\bend\b", place.bare)
    if case is not None and case.start() <= place.start:
        a, b, c = (place.text[case.start(one) : case.end(one)].strip() for one in (1, 2, 3))
        better = f"if {a} then {b} else {c}"
        return place.instead(case.span(), "P014", "a choice is written with `if`", better)
    return None
