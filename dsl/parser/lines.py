"""Lines of a file that are no statements: what is said of them, and what they declare.

Works on whole lines, before the grammar or where it has given up.
"""

import re
from typing import Final

from dsl.diagnostics import Diagnostic
from dsl.parser.statements import STATEMENTS
from dsl.source import SourceFile, Span, blanked

_MERGE: Final = "a merge"
_YAML: Final = "YAML (a Kubernetes object)"
#: First lines of texts that are no policies at all.
_FIRST_LINES: Final = (
    (r"(?:<{7}|={7}|>{7}|\|{7})(?:[ \t]|$)", _MERGE),
    (r"---[ \t]*$|apiVersion[ \t]*:|kind[ \t]*:[ \t]*[A-Z]|(meta)?data[ \t]*:", _YAML),
    (r"[\w.-]+\.(policy|policytest|ya?ml)[\"']?[ \t]*:", _YAML),
    (r"package[ \t]+[\w.]+[ \t]*$", "Rego or Go"),
    (r"(default|import)[ \t]+(allow|deny|data|input|rego|future)\b", "Rego"),
    (r"(deny|allow|violation|warn)(\[.*\])?[ \t]*(contains\b.*)?(if[ \t]*)?\{", "Rego"),
    (r"(def|class)[ \t]+\w+.*:|(from[ \t]+\w+[ \t]+)?import[ \t]+\w+[ \t]*$", "Python"),
    (r"(func|type)[ \t]+[\w(]", "Go"),
    (r"[{\[][ \t]*$", "JSON"),
    (r"(?i:select[ \t]+.+[ \t]from[ \t]|create[ \t]+(policy|table)\b)", "SQL"),
)
_SHAPES: Final = {
    "policy": "a policy is lines such as  filter: pod.name contains nginx -> node.label KEY=VALUE",
    "test": 'a test file is lines such as  use p,  node: a cpu 4  and  test: "t"',
}
_KEEP: Final = "keep what should stay and remove the lines `<<<<<<<`, `=======` and `>>>>>>>`"


def other_language(source: SourceFile, what: str) -> Diagnostic | None:
    """Returns what a file is instead of a policy or a test, once for all of it."""
    for line in re.finditer(r"(?m)^\S.*", blanked(source.text)):
        for sign, name in _FIRST_LINES:
            if re.match(sign, line.group().rstrip()):
                message, help_ = f"this looks like {name}, and is no {what}", _SHAPES[what]
                if name == _MERGE:
                    message, help_ = "git has left two versions of these lines", _KEEP
                if name == _YAML and what == "policy":
                    help_ = "berth check FILE.yaml  checks the policies of a ConfigMap"
                word = Span(line.start(), line.start() + len(line.group().split()[0]))
                return Diagnostic("P010", message, source, word, helps=(help_,))
    return None


#: `share = 5`, `let "heat" = 5`, `metrics heat: number = ...`, `let a-b`.
_DECLARES: Final = re.compile(
    r"(?:([A-Za-z]+)[ \t]+)??\$?[\"']?([A-Za-z_][\w-]*)[\"']?[ \t]*(?:\([^()\n]*\)[ \t]*)?"
    r"(?::[ \t]*\w[\w ]*)?:?=(?!=)|(let|param|metric)\b[ \t:]*\$?([A-Za-z_][\w-]*)"
)


def declares(text: str) -> tuple[str, ...]:
    """Returns the names that a line declares which cannot be read; of `a-b` its parts too."""
    found = _DECLARES.match(text)
    if found is None or not {found[1], found[2]}.isdisjoint((*STATEMENTS, "use")):
        return ()
    name = found[2] or found[4]
    return tuple(dict.fromkeys((name.replace("-", "_"), *name.split("-"))))
