"""The default profile is kube-scheduler's, as that prints it; what is missing is named here."""

from __future__ import annotations

import json
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

from engine.configuration.scheduler import ProfileDocument
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.runtime import Framework
from engine.plugins.profiles import FIELDS, OURS_ALONE, fields_of, make_profile
from engine.plugins.registry import make_plugin

THEIRS = json.loads((Path(__file__).parent / "data" / "default-profile.json").read_text("utf-8"))
NOT_THERE = {
    # Groups of pods and where they are put together.
    *(("podGroupPostFilter", one) for one in ("DefaultPreemption", "DynamicResources")),
    ("placementScore", "NodeResourcesFit"),
}
NO_EVENTS = {"DynamicResources"}
NO_EVENT = {("NodeResourcesFit", "resource.k8s.io/DeviceClass/Add|Update")}
ALWAYS = " (no hint: always Queue)"
OURS = make_profile(ProfileDocument())


def name_of(one):
    return one if isinstance(one, str) else one["name"]


def test_the_plugins_in_order_with_their_weights():
    theirs = {name_of(one): 1 for one in THEIRS["multiPoint"]}
    theirs |= {one["name"]: one["weight"] for one in THEIRS["multiPoint"] if "name" in one}
    assert list(DEFAULT_WEIGHTS.items()) == list(theirs.items())
    assert [one.plugin.name for one in OURS.plugins] == list(theirs)
    scores = {one["name"]: one["weight"] for one in THEIRS["extensionPoints"]["score"]}
    assert {name: weight for name, _, weight in Framework(OURS).scorers} == scores
    assert not OURS.order


@pytest.mark.parametrize("point", sorted(THEIRS["extensionPoints"].keys() | FIELDS))
def test_who_is_asked_at_a_point(point):
    theirs = [name_of(one) for one in THEIRS["extensionPoints"].get(point, ())]
    fields = FIELDS.get(point, ())
    ours = [
        p.name for p in (one.plugin for one in OURS.plugins) if not fields_of(p).isdisjoint(fields)
    ]
    missing = {(point, name) for name in theirs if name not in ours}
    assert missing == {one for one in NOT_THERE if one[0] == point}
    assert {(point, name) for name in ours if name not in theirs} <= OURS_ALONE
    assert [name for name in ours if name in theirs] == [name for name in theirs if name in ours]


@pytest.mark.parametrize("name", DEFAULT_WEIGHTS)
def test_what_wakes_the_pods_that_a_plugin_rejected(name):
    events = THEIRS["events"].get(name, ()) if name not in NO_EVENTS else ()
    theirs = [event_of(one) for one in events if (name, one) not in NO_EVENT]
    registered = [one for one in make_plugin(name).points().events if not one.ours]
    ours = [(one.event, one.hint is None) for one in registered]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


def event_of(text):
    resource, _, actions = text.removesuffix(ALWAYS).rpartition("/")
    known = {str(ClusterEvent(Resource.NODE, one)).partition("/")[2]: one for one in Action}
    action = Action(0)
    for word in actions.split("|"):
        action |= Action.UPDATE if word == "Update" else known[word]
    event = ClusterEvent(Resource(resource.rpartition("/")[2]), action)
    return event, text.endswith(ALWAYS)


@pytest.mark.parametrize("name", sorted(THEIRS["defaultArgs"]))
def test_the_arguments_by_default(name):
    assert state(make_plugin(name)) == state(make_plugin(name, THEIRS["defaultArgs"][name]))


def test_arguments_make_a_difference_to_the_test():
    for name, args in {
        "DefaultPreemption": {"minCandidateNodesAbsolute": 3},
        "InterPodAffinity": {"hardPodAffinityWeight": 2},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
        "NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}},
        "PodTopologySpread": {"defaultingType": "List"},
        "VolumeBinding": {"bindTimeoutSeconds": 5},
    }.items():
        assert state(make_plugin(name)) != state(make_plugin(name, args)), name


def state(of):
    """What an object is made of, to be compared."""
    if isinstance(of, np.ndarray):
        return of.tolist()
    if isinstance(of, FunctionType):
        return of.__qualname__
    if isinstance(of, list | tuple):
        return [state(one) for one in of]
    if type(of).__module__.startswith("engine."):
        fields = getattr(of, "__dict__", None) or {
            name: getattr(of, name) for name in getattr(of, "__slots__", ()) if hasattr(of, name)
        }
        return type(of), {name: state(value) for name, value in fields.items()}
    return of
