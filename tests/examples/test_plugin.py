"""The example of a plugin in a package of its own, installed as its readers would."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine import objects
from engine.configuration.scheduler import (
    EnabledPlugin,
    PluginConfig,
    PluginsDocument,
    PluginSet,
    ProfileDocument,
)
from engine.cycle import conclude, decide
from engine.framework.interface import Points
from engine.framework.profile import Weighted
from engine.framework.runtime import Framework
from engine.objects import from_builtins
from engine.plugins import default_preemption
from engine.plugins.out_of_tree import checked
from engine.plugins.profiles import make_profile
from engine.pods import podinfo
from engine.pods.podinfo import make_pod_info
from tests.builders import Cache, make_node, make_pod, pod_object, scored

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
LABEL = "example.com/rack"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(EXAMPLE, source)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    monkeypatch.syspath_prepend(target)
    yield
    sys.modules.pop("rack_score", None)


def profile(**args):
    multi = PluginSet(enabled=[EnabledPlugin(name="RackScore", weight=9)])
    return make_profile(
        ProfileDocument(
            plugins=PluginsDocument(multi_point=multi),
            plugin_config=[PluginConfig(name="RackScore", args=args)],
        )
    )


@pytest.mark.usefixtures("installed")
def test_it_filters_and_scores_beside_the_others():
    framework = Framework(profile())
    cache = Cache()
    for name, rack in (("low", "1"), ("high", "10"), ("none", "")):
        cache.add_node(make_node(name, labels={LABEL: rack} if rack else {}))

    def placed(rack=""):
        pod = pod_object("p", uid=f"not in {rack}")
        metadata = msgspec.structs.replace(
            pod.metadata, annotations={"example.com/not-in-rack": rack}
        )
        pod = msgspec.structs.replace(pod, metadata=metadata)
        return decide(make_pod_info(pod), cache.snapshot(0.0), framework)

    _, given = scored(placed(), cache.snapshot(0.0), framework)
    assert (placed().node, given["RackScore"][1:]) == ("high", (100.0, 9))
    assert (placed("10").node, placed("10").feasible) == ("low", 2)
    cache.remove_node("none")
    cache.remove_node("low")
    assert placed("10").message == (
        "0/1 nodes are available: 1 node(s) were in the rack that the pod named."
    )
    cache.add_node(make_node("high", labels={LABEL: "11"}))
    assert placed("10").node == "high"


@pytest.mark.usefixtures("installed")
def test_it_refuses_arguments_that_it_does_not_know():
    with pytest.raises(ValueError, match=r"plugin 'RackScore'.*ValueError: unknown arguments: x"):
        profile(x=1)


def test_without_the_package_there_is_no_such_plugin():
    with pytest.raises(ValueError, match="no plugin is named 'RackScore'"):
        profile()


# ---- the page ------------------------------------------------------------------------------------

PAGE = EXAMPLE.parents[1] / "docs" / "plugins.md"
ROOMS = ("decision", "effects", "events", "interface", "snapshot", "status")


@pytest.fixture(scope="module")
def page():
    """What the blocks of the page define, with the imports that they leave out."""
    names = {"np": np, "gate": default_preemption.gate, "ineligible": default_preemption.ineligible}
    for room in (*(import_module(f"engine.framework.{one}") for one in ROOMS), objects, podinfo):
        names |= vars(room)
    names["replace"] = msgspec.structs.replace
    names["says_it_may_go"] = lambda pod: pod.name.startswith("may-go")
    names |= {"is_noisy": None, "NOISY": None, "NODES": None, "owner_uid": None}
    for block in re.findall(r"```python\n((?:class|def) .*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, PAGE, "exec", dont_inherit=True), names)
    return names


def test_the_post_filter_of_the_page_evicts_the_pod_that_may_go(page):
    plain = make_profile(ProfileDocument())
    framework = Framework(replace(plain, plugins=(Weighted(page["MayGo"]()), *plain.plugins)))
    cache = Cache()
    cache.add_node(make_node("n", cpu="2"))
    for name in ("stays", "may-go"):
        cache.add_pod(make_pod(name, cpu="1"), "n")
    high = make_pod("high", cpu="1", priority=10)
    rescue = conclude(high, cache.snapshot(0.0), framework).rescue
    assert (rescue.nominated, [one.pod.name for one in rescue.evictions]) == ("n", ["may-go"])


def test_the_claim_of_the_page_takes_addresses_that_are_free_until_none_is_left(page):
    cache = Cache()
    claims = {"10.0.0.1": "default/a"}
    spec = {"addresses": ["10.0.0.1", "10.0.0.2"], "claims": claims}
    cache.set_object(from_builtins(page["Pool"], {"metadata": {"name": "default"}, "spec": spec}))
    points = checked(Points(reserve=page["claim"]))
    found = points.reserve(make_pod("p"), cache.snapshot(0.0), 0)
    (shown,), (written,) = found.effects, found.pre_bind
    assert written.body == {"spec": {"claims": {"10.0.0.2": "default/p"}}}
    assert written.undo == {"spec": {"claims": {"10.0.0.2": None}}}
    assert cache.assume_object(shown.value)
    full = points.reserve(make_pod("q"), cache.snapshot(0.0), 0)
    assert full.status.reasons == ("no address is left",)


def test_the_kind_of_the_page_is_decoded_and_wakes_by_what_grows(page):
    rack = page["Rack"]
    assert page["RackLimit"]().points().objects == {"/apis/example.com/v1/racks": rack}

    def of(most):
        return from_builtins(rack, {"metadata": {"name": "a"}, "spec": {"maxPods": most}})

    hints = [
        page["grew"](None, *each, None).value
        for each in (
            (None, of(1)),
            (of(1), of(2)),
            (of(2), of(2)),
            (of(1), None),
            (None, make_node("n")),
        )
    ]
    assert hints == ["Queue", "Queue", "Skip", "Skip", "Skip"]
