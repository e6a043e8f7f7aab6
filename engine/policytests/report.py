"""Results of policy tests as text, JSON and JUnit XML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET

from engine.policytests.rules import OUTCOMES
from engine.policytests.running import ERROR, FAILED, PASSED, Report, Result

_COUNTED: Final = ((PASSED, "passed"), (FAILED, "failed"), (ERROR, "could not be run"))
_TAGS: Final = {FAILED: "failure", ERROR: "error"}
_MOST_TEXT: Final = 60
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_text(report: Report, *, coverage: bool) -> str:
    """What people read: each failure whole, then the count."""
    parts = [_failure(one) for one in report.results if one.outcome != PASSED]
    if coverage:
        parts.extend(("\n".join(_table(report)), "\n".join(_covered(report))))
    counts = {words: report.count(outcome) for outcome, words in _COUNTED}
    told = [f"{count} {words}" for words, count in counts.items() if count]
    if report.untouched:
        told[0] += f" ({report.untouched} of them where no rule applied)"
    parts.append(", ".join(told) or "0 passed")
    return "\n\n".join(parts)


def _covered(report: Report) -> Iterator[str]:
    """How much of what the rules can do was seen, and what was not."""
    rules = report.coverage.values()
    possible = sum(len(one.possible) for one in rules)
    seen = possible - sum(len(one.missing) for one in rules)
    whole = sum(not one.missing for one in rules)
    share = 100 * seen // possible if possible else 100
    yield f"coverage: {whole} of {len(rules)} rules whole, {share}% of their outcomes"
    yield from (f"  {one.place} never {' or '.join(one.missing)}" for one in rules if one.missing)


def _failure(result: Result) -> str:
    word = result.outcome.upper()
    head = f"{word} {result.file}:{result.line}"
    head += f' "{result.test}"' if result.test else ""
    body = "\n".join(f"  {line}".rstrip() for line in result.message.rstrip().splitlines())
    return f"{head}\n{body}"


def _table(report: Report) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("rule", *OUTCOMES, "")]
    for one in report.coverage.values():
        counts = [str(one.outcomes[name] or "-") for name in OUTCOMES]
        text = one.text if len(one.text) <= _MOST_TEXT else f"{one.text[: _MOST_TEXT - 3]}..."
        rows.append((one.place, *counts, text))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for place, *cells, text in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=False))
        yield "  ".join((place.ljust(widths[0]), *numbers, text)).rstrip()


def as_json(report: Report, *, coverage: bool) -> str:
    """What programs read: a list of results; with coverage an object that has it as `tests`."""
    tests = [asdict(one) for one in report.results]
    if not coverage:
        return json.dumps(tests, ensure_ascii=False, indent=2)
    rules = [
        {
            "rule": key,
            "place": one.place,
            "text": one.text,
            **{name: one.outcomes[name] for name in OUTCOMES},
            "missing": one.missing,
        }
        for key, one in report.coverage.items()
    ]
    return json.dumps({"tests": tests, "coverage": rules}, ensure_ascii=False, indent=2)


def as_junit(report: Report) -> bytes:
    """What build servers read."""
    root = ET.Element("testsuites", _counts(report.results))
    for file, group in groupby(report.results, key=lambda one: one.file):
        results = list(group)
        suite = ET.SubElement(root, "testsuite", {"name": file, **_counts(results)})
        for one in results:
            name = _clean(one.test) or "the file"
            attributes = {"name": name, "classname": file, "file": file, "line": str(one.line)}
            case = ET.SubElement(suite, "testcase", attributes)
            if one.outcome != PASSED:
                tag = _TAGS[one.outcome]
                first = one.message.split("\n", 1)[0]
                said = ET.SubElement(case, tag, {"message": _clean(first)})
                said.text = _clean(one.message)
    ET.indent(root)
    made: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return made


def _counts(results: list[Result]) -> dict[str, str]:
    outcomes = [one.outcome for one in results]
    return {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count(FAILED)),
        "errors": str(outcomes.count(ERROR)),
    }


def _clean(text: str) -> str:
    """Without the characters that XML has no way to write."""
    return _NO_XML.sub("\ufffd", text)
