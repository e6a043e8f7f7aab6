"""What holds of the attributes and expectations of a test beyond their words."""

from typing import Final

from dsl.policytest.words import DEFAULT_NOW
from dsl.quantities import parse_time

NOW: Final = parse_time(DEFAULT_NOW)
OF_NODES: Final = ("feasible", "rejected", "score", "best", "nominated")
OF_GIVEN: Final = ("order", "gated", "ungated")
