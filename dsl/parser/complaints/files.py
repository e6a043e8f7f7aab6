"""A file that is no test file at all, or two of them: one finding for all of it.

Looks at whole lines, after something could not be read.
"""

import re
from typing import Final

from dsl.parser.refusal import Refusal

_CONFLICT: Final = re.compile(r"(?m)^(?:<{7}|={7}|>{7})(?=[ \t\n]|\Z)[^\n]*")
_OTHERS: Final = (
    (r"(?m)^[ \t]*(?:Feature|Background|Scenario(?: Outline)?):[^\n]*", "Gherkin"),
    (r"(?m)^(?:---[ \t]*$|apiVersion[ \t]*:|kind[ \t]*:[ \t]*[A-Z])[^\n]*", "YAML"),
    (r"(?m)^[\w.-]+:[ \t]*(?:#[^\n]*)?\n[ \t]*-[ \t]", "YAML"),
    (r"(?m)^[\w.-]+:[ \t]*(?:#[^\n]*)?\n[ \t]+(?!given|expect|label|annotation)[\w.-]+:(?:[ \t]|$)",
     "YAML"),
    (r"\A\s*[{\[][ \t]*(?:\"[^\"\n]*\"[ \t]*:[^\n]*)?(?:\n|\Z)", "JSON"),
    (r"(?m)^(?:import (?:pytest|unittest)|from [\w.]+ import )[^\n]*", "Python"),
    (r"(?m)^package [a-z]\w*$", "Go or Rego"),
)  # fmt: skip
_SHAPE: Final = 'a test file is lines such as  use p,  node: a cpu 4  and  test: "t"'


def no_test_file(text: str) -> Refusal | None:
    """Returns what a file is instead of tests; None where it may be tests.

    Args:
        text: the file, texts and comments blanked out.
    """
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        help_ = "keep what should stay and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`"
        message = "git has left two versions of these lines"
        return Refusal("P004", message, *_first(conflict), helps=(help_,))
    for sign, name in _OTHERS:
        found = re.search(sign, text)
        if found is not None:
            message = f"this looks like {name}, and is no test"
            return Refusal("P004", message, *_first(found), helps=(_SHAPE,))
    return None


def _first(found: re.Match[str]) -> tuple[int, int]:
    """Returns the first line of what was found."""
    line = found.group().split("\n", 1)[0]
    start = found.start() + len(line) - len(line.lstrip())
    return start, max(found.start() + len(line.rstrip()), start + 1)
