"""Well-typed expressions and statements of every kind, for Hypothesis.

What may be read follows from `dsl.schema` and `dsl.functions`, so that a new field or function is
generated as soon as it is in the table.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from hypothesis import strategies as st

from dsl.schema import AMOUNTS, FIELDS, RESULTS, request_unit
from dsl.types import BYTES, CORES, SECONDS, Kind, Level

HEADER = """\
metric m1 = promql "a" by node
metric m2 = promql "b" default 3
metric mb = promql "c" unit bytes
metric mk = promql "d" unit cores
metric ms = promql "e" unit seconds
metric mu = usage cpu
metric ma = annotation some/load stale 5m
metric mc = promql "f" by cluster
metric mn = promql "g" by namespace default 2
metric mw = promql "h" by workload
metric mp = promql "i" by pod
metric mo = object "example.com/racks" field "spec.power" by name
metric rtt = promql "j" by src, dst
metric rtd = promql "k" by src, dst default 9
param word: string = web
param names: list of string = [web, db]
param factor: number = 2.5
param sizes: list of number = [3, 7]
param span: duration = 90s
let words = [web, a-1]
"""
LITERALS = ("0", "1", "2", "3.5", "100", "0.1", "1e3", "7", "$factor")
_KEYS = {
    "label": ("k", "app", "'weird key'"),
    "annotation": ("k", "app"),
    "taint": ("k", "web"),
    "condition": ("k",),
    "node_selector": ("k",),
    "toleration": ("k", "app"),
}
_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
_OF_CONTAINER = ("it.name", "it.image", "it.request", "it.limit")
#: Sets of pods, and where the pods of each are: on the node, on any node, on none.
POD_SETS = {
    "node.pods": "here",
    "node.nominated": "here",
    "node.finished": "here",
    "zone.pods": "there",
    "region.pods": "there",
    "rack.pods": "there",
    "cluster.pods": "there",
    "pods_in('k')": "there",
    "queue.pods": "nowhere",
}
#: Sets of the nodes of a domain.
NODE_SETS = ("zone.nodes", "region.nodes", "rack.nodes", "nodes_in('k')")
_DOMAIN = ("zone.pods", "region.pods", "rack.pods", "pods_in('k')")
REDUCERS = ("max", "min", "sum", "avg", "median")
SEPARATORS = ("'-'", "'/'", "$word", "''")
TESTS = ("count", "any", "all")
TEXT_TESTS = ("contains", "starts with", "ends with", "like", "matches")
NORMS = ("none", "minmax", "default", "rank")


@dataclass(frozen=True)
class Place:
    """What an expression may read where it stands.

    Attributes:
        node: fields of the node.
        it: `pod` of a set of pods on nodes, `queued` of pods on none, `container`, or nothing.
        metrics: `bare`; `guarded` where a rule must say what missing means; or nothing.
        cycle: fields of the cluster and the clock.
        nodes: aggregates over nodes.
        domains: aggregates over the nodes of a domain, where a node is at hand.
        sets: sets of pods that may be aggregated.
        total: the score of the chosen node.
        across: metrics of the node and a pod that is elsewhere, and no more of the node.
        item: `text` or `number` where `it` alone is an item of a list.
        theirs: of nodes, for each pod of a set: a metric by pod is that pod's, and may not be read.
    """

    node: bool = True
    it: str = ""
    metrics: str = "bare"
    cycle: bool = True
    nodes: bool = True
    domains: bool = True
    sets: tuple[str, ...] = tuple(POD_SETS)
    total: bool = False
    across: bool = False
    item: str = ""
    theirs: bool = False


NODE = Place()
DECIDES = Place(metrics="guarded")
CHOSEN = replace(DECIDES, nodes=True)
RESULT = Place(total=True)
#: Cycle-level sets alone: no node is looked at.
POD = Place(node=False, metrics="guarded", nodes=False, sets=("cluster.pods", "queue.pods"))
PREFILTER = replace(POD, nodes=True)
SCORED = replace(POD, metrics="bare")
QUEUE = Place(node=False, metrics="", cycle=False, nodes=False, sets=())


def spelled(name, key):
    """A field as it is written."""
    if key is None:
        return name
    before, resource, part = name.partition(".resource.")
    return f"{before}{resource.rstrip('.')}[{key}]{'.' if part else ''}{part}"


def _keys(spec):
    if not spec.keyed:
        return (None,)
    if spec.name == "score":
        return ("a", "other")
    return _RESOURCES if spec.name in AMOUNTS else _KEYS[spec.name.rpartition(".")[2]]


def _may_read(place, spec):
    if spec.name.split(".", 1)[0] in RESULTS:
        return place.total and place.node and spec.name.startswith("score")
    if spec.level is Level.IT:
        container = place.it == "container" and spec.name in _OF_CONTAINER
        return container or place.it in ("pod", "queued")
    return {Level.CYCLE: place.cycle, Level.POD: True, Level.NODE: place.node}[spec.level]


def _readable(place):
    """The fields that may be read, with the name they have there."""
    for spec in FIELDS.values():
        if spec.type.kind in (Kind.PODS, Kind.NODES):
            continue
        if _may_read(place, spec):
            yield spec, spec.name
        of_node = spec.level is Level.NODE and spec.name.startswith("node.")
        if place.it == "pod" and of_node and not spec.of_pod and spec.type.kind is not Kind.LIST:
            yield spec, f"it.{spec.name}"


def _kind(spec, key):
    if spec.type.kind is Kind.NUMBER:
        unit = request_unit(key) if key is not None and spec.name in AMOUNTS else spec.type.unit
        return {CORES: "cores", BYTES: "bytes", SECONDS: "seconds"}.get(unit, "number")
    return {Kind.TEXT: "text", Kind.BOOL: "flag", Kind.TIME: "time", Kind.LIST: "list"}[
        spec.type.kind
    ]


def _metrics(place, out):
    def add(kind, text, otherwise):
        if place.metrics:
            out[kind].append(text if place.metrics == "bare" else f"({text} ?? {otherwise})")

    add("number", "mc", "3")
    add("number", "mw", "3")
    # Of nodes, a metric of the pods that are gone through around them may not be read.
    add("number", "mc" if place.theirs else "mp", "4")
    add("number", "rtt(pod.name, pod.label[app])", "6")
    if place.metrics:
        out["number"] += ["mn", "rtd(pod.name, pod.namespace)"]
    if place.node:
        add("number", "m1", "4")
        add("number", "ma", "1")
        add("number", "mo", "8")
        add("bytes", "mb", "1Mi")
        add("cores", "mk", "1")
        add("cores", "mu", "500m")
        add("seconds", "ms", "$span")
        add("seconds", "metric_age(m1)", "1m")
        add("number", "rtt(node.name, pod.name)", "5")
        if place.metrics:
            out["number"] += ["m2", "rtd(pod.name, node.zone)"]
    if place.across:
        add("number", "rtt(node.name, it.name)", "2")
        add("number", "rtt(it.label[app], node.zone)", "3")
        if place.metrics:
            out["number"].append("rtd(node.label[k], it.name)")
    if place.it == "pod":
        add("number", "rtt(it.name, it.node)", "7")
        if place.node:
            add("number", "rtt(node.name, it.node)", "7")
            out["number"].append("rtd(it.name, node.name)")


@lru_cache
def leaves(place):
    """Expressions without parts, by kind."""
    out = {
        "number": [*LITERALS],
        "cores": ["cores(0.5)"],
        "bytes": ["bytes(2048)"],
        "seconds": ["$span", "seconds(7.5)"],
        "time": ["time('2025-03-01T09:59:00Z')"],
        "text": ["'web'", "$word", "''"],
        "flag": ["true", "false"],
        "list": ["[web, db]", "$names", "words"],
    }
    inner = ["pod.label[app]", "'k'", "string(pod.priority)"]
    inner += ["node.name", "node.label[k]"] if place.node else []
    inner += ["it.name", "it.label[app]"] if place.it in ("pod", "queued") else []
    for spec, name in _readable(place):
        for key in _keys(spec):
            read = spelled(name, key)
            # A field with few words may be compared with others when it stands in an expression.
            out[_kind(spec, key)].append(f"({read} ?? 'x')" if spec.words else read)
        computed = spec.keyed and not name.startswith(("it.node.", "score"))
        if computed and not (place.it == "container" and spec.level is Level.IT):
            kind = "number" if spec.name in AMOUNTS else _kind(spec, None)
            reads = [spelled(name, f"({key})") for key in inner]
            out[kind] += [f"({one} ?? 'x')" for one in reads] if spec.words else reads
    if place.item:
        out[place.item].append("it")
    _metrics(place, out)
    return {kind: tuple(texts) for kind, texts in out.items()}


@lru_cache
def closest(place):
    """The leaves that differ most within the place: of `it`, else of the node."""
    word = "it." if place.it else "node."
    return {
        kind: tuple(one for one in texts if word in one or one == "it")
        for kind, texts in leaves(place).items()
    }


def _its(place, pods):
    """The place inside of an aggregate over a set of pods."""
    where = POD_SETS[pods]
    sets = place.sets if pods in ("node.pods", "cluster.pods") or pods in _DOMAIN else ()
    if where != "here":
        sets = tuple(one for one in sets if one in ("cluster.pods", "queue.pods"))
    it = "queued" if where == "nowhere" else "pod"
    node = place.node and where == "here"
    across, item = place.node and not node, place.item if where == "here" else ""
    return replace(place, it=it, node=node, across=across, item=item, sets=sets, theirs=False)


def _outer(place):
    """The place inside of an aggregate over nodes."""
    sets = tuple(POD_SETS) if place.sets else ()
    theirs = place.it in ("pod", "queued")
    return replace(
        place, it="", node=True, nodes=False, across=False, item="", sets=sets, theirs=theirs
    )


_CONTAINER = Place(node=False, it="container", nodes=False, sets=())


class Writer:
    """Writes expressions; `draw` is Hypothesis's."""

    def __init__(self, draw):
        self._draw = draw

    def one(self, choices):
        return self._draw(st.sampled_from(choices))

    def leaf(self, place, kind):
        near = closest(place)[kind]
        return self.one(near if near and self.one((True, False)) else leaves(place)[kind])

    # ---- numbers

    def number(self, place, depth):
        """A plain number."""
        if depth <= 0 or self.one((True, False, False)):
            return self.leaf(place, "number")
        return self.one((
            self._arithmetic, self._arithmetic, self._arithmetic, self._choice, self._function,
            self._several, self._of_text, self._of_unit, self._of_unit, self._reduced,
            self._reduced, self._counted, self._of_list, self._of_items, self._distinct,
        ))(place, depth - 1)  # fmt: skip

    def _arithmetic(self, place, depth):
        a = self.number(place, depth)
        if self.one((True, False, False, False)):
            return f"-({a})"
        if self.one((True, False, False, False, False, False)):
            return f"{self.one(range(150))}% of ({a})"
        return f"({a} {self.one('+-*/')} {self.number(place, depth)})"

    def _choice(self, place, depth):
        a, b = self.number(place, depth), self.number(place, depth)
        if self.one((True, False)):
            return f"({a} ?? {b})"
        return f"(if {self.flag(place, depth)} then {a} else {b})"

    def call(self, place, depth):
        """A plain number that a function gives."""
        return self.one((self._function, self._several, self._several, self._of_text))(place, depth)

    def _function(self, place, depth):
        a = self.number(place, depth)
        name = self.one(("abs", "floor", "ceil", "round", "sqrt", "log2", "exp", "number", "rank"))
        if name == "rank":
            if not (place.node and place.nodes):
                return a
            return f"rank({self.number(replace(place, it=''), depth)} + node.gpu.free)"
        return f"{name}({a})"

    def _several(self, place, depth):
        name = self.one((*REDUCERS, "pow", "mod", "clamp"))
        count = {"pow": 2, "mod": 2, "clamp": 3}.get(name) or self.one((2, 3))
        return f"{name}({', '.join(self.number(place, depth) for _ in range(count))})"

    def _of_text(self, place, depth):
        names = ("len", "number", "quantity", "ordinal", "hash", "duration", "time", "version")
        name = self.one(names)
        a = self.text(place, depth)
        if name == "hash":
            return f"hash({a}, {self.one((self.text, self.number))(place, depth)})"
        if "." not in a:
            # A written text that cannot be read is refused.
            a = f"join({a}, pod.label[app])"
        if name == "duration":
            return f"(duration({a})/1s)"
        if name == "version":
            # Beside a number it is refused.
            return f"(version({a})/1e12)"
        if name == "time":
            return f"((time({a}) - pod.created)/1h)"
        return f"{name}({a})"

    def _of_unit(self, place, depth):
        kind = self.one(("cores", "bytes", "seconds", "time"))
        a = self.sized(place, depth, kind)
        if kind == "time":
            return f"(({a} - {self.leaf(place, 'time')})/1min)"
        if self.one((True, False)):
            return f"number({a})"
        b = self.sized(place, depth, kind)
        if self.one((True, False)):
            return f"(({a})/({b}))"
        return f"(({a})*({b})/({self.sized(place, 0, kind)})/({self.sized(place, 0, kind)}))"

    def _of_list(self, place, depth):
        items = self.listed(place, depth)
        if items in ("node.images",) or self.one((True, False)):
            return f"len({items})"
        if self.one((True, False)):
            return f"item($sizes, {self.number(place, depth)})"
        return f"len(item({items}, {self.number(place, depth)}))"

    def sized(self, place, depth, kind):
        """A number with a unit, or a time."""
        if depth <= 0 or self.one((True, False)):
            made = {"cores": "cores", "bytes": "bytes", "seconds": "seconds"}.get(kind)
            if made and self.one((True, False, False, False)):
                return f"{made}({self.number(place, depth - 1)})"
            return self.leaf(place, kind)
        a, b = self.sized(place, depth - 1, kind), self.sized(place, depth - 1, kind)
        shape = self.one(("+", "-", "min", "if", "??", "reduce", "clamp"))
        if kind == "time" and shape in "+-":
            return f"({a} {shape} {self.sized(place, depth - 1, 'seconds')})"
        if shape in "+-":
            return f"({a} {shape} {b})"
        if shape == "if":
            return f"(if {self.flag(place, depth - 1)} then {a} else {b})"
        if shape == "??":
            return f"({a} ?? {b})"
        if shape == "clamp" and kind != "time":
            return f"mod(abs({a}), clamp({b}, {a}, {b}))"
        if shape == "reduce" and not place.it and not place.item and self.one((True, False, False)):
            name = self.one(("max", "min", "median"))
            of = f"split({self.text(place, 0)}, {self.one(SEPARATORS)})"
            inner = replace(place, item="text")
            return f"{name}({self.sized(inner, 1, kind)} over {of}{self._where(inner, 1)})"
        if shape == "reduce":
            names = ("max", "min", "median") if kind == "time" else REDUCERS
            return self.aggregate(place, depth - 1, self.one(names), kind) or a
        return f"{self.one(('max', 'min'))}({a}, {b})"

    # ---- aggregates

    def _of_items(self, place, depth):
        return self._items(place, self.one(("count", "sum", *REDUCERS))) or self._reduced(
            place, depth
        )

    def _distinct(self, place, depth):
        found = self._items(place, "distinct") if self.one((True, False, False)) else None
        kind = self.one(("text", "text", "number", "cores", "time"))
        found = found or self.aggregate(place, depth, "distinct", kind)
        return found or self.leaf(place, "number")

    def _items(self, place, function):
        """An aggregate over the items of a list, None where there can be none."""
        if place.it or place.item:
            return None
        of = self.one(("$names", "words", "$sizes", "pod.images", "split", "split"))
        if of == "split":
            of = f"split({self.text(place, 0)}, {self.one(SEPARATORS)})"
        inner = replace(place, item="number" if of == "$sizes" else "text")
        if function == "distinct" and self.one((True, False)):
            return f"distinct({of}{self._where(inner, 1)})"
        if function == "distinct":
            value = self.one((self.text, self.number))(inner, 1)
            return f"distinct({value} over {of}{self._where(inner, 1)})"
        if function in REDUCERS:
            return f"{function}({self.number(inner, 1)} over {of}{self._where(inner, 1)})"
        if self.one((True, False)):
            return f"{function}({of} where {self.flag(inner, 1)})"
        return f"{function}({self.flag(inner, 1)} over {of}{self._where(inner, 0)})"

    def _reduced(self, place, depth):
        return self.aggregate(place, depth, self.one(REDUCERS), "number") or self.leaf(
            place, "number"
        )

    def _counted(self, place, depth):
        return self.aggregate(place, depth, "count", "flag") or self.leaf(place, "number")

    def _where(self, place, depth):
        return f" where {self.flag(place, depth)}" if self.one((True, False)) else ""

    def _value(self, place, depth, kind):
        if kind == "flag":
            return self.flag(place, depth)
        if kind in ("number", "text"):
            return getattr(self, kind)(place, depth)
        return self.sized(place, depth, kind)

    def aggregate(self, place, depth, function, kind):
        """An aggregate of values of that kind, None where there can be none."""
        sets = (*place.sets, *(("nodes", "candidates") if place.nodes else ()))
        sets += NODE_SETS if place.domains and place.node else ()
        if place.it != "container":
            sets = (*sets, "pod.containers", "pod.containers")
        return self.aggregate_over(place, depth, function, kind, self.one(sets)) if sets else None

    def aggregate_over(self, place, depth, function, kind, of):
        """An aggregate over a set."""
        if of in ("nodes", "candidates"):
            return self._over_nodes(_outer(place), depth, function, kind, of)
        if of in NODE_SETS:
            inner = replace(_outer(place), domains=False)
            return self._over_nodes(inner, depth, function, kind, of)
        if of == "pod.containers":
            inner = _CONTAINER if place.cycle else replace(_CONTAINER, cycle=False)
            inner = replace(inner, metrics=place.metrics)
        else:
            inner = _its(place, of)
        if kind == "flag" and self.one((True, False)):
            if function == "count" and self.one((True, False)):
                return f"count({of})"
            return f"{function}({of} where {self.flag(inner, depth)})"
        value = self._value(inner, depth, kind)
        return f"{function}({value} over {of}{self._where(inner, depth)})"

    def _over_nodes(self, inner, depth, function, kind, of):
        if kind == "flag" and self.one((True, False)):
            return f"{function}({of} where {self.flag(inner, depth)})"
        over = f" over {of}" if of != "candidates" or self.one((True, False)) else ""
        value = self._value(inner, depth, kind)
        return f"{function}({value}{over}{self._where(inner, depth)})"

    # ---- texts

    def text(self, place, depth):
        if depth <= 0 or self.one((True, False)):
            return self.leaf(place, "text")
        depth -= 1
        a, b = self.text(place, depth), self.text(place, depth)
        shape = self.one(("??", "if", "case", "cut", "cut", "join", "string", "item", "item"))
        if shape == "??":
            return f"({a} ?? {b})"
        if shape == "if":
            return f"(if {self.flag(place, depth)} then {a} else {b})"
        if shape == "case":
            return f"{self.one(('lower', 'upper', 'trim', 'string'))}({a})"
        if shape == "cut":
            name = self.one(("before", "after", "before_last", "after_last", "replace"))
            part = self.one((b, "'-'"))
            return f"{name}({a}, {part}, {b})" if name == "replace" else f"{name}({a}, {part})"
        if shape == "join":
            return f"join({a}, {self.one((b, self.number(place, depth)))}, '-')"
        if shape == "string":
            kind = self.one(("cores", "bytes", "seconds"))
            return f"string({self.one((self.number(place, depth), self.sized(place, 0, kind)))})"
        items = self.listed(place, depth)
        if items in ("node.images",):
            return a
        return f"item({items}, {self.number(place, depth)})"

    def listed(self, place, depth):
        """A list of texts."""
        if self.one((True, False)):
            return self.one([one for one in leaves(place)["list"] if not one.startswith("[")])
        return (
            f"split({self.text(place, depth - 1)}, {self.one((chr(39) + '-' + chr(39), '$word'))})"
        )

    # ---- conditions

    def flag(self, place, depth):
        if depth <= 0 or self.one((True, False, False, False, False)):
            return self.one((self._flag_leaf, self._label_test))(place)
        return self.one((
            self._compared, self._compared, self._sizes_compared, self._texts_compared,
            self.text_test, self._in_list, self._in_list, self._missing, self._logical,
            self._logical, self._tested, self._tested, self._in_numbers,
        ))(place, depth - 1)  # fmt: skip

    def _flag_leaf(self, place):
        return self.leaf(place, "flag")

    def _label_test(self, place):
        owners = ["pod.label", "pod.annotation", "namespace.label", "workload.label"]
        owners += ["node.label", "node.annotation", "node.taint"] if place.node else []
        owners += ["it.label", "it.namespace.label"] if place.it in ("pod", "queued") else []
        owner = self.one([one for one in owners if not one.startswith("workload")])
        key = self.one(("k", "app"))
        if owner == "node.taint":
            tests = ("", "=web", "!=web", " in [web, db]", " not in [web]")
        else:
            tests = ("", "=web", "!=web", "=$word", " in [web, 'a-1']", " not in $names")
            tests += (">2", "<=7", "=(pod.name)", " in [db, (pod.name)]")
        return f"{owner} {key}{self.one(tests)}"

    def _compared(self, place, depth):
        sign = self.one(("==", "!=", "<", "<=", ">", ">="))
        return f"({self.number(place, depth)} {sign} {self.number(place, depth)})"

    def _sizes_compared(self, place, depth):
        kind = self.one(("cores", "bytes", "seconds", "time"))
        sign = self.one(("==", "!=", "<", "<=", ">", ">="))
        literal = {"cores": "1500m", "bytes": "1Gi", "seconds": "5m"}.get(kind)
        right = self.sized(place, depth, kind)
        if literal and self.one((True, False)):
            right = literal
        if literal and self.one((True, False, False)):
            low, high = {"cores": ("1", "4"), "bytes": ("1Ki", "2Gi")}.get(kind, ("1s", "5m"))
            return f"({self.sized(place, depth, kind)} in {low}..{high})"
        return f"({self.sized(place, depth, kind)} {sign} {right})"

    def _texts_compared(self, place, depth):
        sign = self.one(("==", "!="))
        if self.one((True, False, False)):
            return f"(({self.flag(place, depth)}) {sign} ({self.flag(place, depth)}))"
        return f"(({self.text(place, depth)}) {sign} ({self.text(place, depth)}))"

    def text_test(self, place, depth):
        """A test of a text."""
        name = self.one((*TEXT_TESTS, "is", "is not"))
        if name == "like":
            a, sign = self.text(place, depth), self.one(("*", "?"))
            made = self.one((f"({a})", f"(join({a}, '{sign}'))", f"(replace({a}, '-', '{sign}'))"))
            right = self.one(("w*", "'*'", "a-?", "'*b*'", made))
        elif name == "matches":
            right = self.one(("'w.*'", "'[a-z]+-[0-9]'", "'.'", "'(web|db)'"))
        else:
            right = self.one(("web", "'a-1'", "$word", f"({self.text(place, depth)})"))
        return f"(({self.text(place, depth)}) {name} {right})"

    def _in_list(self, place, depth):
        a, sign = self.text(place, depth), self.one(("in", "not in"))
        shape = self.one(("words", "list", "contains"))
        if shape == "words":
            return f"({a} {sign} [web, db, ({self.text(place, depth)})])"
        items = self.listed(place, depth)
        if shape == "list":
            return f"({a} {sign} {items})"
        return f"({items} contains {self.one(('web', '$word', f'({a})'))})"

    def _in_numbers(self, place, depth):
        a = self.number(place, depth)
        members = ("[0, 1, 2.5]", "$sizes", "0..3", "[]", "2..7")
        if place.cycle and self.one((True, False, False)):
            return self.one(("time.hour in 22..6", "time.minute not in 5..10"))
        return f"({a} {self.one(('in', 'not in'))} {self.one(members)})"

    def _missing(self, place, depth):
        kind = self.one(("number", "text", "cores", "bytes", "seconds", "time"))
        if kind in ("number", "text"):
            value = getattr(self, kind)(place, depth)
        else:
            value = self.sized(place, depth, kind)
        return f"(({value}) is {self.one(('missing', 'present'))})"

    def _logical(self, place, depth):
        if self.one((True, False, False)):
            return f"not ({self.flag(place, depth)})"
        parts = [self.flag(place, depth) for _ in range(self.one((2, 3)))]
        return f"({self.one((' and ', ' or ')).join(parts)})"

    def _tested(self, place, depth):
        name = self.one(("any", "all"))
        if self.one((True, False, False)):
            return self._items(place, name) or self._label_test(place)
        return self.aggregate(place, depth, name, "flag") or self._label_test(place)
