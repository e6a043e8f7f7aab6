"""What rules come to, node by node and pod by pod: what only tests ask of `dsl.reference`."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsl import functions
from dsl.reference import View, evaluate
from dsl.types import Kind, is_missing


def applies(guard, world, subject):
    """Whether the left side of a rule holds for the pod."""
    return guard is None or bool(evaluate(guard, View(world, subject, -1)))


def passes(core, world, subject, row):
    """Whether a node passes a filter."""
    if not applies(core.guard, world, subject):
        return True
    return bool(evaluate(core.test, View(world, subject, row)))


def at_node(guard, left, view):
    """Whether a rule about the chosen node applies."""
    return all(one is None or bool(evaluate(one, view)) for one in (guard, left))


def order_key(keys, view):
    """Returns what compares as the keys order: smaller comes first, missing values last."""
    each = ((evaluate(one.value, view), one.direction, one.items) for one in keys)
    return tuple(functions.place(*one) for one in each)


# ---- scores


def scores(core, world, subject, candidates):
    """Returns the scores a rule gives to the candidates; None when it abstains."""
    rows, known = tuple(candidates), {}
    if not rows or not applies(core.guard, world, subject):
        return None
    views = [View(world, subject, row, rows, known=known) for row in rows]
    raw = [evaluate(core.value, one) for one in views]
    if core.missing is None and all(map(math.isnan, raw)):
        return None
    return finished(raw, core.norm, core.missing, reverse=core.reverse)


def finished(raw, norm, missing, *, reverse):
    """Returns the scores of raw values, missing ones replaced."""
    instead = 0.0 if missing is None else missing
    scaled = normalised(raw, norm, reverse=reverse)
    return [instead if math.isnan(one) else round_score(one) for one in scaled]


def round_score(value):
    """Clamps a score to 0..100 and rounds it to six decimals, halves away from 0."""
    return math.floor(min(max(value, 0.0), 100.0) * 1e6 + 0.5) / 1e6


def normalised(values, norm, *, reverse):
    """Returns raw scores of the candidates on the scale 0..100, missing ones still missing."""
    there = sorted(one for one in values if not math.isnan(one))
    if not there:
        return values
    low, high = there[0], there[-1]
    out = values
    if norm == "minmax":
        out = [_between(one, low, high) for one in values]
    elif norm == "default":
        out = [one / high * 100.0 if high > 0 else one * 0.0 for one in values]
    elif norm == "rank":
        others = max(len(there) - 1, 1)
        below = [one if math.isnan(one) else sum(each < one for each in there) for one in values]
        out = [one * 100.0 / others for one in below]
    return [100.0 - one for one in out] if reverse else out


def _between(value, low, high):
    if high == low:
        return value * 0.0
    if math.isinf(high - low):
        return (value / 2 - low / 2) / (high / 2 - low / 2) * 100.0
    return (value - low) / (high - low) * 100.0


# ---- statements about several pods


@dataclass(frozen=True)
class ByReference:
    """The values that `dsl.several` asks for, one pod at a time."""

    subject: Any
    world: Any

    def _views(self, rows, table="pods"):
        world = self.world if table == "pods" else self.world.pod_table(table)
        return [View(world, self.subject, int(world.pod_node[pod]), pod=pod) for pod in rows]

    def _there(self, table):
        """The used rows of a table, each with its view."""
        world = self.world if table == "pods" else self.world.pod_table(table)
        rows = np.flatnonzero(world.pod_node >= 0).tolist()
        return zip(rows, self._views(rows, table), strict=True)

    def one(self, expr):
        """Returns the value of an expression about the pod."""
        return evaluate(expr, View(self.world, self.subject, -1))

    def chosen(self, where, table="pods"):
        """Returns the rows of the pods for which a condition holds, ascending."""
        return tuple(pod for pod, view in self._there(table) if evaluate(where, view))

    def ordered(self, rows, keys):
        """Returns rows of the table `pods` in an order; equal ones stay as they are."""
        places = dict(zip(rows, (order_key(keys, one) for one in self._views(rows)), strict=True))
        return tuple(sorted(rows, key=places.__getitem__))

    def totals(self, key, amounts, where, table="pods"):
        """Returns the sums of amounts of the pods with an equal key, those without one left out."""
        found = {}
        for _, view in self._there(table):
            own = evaluate(key, view)
            if not is_missing(own) and (where is None or evaluate(where, view)):
                found.setdefault(own, []).append([evaluate(one, view) for one in amounts])
        return {
            own: tuple(functions.total(list(column)) for column in zip(*parts, strict=True))
            for own, parts in found.items()
        }

    def column(self, expr, rows):
        """Returns numbers or flags of some rows of the table `pods`."""
        kind = np.bool_ if expr.type.kind is Kind.BOOL else np.float64
        return np.array([evaluate(expr, one) for one in self._views(rows.tolist())], kind)

    def distinct(self, expr, rows):
        """Returns the values that some rows of the table `pods` have, and which each has."""
        each = [evaluate(expr, one) for one in self._views(rows.tolist())]
        values = {repr(one): one for one in each}
        index = {name: place for place, name in enumerate(values)}
        return list(values.values()), np.array([index[repr(one)] for one in each], np.intp)

    def rank(self, key, rows, results):
        """Returns where a key puts each of some nodes whose outcomes would be `results`."""
        places = []
        for at, row in enumerate(rows.tolist()):
            own = {name: float(column[at]) for name, column in results.items()}
            view = View(self.world, self.subject, row, results=own)
            places.append(order_key((key,), view))
        rank = {place: number for number, place in enumerate(sorted(set(places)))}
        return np.array([rank[one] for one in places], np.intp)
