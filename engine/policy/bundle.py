"""Texts of policies become a bundle, or a refusal; what both are made of. No state, no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import cache, reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import astuple, replace

import policies
from dsl.analysis import Size
from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic, render
from dsl.plan import MetricSpec, Plan
from dsl.quantities import parse_duration
from dsl.schema import UNIT_WORDS, MetricDefinition, stale_by_default
from dsl.source import SourceFile, Span, make_source
from dsl.tenants import Tenant
from dsl.types import PLAIN, SECONDS
from engine.cache.otherpods import FINISHED, HEARTBEATS, NOMINATED, PREVIOUS, QUEUE, TIMES, VOLUMES
from engine.collective.packing import at_once
from engine.framework.profile import Profile
from engine.plugins import out_of_tree
from engine.policy.events import read_and_told
from engine.policy.findings import at_load, binders_of, rules_of, without_policy
from engine.policy.preemption import preempts
from engine.policy.sources import Texts, decoded

if TYPE_CHECKING:
    # Half of what `berth test` would import, and only named here.
    from engine.configuration.berth import (
        BerthDocument,
        MetricSection,
        PoliciesSection,
        TenantsSection,
    )

_HASH_DIGITS: Final = 12
_PERCENT: Final = 100


# ---- what policies read beside nodes and pods, so that nobody watches what none reads
#
# queue, nominated, finished, previous, volumes    kept by the cache, see `engine.cache.otherpods`
# heartbeats, workloads, kinds, usage              lists and watches of their own
# of_pods                                          of pods on nodes, which parts are kept


#: Fields by their first words -> what has to be kept for them.
_ATTENDED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "queue.pods": frozenset({QUEUE}),
        "group.size": frozenset({QUEUE}),
        "pod.queued_at": frozenset({QUEUE}),
        "pod.first_attempt_at": frozenset({QUEUE}),
        "pod.attempts": frozenset({QUEUE}),
        "it.queued_at": frozenset({QUEUE, TIMES}),
        "it.first_attempt_at": frozenset({QUEUE, TIMES}),
        "it.attempts": frozenset({QUEUE, TIMES}),
        "node.nominated": frozenset({NOMINATED}),
        "node.finished": frozenset({FINISHED}),
        "pod.previous_node": frozenset({PREVIOUS}),
        "node.heartbeat": frozenset({HEARTBEATS}),
        "node.volumes.limit": frozenset({VOLUMES}),
    }
)
ATTENDABLE: Final = frozenset[str]().union(*_ATTENDED.values())
"""All that may be kept beside nodes and the pods on them."""
#: Fields of pods on nodes -> the part of `engine.kube.sharing` that has to be kept for them.
_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "it.annotation": "annotations",
        "it.created": "created",
        "it.workload": "owners",
        "it.owner.kind": "owners",
        "it.owner.name": "owners",
        "pod.previous_node": "owners",
        "it.ready": "statuses",
        "it.restarts": "statuses",
        "it.scheduled_at": "statuses",
    }
)
_WORKLOAD: Final = "workload."
_USAGE: Final = "usage"
_OBJECT: Final = "object"


class Field(msgspec.Struct, frozen=True, order=True):
    """A field of the objects of a kind (`apps/deployments`), as a path (`spec.replicas`)."""

    kind: str
    path: str


class Needs(msgspec.Struct, frozen=True):
    """What has to be watched or kept.

    Attributes:
        attended: what the cache keeps.
        workloads: whether the objects that pods are made from are read.
        fields: fields of objects of any kind.
        usage: of whom the use of cores and memory is read, `node` or `pod`.
        of_pods: what of pods on nodes is kept.
    """

    attended: frozenset[str] = frozenset()
    workloads: bool = False
    fields: frozenset[Field] = frozenset()
    usage: frozenset[str] = frozenset()
    of_pods: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(*map(or_, astuple(self), astuple(other)))


def needs_of(plans: Iterable[Plan]) -> Needs:
    """What these policies need; those that are off need nothing."""
    in_use = [plan for plan in plans if plan.mode != "off"]
    reads = {read for plan in in_use for rule in rules_of(plan) for read in read_and_told(rule)}
    specs = [spec for plan in in_use for spec in plan.metrics]
    return Needs(
        attended=frozenset().union(*(_ATTENDED[read] for read in reads & _ATTENDED.keys())),
        workloads=any(read.startswith(_WORKLOAD) for read in reads),
        fields=frozenset(
            Field(*one.query.partition("#")[::2]) for one in specs if one.source == _OBJECT
        ),
        usage=frozenset(spec.of for spec in specs if spec.source == _USAGE),
        of_pods=frozenset(_PARTS.values())
        if any(plan.gangs or plan.quotas for plan in in_use)  # what they ask of members is not told
        else frozenset(_PARTS[read] for read in reads & _PARTS.keys()),
    )


# ---- the bundle


@dataclass(frozen=True, slots=True)
class Bundle:
    """All policies of one load, compiled; `hash` names texts and settings together.

    `files` are the texts as they were offered: compiling them again gives the same hash.
    """

    hash: str
    plans: tuple[Plan, ...]
    files: Mapping[str, str]
    warnings: tuple[Diagnostic, ...] = ()
    profiles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of policies that are of some profiles only, and of which."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Profiles that have no rules yet, and why."""
    tenants: Mapping[str, str] = field(default_factory=dict)
    """Names of policies that are of a namespace, and of which."""
    share: float = 0.0
    """What share of all weights those of one namespace may have in the scores, 0 to 1."""
    needs: Needs = field(default_factory=Needs)
    """What has to be watched or kept for them."""

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """Every metric that some policy reads and that is in no object of a node, each once."""
        specs = {spec.id: spec for plan in self.plans for spec in plan.metrics}
        return tuple(spec for spec in specs.values() if spec.source != "annotation")

    def changed_since(self, older: Bundle | None) -> frozenset[str] | None:
        """Names of the policies that came, went or changed; None: look at everything again."""
        if older is None:
            return None
        now, was = ({plan.name: plan for plan in one.plans} for one in (self, older))
        # Most are the same objects.
        moved = [name for name in {**now, **was} if now.get(name) is not was.get(name)]
        pairs = {name: [of[name] for of in (now, was) if name in of] for name in moved}
        # Of one that came or went there is one, of one that changed there are two that differ.
        changed = [n for n, pair in pairs.items() if len(pair) == len({*map(identity, pair)})]
        # Who was rejected by whomever may have somebody to evict now.
        evicts = any(preempts(one) for name in changed for one in pairs[name])
        return None if evicts else frozenset(changed)


NO_POLICIES: Final = Bundle("", (), {})


def identity(plan: Plan) -> tuple[object, ...]:
    """What a policy is: one that is compiled anew from the same texts is the same."""
    return plan.source.text, plan.variant, plan.mode, plan.order, plan.weight


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why offered texts are not in force.

    `text` is for users, with places and carets; `reason` is that of the Event.
    """

    summary: str
    text: str
    diagnostics: tuple[Diagnostic, ...] = ()
    reason: str = "PoliciesRefused"


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """What configuration adds to the texts."""

    policies: PoliciesSection
    metrics: Mapping[str, MetricDefinition]
    binders: frozenset[str] = frozenset()
    """The plugins that bind pods which `bind: with` hands to them."""
    tenant: Tenant | None = None
    """Whose texts are compiled, if they are not of the scheduler's owner."""

    def of_tenant(self, namespace: str) -> CompileSettings:
        """The same for the texts of a namespace."""
        bounds = self.policies.tenants
        if bounds is None or not namespace:
            return self
        return replaced(self, tenant=Tenant(namespace, bounds.policies, bounds.cost))

    def applied(self, plan: Plan) -> Plan:
        """The plan with what the configuration says of it."""
        override = self.policies.overrides.get(plan.name)
        if override is None:
            return plan
        given = override.model_dump(include={"weight", "order", "mode"}, exclude_none=True)
        return replace(plan, **given)

    def profiles_of(self, plans: Sequence[Plan]) -> dict[str, frozenset[str]]:
        """See `Bundle.profiles`."""
        own = {plan.name: self._profiles(file_of(plan)) for plan in plans}
        return {name: profiles for name, profiles in own.items() if profiles}

    def chains_of(self, files: Iterable[str]) -> list[list[str]]:
        """The files that are asked about pods of one profile, for each; none: all files are."""
        own = {name: self._profiles(name) for name in files}
        each = sorted(frozenset().union(*own.values()))
        chains = [[name for name, of in own.items() if not of or one in of] for one in each]
        return [[name for name, of in own.items() if not of], *chains] if chains else []

    def _profiles(self, file: str) -> frozenset[str]:
        """The names of the only profiles that a file is for; empty: it is for all."""
        apart = self.policies.in_folders
        own = {
            source.folder: source.profiles
            for source in self.policies.all_sources
            if file.startswith(source.folder if apart else "")
        }
        # A ConfigMap by its name lies in the folder of a selector for its namespace.
        return frozenset(own[max(own, key=len)] if own else ())


def compile_settings(
    berth: BerthDocument, profiles: Iterable[Profile] | None = None
) -> CompileSettings:
    """The part of the configuration that compiling needs; profiles that it may take are all."""
    return CompileSettings(
        berth.policies,
        {name: _definition(section) for name, section in berth.metrics.items()},
        frozenset(out_of_tree.names()) if profiles is None else binders_of(profiles),
    )


def _definition(section: MetricSection) -> MetricDefinition:
    unit, per, _ = section.unit.partition("/")
    known = UNIT_WORDS.get(unit, PLAIN)
    every = parse_duration(section.every)
    given = "stale" in section.model_fields_set
    return MetricDefinition(
        query=section.promql,
        by=section.by,
        every_seconds=every,
        stale_seconds=parse_duration(section.stale) if given else stale_by_default(every),
        default=section.default,
        unit=known.times(SECONDS, -1) if per else known,
        percent=unit == "percent",
    )


def compile_at_once(
    compiler: Compiler, files: Texts, settings: CompileSettings
) -> Bundle | Refusal:
    """What a reloader makes of these files, without slices."""
    groups: dict[str, dict[str, str | bytes]] = {"": {}}
    for name, text in files.items():
        groups.setdefault(settings.policies.tenant_of(name), {})[name] = text
    parts = {}
    for of, own in groups.items():
        made = at_once(steps_of(compiler, own, settings.of_tenant(of), Size(), "policies"))
        if isinstance(made, Refusal):
            return made
        parts[of] = made
    return together(parts.pop(""), parts, settings.policies.tenants)


def together(own: Bundle, parts: Mapping[str, Bundle], bounds: TenantsSection | None) -> Bundle:
    """The bundle of the scheduler's owner with those of namespaces beside it."""
    if bounds is None:
        return own
    each = [own, *(parts[namespace] for namespace in sorted(parts))]
    digest = hashlib.sha256(" ".join(one.hash for one in each).encode())
    return replaced(
        own,
        hash=digest.hexdigest()[:_HASH_DIGITS],
        plans=tuple([plan for one in each for plan in one.plans]),
        files={name: text for one in each for name, text in one.files.items()},
        warnings=tuple([found for one in each for found in one.warnings]),
        tenants={plan.name: name for name, one in parts.items() for plan in one.plans},
        share=bounds.score_share / _PERCENT,
        needs=reduce(or_, {one.needs for one in each}),
    )


def steps_of(
    compiler: Compiler, files: Texts, settings: CompileSettings, size: Size, title: str
) -> Generator[None, None, Bundle | Refusal]:
    """A bundle if there is no error, one statement a step; `title` is who is refused else."""
    result = yield from compiler.steps(
        files,
        params={name: one.params for name, one in settings.policies.overrides.items()},
        metrics=settings.metrics,
        size=size,
        bundled=_bundled(),
        tenant=settings.tenant,
        chains=settings.chains_of(files),
    )
    plans = tuple([settings.applied(plan) for plan in result.plans])
    profiles = settings.profiles_of(plans)
    diagnostics = (*result.diagnostics, *at_load(plans, settings.binders, profiles))
    errors = [d for d in diagnostics if d.is_error]
    if not errors:
        # Those of namespaces come and go, and are called NAMESPACE/NAME.
        named = () if settings.tenant else settings.policies.overrides
        names = [one for one in named if "/" not in one]
        diagnostics = (*diagnostics, *without_policy(names, plans, in_overrides))
        digest = hashlib.sha256(f"{result.hash}{settings.policies.overrides!r}".encode())
        name = digest.hexdigest()[:_HASH_DIGITS]
        return Bundle(name, plans, decoded(files), diagnostics, profiles, needs=needs_of(plans))
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    summary = f"{title} was refused: {in_a_line(errors[0])}{more}"
    return Refusal(summary, render(diagnostics), diagnostics)


@cache
def _bundled() -> Mapping[str, str]:
    """Files of the package, which stay as they are; reading them takes longer than a slice."""
    return MappingProxyType(policies.texts())


def file_of(plan: Plan) -> str:
    """The file of a source that a policy is in, or that asks for it by `use`."""
    return (plan.source if plan.used is None else plan.used.place[0]).name


def in_a_line(diagnostic: Diagnostic) -> str:
    """A finding for a log: `FILE:LINE:COLUMN: CODE MESSAGE`."""
    line, column = diagnostic.source.position(diagnostic.span.start)
    place = f"{diagnostic.source.name}:{line}:{column}"
    return f"{place}: {diagnostic.code} {diagnostic.message}"


def in_overrides(name: str) -> tuple[SourceFile, Span]:
    """Where the configuration names a policy: it has been read, and its text is not there."""
    text = f"overrides: {name}"
    return make_source("BerthConfiguration", text), Span(len(text) - len(name), len(text))
