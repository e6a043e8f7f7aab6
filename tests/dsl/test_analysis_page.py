"""docs/diagnostics.md shows what the compiler says today.

`python -m tests.dsl.test_analysis_page` writes it anew: for each code the first example of its
page in docs/errors, and its rendering.
"""

import re
from pathlib import Path

import pytest

from dsl.analysis import read_inventory
from dsl.compiler import Compiler
from dsl.diagnostics import render

ROOT = Path(__file__).parents[2] / "docs"
PAGE = ROOT / "diagnostics.md"
HEAD = """\
# What the compiler says

Each code with a small policy that shows it and the exact words. `berth explain P301` (or any other
code) tells why it matters and how to mend it. Errors keep a policy out; warnings do not.
"""
STOCK = read_inventory(
    {
        "inventory": 1,
        "nodes": [{"name": f"n{i}", "labels": {"test": "test"} if i < 3 else {}} for i in range(9)],
        "namespaces": [{"name": "default", "labels": {}}],
        "images": ["nginx:1.27"],
        "pods": 40,
    }
)
#: Codes that one file alone does not show.
MORE = {
    "P401": {"a.policy": "filter: pod.name contains nginx -> node.label test=tset\n"},
    "P502": {"a.policy": "policy: x\n", "b.policy": "policy: x\n"},
}
COMPILER = Compiler()


def shown(code):
    """Returns the files that show a code, None where its page has no example."""
    if code in MORE:
        return MORE[code]
    text = (ROOT / "errors" / f"{code}.md").read_text(encoding="utf-8")
    found = re.search(r"```policy\n(.*?)\n```", text, re.DOTALL)
    return None if found is None else {"a.policy": found[1] + "\n"}


def section(code):
    title = (ROOT / "errors" / f"{code}.md").read_text(encoding="utf-8").split("\n", 1)[0]
    files = shown(code)
    stock = STOCK if code == "P401" else None
    found = [one for one in COMPILER.compile(files, stock=stock).diagnostics if one.code == code]
    texts = "".join(
        f"```policy\n{'' if len(files) == 1 else f'# {name}{chr(10)}'}{text.rstrip()}\n```\n\n"
        for name, text in files.items()
    )
    lines = "\n".join(line.rstrip() for line in render(found).splitlines())
    return f"## {title.removeprefix('# ')}\n\n{texts}```text\n{lines}\n```\n"


def codes():
    pages = (one.stem for one in sorted((ROOT / "errors").glob("P*.md")))
    return [one for one in pages if shown(one) is not None]


def sections():
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return {one[3:7]: one for one in re.split(r"(?m)^(?=## P\d)", text)[1:]}


def rewrite():
    PAGE.write_text(HEAD + "\n" + "\n".join(section(one) for one in codes()), encoding="utf-8")


@pytest.mark.parametrize("code", sorted(sections()))
def test_section_is_fresh(code):
    written = sections()[code].rstrip()
    assert written == section(code).rstrip(), "run: python -m tests.dsl.test_analysis_page"


def test_every_finding_of_the_analysis_is_shown():
    assert {one for one in codes() if one[:2] in ("P3", "P4")} <= set(sections())


if __name__ == "__main__":
    rewrite()
