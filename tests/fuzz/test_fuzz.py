"""What the fuzzer found stays mended, and a few hundred changed texts on every day."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.effort import examples
from tests.fuzz.inputs import SEPARATOR, Mutator, seeds
from tests.fuzz.targets import Broken, Language

CASES = sorted((Path(__file__).parent / "cases").iterdir())
SEEDS = seeds()
NAMES = ("score: " + " + ".join(f"n{i:x}" for i in range(5000))).encode()


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    # Time is not what these tests are about: the fuzzer looks at that.
    return Language(tmp_path_factory.mktemp("run"), seconds=20.0)


@pytest.fixture(scope="module")
def mutator():
    return Mutator(SEEDS)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_what_was_found(path, language):
    language.check(path.read_bytes())


@pytest.mark.slow
def test_five_thousand_unknown_names(language):
    language.check(NAMES)


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(4))
def test_changed_texts(seed, mutator, language):
    rng = random.Random(f"{seed} {os.environ.get('EFFORT', '')}")
    for _ in range(examples(100)):
        text = mutator.change(rng.choice(SEEDS), rng)
        try:
            language.check(text.encode("utf-8", "surrogateescape"))
        except Exception as wrong:
            raise AssertionError(f"{wrong}; the input is {text!r}") from wrong


@pytest.mark.sized
@pytest.mark.parametrize("seed", range(2))
def test_two_texts_in_one(seed, mutator, language):
    rng = random.Random(seed)
    for _ in range(examples(40)):
        language.check(mutator.join(rng.choice(SEEDS), rng.choice(SEEDS), rng))


@pytest.mark.sized
def test_bytes(language):
    rng = random.Random(0)
    for _ in range(examples(100)):
        language.check(rng.randbytes(rng.randint(0, 100)))


def test_seeds_are_of_all_kinds():
    tests = [text for text in SEEDS if SEPARATOR in text]
    assert len(SEEDS) > 200
    assert 20 < len(tests) < len(SEEDS)


def test_the_same_numbers_make_the_same_change(mutator):
    first, again = (
        [each.change(text, random.Random(1)) for text in SEEDS[:20]]
        for each in (mutator, Mutator(SEEDS))
    )
    assert first == again
    assert first != SEEDS[:20]


def test_a_finding_is_kept_once_and_the_smallest(tmp_path, language, monkeypatch):
    def broken(data):
        if b"x" in data:
            raise Broken("12 is not 13")

    monkeypatch.setattr(language, "check", broken)
    assert language.try_one(b"fine", tmp_path)
    for data in (b"xyz", b"x", b"xy"):
        assert not language.try_one(data, tmp_path)
    (kept,) = [path for path in tmp_path.iterdir() if path.suffix != ".why"]
    assert kept.read_bytes() == b"x"
    assert "12 is not 13" in kept.with_suffix(".why").read_text()


def test_time_is_an_invariant(tmp_path):
    with pytest.raises(Broken, match="took"):
        Language(tmp_path, seconds=0.0).check(b"score: 1\n")
