"""Words, calls and numbers of other languages within a statement, and how it is written here.

Each check looks for one habit and the first that recognises it speaks. A replacement that is
proposed has been tried where that is possible: the statement can be read further with it.
"""

import re
from collections.abc import Iterator
from functools import cache
from types import MappingProxyType
from typing import Final

from dsl.parser import loops
from dsl.parser.openings import STATEMENTS
from dsl.parser.place import Place, Refusal
from dsl.schema import FIELDS
from dsl.spelling import AGGREGATES, NOTHING, call_for, closest, field_for, quoted_key

PATH: Final = r"(?<![\w.$])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\[[^\[\]]*\](?:\.\w+)*)?"
LAST_VALUE: Final = re.compile(rf"(?:{PATH}|\"_*\"|\$\w+|\d[\w.%]*)\Z")
#: Phrases in place of an operator; `{L}` is the value before.
_PHRASES: Final = (
    (r"(or|and)\s+is\s+", r"\1 {L} is "),
        (r"is\s+not\s+(?:null|none|nil|empty)\b", "is present"),
        (r"is\s+(?:null|none|nil)\b", "is missing"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+exists?\b", "is missing"),
        (r"(?:is\s+)?(?:exists?|existing|defined)\b", "is present"),
        (r"is\s+(true|false)\b", r"is \1"),
        (r"not\s+between\s+(\S+)\s+and\s+(\S+)", r"not in \1..\2"),
        (r"(?:is\s+)?between\s+(\S+)\s+and\s+(\S+)", r"in \1..\2"),
        (r"(?:is\s+not|isnt|isn't|are\s+not)\s+in\b", "not in"),
        (r"(?:is\s+)?(?:not|none)\s+(?:one\s+)?of\b", "not in"),
        (r"(?:is\s+)?(?:one|any|either)\s+of\b", "in"),
        (r"(?:is|are)\s+in\b", "in"),
        (r"(?:is\s+)?(?:greater|more|bigger|larger|higher)\s+(?:than\s+)?or\s+equals?(?:\s+to)?\b",
         ">="),
        (r"(?:is\s+)?(?:less|fewer|smaller|lower)\s+(?:than\s+)?or\s+equals?(?:\s+to)?\b", "<="),
        (r"(?:is\s+)?(?:greater|more|bigger|larger|higher)\s+than\b", ">"),
        (r"(?:is\s+)?(?:above|exceeds|exceeding|gt)\b", ">"),
        (r"(?:is\s+)?(?:less|fewer|smaller|lower)\s+than\b", "<"),
        (r"(?:is\s+)?(?:below|under|lt)\b", "<"),
        (r"(?:is\s+)?(?:at\s+least|gte|ge)\b", ">="),
        (r"(?:is\s+)?(?:at\s+most|lte|le)\b", "<="),
        (r"(?:is\s+)?not\s+equals?(?:\s+to)?\b|(?:is\s+)?(?:differs?\s+from|ne|neq)\b", "!="),
        (r"(?:is\s+)?equals?(?:\s+to)?\b|(?:is\s+)?eq\b|(?:is\s+)?the\s+same\s+as\b", "is"),
        (r"is\s+set\s+to\b|has\s+(?:the\s+)?value\b", "is"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:contains?|includes?|has|have)\b",
         "not {L} contains"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:starts?|begins?)[\s_]*with\b",
         "not {L} starts with"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+ends?[\s_]*with\b", "not {L} ends with"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:matche?s?|regexp?|rlike)\b", "not {L} matches"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+i?like\b", "not {L} like"),
        (r"(?:starts?|begins?)[\s_]*with\b|starts(?!\s+with)\b|has\s+prefix\b|hasprefix\b",
         "starts with"),
        (r"ends?[\s_]*with\b|ends(?!\s+with)\b|has\s+suffix\b|hassuffix\b", "ends with"),
        (r"includes?\b|contain\b|containing\b|including\b|has\b|have\b", "contains"),
        (r"i?like\b|glob\b", "like"),
        (r"match\b|matching\b|regexp?\b|rlike\b|similar\s+to\b", "matches"),
        (r"elif\b|elsif\b|elseif\b", "else if"),
        (r"descending\b", "desc"),
        (r"ascending\b", "asc"),
        (r"order\s+by\b|sort\s+by\b|ordered\s+by\b", ""),
        (r"(?:if|with|for|when|having|such\s+that|whose|which)\b", "where"),
        (r"(?:on|of|in|from|within|for)\b", "over"),
        (r"(?:interval|each|step)\b", "every"),
        (r"(?:ttl|expires|max_age|maxage)\b", "stale"),
        (r"(?:because|reason|msg|saying|otherwise)\b", "message"),
        (r"max\s*skew\b|maxskew\b", "skew"),
        (r"(?:strict|required|strictly|donotschedule)\b", "hard"),
        (r"(?:size|members|minmember|min_member|minimum)\b", "min"),
        (r"(?:timeout|waits|schedule_timeout)\b", "wait"),
        (r"(?:maximum|upto)\b", "max"),
        (r"(?:times|priority|importance|factor)\b", "weight"),
        (r"unless\b", "and not"),
        (r"then\b|implies\b|requires\b|must\s+have\b", "->"),
        (r"but\b|plus\b|also\b", "and"),
        (r"xor\b", "!="),
    (r"(?:ro|oder|ore)\b", "or"),
    (r"(?:adn|nad|nd|und|aand)\b", "and"),
    (r"starts\s+(?:wiht|wtih|iwth|whit|wit|wth)\b", "starts with"),
    (r"ends\s+(?:wiht|wtih|iwth|whit|wit|wth)\b", "ends with"),
)  # fmt: skip


@cache
def _phrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compiled when a statement is wrong, not when the package is loaded."""
    return tuple(
        (re.compile(rf"(?<![\w.$]){pattern}", re.IGNORECASE), better)
        for pattern, better in _PHRASES
    )


#: Words before a value that other languages have.
_LEADS: Final = MappingProxyType(
    {
        "where": "", "when": "", "if": "", "then": "", "select": "", "that": "", "by": "",
        "return": "", "only": "", "lambda": "", "is": "", "some": "", "every": "", "all": "",
        "order": "", "order by": "", "exists": "", "the": "", "check": "", "do": "",
        "lowest": "least", "smallest": "least", "min": "least", "less": "least", "fewest": "least",
        "minimum": "least", "low": "least", "fewer": "least", "least of": "least",
        "highest": "most", "largest": "most", "max": "most", "more": "most", "biggest": "most",
        "maximum": "most", "high": "most", "greatest": "most", "most of": "most",
        "no": "not", "never": "not", "without": "not", "across": "over", "by topology": "over",
        "case": "if", "bool": "", "contains": "", "per": "over", "among": "over", "between": "over",
    }
)  # fmt: skip
_NEAR_LEADS: Final = ("not", "if", "least", "most", "over", "victims", "wait", "annotate", "label")
_KEYWORDS: Final = (
    "and", "or", "not", "in", "is", "like", "contains", "matches", "missing", "present", "if",
    "then", "else", "where", "over", "asc", "desc", "message", "status", "weight", "normalize",
    "least", "most", "true", "false", "limit", "order", "by", "every", "stale", "default", "unit",
    "starts", "ends", "with", "hard", "skew", "min", "max", "of", "from", "to", "reverse",
)  # fmt: skip
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
        "percent": "%", "pct": "%", "gpu": "", "gpus": "",
    }
)  # fmt: skip


# ---- calls, indexes, lists


def call(place: Place) -> Refusal | None:
    """`pod.name.startsWith("x")`, `node.label("x")`, `strings.Contains(a, b)`, `count(*)`."""
    if place.text[place.start : place.start + 1] != "(":
        return _star(place)
    name = re.search(rf"{PATH}(?:\([^()]*\)(?:\.\w+)*)?\Z", place.bare[: place.start])
    end, args = place.arguments(place.start)
    if name is None or end < 0:
        return None
    owner, _, method = name.group().rpartition(".")
    start = name.start()
    text = place.text[start : name.end()]
    if name.group() in ("node.label", "pod.label", "node.labels", "pod.labels", "it.label"):
        better = f"{text}[{args[0] if args else 'KEY'}]"
        return place.instead((start, end), "P001", "the key of a label stands in brackets", better)
    if not owner:
        return None
    of_pods = _of_pods(place, text.rpartition(".")[0], method, (start, end))
    if of_pods is not None:
        return of_pods
    found = call_for(text, args)
    message = f"there are no methods here: `.{method}(...)`"
    if found is None:
        return place.at(start + len(text) - len(method), name.end(), "P106", message)
    if not found.text:
        return place.at(start, end, "P106", message, found.note)
    return _called(place, (start, end), message, found.text)


def _called(place: Place, span: tuple[int, int], message: str, better: str) -> Refusal:
    start, end = span
    inner = re.match(r"(\S+)\[(.*)\]\Z", better)
    if inner is not None and field_for(inner[1], inner[2].strip("\"'")) is not None:
        better = f"{inner[1]}[{quoted_key(inner[2].strip(chr(34) + chr(39)))}]"
    index = re.match(r"\[(\d+)\]", place.text[end:])
    if index is not None:
        better, end = f"item({better}, {index[1]})", end + index.end()
    fits = place.mends(start, end, better)
    return Refusal(
        "P106", message, start, end, helps=(f"write  {better}",), fix=better if fits else None
    )


def _of_pods(place: Place, owner: str, method: str, span: tuple[int, int]) -> Refusal | None:
    """`node.pods.exists(p, p.name == "x")` and its like."""
    if re.fullmatch(r"(?:\w+\.)?(?:spec\.)?containers", owner):
        owner = "pod.containers"
    if not owner.endswith((".pods", ".nominated", ".finished", ".containers")):
        return None
    inside = place.text[place.start + 1 : span[1] - 1]
    words = re.match(r"[ \t]*(\w+)[ \t]*(?:,|=>|->|:)[ \t]*(.*)\Z", inside, re.DOTALL)
    function = {"exists": "any", "all": "all", "filter": "count", "some": "any", "any": "any",
                "every": "all", "count": "count", "size": "count", "length": "count",
                "len": "count"}.get(method)  # fmt: skip
    if function is None:
        help_ = f"write  sum(it.cpu over {owner})   or   count({owner} where CONDITION)"
        return place.at(*span, "P106", f"there are no methods here: `.{method}(...)`", help_)
    better = f"{function}({owner})"
    end = span[1]
    if words is not None:
        condition = re.sub(rf"\b{words[1]}\.", "it.", words[2])
        condition = re.sub(r"(it(?:\.\w+)+)\(([^()]*)\)", _plain_call, condition)
        better = f"{function}({owner} where {condition})"
        size = re.match(r"\.(size|length|len|count)\(\)", place.text[end:])
        end += size.end() if size is not None else 0
    fix = better if place.mends(span[0], end, better) else None
    return Refusal(
        "P106", f"there are no methods here: `.{method}(...)`", span[0], end,
        helps=(f"write  {better}",), fix=fix,
    )  # fmt: skip


def _plain_call(found: re.Match[str]) -> str:
    """Returns a call of a method of a pod as it is written here."""
    better = call_for(found[1], found[2].split(","))
    return better.text if better is not None and better.text else found.group()


def _star(place: Place) -> Refusal | None:
    """`count(*)`."""
    if place.text[place.start : place.start + 1] == "*" and place.before.lower().endswith("count("):
        start = len(place.before) - len("count(")
        end = place.bare.find(")", place.start) + 1
        return place.instead((start, end), "P001", "`count` is told of what", "count(node.pods)")
    return None


def index(place: Place) -> Refusal | None:
    """`bandwidth[5m]`, `node["zone"]`, `node.label [zone]`, `x.split("-")[0]`."""
    if place.text[place.start : place.start + 1] != "[":
        return None
    close = place.closing(place.start)
    inside = place.text[place.start + 1 : close].strip() if close > 0 else ""
    name = re.search(r"(?<![\w.$])([A-Za-z_][\w.]*)\Z", place.before)
    if close < 0 or name is None:
        return None
    if re.fullmatch(r"\d+(ms|[smhdwy])+", inside):
        return place.at(
            name.start(), close + 1, "P014", "a range of time belongs into the query of a metric",
            f'write above  metric NAME = promql "rate({name[1]}[{inside}])" by instance',
        )  # fmt: skip
    key = inside.strip("\"'")
    if place.start > name.end() and name[1].rpartition(".")[2] in ("label", "labels", "annotation"):
        better = f"{name[1]}[{inside or 'KEY'}]"
        return place.instead(
            (name.start(), close + 1), "P001", "no blank stands before the key", better
        )
    owner = {"labels": "node.label", "label": "node.label", "annotations": "node.annotation",
             "node": "node.label", "pod": "pod.label"}.get(name[1])  # fmt: skip
    if owner is not None:
        in_fields = f"{name[1]}.{key}"
        better = in_fields if in_fields in FIELDS else f"{owner}[{quoted_key(key)}]"
        return place.instead(
            (name.start(), close + 1), "P001", f"`{name[1]}[...]` is no field", better
        )
    return None


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
        words = re.match(r"(\"[^\"]*\"|'[^']*'|[\w./-]+)(?:[ \t]*,[ \t]*[\w./\"'-]+)*",
                         place.text[place.start : end])  # fmt: skip
        if words is not None:
            inner = words.group()
            inner = inner[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", inner) else inner
            return place.instead(
                (place.start, place.start + words.end()), "P001", "a list stands in brackets",
                f"[{', '.join(one.strip() for one in inner.split(','))}]",
            )  # fmt: skip
    return None


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


def _unit_apart(place: Place) -> Refusal | None:
    """`5 min`, `2 Gi`, `2 cores`."""
    before = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)\Z", place.before)
    unit = re.match(r"[A-Za-z]+", place.met)
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


# ---- words


def upper_case(place: Place) -> Refusal | None:
    """`AND`, `Contains`, `IN`: words of the language are lower-case."""
    word = place.met
    if word.lower() == word or word.lower() not in _KEYWORDS:
        return _upper_before(place)
    if not place.mends(place.start, place.end, word.lower()):
        return None
    return place.refuse(
        "P001", f"words of the language are lower-case: `{word}`", f"write  {word.lower()}",
        fix=word.lower(),
    )  # fmt: skip


def _upper_before(place: Place) -> Refusal | None:
    """`NOT node.ready`: the word before is the one."""
    found = re.search(r"(?<![\w.$])([A-Z][A-Za-z]*)\Z", place.before)
    if found is None or found[1].lower() not in (*_KEYWORDS, *AGGREGATES):
        return None
    low = found[1].lower()
    if not place.mends(found.start(), found.end(), low):
        return None
    return place.at(
        *found.span(), "P001", f"words of the language are lower-case: `{found[1]}`",
        f"write  {low}", fix=low,
    )  # fmt: skip


def sql_like(place: Place) -> Refusal | None:
    """`LIKE '%nginx%'`."""
    found = re.match(r"(?i)(not\s+)?i?like\s+(['\"])(.*?)\2", place.text[place.start :])
    if found is None or not re.match(r"(?i)(not\s+)?i?like", place.met + place.behind):
        return None
    pattern = found[3].replace("%", "*").replace("_", "?")
    better = f'like "{pattern}"'
    inner = pattern.strip("*")
    if re.fullmatch(r"[A-Za-z0-9.-]+", inner) and pattern == f"*{inner}*":
        better = f"contains {inner}"
    span = (place.start, place.start + found.end())
    left = LAST_VALUE.search(place.before)
    if found[1] and left is not None:
        value = place.text[left.start() : left.end()]
        span, better = (left.start(), span[1]), f"not {value} {better}"
    what = "patterns are written with `like`, any text in them as `*`"
    return place.instead(span, "P014", what, better)


def phrase(place: Place) -> Refusal | None:
    """`is greater than`, `does not contain`, `begins with`, `between 1 and 5`, `exists` ..."""
    if place.kind == "end":
        return None
    for pattern, better in _phrases():
        for found in pattern.finditer(place.bare):
            if not found.start() <= place.start or len(place.before) > found.end():
                continue
            written = place.text[found.start() : found.end()]
            text = found.expand(better) if "\\" in better else better
            text = text.lower() if text.lower() == written.lower() else text
            start = found.start()
            if "{L}" in text:
                value = _value_before(place, start, text)
                if value is None:
                    continue
                start, text = value
            same = written.lower() == text and " " not in text
            if same or written == text or not place.mends(start, found.end(), text):
                continue
            message = f"`{' '.join(written.split())}` does not fit here"
            help_ = f"write  {text}" if text else "leave it out"
            return Refusal(
                "P001", message, found.start(), found.end(), helps=(help_,), fix=text,
                fix_at=(start, found.end()),
            )  # fmt: skip
    return None


def _value_before(place: Place, start: int, text: str) -> tuple[int, str] | None:
    """Puts what is tested before an operator into a text; returns where the text then starts."""
    if text.startswith(("or ", "and ")):
        tested = re.search(
            rf"({PATH})[ \t]+(?:is|==|!=|is not)[ \t]+\S+[ \t]*\Z", place.bare[:start]
        )
        return None if tested is None else (start, text.replace("{L}", tested[1]))
    left = LAST_VALUE.search(place.bare[:start].rstrip())
    if left is None:
        return None
    return left.start(), text.replace("{L}", place.text[left.start() : left.end()])


def twice(place: Place) -> Refusal | None:
    """`and and`, `is is`, `filter: filter: x`."""
    found = re.search(r"(?<![\w.$])([A-Za-z]+)\Z", place.before)
    if found is None or found[1] not in _KEYWORDS:
        return None
    again = re.search(rf"(?<![\w.$]){found[1]}[ \t]+{found[1]}\Z", place.before)
    start = found.start() if again is not None else place.start
    if again is None and place.met != found[1]:
        return None
    word = found[1]
    return Refusal(
        "P001", f"`{word}` stands twice", start, start + len(word), helps=("leave one out",),
        fix="",
    )  # fmt: skip


def label_then_operator(place: Place) -> Refusal | None:
    """`node.label a like b`: a label test knows symbols and `in` only."""
    if place.met not in ("like", "contains", "matches", "is", "starts", "ends", "??"):
        return None
    found = re.search(r"((?:pod|node|namespace|it)\.\w+)[ \t]+([\w./-]+|\"_*\")\Z", place.before)
    if found is None or found[2] == "not" or found[1].split(".")[1].rstrip("s") not in (
        "label", "annotation", "taint",
    ):  # fmt: skip
        return None
    key = place.text[found.start(2) : found.end(2)]
    better = f"{found[1]}[{key}]"
    nothing = re.compile(r"is[ \t]+(not[ \t]+)?([a-z]+)\b(?![\w./-])", re.IGNORECASE)
    asked = nothing.match(place.bare, place.start)
    if asked is not None and asked[2].lower() in {*NOTHING, "missing", "present"}:
        there = (asked[2].lower() == "present") != (asked[1] is not None)
        better = f"{better} is {'present' if there else 'missing'}"
        return Refusal(
            "P001", f"`{place.met}` wants the value of a label", found.start(), found.end(),
            helps=(f"write  {better}",), fix=better, fix_at=(found.start(), asked.end()),
        )  # fmt: skip
    return Refusal(
        "P001", f"`{place.met}` wants the value of a label", found.start(), found.end(),
        helps=(f"write  {better} {place.met} ...",), fix=better,
    )  # fmt: skip


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
        if value is None or closest(value.group(), _KEYWORDS) is not None:
            return None
        text = place.text[place.start : place.start + value.end()]
        if not place.mends(place.start, place.start + value.end(), f"is {text}"):
            return None
        return Refusal(
            "P001", f"`{text}` does not fit here", place.start, place.start + value.end(),
            helps=(f"write  {field} is {text}",), fix=f"is {text}",
        )  # fmt: skip
    labels = ("node.label", "pod.label", "namespace.label", "it.label", "node.annotation",
              "pod.annotation", "namespace.annotation", "it.annotation", "node.taint")  # fmt: skip
    near = closest(field, (*labels, *FIELDS)) if field not in FIELDS else None
    if near is None or not place.mends(*found.span(1), near):
        return None
    return place.at(
        *found.span(1), "P101", f"there is no field `{field}`", f"did you mean `{near}`?", fix=near
    )


def word_before(place: Place) -> Refusal | None:
    """`SELECT node`, `lambda n: ...`, `lowest load`, `nto node.ready`: the word before is wrong."""
    found = re.search(r"(?<![\w.$\"-])([A-Za-z_]+(?:[ \t]+(?:by|of))?)\Z", place.before)
    if found is None or not re.match(r"[\w\"$(]", place.text[place.start : place.start + 1]):
        return None
    word = found[1].lower()
    if word == "lambda":
        end = place.bare.find(":", place.start) + 1
        return Refusal(
            "P001", "there are no functions of your own here", found.start(), end or found.end(),
            helps=("write the expression itself",), fix="" if end else None,
        )  # fmt: skip
    if found[1] in STATEMENTS and found.start() == 0:
        return None
    if found[1] in STATEMENTS and place.mends(*found.span(), ""):
        message = f"`{found[1]}` starts a statement, and this is the inside of one"
        return place.at(*found.span(), "P001", message, "leave it out", fix="")
    if word in ("contains", "is", "like", "matches") and place.before[: found.start()].rstrip()[
        -1:
    ] in (":", ">", "("):  # fmt: skip
        tested = f"pod.name {word}"
        help_ = f"say what is tested:  {tested} ..."
        return place.at(*found.span(), "P001", f"nothing stands before `{word}`", help_, fix=tested)
    known = "over" if word == "by" and place.keyword == "spread" else _LEADS.get(word)
    better = known if known is not None else closest(word, _NEAR_LEADS)
    if better is not None and word != better and place.mends(*found.span(), better):
        help_ = f"write  {better}" if better else "leave it out"
        return place.at(*found.span(), "P001", f"`{found[1]}` does not fit here", help_, fix=better)
    return None


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
    if re.match(r"[A-Za-z]", place.met) and place.met not in _KEYWORDS:
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
