"""Log lines on the console: what others wrote in them can neither forge a line nor drive it."""

from __future__ import annotations

import json
import logging
import re
import time
from functools import lru_cache
from typing import Any, Final

import click

from engine.text.display import plain

_MOST: Final = 65_536
_TEXT: Final = "%(asctime)s %(levelname).1s %(name)s %(message)s"
_A_LINE_A_POD: Final = 2
_EVERYTHING: Final = 4
_WORDS: Final = re.compile(r"[^=%]*?(?= \w+=)")
_FIELD: Final = re.compile(r' (\w+)="?%[.\w]+"?')


def level_of(text: str) -> int:
    """The level of `-v 4`, `-v4` and Go's `-v=4`; a type of options."""
    number = text.removeprefix("=")
    if not number.isdecimal():
        raise click.BadParameter(f"{number!r} is not a log level; write a number from 0 to 10")
    return int(number)


class _Tame(logging.Formatter):
    """Escapes what a terminal obeys; only the first line of a record starts at the margin."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record), _MOST, keep="\n").replace("\n", "\n    ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - as the base class has it
        """See `logging.Formatter.formatTime`, whose default this is."""
        return f"{_second(int(record.created))},{int(record.msecs):03}"


@lru_cache(maxsize=1)
def _second(second: int) -> str:
    """Formatted once for hundreds of lines."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))


class _Json(logging.Formatter):
    """A JSON object a line, as Kubernetes' components write it: ts (milliseconds), msg, fields."""

    def format(self, record: logging.LogRecord) -> str:
        message, fields = _parted(record)
        line: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": message[:_MOST],
            **fields,
        }
        if record.exc_info:
            line["err"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _parted(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The words of a line `Words name="%s" other=%d`, and its fields by name."""
    text, values = str(record.msg), record.args
    words = _WORDS.match(text)
    names = _FIELD.findall(text)
    if words is None or not isinstance(values, tuple) or len(names) != len(values):
        return record.getMessage(), {}
    return words[0], dict(zip(names, values, strict=True))


def log_to_stderr(level: int, form: str) -> None:
    """Logs of this level and above go to the console."""
    _log(_Tame(form), level)


def log_of_a_process(verbosity: int, *, as_json: bool) -> None:
    """The log of a scheduler, in kube-scheduler's levels: 2 has a line for each pod placed."""
    level = logging.DEBUG if verbosity >= _EVERYTHING else logging.INFO
    _log(_Json() if as_json else _Tame(_TEXT), level)
    if verbosity < _A_LINE_A_POD:
        logging.getLogger("engine.scheduler").setLevel(logging.WARNING)


def logged_as_json(why: str) -> bool:
    """Whether the log is one of JSON lines, in which the process then says why it ends."""
    is_json = any(isinstance(one.formatter, _Json) for one in logging.root.handlers)
    if is_json:
        logging.getLogger("engine").critical("%s", why)
    return is_json


def _log(formatter: logging.Formatter, level: int) -> None:
    # What no line says of itself: thread, process, task, and where it is written in the code.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as Python's logging HOWTO says, under Optimization
    console = logging.StreamHandler()
    console.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[console])
