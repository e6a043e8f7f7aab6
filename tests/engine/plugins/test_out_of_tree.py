"""Plugins of other packages: imported when named, and refused by name where they are broken."""

from __future__ import annotations

import sys

import pytest

from engine.plugins.registry import make_plugin

HEAD = "from engine.framework.interface import Points\n"
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
    assert made.args == {"a": 1}
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
