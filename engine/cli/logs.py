"""Log lines on the console: what others wrote in them can neither forge a line nor drive it."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

import click

from engine.clock import SystemClock
from engine.text.display import plain

_MOST: Final = 65_536
_HELD_SECONDS: Final = 1.0
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

    _second = 0
    _told = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's
        """See `logging.Formatter.formatTime`; a second is put into words once."""
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._told = super().formatTime(record, datefmt)[: -len(",000")]
        return f"{self._told},{int(record.msecs):03}"

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`; what it does for each record is done at once here."""
        if record.exc_info or record.stack_info:
            text = super().format(record)
        else:
            record.message, record.asctime = record.getMessage(), self.formatTime(record)
            text = self._style._fmt % vars(record)  # noqa: SLF001 - it has no public name
        return plain(text, _MOST, keep="\n").replace("\n", "\n    ")


class _Record(logging.LogRecord):
    """A quarter of the work: what no line says of itself is the same for all of them."""

    _same: Final = vars(logging.LogRecord("", 0, "", 0, "", (), None))

    def __init__(self, name: str, level: int, *of: object) -> None:
        _, _, msg, args, exc, *_ = of  # a file and a line before, a function and a stack behind
        if isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
            args = args[0]
        created = SystemClock.time()
        self.__dict__ = self._same | {
            "name": name,
            "msg": msg,
            "args": args,
            "exc_info": exc,
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "created": created,
            "msecs": created % 1 * 1000,
        }


class _Console(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the lines of a turn of the loop in one go: of 200 bindings that are 200 calls less.

    Warnings do not wait for the end of the turn, and lines from outside of a loop neither; where a
    turn does not end they do not wait for long (`watch`).
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._lines: list[str] = []  # of any thread's
        self._turn = threading.Lock()
        self._loop: object = None
        """Whose turn it is."""

    def watch(self) -> None:
        """Lines are written each second, though the loop hangs: they say what in."""

        def write() -> None:
            while not threading.Event().wait(_HELD_SECONDS):
                self.flush()

        threading.Thread(target=write, name="log", daemon=True).start()

    def handle(self, record: logging.LogRecord) -> bool:
        """See `logging.Handler.handle`; there are no filters."""
        try:
            line = f"{self.format(record)}\n"
            with self._turn:
                first = not self._lines
                self._lines.append(line)
            import asyncio

            loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises
            if record.levelno >= logging.WARNING or loop is None:
                self.flush()
            elif first or loop is not self._loop:  # that one may have ended with its lines
                self._loop = loop
                loop.call_soon(self.flush)
        except Exception:  # noqa: BLE001 - as logging has it: it is told, and the work goes on
            self.handleError(record)
        return True

    def flush(self) -> None:
        """See `logging.Handler.flush`."""
        self.acquire()
        try:
            # INVARIANT: who appends to an empty one sees to it that this is called.
            with self._turn:
                lines, self._lines = self._lines, []
            if lines:
                self.stream.write("".join(lines))
        finally:
            self.release()


class _Json(logging.Formatter):
    """A JSON object a line, as Kubernetes' components write it: ts (milliseconds), msg, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
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
    _log(_Json() if as_json else _Tame(_TEXT), level).watch()
    if verbosity < _A_LINE_A_POD:
        logging.getLogger("engine.scheduler").setLevel(logging.WARNING)


def logged_as_json(why: str) -> bool:
    """Whether the log is one of JSON lines, in which the process then says why it ends."""
    is_json = any(isinstance(one.formatter, _Json) for one in logging.root.handlers)
    if is_json:
        logging.getLogger("engine").critical("%s", why)
    return is_json


def _log(formatter: logging.Formatter, level: int) -> _Console:
    # What no line says of itself: thread, process, task, and where it is written in the code.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - as Python's logging HOWTO says, under Optimization
    logging.setLogRecordFactory(_Record)
    console = _Console()
    console.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[console])
    return console
