"""Signs of other languages within a statement, and what is written here instead.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.choices import ternary
from dsl.parser.complaints.place import FIELD, LAST_VALUE, OWNER, PATH, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS
from dsl.spelling import field_for

#: Signs of other languages.
_SIGNS: Final = MappingProxyType(
    {
        "&&": "and", "&": "and", "||": "or", "|": "or", "!": "not", "===": "==", "<>": "!=",
        "=<": "<=", "=>": "->", "=!": "!=", "~=": "matches", "=~": "matches", "~": "matches",
        "!==": "!=", "==>": "->", "-->": "->", "->>": "->", "=->": "->", "--": "-", "++": "+",
        "*=": "like", "^=": "starts with", "$=": "ends with", "??=": "??", "|=": "or",
        ">>": ">", "<<": "<", "&&&": "and", "|||": "or", ">==": ">=", "<==": "<=",
        "::": ":", ":=": "==", "~>": "->", "|>": "->", "->>>": "->", "--->": "->",
    }
)  # fmt: skip
_FUNCTIONS_OF_SIGNS: Final = MappingProxyType({"**": "pow", "^": "pow", "%": "mod", "//": "floor"})
_WORD_SIGNS: Final = frozenset({"and", "or", "not", "matches", "like", "starts with", "ends with"})


def comment(place: Place) -> Refusal | None:
    """`// text`, `/* text */`, `-- text`."""
    start, end, run = place.signs()
    stop = place.text.find("\n", start)
    stop = len(place.text) if stop < 0 else stop
    if run[:2] in ("//", "/*"):
        at = start
    else:
        line = place.bare.rfind("\n", 0, place.start) + 1
        dashes = re.search(r"(?:^|[ \t])(--)[ \t]+[A-Za-z]", place.bare[line:stop])
        if dashes is None or line + dashes.start(1) > place.start or (run == "--" and end < 0):
            return None
        at = line + dashes.start(1)
    sign = place.text[at : at + 2]
    if sign == "//" and _divides(place, at, stop):
        return None
    close = place.text.find("*/", at, stop) if sign == "/*" else -1
    rest = place.text[close + 2 : stop].strip() if close > 0 else ""
    body = place.text[at + 2 : stop if close < 0 else close].strip()
    if rest:
        # What stands behind the comment belongs to the statement.
        better = rest if "#" in rest else f"{rest}  # {body}"
        return Refusal(
            "P014", f"a comment starts with `#`, not with `{sign}`, and ends its line", at,
            close + 2, helps=(f"put it behind the rest:  {better}",), fix=better,
            fix_at=(at, stop),
        )  # fmt: skip
    return Refusal(
        "P014", f"a comment starts with `#`, not with `{sign}`", at, at + 2,
        helps=(f"write  # {body}",), fix=f"# {body}", fix_at=(at, stop),
    )  # fmt: skip


_NUMERIC: Final = frozenset({"let", "score", "prescore", "prefer", "avoid", "sort", "queueSort"})


def _divides(place: Place, at: int, stop: int) -> bool:
    """Whether `//` is that of Python: a value stands on either side."""
    left = LAST_VALUE.search(place.bare[:at].rstrip())
    right = re.compile(rf"//[ \t]*(?:(?P<name>{PATH})|[\d(])").match(place.bare, at, stop)
    if left is None or right is None:
        return False
    name = right["name"]
    if name is None or name.split("[")[0] in FIELDS:
        return True
    behind = place.bare[right.end() : stop].strip()
    return place.keyword in _NUMERIC and (not behind or behind[0] in "*/+-)")


def braces(place: Place) -> Refusal | None:
    """Templates, blocks, line ends of other languages."""
    behind = place.text[place.start :]
    template = re.match(
        r"\{\{[ \t]*[.$]?(?:\w+\.)*(\w+)[^}\n]*\}\}|\$\{?\{?(?:\w+\.)*(\w+)\}?\}?", behind
    )
    if template is not None and behind[:2] in ("{{", "${"):
        name = (template[1] or template[2] or "name").lower()
        better = f"${name}"
        help_ = f"declare  param {name}: string = VALUE  and write  {better}"
        return Refusal(
            "P014", "nothing fills in this template: a policy has parameters", place.start,
            place.start + template.end(), helps=(help_,), fix=better,
        )  # fmt: skip
    path = re.match(r"\$\.([\w.]+)|\{\.([\w.]+)\}", behind)
    if path is not None:
        found = field_for(path[1] or path[2])
        span = (place.start, place.start + path.end())
        if found is not None:
            return place.instead(span, "P001", "fields are written without a `$`", found.text)
        return place.at(*span, "P001", "fields start with pod, node, namespace or cluster")
    met = behind[:1]
    if met == "`":
        word = re.match(r"`([^`\n]*)`?", behind)
        if word is not None and "${" in word[1]:
            parts = [one for one in re.split(r"(\$\{[^{}]*\})", word[1]) if one]
            shown = [one[2:-1] if one.startswith("${") else f'"{one}"' for one in parts]
            better = f"join({', '.join(shown)})" if shown[1:] else shown[0]
            span = (place.start, place.start + word.end())
            return place.instead(span, "P014", "texts are put together by `join`", better)
        if word is not None:
            span = (place.start, place.start + word.end())
            return place.instead(span, "P014", "names take no backticks", word[1])
    if met == ";" and place.before.rfind("[") > place.before.rfind("]"):
        span = (place.start, place.start + 1)
        return place.instead(span, "P014", "items of a list are parted by commas", ",")
    if met == ";":
        tail = place.line(place.start)[1]
        last = place.start + 1 >= tail
        help_ = "leave it out" if last else "put what follows on a line of its own, or write `and`"
        return Refusal(
            "P014", "`;` has no meaning here", place.start, place.start + 1, helps=(help_,),
            fix="" if last else None,
        )  # fmt: skip
    if met == "\\":
        return Refusal(
            "P014", "`\\` has no meaning here: an indented line continues the statement",
            place.start, place.start + 1, helps=("leave it out",), fix="",
        )  # fmt: skip
    return _braced(place) if met in ("{", "}") else None


def _braced(place: Place) -> Refusal:
    close = place.closing(place.start) if place.text[place.start] == "{" else -1
    inside = place.text[place.start + 1 : close] if close > 0 else ""
    span = (place.start, close + 1)
    if close > 0 and re.search(r"\bin\Z", place.before):
        better = f"[{inside.strip()}]"
        return place.instead(span, "P014", "a list stands in square brackets", better)
    series = re.search(r"([A-Za-z_]\w*)\Z", place.before)
    if close > 0 and series is not None and "=" in inside and ":" not in inside:
        return place.at(
            series.start(), close + 1, "P014", "a series of Prometheus is read by a metric",
            f"write above  metric NAME = promql '{place.text[series.start() : close + 1]}'"
            " by instance",
        )  # fmt: skip
    if close > 0 and inside.strip() and place.mends(*span, f"({inside.strip()})"):
        return place.instead(span, "P014", "there are no braces here", f"({inside.strip()})")
    return Refusal(
        "P014", "there are no braces here: a statement is one line", place.start, place.start + 1,
        helps=("join conditions by `and`, and continue a line by indenting the next",),
    )  # fmt: skip


def signs(place: Place) -> Refusal | None:
    """Operators of other languages."""
    start, end, run = place.signs()
    if run == "->":
        return _arrow(place, start)
    chained = _chained(place)
    if chained is not None and run not in _SIGNS:
        return chained
    if not run:
        return None
    if run[:1] == "?" and run != "??":
        return ternary(place, start)
    if run[0] in "*^%/" and run in _FUNCTIONS_OF_SIGNS:
        return _function_of_sign(place, start, run)
    return _arrow_or_sign(place, (start, end), run)


def _arrow_or_sign(place: Place, span: tuple[int, int], run: str) -> Refusal | None:
    start, end = span
    if re.fullmatch(r"-[ \t]+>", place.bare[start : start + 3]) and run == "-":
        return place.instead((start, start + 3), "P014", "an arrow has no blank in it", "->")
    if run.strip("=") == "~" and not place.bare[end : place.line(start)[1]].strip():
        help_ = "what is looked for stands in quotes behind it:  matches '...'"
        return place.at(start, end, "P009", f"nothing follows `{run}`", help_)
    if run == "~=" and re.match(r"[ \t]*(?:nil|null|none|true|false|\d)", place.bare[end:]):
        # As Lua says `!=`.
        return _sign(place, span, "!=")
    if run == "=>" and _compares(place, start, end):
        return _sign(place, span, ">=")
    for size in range(len(run), 0, -1):
        better = _SIGNS.get(run[:size])
        if better is None or start + size <= place.start - 1:
            continue
        if size < len(run) and run[size] not in "!-+(":
            continue
        return _sign(place, (start, start + size), better)
    if run == "=":
        return _equals(place)
    if run in ("+=", "-=", "*=", "/="):
        return place.at(start, end, "P014", "nothing is assigned here: values do not change")
    return None


def _compares(place: Place, start: int, end: int) -> bool:
    """Whether `=>` means `>=`: a number follows, or the rule has its arrow elsewhere."""
    amount = re.match(r"[ \t]*(?:\d|\$\w)", place.bare[end:])
    if amount is None and "->" not in place.bare:
        return False
    return place.mends(start, end, ">=")


def _arrow(place: Place, start: int) -> Refusal | None:
    """A second arrow, or one where a condition belongs."""
    before = place.bare[:start].rstrip()
    if before.endswith("->"):
        return Refusal("P001", "`->` stands twice", start, start + 2, helps=("leave one out",),
                       fix="")  # fmt: skip
    if "->" in before:
        return _second_arrow(place, start)
    if before.endswith(":"):
        return Refusal(
            "P009", "nothing stands before `->`", start, start + 2,
            helps=("for all pods leave it out",), fix="",
        )  # fmt: skip
    operator = re.search(r"\b(contains|is|in|and|or|not|like|matches|with)\Z|[<>=+*/-]\Z", before)
    if operator is not None:
        return Refusal(
            "P009", f"nothing follows `{operator.group()}`", operator.start(), operator.end(),
            helps=("a word, a text or an expression is needed",),
        )  # fmt: skip
    if place.text.startswith("applies"):
        return Refusal(
            "P001", "`applies to` takes one condition", start, start + 2,
            helps=("join conditions by `and`",), fix="and",
        )  # fmt: skip
    return None


#: What is known of a pod before any node is looked at.
_OF_POD: Final = ("pod.", "namespace.", "workload.", "group.", "time.")
_OF_NODE: Final = re.compile(r"(?<![\w.$])(?:node|zone|region|rack|it|least|most|peers)\b")


def _second_arrow(place: Place, start: int) -> Refusal:
    """`A -> B -> C`: a B that asks for nothing of the node is one more condition of the pod."""
    message = "a rule has one `->`"
    first = place.bare.index("->")
    head = re.match(r"\w+[ \t]*:[ \t]*", place.text)
    opened = head.end() if head is not None else 0
    sides = [place.text[slice(*one)].strip() for one in ((opened, first), (first + 2, start))]
    bare = place.bare[first + 2 : start]
    fields = [one.group() for one in FIELD.finditer(bare)]
    if fields and all(one.startswith(_OF_POD) for one in fields) and not _OF_NODE.search(bare):
        one, two = (f"({side})" if re.search(r"\b(?:or|if)\b", side) else side for side in sides)
        better = f"{one} and {two}"
        span = (opened, start)
        return Refusal(
            "P001", message, first, first + 2, helps=(f"write  {better} -> ...",),
            fix=f"{better} ", fix_at=span,
        )  # fmt: skip
    # Of the nodes, or of the pod: what B is about decides what is meant, and that is not known.
    rest = place.text[start + 2 : place.line(start)[1]].strip()
    if rest.startswith(("least ", "most ")) or place.keyword in ("score", "sort"):
        return place.at(start, start + 2, "P001", message, "write a line for each of the two")
    return place.at(
        start, start + 2, "P001", message,
        f"to demand both write  {sides[0]} -> {sides[1]} and {rest}",
        f"to demand the last where the others hold write  {sides[0]} and {sides[1]} -> {rest}",
    )  # fmt: skip


def _sign(place: Place, span: tuple[int, int], better: str) -> Refusal | None:
    start, end = span
    word = place.text[start:end]
    if better == "->" and "_ARROW" not in place.accepts and not place.mends(start, end, "->"):
        return None
    number = re.compile(r"[ \t]*\d[\w.]*[ \t]*(?:\Z|\n|\))").match(place.bare, end)
    if word == "||" and number is not None and re.search(r"[A-Za-z_]\w*\Z", place.before):
        # A condition is no number: what is meant is a value where there is none.
        better = "??"
    fix = better
    if better in _WORD_SIGNS:
        left = "" if start == 0 or place.text[start - 1] in " \t(" else " "
        right = "" if place.text[end : end + 1].isspace() else " "
        fix = f"{left}{better}{right}"
    piped = re.compile(r"\|[ \t]*[a-z]\w*[ \t]*(?:\(|\||$)", re.MULTILINE).match(place.bare, start)
    if word == "|" and piped is not None:
        help_ = "calls stand one in the other:  contains (lower(pod.name))   or   len(x) > 1"
        return place.at(start, end, "P014", "nothing is handed on by `|` here", help_)
    if word == "!" and place.before.endswith(_TESTED):
        owner = place.before.split()[-1]
        return place.at(
            start, end, "P014", "`not` stands before the test", f"write  not {owner} KEY"
        )
    if word == "!" and re.search(r"\.(label|annotation)s?[ \t]+[\w./-]+\Z", place.before):
        return Refusal("P014", "`!` is not an operator here", start, end, helps=("write  !=",),
                       fix="!=")  # fmt: skip
    return Refusal(
        "P014", f"`{word}` is not an operator here", start, end, helps=(f"write  {better}",),
        fix=fix,
    )  # fmt: skip


_DECLARED: Final = MappingProxyType(
    {
        "let": "let NAME = EXPRESSION",
        "param": "param NAME: number = 5 from 1 to 10",
        "metric": 'metric NAME = promql "QUERY" by node',
    }
)
_OWNERS: Final = ("pod", "node", "namespace", "it", "workload", "cluster", "time")
_TESTED: Final = ("node.label", "pod.label", "node.annotation", "pod.annotation", "it.label")


def _equals(place: Place) -> Refusal | None:
    """`=` where `==` or `is` is meant."""
    left = LAST_VALUE.search(place.before)
    right = re.match(r"=[ \t]*([^\s()]+)", place.text[place.start :])
    value = right[1] if right is not None else "value"
    word = place.text[left.start() : left.end()] if left is not None else ""
    if place.keyword in ("quota",) and "WORD" in place.accepts:
        return Refusal(
            "P014", "no sign stands between a resource and its amount", place.start,
            place.start + 1, helps=(f"write  {word} {value}",), fix=" ",
        )  # fmt: skip
    if place.keyword in ("let", "param", "metric"):
        return place.refuse(
            "P014", f"a `{place.keyword}` has one `=`, behind its name",
            "write for example  " + _DECLARED[place.keyword],
        )  # fmt: skip
    key = re.search(r"(?:and|or|not|,)[ \t]+([A-Za-z0-9][\w./-]*)\Z", place.before)
    labels = re.search(rf"({OWNER}\.\w+)[ \t]+[\w./-]+[ \t]*=[^=]", place.before)
    if key is not None and labels is not None and "." not in word:
        start = key.start(1)
        better = f"{labels[1]} {key[1]}"
        return Refusal(
            "P014", "each label test names whose label it is", start, place.start,
            helps=(f"write  {better}={value}",), fix=better, fix_at=(start, len(place.before)),
        )  # fmt: skip
    if place.before.endswith("="):
        return None
    bare = re.search(r"->[ \t]*([A-Za-z0-9][\w./-]*)\Z", place.before)
    if bare is not None and bare[1].split(".")[0] not in _OWNERS and re.match(r"[\w./-]+$", value):
        better = f"node.label {place.text[bare.start(1) : bare.end(1)]}={value}"
        end = place.start + len(right.group()) if right is not None else place.start + 1
        return place.instead(
            (bare.start(1), end), "P014", "whose label this is stands in front", better
        )
    message = "`=` is for names and labels; a comparison is written `==` or `is`"
    if re.search(rf"{OWNER}\.\w+[ \t]+[\w./-]+=[\w./-]+\Z", place.before):
        return place.refuse("P014", "a label test has one `=`; other texts stand in quotes")
    if place.before.endswith(_TESTED):
        owner = place.before.split()[-1]
        return place.refuse(
            "P009", f"`{owner}` needs the key of a label", f"write  {owner} KEY={value}"
        )
    bare_word = re.match(r"=[ \t]*(?![\d$\"'(])[^\s()]*", place.text[place.start :])
    field = bare_word is not None and value.split("[")[0] in FIELDS
    better = "==" if field or bare_word is None else "is"
    return Refusal(
        "P014", message, place.start, place.start + 1,
        helps=(f"write  {word or 'x'} {better} {value}",), fix=_padded(place, better),
    )  # fmt: skip


def _padded(place: Place, word: str) -> str:
    left = "" if place.text[place.start - 1 : place.start].isspace() else " "
    right = "" if place.text[place.start + 1 : place.start + 2].isspace() else " "
    return f"{left}{word}{right}"


def _chained(place: Place) -> Refusal | None:
    """`a < b < c`."""
    if place.met not in ("<", "<=", ">", ">=", "==", "!=") or place.kind != "RELOP":
        return None
    operand = r"([^\s<>=!()]+(?:\([^()]*\))?)"
    chain = re.search(rf"{operand}[ \t]*([<>]=?|==|!=)[ \t]*{operand}\Z", place.before)
    if chain is None:
        return None
    middle = place.text[chain.start(3) : chain.end(3)]
    return Refusal(
        "P014", "comparisons do not chain", place.start, place.start + len(place.met),
        helps=(f"write  {place.text[chain.start() : chain.end()]} and {middle} {place.met} ...",),
        fix=f"and {middle} {place.met}",
    )  # fmt: skip


def _function_of_sign(place: Place, start: int, run: str) -> Refusal | None:
    """`a ** b`, `a % b`, `a // b`, `10 %`, `like %x%`."""
    number = re.search(r"(\d[\d.]*)[ \t]*\Z", place.bare[:start])
    right = re.match(rf"[ \t]*({PATH}|\d[\w.%]*|\([^()]*\))", place.text[start + len(run) :])
    if run == "%":
        glob = re.search(r"\b(?:like|LIKE|contains|is)[ \t]*\S*\Z", place.bare[:start])
        if glob is not None:
            word = re.match(r"[^\s)]+", place.text[start:])
            better = (word.group() if word is not None else "%").replace("%", "*")
            return place.instead(
                (start, start + len(better)), "P014", "any text is `*` in a pattern", better
            )
        if number is not None and (right is None or re.match(r"[ \t]*(of|$)", place.behind[1:])):
            span = (number.start(1), start + 1)
            if "WORD" in place.accepts or place.before.split()[-2:-1] == ["weight"]:
                help_ = "a weight is a plain number"
                return place.at(*span, "P007", f"`{number[1]}%` does not fit here", help_)
            better = f"{number[1]}%"
            return place.instead(span, "P007", "a percentage has no blank before its `%`", better)
    pattern = re.match(r"\^([\w*?./-]+)", place.text[start:])
    if pattern is not None and re.search(r"\blike[ \t]*\Z", place.bare[:start]):
        return place.instead(
            (start, start + pattern.end()), "P014", "a pattern is that of the whole text",
            f"{pattern[1]}*",
        )  # fmt: skip
    left = LAST_VALUE.search(place.bare[:start].rstrip())
    name = _FUNCTIONS_OF_SIGNS[run]
    share = re.compile(rf"%[ \t]*of[ \t]+({PATH})").match(place.text, start)
    if left is not None and share is not None:
        better = f"{place.text[left.start() : left.end()]}*{share[1]}"
        span = (left.start(), share.end())
        return place.instead(span, "P007", "a percentage is a number that is written out", better)
    if left is None or right is None:
        return place.at(start, start + len(run), "P014", f"`{run}` is not an operator here")
    a, b = place.text[left.start() : left.end()], right[1]
    better = f"floor({a} / {b})" if name == "floor" else f"{name}({a}, {b})"
    fix = better if place.mends(left.start(), start + len(run) + right.end(), better) else None
    return Refusal(
        "P014", f"`{run}` is not an operator here", start, start + len(run),
        helps=(f"write  {better}",), fix=fix,
        fix_at=(left.start(), start + len(run) + right.end()),
    )  # fmt: skip
