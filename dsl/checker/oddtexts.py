"""Texts that a field never holds: patterns, capitals, blanks, owners that own no pod.

Warns only; the tests read well and never hold, or always.
"""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import meant
from dsl.checker.scope import Scope, Typed
from dsl.diagnostics import Fix, Severity
from dsl.patterns import why_refused
from dsl.schema import FIELDS, IMAGE, NAME
from dsl.source import Span
from dsl.spelling import ABSENT, NOTHING, THERE, quoted_key

_WARNING: Final = Severity.WARNING
_PATTERN: Final = re.compile(r"[*?^$|%+()\[\]{}\\,;]")
_OF_IMAGES: Final = frozenset(one.name for one in FIELDS.values() if one.letters == IMAGE)
#: What others call a value of these fields.
_CALLED: Final = {
    "node.arch": {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "aarch64": "arm64"},
    "node.os": {"Linux": "linux", "Windows": "windows"},
}
_KINDS: Final = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node", "ReplicationController")
_UPPER: Final = {"Deployment": "ReplicaSet", "CronJob": "Job"}


def word_for_nothing(scope: Scope, node: s.Is, word: s.Word) -> None:
    """Warns of `x is null`, `x is empty`, `x is set`: ordinary words here."""
    low = word.value.lower()
    if low not in NOTHING | ABSENT | THERE:
        return
    there = (low in THERE) != node.negated if low in THERE else node.negated
    better = "present" if there else "missing"
    scope.report(
        "P317",
        f"`{word.value}` is an ordinary word here",
        word.span,
        f"write  {scope.text(node.left)} is {better}",
        *([f'for the word itself write  "{word.value}"'] if low not in NOTHING else []),
        fix=Fix(Span(node.left.span.end, word.span.end), f" is {better}"),
        severity=_WARNING,
    )


def strange_text(
    scope: Scope, left: Typed, operator: str, right: ir.Expr, *, negated: bool = False
) -> None:
    """Warns of a text that a field never holds: patterns, capitals, owners that own no pod.

    Args:
        scope: where the findings go.
        left: what is tested.
        operator: a word operator; `is` for `==`, for items of a list and for values of a label.
        right: the text.
        negated: whether the test holds where the text is another.
    """
    if not isinstance(right, ir.Const) or not isinstance(right.value, str):
        return
    if isinstance(left, ir.Func):
        _of_one_case(scope, left, right, right.value, negated=negated)
    elif isinstance(left, ir.Read) and not (operator == "is" and _called(scope, left, right)):
        _of_field(scope, left, operator, right, negated=negated)


def _called(scope: Scope, left: ir.Read, right: ir.Const) -> bool:
    """Warns of `node.arch is x86_64`; False for other values."""
    better = _CALLED.get(left.field, {}).get(str(right.value))
    if better is not None:
        scope.report(
            "P317",
            f"`{left.field}` is never `{right.value}`",
            right.span,
            f"did you mean `{better}`?",
            fix=_requoted(scope, right.span, better),
            severity=_WARNING,
        )
    return better is not None


def _of_field(
    scope: Scope, left: ir.Read, operator: str, right: ir.Const, *, negated: bool
) -> None:
    value, field = str(right.value), left.field
    letters = FIELDS[field].letters
    if not value and negated and FIELDS[field].optional:
        meant.not_empty(scope, left, right)
    elif field.endswith("owner.kind"):
        _owner_kind(scope, value, right.span)
    elif letters and _PATTERN.search(value) is not None:
        # The text of a label test holds the value, too.
        text = field if left.key is None else f"{field}[{quoted_key(left.key)}]"
        _pattern(scope, text, operator, right, negated=negated)
    elif field.endswith(".label") and re.search(r"[/:@]", value):
        _no_label_value(scope, left, right, value, negated=negated)
    elif re.search(r"\s", value) and letters in (NAME, IMAGE):
        _blanks(scope, field, right, value, negated=negated)
    elif letters == NAME and value.lower() != value:
        scope.report(
            "P317",
            f"`{field}` has no capitals, so this {'always' if negated else 'never'} holds",
            right.span,
            f"write  {value.lower()}",
            fix=_requoted(scope, right.span, value.lower()),
            severity=_WARNING,
        )
    elif operator == "like" and value not in FIELDS and not re.search(r"[*?]", value):
        _whole(scope, left, right, value)


def _of_one_case(
    scope: Scope, left: ir.Func, right: ir.Const, value: str, *, negated: bool
) -> None:
    """Warns of `lower(pod.name) is WEB`."""
    made = {"lower": value.lower(), "upper": value.upper()}.get(left.name, value)
    if made != value:
        what = "capitals" if left.name == "lower" else "small letters"
        scope.report(
            "P317",
            f"`{scope.text(left)}` has no {what}, so this {'always' if negated else 'never'} holds",
            right.span,
            f"write  {made}",
            fix=_requoted(scope, right.span, made),
            severity=_WARNING,
        )


def _no_label_value(
    scope: Scope, left: ir.Read, right: ir.Const, value: str, *, negated: bool
) -> None:
    """Warns of `node.label zone=a/b`."""
    if "$" in scope.source.slice(right.span):
        return
    sign = next(one for one in value if one in "/:@")
    scope.report(
        "P317",
        f"no value of a label holds `{sign}`, so this {'always' if negated else 'never'} holds",
        right.span,
        f"an annotation may:  {left.field.removesuffix('label')}annotation"
        f"[{quoted_key(left.key or 'KEY')}]",
        severity=_WARNING,
    )


def _blanks(scope: Scope, field: str, right: ir.Const, value: str, *, negated: bool) -> None:
    """Warns of `pod.name is " nginx"`."""
    if "$" in scope.source.slice(right.span):
        return  # A parameter has another value tomorrow.
    better = value.strip()
    known = better and re.search(r"\s", better) is None
    scope.report(
        "P317",
        f"`{field}` has no blanks, so this {'always' if negated else 'never'} holds",
        right.span,
        f"write  {_requoted(scope, right.span, better)}"
        if known
        else "names hold small letters, digits, `-` and `.` only",
        fix=_requoted(scope, right.span, better) if known else None,
        severity=_WARNING,
    )


def _whole(scope: Scope, left: ir.Read, right: ir.Const, value: str) -> None:
    """Warns of `pod.name like web`."""
    if "$" in scope.source.slice(right.span):
        return  # A parameter may be a pattern tomorrow.
    text = left.field if left.key is None else f"{left.field}[{quoted_key(left.key)}]"
    scope.warn(
        "P317",
        "this pattern has no `*`, so it is the whole text",
        right.span,
        f'write  {text} like "*{value}*"   or, for this text alone,'
        f"  {text} is {scope.source.slice(right.span)}",
    )


def pattern_of_item(scope: Scope, items: ir.Expr, item: ir.Expr) -> None:
    """Warns of `pod.images contains "nginx:*"`: no image has a `*`."""
    if not isinstance(items, ir.Read) or not items.field.endswith(".images"):
        return
    if isinstance(item, ir.Const) and re.search(r"[*?]", str(item.value)):
        glob = scope.source.slice(item.span)
        better = f"any({scope.text(items)} where it like {glob})"
        scope.report(
            "P317",
            "`contains` looks for a whole item of a list, and no image holds a `*`",
            item.span,
            f"write  {better}",
            fix=Fix(Span(items.span.start, item.span.end), better),
            severity=_WARNING,
        )


def _requoted(scope: Scope, span: Span, text: str) -> str:
    written = scope.source.slice(span)
    return f"{written[0]}{text}{written[0]}" if written[:1] in ("'", '"') else text


def _owner_kind(scope: Scope, value: str, span: Span) -> None:
    above = next((one for one in _UPPER if one.lower() == value.lower().rstrip("s")), None)
    if above is not None:
        scope.report(
            "P317",
            f"a pod is owned by a {_UPPER[above]}, and that by the {above}",
            span,
            f"write  {_UPPER[above]}, or ask for the {above} by its name:  pod.workload",
            fix=_requoted(scope, span, _UPPER[above]),
            severity=_WARNING,
        )
        return
    near = next((one for one in _KINDS if one.lower() == value.lower().rstrip("s")), None)
    if near is not None and near != value:
        scope.report(
            "P317",
            f"no owner is of the kind `{value}`",
            span,
            f"did you mean `{near}`?",
            fix=_requoted(scope, span, near),
            severity=_WARNING,
        )


def _pattern(scope: Scope, left: str, operator: str, right: ir.Const, *, negated: bool) -> None:
    value = str(right.value)
    sign = next(iter(_PATTERN.findall(value)))
    if meant.parameter_in_text(scope, left, operator, right):
        return
    if operator == "like":
        foreign = re.search(r"[%^$|+()\[\]{}\\]", value)
        if foreign is None:
            return
        sign = foreign.group()
        globbed = re.sub(r"%|\.\*", "*", value).strip("^$")
        glob = re.search(r"[|+()\[\]{}\\]", globbed) is None
        pattern = value if ".*" in value else value.replace("*", ".*")
        better = f'like "{globbed}"' if glob else f"matches '{pattern}'"
    elif sign in "|,;":
        words = [quoted_key(one.strip()) for one in re.split(r"[|,;]", value) if one.strip()]
        each = " or ".join(f"{left} {operator} {one}" for one in words)
        among = f"{left} {'not in' if negated else 'in'} [{', '.join(words)}]"
        _never(scope, sign, left, right, (among if operator == "is" else each) if words else "")
        return
    elif sign in "*%?" and not re.search(
        r"[\^$+()\[\]{}\\|]" if left in _OF_IMAGES else r"[\^$+()\[\]{}\\|.]",
        value.replace(".*", "*"),
    ):
        body = re.sub(r"%|\.\*", "*", value)
        globbed = _open(body, operator, "*").replace("**", "*")
        better = f'like "{globbed}"'
    else:
        better = _anchored(value) or f"matches '{_open(value, operator, '.*')}'"
    refused = why_refused(better.partition("matches '")[2][:-1]) is not None
    better = f"{'not ' if negated else ''}{left} {better}"
    _never(scope, sign, left, right, "" if refused else better)


def _anchored(pattern: str) -> str:
    """Returns the test that `^web`, `web$` and `^web$` are, "" for other patterns."""
    found = re.fullmatch(r"(\^?)([A-Za-z0-9-]+)(\$?)", pattern)
    if found is None:
        return ""
    first, word, last = found.groups()
    test = "is" if first and last else "starts with" if first else "ends with"
    return f"{test} {word}" if first or last else ""


def _open(pattern: str, operator: str, anything: str) -> str:
    """Returns a pattern of the whole text for one of a part of it."""
    begins, ends = pattern.startswith(("^", ".*", ".+")), pattern.endswith(("$", ".*", ".+"))
    # `is "^web.+"` says where the text begins, and leaves its end open.
    before = not begins and (operator in ("contains", "ends with") or (operator == "is" and ends))
    after = not ends and (operator in ("contains", "starts with") or (operator == "is" and begins))
    return anything * before + pattern + anything * after


def _never(scope: Scope, sign: str, left: str, right: ir.Const, better: str) -> None:
    message = f"`{sign}` stands for itself here, and `{left}` never holds it"
    help_ = f"write  {better}" if better else "its values hold letters, digits and  - _ .  only"
    scope.warn("P317", message, right.span, help_)
