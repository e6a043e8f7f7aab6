"""Texts that a function reads: one that is written down and cannot be read is a mistake (P111).

At run time such a text is a missing value, with which a filter rejects every node.
"""

import re
from typing import Final

from dsl import ir
from dsl.checker.scope import Refused, Scope
from dsl.diagnostics import Fix
from dsl.functions import TEXT_FUNCTIONS
from dsl.types import is_missing

#: Function -> what its text is.
_READS: Final = {
    "time": "time as RFC 3339 writes it",
    "duration": "duration",
    "quantity": "quantity",
    "number": "number",
    "version": "version",
}
_EXAMPLES: Final = {
    "time": 'write for example  time("2025-03-01T10:00:00Z")',
    "duration": 'write for example  duration("1h30min")',
    "quantity": 'write for example  quantity("500m")  or  quantity("2Gi")',
    "number": 'write for example  number("0.5")',
    "version": 'write for example  version("1.31.4"): up to four numbers of up to four digits',
}
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?)?", re.ASCII)
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(:\d\d)?|\d{1,2} ?[ap]m", re.ASCII | re.IGNORECASE)
_SPOKEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?", re.ASCII)
_PERIODS: Final = (
    (("ms", "msec", "milli", "millis", "millisecond", "milliseconds"), "ms"),
    (("s", "sec", "secs", "second", "seconds"), "s"),
    (("m", "min", "mins", "minute", "minutes"), "min"),
    (("h", "hr", "hrs", "hour", "hours"), "h"),
    (("d", "day", "days"), "d"),
)
_PERIOD: Final = {word: unit for words, unit in _PERIODS for word in words}
_WEEKS: Final = ("w", "wk", "week", "weeks")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtTpPeE])(i?)[bB]?(ytes)?", re.ASCII)


def require_readable(scope: Scope, name: str, read: ir.Expr) -> None:
    """Refuses a constant text that the function `name` gives no value for.

    Raises:
        Refused: the text can never be read.
    """
    value = read
    while isinstance(value, ir.Named):
        value = value.body
    text = value.value if isinstance(value, ir.Const) else None
    if name not in _READS or not isinstance(text, str) or not _unread(name, text):
        return
    raise _refusal(scope, name, read, text)


def _unread(name: str, text: str) -> bool:
    return is_missing(TEXT_FUNCTIONS[name](text))


def _refusal(scope: Scope, name: str, read: ir.Expr, text: str) -> Refused:
    meant = _MEANT[name](text)
    written = scope.text(read)
    quoted = written[:1] in ("'", '"')
    if meant is not None and quoted and not _unread(name, meant):
        fix = Fix(read.span, f"{written[0]}{meant}{written[0]}")
        helps = [f"write  {name}({fix.text})"]
    elif name == "time" and _CLOCK.fullmatch(text.strip()):
        fix, helps = None, ["the hour of the day is time.hour:  time.hour in 22..5"]
    else:
        fix, helps = None, [_EXAMPLES[name]]
    raise scope.refuse("P111", f"`{text}` is no {_READS[name]}", read.span, *helps, fix=fix)


def _time(text: str) -> str | None:
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    date, minutes, seconds = found.groups()
    return f"{date}T{minutes or '00:00'}{seconds or ':00'}Z"


def _duration(text: str) -> str | None:
    parts, at, body = [], 0, text.strip()
    if body.isdigit():
        return f"{body}s"
    for found in _SPOKEN.finditer(body):
        amount, word = found.groups()
        unit = _PERIOD.get(word.lower())
        if word.lower() in _WEEKS and amount.isdigit():
            amount, unit = str(int(amount) * 7), "d"
        if unit is None or body[at : found.start()].strip(" ,").removeprefix("and").strip():
            return None
        parts.append(f"{amount}{unit}")
        at = found.end()
    return "".join(parts) if parts and not body[at:].strip() else None


def _quantity(text: str) -> str | None:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    amount, factor, binary, _ = found.groups()
    factor = factor.lower() if factor in "kK" and not binary else factor.upper()
    return f"{amount}{factor}{binary}"


def _number(text: str) -> str | None:
    bare = text.strip().replace(",", "").replace("_", "")
    return bare if bare != text else None


def _version(text: str) -> str | None:
    found = re.search(r"\d+(\.\d+)+", text, re.ASCII)
    return None if found is None else found.group()


_MEANT: Final = {
    "time": _time,
    "duration": _duration,
    "quantity": _quantity,
    "number": _number,
    "version": _version,
}
