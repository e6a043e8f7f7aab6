"""Plugins of other packages: imported when named, and refused by name where they are broken."""

from __future__ import annotations

import sys

import pytest

from engine.configuration.scheduler import (
    EnabledPlugin,
    PluginsDocument,
    PluginSet,
    ProfileDocument,
)
from engine.configuration.settings import ConfigError
from engine.cycle import conclude
from engine.framework.interface import Points
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.kube.resources import KINDS, kinds_of
from engine.objects import Described
from engine.plugins.profiles import make_profile
from engine.plugins.registry import make_plugin
from tests.builders import Cache, make_node, make_pod

HEAD = """
import numpy as np
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.interface import PreScoreResult, Points, ReserveResult, Verdicts
from engine.framework.status import Status, unschedulable
"""
GOOD = "class P:\n    name = 'Theirs'\n    def points(self): return Points()\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Packages by name, each with a module of that name and its entry points."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def put(name, code, *entries):
        (tmp_path / f"{name}.py").write_text(HEAD + code)
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = "\n".join(f"{entry} = {name}:make" for entry in entries)
        (info / "entry_points.txt").write_text(f"[berth.plugins]\n{lines}\n")
        names.append(name)

    yield put
    for name in names:
        sys.modules.pop(name, None)


def test_a_plugin_gets_its_arguments_and_is_imported_when_it_is_named(install):
    keeps = "def make(args):\n    p = P()\n    p.args = args\n    return p\n"
    install("good", GOOD + keeps, "Theirs")
    install("broken", "1 / 0\n", "NodeName", "Unnamed")
    made = make_plugin("Theirs", {"a": 1})
    assert made.plugin.args == {"a": 1}
    assert make_plugin("Theirs") is not made
    assert make_plugin("NodeName").name == "NodeName", "ours comes first"
    assert "broken" not in sys.modules
    with pytest.raises(ValueError, match=r"^no plugin is named 'Their'; did you mean Theirs\?$"):
        make_plugin("Their")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nowhere\n", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("1 / 0\n", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("makes = 1\n", "cannot be loaded: AttributeError: module 'bad' has no attribute 'make'"),
        ("make = 1\n", "fails: TypeError: 'int' object is not callable"),
        ("def make(args): raise ValueError('no\\nway')\n", "fails: ValueError: no way"),
        (
            "class P:\n    name = 'Theirs'\ndef make(args): return P()\n",
            "fails: AttributeError: 'P' object has no attribute 'points'",
        ),
        (f"{GOOD}    def points(self): return 1\ndef make(args): return P()\n",
         "returns int instead of Points"),
        (f"{GOOD}    name = 'Other'\ndef make(args): return P()\n", "has the name 'Other'"),
        (f"{GOOD}    name = property(lambda self: 1 / 0)\ndef make(args): return P()\n",
         "fails: ZeroDivisionError: division by zero"),
        (GOOD.replace("()", "(events=(ClusterEvent(Resource.NODE, Action.ADD),))", 1)
         + "def make(args): return P()\n",
         "has points.events[0] that is ClusterEvent instead of ClusterEventWithHint"),
        (GOOD.replace("Points()", "Points(objects={'/apis/a.b/v1/racks': dict})")
         + "def make(args): return P()\n",
         "has objects at '/apis/a.b/v1/racks': no collection, or not Described"),
        ("from engine.objects import Described\n"
         "class Rack(Described, frozen=True):\n    x: 'Nowhere' = 0\n"
         + GOOD.replace("Points()", "Points(objects={'/apis/a.b/v1/racks': Rack})")
         + "def make(args): return P()\n",
         "has objects at '/apis/a.b/v1/racks': Rack cannot be decoded: "
         "NameError: name 'Nowhere' is not defined"),
    ],
)  # fmt: skip
def test_one_that_is_broken_is_refused_by_name(code, said, install):
    install("bad", code, "Theirs")
    with pytest.raises(ValueError, match="Theirs") as error:
        make_plugin("Theirs")
    assert str(error.value) == f"plugin 'Theirs': bad:make of bad {said}"


def test_two_of_one_name_are_refused(install):
    for name in ("one", "two"):
        install(name, f"{GOOD}def make(args): return P()\n", "Theirs")
    told = "^plugin 'Theirs': several packages have one of that name: one and two$"
    with pytest.raises(ValueError, match=told):
        make_plugin("Theirs")


ROWS = "s.nodes.present[rows]"


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (
            "class_key=lambda *_: [1], score=lambda *_: None",
            "TypeError: class_key returns TypeError: unhashable type: 'list'",
        ),
        ("pre_filter=lambda *_: None", "TypeError: pre_filter returns NoneType instead of Pre"),
        ("filter=lambda t, p, s, rows: " + ROWS, "filter returns ndarray instead of Verdicts"),
        ("filter=lambda *_: Verdicts(np.ones(1, np.bool_), tuple)", "bool (1,) for 3 rows"),
        (
            f"filter=lambda t, p, s, rows: Verdicts({ROWS} * 1, tuple)",
            "its answer.passed is an array of int64 (3,)",
        ),
        (f"filter=lambda t, p, s, rows: Verdicts(~{ROWS}, lambda: 1 / 0)", "ZeroDivisionError"),
        ("pre_score=lambda *_: PreScoreResult(shared=[1]), score=lambda *_: None", "unhashable"),
        ("score=lambda *_: [1.0, 2.0]", "score returns list instead of ndarray | None"),
        (f"score=lambda t, p, s, rows: {ROWS} * np.nan", "a score is not a finite number"),
        ("tiers=lambda *_: None", "tiers returns NoneType"),
        ("reserve=lambda *_: None", "reserve returns NoneType instead of ReserveResult"),
        (
            "reserve=lambda *_: ReserveResult(status=None)",
            "reserve: its answer.status is NoneType instead of Status",
        ),
        ("permit=lambda *_: Status.SUCCESS", "permit returns Status instead of PermitResult"),
        ("pre_bind=lambda *_: True", "pre_bind returns bool instead of PreBindResult"),
        ("post_bind=lambda *_: None", "post_bind returns NoneType instead of Sequence"),
    ],
)
def test_what_the_scheduler_cannot_use_fails_the_pod_alone(points, said, install):
    install(
        "odd",
        GOOD.replace("Points()", f"Points({points})") + "def make(args): return P()\n",
        "Theirs",
    )
    enabled = PluginsDocument(multi_point=PluginSet(enabled=[EnabledPlugin(name="Theirs")]))
    framework = Framework(make_profile(ProfileDocument(plugins=enabled)))
    cache, pod = Cache(), make_pod("p")
    for name in "abc":
        cache.add_node(make_node(name))
    cache.remove_node("c")  # its row stays
    decision = conclude(pod, cache.snapshot(0.0), framework)
    message = decision.message
    if decision.node is not None:
        cache.add_pod(pod, decision.node)
        there = cache.snapshot(0.0)
        for answer in (
            framework.reserve(pod, there, decision.node),
            framework.act(pod, there, decision),
        ):
            message += " ".join(answer.status.reasons)
    assert said in message


class Looks:
    def __init__(self, **objects):
        self.name, self.objects = "Looks", objects

    def points(self):
        return Points(objects=self.objects)


class Rack(Described, frozen=True):
    pass


class Service(Described, frozen=True):
    pass


def test_kinds_that_plugins_read_are_watched_once_and_have_names_of_their_own():
    def kinds(*each):
        return kinds_of([Profile("p", (Weighted(Looks(**one)),)) for one in each])

    found = kinds({"/apis/example.com/v1/racks": Rack}, {"/apis/example.com/v1/racks": Rack})
    assert [one.path for one in found[len(KINDS) :]] == ["/apis/example.com/v1/racks"]
    with pytest.raises(ConfigError, match="/apis/k/v1/services: another kind is named Service"):
        kinds({"/apis/k/v1/services": Service})

    class Node(Described, frozen=True):
        """Longhorn has one."""

    with pytest.raises(ConfigError, match="/apis/k/v1/nodes: another kind is named Node"):
        kinds({"/apis/k/v1/nodes": Node})
    with pytest.raises(ConfigError, match="/apis/b/v1/racks: another kind is named Rack"):
        kinds({"/apis/a/v1/racks": Rack}, {"/apis/b/v1/racks": Rack})
