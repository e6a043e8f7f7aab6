"""Label selectors of pods and namespaces: API selectors in, values that can be keys and match out.

Knows nothing of who selects whom. Equal selectors are equal values, however they were written.

Source: k8s.io/apimachinery pkg/labels (NewRequirement, Matches, Parse) and meta/v1
(LabelSelectorAsSelector).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from engine.objects import LabelSelector

_PART: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = re.compile(f"({_PART})?")
_NAME: Final = re.compile(_PART)
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PART: Final = 63
_LONGEST_PREFIX: Final = 253
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_INT64: Final = 1 << 63

Labels = Mapping[str, str]


class SelectorError(ValueError):
    """A requirement that the API server would not have let in; the message names it."""


class Requirement(NamedTuple):
    """One requirement on a label; Gt and Lt compare whole numbers of 64 bits."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether labels meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)
            case _:
                return value is None

    def _compares(self, value: str) -> bool:
        number, bound = parse_int64(value), parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


class Selector(NamedTuple):
    """Requirements that must all hold, sorted; None: nothing matches."""

    requirements: tuple[Requirement, ...] | None

    @property
    def empty(self) -> bool:
        """True if everything matches."""
        return self.requirements == ()

    def matches(self, labels: Labels) -> bool:
        """Whether labels meet all requirements."""
        if self.requirements is None:
            return False
        for requirement in self.requirements:  # noqa: SIM110 - a generator costs as much again
            if not requirement.matches(labels):
                return False
        return True

    def both(self, *others: Selector) -> Selector:
        """What this and all others select."""
        asked: list[Requirement] = []
        for one in (self, *others):
            if one.requirements is None:
                return NOTHING
            asked += one.requirements
        return _selector(asked)


NOTHING: Final = Selector(None)
EVERYTHING: Final = Selector(())


def select_labels(labels: Labels) -> Selector:
    """All labels must be equal. Not validated."""
    return _selector(Requirement(key, "In", (value,)) for key, value in labels.items())


def parse_selector(selector: LabelSelector | None) -> Selector:
    """The API's selector; without one, nothing matches.

    Raises:
        SelectorError: a requirement is not valid.
    """
    if selector is None:
        return NOTHING
    equal, expressions = selector.match_labels or {}, selector.match_expressions or ()
    asked = [requirement(key, "In", (value,)) for key, value in equal.items()]
    return _selector([*asked, *[requirement(e.key, e.operator, e.values) for e in expressions]])


def what_it_selects(selector: LabelSelector | None) -> Selector:
    """The API's selector; one that is not valid selects nothing."""
    try:
        return parse_selector(selector)
    except SelectorError:
        return NOTHING


def parse_int64(text: str) -> int | None:
    """The number as Go's ParseInt reads it, None if it is none or does not fit 64 bits."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def is_label_key(key: str) -> bool:
    """Whether the API server lets a label have this key."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _LONGEST_PREFIX or _PREFIX.fullmatch(prefix) is None):
        return False
    return len(name) <= _LONGEST_PART and _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Whether the API server lets a label have this value."""
    return len(value) <= _LONGEST_PART and _LABEL_VALUE.fullmatch(value) is not None


def _selector(requirements: Iterable[Requirement]) -> Selector:
    return Selector(tuple(sorted(set(requirements))))


def requirement(
    key: str, operator: str, values: Sequence[str] | None, *, of_nodes: bool = False
) -> Requirement:
    """A requirement as the API server lets it in; Gt and Lt are for labels of nodes.

    Raises:
        SelectorError: it is not valid.
    """
    given = tuple(sorted(set(values or ())))
    if not is_label_key(key):
        raise SelectorError(f"{key!r} is not a label key")
    for value in given:
        if not is_label_value(value):
            raise SelectorError(f"{value!r} is not a label value")
    match operator:
        case "In" | "NotIn":
            wrong = "" if given else "needs a value"
        case "Exists" | "DoesNotExist":
            wrong = "takes no value" if given else ""
        case "Gt" | "Lt" if of_nodes:
            is_one = len(values or ()) == 1 and parse_int64(given[0]) is not None
            wrong = "" if is_one else "needs one integer"
        case _:
            raise SelectorError(f"{operator!r} is not a valid label selector operator")
    if wrong:
        raise SelectorError(f"{operator} {wrong}")
    return Requirement(key, operator, given)


# ---- as queries write them -------------------------------------------------------------------


_TOKEN: Final = re.compile(r"\s*(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+))")
_OPERATORS: Final = {
    "=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "<": "Lt", ">": "Gt",
}  # fmt: skip


def read_selector(text: str) -> Selector:
    """What `app=x,team in (a,b),!old` selects; an empty text everything.

    Raises:
        SelectorError: it cannot be read.
    """
    tokens = _tokens(text)
    found: list[Requirement] = []
    while tokens:
        found.append(_requirement(tokens))
        if tokens:
            _expect(tokens, ",")
    return _selector(found)


def _tokens(text: str) -> list[str]:
    """The selector's tokens, last first (so that `pop` takes the next one)."""
    tokens: list[str] = []
    position = 0
    while position < len(text) and (found := _TOKEN.match(text, position)):
        tokens.append(found["symbol"] or found["word"])
        position = found.end()
    return tokens[::-1]


def _expect(tokens: list[str], *wanted: str) -> str:
    found = tokens.pop() if tokens else ""
    if found not in wanted:
        names = " or ".join(f"'{name}'" for name in wanted)
        raise SelectorError(f"unable to parse requirement: found '{found}' expected: {names}")
    return found


def _word(tokens: list[str]) -> str:
    found = tokens.pop() if tokens else ""
    if not found or not found[0].isalnum():
        raise SelectorError(f"unable to parse requirement: found '{found}', expected: identifier")
    return found


def _requirement(tokens: list[str]) -> Requirement:
    if tokens[-1] == "!":
        tokens.pop()
        return requirement(_word(tokens), "DoesNotExist", ())
    key = _word(tokens)
    if not tokens or tokens[-1] == ",":
        return requirement(key, "Exists", ())
    operator = _expect(tokens, *_OPERATORS)
    in_set = operator in ("in", "notin")
    if in_set:
        _expect(tokens, "(")
    values = [_value(tokens)]
    while in_set and _expect(tokens, ",", ")") == ",":
        values.append(_value(tokens))
    return requirement(key, _OPERATORS[operator], values, of_nodes=True)


def _value(tokens: list[str]) -> str:
    return "" if not tokens or tokens[-1] in (",", ")") else _word(tokens)
