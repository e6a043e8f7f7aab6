"""The mutation check itself: which changes it makes, and what becomes of those of a toy."""

import ast
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.effort import each
from tests.mutants.operators import mutants_of
from tests.mutants.results import Equivalent
from tests.mutants.sessions import compiled, put

ROOT = Path(__file__).parents[2]
TOY = '''\
"""A toy."""

LIMIT = 3


def kept(items, most=LIMIT, *, strict=False):
    """Some words."""
    if strict and len(items) > most:
        raise ValueError("too many of them")
    return [one for one in items if one >= 0][:most]


class Board:
    def __init__(self):
        self.name = None


class Shelf(Board):
    def __init__(self, name):
        super().__init__()
        self.name = f"{name}"

    def label(self):
        match self.name:
            case "top":
                return "up"
            case other if other:
                return None
            case _:
                raise AssertionError(self.name)


def never():
    return 1
'''
TESTS = """\
from pathlib import Path

import pytest

from toy import LIMIT, Shelf, kept, never


def test_kept():
    assert kept([1, -1, 0, 2, 3]) == [1, 0, 2]


def test_limit():
    assert LIMIT == 3


def test_too_many():
    with pytest.raises(ValueError):
        kept([1, 2, 3, 4], strict=True)
    assert kept([1], strict=True) == [1]


def test_label():
    assert Shelf("top").label() == "up"
    assert Shelf("low").label() is None
"""


@pytest.fixture
def toy(tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    return tmp_path


def test_the_mutants_of_a_toy(toy):
    _, found = mutants_of(toy, "toy.py")
    assert [(one.line, one.name, one.what) for one in found] == [
        (8, "kept", "condition negated"),
        (8, "kept", "And -> Or"),
        (8, "kept", "Gt -> GtE"),
        (10, "kept", "return -> None"),
        (10, "kept", "filter negated"),
        (10, "kept", "GtE -> Gt"),
        (10, "kept", "0 -> 1"),
        (20, "Shelf.__init__", "statement removed"),
        (21, "Shelf.__init__", "assigned None"),
        (25, "Shelf.label", "case removed"),
        (26, "Shelf.label", "return -> None"),
        (26, "Shelf.label", "'up' -> 'upXX'"),
        (27, "Shelf.label", "guard negated"),
        (34, "never", "return -> None"),
        (34, "never", "1 -> 2"),
    ]


@each(
    "code, changes",
    [
        ("x = a + b // c", ["assigned None", "Add -> Sub", "FloorDiv -> Div"]),
        ("x += a @ b", ["statement removed", "aug Add -> Sub"]),
        ("x = not a is b", ["assigned None", "Not dropped", "Is -> IsNot"]),
        ("x = -1.5", ["assigned None", "USub dropped", "1.5 -> 2.5"]),
        ("x = 'a word'", []),
        ("x = f'{a < b} words'", ["assigned None", "Lt -> LtE"]),
        (
            "f(a, k=True, strict=True)",
            ["statement removed", "argument k= dropped", "True -> False"],
        ),
        ("f(a, g(b, 'c'))", ["statement removed", "last argument dropped", "'c' -> 'cXX'"]),
        (
            "isinstance(a, s.Word | s.Text)",
            ["statement removed", "`s.Word` alone", "`s.Text` alone"],
        ),
        ("cast(A, b + 1)", ["statement removed"]),
        ("return False", ["False -> True"]),
        ("return a if b else c", ["return -> None", "condition negated"]),
        ("assert a > 1", []),
        ("raise NotImplementedError(1)", []),
        ("raise Odd(a == b)", ["Eq -> NotEq"]),
        ("x: int = g(a)", ["assigned None"]),
        ("x: int", []),
        ("import a", []),
        ("if TYPE_CHECKING: f()", []),
        ("while a < b:\n  break", ["condition negated", "Lt -> LtE", "break -> continue"]),
        ("for a in b or c:\n  continue", ["Or -> And", "continue -> break"]),
        ("with f(1):\n  x = 1", ["1 -> 2", "1 -> 2"]),
        (
            "try:\n  f()\nexcept E:\n  f(1)\nelse:\n  x = 2\nfinally:\n  x = 3",
            ["statement removed", "statement removed", "1 -> 2", "2 -> 3", "3 -> 4"],
        ),
        ("x = {k: 1 for k in a if k}", ["assigned None", "filter negated", "1 -> 2"]),
        ("x = lambda a: a[0]", ["assigned None", "0 -> 1"]),
        ("yield a", []),
        ("yield from a", ["statement removed"]),
        ("def g(a=1, *, b=2): f()", ["1 -> 2", "2 -> 3", "statement removed"]),
    ],
)
def test_changes(tmp_path, code, changes):
    inside = "".join(f"    {line}\n" for line in code.split("\n"))
    (tmp_path / "a.py").write_text(f"def around():\n{inside}")
    _, found = mutants_of(tmp_path, "a.py")
    assert [one.what for one in found] == changes


def test_a_change_is_taken_back():
    tree, found = mutants_of(ROOT, "tests/mutants/operators.py")
    before = ast.dump(tree)
    assert len(found) > 100
    for one in found[::40]:
        undo = one.apply()
        assert ast.dump(tree) != before, one.what
        undo()
    assert ast.dump(tree) == before


def test_a_function_that_stands_takes_the_change(toy):
    space: dict[str, object] = {}
    exec(compile(TOY, "toy.py", "exec"), space)
    tree, found = mutants_of(toy, "toy.py")
    shelf = space["Shelf"]
    label = shelf.label
    (one,) = (one for one in found if "upXX" in one.what)
    code = label.__code__
    put(compiled(tree, one, "toy.py"), {(code.co_qualname, code.co_firstlineno): [label]})
    assert shelf("top").label() == "upXX"
    with pytest.raises(LookupError):
        put(compiled(tree, one, "toy.py"), {})
    assert isinstance(label, types.FunctionType)


# ---- judgements


def test_every_judgement_is_of_a_line_that_is_there():
    """As quick as this can be: the change itself is compared when the check is run."""
    reasons = Equivalent(Path(__file__).parent / "equivalent.txt").reasons
    lines = {
        path: {line.strip() for line in (ROOT / path).read_text().splitlines()}
        for path in {one[0] for one in reasons}
    }
    assert [one for one in reasons if one[2] not in lines[one[0]]] == []
    assert all(reasons.values())


# ---- the whole


def run(toy, *options):
    found = subprocess.run(
        [
            sys.executable, "-m", "tests.mutants", "toy.py", "--root", str(toy), "--tests",
            str(toy / "test_toy.py"), "--equivalent", str(toy / "equivalent.txt"), *options,
        ],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(toy)}, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert found.stderr == ""
    return found.returncode, found.stdout.splitlines()


@pytest.mark.slow
def test_a_toy_is_checked(toy):
    (toy / "test_toy.py").write_text(TESTS)
    (toy / "data.txt").write_text("right")
    (toy / "equivalent.txt").write_text("")
    code, lines = run(toy)
    assert code == 1
    assert "| toy.py | 15 | 11 | 0 | 1 | 2 | 0 | 1 | 0 | 0 | 4 |" in lines
    assert [line for line in lines if line.startswith("toy.py:")] == [
        "toy.py:8: kept: if strict and len(items) > most:  [Gt -> GtE] survived",
        "toy.py:20: Shelf.__init__: super().__init__()  [statement removed] error",
        "toy.py:34: never: return 1  [return -> None] uncovered",
        "toy.py:34: never: return 1  [1 -> 2] uncovered",
    ]
    (toy / "test_toy.py").write_text(
        f"{TESTS}\n\ndef test_just_enough():\n    assert kept([1, 2, 3], strict=True)\n"
        '\n\ndef test_data():\n    never(), Shelf("x")\n'
        '    assert (Path(__file__).parent / "data.txt").read_text() == "right"\n'
    )
    (toy / "equivalent.txt").write_text(
        "toy.py\tShelf.__init__\tsuper().__init__()\tstatement removed\tthe name is given again\n"
        "toy.py\tnever\treturn 1\treturn -> None\tnobody asks\n"
        "toy.py\tnever\treturn 1\t1 -> 2\tnobody asks\n"
    )
    code, lines = run(toy, "--argued")
    assert code == 0, lines
    assert "| toy.py | 15 | 12 | 0 | 0 | 0 | 0 | 0 | 3 | 0 | 0 |" in lines
    (toy / "data.txt").write_text("wrong")
    code, lines = run(toy, "--argued")
    assert code == 0, "a test that fails without any change judges nothing"
    assert "| toy.py | 15 | 12 | 0 | 0 | 0 | 0 | 0 | 3 | 0 | 0 |" in lines
