"""Codes of findings that were split: an old code, and what it has become.

A code means one thing. Who asks for an old one (`berth explain`, `expect error` of a policy test,
a pipeline that looks for it) is answered by the new ones.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

OLD: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "P001": ("P015", "P016", "P017", "P018", "P019", "P020", "P021", "P022", "P023", "P024"),
        "P004": ("P010",),
        "P005": ("P023", "P024"),
        "P009": ("P017", "P018", "P019", "P022", "P023", "P024"),
        "P014": ("P005", "P015", "P017", "P018", "P019", "P020", "P021", "P023"),
    }
)


#: Codes that are no longer said, and what holds where they were.
GONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "P118": "Whatever `berth check` accepts, a scheduler runs.",
        "P221": "`a ?? 1 * 10` is read as `(a ?? 1) * 10`, and no longer warned of.",
        "P223": "A condition on pods of a set reads `it`; one of `pod` alone is no longer told of.",
        "P228": "A query whose result names no node is told by P402, with an inventory of the"
        " cluster, and by the scheduler's log.",
        "P305": "A rule that an earlier one makes superfluous is told by P304, a key that is there"
        " already by P312.",
        "P311": "A number divided by 0 is missing, which is no longer warned of; say `?? 0`.",
        "P313": "A `sum` in a score is over the candidates; say `over nodes` for all nodes.",
        "P315": "An aggregate of a score is over the candidates, any other over all nodes; `over`"
        " says which.",
        "P232": "What is missing equals nothing, which is no longer told of two values that may be;"
        " say `is missing or`.",
        "P229": "A fallback that is never taken is no longer told.",
    }
)


def become(code: str) -> tuple[str, ...]:
    """Returns a code and what it was split into."""
    return (code, *OLD.get(code, ()))
