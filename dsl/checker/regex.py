"""Which regular expressions a policy may use: those whose cost is bounded."""

import re
from typing import Final

_MAX_LENGTH: Final = 200
_MAX_UNBOUNDED: Final = 2
_MAX_OPTIONAL: Final = 10
_MAX_COUNT: Final = 100
_TOKEN: Final = re.compile(
    r"(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<escape>\\.)"
    r"|(?P<open>\((?:\?:)?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>[*+?]\??|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\}\??)"
    r"|(?P<bar>\|)"
    r"|(?P<other>.)",
    re.DOTALL,
)


class _Group:
    """What one pair of parentheses holds."""

    def __init__(self) -> None:
        self.repeats = False
        self.chooses = False


def why_refused(pattern: str) -> str | None:
    """Returns why a pattern is refused, as the end of a sentence; None if it is fine."""
    if len(pattern) > _MAX_LENGTH:
        return f"is longer than {_MAX_LENGTH} characters"
    if re.search(r"(?<!\\)(?:\\\\)*\((?:\?(?!:))", pattern):
        return "uses `(?`, which is not allowed here except `(?:`"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not valid: {error.msg}"
    except (OverflowError, RecursionError):
        return "is not valid: a repeat is too large"
    return _cost(pattern)


def advice(reason: str, left: str, pattern: str) -> str:
    """Returns what to write instead of a pattern that is refused."""
    if "(?i)" in pattern:
        return f"write  lower({left}) matches '{pattern.replace('(?i)', '').lower()}'"
    if reason.startswith("uses"):
        return "groups are written ( ) or (?: ); for what must not be there write  not ... matches"
    if reason.startswith("refers"):
        return "compare parts with  before(TEXT, SEPARATOR)   and   after(TEXT, SEPARATOR)"
    if reason.startswith("repeats a group"):
        return "repeat one set of characters, as in  [a-z0-9-]+"
    if "repeats" in reason:
        return "test parts of it with `contains`, `starts with` or `like`, joined by `and`"
    if reason.startswith("is longer"):
        return "test parts of it in conditions of their own"
    return "every bracket needs its partner; in single quotes a backslash stands for itself"


def _cost(pattern: str) -> str | None:
    groups = [_Group()]
    closed: _Group | None = None
    unbounded = optional = 0
    for found in _TOKEN.finditer(pattern):
        kind = found.lastgroup if found.lastgroup not in ("low", "comma", "high") else "repeat"
        if kind == "escape" and found.group()[1].isdigit():
            return "refers back to a group, which is not allowed here"
        if kind == "open":
            groups.append(_Group())
        elif kind == "bar":
            groups[-1].chooses = True
        elif kind == "repeat":
            endless, many = _repeat(found)
            unbounded += endless
            optional += not endless and found.group() not in ("{1}",)
            reason = _nested(closed, found.group(), many=many)
            if reason is not None:
                return reason
            groups[-1].repeats = True
        if kind == "close" and len(groups) > 1:
            closed = groups.pop()
            groups[-1].repeats = groups[-1].repeats or closed.repeats
            groups[-1].chooses = groups[-1].chooses or closed.chooses
        else:
            closed = None
    if unbounded > _MAX_UNBOUNDED:
        return f"has more than {_MAX_UNBOUNDED} unbounded repeats"
    if optional > _MAX_OPTIONAL:
        return f"has more than {_MAX_OPTIONAL} bounded repeats"
    return None


def _repeat(found: re.Match[str]) -> tuple[bool, int]:
    text = found.group()
    if text[0] in "*+":
        return True, _MAX_COUNT
    low, comma, high = found.group("low"), found.group("comma"), found.group("high")
    if comma and not high:
        return True, _MAX_COUNT
    return False, int(high or low or 1)


def _nested(group: _Group | None, text: str, *, many: int) -> str | None:
    if many > _MAX_COUNT:
        return f"repeats more than {_MAX_COUNT} times"
    if group is None or text[0] == "?":
        return None
    if group.repeats:
        return "repeats a group that repeats something itself"
    if group.chooses:
        return "repeats a group with `|`"
    return None
