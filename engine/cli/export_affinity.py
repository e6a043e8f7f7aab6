"""`berth export-affinity`: filters of policies as node affinity, for whoever knows no policies."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import yaml

import policies
from dsl import ir
from dsl.diagnostics import render
from dsl.plan import Plan
from engine.cli.check import beside, expanded, read
from engine.policy import affinity
from engine.policy.findings import new_compiler, rules_of
from engine.text.display import takes_color
from engine.text.documents import Dumper

_TOO_MANY: Final = "# Not exported: written out, this is more terms than a pod should have."


@click.command("export-affinity", help="Print filters as node affinity, for autoscalers.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(files: tuple[Path, ...]) -> None:
    """YAML on stdout, one document for the pods of one condition; what is not in it on stderr.

    Exit 1 if a policy has errors, or a filter cannot be said.
    """
    texts = {str(path): read(path) for path in expanded(files)}
    bundled = policies.texts() | beside(texts, texts)
    result = new_compiler().compile(texts, bundled=bundled)
    errors = [one for one in result.diagnostics if one.is_error]
    if errors:
        click.echo(render(errors, color=takes_color(sys.stderr)), nl=False, err=True)
        sys.exit(1)
    plans = [plan for plan in result.plans if plan.mode == "enforce"]
    each = [_by(plan, affinity.said(rule)) for plan in plans for rule in plan.filters]
    text = as_yaml([one for one in each if isinstance(one, affinity.Said)])
    click.echo(text, nl=False)
    unsaid = [one for one in each if not isinstance(one, affinity.Said)]
    others = [rule for plan in plans for rule in rules_of(plan) if rule not in plan.filters]
    for one in (
        *unsaid,
        *(affinity.Unsaid(rule, rule.span, "it is not a filter") for rule in others),
    ):
        click.echo(_told(one), err=True)
    if unsaid or _TOO_MANY in text:
        sys.exit(1)


def _by(plan: Plan, one: affinity.Said | affinity.Unsaid) -> affinity.Said | affinity.Unsaid:
    """A condition with names of its policy's own (`let`, `param`) says of which policy it is."""
    if isinstance(one, affinity.Unsaid) or one.guard is None:
        return one
    if "$" not in one.guard and not ir.has(ir.Named, one.rule.core.guard):
        return one
    source, span = plan.place
    of = source.name
    if plan.used is not None:
        of = " ".join(source.text[span.start : span.end].split())
    return replace(one, guard=f"{one.guard}, as in: {of}")


def _told(one: affinity.Unsaid) -> str:
    part = affinity.text_of(one.rule, one.span)
    where = f"{one.rule.source.name}:{one.rule.line}"
    about = "" if one.span == one.rule.span else f"`{part}`: "
    return f"{where}: not exported: {about}{one.why}"


def as_yaml(rules: Sequence[affinity.Said]) -> str:
    """The documents, by the pods that they are for; a rule for all pods is in each of them."""
    return "---\n".join(_documents(rules))


def _documents(rules: Sequence[affinity.Said]) -> Iterator[str]:
    guards = sorted(dict.fromkeys(one.guard for one in rules), key=lambda one: one is not None)
    several = sum(guard is not None for guard in guards) > 1
    for guard in guards:
        group = [one for one in rules if one.guard in (None, guard)]
        yield _document(guard, group, several=several and guard is not None)


def _document(guard: str | None, group: Sequence[affinity.Said], *, several: bool) -> str:
    lines = [f"# {one.rule.source.name}:{one.rule.line}: {_first(one.rule.text)}" for one in group]
    lines.append(f"# Put it on {'all pods' if guard is None else f'the pods with: {guard}'}")
    if several:
        lines.append("# A pod that several documents fit needs what each requires, in one term.")
    whole = sorted({key for one in group for key in one.whole})
    if whole:
        lines.append(
            f"# Equal to the rule where these labels are whole numbers: {', '.join(whole)}"
        )
    terms = _together(group)
    if terms is None:
        lines.append(_TOO_MANY)
        return "\n".join([*lines, ""])
    if not all(terms):
        lines.append("# Nothing to put there: all nodes are allowed.")
        return "\n".join([*lines, ""])
    required = {"nodeSelectorTerms": [_term(term) for term in terms]}
    of_nodes = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    text = yaml.dump({"affinity": of_nodes}, Dumper=Dumper, sort_keys=False)
    return "\n".join([*lines, text])


def _together(group: Iterable[affinity.Said]) -> affinity.Terms | None:
    terms: affinity.Terms | None = affinity.EVERYWHERE
    for one in group:
        terms = terms and affinity.both(terms, one.terms)
    return terms


def _term(term: affinity.Term) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in term:
        where = "matchFields" if one.key == affinity.NAME_FIELD else "matchExpressions"
        values = {"values": list(one.values)} if one.values else {}
        entry = {"key": one.key, "operator": one.operator, **values}
        found.setdefault(where, []).append(entry)
    return found


def _first(text: str) -> str:
    line = text.strip().splitlines()[0]
    return line if line == text.strip() else f"{line} ..."
