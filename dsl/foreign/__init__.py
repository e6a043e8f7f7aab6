"""What others write, and how it is written here: forms, fields, calls, near names.

Knows neither the grammar nor the tree; what it proposes is tried by others.
"""

from functools import cache

from dsl.foreign.forms import rows
from dsl.foreign.matcher import Match as Match
from dsl.foreign.matcher import Matcher, Row
from dsl.foreign.nearest import closest as closest
from dsl.foreign.nearest import edit_distance as edit_distance

__all__ = ["Match", "Row", "closest", "edit_distance", "known_forms"]


@cache
def known_forms() -> Matcher:
    """Returns the rows of the table, ready to be matched; made when something is wrong."""
    return Matcher(rows())
