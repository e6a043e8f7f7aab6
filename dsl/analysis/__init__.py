"""Rules without errors in, warnings out: what is odd, contradicts itself or costs too much.

Reads the tree as understood; changes nothing. Where it does not know, it is silent.
"""

from collections.abc import Iterator, Sequence

from dsl.analysis.cost import cost, over_budget
from dsl.analysis.facts import FileFacts, Inventory, MetricStock, RuleFacts, Size
from dsl.analysis.logic import Logic, decided
from dsl.analysis.ranges import odd_numbers
from dsl.analysis.stock import at_use, not_in_stock, not_sampled, question_of, read_inventory
from dsl.analysis.texts import contradicting_status, odd_parts, unused, without_arrow
from dsl.diagnostics import Diagnostic

__all__ = ["FileFacts", "Inventory", "MetricStock", "RuleFacts", "Size", "analyse", "cost",
           "question_of", "read_inventory"]  # fmt: skip


def analyse(
    files: Sequence[FileFacts], size: Size, stock: Inventory | None = None
) -> Iterator[Diagnostic | None]:
    """Yields the findings about the files of one chain; None where a caller may pause."""
    logic = Logic()
    keys = logic.cubes.keys
    for one in files:
        yield from over_budget(one, size, keys)
        if one.used is not None:
            if stock is not None:
                yield from at_use(one.used, not_in_stock(one, stock))
            continue
        yield from unused(one)
        yield from contradicting_status(one)
        for rule in one.rules:
            yield from odd_parts(rule)
            yield from without_arrow(rule)
            yield None
        yield from logic.file(one)
        yield from odd_numbers(one, keys)
        if stock is not None:
            yield from not_in_stock(one, stock)
            yield from not_sampled(one, stock)
        yield None
    ranked = sorted(files, key=lambda one: one.rank)
    for mode in ("enforce", "canary", "shadow"):
        same = [one for one in ranked if one.mode == mode]
        yield from logic.chain(same)
        yield from decided(same, logic)
