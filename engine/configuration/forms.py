"""How values of configuration files are written, and what all their sections have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

_ONE: Final = r"(\d+(?:\.\d+)?)(ms|min|[smhd])"
_PART: Final = re.compile(_ONE, re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def matching(pattern: str, wrong: str) -> Callable[[str], str]:
    """Gives texts of a form back; of another one `wrong` says what it is not, and what to write.

    It raises ValueError then.
    """
    form = re.compile(pattern, re.ASCII)

    def checked(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text!r} {wrong}")
        return text

    return checked


duration_of = matching(
    rf"(?=.*[1-9])(?:{_ONE})+", "is not a duration above 0; write one like 15s, 5min or 1m30s"
)
Duration = Annotated[
    str,
    # A bare number lacks its unit, which says more than that it is no text.
    BeforeValidator(lambda given: str(given) if isinstance(given, int | float) else given),
    AfterValidator(duration_of),
]
OfKubernetes = Annotated[
    Duration,
    AfterValidator(
        matching(r"([\d.]+(ms|[smh]))+", "has a unit that Kubernetes lacks; write h, m, s or ms")
    ),
]
"""A `Duration` where kube-scheduler's own configuration has one."""


def seconds(duration: str) -> float:
    """How long a `Duration` is: `1m30s` is 90, `1.5s` is 1.5."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def is_address(url: str) -> bool:
    """Whether there can be an HTTP server: a host, and a port that there is."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that stays open, a port above 65535
        return False


class Section(BaseModel):
    """A document, or a section of one: nothing unknown, in the camel case of the files.

    No text is read as a number, as kube-scheduler has it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )
