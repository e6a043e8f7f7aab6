"""`python -m tests.fuzz.guided TARGET FOUND PLACE ARGUMENTS...`: one process of atheris.

libFuzzer ends with the first finding; here findings are written down and it goes on. What it cannot
go on after, too much memory or no end, it writes down itself.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dsl", "engine"]):
    from tests.fuzz.inputs import Mutator, seeds
    from tests.fuzz.targets import Language


def main() -> None:
    """Does not return: libFuzzer ends the process."""
    target, found, place, *arguments = sys.argv[1:]
    language = Language(Path(place))
    mutator = Mutator(seeds())

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if target == "bytes" or rng.random() < 0.1:
            return bytes(atheris.Mutate(data, most))
        text = mutator.change(data.decode("utf-8", "surrogateescape"), rng)
        return text.encode("utf-8", "surrogateescape")[:most]

    def tried(data: bytes) -> None:
        language.try_one(data, Path(found))

    atheris.Setup([sys.argv[0], *arguments], tried, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
