"""Results of policy tests as text, JSON and JUnit XML."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Final
from xml.etree import ElementTree as ET

from engine.policytests.running import ERROR, FAILED, PASSED, Report, Result

_OUTCOMES: Final = ("rejected", "passed", "skipped", "scored", "applied")
_MOST_TEXT: Final = 60
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_text(report: Report, *, coverage: bool) -> str:
    """What people read: each failure whole, then the count."""
    parts = [_failure(one) for one in report.results if one.outcome != PASSED]
    if coverage:
        parts.append(_table(report))
    passed, failed = report.count(PASSED), report.count(FAILED)
    errors = report.count(ERROR)
    counts = [f"{passed} passed"]
    counts += [f"{failed} failed"] if failed else []
    counts += [f"{errors} could not be run"] if errors else []
    parts.append(", ".join(counts))
    return "\n\n".join(parts)


def _failure(result: Result) -> str:
    word = "FAILED" if result.outcome == FAILED else "ERROR"
    head = f"{word} {result.file}:{result.line}"
    head += f' "{result.test}"' if result.test else ""
    body = "\n".join(f"  {line}".rstrip() for line in result.message.rstrip().splitlines())
    return f"{head}\n{body}"


def _table(report: Report) -> str:
    rows: list[tuple[str, ...]] = [("rule", *_OUTCOMES, "")]
    for one in report.coverage.values():
        counts = [str(one.outcomes.get(name, 0) or "-") for name in _OUTCOMES]
        text = one.text if len(one.text) <= _MOST_TEXT else f"{one.text[: _MOST_TEXT - 3]}..."
        rows.append((one.place, *counts, text))
    # Only rules of other points than filter and score fill the last column.
    last = any(row[-2] != "-" for row in rows[1:])
    shown = [row if last else (*row[:-2], row[-1]) for row in rows]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]) - 1)]
    return "\n".join(
        "  ".join(
            [
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=False))
            ]
            + [row[-1]]
        ).rstrip()
        for row in shown
    )


def as_json(report: Report, *, coverage: bool) -> str:
    """What programs read: a list of results; with coverage an object that has it as `tests`."""
    tests = [
        {
            "file": one.file,
            "test": one.test,
            "line": one.line,
            "outcome": one.outcome,
            "message": one.message,
        }
        for one in report.results
    ]
    if not coverage:
        return json.dumps(tests, ensure_ascii=False, indent=2)
    rules = [
        {
            "rule": key,
            "place": one.place,
            "text": one.text,
            **{name: one.outcomes.get(name, 0) for name in _OUTCOMES},
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
                tag = "failure" if one.outcome == FAILED else "error"
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
