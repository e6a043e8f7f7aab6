"""Policies, compiled for real, and metrics for tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache as once
from zoneinfo import ZoneInfo

import numpy as np

from dsl.compiler import Compiler
from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.configuration.settings import Settings
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import MEMO_BYTES, Framework
from engine.inforce import Callbacks, InForce
from engine.plugins.profiles import make_profiles
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.chain import framework_of
from engine.policy.findings import new_compiler
from engine.policy.guard import Load
from engine.policy.plugin import PolicyPlugin
from engine.policy.world import Worlds
from engine.telemetry import Telemetry
from tests.builders import default_plugins

NOW = 1_740_823_200.0  # Saturday 2025-03-01 10:00 UTC


@once
def compiler() -> Compiler:
    """One for all tests: it never changes, and its tables take half a second."""
    made = new_compiler()
    made.warm()
    return made


def compiled(files: dict[str, str], **berth) -> Bundle:
    """The bundle of these files; `berth` is the rest of a BerthConfiguration."""
    settings = compile_settings(BerthDocument.model_validate(berth))
    made = compile_at_once(compiler(), files, settings)
    assert isinstance(made, Bundle), made.text
    return made


def chain(
    files: dict[str, str],
    *,
    zone="UTC",
    seed=0,
    memo_bytes=MEMO_BYTES,
    in_tree: Sequence[Weighted] | None = None,
    **berth,
) -> Framework:
    """The default plugins, or those given, and these policies."""
    made = framework_of(
        Profile("berth", tuple(default_plugins() if in_tree is None else in_tree), seed),
        compiled(files, **berth),
        worlds=Worlds(ZoneInfo(zone), ("nvidia.com/gpu", "amd.com/gpu")),
    )
    return Framework(made.profile, bundle=made.bundle, memo_bytes=memo_bytes)


def policies(framework: Framework) -> list[PolicyPlugin]:
    """The policies of a framework, in order."""
    plugins = (weighted.plugin for weighted in framework.profile.plugins)
    return [plugin for plugin in plugins if isinstance(plugin, PolicyPlugin)]


def in_force(policies, *, clock=None, there=lambda: (3, 10), load=lambda **_: Load(0, 0), **told):
    """What is in force under this section of a configuration; `told` are its callbacks."""
    settings = Settings(berth=BerthDocument.model_validate({"policies": policies}))
    return InForce(
        settings,
        Callbacks(**told),
        make_profiles(settings),
        clock=clock or ManualClock(),
        telemetry=Telemetry(),
        there=there,
        load=load,
    )


def prepared(put, steps=lambda *_: ()):
    """`Callbacks.prepare`: these steps, and then this is told what is put in force."""

    def prepare(bundle, changed):
        yield from steps(bundle, changed)
        return lambda: put(bundle, changed)

    return prepare


class Samples:
    """Metrics by name: node -> value. A `framework.snapshot.Signals` and a `SignalSource`.

    It has to be told by `serve` which ids a framework's policies give to the names.
    """

    def __init__(self, cache):
        self._nodes = cache.nodes
        self._names = {}
        self._values = {}
        self._times = {}
        self._keyed = {}
        self._now = NOW
        self.version = 0

    def serve(self, framework):
        for policy in policies(framework):
            self._names.update({spec.id: spec.name for spec in policy.plan.metrics})
        return self

    def put(self, name, values, *, at=NOW):
        self._values[name] = dict(values)
        self._times[name] = dict.fromkeys(values, at)
        self.version += 1

    def put_value(self, name, key, value):
        """The value of a metric that nodes have not."""
        self._keyed[name, key] = value
        self.version += 1

    def value(self, metric, key):
        return self._keyed.get((self._names[metric], key), np.nan)

    def view(self, _cache, now):
        self._now = now
        return self

    def column(self, metric):
        return self._column(self._values.get(self._names[metric], {}))

    def age(self, metric):
        return self._now - self._column(self._times.get(self._names[metric], {}))

    def _column(self, by_name):
        column = np.full(self._nodes.size, np.nan)
        for name, value in by_name.items():
            if self._nodes.row(name) >= 0:
                column[self._nodes.row(name)] = value
        return column
