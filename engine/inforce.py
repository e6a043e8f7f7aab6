"""The policies of one process: their sources, which bundle is in force, and who is told of it.

Owns the reloader and what feeds it; has no say in how a bundle decides. Writes through the edge.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from dsl.diagnostics import Diagnostic
from engine.clock import Clock
from engine.config import Settings
from engine.framework.edge import EventSink
from engine.framework.effects import Emit
from engine.framework.profile import Profile
from engine.framework.selectortext import read_selector
from engine.kube.errors import KubeError, StatusError
from engine.kube.keeper import Keeper
from engine.kube.resources import Resource, config_maps
from engine.objects import ConfigMap, ObjectMeta
from engine.policy import keeping
from engine.policy.bundle import Bundle, Refusal, compile_settings, file_of, in_a_line
from engine.policy.guard import Guard, GuardSettings, Load
from engine.policy.reloader import Kept, Listener, Reloader
from engine.policy.sources import (
    ConfigMapSource,
    FolderSource,
    SelectedSources,
    Source,
    Texts,
    title_of,
)
from engine.policy.support import new_compiler
from engine.policysections import PoliciesSection
from engine.scheduler import Background
from engine.sections import seconds
from engine.telemetry import Count, Telemetry

log = logging.getLogger(__name__)

_EVENT_NOTE: Final = 1000
_AGAIN_SECONDS: Final = 1.0
Watched = tuple[Resource[ConfigMap], "ConfigMapSource | SelectedSources"]


@dataclass(slots=True)
class Ears:
    """Who hears of bundles: `put` puts one in force, and gets the names of changed policies.

    `missing` says what one reads and is not known yet.
    """

    put: Callable[[Bundle, frozenset[str] | None], None]
    missing: Callable[[Bundle], tuple[str, ...]]
    wake: Callable[[], None]
    accepted: list[Callable[[Bundle], None]] = field(default_factory=list)
    refused: list[Callable[[Refusal], None]] = field(default_factory=list)


class InForce:
    """Which policies are in force, and why not others."""

    def __init__(
        self,
        settings: Settings,
        ears: Ears,
        profiles: Iterable[Profile],
        *,
        clock: Clock,
        telemetry: Telemetry,
        there: Callable[[], tuple[int, int]],
        load: Callable[[], Load],
    ) -> None:
        """Builds sources, reloader and guard as the configuration has them.

        Args:
            settings: the configuration.
            ears: who hears of bundles.
            profiles: those that policies are added to.
            clock: for slices, guard and stamps.
            telemetry: where reloads are counted.
            there: how many nodes and pods the cluster has.
            load: how the scheduler does.
        """
        policies = settings.berth.policies
        self._ears = ears
        self._clock = clock
        self._telemetry = telemetry
        self._there = there
        self._events: EventSink | None = None
        self._keeper: Keeper | None = None
        self._leads: Callable[[], bool] = lambda: True
        self._untold: dict[str, Emit] = {}
        self._config_maps: dict[str, ConfigMapSource] = {}
        self._named: dict[str, Source] = {}
        self._selects: list[tuple[str, str]] = []
        self._since = 0.0
        self.reloader = Reloader(
            new_compiler(),
            compile_settings(settings.berth, profiles),
            Listener(
                self._accepted,
                self._refused,
                self._mended,
                self._costly,
                ears.missing,
                self._awaiting,
                lambda: self._write_down(self.reloader.bundle),
            ),
            clock,
            there,
        )
        self._guard = _guard_of(policies, clock, load, self.reloader.go_back)
        self.watched: list[Watched] = []
        """What is to be listed and watched, and who handles it."""
        self.background: list[Background] = []
        """What is to be done between cycles."""
        self._build(policies)
        self.background.append(self.reloader)
        if self._guard is not None:
            self.background.append(self._guard)

    def _build(self, policies: PoliciesSection) -> None:
        selected = [one for one in policies.all_sources if one.selector is not None]
        for section in policies.all_sources:
            folder = section.folder if policies.in_folders else ""
            if section.config_map is not None:
                namespace, _, name = section.config_map.partition("/")
                source = Source(title_of(namespace, name), folder)
                self._named[section.config_map] = source
                self.reloader.expect(source)
                self.watched.append(
                    (config_maps(namespace, name), self._of(source, namespace, name))
                )
            elif section.dir is not None:
                source = Source(f"folder {section.dir}", folder)
                self.reloader.expect(source)
                offer = partial(self._offer, source)
                self.background.append(FolderSource(Path(section.dir), offer, self._clock))
        for section in selected:
            assert section.namespace is not None
            self._selects.append((section.namespace, section.selector or ""))
            handler = SelectedSources(self._selected, self._leave)
            resource = config_maps(section.namespace, label_selector=section.selector or "")
            self.watched.append((resource, handler))

    def _of(self, source: Source, namespace: str, name: str) -> ConfigMapSource:
        made = ConfigMapSource(namespace, name, partial(self._offer, source))
        self._config_maps[source.title] = made
        return made

    def _selected(self, namespace: str, name: str) -> ConfigMapSource | None:
        """A source for a ConfigMap that a selector found; None: it is one by its name already."""
        if f"{namespace}/{name}" in self._named:
            return None
        return self._of(_selected_source(namespace, name), namespace, name)

    def source_of(self, meta: ObjectMeta) -> Source | None:
        """The source that a ConfigMap of this name and these labels is; None: it is none.

        Raises:
            SelectorError: what selects sources cannot be read.
        """
        named = self._named.get(f"{meta.namespace}/{meta.name}")
        if named is not None:
            return named
        for namespace, text in self._selects:
            if namespace == meta.namespace and read_selector(text).matches(meta.labels or {}):
                return _selected_source(namespace, meta.name)
        return None

    def is_named(self, source: Source) -> bool:
        """Whether the configuration names the ConfigMap, and does not select it."""
        return source in self._named.values()

    def _leave(self, gone: ConfigMapSource) -> None:
        del self._config_maps[gone.title]
        self.reloader.leave(Source(gone.title))
        self._ears.wake()

    def _offer(
        self, source: Source, files: Texts | None, passed_over: tuple[str, ...] = ()
    ) -> None:
        self.reloader.offer(source, files, passed_over)
        self._ears.wake()

    # ---- the edge ----------------------------------------------------------------------------

    def connect(self, events: EventSink, keeper: Keeper | None, leads: Callable[[], bool]) -> None:
        """Where to write, and whether it is for us to write; before anything comes."""
        self._events, self._keeper, self._leads = events, keeper, leads
        if keeper is not None:
            self.reloader.await_kept()

    async def restore(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Asks for what was kept, until the server answers; for sources that are no good now."""
        assert self._keeper is not None
        kept: Mapping[str, Kept] = {}
        while True:
            try:
                data = await self._keeper.load()
                kept = {} if data is None else keeping.unpack(data)
            except KubeError as failed:
                if not isinstance(failed, StatusError) or failed.server_fault:
                    await sleep(_AGAIN_SECONDS)
                    continue
                log.warning("What was kept of policies cannot be read: %s", failed)
            except keeping.UnreadableError as wrong:
                log.warning("What was kept of policies is of no use: %s", wrong)
            break
        self.reloader.restore(kept)
        self._ears.wake()

    def lead(self) -> None:
        """It is for us to tell from now on."""
        for event in self._untold.values():
            self._emit(event)
        self._untold.clear()
        self._write_down(self.reloader.bundle)

    @property
    def bundle(self) -> Bundle | None:
        """What is in force."""
        return self.reloader.bundle

    def stale(self) -> dict[tuple[str, ...], float]:
        """By title of the source: 1 if its newest texts are not in force."""
        return {
            (source.title,): float(self.reloader.refusal_of(source) is not None)
            for source in self.reloader.sources
        }

    @property
    def not_ready(self) -> str:
        """Why nothing is scheduled; empty if rules are in force."""
        if self.reloader.bundle is not None:
            return ""
        why = [
            refusal.summary
            for source in self.reloader.sources
            if (refusal := self.reloader.refusal_of(source)) is not None
        ]
        if self.reloader.awaited:
            why.append(f"policies wait for {', '.join(self.reloader.awaited)}")
        return "; ".join(why) or "policies are not compiled yet"

    # ---- what happened -----------------------------------------------------------------------

    def _accepted(self, bundle: Bundle) -> None:
        before = self.reloader.bundle
        self._telemetry.add(Count.POLICY_RELOADS)
        self._ears.put(bundle, bundle.changed_since(before))
        self._since = self._clock.time()
        sources = ", ".join(source.title for source in self.reloader.sources)
        log.info(
            'Policies in force source="%s" bundle="%s" policies="%s"',
            sources,
            bundle.hash,
            ",".join(plan.name for plan in bundle.plans),
        )
        for diagnostic in bundle.warnings:
            log.warning("%s", in_a_line(diagnostic))
        for source in self.reloader.sources:
            if before is None or _files(before, source) != _files(bundle, source):
                self._tell_in_force(source, bundle)
        if self._guard is not None and before is not None:
            self._guard.changed()
        for hear in self._ears.accepted:
            hear(bundle)
        self._write_down(bundle)

    def _awaiting(self, bundle: Bundle, missing: tuple[str, ...]) -> None:
        """The rules before it stay in force, and its owners should know what for."""
        kept = self.reloader.bundle
        stay = "nothing is scheduled" if kept is None else f"bundle {kept.hash} stays in force"
        note = f"bundle {bundle.hash} reads what has to be listed first; {stay} until there is: "
        log.info("%s%s", note, "; ".join(missing))
        for source in self.reloader.sources:
            if kept is None or _files(kept, source) != _files(bundle, source):
                self._tell(source, "Normal", "PoliciesAwaiting", note + "; ".join(missing))

    def _mended(self, source: Source, bundle: Bundle) -> None:
        log.info('Policies are well again source="%s" bundle="%s"', source.title, bundle.hash)
        self._tell_in_force(source, bundle)
        self._write_down(bundle)

    def _costly(self, bundle: Bundle, found: tuple[Diagnostic, ...]) -> None:
        """The cluster has grown: what is in force stays, and its owners should know the price."""
        nodes, pods = self._there()
        for one in found:
            log.warning("For %d nodes and %d pods: %s", nodes, pods, in_a_line(one))
        note = (
            f"the cluster has {nodes} nodes and {pods} pods now; bundle {bundle.hash} stays in"
            f" force: {in_a_line(found[0])}"
        )
        for source in self.reloader.sources:
            if any(one.source.name.startswith(source.folder) for one in found):
                self._tell(source, "Warning", "PoliciesCostly", note)

    def _refused(self, source: Source, refusal: Refusal) -> None:
        self._telemetry.add(Count.POLICY_RELOADS_REFUSED)
        kept = self.reloader.bundle
        stay = (
            "nothing is scheduled until it is mended"
            if kept is None
            else f"bundle {kept.hash} stays in force"
        )
        details = "" if refusal.text == refusal.summary else f"\n{refusal.text}"
        log.error("%s; %s%s", refusal.summary, stay, details)
        self._tell(source, "Warning", refusal.reason, f"{refusal.summary}; {stay}{details}")
        for hear in self._ears.refused:
            hear(refusal)
        self._write_down(kept)

    def note(self, reason: str, text: str) -> None:
        """Says something of policies to the owners of all sources."""
        for source in self.reloader.sources:
            self._tell(source, "Normal", reason, text)

    # ---- telling -----------------------------------------------------------------------------

    def _tell_in_force(self, source: Source, bundle: Bundle) -> None:
        own = [plan.name for plan in bundle.plans if file_of(plan).startswith(source.folder)]
        note = f"in force: {', '.join(own) or 'no policy'} (bundle {bundle.hash})"
        warnings = [
            one
            for one in bundle.warnings
            if one.severity.value == "warning" and one.source.name.startswith(source.folder)
        ]
        if warnings:
            word = "1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings"
            note = f"{note}; {word}: {in_a_line(warnings[0])}"
        self._tell(source, "Normal", "PoliciesInForce", note)

    def _tell(self, source: Source, kind: str, reason: str, note: str) -> None:
        """An Event about the ConfigMap; a folder has none."""
        about = self._config_maps.get(source.title)
        if about is None:
            return
        uid = about.seen.metadata.uid if about.seen is not None else ""
        if len(note) > _EVENT_NOTE:
            note = note[: _EVENT_NOTE - 3] + "..."
        event = Emit("ConfigMap", about.namespace, about.name, uid, kind, reason, "Reload", note)
        if self._leads():
            self._emit(event)
        else:
            self._untold[source.title] = event

    def _emit(self, event: Emit) -> None:
        if self._events is not None:
            self._events.emit(event)

    def _write_down(self, bundle: Bundle | None) -> None:
        """Keeps what is in force, and says in a ConfigMap how all stand."""
        if self._keeper is None or not self._leads():
            return
        if bundle is not None:
            self._keeper.keep(keeping.pack(self.reloader.kept()))
        self._keeper.tell(msgspec.json.format(msgspec.json.encode(self.status(bundle)), indent=1))

    def status(self, bundle: Bundle | None) -> dict[str, Any]:
        """How all sources stand under a bundle, as `berth status` shows it."""
        return {
            "bundle": None if bundle is None else bundle.hash,
            "inForce": [] if bundle is None else [plan.name for plan in bundle.plans],
            "awaits": list(self.reloader.awaited),
            "cluster": dict(zip(("nodes", "pods"), self._there(), strict=True)),
            "since": datetime.fromtimestamp(self._since, UTC).isoformat(timespec="seconds"),
            "sources": [self._standing(source, bundle) for source in self.reloader.sources],
        }

    def _standing(self, source: Source, bundle: Bundle | None) -> dict[str, Any]:
        refusal = self.reloader.refusal_of(source)
        plans = () if bundle is None else bundle.plans
        return {
            "source": source.title,
            "state": "InForce" if refusal is None else refusal.reason,
            "policies": [one.name for one in plans if file_of(one).startswith(source.folder)],
            "why": "" if refusal is None else refusal.text,
        }


def _selected_source(namespace: str, name: str) -> Source:
    return Source(title_of(namespace, name), f"{namespace}/{name}/")


def _files(bundle: Bundle, source: Source) -> dict[str, str]:
    return {n: text for n, text in bundle.files.items() if n.startswith(source.folder)}


def _guard_of(
    policies: PoliciesSection,
    clock: Clock,
    load: Callable[[], Load],
    go_back: Callable[[str], object],
) -> Guard | None:
    section = policies.guard
    if section is None:
        return None
    settings = GuardSettings(seconds(section.within), section.pending, section.errors)
    return Guard(settings, clock, load, go_back)
