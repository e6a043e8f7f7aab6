"""What was meant by the value of an attribute of a test: units, times and yes or no of elsewhere.

Knows values alone, not where they stand.
"""

import re
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from dsl.functions import parse_duration, parse_number, parse_time
from dsl.parser.testwords import (
    AMOUNT,
    CHOICES,
    DEFAULT_NOW,
    EXAMPLES,
    FLAG,
    NAME,
    SPAN,
    TEXT,
    TEXTS,
    TIME,
    read_value,
)
from dsl.spelling import closest
from dsl.types import is_missing

#: What a metric's sample is; not a kind of attribute of its own.
SAMPLE: Final = "a number"
_WORD: Final = re.compile(r"[-.]?[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")
_FLAGS: Final = MappingProxyType(
    {
        **dict.fromkeys(("yes", "on", "1", "true", "y", "t"), "true"),
        **dict.fromkeys(("no", "off", "0", "false", "n", "f"), "false"),
    }
)
#: Units of amounts as people write them, in lower case, without a plural's s.
_UNITS: Final = MappingProxyType(
    {
        **dict.fromkeys(("core", "cpu", "vcpu", "byte", "b", "gpu", "pod", "x", "replica"), ""),
        **dict.fromkeys(("millicore", "milli", "mcpu", "millicpu"), "m"),
        **dict.fromkeys(("kb", "kilobyte"), "k"),
        **dict.fromkeys(("mb", "megabyte", "meg"), "M"),
        **dict.fromkeys(("gb", "gigabyte", "gig"), "G"),
        **dict.fromkeys(("tb", "terabyte"), "T"),
        **dict.fromkeys(("ki", "kib", "kibibyte"), "Ki"),
        **dict.fromkeys(("mi", "mib", "mebibyte"), "Mi"),
        **dict.fromkeys(("gi", "gib", "gibibyte"), "Gi"),
        **dict.fromkeys(("ti", "tib", "tebibyte"), "Ti"),
        "k": "k", "g": "G", "t": "T", "percent": "%", "%": "%",
    }
)  # fmt: skip
_TIMES: Final = MappingProxyType(
    {
        **dict.fromkeys(("s", "sec", "second"), "s"),
        **dict.fromkeys(("m", "min", "minute", "mn"), "m"),
        **dict.fromkeys(("h", "hr", "hour"), "h"),
        **dict.fromkeys(("d", "day"), "d"),
        **dict.fromkeys(("ms", "milli", "millisecond"), "ms"),
    }
)
_NUMBER_AND_UNIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+|%)(?:/s|ps)?")
_DAY: Final = re.compile(
    r"(?:(\d{4}-\d\d-\d\d)[T ]*)?(?:(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?\s*(Z|UTC|[+-]\d\d:\d\d)?"
)


def quoted(text: str) -> str:
    """Returns a text as it is written: in quotes where a bare word cannot be it."""
    if _WORD.fullmatch(text) is not None and text not in ("given", "expect"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_word(text: str) -> bool:
    """Whether a text can stand without quotes."""
    return _WORD.fullmatch(text) is not None


def meant(kind: str, name: str, text: str, now: float | None) -> str | None:
    """Returns what to write for a value, None where nobody knows.

    Args:
        kind: what the value is.
        name: the attribute.
        text: the value, without quotes; several words are joined by blanks.
        now: the time of the test, if it is known.
    """
    if kind == TIME:
        time = _time(text, now)
        return None if time is None else f'"{time}"'
    if kind == TEXT:
        return _choice(name, text)
    if kind == TEXTS:
        return f"[{quoted(text)}]"
    if read_value(kind, name, text) is not None if kind != SAMPLE else _is_sample(text):
        return text
    if kind == FLAG:
        return _FLAGS.get(text.lower())
    if kind == SPAN:
        return _span(text)
    better = _amount(text) if kind in (AMOUNT, SAMPLE) else _count(text)
    if better is None or kind == SAMPLE:
        return better
    return None if read_value(kind, name, better) is None else better


def _is_sample(text: str) -> bool:
    return not (is_missing(parse_number(text)) and is_missing(parse_duration(text)))


def _choice(name: str, text: str) -> str | None:
    choices = CHOICES.get(name)
    split = re.fullmatch(r"([\w.-]+)/([\w.-]+)", text) if name == "name" else None
    if split is not None:
        return f"{split[2]} namespace {split[1]}"
    if name == "name" and NAME.fullmatch(text) is None:
        return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.") or None
    if name == "from":
        return f'"{text}"'
    if choices is None:
        return quoted(text)
    return text if text in choices else closest(text, choices)


def _amount(text: str) -> str | None:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    if found is None:
        return None
    number, unit = found.groups()
    if unit in ("m", "M"):
        return number + unit
    low = unit.lower()
    known = _UNITS.get(low, _UNITS.get(low.removesuffix("s")))
    return None if known is None else number + known


def _count(text: str) -> str | None:
    """`3 pods`, `3x`: the unit of a whole number says nothing."""
    found = re.fullmatch(r"(\d+)(?:\.0+)?\s*([A-Za-z]*)", text)
    if found is None:
        return None
    known = found[2].lower().removesuffix("s") in ("pod", "x", "time", "replica", "volume", "ip")
    return found[1] if known or not found[2] else None


def _span(text: str) -> str | None:
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if found is None:
        return None
    low = found[2].lower()
    unit = "s" if not low else _TIMES.get(low, _TIMES.get(low.removesuffix("s"), ""))
    return f"{found[1]}{unit}" if unit else None


def _time(text: str, now: float | None) -> str | None:
    """`2025-03-01 10:00`, `22:00`, `5m ago`, `now`; a time of the day is one of the test's day."""
    if not is_missing(parse_time(text)):
        return text
    start = None if now is None else datetime.fromtimestamp(now, UTC)
    ago = re.fullmatch(r"(?:now\s*-\s*|-)?(\d+\s*[A-Za-z]+)(?:\s+(?:ago|before|earlier))?", text)
    if text == "now" or ago is not None:
        span = "0s" if ago is None else _span(ago[1])
        if start is None or span is None:
            return None
        return _written(start - timedelta(seconds=parse_duration(span)))
    found = _DAY.fullmatch(text)
    if found is None or not (found[1] or found[2]):
        return None
    day = found[1] or (DEFAULT_NOW[:10] if start is None else f"{start:%Y-%m-%d}")
    zone = "Z" if found[5] in (None, "UTC") else found[5]
    made = f"{day}T{int(found[2] or 0):02}:{found[3] or '00'}:{found[4] or '00'}{zone}"
    return None if is_missing(parse_time(made)) else made


def _written(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def binary(text: str) -> tuple[str, ...]:
    """Returns the help that tells `8G` from `8Gi`, for a text that was neither."""
    if re.fullmatch(r"[\d.]+[GMTk]", text) is None:
        return ()
    return (f"or, in powers of 1024,  {text.replace('k', 'K')}i",)


def example(kind: str, name: str) -> tuple[str, ...]:
    """Returns the help for a value that nobody knows."""
    choices = CHOICES.get(name)
    if choices:
        return (f"it is {', '.join(choices[:-1])} or {choices[-1]}",)
    if kind == SAMPLE:
        return ("write it in the unit of the metric, for example  5   or  10Mi",)
    return (f"write something like {EXAMPLES[kind]}",) if kind in EXAMPLES else ()
