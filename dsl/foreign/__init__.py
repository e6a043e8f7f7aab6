"""What others write, and how it is written here: forms, fields, calls, near names.

Knows neither the grammar nor the tree; what it proposes is tried by others.
"""

from dsl.foreign.forms import known_forms as known_forms
from dsl.foreign.matcher import Match as Match
from dsl.foreign.nearest import closest as closest
from dsl.foreign.nearest import edit_distance as edit_distance
