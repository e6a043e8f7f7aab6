"""Plugins that raise now and then: one pod is told, and nothing of it is left in what is kept."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from engine.cycle import conclude, decide
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from tests.builders import Cache, default_plugins, make_node, make_pod
from tests.effort import examples

ASKED = ("class_key", "pre_filter", "filter", "pre_score", "score", "normalize", "post_filter")
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OF_X = {"labelSelector": {"matchLabels": {"app": "x"}}}
IN_A = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
SPECS = (
    {},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
    {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, **OF_X}]}}},
    {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": IN_A}]}}},
    {
        "affinity": {
            "podAffinity": {
                PREFERRED: [{"weight": 5, "podAffinityTerm": {"topologyKey": ZONE, **OF_X}}]
            }
        }
    },
    *(
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, **OF_X}
            ]
        }
        for key in (HOST, ZONE)
        for when in ("DoNotSchedule", "ScheduleAnyway")
    ),
)


@dataclass
class Chance:
    random: random.Random
    of_one: float = 0.0

    def on(self, ask):
        """The function, which raises by chance."""

        def asked(*args):
            if self.random.random() < self.of_one:
                raise ZeroDivisionError("by chance")
            return ask(*args)

        return asked


@dataclass
class Faulty:
    plugin: object
    chance: Chance

    @property
    def name(self):
        return self.plugin.name

    def points(self):
        points = self.plugin.points()
        changed = {one: self.chance.on(ask) for one in ASKED if (ask := getattr(points, one))}
        return replace(points, **changed)


def node(number, draw):
    effect = draw.choice(["NoSchedule", "PreferNoSchedule"])
    return make_node(
        f"n{number}",
        cpu=draw.choice("24"),
        labels={ZONE: draw.choice("abc"), HOST: f"n{number}"},
        taints=[{"key": "k", "effect": effect}] if draw.random() < 0.3 else [],
    )


def pod(name, draw):
    how = {"cpu": draw.choice(["100m", "1", "2"]), "labels": {"app": draw.choice("xy")}}
    return make_pod(name, uid=name, priority=draw.choice([0, 5]), spec=draw.choice(SPECS), **how)


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(examples(6)))
@pytest.mark.parametrize("of_one", [0.02, 0.1, 0.3])
def test_once_they_answer_again_all_is_as_if_they_always_had(seed, of_one):
    draw = random.Random(seed)
    chance = Chance(draw)
    plugins = default_plugins()
    faulty = tuple(Weighted(Faulty(one.plugin, chance), one.weight) for one in plugins)
    kept = Framework(Profile("p", faulty), on_fault=lambda _: None)
    cache, there = Cache(), []
    for number in range(8):
        cache.add_node(node(number, draw))
    waiting = [pod(f"w{number}", draw) for number in range(6)]
    for step in range(40):
        if draw.random() < 0.3:
            cache.add_node(node(draw.randrange(9), draw))
        elif there and draw.random() < 0.3:
            cache.remove_pod(there.pop())
        asked, chance.of_one = draw.choice(waiting), of_one
        decision = conclude(asked, cache.snapshot(0.0), kept)
        if decision.error is not None:
            assert "by chance" in decision.message
        chance.of_one = 0.0
        found = decide(asked, cache.snapshot(0.0), kept)
        fresh = Framework(Profile("p", plugins), memo_bytes=0)
        want = decide(asked, cache.snapshot(0.0), fresh)
        assert (found.node, found.total, found.message) == (want.node, want.total, want.message)
        if found.node is not None and draw.random() < 0.6:
            there.append(f"b{step}")
            cache.add_pod(pod(f"b{step}", draw), found.node)
