"""Lines of a file that are no statements: what is said of them, and what they declare.

Works on whole lines, before the grammar or where it has given up.
"""

import re
from typing import Final

from dsl.foreign.languages import MERGE, language_of
from dsl.parser.refusal import Refusal
from dsl.parser.statements import STATEMENTS, is_statement, known_word

_SHAPES: Final = {
    "policy": "a policy is lines such as  filter: pod.name contains nginx -> node.label KEY=VALUE",
    "test": 'a test file is lines such as  use p,  node: a cpu 4  and  test: "t"',
}


def wrong_language(name: str, start: int, end: int, what: str = "policy") -> Refusal:
    """Refuses a text that is no policy or no test, once for all of it."""
    if name == MERGE:
        help_ = "keep what should stay and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`"
        return Refusal(
            "P010", "git has left two versions of these lines", start, end, helps=(help_,)
        )
    message = f"this looks like {name}, and is no {what}"
    return Refusal("P010", message, start, end, helps=(_SHAPES[what],))


def is_ours(text: str) -> bool:
    """Whether a text starts with the word of a statement, or with one close to it and a colon."""
    found = re.match(r"([A-Za-z_-]+)[ \t]*:", text)
    return is_statement(text) or (found is not None and known_word(found[1]) is not None)


def is_closing(text: str) -> bool:
    """Whether a line only closes brackets."""
    return re.fullmatch(r"[\s})\];,]+(?:#[^\n]*\s*)*", text) is not None


#: `share = 5`, `let "heat" = 5`, `metrics heat: number = ...`, `let a-b`.
_DECLARES: Final = re.compile(
    r"(?:([A-Za-z]+)[ \t]+)??\$?[\"']?([A-Za-z_]\w*(?:-\w+)*)[\"']?[ \t]*(?:\([^()\n]*\)[ \t]*)?"
    r"(?::[ \t]*\w[\w ]*)?:?=(?!=)"
)
_BARE: Final = re.compile(r"(?:let|param|metric)(?:[ \t]+|:[ \t]*)\$?([A-Za-z_]\w*(?:-\w+)*)")
_ALSO: Final = re.compile(r",[ \t]*(\w+)[ \t]*=(?!=)")


def declares(text: str) -> tuple[str, ...]:
    """Returns the names that a line declares which cannot be read; of `a-b` its parts too."""
    found, bare = _DECLARES.match(text), _BARE.match(text)
    if found is None and bare is None:
        return ()
    word = found[1] if found is not None else "let"
    name = found[2] if found is not None else bare[1] if bare is not None else ""
    if word in STATEMENTS or word == "use" or name in STATEMENTS:
        return ()
    parts = name.split("-")
    also = _ALSO.findall(text) if text.startswith("let") else []
    return ("_".join(parts), *(parts if parts[1:] else ()), *also)


# ---- test files


def no_test_file(text: str) -> Refusal | None:
    """Returns what a file, texts and comments blanked out, is instead of tests."""
    for line in re.finditer(r"(?m)^\S.*", text):
        name = language_of(line.group())
        if name is not None:
            return wrong_language(name, *line.span(), "test")
    return None
