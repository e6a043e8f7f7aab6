"""The bundled policies, each with its tests: names in, texts out.

The files are data of this package; nothing here knows what they mean.
"""

from importlib.resources import files
from typing import Final

_POLICY: Final = ".policy"


def names() -> tuple[str, ...]:
    """Returns the names of all bundled policies, sorted."""
    there = (one.name for one in files(__name__).iterdir())
    return tuple(sorted(one.removesuffix(_POLICY) for one in there if one.endswith(_POLICY)))


def text(name: str) -> str:
    """Returns the text of a bundled policy.

    Raises:
        KeyError: no bundled policy has this name.
    """
    return _read(name, _POLICY)


def texts() -> dict[str, str]:
    """Returns the texts of all bundled policies by name."""
    return {name: text(name) for name in names()}


def tests(name: str) -> str:
    """Returns the text of a bundled policy's tests.

    Raises:
        KeyError: no bundled policy has this name.
    """
    return _read(name, ".policytest")


def _read(name: str, suffix: str) -> str:
    if name not in names():
        raise KeyError(name)
    return (files(__name__) / f"{name}{suffix}").read_text("utf-8")
