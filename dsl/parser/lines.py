"""Lines of a file that are no statements: what is said of them, and what they declare.

Works on whole lines, before the grammar or where it has given up.
"""

import re
from typing import Final

from dsl.diagnostics import Diagnostic
from dsl.foreign.languages import MERGE, language_of
from dsl.parser.statements import STATEMENTS
from dsl.source import SourceFile, Span, blanked

_SHAPES: Final = {
    "policy": "a policy is lines such as  filter: pod.name contains nginx -> node.label KEY=VALUE",
    "test": 'a test file is lines such as  use p,  node: a cpu 4  and  test: "t"',
}
_KEEP: Final = "keep what should stay and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`"


def other_language(source: SourceFile, what: str) -> Diagnostic | None:
    """Returns what a file is instead of a policy or a test, once for all of it."""
    for line in re.finditer(r"(?m)^\S.*", blanked(source.text)):
        name = language_of(line.group())
        if name is not None:
            message, help_ = f"this looks like {name}, and is no {what}", _SHAPES[what]
            if name == MERGE:
                message, help_ = "git has left two versions of these lines", _KEEP
            return Diagnostic("P010", message, source, Span(*line.span()), helps=(help_,))
    return None


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
