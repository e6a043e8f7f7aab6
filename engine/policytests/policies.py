"""`use NAME (args)` of a test file becomes a plugin: a compiled policy or one of the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from msgspec.structs import replace

from dsl.compiler import Compiler, CompileResult
from dsl.diagnostics import Diagnostic
from dsl.nearest import closest
from dsl.plan import Plan
from dsl.policytest.reading import Case, Suite, Use
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.plugins.no_nodes import PrioritySort
from engine.plugins.registry import make_plugin
from engine.policy import chain
from engine.policy.bundle import Bundle
from engine.policy.findings import PLUGINS, new_compiler
from engine.policy.folder import ENDING, PolicyText, in_folder
from engine.policy.world import Worlds

_PARAM: Final = re.compile(rb"^param[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_USED: Final = re.compile(rb"^use[ \t]+([A-Za-z][\w-]*)", re.MULTILINE)
#: What a file is called, which is not part of a policy's name.
_ENDING: Final = re.compile(r"\.(?:policy|policytest|ya?ml)\Z")
#: `use defaults`: the plugins of the default profile; without an order of the queue, which there is
#: always one of.
DEFAULTS: Final = "defaults"
_DEFAULTS: Final = tuple(name for name in DEFAULT_WEIGHTS if name != "PrioritySort")

Found = list[tuple[Use, PolicyText | str]]
"""What each `use` of a file names: a policy's text, or the name of an in-tree plugin."""


class CannotJudgeError(Exception):
    """A test cannot be run as it stands; the message says why, in the user's words."""


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
        names = [one for one in DEFAULT_WEIGHTS if one in self.plugins]
        plugins = [Weighted(make_plugin(one), self.plugins[one]) for one in names]
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
        self._bundled = [] if bundled is None else in_folder(bundled)
        self._compiler = compiler or new_compiler()
        self._folders: dict[Path, list[PolicyText]] = {}
        self._compiled: dict[tuple[str, bytes, str], CompileResult] = {}

    def find(self, suite: Suite, folder: Path) -> Found | tuple[Diagnostic]:
        """What each `use` of a file names."""
        found: Found = []
        named = {_in_tree(use.name) for use in suite.uses}
        here = self._folders[folder] = self._folders.get(folder) or in_folder(folder)
        for use in suite.uses:
            text = _called(use.name, here) or _called(use.name, self._bundled)
            there = text or _in_tree(use.name)
            if there is not None:
                found.append((use, there))
            elif use.name == DEFAULTS:
                if use.weight is not None:
                    message = "`defaults` takes no weight, as its plugins have several"
                    return (Diagnostic("P702", message, suite.source, use.span),)
                found.extend((use, one) for one in _DEFAULTS if one not in named)
            else:
                known = [*(one.name for one in (*here, *self._bundled)), DEFAULTS, *PLUGINS]
                stem = _ENDING.sub("", PurePath(use.name).name)
                near = stem if stem in known else closest(use.name, known)
                write = f"write it to  {folder / use.name}{ENDING}"
                helps = (f"did you mean `{near}`?" if near else write,)
                message = f"there is no policy `{use.name}`"
                return (Diagnostic("P704", message, suite.source, use.span, helps=helps),)
        return found

    def arrange(self, suite: Suite, found: Found, case: Case) -> Used | tuple[Diagnostic, ...]:
        """What takes part in one test, or why its policies do not compile."""
        plugins: dict[str, float] = {}
        plans: list[Plan] = []
        if refused := list(_unknown(suite, case, found)):
            return tuple(refused)
        for use, there in found:
            if isinstance(there, str):
                plugins[there] = DEFAULT_WEIGHTS[there] if use.weight is None else use.weight
                continue
            own = {name: one for name, one in case.params.items() if name in _params(there)}
            given = {name: value for name, (value, _) in {**use.params, **own}.items()}
            result = self._compile(there, given)
            wrong = [one for one in result.diagnostics if one.is_error]
            refused.extend(_where_given(one, suite, case) for one in wrong)
            plans.extend(_named(use, there, plan) for plan in result.plans)
        texts = [there.text for _, there in found if isinstance(there, PolicyText)]
        for name in _USED.findall(b"\n".join(texts)):
            plugin = _in_tree(name.decode())
            if plugin is not None:
                plugins.setdefault(plugin, DEFAULT_WEIGHTS[plugin])
        return tuple(refused) or Used(plugins, tuple(plans))

    def _compile(
        self, there: PolicyText, given: Mapping[str, str | tuple[str, ...]]
    ) -> CompileResult:
        key = str(there.path), there.text, repr(sorted(given.items()))
        if key not in self._compiled:
            beside = (*self._bundled, *self._folders.get(there.path.parent, ()))
            others = {one.name: one.text.decode("utf-8", "replace") for one in beside}
            others.pop(there.name, None)
            files, params = {str(there.path): there.text}, {there.name: given} if given else None
            self._compiled[key] = self._compiler.compile(files, params=params, bundled=others)
        return self._compiled[key]


def _called(name: str, policies: list[PolicyText]) -> PolicyText | None:
    """The policy of that name, else the one in a file of that name."""
    named = [one for one in policies if one.name == name]
    in_file = (one for one in policies if one.path.name == f"{name}{ENDING}")
    return next((one for one in (*named, *in_file)), None)


def meant(name: str, known: Iterable[str], words: str) -> str:
    """Which of the known names may be meant, else all of them after some words."""
    near = closest(name, names := sorted(known))
    return f"did you mean `{near}`?" if near else f"{words} {', '.join(names) or 'none'}"


def _unknown(suite: Suite, case: Case, found: Found) -> Iterator[Diagnostic]:
    """Parameters of the file or the test that no policy declares, where they are given."""
    asked = [(case.params, frozenset[str]().union(*(_params(there) for _, there in found)))]
    asked += [(use.params, _params(there)) for use, there in found]
    for params, known in asked:
        for name, (_, span) in params.items():
            if name not in known:
                helps, text = (meant(name, known, "there is"),), f"there is no parameter `{name}`"
                yield Diagnostic("P105", text, suite.source, span, helps=helps)


def _where_given(finding: Diagnostic, suite: Suite, case: Case) -> Diagnostic:
    """A finding about the value of a parameter, at the place that gives it."""
    line = finding.source.line(finding.source.position(finding.span.start)[0])
    given = dict(one for use in suite.uses for one in use.params.items()) | {**case.params}
    declared = _PARAM.match(line.encode())
    name = declared[1].decode() if declared is not None else ""
    if finding.code != "P111" or name not in given:
        return finding
    helps = (*finding.helps, f"the policy has  {line.strip()}")
    return replace(finding, source=suite.source, span=given[name][1], helps=helps)


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
