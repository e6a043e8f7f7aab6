"""What stands where reading stopped, and the measures that attempts take there.

Knows text and what the grammar would have taken; says nothing itself.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from dsl.parser.refusal import Halt, Refusal
from dsl.schema import PLURALS
from dsl.source import QUOTED_OR_COMMENT

#: A field or a name, with its key.
PATH: Final = r"(?<![\w.$])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\[[^\[\]]*\](?:\.\w+)*)?"
#: The value that a text ends with.
LAST_VALUE: Final = re.compile(rf"(?:{PATH}|\"_*\"|\$\w+|\d[\w.%]*)\Z")
#: What has labels, as a pattern.
OWNER: Final = r"(?:pod|node|(?:it\.)?namespace|it)"
#: A field of something that is known, with its key.
FIELD: Final = re.compile(
    r"(?<![\w.$])(?:pod|node|namespace|it|workload|cluster|group)(?:\.[A-Za-z_]\w*)+"
    r"(?:\[[^\[\]\n]*\](?:\.\w+)*)?"
)
#: Words that mean something within a statement.
KEYWORDS: Final = (
    "and", "or", "not", "in", "is", "like", "contains", "matches", "missing", "present", "if",
    "then", "else", "where", "over", "asc", "desc", "message", "status", "weight", "normalize",
    "least", "most", "true", "false", "limit", "order", "by", "every", "stale", "default", "unit",
    "starts", "ends", "with", "hard", "skew", "min", "max", "of", "from", "to", "reverse",
)  # fmt: skip
#: Words of the clauses of all statements.
CLAUSES: Final = (
    "message", "status", "weight", "normalize", "missing", "reverse", "every", "stale", "default",
    "unit", "by", "from", "to", "one", "of", "over", "where", "then", "else", "and", "or", "not",
    "in", "is", "contains", "like", "matches", "asc", "desc", "order", "pick", "limit", "across",
    "nodes", "victims", "never", "skew", "hard", "peers", "wait", "until", "allow", "reject",
    "annotate", "label", "event", "with", "min", "max", "elastic", "reclaim", "within", "backoff",
    "promql", "annotation", "usage", "object", "field", "enforce", "shadow", "off", "canary",
    "unschedulable", "unresolvable", "minmax", "none", "rank", "string", "number", "quantity",
    "duration", "bool", "time",
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Za-z_$][\w.]*|\d[\w.%]*|[&|=<>!~?*^+%-]+")
_SIGNS: Final = "=!<>&|*+/-~^%:?"


class Place(Struct, frozen=True):
    """Where reading stopped.

    Attributes:
        text: the statement, or an expression alone.
        bare: the same, comments and the insides of texts blanked out.
        start: where what was met starts.
        end: where it ends.
        accepts: what the grammar would have taken.
        kind: what was met, as the grammar calls it; `end` and `character` besides.
        met: what stands there: a word, a sign, or nothing at the end.
        alone: whether the text is an expression, not a statement.
        read: says how far a text can be read, where somebody knows.
    """

    text: str
    bare: str
    start: int
    end: int
    accepts: frozenset[str]
    kind: str
    met: str
    alone: bool = False
    read: Callable[[str], int] | None = None

    @property
    def before(self) -> str:
        """What stands before, comments and the insides of texts blanked out."""
        return self.bare[: self.start].rstrip()

    @property
    def behind(self) -> str:
        """What stands from here on, blanked out alike."""
        return self.bare[self.start :]

    @property
    def keyword(self) -> str:
        """The word the statement starts with."""
        found = None if self.alone else re.match(r"[A-Za-z]+", self.text)
        return found.group() if found is not None else ""

    @property
    def takes_value(self) -> bool:
        """Whether an expression could start here."""
        return bool({"QUANT", "DOTTED"} <= self.accepts)

    def line(self, at: int) -> tuple[int, int]:
        """Returns where the line around a place starts and ends, a comment left out."""
        start = self.bare.rfind("\n", 0, at) + 1
        end = self.bare.find("\n", at)
        end = len(self.bare) if end < 0 else end
        return start, start + len(self.bare[start:end].rstrip())

    def signs(self) -> tuple[int, int, str]:
        """Returns the run of signs around the place, `!==` where only `=` was refused."""
        start = self.start
        while start > 0 and self.bare[start - 1] in _SIGNS:
            start -= 1
        end = self.start
        while end < len(self.bare) and self.bare[end] in _SIGNS:
            end += 1
        return start, end, self.bare[start:end]

    def closing(self, at: int) -> int:
        """Returns where the bracket opened at a place closes, -1 if nowhere."""
        depth = 0
        for place in range(at, len(self.bare)):
            sign = self.bare[place]
            if sign in "([{":
                depth += 1
            elif sign in ")]}":
                depth -= 1
                if depth == 0:
                    return place
        return -1

    def arguments(self, at: int) -> tuple[int, list[str]]:
        """Returns where the call opened at a place ends, and the texts of its arguments."""
        close = self.closing(at)
        if close < 0:
            return -1, []
        parts, depth, last = [], 0, at + 1
        for place in range(at + 1, close):
            sign = self.bare[place]
            depth += (sign in "([{") - (sign in ")]}")
            if sign == "," and depth == 0:
                parts.append(self.text[last:place])
                last = place + 1
        parts.append(self.text[last:close])
        return close + 1, [one.strip() for one in parts if one.strip()]

    def mends(self, start: int, end: int, better: str) -> bool:
        """Whether the statement can be read further with another text in one stretch of it."""
        if self.read is None:
            return True
        reached = self.read(self.text[:start] + better + self.text[end:])
        behind = reached - len(better) + end - start
        return reached > start + len(better) - (not better) and behind > self.start

    def heals(self, start: int, end: int, better: str) -> bool:
        """Whether the whole statement can be read with another text in one stretch of it."""
        if self.read is None:
            return False
        text = self.text[:start] + better + self.text[end:]
        return self.read(text) > len(text)

    def refuse(self, code: str, message: str, *helps: str, fix: str | None = None) -> Refusal:
        """Refuses what was met."""
        return Refusal(code, message, self.start, self.end, helps=helps, fix=fix)

    def at(
        self, start: int, end: int, code: str, message: str, *helps: str, fix: str | None = None
    ) -> Refusal:
        """Refuses another stretch of the text."""
        return Refusal(code, message, start, end, helps=helps, fix=fix)

    def instead(self, span: tuple[int, int], code: str, message: str, better: str) -> Refusal:
        """Refuses a stretch of text and says what to write for it."""
        start, end = span
        return Refusal(code, message, start, end, helps=(f"write  {better}",), fix=better)


def written_here(field: str) -> str:
    """Returns a field with the name that takes a key: `pod.labels[x]` is `pod.label[x]`."""
    return re.sub(r"\b(\w+)(?=\[)", lambda found: PLURALS.get(found[1], found[1]), field, count=1)


def place_of(halt: Halt) -> Place:
    """Returns the place with what stands there; a word is met whole."""
    text, start, end, kind = halt.text, halt.start, halt.end, halt.kind
    bare = QUOTED_OR_COMMENT.sub(_blank, text)
    if kind == "end":
        start = end = len(bare[:start].rstrip()) if start < len(bare) else len(bare.rstrip())
        return Place(text, bare, start, end, halt.accepts, kind, "", halt.alone, halt.read)
    # Where a keyword is the beginning of a word, the grammar stops within: `desc|ending`.
    while start > 0 and re.match(r"\w\w", bare[start - 1 : start + 1]):
        start -= 1
    found = _WORD.match(text, start)
    met = found.group().rstrip(".") if found is not None else text[start : max(end, start + 1)]
    end = max(start + len(met), start + 1)
    return Place(text, bare, start, end, halt.accepts, kind, met, halt.alone, halt.read)


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    if text.startswith("#"):
        return " " * len(text)
    return '"' + "_" * (len(text) - 2) + '"' if len(text) > 1 else text
