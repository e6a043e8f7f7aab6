"""Reads configuration files: a KubeSchedulerConfiguration, a BerthConfiguration, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from engine.configuration.berth import BERTH_API, BerthDocument
from engine.configuration.forms import Section
from engine.configuration.scheduler import (
    SCHEDULER_API,
    ExtenderDocument,
    LeaderElection,
    ProfileDocument,
    SchedulerDocument,
)
from engine.text.display import nearest
from engine.text.documents import Loader
from engine.text.files import configuration_in

DEFAULT_NAME: Final = "berth"
_SHARE: Final = ("percentage_of_nodes_to_score",)
_UNUSED: Final = ("parallelism", "enable_profiling", "enable_contention_profiling", *_SHARE)
_UNUSED_OF_CLIENT: Final = ("accept_content_types", "content_type", "qps", "burst")
"""Fields that are read and checked, and have no effect yet."""
_WORDS: Final = {
    "extra_forbidden": "this field is unknown, or not in this version yet",
    "missing": "this field is required",
    "model_type": "expected fields",
    "dict_type": "must be fields, NAME: VALUE",
    "string_type": "must be a string; write a number, true or false in quotes",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}
"""Kinds of pydantic errors with words of our own."""


class ConfigError(Exception):
    """A configuration cannot be used; the message says where, what and what to write instead."""


_D = TypeVar("_D", bound=BaseModel)


class Settings(Section):
    """Everything `berth run` was told, files and flags together.

    `election`, `delay_cache` (until this replica leads) and `notes`, what is to be said of the
    file, are about a start and no journal's. Who embeds the scheduler elects nobody by default.
    """

    model_config = ConfigDict(strict=False)

    profiles: Annotated[tuple[ProfileDocument, ...], Field(min_length=1)] = (
        ProfileDocument(scheduler_name=DEFAULT_NAME),
    )
    kubeconfig: str | None = None
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    extenders: tuple[ExtenderDocument, ...] = ()
    berth: BerthDocument = BerthDocument()
    election: LeaderElection = Field(default=LeaderElection(leader_elect=False), exclude=True)
    delay_cache: bool = Field(default=False, exclude=True)
    max_in_unschedulable_seconds: float = Field(default=300.0, exclude=True)
    notes: tuple[str, ...] = Field(default=(), exclude=True)

    @property
    def scheduler_name(self) -> str:
        """The name of the first profile, often the only one."""
        return self.profiles[0].scheduler_name


def load(path: str | None) -> Settings:
    """Reads a configuration file; without one, everything has its default.

    Raises:
        ConfigError: the file cannot be read or says something that is not understood.
    """
    if path is None:
        return Settings(election=LeaderElection())
    try:
        text = configuration_in(path)
    except (OSError, UnicodeDecodeError) as failed:
        why = getattr(failed, "strerror", "it is not UTF-8")
        raise ConfigError(f"{path}: cannot be read: {why}") from failed
    return read(path, text)


def read(path: str, text: str) -> Settings:
    """What a file at `path` with this text comes to.

    Raises:
        ConfigError: it says something that is not understood.
    """
    try:
        documents = [d for d in yaml.load_all(text, _StrictLoader) if d is not None]
    except (yaml.YAMLError, RecursionError) as failed:
        mark = getattr(failed, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        what = getattr(failed, "problem", None) or " ".join(str(failed).split())
        raise ConfigError(f"{path}{line}: is not YAML: {what}") from failed
    scheduler: SchedulerDocument | None = None
    berth: BerthDocument | None = None
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == "KubeSchedulerConfiguration" and scheduler is None:
            scheduler = parse(path, SchedulerDocument, without_nulls(document))
        elif kind == "BerthConfiguration" and berth is None:
            berth = parse(path, BerthDocument, document)
        else:
            raise ConfigError(
                f"{path}: expected at most one document of kind KubeSchedulerConfiguration"
                f" ({SCHEDULER_API}) and one of kind BerthConfiguration ({BERTH_API}),"
                f" found {'no kind' if kind is None else f'kind {kind!r}'}"
            )
    return settings_of(scheduler, berth or BerthDocument())


def without_nulls(given: Any) -> Any:  # noqa: ANN401 - whatever YAML may be
    """The same as kube-scheduler has it: null is as if it was not there, and empty in a list."""
    if isinstance(given, dict):
        return {key: without_nulls(each) for key, each in given.items() if each is not None}
    if isinstance(given, list):
        return [{} if each is None else without_nulls(each) for each in given]
    return given


def settings_of(scheduler: SchedulerDocument | None, berth: BerthDocument) -> Settings:
    """What the two documents of a file come to."""
    if scheduler is None:
        return Settings(berth=berth, election=LeaderElection())
    return Settings(
        profiles=tuple(scheduler.profiles) or Settings().profiles,
        kubeconfig=scheduler.client_connection.kubeconfig or None,
        initial_backoff_seconds=scheduler.pod_initial_backoff_seconds,
        max_backoff_seconds=scheduler.pod_max_backoff_seconds,
        extenders=tuple(scheduler.extenders),
        berth=berth,
        election=scheduler.leader_election,
        delay_cache=scheduler.delay_cache_until_active,
        notes=tuple(_without_meaning(scheduler)),
    )


def _without_meaning(scheduler: SchedulerDocument) -> Iterator[str]:
    """A line for each field that says something else than by default, and changes nothing."""
    sections: list[tuple[str, BaseModel, Iterable[str]]] = [("", scheduler, _UNUSED)]
    sections += [("clientConnection.", scheduler.client_connection, _UNUSED_OF_CLIENT)]
    sections += [(f"profiles.{i}.", one, _SHARE) for i, one in enumerate(scheduler.profiles)]
    for where, section, names in sections:
        for name in names:
            value, default = getattr(section, name), type(section).model_fields[name].default
            # What is empty or 0 means the default to kube-scheduler.
            if value != default and (value or default is True):
                yield f"{where}{to_camel(name)}: {value!r} has no effect in this version"


def parse(source: str, kind: type[_D], document: object) -> _D:
    """A document, or a section of one, as a checked value; `source` is the file or flag.

    Raises:
        ConfigError: it says something that is not understood; one line with the field.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as failed:
        errors = failed.errors()
        # A field that is missing may be there, misspelt.
        first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
        what = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        what = _WORDS.get(first["type"], what)
        if first["type"] in ("extra_forbidden", "model_type"):
            known = _fields_at(kind, first["loc"]) or _fields_at(kind, first["loc"][:-1])
            near = nearest(str(first["loc"][-1]), known) if first["type"] != "model_type" else ""
            what += near or f"; known: {', '.join(known)}"
        elif first["loc"][-1:] == ("apiVersion",) and "v1beta" in str(first["input"]):
            what += "; `berth convert FILE` rewrites it"
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise ConfigError(": ".join(filter(None, (source, where, what)))) from failed


def _fields_at(kind: object, place: Sequence[int | str]) -> list[str]:
    """The fields of what is at a place of a document, as they are written."""
    for part in place:
        if fields := getattr(kind, "model_fields", None):
            kind = {of.alias: of.annotation for of in fields.values()}.get(str(part))
        else:
            kind = get_args(kind)[-1] if get_args(kind) else None
        kind = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    return [str(of.alias) for of in getattr(kind, "model_fields", {}).values()]


class _StrictLoader(Loader):
    """A field written twice is a mistake, as kube-scheduler has it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no field: refused below
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
