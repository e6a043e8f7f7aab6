"""Lines of a file that are no statements: another language, what runs on, what they declare.

Works on whole lines, before the grammar or where it has given up.
"""

import re
from typing import Final

from dsl.parser.refusal import Refusal
from dsl.parser.statements import STATEMENTS, is_statement, known_word

#: First lines of texts that are no policies at all.
_MERGE: Final = "a merge"
_FOREIGN: Final = (
    (r"(?:<{7}|={7}|>{7}|\|{7})(?:[ \t]|$)", _MERGE),
    (r"---[ \t]*$|apiVersion[ \t]*:|kind[ \t]*:[ \t]*[A-Z]", "YAML (a Kubernetes object)"),
    (r"package[ \t]+[\w.]+[ \t]*$", "Rego or Go"),
    (r"(default|import)[ \t]+(allow|deny|data|input|rego|future)\b", "Rego"),
    (r"(deny|allow|violation|warn)(\[.*\])?[ \t]*(contains\b.*)?(if[ \t]*)?\{", "Rego"),
    (r"(def|class)[ \t]+\w+.*:[ \t]*$|(from[ \t]+\w+[ \t]+)?import[ \t]+\w+[ \t]*$", "Python"),
    (r"(func|type)[ \t]+[\w(]", "Go"),
    (r"(?:Feature|Background|Scenario(?: Outline)?):", "Gherkin"),
    (r"[{\[][ \t]*$", "JSON"),
    (r"(?i:select[ \t]+.+[ \t]from[ \t]|create[ \t]+(policy|table)\b)", "SQL"),
    (r"(acl|use_backend|frontend|backend|server|location)[ \t]+\S", "the configuration of a proxy"),
)
_SHAPES: Final = {
    "policy": "a policy is lines such as  filter: pod.name contains nginx -> node.label KEY=VALUE",
    "test": 'a test file is lines such as  use p,  node: a cpu 4  and  test: "t"',
}


def foreign(text: str) -> str | None:
    """Returns which language the text of a statement is in, None where it may be ours."""
    line = text.split("\n", 1)[0].split("#", 1)[0].rstrip()
    return next((name for sign, name in _FOREIGN if re.match(sign, line)), None)


def wrong_language(name: str, start: int, end: int, what: str = "policy") -> Refusal:
    """Refuses a text that is no policy or no test, once for all of it."""
    if name == _MERGE:
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
        name = foreign(line.group())
        if name is not None:
            return wrong_language(name, *line.span(), "test")
    return None
