"""What must hold for any input; everything a user's text passes through on the command line.

Raises `Broken` where something else than an exception is wrong.
"""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from dsl.analysis import read_inventory
from dsl.compiler import Compiler, CompileResult
from dsl.diagnostics import render, to_json
from dsl.evaluate import understand
from dsl.files import read_source
from dsl.formatter import format_source
from dsl.parser import Parser
from dsl.policytest.reading import read_suite
from engine.policytests.running import Runner, as_json, as_junit, as_text
from tests.fuzz.inputs import ROOT, SEPARATOR, WORLD

#: CPU seconds that one input may take in one stage.
SECONDS: Final = 1.0
STOCK: Final = read_inventory(
    {
        "inventory": 1,
        "nodes": [{"labels": {"test": "test", "kubernetes.io/os": "linux"}}],
        "namespaces": [{"name": "prod", "labels": {"tenant": "acme"}}, {"name": "kube-system"}],
        "images": ["nginx:1.25"],
        "pods": 5,
    }
)
BUNDLED: Final = {one.stem: one.read_text("utf-8") for one in (ROOT / "policies").glob("*.policy")}
_LEAKED: Final = re.compile(r"\b(LPAR|RPAR|QUANT|DOTTED|__ANON|TEXTOP|NoneType)|<[\w.]+ object at")
_FAULT: Final = re.compile(r"fault of Berth|running \w+ plugin '")


class Broken(Exception):  # noqa: N818 - what it says
    """An invariant does not hold."""


class Language:
    """Holds the tables of the grammar, as one process of `berth` does.

    Policies and tests to run are written into `place`, a folder of its own; `seconds` is the CPU
    time that an input may take in one stage.
    """

    def __init__(self, place: Path, seconds: float = SECONDS) -> None:
        self._compiler = Compiler()
        self._compiler.warm()
        self._parser = Parser()
        self._reader = Parser()
        self._reader.warm()
        self._place = place
        self._seconds = seconds

    def try_one(self, data: bytes | str, found: Path) -> bool:
        """Checks one input; one that fails is kept, the smallest of each kind, with why."""
        try:
            self.check(data)
        except Exception as wrong:  # noqa: BLE001 - any exception is what is looked for
            place = _place(wrong)
            raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
            kept = found / place
            if not kept.exists() or len(kept.read_bytes()) > len(raw):
                kept.write_bytes(raw)
                why = "".join(traceback.format_exception(wrong))
                kept.with_suffix(".why").write_text(why, "utf-8", "replace")
            return False
        return True

    def check(self, data: bytes | str) -> None:
        """Puts one input through everything."""
        if isinstance(data, bytes):
            policy, _, test = data.partition(SEPARATOR.encode())
        else:
            whole, _, rest = data.partition(SEPARATOR)
            policy, test = whole.encode("utf-8", "replace"), rest.encode("utf-8", "replace")
            with self._in_time("compile a str"):
                self._compiler.compile({"p.policy": whole})
        result = self._compiled(policy)
        self._formatted(policy, result)
        self._evaluated(policy)
        if result.ok:
            self._run(policy, WORLD.encode())
        if test:
            suite = read_suite("p.policytest", test, self._reader)
            render(suite.diagnostics, color=True)
            if suite.ok != (not any(one.is_error for one in suite.diagnostics)):
                raise Broken("a suite with errors is called sound")
            self._formatted_test(test, ok=suite.ok)
            self._run(policy, test)

    def _compiled(self, policy: bytes) -> CompileResult:
        with self._in_time("compile"):
            result = self._compiler.compile({"p.policy": policy}, bundled=BUNDLED, stock=STOCK)
        if result.ok != (not any(one.is_error for one in result.diagnostics)):
            raise Broken("ok disagrees with the diagnostics")
        if bool(result.plans) and not result.ok:
            raise Broken("plans in spite of errors")
        with self._in_time("render"):
            shown = render(result.diagnostics) + render(result.diagnostics, color=True)
            objects = json.loads(to_json(result.diagnostics))["diagnostics"]
        for one in objects:
            start, end = (one["line"], one["column"]), (one["end_line"], one["end_column"])
            if not (1, 1) <= start <= end:
                raise Broken(f"a place that is none: {one}")
            if not one["message"]:
                raise Broken(f"nothing said: {one}")
        leaked = _LEAKED.search(shown)
        if leaked and leaked.group() not in policy.decode("utf-8", "replace"):
            raise Broken(f"{leaked.group()} is not the user's word: {shown}")
        if len(set(shown.split("\n\n"))) < len(result.diagnostics):
            places = [(one.code, one.message, one.span) for one in result.diagnostics]
            if len(set(places)) < len(places):
                raise Broken(f"said twice: {shown}")
        return result

    def _formatted(self, policy: bytes, result: CompileResult) -> None:
        source, problems = read_source("p.policy", policy)
        if problems:
            return
        with self._in_time("format"):
            once = format_source(source, self._parser.lexemes)
        render(once.diagnostics)
        if once.text is None:
            return
        again = format_source(read_source("p.policy", once.text)[0], self._parser.lexemes)
        if again.text != once.text:
            raise Broken(f"formatting twice differs:\n{once.text}\n--- again\n{again.text}")
        if not result.ok:
            return
        after = self._compiler.compile({"p.policy": once.text}, bundled=BUNDLED, stock=STOCK)
        codes = [one.code for one in result.diagnostics]
        if [one.code for one in after.diagnostics] != codes:
            raise Broken(f"formatting changed the findings:\n{once.text}")
        if _rules(after) != _rules(result):
            raise Broken(f"formatting changed the rules:\n{once.text}")

    def _formatted_test(self, test: bytes, *, ok: bool) -> None:
        source, problems = read_source("p.policytest", test)
        if problems:
            return
        with self._in_time("format a test"):
            once = format_source(source, partial(self._parser.lexemes, tests=True))
        if once.text is None:
            return
        written = read_source("p.policytest", once.text)[0]
        if format_source(written, partial(self._parser.lexemes, tests=True)).text != once.text:
            raise Broken(f"formatting twice differs:\n{once.text}")
        if read_suite("p.policytest", once.text, self._reader).ok != ok:
            raise Broken(f"formatting changed whether it is sound:\n{once.text}")

    def _evaluated(self, policy: bytes) -> None:
        text = policy.decode("utf-8", "surrogateescape")
        last = text.rpartition(":")[2]
        with self._in_time("evaluate"):
            _, found = understand(self._parser, last)
            render(found)

    def _run(self, policy: bytes, test: bytes) -> None:
        (self._place / "p.policy").write_bytes(policy)
        path = self._place / "p.policytest"
        path.write_bytes(test)
        bundled = ROOT / "policies" if b"use " in test.replace(b"use p\n", b"") else None
        runner = Runner(bundled, self._compiler, self._reader)
        with self._in_time("run"):
            runner.run(path)
        report = runner.report
        for form in (as_text, as_json):
            form(report, coverage=True)
        as_junit(report)
        for one in report.results:
            if _FAULT.search(one.message):
                raise Broken(one.message)

    @contextmanager
    def _in_time(self, stage: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        took = time.thread_time() - began
        if took > self._seconds:
            raise Broken(f"{stage} took {took:.2f} s")


def _place(wrong: Exception) -> str:
    """Names what went wrong, the same for the same cause."""
    frame = traceback.extract_tb(wrong.__traceback__)[-1]
    at = f"{type(wrong).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
    if not isinstance(wrong, Broken):
        return at
    words = re.sub(r"[\d.]+|'.*", "", str(wrong).partition("\n")[0])
    return f"{at}-{re.sub(r'[^a-z]+', '-', words.lower())[:50].strip('-')}"


def _rules(result: CompileResult) -> list[tuple[object, ...]]:
    return [
        (plan.name, plan.mode, plan.order, plan.weight, len(plan.filters), len(plan.scores),
         sorted(plan.reads), [one.core.weight for one in plan.scores])
        for plan in result.plans
    ]  # fmt: skip
