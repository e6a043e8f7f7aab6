"""Every stated limit: one case at it, one above."""

import pytest

from dsl.compiler import Compiler

COMPILER = Compiler()


def codes(text):
    return [one.code for one in COMPILER.compile({"a.policy": text}).diagnostics]


def chain(count):
    lets = "".join(f"let a{i} = {f'-a{i - 1}' if i else 'load'}\n" for i in range(count))
    return lets + f"score: a{count - 1}\n"


CASES = {
    "bytes": lambda n: "#" * (128 * 1024 - 1 + n) + "\n",
    "tokens": lambda n: "score: 1" + "+1" * (9_998 + n),
    "statements": lambda n: "score: 5\n" * (1_000 + n),
    "not": lambda n: "filter: " + "not " * (64 + n) + "true\n",
    "minus": lambda n: "score: " + "- " * (64 + n) + "1\n",
    "brackets": lambda n: "score: " + "(" * (64 + n) + "1" + ")" * (64 + n) + "\n",
    "items": lambda n: "filter: node.label a in [" + ", ".join(["a"] * (256 + n)) + "]\n",
}


@pytest.mark.parametrize("name", CASES)
def test_limit(name):
    at, above = codes(CASES[name](0)), codes(CASES[name](1))
    assert "P006" not in at
    assert above == ["P006"]


def test_depth_through_lets():
    assert codes(chain(60)) == []
    assert set(codes(chain(100))) == {"P006"}
    assert set(codes(chain(900))) == {"P006"}


def test_lets_declared_backwards_are_limited_too():
    lines = chain(900).splitlines()
    assert "P006" in codes("\n".join([lines[-1], *reversed(lines[:-1])]))


def test_doubling_lets_take_no_time():
    lets = "let a0 = load\n" + "".join(f"let a{i} = a{i - 1} + a{i - 1}\n" for i in range(1, 40))
    assert codes(lets + "score: a39\n") == []


def test_absurd_numbers():
    assert codes("score: 1e999999999\n") == ["P007"]
    assert codes("score: " + "9" * 5000 + "\n") == ["P007"]
    assert codes("score: 1e300*1e300*load\n") == []
