"""`use NAME (args)` of a test file becomes a plugin: a compiled policy or one of the tree."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from dsl.checker.scope import closest
from dsl.compiler import Compiler, CompileResult
from dsl.diagnostics import Diagnostic, Fix
from dsl.plan import Plan
from dsl.policytest import NOT_FOUND, Case, Suite, Use
from dsl.source import Span
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.plugins.priority_sort import PrioritySort
from engine.plugins.registry import DEFAULT_WEIGHTS, make_plugin
from engine.policy import chain
from engine.policy.bundle import Bundle
from engine.policy.plugin import Worlds
from engine.policy.support import PLUGINS, new_compiler
from engine.policytests.judging import CannotJudgeError

_HEADER: Final = re.compile(rb"^policy:[ \t]*([A-Za-z0-9._/-]+)", re.MULTILINE)
_PARAM: Final = re.compile(rb"^param[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_SHOWN: Final = 8
#: What a file is called, which is not part of a policy's name.
_ENDING: Final = re.compile(r"\.(?:policy|policytest|ya?ml)\Z")

#: `use defaults`: the plugins of the default profile; without an order of the queue, which there is
#: always one of.
DEFAULTS: Final = "defaults"
_DEFAULTS: Final = tuple(name for name in DEFAULT_WEIGHTS if name != "PrioritySort")
_USED: Final = re.compile(rb"^use[ \t]+([A-Za-z][\w-]*)", re.MULTILINE)

Params = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy that was found: its file and what it says."""

    path: str
    name: str
    text: bytes

    @property
    def params(self) -> frozenset[str]:
        """The parameters that it declares."""
        return frozenset(one.decode() for one in _PARAM.findall(self.text))

    @property
    def in_tree(self) -> list[str]:
        """The plugins of the tree that its `use` lines name."""
        names = (_in_tree().get(_folded(one.decode())) for one in _USED.findall(self.text))
        return list(dict.fromkeys(one for one in names if one is not None))


@dataclass(frozen=True, slots=True)
class Used:
    """What takes part in a test: new plugins of the tree, in the default order, and policies."""

    plugins: tuple[Weighted, ...]
    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The policies of a test do not compile."""

    diagnostics: tuple[Diagnostic, ...]


def framework_of(used: Used, worlds: Worlds) -> Framework:
    """All of them as a scheduler has them.

    Raises:
        CannotJudgeError: they make no profile.
    """
    if sum(bool(plan.sorts) for plan in used.plans) > 1:
        raise CannotJudgeError("two of the policies sort the queue; a profile has one order")
    sorts = any(one.plugin.points().sort_key is not None for one in used.plugins)
    plugins = used.plugins if sorts else (*used.plugins, Weighted(PrioritySort()))
    return chain.framework_of(Profile("berth", plugins), Bundle("", used.plans, {}), worlds=worlds)


class Library:
    """Finds policies and compiles them; what was compiled once is kept."""

    def __init__(self, bundled: Path | None, compiler: Compiler | None = None) -> None:
        self._bundled = bundled
        self._compiler = compiler or new_compiler()
        self._folders: dict[Path, list[PolicyText]] = {}
        self._compiled: dict[tuple[str, bytes, str], CompileResult] = {}

    def warm(self) -> None:
        """Builds the tables of the grammar."""
        self._compiler.warm()

    def find(self, suite: Suite, folder: Path) -> list[tuple[Use, PolicyText | str]] | Diagnostic:
        """What each `use` of a file names: a policy's text, or the name of an in-tree plugin."""
        found: list[tuple[Use, PolicyText | str]] = []
        named = {_in_tree().get(_folded(use.name)) for use in suite.uses}
        for use in suite.uses:
            there = self._find(use.name, folder)
            if there is None and use.name == DEFAULTS:
                if use.weight is not None:
                    message = f"`{DEFAULTS}` are plugins of several weights, and takes none"
                    return Diagnostic("P702", message, suite.source, use.span)
                found.extend((use, one) for one in _DEFAULTS if one not in named)
                continue
            if there is None:
                return self._missing(suite, use, folder)
            strange = _no_parameter(suite, use, there)
            if strange is not None:
                return strange
            found.append((use, there))
        return found

    def _find(self, name: str, folder: Path) -> PolicyText | str | None:
        for policies in (self._policies(folder), self._policies(self._bundled)):
            for one in policies:
                if one.name == name:
                    return one
            for one in policies:
                if Path(one.path).name == f"{name}.policy":
                    return one
        return _in_tree().get(_folded(name))

    def _policies(self, folder: Path | None) -> list[PolicyText]:
        if folder is None:
            return []
        if folder not in self._folders:
            paths = [path for path in sorted(folder.glob("*.policy")) if path.is_file()]
            texts = [(path, path.read_bytes()) for path in paths]
            self._folders[folder] = [
                PolicyText(str(path), _name_of(path, text), text) for path, text in texts
            ]
        return self._folders[folder]

    def _missing(self, suite: Suite, use: Use, folder: Path) -> Diagnostic:
        here = [one.name for one in self._policies(folder)]
        bundled = [one.name for one in self._policies(self._bundled)]
        known = [*here, *bundled, DEFAULTS, *sorted(PLUGINS)]
        stem = _ENDING.sub("", PurePath(use.name).name)
        near = stem if stem in known else closest(use.name, known)
        if near:
            help_ = f"did you mean `{near}`?"
        elif here:
            more = " ..." if len(here) > _SHOWN else ""
            help_ = f"beside this file there are {', '.join(here[:_SHOWN])}{more}"
        else:
            help_ = f"write the policy to  {folder / use.name}.policy"
        fix = Fix(use.span, near) if near else None
        message = f"there is no policy `{use.name}`"
        return Diagnostic(NOT_FOUND, message, suite.source, use.span, helps=(help_,), fix=fix)

    def arrange(self, found: Sequence[tuple[Use, PolicyText | str]], case: Case) -> Used | Refused:
        """What takes part in one test."""
        plugins: list[Weighted] = []
        plans: list[Plan] = []
        refused: list[Diagnostic] = []
        for use, there in found:
            if isinstance(there, str):
                weight = use.weight if use.weight is not None else DEFAULT_WEIGHTS[there]
                plugins.append(Weighted(make_plugin(there), weight))
                continue
            own = {name: value for name, (value, _) in case.params.items() if name in there.params}
            result = self._compile(there, {**use.params, **own})
            if not result.ok:
                refused.extend(one for one in result.diagnostics if one.is_error)
            plans.extend(_named(use, there, plan) for plan in result.plans)
            taken = {one.plugin.name for one in plugins} | {one for _, one in found}
            plugins.extend(
                Weighted(make_plugin(name), DEFAULT_WEIGHTS[name])
                for name in there.in_tree
                if name not in taken
            )
        if refused:
            return Refused(tuple(refused))
        order = list(DEFAULT_WEIGHTS)
        plugins.sort(key=lambda one: order.index(one.plugin.name))
        return Used(tuple(plugins), tuple(plans))

    def _compile(self, there: PolicyText, params: Params) -> CompileResult:
        key = there.path, there.text, repr(sorted(params.items()))
        if key not in self._compiled:
            given = {there.name: dict(params)} if params else None
            files = {there.path: there.text}
            beside = (*self._policies(self._bundled), *self._policies(Path(there.path).parent))
            others = {one.name: one.text.decode("utf-8", "replace") for one in beside}
            others.pop(there.name, None)
            self._compiled[key] = self._compiler.compile(files, params=given, bundled=others)
        return self._compiled[key]


def _no_parameter(suite: Suite, use: Use, there: PolicyText | str) -> Diagnostic | None:
    """A parameter that the policy does not declare, at the place where it is given."""
    if any(case.wants_error for case in suite.cases):
        # Just that may be what a test expects.
        return None
    known = there.params if isinstance(there, PolicyText) else frozenset()
    for name, span in use.places.items():
        if name not in known:
            return no_parameter(suite, f"`{use.name}` has no parameter `{name}`", name, span, known)
    return None


def no_parameter(
    suite: Suite, message: str, name: str, span: Span, known: Collection[str]
) -> Diagnostic:
    """Returns the finding about a parameter that is not there."""
    near = closest(name, sorted(known))
    help_ = f"it has {', '.join(sorted(known))}" if known else "it has none"
    help_ = f"did you mean `{near}`?" if near else help_
    fix = Fix(span, near) if near else None
    return Diagnostic("P105", message, suite.source, span, helps=(help_,), fix=fix)


def _named(use: Use, there: PolicyText, plan: Plan) -> Plan:
    """Each is in force; alias and weight are for the policy itself, not for what it uses."""
    if plan.name != there.name:
        return replace(plan, mode="enforce")
    weight = use.weight if use.weight is not None else plan.weight
    return replace(plan, name=use.alias or plan.name, weight=weight, mode="enforce")


def _name_of(path: Path, text: bytes) -> str:
    found = _HEADER.search(text)
    return found.group(1).decode() if found else path.stem


def _folded(name: str) -> str:
    return name.replace("-", "").lower()


def _in_tree() -> dict[str, str]:
    return {name.lower(): name for name in DEFAULT_WEIGHTS}
