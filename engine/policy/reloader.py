"""Policy texts in, a bundle in force out; or a refusal, and the last good bundle stays.

    idle ── offer(files) ──▶ compiling ── errors ──▶ refused: told once, the old rules stay ──▶ idle
     ▲                         │  ▲ │
     │                         │  └─┘ offer(newer files): starts again with those
     │                         └── no error ──▶ accepted: one reference changes ──▶ idle
     ├── offer(None) or no file in it: refused, the old rules stay
     └── the cluster outgrows the size that costs were bounded for ──▶ bounded anew: told, never
         refused: what is in force stays

Compiling is driven in slices between scheduling cycles, so that no pod waits for it. A bundle takes
effect whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

import policies
from dsl.analysis import Size
from dsl.compiler import Compiler, CompileResult
from dsl.diagnostics import Diagnostic, render
from dsl.functions import parse_duration
from dsl.plan import MetricSpec, Plan
from dsl.schema import UNIT_WORDS, MetricDefinition, stale_by_default
from dsl.source import SourceFile, Span, make_source
from dsl.types import PLAIN, SECONDS
from engine.clock import Clock
from engine.config import BerthDocument, MetricSection, PolicyOverride
from engine.framework.profile import Profile
from engine.policy.sources import Texts
from engine.policy.support import (
    at_load,
    binders_of,
    installed,
    names_of_plugins,
    without_policy,
)

_HASH_DIGITS: Final = 12
_LOOK_SECONDS: Final = 0.25
"""How often it is looked whether what a bundle waits for is there."""
_OF_COST: Final = ("P320", "P321")


@dataclass(frozen=True, slots=True)
class Bundle:
    """All policies of one load, compiled; `hash` names texts and settings together.

    `files` are the texts as they were offered: compiling them again gives the same hash.
    """

    hash: str
    plans: tuple[Plan, ...]
    files: Mapping[str, str]
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Every metric that some policy reads and that is in no object of a node, each once."""
        specs = {spec.id: spec for plan in self.plans for spec in plan.metrics}
        return tuple(spec for spec in specs.values() if spec.source != "annotation")

    def changed_since(self, older: Bundle | None) -> frozenset[str] | None:
        """Names of the policies that came, went or changed; None: look at everything again."""
        if older is None:
            return None
        now = {plan.name: _identity(plan) for plan in self.plans}
        was = {plan.name: _identity(plan) for plan in older.plans}
        return frozenset(name for name in {*now, *was} if now.get(name) != was.get(name))


def _identity(plan: Plan) -> tuple[object, ...]:
    return plan.source.text, plan.variant, plan.mode, plan.order, plan.weight


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why offered texts are not in force; `text` is for users, with places and carets."""

    summary: str
    text: str
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """What configuration adds to the texts."""

    overrides: Mapping[str, PolicyOverride]
    metrics: Mapping[str, MetricDefinition]
    binders: frozenset[str] = frozenset()
    """The plugins that bind pods which `bind: with` hands to them."""

    def applied(self, plan: Plan) -> Plan:
        """The plan with what the configuration says of it."""
        override = self.overrides.get(plan.name)
        if override is None:
            return plan
        given = override.model_dump(include={"weight", "order", "mode"}, exclude_none=True)
        return replace(plan, **given)


def compile_settings(
    berth: BerthDocument, profiles: Iterable[Profile] | None = None
) -> CompileSettings:
    """The part of the configuration that compiling needs; profiles that it may take are all."""
    return CompileSettings(
        berth.policies.overrides,
        {name: _definition(section) for name, section in berth.metrics.items()},
        installed() if profiles is None else binders_of(profiles),
    )


def _definition(section: MetricSection) -> MetricDefinition:
    unit, per, _ = section.unit.partition("/")
    known = UNIT_WORDS.get(unit, PLAIN)
    every = parse_duration(section.every)
    stale = parse_duration(section.stale)
    if "stale" not in section.model_fields_set:
        stale = stale_by_default(every)
    return MetricDefinition(
        query=section.promql,
        by=section.by,
        every_seconds=every,
        stale_seconds=stale,
        default=section.default,
        unit=known.times(SECONDS, -1) if per else known,
        percent=unit == "percent",
    )


def compile_at_once(
    compiler: Compiler, files: Texts, settings: CompileSettings, title: str = "policies"
) -> Bundle | Refusal:
    """What a reloader makes of these files, without slices."""
    steps = _steps(compiler, files, settings, Size())
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return _outcome(done.value, files, settings, title)


def _steps(
    compiler: Compiler, files: Texts, settings: CompileSettings, size: Size
) -> Generator[None, None, CompileResult]:
    params = {name: override.params for name, override in settings.overrides.items()}
    bundled = {name: policies.text(name) for name in policies.names()}
    return compiler.steps(
        files, params=params, metrics=settings.metrics, size=size, bundled=bundled
    )


def _outcome(
    result: CompileResult, files: Texts, settings: CompileSettings, title: str
) -> Bundle | Refusal:
    run = [plan for plan in map(settings.applied, result.plans) if plan.mode != "off"]
    missing = (one for plan in run for one in at_load(plan, settings.binders))
    diagnostics = (*result.diagnostics, *names_of_plugins(result.plans), *missing)
    errors = [d for d in diagnostics if d.is_error]
    if not errors:
        plans = tuple([settings.applied(plan) for plan in result.plans])
        diagnostics = (*diagnostics, *without_policy(settings.overrides, plans, _in_overrides))
        texts = {n: t if isinstance(t, str) else t.decode("utf-8") for n, t in files.items()}
        digest = hashlib.sha256(f"{result.hash}{settings.overrides!r}".encode())
        return Bundle(digest.hexdigest()[:_HASH_DIGITS], plans, texts, diagnostics)
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    summary = f"{title} was refused: {in_a_line(errors[0])}{more}"
    return Refusal(summary, render(diagnostics), diagnostics)


def in_a_line(diagnostic: Diagnostic) -> str:
    """A finding for a log: `FILE:LINE:COLUMN: CODE MESSAGE`."""
    line, column = diagnostic.source.position(diagnostic.span.start)
    place = f"{diagnostic.source.name}:{line}:{column}"
    return f"{place}: {diagnostic.code} {diagnostic.message}"


def _in_overrides(name: str) -> tuple[SourceFile, Span]:
    text = f"overrides: {name}"
    return make_source("BerthConfiguration", text), Span(len(text) - len(name), len(text))


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told: `accepted` puts the bundle in force, before it returns.

    `mended`: after a refusal the texts are again those of the bundle in force. `costly`: the
    cluster has grown so that policies in force cost more than they should. `missing` says what a
    bundle reads and is not known yet, which begins to be read then; `awaiting` is told that it
    waits for that.
    """

    accepted: Callable[[Bundle], None]
    refused: Callable[[Refusal], None]
    mended: Callable[[Bundle], None]
    costly: Callable[[Bundle, tuple[Diagnostic, ...]], None]
    missing: Callable[[Bundle], tuple[str, ...]] = lambda _: ()
    awaiting: Callable[[Bundle, tuple[str, ...]], None] = lambda _bundle, _missing: None


class Reloader:
    """One source's state machine; implements `scheduler.Background`."""

    def __init__(
        self,
        title: str,
        compiler: Compiler,
        settings: CompileSettings,
        listener: Listener,
        clock: Clock,
        there: Callable[[], tuple[int, int]],
    ) -> None:
        """Starts idle.

        Args:
            title: the source, for messages.
            compiler: what compiles.
            settings: what the configuration adds.
            listener: who is told.
            clock: when a slice is over.
            there: how many nodes and pods the cluster has.
        """
        self.title = title
        self.bundle: Bundle | None = None
        self.refusal: Refusal | None = None
        self._compiler = compiler
        self._settings = settings
        self._listener = listener
        self._clock = clock
        self._files: dict[str, str | bytes] = {}
        self._there = there
        self._size = Size()
        self._bounding = False
        self._steps: Generator[None, None, CompileResult] | None = None
        # What is to come into force, and what was told of what it waits for.
        self._next: Bundle | None = None
        self._awaited: tuple[str, ...] = ()

    def offer(self, files: Texts | None, passed_over: tuple[str, ...] = ()) -> None:
        """The source's files are these now. Takes note; the work is done by `step`."""
        self._steps, self._next = None, None
        if files is None:
            self._refuse(Refusal(f"{self.title} is gone", f"{self.title} is gone"))
        elif not files:
            text = f"{self.title} has no file whose name ends in .policy"
            if passed_over:
                text = f"{text}; it has {', '.join(passed_over)}"
            self._refuse(Refusal(text, text))
        else:
            self._files = dict(files)
            self._bounding = False
            self._begin()

    def _begin(self) -> None:
        self._size = Size.for_cluster(*self._there())
        self._steps = _steps(self._compiler, self._files, self._settings, self._size)

    @property
    def due(self) -> float | None:
        """Never by itself but while a bundle waits: whoever offers files wakes the scheduler."""
        return None if self._next is None else self._clock.monotonic() + _LOOK_SECONDS

    @property
    def awaited(self) -> tuple[str, ...]:
        """What the bundle that is to come into force waits for; empty if none does."""
        return () if self._next is None else self._awaited

    def step(self, deadline: float) -> bool:
        """Compiles until the deadline; True if there is more to do."""
        if self._next is not None:
            self._settle(self._next)
        if self._steps is None and self._is_outgrown():
            self._bounding = True
            self._begin()
        while self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as done:
                self._steps = None
                self._finish(done.value)
                return False
            if self._clock.monotonic() >= deadline:
                return True
        return False

    def _is_outgrown(self) -> bool:
        if self.bundle is None or self.refusal is not None:
            return False
        nodes, pods = self._there()
        return nodes > self._size.nodes or pods > self._size.pods

    def _finish(self, result: CompileResult) -> None:
        if self._bounding:
            costly = tuple([one for one in result.diagnostics if one.code in _OF_COST])
            if costly and self.bundle is not None:
                self._listener.costly(self.bundle, costly)
            return
        outcome = _outcome(result, self._files, self._settings, self.title)
        if isinstance(outcome, Refusal):
            self._refuse(outcome)
            return
        refused, self.refusal = self.refusal, None
        if self.bundle is None or self.bundle.hash != outcome.hash:
            self._next, self._awaited = outcome, ()
            self._settle(outcome)
        elif refused is not None:
            self._listener.mended(self.bundle)

    def _settle(self, bundle: Bundle) -> None:
        """The bundle comes into force, whole, once all is known that it reads."""
        missing = self._listener.missing(bundle)
        if not missing:
            self._next = None
            self._listener.accepted(bundle)
            self.bundle = bundle
        elif missing != self._awaited:
            self._awaited = missing
            self._listener.awaiting(bundle, missing)

    def _refuse(self, refusal: Refusal) -> None:
        # The same refusal again says nothing new.
        if self.refusal is None or self.refusal.text != refusal.text:
            self.refusal = refusal
            self._listener.refused(refusal)
