"""Diagnostics as other tools read them: SARIF 2.1.0 and annotations of GitHub Actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from dsl.diagnostics import Diagnostic
from engine import __version__

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB: Final = {"error": "error", "warning": "warning", "note": "notice"}


def to_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns a SARIF log with one run; columns are code points, the end is exclusive."""
    codes = sorted({one.code for one in diagnostics})
    driver = {
        "name": "berth",
        "version": __version__,
        "rules": [
            {"id": code, "shortDescription": {"text": f"see: berth explain {code}"}}
            for code in codes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, codes) for one in diagnostics],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False)


def _result(one: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    line, column = one.source.position(one.span.start)
    end_line, end_column = one.source.position(one.span.end)
    region = {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
    uri = quote(one.source.name.replace("\\", "/"))
    place = {"artifactLocation": {"uri": uri}, "region": region}
    return {
        "ruleId": one.code,
        "ruleIndex": codes.index(one.code),
        "level": one.severity.value,
        "message": {"text": _text(one)},
        "locations": [{"physicalLocation": place}],
    }


def to_github(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns one workflow command a line."""
    return "\n".join(_annotation(one) for one in diagnostics)


def _annotation(one: Diagnostic) -> str:
    line, column = one.source.position(one.span.start)
    end_line, end_column = one.source.position(one.span.end)
    parts = {"file": one.source.name, "line": line, "endLine": end_line, "title": one.code}
    if line == end_line:
        # The last column is part of the annotation there.
        parts |= {"col": column, "endColumn": max(column, end_column - 1)}
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in parts.items())
    return f"::{_GITHUB[one.severity.value]} {shown}::{_data(_text(one))}"


def _text(one: Diagnostic) -> str:
    return "\n".join((one.message, *one.notes, *(f"help: {help}" for help in one.helps)))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
