"""Codes of findings that were split: an old code, and what it has become.

A code means one thing. Who asks for an old one (`berth explain`, `expect error` of a policy test,
a pipeline that looks for it) is answered by the new ones.
"""

from collections.abc import Mapping
from typing import Final

OLD: Final[Mapping[str, tuple[str, ...]]] = {
    "P001": ("P015", "P016", "P017", "P018", "P019", "P020", "P021", "P022", "P023", "P024"),
    "P004": ("P010",),
    "P005": ("P023", "P024"),
    "P009": ("P017", "P018", "P019", "P022", "P023", "P024"),
    "P014": ("P005", "P015", "P017", "P018", "P019", "P020", "P021", "P023"),
}
#: Codes that are no longer said, and what holds instead.
GONE: Final = {
    "P118": "Whatever `berth check` accepts, a scheduler runs.",
    "P221": "`a ?? 1 * 10` is `(a ?? 1) * 10`.",
    "P229": "A fallback may be one that is never taken; of one that is not 0 see P317.",
    "P305": "See P304; of a key that is there already, P312.",
    "P311": "What is divided by 0 is missing.",
    "P313": "A `sum` in a score is over the candidates; say `over nodes`.",
    "P315": "`over` says which nodes an aggregate is of.",
    "P705": "Attributes of a policy test that no rule reads make no difference.",
}


def become(code: str) -> tuple[str, ...]:
    """Returns a code and what it was split into."""
    return (code, *OLD.get(code, ()))
