"""The example of a plugin in a package of its own, installed as its readers would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engine.configuration.scheduler import (
    EnabledPlugin,
    PluginConfig,
    PluginsDocument,
    PluginSet,
    ProfileDocument,
)
from engine.cycle import decide
from engine.framework.runtime import Framework
from engine.plugins.profiles import make_profile
from engine.pods.podinfo import make_pod_info
from tests.builders import Cache, make_node, pod_object

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

    scores = {one.plugin: (one.normalized, one.weight) for one in placed().scores}
    assert (placed().node, scores["RackScore"]) == ("high", (100.0, 9))
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
