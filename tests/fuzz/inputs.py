"""What the fuzzer starts from, and how it changes it: texts of the language, damaged with method.

An input is a policy; after `SEPARATOR` a test file may follow. Pure but for reading the seeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SEPARATOR: Final = "\n=== policytest\n"
#: What runs every policy that compiles: nodes and pods with most of what policies read.
WORLD: Final = (Path(__file__).parent / "world.txt").read_text("utf-8")

_FENCE: Final = re.compile(r"^```(policy|policytest)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"^=== .*\n", re.MULTILINE)
_TOKEN: Final = re.compile(
    r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\n[ \t]*|[ \t]+'
    r"|[A-Za-z_$][\w.]*|\d[\w.%]*|->|\?\?|==|!=|<=|>=|\.\.|."
)
_ODD: Final = (
    "\x00", "\t", "\r", "\r\n", "\x0b", "\x0c", "\x1b[31m", "\x7f", "\x85", "\u00a0", "\u200b",
    "\u202e", "\u2028", "\u2029", "\ufeff", "\ufffd", "\ufffe", "\udced\udca0\udc80", "\udcff",
    "\U0001f4a5", "\u0130", "\u0660", "\u00b2", "e\u0301", "\u201c", "\u2019", "\u2212",
    "\u2264", "\uff1a", "\u2026",
)  # fmt: skip
_NUMBERS: Final = (
    "0", "-1", "1e308", "1e-308", "1e999", "0.1", "9007199254740993", "18446744073709551616",
    "100%", "1e3%", "0s", "1d1h", "999999999d", "1Ei", "1e3Ki", "5m", "-0", "007", "1.", ".5",
)  # fmt: skip
_SHAPES: Final = (
    "not ", "- ", "(", ")", "[", "]", "{", "}", '"', "'", '"""', "\\", "#", "\n", "\n  ", "->",
    " ?? ", " is missing", " is present", " and ", " or ", "if true then 1 else 2", "max", "{{",
    "count(node.pods where true)", "any(cluster.pods where it.cpu > 0)", ".*", "(a*)*b",
    "__class__",
)  # fmt: skip


def seeds() -> list[str]:
    """Every text of the language that the repository has, short ones first."""
    found = dict.fromkeys(_policies())
    return sorted(found, key=len)


def _policies() -> Iterator[str]:
    examples = (ROOT / "tests" / "dsl" / "data" / "examples.txt").read_text("utf-8")
    yield from _EXAMPLE.split(examples)[1:]
    for path in (*sorted((ROOT / "tests/spec").glob("*.md")), ROOT / "docs/diagnostics.md"):
        policy = ""
        for found in _FENCE.finditer(path.read_text("utf-8")):
            kind, body = found.groups()
            if kind == "policy":
                policy = body
                yield policy
            else:
                yield f"{policy}{SEPARATOR}use p\n{body}"
    for path in sorted((ROOT / "policies").glob("*.policy")):
        policy = path.read_text("utf-8")
        yield policy
        test = path.with_suffix(".policytest").read_text("utf-8")
        yield f"{policy}{SEPARATOR}{test}"


class Mutator:
    """Changes texts; the same random numbers make the same change."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = list(known)
        words = {word for text in known for word in _TOKEN.findall(text)}
        self._words = sorted(word for word in words if word.strip() and not word.startswith("#"))
        self._keywords = sorted(word for word in self._words if re.fullmatch(r"[a-z_]{2,}", word))
        self._edits: tuple[Callable[[list[str], random.Random], None], ...] = (
            self._delete, self._repeat, self._swap, self._another_word, self._another_word,
            self._another_keyword, self._odd, self._number, self._shape, self._lines, self._from,
            self._nest,
        )  # fmt: skip

    def change(self, text: str, rng: random.Random) -> str:
        """Returns the text after one to four edits."""
        tokens = _TOKEN.findall(text) or [""]
        for _ in range(rng.randint(1, 4)):
            rng.choice(self._edits)(tokens, rng)
        return "".join(tokens)

    def join(self, one: str, other: str, rng: random.Random) -> str:
        """Returns lines of both."""
        lines, more = one.splitlines(keepends=True), other.splitlines(keepends=True)
        at, start = rng.randint(0, len(lines)), rng.randint(0, len(more))
        return "".join([*lines[:at], *more[start:], *lines[at:]])

    def _delete(self, tokens: list[str], rng: random.Random) -> None:
        at = rng.randrange(len(tokens))
        del tokens[at : at + rng.choice((1, 1, 1, 2, 5, 20))]
        tokens.append("")

    def _repeat(self, tokens: list[str], rng: random.Random) -> None:
        at = rng.randrange(len(tokens))
        some = tokens[at : at + rng.choice((1, 2, 5, 20))]
        tokens[at:at] = some * rng.choice((1, 1, 2, 3, 40))

    def _swap(self, tokens: list[str], rng: random.Random) -> None:
        one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]

    def _another_word(self, tokens: list[str], rng: random.Random) -> None:
        words = [at for at, token in enumerate(tokens) if token.strip()] or [0]
        tokens[rng.choice(words)] = rng.choice(self._words)

    def _another_keyword(self, tokens: list[str], rng: random.Random) -> None:
        words = [at for at, token in enumerate(tokens) if token.isalpha()] or [0]
        tokens[rng.choice(words)] = rng.choice(self._keywords)

    def _odd(self, tokens: list[str], rng: random.Random) -> None:
        at = rng.randrange(len(tokens))
        place = rng.randint(0, len(tokens[at]))
        tokens[at] = tokens[at][:place] + rng.choice(_ODD) + tokens[at][place:]

    def _number(self, tokens: list[str], rng: random.Random) -> None:
        numbers = [at for at, token in enumerate(tokens) if token[:1].isdigit()] or [0]
        tokens[rng.choice(numbers)] = rng.choice(_NUMBERS)

    def _shape(self, tokens: list[str], rng: random.Random) -> None:
        tokens.insert(rng.randint(0, len(tokens)), rng.choice(_SHAPES) * rng.choice((1, 1, 1, 70)))

    def _lines(self, tokens: list[str], rng: random.Random) -> None:
        """Puts a statement of another text between two."""
        lines = rng.choice(self._known).splitlines(keepends=True) or ["\n"]
        breaks = [at for at, token in enumerate(tokens) if token == "\n"]
        at = rng.choice(breaks) + 1 if breaks else len(tokens)
        tokens[at:at] = _TOKEN.findall(rng.choice(lines))

    def _from(self, tokens: list[str], rng: random.Random) -> None:
        """Puts a stretch of another text here."""
        other = _TOKEN.findall(rng.choice(self._known)) or [""]
        start = rng.randrange(len(other))
        at = rng.randrange(len(tokens))
        tokens[at : at + rng.randint(0, 6)] = other[start : start + rng.randint(1, 12)]

    def _nest(self, tokens: list[str], rng: random.Random) -> None:
        """Puts parentheses around a stretch."""
        at = rng.randrange(len(tokens))
        deep = rng.choice((1, 1, 2, 64, 65))
        tokens.insert(min(len(tokens), at + rng.randint(1, 9)), ")" * deep)
        tokens.insert(at, "(" * deep)
