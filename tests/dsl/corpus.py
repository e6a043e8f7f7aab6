"""All policies that stand in tests and documents, right and wrong ones."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.scoreboard.__main__ import cases

ROOT = Path(__file__).parents[2]
_STARTS = (
    "applies to|avoid|bind|description|filter|first|forbid|gang|gate|language|mode|normalize|order"
    "|permit|policy|postBind|postbind|preBind|preEnqueue|preFilter|preScore|prebind|preempt|prefer"
    "|prefilter|prescore|postFilter|queueSort|quota|require|reserve|score|sort|spread|version|weight"
)
_POLICY = re.compile(rf"(?m)^(?:(?:{_STARTS})[ \t]*:|(?:let|param|metric|use) \S)")


@cache
def policies():
    """Every text that has a line like a statement, once."""
    found = {}
    folders = (ROOT / "tests" / one for one in ("dsl", "properties", "fuzz"))
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(node.value)
    for path in sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]):
        text = path.read_text(encoding="utf-8")
        found |= dict.fromkeys(re.findall(r"(?s)```policy\n(.*?)```", text))
    examples = (ROOT / "tests" / "dsl" / "data" / "examples.txt").read_text(encoding="utf-8")
    found |= dict.fromkeys(re.split(r"(?m)^=== .*\n", examples)[1:])
    found |= dict.fromkeys(f"{one.text}\n" for one in cases() if one.origin != "tests")
    for folder in ("examples", "policies"):
        for path in sorted((ROOT / folder).rglob("*.policy")):
            found.setdefault(path.read_text(encoding="utf-8"))
    return tuple(one for one in found if _POLICY.search(one) and len(one) < 4_000)
