"""Cases of the specification: reads the Markdown, and the clusters that its tests describe."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from dsl.functions import parse_duration, parse_quantity, parse_time
from dsl.parser.tables import load_tables
from dsl.schema import WELL_KNOWN_LABELS
from tests.dsl.worlds import FakePod, FakeWorld

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RESOURCES = ("cpu", "memory", "storage", "gpu")
TIMES = ("created", "heartbeat", "queued_at", "first_attempt_at", "started_at")
TABLES = load_tables()


@dataclass
class Case:
    """One policy and what is said about it."""

    name: str
    line: int
    policy: str
    tests: str = ""
    diagnostics: str | None = None


def read_cases(path: Path) -> list[Case]:
    text = path.read_text(encoding="utf-8")
    cases: list[Case] = []
    for found in FENCE.finditer(text):
        kind, body = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if kind == "policy":
            title = re.findall(r"^#+ (.*)$", text[: found.start()], re.MULTILINE)[-1]
            cases.append(Case(f"{path.stem}: {title} (line {line})", line, body))
        elif kind == "policytest":
            cases[-1].tests = body
        elif kind == "diagnostics":
            cases[-1].diagnostics = body
    return cases


def text_of(tree):
    """Returns the word, text or number that a node of Lark's tree stands for."""
    while not isinstance(tree, str):
        if tree.data == "words":
            return [text_of(one) for one in tree.children if one is not None]
        tree = tree.children[0]
    if tree.type == "STRING":
        return tree[3:-3] if tree.startswith('"""') else tree[1:-1]
    return str(tree)


def amount(resource, text):
    return parse_quantity(text) * (1000 if resource == "cpu" else 1)


def attributes(trees, owner):
    """Returns the fields that attributes set."""
    fields: dict = {"metrics": {}, "ages": {}}
    for tree in trees:
        kind, parts = str(tree.data), [one for one in tree.children if one is not None]
        if kind == "attr_metric":
            name, value, *age = parts
            fields["metrics"][str(name)] = parse_quantity(text_of(value))
            fields["ages"][str(name)] = parse_duration(text_of(age[0])) if age else 0.0
        elif kind == "attr":
            name = str(parts[0])
            fields[name if name in ("count", "pods") else f"{owner}.{name}"] = plain(
                name, text_of(parts[1])
            )
        else:
            keyed = {"attr_label": "label", "attr_annotation": "annotation"}.get(kind)
            if keyed is None:
                keyed, parts = str(parts[0].children[0]), parts[1:]
            key, value = text_of(parts[0]), text_of(parts[1])
            if keyed == "taint":
                fields[f"{owner}.taint[{key}]"] = fields[f"{owner}.taint[{key}={value}]"] = True
            elif keyed in ("request", "limit", "resource"):
                fields[f"{owner}.{keyed}[{key}]"] = amount(key, value)
            else:
                fields[f"{owner}.{keyed}[{key}]"] = value
    return fields


def plain(name, text):
    if name in RESOURCES:
        return amount(name, text)
    if name in TIMES:
        return parse_time(text)
    if text in ("true", "false"):
        return text == "true"
    if name in ("priority", "count", "pods", "attempts"):
        return float(text)
    return text


@dataclass
class Fixture:
    """A cluster as a test describes it."""

    nodes: dict = field(default_factory=dict)
    running: list = field(default_factory=list)
    pod: dict = field(default_factory=dict)
    now: float = parse_time("2025-03-01T10:00:00Z")

    def add(self, tree):
        kind, parts = str(tree.data)[2:].replace("ven_", ""), tree.children
        if kind == "now":
            self.now = parse_time(text_of(parts[0]))
        elif kind == "node":
            name = text_of(parts[0])
            self.nodes[name] = merge(self.nodes.get(name, {}), attributes(parts[1:], "node"))
        elif kind == "running":
            fields = attributes(parts[1:], "it")
            for _ in range(int(fields.pop("count", 1))):
                self.running.append({**fields, "it.node": text_of(parts[0])})
        elif kind == "pod":
            self.pod = attributes(parts, "pod")
        else:
            raise AssertionError(tree)

    def copy(self):
        return Fixture(dict(self.nodes), list(self.running), dict(self.pod), self.now)

    def world(self):
        names = list(self.nodes)
        pods = [
            {"it.namespace": "default", "it.qos": "BestEffort", **one,
             "on": names.index(one["it.node"])}
            for one in self.running
        ]  # fmt: skip
        nodes = [self._node(name, index, pods) for index, name in enumerate(names)]
        hour, minute = divmod(int(self.now) // 60 % 1440, 60)
        days = ("thu", "fri", "sat", "sun", "mon", "tue", "wed")
        cycle = {
            "cluster.nodes": float(len(nodes)),
            "time.hour": float(hour),
            "time.minute": float(minute),
            "time.weekday": days[int(self.now) // 86400 % 7],
        }
        for kind in ("cpu", "memory", "gpu"):
            for part in ("allocatable", "requested", "free"):
                values = [node[f"node.{kind}.{part}"] for node in nodes]
                cycle[f"cluster.{kind}.{part}"] = float(sum(values))
        return FakeWorld(nodes, pods, now=self.now, cycle=cycle)

    def _node(self, name, index, pods):
        node = {
            "node.name": name,
            "node.ready": True,
            "node.label[kubernetes.io/hostname]": name,
            **self.nodes[name],
        }
        mine = [one for one in pods if one["on"] == index]
        for field_name, label in WELL_KNOWN_LABELS.items():
            node[field_name] = node.get(f"node.label[{label}]")
        for kind in RESOURCES:
            whole = node.get(f"node.{kind}", 0.0)
            used = sum(one.get(f"it.{kind}", 0.0) for one in mine)
            node |= {
                f"node.{kind}.capacity": whole,
                f"node.{kind}.allocatable": whole,
                f"node.{kind}.requested": used,
                f"node.{kind}.free": whole - used,
            }
        slots = node.get("pods", 110.0)
        node |= {"node.pods.capacity": slots, "node.pods.free": slots - len(mine)}
        for key in [key for key in node if key.startswith("node.resource[")]:
            for part in ("capacity", "allocatable", "free"):
                node[key.replace("node.resource", f"node.resource.{part}")] = node[key]
        return node

    def subject(self):
        fields = {
            "pod.name": "pod",
            "pod.namespace": "default",
            "pod.qos": "BestEffort",
            "pod.uid": "uid",
            "pod.scheduler": "berth",
            **self.pod,
        }
        fields.setdefault("namespace.name", fields["pod.namespace"])
        for kind in RESOURCES:
            fields.setdefault(f"pod.request[{kind}]", fields.get(f"pod.{kind}", 0.0))
        return FakePod.of(fields)


def merge(old, new):
    return {
        **old, **new,
        "metrics": {**old.get("metrics", {}), **new["metrics"]},
        "ages": {**old.get("ages", {}), **new["ages"]},
    }  # fmt: skip


def read_tests(text):
    """Yields name, fixture and expectations of each test."""
    base = Fixture()
    for tree in TABLES.parse(text, start="testfile").children:
        if tree.data != "t_test":
            base.add(tree)
            continue
        name, *clauses = tree.children
        own, expected = base.copy(), []
        for clause in clauses:
            if str(clause.data).startswith("expect"):
                expected.append(clause)
            else:
                own.add(clause)
        yield text_of(name), own, expected
