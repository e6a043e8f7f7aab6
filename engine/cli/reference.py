"""What the page of the language says of one word: the rows of its tables, and its paragraphs.

The page is docs/language.md, of which tests hold that its tables are those of the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_ROW = re.compile(r"^\| *(.+?) *\|$")
_CELLS = re.compile(r" *(?<!\\)\| *")
_CODE = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"[A-Za-z][\w.]*")
_TOPICS = re.compile(r"\*\*([a-z, ]+)\*\*")


class Entry(NamedTuple):
    """A row: its names, what it looks like, and each further column with its heading."""

    names: tuple[str, ...]
    form: str
    about: tuple[tuple[str, str], ...]

    @property
    def clauses(self) -> set[str]:
        """The first words of what its columns show."""
        return {code.split()[0] for _, text in self.about for code in _CODE.findall(text)}


def shipped(name: str) -> Traversable:
    """A page or folder of docs/: in the wheel beside the language, in a checkout under docs/."""
    packed = files("dsl") / name
    return packed if packed.is_dir() or packed.is_file() else files("dsl") / ".." / "docs" / name


def entries() -> Iterator[Entry]:
    """All rows of tables that begin with a word of the language."""
    heading: list[str] = []
    for line in shipped("language.md").read_text("utf-8").splitlines():
        row = _ROW.match(line)
        if row is None:
            heading = []
            continue
        cells = _CELLS.split(row[1])
        if not heading:
            heading = cells
        elif "---" not in cells[0]:
            forms = _CODE.findall(cells[0])
            plain = [form.replace("[KEY]", "") for form in forms]
            names = tuple(found[0] for form in plain if (found := _NAME.match(form)))
            pairs = zip(heading[1:], cells[1:], strict=False)
            about = tuple((name, text) for name, text in pairs if text)
            yield Entry(names, cells[0].replace("`", ""), about)


def told(word: str) -> list[str]:
    """Lines about a word of the language, clauses too; none if the page does not know it."""
    lines: list[str] = []
    found = [entry for entry in entries() if word in entry.names]
    # A clause is told with its statements; what surprises comes behind what is meant.
    found = found or [entry for entry in entries() if word in entry.clauses]
    about = {word} | {name for entry in found for name in entry.names if word not in entry.names}
    for entry in sorted(found, key=lambda one: one.about[0][0] == "what happens"):
        lines += [entry.form, *(f"  {name}: {text}" for name, text in entry.about), ""]
    for paragraph in shipped("language.md").read_text("utf-8").split("\n\n"):
        topics = _TOPICS.match(paragraph)
        if topics is not None and about & {*topics[1].split(", ")}:
            lines += [*paragraph.replace("**", "").splitlines(), ""]
    return lines


def words() -> list[str]:
    """All words that `told` knows."""
    return sorted({name for entry in entries() for name in entry.names})
