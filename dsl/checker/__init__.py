"""The tree as written becomes the tree as understood, or diagnostics. Never raises.

Checks one file: names, kinds, units, levels, missing values. Sugar ends here. Knows neither the
parser's tables nor columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import statements
from dsl.checker.declarations import declare_metric, declare_name, declare_param
from dsl.checker.expressions import walk
from dsl.checker.rules import MAX_WEIGHT, Checked, Draft, Rules, condition, score, tier
from dsl.checker.scope import LetEntry, ParamValue, Refused, attempt
from dsl.diagnostics import Diagnostic
from dsl.making import NOWHERE, compare, constant, read
from dsl.plan import Head
from dsl.reads import reads_of
from dsl.schema import CATALOGUE, MetricDefinition
from dsl.source import SourceFile, Span
from dsl.types import TEXT

__all__ = ["CheckedPolicy", "Draft", "FileChecker", "ParamValue", "policy_name"]

LANGUAGE: Final = 1
_ALL: Final = 100
_MAX_ORDER: Final = 1_000_000
#: Who checks the statements of each point.
_POINTS: Final[dict[str, Callable[..., Checked]]] = {
    **dict.fromkeys(("filter", "forbid", "gate", "prefilter", "reserve"), condition),
    **dict.fromkeys(("score", "prefer", "avoid"), score),
    **dict.fromkeys(("prebind", "postbind"), statements.actions),
    "first": tier,
    "spread": statements.spread,
    "sort": statements.sort,
    "permit": statements.permit,
    "bind": statements.bind,
    "preempt": statements.preempt,
    "gang": statements.gang,
    "quota": statements.quota,
}
#: Where they stand in a plan, if not in the plural of their point.
_SLOTS: Final = {"forbid": "filters", "spread": "filters", "first": "tiers"}


class CheckedPolicy(Head, frozen=True, kw_only=True):
    """A file that was understood."""

    rules: tuple[Draft, ...]
    given: tuple[Span, ...] = ()


def policy_name(source: SourceFile, statements: Sequence[s.Statement]) -> str:
    """Returns what a file calls itself, else its file name without folder and ending."""
    for node in statements:
        if isinstance(node, s.Header) and node.name == "policy" and isinstance(node.value, s.Word):
            return node.value.value
    return source.name.rsplit("/", 1)[-1].removesuffix(".policy")


class FileChecker:
    """Checks the statements of one file, one step each."""

    def __init__(
        self,
        source: SourceFile,
        statements: Sequence[s.Statement],
        *,
        params: Mapping[str, ParamValue] | None = None,
        metrics: Mapping[str, MetricDefinition] | None = None,
        namespace: str | None = None,
    ) -> None:
        """Starts; with a namespace the rules are for its pods alone."""
        self._statements = tuple(statements)
        self._given = dict(params or {})
        self.rules = Rules(source, {**CATALOGUE, **(metrics or {})}, walk=walk)
        self._header: dict[str, Any] = {"name": policy_name(source, statements)}
        self._seen: set[str] = set()
        self._drafts: list[Draft] = []
        if namespace is not None:
            # Nobody wrote it.
            wanted = constant(NOWHERE, namespace, TEXT)
            own = compare(NOWHERE, read(NOWHERE, "pod.namespace"), "==", wanted)
            self.rules.guards.append(own)

    def steps(self) -> Iterator[None]:
        """Does the work; stops after each statement."""
        for check, *what in self._checks():
            with suppress(Refused):
                check(*what)
            yield

    def _checks(self) -> Iterator[tuple[Any, ...]]:
        """Returns what is to be done, in order: a check and what it is given."""
        for kind in (s.Broken, s.ParamDecl, s.MetricDecl, s.LetDecl, s.Header, s.NormalizeDecl):
            yield from ((self._declare, one) for one in self._statements if isinstance(one, kind))
        for name in self._given:
            known = ", ".join(self.rules.params) or "no parameters"
            message = f"the configuration sets `{name}`, and this policy has no such parameter"
            self.rules.report("P105", message, Span(0, 0), f"it has {known}")
        rules = [one for one in self._statements if isinstance(one, s.Rule | s.Special)]
        yield from ((self._prescore, one) for one in rules if one.point == "prescore")
        numbers = {id(one): number for number, one in enumerate(rules, 1)}
        for node in self._statements:
            if isinstance(node, s.LetDecl):
                entry = self.rules.lets.get(node.name)
                if entry is not None and entry.written is node:
                    yield self.rules.let_value, entry
            elif isinstance(node, s.Rule | s.Special) and node.point != "prescore":
                yield self._rule, node, numbers[id(node)]

    def result(self) -> tuple[CheckedPolicy, tuple[Diagnostic, ...]]:
        """Returns what was understood, and all findings."""
        policy = CheckedPolicy(
            source=self.rules.source,
            metrics=tuple(self.rules.used.values()),
            rules=tuple(self._drafts),
            given=tuple(sorted(self.rules.given, key=attrgetter("start"))),
            **self._header,
        )
        return policy, tuple(self.rules.found)

    # ---- declarations and header

    def _declare(self, node: s.Statement) -> None:
        scope = self.rules
        match node:
            case s.Broken():
                scope.broken.update(node.declares)
            case s.ParamDecl():
                declare_param(scope, node, self._given.pop(node.name, None))
            case s.MetricDecl():
                declare_metric(self.rules, node)
            case s.LetDecl():
                declare_name(scope, node.name, node.name_span)
                scope.lets[node.name] = LetEntry(node)
            case s.Header():
                self._head(node)
            case s.NormalizeDecl():
                self._once("normalize", node)
                self.rules.norm = node.norm
            case _:
                pass

    def _once(self, word: str, node: s.Statement, *helps: str, code: str = "P109") -> None:
        """Refuses what stands in the file already."""
        if word in self._seen:
            message = f"`{word.replace('_', ' ')}:` stands twice in this file"
            raise self.rules.refuse(code, message, node, *helps)
        self._seen.add(word)

    def _head(self, node: s.Header) -> None:
        scope, value, name = self.rules, node.value, node.name.replace("policy_weight", "weight")
        self._once(name, node)
        text = value.value.strip() if isinstance(value, s.Word | s.Text) else ""
        match name:
            case "policy":
                self._header |= {"name": text, "name_span": node.span}
            case "description":
                pass  # For readers.
            case "version":
                self._header[name] = text
            case "language":
                if text != str(LANGUAGE):
                    message = f"this compiler reads language {LANGUAGE}, not `{text}`"
                    raise scope.refuse("P901", message, value, f"write  language: {LANGUAGE}")
            case "mode":
                word, _, share = text.partition(" ")
                if share and not 0 < float(share.strip().removesuffix("%")) <= _ALL:
                    message = "a canary is more than 0% and at most 100% of the pods"
                    raise scope.refuse("P111", message, value)
                self._header[name] = f"{word} {share.strip()}".strip()
            case "order":
                self._header[name] = self.rules.whole(node, name, -_MAX_ORDER, _MAX_ORDER)
            case "weight":
                self._header[name] = self.rules.number(node, name, 0, MAX_WEIGHT)
            case _:
                guard = self.rules.condition(value, "`applies to`")
                self.rules.pod_only("`applies to` looks at the pod", guard)
                self.rules.guards.append(guard)

    # ---- rules

    def _prescore(self, node: s.Rule) -> None:
        """Checks the condition of a `prescore:`, on which all scores of the file depend."""
        test = self.rules.condition(node.right, f"`{node.keyword}`")
        self.rules.pod_only(f"`{node.keyword}` looks at the pod", test)
        self.rules.prescores.append(test)

    def _rule(self, node: s.Rule | s.Special, number: int) -> None:
        if node.point == "sort":
            help_ = "give all keys in one line:  sort: pod.priority desc, pod.queued_at"
            self._once("sort", node, help_, code="P501")
            if "applies_to" in self._seen:
                message = "`applies to` narrows no `sort`: the queue has one order, of all pods"
                self.rules.warn("P120", message, node, "put `sort:` into a policy of its own")
        parts = self.rules.clauses(node.clauses, several=("annotate", "set_label", "event"))
        left = node.left and attempt(self.rules.condition, node.left, "the left side of `->`")
        core, roots = _POINTS[node.point](self.rules, node, left, parts)
        if left is None and node.left is not None:
            raise Refused
        point = "score" if isinstance(core, ir.ScoreCore) else node.point
        slot = _SLOTS.get(point, f"{point}s")
        self._drafts.append(Draft(number, node, slot, core, reads_of(*roots)))
