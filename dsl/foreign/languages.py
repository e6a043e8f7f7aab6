"""Which other language a line is of: SQL, Rego, YAML and the like, by how a text in it begins."""

import re
from typing import Final

MERGE: Final = "a merge"
#: First lines of texts that are no policies at all.
_FIRST_LINES: Final = (
    (r"(?:<{7}|={7}|>{7}|\|{7})(?:[ \t]|$)", MERGE),
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


def language_of(text: str) -> str | None:
    """Returns which language a statement is in by its first line, None where it may be ours."""
    line = text.split("\n", 1)[0].split("#", 1)[0].rstrip()
    return next((name for sign, name in _FIRST_LINES if re.match(sign, line)), None)
