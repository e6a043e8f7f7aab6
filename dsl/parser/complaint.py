"""Why a statement could not be read, in policy words.

Works on text and on what the grammar would have taken; knows no parser. Each check looks for one
kind of mistake and the first that recognises it speaks.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dsl.diagnostics import Diagnostic, Fix
from dsl.schema import FIELDS
from dsl.source import QUOTED_OR_COMMENT, SourceFile, Span

STATEMENTS: Final = (
    "policy", "description", "version", "language", "mode", "order", "weight", "gate", "preEnqueue",
    "sort", "queueSort", "prefilter", "preFilter", "filter", "require", "forbid", "preempt",
    "postFilter", "prescore", "preScore", "score", "first", "prefer", "avoid", "spread",
    "normalize", "reserve", "permit", "prebind", "preBind", "bind", "postbind", "postBind", "gang",
    "quota",
)  # fmt: skip
DECLARATIONS: Final = ("let", "param", "metric", "use")
_CLAUSES: Final = (
    "message", "status", "weight", "normalize", "missing", "reverse", "every", "stale", "default",
    "unit", "by", "from", "to", "one", "of", "over", "where", "then", "else", "and", "or", "not",
    "in", "is", "contains", "like", "matches", "asc", "desc", "order", "pick", "limit", "across",
    "nodes", "victims", "never", "skew", "hard", "peers", "wait", "until", "allow", "reject",
    "annotate", "label", "event", "with", "min", "max", "elastic", "reclaim", "within", "backoff",
    "promql", "annotation", "usage", "object", "field", "enforce", "shadow", "off", "canary",
    "unschedulable", "unresolvable", "minmax", "none", "rank", "string", "number", "quantity",
    "duration", "bool", "time",
)  # fmt: skip
_OPERATORS: Final = {
    "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "===": "==", "<>": "!=",
    "=<": "<=", "=>": "->", "=!": "!=", "~=": "matches", "=~": "matches", "!~": "not ... matches",
    "!==": "!=", "→": "->", "**": "pow(x, y)", "^": "pow(x, y)", "%": "mod(a, b)",
    "?": "if ... then ... else ...", "--": "-", "->>": "->", "++": "+",
}  # fmt: skip
_UNITS: Final = {
    "sec": "s", "secs": "s", "seconds": "s", "mins": "min",
    "minutes": "min", "hr": "h", "hrs": "h", "hours": "h", "days": "d", "day": "d", "kb": "Ki",
    "mb": "Mi", "gb": "Gi", "tb": "Ti", "kib": "Ki", "mib": "Mi", "gib": "Gi", "tib": "Ti",
    "ki": "Ki", "mi": "Mi", "gi": "Gi", "ti": "Ti", "g": "G or Gi", "t": "T or Ti", "K": "k or Ki",
    "b": "", "x": "", "us": "ms", "ns": "ms", "y": "d", "B": "",
}  # fmt: skip
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
_OPERATOR_NAMES: Final = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "__ANON_1"})
_LABELS_OF: Final = tuple(
    f"{owner}.{part}"
    for owner in ("node", "pod", "namespace", "it")
    for part in ("label", "annotation")
)
_MAX_SHOWN: Final = 5
_MAX_DISTANCE: Final = 2


@dataclass(frozen=True, slots=True)
class Refusal:
    """A finding whose places count from the start of the statement's text."""

    code: str
    message: str
    start: int
    end: int
    label: str = ""
    helps: tuple[str, ...] = ()
    fix: str | None = None
    continues: str = ""

    def diagnostic(self, source: SourceFile, base: int, size: int) -> Diagnostic:
        """Returns the finding with its place in the file."""
        message = self.message
        if self.continues:
            line = source.position(base)[0]
            message += f" `{self.continues}` of line {line}"
        span = Span(min(base + self.start, size), min(base + self.end, size))
        fix = Fix(span, self.fix) if self.fix is not None else None
        return Diagnostic(
            self.code, message, source, span, label=self.label, helps=self.helps, fix=fix
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where reading stopped.

    Attributes:
        before: the text up to there, comments and the insides of texts blanked out.
        met: what stands there: a word, a sign, or nothing at the end.
    """

    text: str
    bare: str
    start: int
    end: int
    accepts: frozenset[str]
    kind: str
    met: str

    @property
    def before(self) -> str:
        return self.bare[: self.start].rstrip()

    def refuse(self, code: str, message: str, *helps: str, fix: str | None = None) -> Refusal:
        return Refusal(code, message, self.start, self.end, helps=helps, fix=fix)

    def at(self, start: int, end: int, code: str, message: str, *helps: str) -> Refusal:
        return Refusal(code, message, start, end, helps=helps)


def complain(text: str, start: int, end: int, accepts: frozenset[str], kind: str) -> Refusal:
    """Names what is wrong at a place of a statement."""
    bare = QUOTED_OR_COMMENT.sub(_blank, text)
    if kind == "end":
        start = end = len(bare[:start].rstrip()) if start < len(bare) else len(bare.rstrip())
        met = ""
    else:
        met = _met(text, start, end)
        end = max(start + len(met), start + 1)
    place = _Place(text, bare, start, end, accepts, kind, met)
    for check in _CHECKS:
        found = check(place)
        if found is not None:
            return found
    return _unexpected(place)


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    if text.startswith("#"):
        return " " * len(text)
    return '"' + " " * (len(text) - 2) + '"' if len(text) > 1 else text


def _met(text: str, start: int, end: int) -> str:
    found = re.compile(r"[A-Za-z_$][\w.]*|\d[\w.%]*|[&|=<>!~?*^+%-]+").match(text, start)
    return found.group() if found is not None else text[start : max(end, start + 1)]


# ---- checks, most telling first


def _indented(place: _Place) -> Refusal | None:
    """An indented line that looks like a statement of its own."""
    line_start = place.text.rfind("\n", 0, place.start) + 1
    if line_start == 0:
        return None
    line = place.text[line_start:]
    found = re.match(r"[ \t]+(([A-Za-z]+)[ \t]*:|(let|param|metric|use)[ \t]+\w+[ \t]*[=(:])", line)
    if found is None:
        return None
    word = found.group(2) or found.group(3)
    first = line_start + len(line) - len(line.lstrip(" \t"))
    if word not in (*STATEMENTS, *DECLARATIONS) or place.start > line_start + found.end():
        return None
    return Refusal(
        "P012",
        "this line is indented, so it continues the",
        first,
        first + len(word),
        label="a new statement starts in column 1",
        helps=("remove the leading spaces",),
        continues=re.match(r"\w*", place.text).group(),  # type: ignore[union-attr]  # may be empty
    )


def _statement_word(place: _Place) -> Refusal | None:
    """What stands in column 1."""
    found = re.match(r"([A-Za-z_]+)", place.text)
    if found is None:
        if place.start > 0:
            return None
        sign = place.text[:1]
        return place.at(
            0,
            1,
            "P004",
            f"a statement does not start with `{sign}`",
            "a statement starts with its word in column 1:  filter: ...",
        )
    word = found.group()
    rest = place.text[found.end() :].lstrip(" \t")
    if place.start > found.end() + 1 + len(place.text[found.end() :]) - len(rest):
        return None
    if word in STATEMENTS:
        if not rest.startswith(":"):
            return place.at(0, len(word), "P005", f"`{word}` needs a colon", f"write  {word}: ...")
        return None
    if word in DECLARATIONS or word == "applies":
        return None
    near = closest(word, (*STATEMENTS, *DECLARATIONS))
    hints = [f"did you mean `{near}`?"] if near else []
    if not near and re.match(r"=[^=]", rest):
        hints = [f"to give a value a name write  let {word} {rest.splitlines()[0].strip()}"]
    return place.at(0, len(word), "P004", f"there is no statement `{word}`", *hints)


def _declaration(place: _Place) -> Refusal | None:
    """A declaration without its `=`, or with a colon behind its word."""
    found = re.match(r"(let|param|metric)\b[ \t]*(:?)[ \t]*([A-Za-z_]\w*)?", place.text)
    if found is None or place.start > found.end() + 1:
        return None
    word, colon, name = found.groups()
    if colon:
        return place.at(
            found.start(2),
            found.end(2),
            "P005",
            f"`{word}` takes no colon",
            f"write  {word} {name or 'NAME'} = ...",
        )
    if name is None:
        return place.refuse("P009", f"`{word}` needs a name", f"write  {word} NAME = ...")
    if place.met != "=" and "EQUAL" in place.accepts and word != "param":
        return place.refuse("P005", f"`{word} {name}` needs a `=`", f"write  {word} {name} = ...")
    return None


def _open_text(place: _Place) -> Refusal | None:
    """A quote without its partner."""
    plain = QUOTED_OR_COMMENT.sub(lambda found: " " * len(found.group()), place.text)
    for sign in ('"""', '"', "'"):
        at = plain.find(sign)
        if 0 <= at <= place.start:
            line = place.text[at:].split("\n", 1)[0].rstrip()
            return place.at(
                at, at + len(sign), "P002", "this text is never closed", f"write  {line}{sign}"
            )
    raw = place.text.find('"""')
    if 0 <= raw <= place.start and place.text.count('"""') % 2:
        return place.at(raw, raw + 3, "P002", "this text is never closed", 'end it with  """')
    return None


def _brackets(place: _Place) -> Refusal | None:
    """Brackets that are open at the end, or close nothing."""
    opened: list[int] = []
    for at, sign in enumerate(place.bare[: place.start]):
        if sign in "([":
            opened.append(at)
        elif sign in ")]" and opened:
            opened.pop()
    if place.met in (")", "]") and not opened:
        return place.refuse("P002", f"`{place.met}` closes nothing", fix="")
    if opened and (place.kind == "end" or place.met == "->"):
        sign = place.bare[opened[-1]]
        return place.at(opened[-1], opened[-1] + 1, "P002", f"this `{sign}` is never closed")
    return None


def _number(place: _Place) -> Refusal | None:
    """Numbers that are almost right: `.5`, `+5`, `1w`, `5 Gi`."""
    rest = place.text[place.start :]
    takes_value = "QUANT" in place.accepts or "NAME" in place.accepts
    found = re.match(r"\.\d+", rest)
    if found:
        return place.at(
            place.start, place.start + found.end(), "P007",
            "a number starts with a digit", f"write  0{found.group()}",
        )  # fmt: skip
    found = re.match(r"\+[ \t]*(\d[\w.]*)", rest)
    if found and takes_value:
        return place.at(
            place.start, place.start + found.end(), "P007",
            "a number has no plus sign", f"write  {found.group(1)}",
        )  # fmt: skip
    found = re.match(r"(\d+(?:\.\d+)?)([A-Za-z]+)\b", rest)
    if found:
        number, unit = found.groups()
        if unit in ("w", "weeks", "week"):
            number, unit = f"{float(number) * 7:g}", "days"
        better = _UNITS.get(unit) or _UNITS.get(unit.lower())
        hint = f"write  {number}{better}" if better else "units are s min h d, m, Ki Mi Gi, k M G"
        return place.at(
            place.start, place.start + found.end(), "P007",
            f"`{found.group()}` is not a number", hint,
        )  # fmt: skip
    found = re.match(r"\d+\.(?!\.)", rest)
    if found:
        return place.at(
            place.start, place.start + found.end(), "P007",
            f"`{found.group()}` is not a number", f"write  {found.group()}0",
        )  # fmt: skip
    return None


def _equals(place: _Place) -> Refusal | None:
    """`=` where `==` or `is` is meant."""
    if place.met != "=":
        return None
    left = re.search(r"[\w.$\[\]/-]+\Z", place.before)
    word = left.group() if left else "x"
    right = re.match(r"=[ \t]*(\S+)", place.text[place.start :])
    value = right.group(1) if right else "value"
    return place.refuse(
        "P014",
        "`=` is for names and labels; a comparison is written `==` or `is`",
        f"write  {word} is {value}",
        fix="is",
    )


def _chained(place: _Place) -> Refusal | None:
    """`a < b < c`."""
    if place.met not in ("<", "<=", ">", ">=", "==", "!=") or place.kind != "RELOP":
        return None
    if not re.search(r"[<>=!]=|[<>]", place.before.split("->")[-1].replace("->", "")):
        return None
    return place.refuse("P014", "comparisons do not chain", "join two of them:  a < b and b < c")


def _operator(place: _Place) -> Refusal | None:
    """Signs of other languages."""
    met = place.met
    for size in (3, 2, 1):
        better = _OPERATORS.get(met[:size])
        if better is not None and (len(met) >= size):
            end = place.start + size
            word = met[:size]
            return Refusal(
                "P014",
                f"`{word}` is not an operator here",
                place.start,
                end,
                helps=(f"write `{better}`",),
                fix=better if " " not in better and "(" not in better else None,
            )
    if met in ("{", "}", ";", "\\"):
        return place.refuse("P014", f"`{met}` has no meaning here", fix="")
    return None


def _word_after_field(place: _Place) -> Refusal | None:
    """`node.lable test=test`, `pod.namespace prod`: a word right behind a field."""
    found = re.search(r"(?<![\w.$])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\Z", place.before)
    if found is None or not re.fullmatch(r"[A-Za-z_][\w.]*", place.met):
        return None
    field = found.group(1)
    if field not in FIELDS:
        near = closest(field, (*_LABELS_OF, *FIELDS))
        if near is None:
            return None
        return Refusal(
            "P101",
            f"there is no field `{field}`",
            found.start(1),
            found.end(1),
            helps=(f"did you mean `{near}`?",),
            fix=near,
        )
    if place.met in _CLAUSES:
        return None
    return place.refuse(
        "P001", f"`{place.met}` does not fit here", f"write  {field} is {place.met}"
    )


def _after_word(place: _Place) -> Refusal | None:
    """A text that needs quotes: `nginx:1.25`, `my app`, a message without quotes."""
    before = place.before
    if before.endswith("message") and "STRING" in place.accepts:
        line = place.text[place.start :].split("\n", 1)[0].strip()
        return place.refuse("P001", "a message is a quoted text", f'write  message "{line}"')
    if before.endswith("matches") and "STRING" in place.accepts:
        pattern = re.match(r"\S+", place.text[place.start :])
        shown = pattern.group() if pattern else ""
        return place.refuse(
            "P001", "a regular expression stands in quotes", f"write  matches '{shown}'"
        )
    if before.endswith("promql") and "STRING" in place.accepts:
        return place.refuse("P001", "a query stands in quotes", 'write  promql "..."')
    tested = re.search(r"(contains|starts with|ends with|is|is not|like|=)[ \t]+(\S+)\Z", before)
    if tested is None or place.kind == "end":
        return None
    operator, word = tested.group(1), tested.group(2)
    tail = re.match(r"[^\s()\[\],]*", place.text[place.start :])
    more = tail.group() if tail else ""
    if place.start > len(before) and place.kind not in ("RELOP", "character") and more.isalnum():
        return place.refuse(
            "P001",
            f"`{more}` does not fit here",
            f'a text with blanks:  {operator} "{word} {more}"',
        )
    if place.start == len(before) and more:
        start = place.start - len(word)
        if more.startswith("*") and operator in ("contains", "is", "starts with", "ends with"):
            hint = f"write  like {word}{more}"
        else:
            hint = f'write  {operator} "{word}{more}"'
        return place.at(
            start, place.start + len(more), "P001", f"`{word}{more}` needs quotes", hint
        )
    return None


def _label_then_operator(place: _Place) -> Refusal | None:
    """`node.label a like b`: a label test knows symbols and `in` only."""
    found = re.search(r"((?:pod|node|namespace|it)\.\w+)[ \t]+([\w./-]+)\Z", place.before)
    if found is None or place.met not in (
        "like", "contains", "matches", "is", "starts", "ends", "??",
    ):  # fmt: skip
        return None
    field, key = found.groups()
    return place.at(
        found.start(),
        found.end(),
        "P001",
        f"`{place.met}` wants the value of a label",
        f"write  {field}[{key}] {place.met} ...",
    )


def _unfinished(place: _Place) -> Refusal | None:
    """The text ends where something is still needed."""
    if place.kind != "end":
        return None
    last = re.search(r"(->|[<>=!]=|[A-Za-z_$][\w.]*|\S)\Z", place.before)
    word = last.group() if last else ""
    start = place.start - len(word)
    wants = _wants(place)
    what = f", {wants} is needed" if wants else ""
    if word:
        return place.at(start, place.start, "P009", f"nothing follows `{word}`{what}")
    return place.refuse("P009", f"the statement ends too early{what}")


def _misspelt(place: _Place) -> Refusal | None:
    """A word close to one that fits here."""
    if not re.fullmatch(r"[A-Za-z_]+", place.met):
        return None
    fitting = [one for one in _CLAUSES if one.upper() in place.accepts or _of_class(one, place)]
    near = closest(place.met, [one for one in fitting if one != place.met])
    if near is None:
        return None
    return place.refuse(
        "P001", f"`{place.met}` does not fit here", f"did you mean `{near}`?", fix=near
    )


def _of_class(word: str, place: _Place) -> bool:
    classes = {
        "MODE": ("enforce", "shadow", "off", "canary"),
        "STATUS_CODE": ("unschedulable", "unresolvable"),
        "NORM": ("none", "minmax", "default", "rank"),
        "TYPE": ("string", "number", "quantity", "duration", "bool", "time"),
        "TEXTOP": ("contains",),
    }
    return any(name in place.accepts and word in words for name, words in classes.items())


def _unexpected(place: _Place) -> Refusal:
    """Whatever is left: what stands here, and what could."""
    wants = _wants(place)
    hints = [f"{wants} fits here"] if wants else []
    met = place.met if place.met.isprintable() else "this character"
    if place.met.lower() in ("true", "yes", "then") and not hints:
        hints = []
    return place.refuse("P001", f"`{met}` does not fit here", *hints)


def _wants(place: _Place) -> str:
    """Names what the grammar would have taken, shortly."""
    accepts = place.accepts
    names: list[str] = []
    if {"QUANT", "DOTTED"} <= accepts:
        names.append("an expression")
    else:
        names = [_WORDS[one] for one in sorted(accepts) if one in _WORDS and one != "_NL"]
        words = [one for one in _CLAUSES if one.upper() in accepts]
        names.extend(f"`{one}`" for one in words)
        if accepts & _OPERATOR_NAMES:
            names = [one for one in names if one != "`??`"]
            names.append("an operator")
    if not names or len(names) > _MAX_SHOWN:
        return ""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def closest(word: str, words: tuple[str, ...] | list[str]) -> str | None:
    """Returns the nearest word within two changes."""
    best, best_distance = None, min(_MAX_DISTANCE, (len(word) - 1) // 2) + 1
    for other in words:
        distance = _distance(word.lower(), other.lower())
        if distance < best_distance:
            best, best_distance = other, distance
    return best


def _distance(left: str, right: str) -> int:
    if abs(len(left) - len(right)) > _MAX_DISTANCE:
        return _MAX_DISTANCE + 1
    older: list[int] = []
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]


_CHECKS: Final[tuple[Callable[[_Place], Refusal | None], ...]] = (
    _open_text,
    _indented,
    _statement_word,
    _declaration,
    _brackets,
    _number,
    _label_then_operator,
    _word_after_field,
    _after_word,
    _chained,
    _equals,
    _unfinished,
    _operator,
    _misspelt,
)
