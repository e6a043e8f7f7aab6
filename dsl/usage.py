"""`use NAME (args) as ALIAS weight W`: which policy is meant, and with which parameters.

Finds further instances of policies for the compiler; checks names and arguments, nothing inside
of the policies. That two have one name is seen by `compiler`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from dsl import syntax as s
from dsl.checker import ParamValue, policy_name
from dsl.checker.declarations import declare_param, text_of
from dsl.checker.rules import MAX_WEIGHT
from dsl.checker.scope import Refused, Scope, attempt
from dsl.diagnostics import Diagnostic
from dsl.nearest import closest
from dsl.plan import UseLine
from dsl.quantities import parse_number
from dsl.source import SourceFile

MAX_DEPTH: Final = 8
#: What a file is made of: its text and its statements.
Parsed = tuple[SourceFile, Sequence[s.Statement]]
#: The parameters of the using file; None where it is told that there is no value.
_Own = Mapping[str, ParamValue | None]


class Instance(Struct, frozen=True):
    """A policy under another name and with other parameters."""

    source: SourceFile
    statements: Sequence[s.Statement]
    name: str
    params: Mapping[str, ParamValue]
    weight: float | None
    used: UseLine


class Library(Struct):
    """The policies that may be used: those beside the file, then the bundled ones.

    Attributes:
        read: reads a bundled one.
        plugins: those that every scheduler runs: naming them says that they are wanted.
        params: those of the configuration by policy name, which win over arguments.
        found: gets what is wrong.
    """

    files: Sequence[Parsed]
    bundled: Mapping[str, str]
    read: Callable[[str, str], Parsed | None]
    plugins: Collection[str]
    params: Mapping[str, Mapping[str, ParamValue]]
    found: list[Diagnostic]
    _known: dict[str, Parsed | None] = field(default_factory=dict)

    def instances(self) -> Iterator[Instance]:
        """Yields what the `use` lines of the files ask for."""
        for one in self.files:
            yield from self._of_file(one, self.params.get(policy_name(*one), {}), (one[0].name,))

    def _find(self, name: str, user: SourceFile) -> Parsed | None:
        """Returns the policy of that name for the user of it."""
        folder = user.name.rpartition("/")[0]
        beside = [one for one in self.files if one[0].name.rpartition("/")[0] == folder]
        of_file = f"{name}.policy"
        found = [one for one in beside if policy_name(*one) == name] or [
            one for one in beside if one[0].name.rpartition("/")[2] == of_file
        ]
        if found:
            return found[0]
        if name not in self._known and name in self.bundled:
            self._known[name] = self.read(f"bundled/{name}.policy", self.bundled[name])
        return self._known.get(name)

    def _of_file(
        self,
        file: Parsed,
        given: Mapping[str, ParamValue],
        path: tuple[str, ...],
        used: UseLine | None = None,
    ) -> Iterator[Instance]:
        """Yields the instances that a file asks for; `path` are the files that led to it.

        `used` is the line of the first of these files, None while that is looked at.
        """
        source, statements = file
        for node in statements:
            if isinstance(node, s.Use):
                scope = Scope(source, {})
                own = _own(scope, statements, given)
                line = used or UseLine(source, node.span, node.name)
                instance = attempt(self._instance, scope, node, own, path, line)
                self.found.extend(one for one in scope.found if one not in self.found)
                if instance is not None:
                    yield instance
                    inner = instance.source, instance.statements
                    further = (*path, instance.source.name)
                    yield from self._of_file(inner, instance.params, further, line)

    def _instance(
        self, scope: Scope, node: s.Use, own: _Own, path: tuple[str, ...], used: UseLine
    ) -> Instance | None:
        if node.name in self.plugins:
            if node.args or node.alias or node.weight is not None:
                message = f"`{node.name}` is a plugin of the scheduler and takes nothing here"
                help_ = "its arguments and weight stand in the configuration of the scheduler"
                raise scope.refuse("P108", message, node.span, help_)
            return None
        target = self._find(node.name, scope.source)
        if target is None:
            of_files = (policy_name(*one) for one in self.files)
            known = (*of_files, *self.bundled, *sorted(self.plugins))
            near = closest(node.name.removesuffix(".policy"), known)
            help_ = "`berth policies` lists the bundled ones; others are files in this folder"
            help_ = f"did you mean `{near}`?" if near else help_
            message = f"there is no policy `{node.name}`"
            raise scope.refuse("P107", message, node.name_span, help_, fix=near)
        if target[0].name in path:
            raise scope.refuse("P503", f"`{node.name}` is used by way of itself", node.span)
        if len(path) > MAX_DEPTH:
            message = f"policies use each other more than {MAX_DEPTH} deep"
            raise scope.refuse("P503", message, node.span)
        name = node.alias or policy_name(*target)
        params = {**self._arguments(scope, node, own, target), **self.params.get(name, {})}
        for decl in target[1]:
            if isinstance(decl, s.ParamDecl) and decl.default is None and decl.name not in params:
                message = f"`{node.name}` needs a value for `{decl.name}`"
                help_ = f"write  use {node.name} ({decl.name} = VALUE)"
                raise scope.refuse("P104", message, node.span, help_)
        return Instance(*target, name, params, _weight(scope, node, own), used)

    def _arguments(
        self, scope: Scope, node: s.Use, own: _Own, target: Parsed
    ) -> dict[str, ParamValue]:
        declared = {one.name: one for one in target[1] if isinstance(one, s.ParamDecl)}
        out: dict[str, ParamValue] = {}
        for arg in node.args:
            if arg.name not in declared:
                near = closest(arg.name, declared)
                message = f"`{node.name}` has no parameter `{arg.name}`"
                has = f"it has {', '.join(declared) or 'no parameters'}"
                helps = (f"did you mean `{near}`?", has) if near else (has,)
                raise scope.refuse("P108", message, arg.span, *helps)
            if arg.name in out:
                raise scope.refuse("P108", f"`{arg.name}` is given twice", arg.span)
            out[arg.name] = _value(scope, arg.value, own)
            reason = _why_not(target[0], declared[arg.name], out[arg.name])
            if reason is not None:
                raise scope.refuse("P108", reason.message, arg.span, *reason.helps)
        return out


def _own(scope: Scope, statements: Sequence[s.Statement], given: Mapping[str, ParamValue]) -> _Own:
    own: dict[str, ParamValue | None] = {}
    for decl in statements:
        if isinstance(decl, s.ParamDecl):
            default = attempt(_value, scope, decl.default, {}) if decl.default is not None else None
            own[decl.name] = given.get(decl.name, default)
    scope.found.clear()
    return own


def _value(scope: Scope, node: s.Expr, own: _Own) -> ParamValue:
    if isinstance(node, s.Words):
        return [str(_value(scope, one, own)) for one in node.items]
    if not isinstance(node, s.Param):
        return text_of(scope, node)
    if node.name not in own:
        raise scope.refuse("P105", f"there is no parameter `${node.name}`", node.span)
    value = own[node.name]
    if value is None:
        raise Refused
    return value


def _why_not(source: SourceFile, decl: s.ParamDecl, value: ParamValue) -> Diagnostic | None:
    """Returns what a policy has against a value of its parameter."""
    scope = Scope(source, {})
    attempt(declare_param, scope, decl, value)
    return next(iter(scope.found), None)


def _weight(scope: Scope, node: s.Use, own: _Own) -> float | None:
    if node.weight is None:
        return None
    value = parse_number(str(_value(scope, node.weight, own)))
    if 0 <= value <= MAX_WEIGHT:
        return value
    message = f"a weight is a number from 0 to {MAX_WEIGHT:,.0f}"
    raise scope.refuse("P111", message, node.weight.span)
