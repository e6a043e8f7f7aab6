"""What is said where no habit is recognised: what ends too early, is misspelt, or does not fit.

Tells it by what the grammar would have taken, in words of the language.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.connectives import WORDS
from dsl.parser.complaints.place import CLAUSES, OWNER, Place
from dsl.parser.refusal import Refusal
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from dsl.spelling import AGGREGATES, closest

_WORDS: Final = {
    "_ARROW": "`->`",
    "RELOP": "a comparison",
    "TEXTOP": "`contains`",
    "STRING": "a quoted text",
    "WORD": "a word",
    "NAME": "a name",
    "GLOB": "a pattern",
    "QUANT": "a number",
    "PERCENT": "a percentage",
    "PARAM": "a parameter",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "EQUAL": "`=`",
    "__ANON_0": "`..`",
    "__ANON_1": "`??`",
    "MODE": "enforce, shadow, canary N% or off",
    "STATUS_CODE": "unschedulable or unresolvable",
    "NORM": "none, minmax, default or rank",
    "TYPE": "string, number, quantity, duration, bool or time",
    "UNIT": "a unit",
    "_NL": "the end of the statement",
}
#: Terminals whose names are those of words, which they are not.
_CLASSES: Final = frozenset({"STRING", "NUMBER", "DURATION", "TIME", "BOOL", "QUANTITY"})
_OPERATOR_NAMES: Final = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "__ANON_1"})
_MAX_SHOWN: Final = 5
#: What a statement looks like, shown where nothing better is known.
_SHAPES: Final = MappingProxyType(
    {
        "permit": "permit: CONDITION -> allow   or   -> reject   or   -> wait 60s until CONDITION",
        "bind": "bind: CONDITION -> with BINDER   or   -> default   or   -> dry run",
        "preempt": "preempt: CONDITION -> victims where it.priority < pod.priority   or   -> never",
        "spread": "spread: over zone   or   spread: over zone skew 1 hard",
        "prebind": 'prebind: annotate example.com/KEY = "VALUE"',
        "postbind": 'postbind: event "placed on {node.name}"',
        "gang": "gang: by pod.label[KEY] min 3 wait 60s",
        "quota": "quota: by pod.namespace max cpu 20, memory 64Gi",
        "sort": "sort: pod.priority desc, pod.queued_at",
        "normalize": "normalize: minmax   or   normalize: minmax reverse",
        "metric": 'metric NAME = promql "QUERY" by instance every 15s stale 2m',
        "use": "use NAME (PARAM = VALUE) weight 2",
        "param": 'param NAME: string = VALUE "what it is for"',
        "prefer": "prefer: CONDITION weight 2   or   prefer: least NUMBER",
        "mode": "mode: enforce   or   mode: off",
        "applies": "applies to: pod.namespace is NAME",
        "filter": "filter: pod.label KEY=VALUE -> node.label KEY=VALUE",
        "forbid": "forbid: pod.label KEY=VALUE -> node.label KEY=VALUE",
        "gate": "gate: count(cluster.pods where it.label KEY=VALUE) < 3",
        "score": "score: 100 - cpu_usage*100 missing 0",
    }
)
_LONG: Final = MappingProxyType(
    {"queueSort": "sort", "postFilter": "preempt", "preBind": "prebind", "postBind": "postbind",
     "avoid": "prefer", "require": "filter", "prefilter": "gate", "preFilter": "gate",
     "preEnqueue": "gate"}
)  # fmt: skip


def unfinished(place: Place) -> Refusal | None:
    """The text ends where something is still needed."""
    if place.kind != "end":
        return None
    last = re.search(r"(->|[<>=!]=|[A-Za-z_$][\w./-]*|\d[\w.%]*|\S)\Z", place.before)
    word = last.group() if last else ""
    start = place.start - len(word)
    if place.keyword in STATEMENTS and place.accepts == {"_ARROW"} | (place.accepts & _OPERATORS):
        shape = _shape(place)
        if shape is not None:
            return place.at(start, place.start, "P009", f"`{word}` alone says nothing here", shape)
    key = re.search(rf"{OWNER}\.(?:label|annotation|taint)s?\Z", place.before)
    if key is not None:
        return place.at(
            *key.span(), "P009", f"`{word}` needs a key",
            f"write  {word} KEY   or   {word} KEY=VALUE",
        )  # fmt: skip
    wants = _wants(place)
    what = f", {wants} is needed" if wants else ""
    hints = [one for one in (_shape(place),) if one is not None and not wants]
    if word:
        return place.at(start, place.start, "P009", f"nothing follows `{word}`{what}", *hints)
    return place.refuse("P009", f"the statement ends too early{what}", *hints)


_OPERATORS: Final = frozenset(
    {"PLUS", "MINUS", "STAR", "SLASH", "__ANON_1", "RELOP", "IN", "NOT", "TEXTOP", "LIKE",
     "MATCHES", "IS", "AND", "OR", "INDEX"}
)  # fmt: skip


def _shape(place: Place) -> str | None:
    word = place.keyword
    shape = _SHAPES.get(_LONG.get(word, word))
    return f"write for example  {shape}" if shape is not None else None


#: What makes a word the opposite of the one it looks like.
_NEGATION: Final = re.compile(r"un|not|non|no(?=r$)", re.IGNORECASE)


def misspelt(place: Place) -> Refusal | None:
    """A word close to one that fits here."""
    known = place.met.lower() in WORDS or place.met in AGGREGATES
    if not re.fullmatch(r"[A-Za-z_]+", place.met) or known:
        return None
    fitting = [one for one in CLAUSES if one.upper() in place.accepts - _CLASSES]
    fitting += [one for one in CLAUSES if _of_class(one, place)]
    near = closest(place.met, [one for one in fitting if one != place.met])
    if near == "contains" or near is None:
        near = near or closest(place.met, ["starts", "ends"] if "TEXTOP" in place.accepts else [])
    if near is None or not place.mends(place.start, place.end, near):
        return None
    negation = _NEGATION.match(place.met)
    if negation is not None and not near.startswith(negation.group().lower()):
        return None
    return place.refuse(
        "P001", f"`{place.met}` does not fit here", f"did you mean `{near}`?", fix=near
    )


def _of_class(word: str, place: Place) -> bool:
    classes = {
        "MODE": ("enforce", "shadow", "off", "canary"),
        "STATUS_CODE": ("unschedulable", "unresolvable"),
        "NORM": ("none", "minmax", "default", "rank"),
        "TYPE": ("string", "number", "quantity", "duration", "bool", "time"),
        "TEXTOP": ("contains",),
    }
    return any(name in place.accepts and word in words for name, words in classes.items())


def unexpected(place: Place) -> Refusal:
    """Whatever is left: what stands here, and what could."""
    wants = _wants(place)
    met = place.met if place.met.isprintable() else "this character"
    shown = f"`{met}`" if "`" not in met else "this sign"
    two = re.search(r"(?<![\w.$])([A-Za-z_]\w*)\Z", place.before)
    of_label = re.search(r"\.(?:label|annotation|taint)s?[ \t]+\S+\Z", place.before)
    if (
        two is not None
        and of_label is None
        and not wants
        and re.match(r"[\w\"$]", met)
        and _is_strange(two[1])
    ):
        return place.at(*two.span(), "P001", f"`{two[1]}` does not fit here", *_hints(place, wants))
    return place.refuse("P001", f"{shown} does not fit here", *_hints(place, wants))


def _is_strange(word: str) -> bool:
    return word not in (*CLAUSES, *STATEMENTS, *DECLARATIONS, "if", "asc", "desc", "hard")


_OF_QUERIES: Final = frozenset(
    {"offset", "ignoring", "group_left", "group_right", "bool", "without", "topk"}
)


def _hints(place: Place, wants: str) -> list[str]:
    if place.met.lower() in ("group", "having", "limit", "join", "order", "distinct"):
        return ["a rule is asked of each node by itself: nothing is grouped, ordered or cut off"]
    grouped = place.met == "on" and re.match(r"on[ \t]*\(", place.behind) is not None
    if place.met in _OF_QUERIES or grouped:
        return ['queries of Prometheus stand in a metric:  metric NAME = promql "QUERY"']
    shape = _shape(place)
    if wants and wants != "an operator":
        return [f"{wants} fits here"]
    if shape is None or (place.keyword in _OF_WORDS and not _is_prose(place)):
        return []
    return [shape]


#: Rules whose shape says little, unless the text is English.
_OF_WORDS: Final = frozenset(
    {"filter", "require", "forbid", "gate", "preEnqueue", "prefilter", "preFilter", "score"}
)
_PROSE: Final = re.compile(r"[A-Za-z]+(?:-[a-z]+)*(?:[ \t]+[A-Za-z]+(?:-[a-z]+)*){2}")
_FEW: Final = 3


def _is_prose(place: Place) -> bool:
    """Whether the line begins with words side by side, or holds more words than signs."""
    start, end = place.line(place.start)
    line = place.bare[start:end].partition(":")[2].strip()
    words = re.findall(r"(?<![\w.])[A-Za-z]+(?![\w.(\[])", line)
    return _PROSE.match(line) is not None or (
        len(words) > _FEW and len(words) > len(re.findall(r"[^\w\s]", line))
    )


def _wants(place: Place) -> str:
    """Names what the grammar would have taken, shortly."""
    accepts = place.accepts
    names: list[str] = []
    if {"QUANT", "DOTTED"} <= accepts:
        names.append("an expression")
    elif {"WORD", "STRING"} <= accepts:
        return "a word or a quoted text"
    else:
        names = [_WORDS[one] for one in sorted(accepts) if one in _WORDS and one != "_NL"]
        words = [one for one in CLAUSES if one.upper() in accepts - _CLASSES]
        names.extend(f"`{one}`" for one in words)
        if accepts & _OPERATOR_NAMES:
            names = [one for one in names if one != "`??`"]
            names.append("an operator")
    if not names or len(names) > _MAX_SHOWN:
        return ""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
