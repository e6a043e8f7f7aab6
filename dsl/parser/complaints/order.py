"""Why a statement could not be read, in policy words.

Works on text and on what the grammar would have taken; knows no parser. Each check looks for one
kind of mistake and the first that recognises it speaks.
"""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from dsl.parser.complaints import (
    attempts,
    brackets,
    calls,
    clauses,
    commas,
    connectives,
    habits,
    headings,
    labels,
    loops,
    misplaced,
    openings,
    phrases,
    signs,
    texts,
)
from dsl.parser.complaints.openings import DECLARATIONS, STATEMENTS
from dsl.parser.place import CLAUSES, Halt, Place, Refusal, place_of
from dsl.schema import FIELDS
from dsl.spelling import closest
from dsl.types import Kind

__all__ = ["DECLARATIONS", "STATEMENTS", "Refusal", "closest", "complain"]

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
#: How far around a place of a long statement the checks look.
_WINDOW: Final = 1000
#: Words of helps that stand for those of the author.
_PLACEHOLDER: Final = re.compile(
    r"\b(?:KEY|NAME|VALUE|OTHER|ELSE|CONDITION|QUERY|EXPRESSION|NUMBER|PARAM)\b|\.\.\."
)
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
    }
)
_LONG: Final = MappingProxyType(
    {"queueSort": "sort", "postFilter": "preempt", "preBind": "prebind", "postBind": "postbind",
     "avoid": "prefer"}
)  # fmt: skip
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


def complain(halt: Halt, *, of_test: bool = False) -> Refusal:
    """Names what is wrong where reading stopped; a test file's statement holds no expressions."""
    place = place_of(halt)
    text, start = halt.text, halt.start
    shift = max(0, start - _WINDOW)
    if len(text) > 2 * _WINDOW:
        for check in (brackets.open_text, brackets.unpaired):
            found = check(place)
            if found is not None:
                return found
        # The other checks look back from the place again and again: not over a text of any length.
        place = place_of(
            replace(
                halt,
                text=text[shift : start + _WINDOW],
                start=start - shift,
                end=halt.end - shift,
                alone=halt.alone or shift > 0,
                read=None,
            )
        )
    else:
        shift = 0
    checks = _GENERAL if of_test else _CHECKS
    told = next((one for one in (check(place) for check in checks) if _changes(place, one)), None)
    return _pasteable(told or _unexpected(place), text).shifted(shift)


def _pasteable(told: Refusal, text: str) -> Refusal:
    """Leaves out a fix that holds a word to be replaced, `label[KEY]`."""
    wanted = _PLACEHOLDER.search(told.fix or "")
    return told if wanted is None or wanted[0] in text else replace(told, fix=None, fix_at=None)


def _changes(place: Place, told: Refusal | None) -> bool:
    """Whether a check spoke, and does not propose what stands there."""
    if told is None or told.repair is None:
        return told is not None
    start, end, better = told.repair
    return place.text[start:end] != better


# ---- checks of policies and tests


def _unfinished(place: Place) -> Refusal | None:
    """The text ends where something is still needed."""
    if place.kind != "end":
        return None
    last = re.search(r"(->|[<>=!]=|[A-Za-z_$][\w./-]*|\d[\w.%]*|\S)\Z", place.before)
    word = last.group() if last else ""
    start = place.start - len(word)
    if place.keyword in openings.STATEMENTS and place.accepts == {"_ARROW"} | (
        place.accepts & _OPERATORS
    ):
        shape = _shape(place)
        if shape is not None:
            return place.at(start, place.start, "P009", f"`{word}` alone says nothing here", shape)
    key = re.search(r"(?:pod|node|namespace|it)\.(?:label|annotation|taint)s?\Z", place.before)
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


def _lone_weight(place: Place) -> Refusal | None:
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


def _dots(place: Place) -> Refusal | None:
    """`pod..name`, `.pod.name`, `pod.name.`."""
    found = re.search(r"[A-Za-z_][\w.]*\Z", place.bare[: place.start])
    start = found.start() if found is not None else place.start
    whole = re.match(r"\.?[A-Za-z_][\w]*(?:\.+[A-Za-z_]\w*)*\.?(?!\w)", place.text[start:])
    if whole is None or "." not in place.text[place.start : place.start + 2]:
        return None
    if ".." in whole.group() and place.text[:start].rstrip().endswith(" in"):
        return place.at(
            start, start + whole.end(), "P001", "a range holds numbers; words stand in a list",
            "write  [mon, tue, wed]",
        )  # fmt: skip
    better = re.sub(r"\.+", ".", whole.group()).strip(".")
    span = (start, start + whole.end())
    if better == whole.group() or not place.mends(*span, better):
        return None
    return place.instead(span, "P001", "one dot stands between the words of a field", better)


def _source(place: Place) -> Refusal | None:
    """`metric bw = rate(...)`, `metric bw = query "..."`."""
    found = re.match(r"metric[ \t]+(\w+)[ \t]*=[ \t]*", place.text)
    if found is None or place.start != found.end():
        return None
    line = place.text[place.start : place.line(place.start)[1]].strip()
    named = re.match(
        r"(?:from[ \t]+)?(?:(\w+)[ \t]*)?=?[ \t]*(?:\([ \t]*)?(\"[^\"]*\"|'[^']*')(?:[ \t]*\))?",
        line,
    )
    message = "a metric says where its values come from: promql, annotation, usage or object"
    if named is not None and named[1] and closest(named[1], _QUERIES) is None:
        end = place.start + named.end(1)
        what = (
            f"there is no source `{named[1]}`: values come from promql, annotation, usage, object"
        )
        return place.at(
            place.start, end, "P001", what, "what Prometheus scrapes is asked by promql"
        )
    bare = misplaced.query_of(line)[0]
    query = named[2] if named is not None else misplaced.in_quotes(bare)
    end = place.start + (named.end() if named is not None else len(bare))
    return place.instead((place.start, end), "P001", message, f"promql {query}")


#: Words for a query.
_QUERIES: Final = ("promql", "query", "prometheus", "prom", "promsql", "rate", "series", "metric")


def _by_label(place: Place) -> Refusal | None:
    """`by (instance)`, `over node.zone`, `over topology.kubernetes.io/zone`."""
    name = re.match(r"\(([ \t]*\w+[ \t]*)\)", place.behind)
    if name is not None and place.before.endswith(" by"):
        span = (place.start, place.start + name.end())
        return place.instead(span, "P001", "`by` takes the name alone", name[1].strip())
    over = re.search(r"over[ \t]+([\w]+)\Z", place.bare[: place.start])
    more = re.match(r"\.[\w./-]+", place.behind)
    if over is None or more is None or place.keyword != "spread":
        return None
    whole = over[1] + more.group()
    span = (over.start(1), place.start + more.end())
    if over[1] == "node":
        return place.instead(span, "P001", f"`{whole}` is no topology", more.group()[1:])
    return place.instead(span, "P001", "the key of a label stands in quotes", f'"{whole}"')


def _clause(place: Place) -> Refusal | None:
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


def _side_by_side(place: Place) -> Refusal | None:
    """`pod.name contains nginx node.label a=b`: nothing joins the two."""
    if "_ARROW" not in place.accepts and "AND" not in place.accepts:
        return None
    if re.search(r"(?:[:(]|->|\band|\bor|\bnot)[ \t]*[A-Za-z_]+\Z", place.before):
        return None
    path = re.match(r"(?:not[ \t]+)?(?:pod|node|namespace|it|cluster|zone|time)\.\w+", place.behind)
    if path is None or not place.mends(place.start, place.start, "and "):
        return None
    arrow = "_ARROW" in place.accepts and place.mends(place.start, place.start, "-> ")
    hints = ["to demand it of some pods write  ->   between them"] if arrow else []
    return place.refuse(
        "P001", "two conditions stand side by side", *hints, "to ask for both write  and"
    )


def _norm(place: Place) -> Refusal | None:
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


#: What makes a word the opposite of the one it looks like.
_NEGATION: Final = re.compile(r"un|not|non|no(?=r$)", re.IGNORECASE)


def _misspelt(place: Place) -> Refusal | None:
    """A word close to one that fits here."""
    if not re.fullmatch(r"[A-Za-z_]+", place.met) or place.met.lower() in connectives.WORDS:
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


def _hole(place: Place) -> Refusal | None:
    """`{load:.2f}`, `{load!r}`: formats of other languages in a message."""
    found = re.match(r"(:[.\w<>,]*|![rsa])[ \t]*\Z", place.text[place.start :])
    if not place.alone or found is None:
        return None
    expression = place.text[: place.start].strip()
    digits = re.search(r"\.(\d)", found.group())
    better = f"round({expression})" if digits is not None else expression
    return Refusal(
        "P013", "braces of a message hold an expression only", place.start, len(place.text),
        helps=(f"write  {{{better}}}",), fix=better, fix_at=(0, len(place.text)),
    )  # fmt: skip


def _unexpected(place: Place) -> Refusal:
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
    return [shape] if shape is not None else []


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


_CHECKS: Final[tuple[Callable[[Place], Refusal | None], ...]] = (
    phrases.contraction,
    texts.apostrophe,
    brackets.open_text,
    _hole,
    headings.doubled,
    headings.named,
    headings.items,
    openings.block,
    misplaced.clause_first,
    openings.clause_colon,
    openings.indented,
    openings.statement_word,
    openings.declaration,
    openings.param,
    openings.header,
    openings.same_line,
    loops.query,
    signs.comment,
    signs.braces,
    brackets.unpaired,
    misplaced.topology,
    misplaced.labels_compared,
    misplaced.annotates,
    misplaced.ranked,
    misplaced.whose_label,
    misplaced.default,
    misplaced.clock,
    misplaced.no_then,
    _source,
    attempts.clause,
    clauses.own,
    attempts.inner_quotes,
    attempts.aggregate,
    attempts.moments,
    attempts.weekdays,
    attempts.ordered,
    attempts.remainder,
    attempts.no_match,
    attempts.no_dot,
    attempts.beside,
    _by_label,
    texts.of_python,
    habits.aggregate,
    habits.condition,
    phrases.least_or_most,
    phrases.any_of,
    connectives.joined,
    phrases.glued,
    habits.number,
    _lone_weight,
    texts.odd_end,
    texts.odd_start,
    texts.unquoted,
    calls.cut,
    commas.colon,
    calls.call,
    calls.without_brackets,
    labels.compared,
    calls.index,
    habits.listed,
    labels.label_then_operator,
    labels.further,
    labels.value,
    phrases.sql_like,
    phrases.twice,
    phrases.again,
    phrases.phrase,
    phrases.upper_case,
    _norm,
    _misspelt,
    _clause,
    _side_by_side,
    texts.of_words,
    habits.times,
    habits.word_after_field,
    _dots,
    commas.comma,
    _unfinished,
    signs.signs,
    phrases.word_before,
)
_GENERAL: Final[tuple[Callable[[Place], Refusal | None], ...]] = (
    brackets.open_text,
    signs.comment,
    brackets.unpaired,
    habits.number,
    texts.unquoted,
    _misspelt,
    texts.of_words,
    _unfinished,
)
