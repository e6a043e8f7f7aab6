"""docs/diagnostics.md shows what the compiler says today.

`python -m tests.dsl.test_analysis_page` writes it anew: for each code the first example of its
page in docs/errors, and its rendering.
"""

import re
from pathlib import Path

from dsl.analysis import read_inventory
from dsl.diagnostics import render
from engine.policy.findings import new_compiler
from tests.effort import each

ROOT = Path(__file__).parents[2] / "docs"
PAGE = ROOT / "diagnostics.md"
HEAD = """\
# What the compiler says

Each code with a small policy that shows it and the exact words. `berth explain P301` (or any other
code) tells why it matters and how to mend it. Errors keep a policy out; warnings do not. What is
not here, and why, stands at the end.
"""
#: Codes of the language's specification, and of these pages, that no policy alone shows.
ABSENT = {
    "P119": "The scheduler and `berth check` say it of a `bind: with` of a plugin that no profile"
    " has.",
    "P120": "The scheduler and `berth check` say it of a policy that is a canary or in shadow.",
    "P121": "Of the policies of a namespace, which `berth check --tenant NAMESPACE` checks.",
    "P122": "Of the policies of a namespace, when they are too many.",
    "P322": "Of the policies of a namespace, when they cost more than their share.",
    "P024": "Of policy tests; its page in docs/errors shows it.",
    "P404": "Of a rule that pods of a journal would not have got by: `berth check --journal FILE`.",
    "P405": "Of a filter that autoscalers do not know of: `berth check --autoscaler`.",
    "P603": "Run time: several series of a metric name one node; the scheduler logs it and uses the"
    " largest. No policy shows it without a Prometheus.",
}
STOCK = read_inventory(
    {
        "inventory": 1,
        "nodes": [{"name": f"n{i}", "labels": {"test": "test"} if i < 3 else {}} for i in range(9)],
        "namespaces": [{"name": "default", "labels": {}}],
        "images": ["nginx:1.27"],
        "pods": 40,
        "metrics": [
            {"query": "node_hwmon_temp_celsius", "by": "instance", "series": 4, "nodes": 4},
            {"query": "rate(node_disk_io_now)", "error": "400: expected type range vector"},
        ],
    }
)
#: Codes that one file alone does not show.
MORE = {
    "P401": {"a.policy": "filter: pod.name contains nginx -> node.label test=tset\n"},
    "P402": {
        "a.policy": 'metric heat = promql "node_hwmon_temp_celsius" by instance\n'
        "prefer: least heat\n"
    },
    "P403": {"a.policy": 'metric disk = promql "rate(node_disk_io_now)"\nprefer: least disk\n'},
    "P502": {"a.policy": "policy: x\n", "b.policy": "policy: x\n"},
}
#: Every code that the specification of the language names.
SPECIFIED = re.findall(
    r"P\d+",
    """
    P003 P011 P012 P101 P102 P103 P104 P105 P106 P107 P108 P109 P110 P111 P112 P117 P201 P202 P203
    P204 P205 P206 P207 P208 P209 P210 P220 P231 P301 P302 P303 P304 P310 P312 P314 P316
    P317 P318 P320 P321 P401 P402 P403 P404 P501 P502 P503 P504 P505 P603
    """,
)
COMPILER = new_compiler()


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
    stock = STOCK if code in ("P401", "P402", "P403") else None
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
    parts = re.split(r"(?m)^(?=## )", text)[1:]
    return {one[3:7]: one for one in parts if re.match(r"## P\d", one)}


def absent():
    lines = [f"- **{code}**: {why}" for code, why in sorted(ABSENT.items())]
    tests = "- **P7xx**: findings about `.policytest` files; `berth explain P701` shows one."
    return "\n".join(["## Codes that are not shown, and why", "", *lines, tests]) + "\n"


def rewrite():
    parts = [*(section(one) for one in codes()), absent()]
    PAGE.write_text(HEAD + "\n" + "\n".join(parts), encoding="utf-8")


@each("code, written", sections().items())
def test_section_is_fresh(code, written):
    assert written.rstrip() == section(code).rstrip(), "run: python -m tests.dsl.test_analysis_page"


def test_every_code_is_shown_or_its_absence_argued():
    pages = {one.stem for one in (ROOT / "errors").glob("P*.md")}
    assert set(codes()) == set(sections())
    assert {one for one in pages if not one.startswith("P7")} <= {*sections(), *ABSENT}
    assert set(SPECIFIED) <= {*sections(), *ABSENT}
    assert not set(sections()) & set(ABSENT)
    assert PAGE.read_text(encoding="utf-8").endswith(absent())


if __name__ == "__main__":
    rewrite()
