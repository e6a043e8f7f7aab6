"""A test file as understood: objects with their attributes merged, tests, what they expect.

Data only.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from dsl.diagnostics import Diagnostic
from dsl.policytest.attributes import NOW, Plain
from dsl.source import SourceFile, Span

_T = TypeVar("_T")


class Sample(Struct, frozen=True):
    """A metric's value as written, the line it stands in, and how old it is."""

    text: str
    line: int
    age_seconds: float = 0.0


class Thing(Struct, frozen=True):
    """One object of the cluster, its attributes merged.

    Attributes:
        kind: `node`, `pod`, `running`, `finished`, `pending`, `namespace`, `workload` ...
        name: as given; empty for a pod without a name.
        plain: attribute -> value: text, int, bool, float (durations) or a tuple of texts.
        maps: attribute -> key -> value, for `label K=V` and the like.
    """

    kind: str
    name: str
    span: Span
    node: str = ""
    plain: dict[str, Plain] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, Sample] = field(default_factory=dict)

    def merged(self, newer: "Thing") -> "Thing":
        """The same object with the newer attributes; those not named again keep their value."""
        maps = {key: {**self.maps.get(key, {}), **newer.maps.get(key, {})}
                for key in (*self.maps, *newer.maps)}  # fmt: skip
        return replace(
            newer,
            node=newer.node or self.node,
            plain={**self.plain, **newer.plain},
            maps=maps,
            metrics={**self.metrics, **newer.metrics},
        )

    def get(self, name: str, default: _T) -> _T:
        """The value of an attribute that is of this kind."""
        value = self.plain.get(name)
        return value if isinstance(value, type(default)) else default


Params = Mapping[str, tuple[str | tuple[str, ...], Span]]
"""Name of a parameter -> its value, and where it is named."""


class Use(Struct, frozen=True):
    """A policy that takes part."""

    name: str
    span: Span
    params: Params
    alias: str
    weight: float | None


Key = tuple[str, str, str, int]
"""What a fixture is about: kind, namespace and name; those that are never merged are numbered."""


class Cluster(Struct, frozen=True):
    """Everything given, in its order: objects, metrics by name and keys, the time."""

    things: Mapping[Key, Thing] = field(default_factory=dict)
    metrics: Mapping[tuple[str, ...], Sample] = field(default_factory=dict)
    now: float = NOW

    def of(self, *kinds: str) -> tuple[Thing, ...]:
        """The objects of these kinds."""
        return tuple(one for one in self.things.values() if one.kind in kinds)

    def key_of(self, thing: Thing) -> Key:
        """Which of the objects it is, or the next one. Pods to place are never merged."""
        alone = len(self.things) if not thing.name or thing.kind == "pod" else 0
        return thing.kind, thing.get("namespace", "") or "default", thing.name, alone


class Expected(Struct, frozen=True):
    """One expectation with its values read."""

    name: str
    line: int
    text: str
    names: tuple[str, ...]
    value: str
    number: float
    message: str | None
    status: str | None


class Case(Struct, frozen=True):
    """One test: what is there, and what must come out."""

    name: str
    line: int
    span: Span
    cluster: Cluster
    params: Params
    expected: tuple[Expected, ...]

    @property
    def wants_error(self) -> bool:
        """Whether the policy is expected to be refused."""
        return any(one.name == "error" for one in self.expected)


class Suite(Struct, frozen=True):
    """A test file, ready to run unless there are errors among the findings."""

    source: SourceFile
    uses: tuple[Use, ...]
    cases: tuple[Case, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether it can be run."""
        return not any(one.is_error for one in self.diagnostics)


def pod_names(thing: Thing, default: str = "pod") -> list[str]:
    """The names of the pods that a fixture stands for."""
    name = thing.name or default
    count = thing.get("count", 1)
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
