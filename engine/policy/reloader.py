"""Policy texts of several sources in, a bundle in force out; or a refusal, and the old rules stay.

    idle ── offer(source, files) ─▶ compiling ── no error ──▶ coming ── came(put) ──▶ idle
     ▲                                │  ▲ │                    │ offer(newer files): withdrawn
     │                                │  └─┘ offer(newer files): starts again with those
     │                                └── errors ──▶ each source by itself: those that fit are
     │                                    taken, the others refused: told once, their old texts stay
     ├── offer(source, None) or no file in it: refused, its old texts stay
     ├── leave(source): its rules go
     ├── go_back(why): the bundle of before comes back, the new texts are not tried again
     ├── heed(kept): what another process has taken back is so here
     └── the cluster outgrows the size that costs were bounded for ──▶ bounded anew: told, never
         refused: what is in force stays

A source's texts take effect whole or not at all. No profile has rules before every source that is
expected for it has texts that are good, its own or those kept from before the start. Compiling is
driven in slices between scheduling cycles, so that no pod waits for it. What is coming is put in
force by whoever asks what is `ready`: see `engine.inforce.swap` and `engine.policy.tenants`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dsl.analysis import Size
from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic
from engine.clock import Clock
from engine.policy.bundle import Bundle, CompileSettings, Refusal, steps_of
from engine.policy.sources import Source, Texts, decoded
from engine.steps import Steps

_OF_COST: Final = ("P320", "P321")
_LOOK_SECONDS: Final = 0.25
"""How often it is looked whether what a bundle waits for is there."""
_KEPT: Final = "the kept copy"
_MOST_BEFORE: Final = 16
"""Bundles that changes in quick succession may be taken back to."""
_TAKEN_BACK: Final = "PoliciesTakenBack"
Work = Generator[None, None, None]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a source beyond this process.

    Attributes:
        files: its texts in force.
        barred: digests of texts that were taken back, one after the other: not to be tried again.
    """

    files: Mapping[str, str]
    barred: str = ""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told.

    `refused`: a source's texts are not in force. `mended`: they are again those in force. `costly`:
    the cluster has grown so that policies in force cost more than they should; `outgrown`: it has
    grown beyond what costs were bounded for until now. `missing` says what a bundle reads and is
    not known yet, which begins to be read then; `awaiting` is told that it waits for that.
    """

    refused: Callable[[Source, Refusal], None] = lambda _source, _why: None
    mended: Callable[[Source, Bundle], None] = lambda _source, _bundle: None
    costly: Callable[[Bundle, tuple[Diagnostic, ...]], None] = lambda _bundle, _found: None
    missing: Callable[[Bundle], tuple[str, ...]] = lambda _: ()
    awaiting: Callable[[Bundle, tuple[str, ...]], None] = lambda _bundle, _missing: None
    outgrown: Callable[[], None] = lambda: None


@dataclass(slots=True)
class _State:
    """What is known of one source."""

    source: Source
    expected: bool = False
    offered: Texts | None = None
    good: Texts | None = None
    kept: Texts | None = None
    barred: str = ""
    refusal: Refusal | None = None

    @property
    def newest(self) -> Texts | None:
        """What it offers, if it is not in force and may be tried."""
        offered = self.offered
        if offered is None or offered == self.good or digest(offered) in self.barred:
            return None
        return offered


Chosen = dict[str, Texts]
"""Title of a source -> its texts."""


@dataclass(slots=True, eq=False)
class Coming:
    """A bundle that is to come into force, whole, and of which texts it is.

    Who was `refused` beside it is told once it is in force, or waits. `back`: it was there before.
    """

    bundle: Bundle
    chosen: Chosen
    refused: list[tuple[_State, Refusal]]
    back: bool = False


_Found = tuple[Chosen, Bundle | None, list[tuple[_State, Refusal]]]
"""Texts that are good together, their bundle unless some profiles wait, and who is refused."""


@dataclass(eq=False)
class Reloader:
    """The state machine; implements `scheduler.Background`. `there` counts nodes and pods."""

    compiler: Compiler
    settings: CompileSettings
    listener: Listener
    clock: Clock
    there: Callable[[], tuple[int, int]]
    bundle: Bundle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._in_force: Chosen = {}
        self._before: list[tuple[Bundle, Chosen]] = []
        self._size = Size()
        self._states: dict[str, _State] = {}
        self._kept: Mapping[str, Kept] = {}
        self._awaits: set[str] = set()
        self._work = Steps(self.clock)
        self._coming: Coming | None = None
        self._back: Coming | None = None
        self.awaited: tuple[str, ...] = ()
        """What the bundle that is to come into force waits for; empty if it does not."""

    # ---- what comes --------------------------------------------------------------------------

    def expect(self, *sources: Source) -> None:
        """Nothing comes into force before these have texts that are good."""
        for source in sources:
            self._states[source.title] = _State(source, expected=True)
            self._awaits.add(source.title)

    def await_kept(self) -> None:
        """Nothing comes into force before `restore`."""
        self._awaits.add(_KEPT)

    def await_listed(self, selection: str) -> None:
        """Nothing comes into force before it is `listed` which sources there are of these."""
        self._awaits.add(selection)

    def listed(self, selection: str) -> None:
        """Every source of these that there is has been offered."""
        self._awaits.discard(selection)
        self._begin()

    def restore(self, kept: Mapping[str, Kept]) -> None:
        """What was kept of sources, by title: for those whose own texts are no good."""
        self._awaits.discard(_KEPT)
        self._kept = kept
        for state in self._states.values():
            self._recall(state)
        self._begin()

    def _recall(self, state: _State) -> None:
        """What was kept of a source that is there at the start, whichever is heard of first."""
        one = self._kept.get(state.source.title)
        if one is not None and self.bundle is None:
            state.kept, state.barred = one.files or None, one.barred

    def offer(self, source: Source, files: Texts | None, noted: tuple[str, ...] = ()) -> None:
        """The source's files are these now. Takes note; the work is done by `step`.

        None: the source is gone, or cannot be read. `noted` says then why; else it names what is
        there and is no policy by its name.
        """
        state = self._states.get(source.title)
        if state is None:
            state = self._states[source.title] = _State(source)
            self._recall(state)
        self._awaits.discard(source.title)
        state.offered = dict(files) if files else None
        if not files:
            text = f"{source.title} does not exist"
            if files is not None:
                text = f"{source.title} has no file whose name ends in .policy"
                text += f"; it has {', '.join(noted)}" if noted else ""
            elif noted:
                text = f"{source.title} cannot be read: {'; '.join(noted)}"
            self._refuse(state, Refusal(text, text))
        self._begin()

    def leave(self, source: Source) -> None:
        """The source is wanted no more: its rules go."""
        self._awaits.discard(source.title)
        if self._states.pop(source.title, None) is not None:
            self._begin()

    def go_back(self, why: str, changes: int = 1) -> bool:
        """The bundle of before the last changes comes next; False if there is none.

        What came with them is not tried again before it changes.
        """
        bad = self.bundle
        last, self._before = self._before[-changes:], self._before[:-changes]
        before = [one for one in last if self._may_return(one[1])]
        if bad is None or not before or before[0][0].hash == bad.hash:
            return False
        bundle, goods = before[0]
        refused = []
        for title, state in self._states.items():
            if state.good != goods.get(title):
                bad_texts = digest(state.good or {})
                state.barred = (state.barred + bad_texts)[-_MOST_BEFORE * len(bad_texts) :]
                state.good = goods.get(title)
                why_not = _taken_back(state.source, f" (bundle {bad.hash}): {why}")
                refused.append((state, why_not))
        self.bundle, self._in_force = bundle, goods
        self._back = Coming(bundle, goods, refused, back=True)
        self._begin()
        return True

    @property
    def may_return(self) -> list[Bundle]:
        """The bundles of before, as long as the changes since then can be gone back on or are."""
        back = [] if self._back is None else [self._back.bundle]
        return [*(bundle for bundle, _ in self._before), *back]

    def keep_before(self, changes: int) -> None:
        """No more than the last changes can be gone back on from now on."""
        self._before = self._before[max(0, len(self._before) - changes) :]

    def _may_return(self, goods: Chosen) -> bool:
        """Not where a source has left, or where these were taken back themselves."""
        states = [self._states.get(title) for title in goods]
        texts = zip(states, goods.values(), strict=True)
        return all(one is not None and digest(of) not in one.barred for one, of in texts)

    def heed(self, kept: Mapping[str, Kept]) -> None:
        """What was taken back by the process that led until now does not rule here either."""
        for title, one in kept.items():
            state = self._states.get(title)
            if state is None or not one.barred:
                continue
            state.barred = one.barred
            if state.good is not None and digest(state.good) in one.barred:
                state.good, state.kept = None, one.files or None
        self._begin()

    # ---- what would come ---------------------------------------------------------------------

    def trial(self, kept: Mapping[str, Kept] | None = None) -> Reloader:
        """A reloader that stands where this one stands and tells nobody: what would an offer do.

        `kept` is what is kept of sources by whoever puts policies in force, if that is another
        process: what it took back is not tried again here either, and what it has in force of a
        source that is no good counts here, too.
        """
        other = Reloader(self.compiler, self.settings, Listener(), self.clock, self.there)
        other.bundle, other._in_force = self.bundle, self._in_force
        other._states = {title: replace(state) for title, state in self._states.items()}
        other._awaits = self._awaits & self._states.keys()
        for title, one in (kept or {}).items():
            state = other._states.get(title)
            if state is not None:
                state.barred = one.barred
                if state.good is None or digest(state.good) in one.barred:
                    state.good = one.files or None
        return other

    def tried(
        self, source: Source, files: Texts | None, passed_over: tuple[str, ...] = ()
    ) -> Generator[None, None, Refusal | None]:
        """Takes an offer and does the work of it; why the texts are refused, if they are."""
        if source.title in self._states:
            self._states[source.title].refusal = None
        self.offer(source, files, passed_over)
        while self._work.step(-math.inf):
            yield
        if self._coming is not None:
            self.came(self._coming)
        return self.refusal_of(source)

    # ---- what is known -----------------------------------------------------------------------

    @property
    def sources(self) -> list[Source]:
        """All of them, in the order in which they were told of."""
        return [state.source for state in self._states.values()]

    def refusal_of(self, source: Source) -> Refusal | None:
        """Why the newest texts of a source are not in force."""
        state = self._states.get(source.title)
        return None if state is None else state.refusal

    def awaited_by(self, source: Source) -> tuple[str, ...]:
        """What the newest texts of a source wait for, which by themselves are good."""
        state = self._states.get(source.title)
        if state is None or state.refusal is not None or state.offered in (None, state.good):
            return ()
        lacking = [
            title
            for title, one in self._states.items()
            if one.expected and one.good is None and one.refusal is not None
        ]
        return (*lacking, *self.awaited) or ("what is being compiled",)

    def kept(self) -> dict[str, Kept]:
        """What is to be kept beyond this process, by title."""
        return {
            title: Kept(decoded(state.good or {}), state.barred)
            for title, state in self._states.items()
            if state.good is not None or state.barred
        }

    # ---- the work ----------------------------------------------------------------------------

    @property
    def due(self) -> float | None:
        """Never by itself but while a bundle waits: whoever offers files wakes the scheduler."""
        waits = self._coming is not None or self._back is not None
        return self.clock.monotonic() + _LOOK_SECONDS if waits else None

    def step(self, deadline: float) -> bool:
        """Compiles until the deadline; True if there is more to do."""
        if self._work.due is None and self._is_outgrown():
            self._work.begin(self._bound_anew())
        return self._work.step(deadline)

    def ready(self) -> Coming | None:
        """What is to come into force, once all is known that it reads; until then what comes back.

        That has been there, and waits for nothing.
        """
        coming = self._coming
        if coming is not None:
            told, self.awaited = self.awaited, self.listener.missing(coming.bundle)
            if not self.awaited:
                return coming
            if self.awaited != told:
                self._no_more_refused(coming.chosen)
                self.listener.awaiting(coming.bundle, self.awaited)
                self._tell_refused(coming)
        return self._back

    def came(self, coming: Coming, put: Callable[[], None] = lambda: None) -> None:
        """`put` puts in force what was `ready`."""
        back, self._back = self._back, None
        if not coming.back:
            # No guard watches those of namespaces, of which there may be thousands.
            if self.bundle is not None and not self.settings.tenant:
                self._before = [*self._before, (self.bundle, self._in_force)][-_MOST_BEFORE:]
            self._mended(coming.chosen)
            self.bundle, self._coming = coming.bundle, None
        put()
        for one in (coming, back):
            if one is not None:
                self._tell_refused(one)
        self._tell_mended(coming.chosen, coming.bundle)

    def _begin(self) -> None:
        """What was to come does not; who was refused beside it is told none the less."""
        coming, self._coming, self.awaited = self._coming, None, ()
        if coming is not None:
            self._tell_refused(coming)
        self._work.begin(None if self._awaits else self._settle())

    def _tell_refused(self, coming: Coming) -> None:
        refused, coming.refused = coming.refused, []
        for state, why in refused:
            self._refuse(state, why)
        self._say_barred()

    def _settle(self) -> Work:
        """Finds which of the newest texts can be in force together: these are to come."""
        self._size = Size.for_cluster(*self.there())
        newest = {title: new for title, one in self._states.items() if (new := one.newest)}
        chosen, now, made = {**self._goods(), **newest}, self.bundle, None
        refused: list[tuple[_State, Refusal]] = []
        bundle = now if chosen == self._in_force else None
        if bundle is None and len(newest) > 1 and len(chosen) == len(self._states):
            made = yield from self._made(chosen, "policies")
            bundle = made if isinstance(made, Bundle) else None
        if bundle is None:
            chosen, bundle, refused = yield from self._one_by_one()
        if bundle is None:
            self._no_more_refused(chosen)
        elif now is None or (now.hash, now.waits) != (bundle.hash, bundle.waits):
            self._coming = Coming(bundle, chosen, refused)
            return
        else:
            self._tell_mended(chosen, now)
        for state, why in refused:
            self._refuse(state, why)
        if self._back is None:
            self._say_barred()

    def _one_by_one(self) -> Generator[None, None, _Found]:
        """Each source's newest texts beside what is chosen already, else what was kept of it."""
        chosen, bundle = yield from self._at_first()
        refused: dict[str, tuple[_State, Refusal]] = {}
        waiting = list(self._states.items())
        while waiting:
            title, state = waiting.pop(0)
            for texts, name in ((state.newest, title), (state.kept, f"the kept copy of {title}")):
                if texts is None or (texts is state.kept and title in chosen):
                    continue
                made = yield from self._made({**chosen, title: texts}, name)
                if isinstance(made, Bundle):
                    chosen, bundle = {**chosen, title: texts}, made
                    refused.pop(name, None)
                    # It may have given up what others were refused for.
                    again = (one for one in self._states.items() if one[0] in refused)
                    waiting += [one for one in again if one not in waiting]
                    break
                refused.setdefault(name, (state, made))
                state.kept = None if texts is state.kept else state.kept
        lacking = [
            one for title, one in self._states.items() if one.expected and title not in chosen
        ]
        if not all(one.source.profiles for one in lacking):
            return chosen, None, [*refused.values()]
        if bundle is None:
            made = yield from self._made(chosen, "policies")
            bundle = made if isinstance(made, Bundle) else None
        if bundle is not None:
            waits = {name: one.source.title for one in lacking for name in one.source.profiles}
            bundle = replace(bundle, waits=waits)
        return chosen, bundle, [*refused.values()]

    def _at_first(self) -> Generator[None, None, tuple[Chosen, Bundle | None]]:
        """What newest texts have to get along with: what is in force, or was before the start."""
        kept = {title: one.kept for title, one in self._states.items() if one.kept}
        if self.bundle is None and kept:
            made = yield from self._made(kept, _KEPT)
            if isinstance(made, Bundle):
                return kept, made
        return self._goods(), None

    def _no_more_refused(self, chosen: Chosen) -> None:
        """What is good by now, but waits for others."""
        for title, texts in chosen.items():
            if texts == self._states[title].newest:
                self._states[title].refusal = None

    def _made(self, chosen: Chosen, title: str) -> Generator[None, None, Bundle | Refusal]:
        files = {
            f"{self._states[source].source.folder}{name}": text
            for source, texts in chosen.items()
            for name, text in texts.items()
        }
        return steps_of(self.compiler, files, self.settings, self._size, title)

    def _tell_mended(self, chosen: Chosen, bundle: Bundle) -> None:
        for state in self._mended(chosen):
            self.listener.mended(state.source, bundle)

    def _mended(self, chosen: Chosen) -> list[_State]:
        """These texts are in force; the sources whose refusal is over with that."""
        self._in_force = chosen
        over = []
        for title, texts in chosen.items():
            state = self._states.get(title)
            if state is None:
                continue  # it has left while its rules came back, and they go with the next bundle
            state.good = texts
            if state.refusal is not None and state.offered == texts:
                state.refusal = None
                over.append(state)
        return over

    def _refuse(self, state: _State, refusal: Refusal) -> None:
        # The same refusal again says nothing new.
        if state.refusal is None or state.refusal.text != refusal.text:
            state.refusal = refusal
            self.listener.refused(state.source, refusal)

    def _say_barred(self) -> None:
        """What was taken back is not tried again after a start, or after a broken text, either."""
        for state in self._states.values():
            offered, why = state.offered, state.refusal
            told = why is not None and why.reason == _TAKEN_BACK
            if offered not in (None, state.good) and not told and digest(offered) in state.barred:
                self._refuse(state, _taken_back(state.source, " before"))

    def _goods(self) -> Chosen:
        return {title: one.good for title, one in self._states.items() if one.good is not None}

    # ---- what it costs -----------------------------------------------------------------------

    def _is_outgrown(self) -> bool:
        nodes, pods = self.there()
        grown = nodes > self._size.nodes or pods > self._size.pods
        return self.bundle is not None and grown

    def _bound_anew(self) -> Work:
        assert self.bundle is not None
        self._size = Size.for_cluster(*self.there())
        self.listener.outgrown()
        made = yield from steps_of(
            self.compiler, self.bundle.files, self.settings, self._size, "policies"
        )
        found = made.warnings if isinstance(made, Bundle) else made.diagnostics
        costly = tuple([one for one in found if one.code in _OF_COST])
        if costly:
            self.listener.costly(self.bundle, costly)


def digest(files: Texts) -> str:
    """Names texts: equal ones have equal digests."""
    found = hashlib.sha256()
    for name, text in sorted(files.items()):
        data = text.encode() if isinstance(text, str) else text
        found.update(f"{len(name)} {name} {len(data)} ".encode() + data)
    return found.hexdigest()


def _taken_back(source: Source, why: str) -> Refusal:
    text = f"{source.title} was taken back{why}; it is not tried again before it changes"
    return Refusal(text, text, reason=_TAKEN_BACK)
