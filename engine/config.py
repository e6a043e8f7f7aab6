"""Configuration files as checked values.

A file holds one or two YAML documents: a stock KubeSchedulerConfiguration, of which this version
reads what `SchedulerDocument` lists and refuses the rest, and a BerthConfiguration. Nothing here
reads a policy, makes a plugin or asks a server.

Source: kubernetes pkg/scheduler/apis/config: v1/defaults.go, validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from engine.display import nearest, without_user
from engine.documents import Loader
from engine.extendersections import ExtenderDocument, checked
from engine.files import configuration_in
from engine.policysections import PoliciesSection
from engine.sections import (
    CLOSED,
    ClientConnection,
    Duration,
    LeaderElection,
    is_address,
    matching,
    seconds,
)

SCHEDULER_API: Final = "kubescheduler.config.k8s.io/v1"
BERTH_API: Final = "berth.dev/v1"
DEFAULT_NAME: Final = "berth"
_SHARE: Final = ("percentage_of_nodes_to_score",)
_UNUSED: Final = ("parallelism", "enable_profiling", "enable_contention_profiling", *_SHARE)
_UNUSED_OF_CLIENT: Final = ("accept_content_types", "content_type", "qps", "burst")
"""Fields that are read and checked, and have no effect yet."""
_UNIT: Final = matching(
    r"(bytes|cores|seconds|percent)?(/s)?",
    "is not a unit; write bytes, cores, seconds or percent, each also with /s",
)
_LABELS: Final = matching(
    r"[A-Za-z_]\w*( *, *[A-Za-z_]\w*)?",
    "is not a label of a result; write one like node, zone or cluster, or two like src, dst",
)
_URL: Final = re.compile(r"https?://\S+")
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")
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


def _url(text: str) -> str:
    url = f"http://{text}" if _HOST_AND_PORT.fullmatch(text) else text
    if not (_URL.fullmatch(url) and is_address(url)):
        raise ValueError(f"{text!r} is not an address; write one like http://prometheus:9090")
    return url


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError) as bad:
        raise ValueError(f"no time zone is called {name!r}; write one like Europe/Berlin") from bad
    return name


class _Document(BaseModel):
    model_config = CLOSED


_D = TypeVar("_D", bound=BaseModel)


class EnabledPlugin(_Document):
    """A plugin by name, and the weight of its scores; 0 is 1."""

    name: Annotated[str, Field(min_length=1)]
    weight: Annotated[int, Field(ge=0)] = 0


class PluginSet(_Document):
    """The plugins enabled and disabled at an extension point."""

    enabled: list[EnabledPlugin] = []
    disabled: list[EnabledPlugin] = []


def _of_groups(given: PluginSet) -> PluginSet:
    if given.enabled:
        raise ValueError(
            "Berth has no plugins for groups of pods: its own search places them; leave it empty"
        )
    return given


_NO_SET: Final = PluginSet()
_OfGroups = Annotated[PluginSet, AfterValidator(_of_groups)]


class PluginsDocument(_Document):
    """`plugins` of a profile, by extension point."""

    multi_point: PluginSet = _NO_SET
    pre_enqueue: PluginSet = _NO_SET
    queue_sort: PluginSet = _NO_SET
    pre_filter: PluginSet = _NO_SET
    filter: PluginSet = _NO_SET
    post_filter: PluginSet = _NO_SET
    pre_score: PluginSet = _NO_SET
    score: PluginSet = _NO_SET
    reserve: PluginSet = _NO_SET
    permit: PluginSet = _NO_SET
    pre_bind: PluginSet = _NO_SET
    bind: PluginSet = _NO_SET
    post_bind: PluginSet = _NO_SET
    placement_generate: _OfGroups = _NO_SET
    placement_score: _OfGroups = _NO_SET
    pod_group_post_filter: _OfGroups = _NO_SET

    def at(self, point: str) -> PluginSet:
        """The set of a point by its name in the file."""
        found: PluginSet = getattr(self, _FIELD_OF[point])
        return found


_FIELD_OF: Final = {to_camel(name): name for name in PluginsDocument.model_fields}


class PluginConfig(_Document):
    """Arguments of a plugin; it reads them itself."""

    name: Annotated[str, Field(min_length=1)]
    args: dict[str, Any] = {}


class ProfileDocument(_Document):
    """One profile of a KubeSchedulerConfiguration."""

    scheduler_name: Annotated[str, Field(min_length=1)] = "default-scheduler"
    percentage_of_nodes_to_score: Annotated[int, Field(ge=0, le=100)] | None = None
    plugins: PluginsDocument = PluginsDocument()
    plugin_config: list[PluginConfig] = []

    @field_validator("plugin_config")
    @classmethod
    def _once(cls, configs: list[PluginConfig]) -> list[PluginConfig]:
        names = [one.name for one in configs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} has two entries; one is enough")
        return configs

    @property
    def sorting(self) -> tuple[PluginSet, list[PluginConfig]]:
        """The fields that decide how the queue is sorted."""
        queue_sort = self.plugins.queue_sort
        names = {one.name for one in queue_sort.enabled}
        return queue_sort, [one for one in self.plugin_config if one.name in names]


class SchedulerDocument(_Document):
    """A KubeSchedulerConfiguration."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    parallelism: Annotated[int, Field(gt=0)] = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Annotated[int, Field(ge=0, le=100)] | None = None
    pod_initial_backoff_seconds: Annotated[int, Field(gt=0)] = 1
    pod_max_backoff_seconds: Annotated[int, Field(gt=0)] = 10
    profiles: list[ProfileDocument] = []
    extenders: Annotated[list[ExtenderDocument], AfterValidator(checked)] = []
    delay_cache_until_active: bool = False

    @field_validator("leader_election", mode="before")
    @classmethod
    def _defaults(cls, given: object) -> object:
        """A name that is empty, or a time of 0, means the default to kube-scheduler."""
        if not isinstance(given, dict):
            return given
        names = ("resourceLock", "resourceName", "resourceNamespace")
        times = ("leaseDuration", "renewDeadline", "retryPeriod")
        unset = {"": names, "0": times, "0s": times}
        drop = [
            key for key, one in given.items() if isinstance(one, str) and key in unset.get(one, ())
        ]
        return {key: one for key, one in given.items() if key not in drop}

    @field_validator("profiles")
    @classmethod
    def _apart(cls, profiles: list[ProfileDocument]) -> list[ProfileDocument]:
        names = [one.scheduler_name for one in profiles]
        for number, one in enumerate(profiles):
            if len(profiles) > 1 and "scheduler_name" not in one.model_fields_set:
                raise ValueError(f"number {number} needs a schedulerName, as there are several")
            if one.scheduler_name in names[:number]:
                raise ValueError(f"two have the schedulerName {one.scheduler_name!r}")
            if one.sorting != profiles[0].sorting:
                raise ValueError(
                    f"queueSort and its arguments must be the same for all, and {names[0]} and"
                    f" {names[number]} differ"
                )
        return profiles

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds:
            raise ValueError("podMaxBackoffSeconds is less than podInitialBackoffSeconds")
        return self


class MetricSection(_Document):
    """A metric that policies may read by name."""

    promql: Annotated[str, Field(min_length=1)]
    by: Annotated[str, AfterValidator(_LABELS)] | None = None
    every: Duration = "15s"
    stale: Duration = "2m"
    default: float | None = Field(default=None, allow_inf_nan=False)
    unit: Annotated[str, AfterValidator(_UNIT)] = ""

    @model_validator(mode="after")
    def _is_fresh(self) -> Self:
        if "stale" in self.model_fields_set and seconds(self.stale) < seconds(self.every):
            raise ValueError(
                f"stale {self.stale} is shorter than every {self.every}: it would go missing"
                " in between; write twice as long a time"
            )
        return self


class PrometheusSection(_Document):
    """Prometheus to read metrics from."""

    url: Annotated[str, AfterValidator(_url)] | None = None
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False

    @field_serializer("url")
    def _shown(self, url: str | None) -> str | None:
        """A password is in no journal and on no page."""
        return url and without_user(url)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and passwordFile belong together")
        if self.token_file is not None and self.username is not None:
            raise ValueError("tokenFile and username exclude each other; give one")
        if self.insecure_skip_verify and self.ca_file is not None:
            raise ValueError("insecureSkipVerify and caFile exclude each other; give one")
        return self


class ProfileSection(_Document):
    """What is Berth's own of a profile: the labels of the nodes that it sees."""

    node_selector: dict[str, str] = {}


class BerthDocument(_Document):
    """A BerthConfiguration."""

    api_version: Literal["berth.dev/v1"] = "berth.dev/v1"
    kind: Literal["BerthConfiguration"] = "BerthConfiguration"
    policies: PoliciesSection = PoliciesSection()
    profiles: dict[str, ProfileSection] = {}
    metrics: dict[str, MetricSection] = {}
    prometheus: PrometheusSection = PrometheusSection()
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    gpu_resources: list[str] = ["nvidia.com/gpu", "amd.com/gpu"]
    seed: int = 0


class Settings(_Document):
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
        documents = [d for d in yaml.load_all(text, _StrictLoader) if d is not None]
    except (OSError, UnicodeDecodeError) as failed:
        why = getattr(failed, "strerror", "it is not UTF-8")
        raise ConfigError(f"{path}: cannot be read: {why}") from failed
    except yaml.YAMLError as failed:
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
            what += nearest(str(*first["loc"][-1:]), known) or f"; known: {', '.join(known)}"
        elif "v1beta" in str(first["input"]):
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
        """See `yaml.SafeLoader.construct_mapping`."""
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
