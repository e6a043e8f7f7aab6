"""The words of one statement with what the layout must know of each."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from dsl.schema import FIELDS, canonical
from dsl.syntax import SHORT_POINTS, Lexeme

#: Where a line may be broken: depth of brackets, then how loosely the place binds.
Rank = tuple[int, int]

CLAUSE: Final[Rank] = (-2, 0)
ARROW: Final[Rank] = (-1, 0)

_CLAUSES: Final = frozenset(
    {"message", "status", "weight", "norm_clause", "missing_score", "metric_by", "metric_every",
     "metric_stale", "metric_default", "metric_unit", "range_check", "choice_check", "skew",
     "hard", "peers_by", "victim_order", "pick", "victim_limit", "across", "gang_min", "gang_wait",
     "gang_backoff", "gang_reject", "gang_within", "quota_min", "quota_max", "quota_elastic",
     "quota_reclaim"}
)  # fmt: skip
_ACTIONS: Final = frozenset({"annotate", "set_label", "event"})
_ATTRIBUTES: Final = frozenset({"attr", "attr_metric", "attr_keyed", "attr_file"})
#: Words that start a clause without a rule of their own: rule around them, and the word.
_BARE_CLAUSES: Final = frozenset({("use", "as"), ("use", "weight"), ("wait_then", "then")})
_STEPS: Final = ("given_", "expect_")

_TIGHT_BEFORE: Final = frozenset({"COMMA", "RPAR", "RSQB", "COLON", "INDEX", "DOTTAIL"})
_TIGHT_AFTER: Final = frozenset({"LPAR", "LSQB", "INDEX"})
_TIGHT: Final = frozenset({"STAR", "SLASH"})
_TIGHT_EQUALS: Final = frozenset({"label_op", "attr_keyed"})
_CLOSING: Final = frozenset({"RPAR", "RSQB"})

_COMMA: Final = 0
_COMPARISON: Final = 6
#: How loosely a word binds that a line may start with, by it and the rule around it.
_LOOSENESS: Final = {
    ("agg", "over"): 1, ("agg", "where"): 1, ("victims", "where"): 1, ("if_", "else"): 2,
    ("if_", "then"): 3, ("or_expr", "or"): 4, ("and_expr", "and"): 5, ("add", "+"): 7,
    ("sub", "-"): 7, ("mul", "*"): 8, ("div", "/"): 8, ("fallback", "??"): 9,
}  # fmt: skip
#: From here on a line is broken only where it is full; before at every place of the same rank.
_FILLED: Final = 7
#: Columns that a line stands behind the one it belongs to.
STEP: Final = 2


#: A line without words: a comment or nothing, and whether it is indented.
Remark = tuple[str, bool]


class Piece(Struct, frozen=True):
    """One word of a statement.

    Attributes:
        text: as it is to be written.
        gap: the blanks before it, if it does not start a line.
        rank: how readily a line may start with it; None if it may not.
        fills: whether such a line is started only where the one before is full.
        breaks: whether it must start a line.
        indent: the columns before it, if it starts a line whatever the width.
        above: the comments that go before its line, and blank lines as empty texts.
        comment: the comment behind it, which ends its line.
    """

    text: str
    gap: str
    rank: Rank | None
    fills: bool
    breaks: bool
    indent: int
    above: tuple[str, ...]
    comment: str


def remarks(gap: str, *, first: bool = False) -> tuple[str, tuple[Remark, ...]]:
    """Splits the text between two words: the comment on the line of the first, lines between.

    With `first` there is no word before the gap.
    """
    if "\n" not in gap:
        return "" if first else gap.strip(), ()
    lines = gap.split("\n")
    trailing = "" if first else lines[0].strip()
    whole = lines[:-1] if first else lines[1:-1]
    return trailing, tuple((line.strip(), line[:1] in (" ", "\t")) for line in whole)


def make_pieces(text: str, words: Sequence[Lexeme]) -> list[Piece]:
    """Returns the words of a statement of the file `text`."""
    pieces: list[Piece] = []
    in_test = words[0].opens[:1] == ("t_test",)
    level = depth = 0
    after = [*(word.span.start for word in words[1:]), words[-1].span.end]
    for at, (word, shown) in enumerate(zip(words, canonical_texts(words), strict=True)):
        before = words[at - 1] if at else None
        gap = text[before.span.end : word.span.start] if before else ""
        step = in_test and any(name.startswith(_STEPS) for name in word.opens)
        starts = step or _starts_clause(before, word)
        if starts:
            level = 1 if step or not in_test else 2
        depth -= word.kind in _CLOSING
        rank, fills = _rank(before, word, depth)
        if starts:
            rank, fills = CLAUSE, not _ATTRIBUTES.isdisjoint(word.opens)
        _, between = remarks(gap)
        trailing, _ = remarks(text[word.span.end : after[at]])
        pieces.append(
            Piece(
                text=shown,
                gap=_gap(before, word),
                rank=rank,
                fills=fills,
                breaks=step or (starts and "\n" in gap),
                indent=0 if before is None else STEP * (level if starts else level + 1),
                above=_above(between, blanks=step and any(one.breaks for one in pieces)),
                comment=trailing,
            )
        )
        depth += word.kind in _TIGHT_AFTER
    return pieces


def _above(between: Sequence[Remark], *, blanks: bool) -> tuple[str, ...]:
    """Returns the comments of the lines between; with `blanks` one blank line at a time too."""
    kept: list[str] = []
    for remark, _ in between:
        if remark or (blanks and kept[-1:] != [""]):
            kept.append(remark)
    return tuple(kept)


def _starts_clause(before: Lexeme | None, word: Lexeme) -> bool:
    if before is None:
        return False
    if not _CLAUSES.isdisjoint(word.opens) or (word.owner, word.text) in _BARE_CLAUSES:
        return True
    if not _ATTRIBUTES.isdisjoint(word.opens):
        return before.kind != "COLON"
    if not _ACTIONS.isdisjoint(word.opens):
        return before.kind == "COMMA"
    # The text that says what a parameter is for.
    return word.owner == "param" and word.kind == "STRING"


def _rank(before: Lexeme | None, word: Lexeme, depth: int) -> tuple[Rank | None, bool]:
    """Returns how readily a line may start with a word, and whether only a full line asks it to."""
    if before is None:
        return None, False
    if before.kind == "_ARROW":
        return ARROW, False
    if before.kind == "COMMA":
        return (depth, _COMMA), True
    if word.kind == "RELOP" and word.owner == "compare":
        return (depth, _COMPARISON), False
    looseness = _LOOSENESS.get((word.owner, word.text))
    if looseness is None:
        return None, False
    return (depth, looseness), looseness >= _FILLED


def _gap(before: Lexeme | None, word: Lexeme) -> str:
    if before is None or word.kind in _TIGHT_BEFORE or before.kind in _TIGHT_AFTER:
        return ""
    if _is_tight(word) or _is_tight(before) or (before.kind == "MINUS" and before.owner == "neg"):
        return ""
    if word.kind == "LPAR" and before.owner in ("call", "agg_name"):
        return ""
    in_fixture = not _ATTRIBUTES.isdisjoint(word.opens) and word.depth - len(word.opens) == 1
    if in_fixture and before.kind != "COLON":
        return "  "
    return " "


def _is_tight(word: Lexeme) -> bool:
    if word.kind in _TIGHT or word.text == "..":
        return True
    return word.kind in ("EQUAL", "RELOP") and word.owner in _TIGHT_EQUALS


# ---- the one spelling of a word where the language has several


def canonical_texts(words: Sequence[Lexeme]) -> list[str]:
    """Returns the canonical spelling of each word of a statement."""
    texts = [_canonical(word) for word in words]
    if texts:
        texts[0] = SHORT_POINTS.get(texts[0], texts[0])
    return texts


def _canonical(word: Lexeme) -> str:
    if word.kind in ("DOTTED", "LABELOF"):
        singular = canonical(word.text)
        known = any(name == singular or name.startswith(f"{singular}.") for name in FIELDS)
        return singular if known else word.text
    if word.kind in ("MODE", "TEXTOP"):
        return re.sub(r"[ \t]+", " ", word.text)
    if word.owner == "label_op" and word.text == "==":
        return "="
    return word.text
