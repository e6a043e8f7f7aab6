"""The clauses of the specification and their cases, as they stand in the Markdown.

A chapter is a file with one heading `# N Title`; a clause is a heading `## N.M Title`, prose, and
cases. A case is a policy, then what is found in it (`diagnostics`), or tests of it, or both. A
fence `policy NAME.policy` before a case is one more file of its folder.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

HEADING = re.compile(r"^(#+) ([\d.]+) (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENTRY = "case.policy"


@dataclass
class Case:
    """One policy and what is said about it."""

    name: str
    policy: str
    beside: dict[str, str] = field(default_factory=dict)
    tests: str = ""
    diagnostics: str | None = None
    #: Where the text of the diagnostics stands in the file.
    place: tuple[int, int] = (0, 0)

    @property
    def files(self) -> dict[str, str]:
        return {ENTRY: self.policy, **self.beside}


@dataclass
class Clause:
    """One numbered clause: what it says, and the cases that show it."""

    number: str
    title: str
    prose: str = field(repr=False)
    cases: list[Case] = field(repr=False)

    @property
    def forbids(self) -> bool:
        return re.search(r"\b(refused?|refuses|an error)\b", self.prose) is not None


@dataclass
class Chapter:
    """One file."""

    path: Path
    number: str
    title: str
    clauses: list[Clause]


def read_chapter(path: Path) -> Chapter:
    text = path.read_text(encoding="utf-8")
    found = list(HEADING.finditer(text))
    (level, number, title), clauses = found[0].groups(), []
    assert level == "#", path
    ends = [one.start() for one in found[2:]] + [len(text)]
    for heading, end in zip(found[1:], ends, strict=True):
        assert heading[1] == "##", (path, heading[3])
        name = f"{heading[2]} {heading[3]}"
        cases = list(_cases(name, text, heading.end(), end))
        prose = FENCE.sub("", text[heading.end() : end]).strip()
        clauses.append(Clause(heading[2], heading[3], prose, cases))
    return Chapter(path, number, title, clauses)


def _cases(name, text, start, end):
    beside, case = {}, None
    for found in FENCE.finditer(text, start, end):
        kind, file, body = found.groups()
        if kind == "policy" and file:
            beside[file] = body
        elif kind == "policy":
            line = text.count("\n", 0, found.start()) + 1
            case, beside = Case(f"{name} (line {line})", body, beside), {}
            yield case
        elif kind == "policytest":
            case.tests = body
        elif kind == "diagnostics":
            case.diagnostics, case.place = body, found.span(3)


def read_all() -> list[Chapter]:
    return [read_chapter(path) for path in sorted(Path(__file__).parent.glob("*.md"))]
