"""`use NAME (args)` of a test file becomes a plugin: a compiled policy or one of the tree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from dsl.compiler import Compiler, CompileResult
from dsl.diagnostics import Diagnostic, Fix
from dsl.nearest import closest
from dsl.plan import Plan
from dsl.policytest import NOT_FOUND, Case, Suite, Use
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.plugins.no_nodes import PrioritySort
from engine.plugins.registry import make_plugin
from engine.policy import chain
from engine.policy.bundle import Bundle
from engine.policy.findings import PLUGINS, new_compiler
from engine.policy.folder import ENDING, PolicyText, in_folder
from engine.policy.plugin import Worlds

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
Found = list[tuple[Use, PolicyText | str]]
"""What each `use` of a file names: a policy's text, or the name of an in-tree plugin."""


class CannotJudgeError(Exception):
    """This version has no answer to an expectation; the message says which."""


@dataclass(frozen=True, slots=True)
class Used:
    """What takes part in a test: plugins of the tree with their weights, and policies."""

    plugins: Mapping[str, float]
    plans: tuple[Plan, ...]

    def framework(self, worlds: Worlds) -> Framework:
        """All of them as a scheduler has them, in the default order.

        Raises:
            CannotJudgeError: they make no profile.
        """
        if sum(bool(plan.sorts) for plan in self.plans) > 1:
            raise CannotJudgeError("two of the policies sort the queue; a profile has one order")
        plugins = [
            Weighted(make_plugin(name), self.plugins[name])
            for name in DEFAULT_WEIGHTS
            if name in self.plugins
        ]
        if all(one.plugin.points().sort_key is None for one in plugins):
            plugins.append(Weighted(PrioritySort()))
        profile = Profile("berth", tuple(plugins))
        try:
            return chain.framework_of(profile, Bundle("", self.plans, {}), worlds=worlds)
        except ValueError as wrong:
            raise CannotJudgeError(str(wrong)) from wrong


class Library:
    """Finds policies and compiles them; what was compiled once is kept."""

    def __init__(self, bundled: Path | None, compiler: Compiler | None = None) -> None:
        self._bundled = bundled
        self._compiler = compiler or new_compiler()
        self._folders: dict[Path, list[PolicyText]] = {}
        self._compiled: dict[tuple[str, bytes, str], CompileResult] = {}

    def find(self, suite: Suite, folder: Path) -> Found | Diagnostic:
        """What each `use` of a file names."""
        found: Found = []
        named = {_in_tree(use.name) for use in suite.uses}
        for use in suite.uses:
            there = self._find(use.name, folder)
            if there is None and use.name == DEFAULTS:
                if use.weight is not None:
                    message = f"`{DEFAULTS}` takes no weight, as its plugins have several"
                    return Diagnostic("P702", message, suite.source, use.span)
                found.extend((use, one) for one in _DEFAULTS if one not in named)
            elif there is None:
                return self._missing(suite, use, folder)
            else:
                found.append((use, there))
        return found

    def _find(self, name: str, folder: Path) -> PolicyText | str | None:
        for policies in (self._policies(folder), self._policies(self._bundled)):
            named = [one for one in policies if one.name == name]
            called = [one for one in policies if one.path.name == f"{name}{ENDING}"]
            if named or called:
                return [*named, *called][0]
        return _in_tree(name)

    def _policies(self, folder: Path | None) -> list[PolicyText]:
        if folder is None:
            return []
        if folder not in self._folders:
            self._folders[folder] = in_folder(folder)
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
            help_ = f"write the policy to  {folder / use.name}{ENDING}"
        fix = Fix(use.span, near) if near else None
        message = f"there is no policy `{use.name}`"
        return Diagnostic(NOT_FOUND, message, suite.source, use.span, helps=(help_,), fix=fix)

    def arrange(self, found: Found, case: Case) -> Used | tuple[Diagnostic, ...]:
        """What takes part in one test, or why its policies do not compile."""
        plugins: dict[str, float] = {}
        plans: list[Plan] = []
        refused: list[Diagnostic] = []
        for use, there in found:
            if isinstance(there, str):
                plugins[there] = DEFAULT_WEIGHTS[there] if use.weight is None else use.weight
                continue
            own = {
                name: value for name, (value, _) in case.params.items() if name in _params(there)
            }
            result = self._compile(there, {**use.params, **own})
            if not result.ok:
                refused.extend(one for one in result.diagnostics if one.is_error)
            plans.extend(_named(use, there, plan) for plan in result.plans)
        for _, there in found:
            for name in _USED.findall(there.text) if isinstance(there, PolicyText) else ():
                plugin = _in_tree(name.decode())
                if plugin is not None:
                    plugins.setdefault(plugin, DEFAULT_WEIGHTS[plugin])
        return tuple(refused) or Used(plugins, tuple(plans))

    def _compile(self, there: PolicyText, params: Params) -> CompileResult:
        key = str(there.path), there.text, repr(sorted(params.items()))
        if key not in self._compiled:
            given = {there.name: dict(params)} if params else None
            files = {str(there.path): there.text}
            beside = (*self._policies(self._bundled), *self._policies(there.path.parent))
            others = {one.name: one.text.decode("utf-8", "replace") for one in beside}
            others.pop(there.name, None)
            self._compiled[key] = self._compiler.compile(files, params=given, bundled=others)
        return self._compiled[key]


def unknown_parameter(suite: Suite, case: Case, found: Found) -> Diagnostic | None:
    """A parameter of the file or the test that no policy declares, at the place that gives it."""
    each = [
        (f"`{use.name}` has no parameter", name, span, _params(there))
        for use, there in found
        for name, span in use.places.items()
        if not case.wants_error  # just that may be what it expects
    ]
    known = frozenset[str]().union(*(_params(there) for _, there in found))
    nobody = "no policy used here has a parameter"
    each += [(nobody, name, span, known) for name, (_, span) in case.params.items()]
    for message, name, span, there in each:
        if name not in there:
            near = closest(name, sorted(there))
            help_ = f"it has {', '.join(sorted(there)) or 'none'}"
            help_ = f"did you mean `{near}`?" if near else help_
            fix = Fix(span, near) if near else None
            text = f"{message} `{name}`"
            return Diagnostic("P105", text, suite.source, span, helps=(help_,), fix=fix)
    return None


def _params(there: PolicyText | str) -> frozenset[str]:
    text = there.text if isinstance(there, PolicyText) else b""
    return frozenset(one.decode() for one in _PARAM.findall(text))


def _named(use: Use, there: PolicyText, plan: Plan) -> Plan:
    """Each is in force; alias and weight are for the policy itself, not for what it uses."""
    if plan.name != there.name:
        return replace(plan, mode="enforce")
    weight = use.weight if use.weight is not None else plan.weight
    return replace(plan, name=use.alias or plan.name, weight=weight, mode="enforce")


def _in_tree(name: str) -> str | None:
    """The plugin of the tree that is called so: `NodeName` and `node-name`."""
    folded = name.replace("-", "").lower()
    return next((one for one in DEFAULT_WEIGHTS if one.lower() == folded), None)
