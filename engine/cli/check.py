"""`berth check`: policy files in, diagnostics out, exit 1 on errors.

Besides what is wrong in a file it says what the scheduler would refuse to load.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click
from msgspec.structs import replace

import policies
from dsl.analysis import Inventory, Size, read_inventory
from dsl.compiler import CompileResult
from dsl.diagnostics import Diagnostic, Severity, render, sort_key, to_json
from dsl.plan import Plan
from dsl.tenants import Tenant
from engine import __version__
from engine.cli import options
from engine.cli.refusals import of_file, reported
from engine.policy.findings import at_load, new_compiler, without_policy
from engine.policy.folder import ENDING, TESTS, PolicyText, in_folder, name_of
from engine.text.display import takes_color
from engine.text.files import MOST_OF_OBJECTS, MOST_OF_TEXTS, bytes_in

if TYPE_CHECKING:
    from engine.cli.check_journal import Changes
    from engine.policy.bundle import CompileSettings

_STDIN: Final = Path("-")
_MANIFESTS: Final = (".yaml", ".yml", ".json")
_OBJECT: Final = re.compile(rb"\A\s*\{|^apiVersion:", re.MULTILINE)
_USES: Final = re.compile(rb"^use[ \t]", re.MULTILINE)
#: A finding that is no fault of the text: it cannot be run without a value.
_NO_VALUE: Final = "P104"
_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_GITHUB: Final = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(slots=True)
class _Job:
    """What is checked, and against what."""

    texts: dict[str, bytes]
    chain: bool
    complete: bool = False
    settings: CompileSettings | None = None
    config: Path | None = None
    stock: Inventory | None = None
    size: tuple[int | None, int | None] = (None, None)
    tenant: Tenant | None = None
    plans: list[Plan] = field(default_factory=list)


@click.command("check", help="Check policy files or ConfigMaps and report what is wrong.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES|-]...")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Output format of diagnostics.",
)
@click.option("--deny-warnings", is_flag=True, help="Exit 1 on warnings, too; not on notes.")
@click.option("--chain", is_flag=True, help="Check the files as the policies of one scheduler.")
@click.option("--tenant", "namespace", metavar="NAMESPACE",
              help="Check the files as policies of this namespace about its own pods.")  # fmt: skip
@click.option("--config", "config_file", type=options.FILE,
              help="Configuration file whose metrics, parameters and overrides apply; without"
                   " FILES, its folder of policies is checked.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(1), help="Nodes to bound the cost for.")
@click.option("--pods", type=click.IntRange(1), help="Running pods to bound the cost for.")
@click.option("--inventory", "stock_file", type=options.FILE,
              help="Check against what a cluster has, as `berth inventory` writes it.")  # fmt: skip
@click.option(
    "--autoscaler",
    is_flag=True,
    help="Note filters that cluster-autoscaler and Karpenter do not see.",
)
@click.option("--journal", type=options.READABLE,
              help="Report where the pods of a journal (`berth run --record`) would have gone under"
                   " these files instead of its policies.")  # fmt: skip
def command(  # noqa: PLR0913 - click's signature
    files: tuple[Path, ...],
    style: str,
    nodes: int | None,
    pods: int | None,
    stock_file: Path | None,
    config_file: Path | None,
    namespace: str | None,
    journal: Path | None,
    *,
    autoscaler: bool,
    chain: bool,
    deny_warnings: bool,
) -> None:
    """Checks each file on its own, or all as one chain; folders: their *.policy files; -: stdin."""
    chain = chain or namespace is not None or journal is not None
    job = _Job({}, chain, complete=chain, config=config_file, size=(nodes, pods))
    if config_file is not None:
        files = _configured(job, config_file, files)
    if not files:
        raise click.UsageError("name the policy files or folders to check")
    if namespace is not None:
        job.tenant, job.complete = _tenant(job, namespace), False
    job.texts = {name: text for path in expanded(files) for name, text in _named(path)}
    job.stock = None if stock_file is None else _inventory(stock_file)
    diagnostics = list(_diagnostics(job))
    if autoscaler:
        from engine.policy.affinity import unseen

        diagnostics += [note for plan in job.plans for note in unseen(plan)]
    moved = _moved(job, journal, diagnostics)
    _print(diagnostics, moved, style)
    found = Counter(one.severity.value for one in diagnostics)
    if style == "text":
        lines = () if moved is None else moved.told(job.plans)
        click.echo("\n".join([*lines, _summary(len(job.texts), found)]), err=True)
    if found["error"] or (deny_warnings and found["warning"]):
        sys.exit(1)


# ---- what there is to check


def _configured(job: _Job, path: Path, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Reads the configuration; returns the files that it or the command line names."""
    from engine.cli.settings import with_flags
    from engine.configuration.settings import ConfigError, load
    from engine.plugins.profiles import make_profiles
    from engine.policy.bundle import compile_settings

    with reported(ConfigError):
        settings = with_flags(load(str(path)), {})
        profiles = make_profiles(settings, str(path))
    berth = settings.berth
    job.settings = compile_settings(berth, profiles)
    if files:
        return files
    sources = berth.policies.all_sources
    if len(sources) != 1 or sources[0].dir is None:
        many = "several sources" if len(sources) > 1 else "no folder"
        more = ""
        if len(sources) == 1 and sources[0].config_map is not None:
            namespace, _, name = sources[0].config_map.partition("/")
            asked = f"kubectl --namespace {namespace} get configmap {name} --output yaml"
            more = f", or check those in force:  {asked} | berth check --chain --config {path} -"
        raise click.UsageError(f"{path} names {many} of policies; name the files to check{more}")
    job.chain = job.complete = True
    return (Path(sources[0].dir),)


def _tenant(job: _Job, namespace: str) -> Tenant:
    if job.settings is None:
        return Tenant(namespace)
    policies = job.settings.policies
    bounds = policies.tenants
    if bounds is None or not policies.tenant_of(f"{namespace}/{bounds.config_map}/"):
        raise click.ClickException(
            f"{job.config}: policies.tenants does not let namespace {namespace} have policies"
        )
    return Tenant(namespace, bounds.policies, bounds.cost)


def expanded(paths: Iterable[Path]) -> Iterator[Path]:
    """Files as they are, folders as their *.policy files; of a glob not the tests beside them."""
    paths = list(paths)
    tests = {path for path in paths if path.suffix == TESTS and not path.is_dir()}
    if tests and len(tests) == len(set(paths)):
        [path, *_] = paths
        help_ = f"run  berth test {path}"
        raise click.ClickException(f"{path} is a test of policies, not a policy; {help_}")
    for path in paths:
        if not path.is_dir():
            if path not in tests:
                yield path
            continue
        inside = sorted(one for one in path.iterdir() if one.name.endswith(ENDING))
        for one in inside:
            # A pipe would be waited for. Named by itself it is what the user wants read.
            if one.exists() and not one.is_file():
                raise click.ClickException(f"{one}: cannot be read: it is not a regular file")
        if not inside:
            raise click.ClickException(f"{path}: has no file whose name ends in {ENDING}")
        yield from inside


def _named(path: Path) -> Iterator[tuple[str, bytes]]:
    """The policy of a file by its name; of a manifest of ConfigMaps, those that they have."""
    text = read(path)
    if path.suffix not in _MANIFESTS and not (path == _STDIN and _OBJECT.search(text)):
        yield "stdin.policy" if path == _STDIN else str(path), text
        return
    from engine.text.documents import objects_in

    try:
        objects = objects_in(text)
    except ValueError as wrong:
        raise click.ClickException(f"{path} {wrong}") from wrong
    found = [
        (number, _whose(one), str(key), str(data).encode("utf-8", "surrogatepass"))
        for number, one in enumerate(objects, 1)
        if isinstance(there := one.get("data"), dict)
        for key, data in there.items()
        if str(key).endswith(ENDING)
    ]
    if not found:
        raise click.ClickException(f"{path}: has no ConfigMap with a key that ends in {ENDING}")
    at = "stdin.yaml" if path == _STDIN else path
    short = [key for *_, key, _ in found]
    whole = [f"{whose}{key}" for _, whose, key, _ in found]
    numbered = [f"{number}/{whose}{key}" for number, whose, key, _ in found]
    names = next(one for one in (short, whole, numbered) if len({*one}) == len(found))
    for name, (*_, data) in zip(names, found, strict=True):
        yield f"{at}/{name}", data


def _whose(item: Mapping[str, object]) -> str:
    """What tells apart files of one name in several ConfigMaps, as those of namespaces."""
    meta = item.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return "".join(f"{meta[one]}/" for one in ("namespace", "name") if meta.get(one))


def read(path: Path, most: int = MOST_OF_TEXTS) -> bytes:
    """The bytes of a file that the user named; `-` is the standard input."""
    with of_file(path, "read"):
        return bytes_in(path, most)


def _inventory(path: Path) -> Inventory:
    try:
        return read_inventory(json.loads(read(path, MOST_OF_OBJECTS)))
    except (ValueError, RecursionError) as wrong:
        raise click.ClickException(f"{path}: not an inventory: {wrong}") from wrong


# ---- what is wrong with it


def _moved(job: _Job, journal: Path | None, found: list[Diagnostic]) -> Changes | None:
    """What comes of the decisions of a journal; adds what is said of rules by them."""
    if journal is None or any(one.is_error for one in found):
        return None
    from engine.cli import check_journal

    changes = check_journal.asked(journal, job.texts)
    found.extend(check_journal.rules_to_blame(changes, job.plans))
    return changes


def _diagnostics(job: _Job) -> Iterator[Diagnostic]:
    stock = job.stock
    actual = (0, 0) if stock is None else (stock.nodes, stock.pods)
    nodes, pods = job.size
    least = Size.for_cluster(*actual)
    bundled = policies.texts()
    settings = job.settings
    overrides = {} if settings is None else settings.policies.overrides
    compiler = new_compiler()
    groups: list[Mapping[str, bytes]] = (
        [job.texts] if job.chain else [{name: text} for name, text in job.texts.items()]
    )
    for group in groups:
        result = compiler.compile(
            group,
            params={name: one.params for name, one in overrides.items()},
            metrics={} if settings is None else settings.metrics,
            size=Size(nodes or least.nodes, pods or least.pods),
            bundled={**bundled, **beside(group, job.texts)},
            stock=stock,
            tenant=job.tenant,
        )
        told = [*(_with_settings(one, job) for one in result.diagnostics), *_at_load(result, job)]
        yield from sorted(told, key=sort_key)
    yield from _beyond_files(job)


def beside(group: Mapping[str, bytes], texts: Mapping[str, bytes]) -> dict[str, str]:
    """Those beside files that use others, by file name, then by header."""
    folders = {Path(name).parent for name, text in group.items() if _USES.search(text)}
    with reported(OSError):
        there = [one for folder in sorted(folders) if folder.is_dir() for one in in_folder(folder)]
    inside = ((Path(name), text) for name, text in texts.items() if name not in group)
    there += [
        PolicyText(path, name_of(path, text), text)
        for path, text in inside
        if path.parent in folders and not path.parent.is_dir()
    ]
    by_file = {one.path.stem: one for one in there}
    by_name = {one.name: one for one in there if one.name != one.path.stem}
    return {name: one.text.decode("utf-8", "replace") for name, one in (by_file | by_name).items()}


def _at_load(result: CompileResult, job: _Job) -> Iterator[Diagnostic]:
    """What a scheduler would refuse although the text is right."""
    settings, plans = job.settings, result.understood
    job.plans.extend(plans)
    if settings is None:
        from engine.plugins.out_of_tree import names

        # Who does not know the profiles believes that they name all that are installed.
        return at_load(plans, names() if any(plan.binds for plan in plans) else set(), {})
    run = [settings.applied(plan) for plan in plans]
    return at_load(run, settings.binders, settings.profiles_of(run))


def _beyond_files(job: _Job) -> Iterator[Diagnostic]:
    """What shows only when all files are known."""
    if job.complete and job.settings is not None and job.plans:
        from engine.policy.bundle import in_overrides

        # Policies that do not compile are there, too.
        compiled = {plan.name for plan in job.plans}
        broken = {name_of(Path(name), text) for name, text in job.texts.items()} - compiled
        names = [one for one in job.settings.policies.overrides if one not in broken]
        yield from without_policy(names, job.plans, in_overrides)


def _with_settings(one: Diagnostic, job: _Job) -> Diagnostic:
    """Without a configuration, a parameter without value is a note: a scheduler may give it."""
    without_value = job.settings is None and one.code == _NO_VALUE
    return replace(one, severity=Severity.NOTE) if without_value else one


# ---- how it is shown


def _print(diagnostics: list[Diagnostic], moved: Changes | None, style: str) -> None:
    if style == "json":
        told = json.loads(to_json(diagnostics)) | ({} if moved is None else moved.as_object())
        click.echo(json.dumps(told, ensure_ascii=False))
    elif style == "sarif":
        click.echo(to_sarif(diagnostics))
    elif diagnostics and style == "github":
        click.echo(to_github(diagnostics))
    elif diagnostics:
        click.echo(render(diagnostics, color=takes_color(sys.stdout)), nl=False)


def _summary(files: int, found: Counter[str]) -> str:
    def counted(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    words = ["error", "warning", *(["note"] if found["note"] else [])]
    told = ", ".join(counted(found[word], word) for word in words) if found else "all good"
    return f"{counted(files, 'file')} checked: {told}"


# ---- as other tools read it: SARIF 2.1.0 and annotations of GitHub Actions


def to_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns a SARIF log with one run; columns are code points, the end is exclusive."""
    codes = sorted({one.code for one in diagnostics})
    driver = {
        "name": "berth",
        "version": __version__,
        "rules": [
            {"id": code, "shortDescription": {"text": f"see: berth explain {code}"}}
            for code in codes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, codes) for one in diagnostics],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, ensure_ascii=False)


def _result(one: Diagnostic, codes: Sequence[str]) -> dict[str, object]:
    line, column = one.source.position(one.span.start)
    end_line, end_column = one.source.position(one.span.end)
    region = {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }
    uri = quote(one.source.name.replace("\\", "/"))
    place = {"artifactLocation": {"uri": uri}, "region": region}
    return {
        "ruleId": one.code,
        "ruleIndex": codes.index(one.code),
        "level": one.severity.value,
        "message": {"text": _text(one)},
        "locations": [{"physicalLocation": place}],
    }


def to_github(diagnostics: Sequence[Diagnostic]) -> str:
    """Returns one workflow command a line."""
    return "\n".join(_annotation(one) for one in diagnostics)


def _annotation(one: Diagnostic) -> str:
    line, column = one.source.position(one.span.start)
    end_line, end_column = one.source.position(one.span.end)
    parts = {"file": one.source.name, "line": line, "endLine": end_line, "title": one.code}
    if line == end_line:
        # The last column is part of the annotation there.
        parts |= {"col": column, "endColumn": max(column, end_column - 1)}
    shown = ",".join(f"{name}={_property(str(value))}" for name, value in parts.items())
    return f"::{_GITHUB[one.severity.value]} {shown}::{_data(_text(one))}"


def _text(one: Diagnostic) -> str:
    return "\n".join((one.message, *one.notes, *(f"help: {help}" for help in one.helps)))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
