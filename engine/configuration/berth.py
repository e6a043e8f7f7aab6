"""BerthConfiguration as checked values: policies, metrics, and what else is Berth's own."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, model_validator

from engine.configuration.forms import Duration, Section, is_address, matching, seconds
from engine.text.display import without_user

BERTH_API: Final = "berth.dev/v1"
_UNIT: Final = matching(
    r"(bytes|cores|seconds|percent)?(/s)?",
    "is not a unit; write bytes, cores, seconds or percent, each also with /s",
)
_LABELS: Final = matching(
    r"[A-Za-z_]\w*( *, *[A-Za-z_]\w*)?",
    "is not a label of a result; write one like node, zone or cluster, or two like src, dst",
)
_NOT_SET: Final = (
    "authorization|host|connection|content-length|expect|te|trailer|transfer-encoding|upgrade"
)
_HEADER: Final = matching(
    rf"(?!(?i:{_NOT_SET})$)[\w.-]+",
    "cannot be set (tokenFile is for credentials); write a header like X-Scope-OrgID",
)
_HEADER_VALUE: Final = matching(r"[\x20-\x7e]*", "is not a line of ASCII characters")
_URL: Final = re.compile(r"https?://\S+")
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")
_CANARY: Final = re.compile(r"canary (\d+(?:\.\d+)?)%")
_ALL: Final = 100.0
_named = matching(r"[a-z0-9.-]+/[a-z0-9.-]+", "names no ConfigMap; write NAMESPACE/NAME")
_name = matching(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "is not a ConfigMap name; write one like berth-policies"
)


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


class MetricSection(Section):
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


class PrometheusSection(Section):
    """Prometheus to read metrics from."""

    url: Annotated[str, AfterValidator(_url)] | None = None
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False
    headers: dict[
        Annotated[str, AfterValidator(_HEADER)], Annotated[str, AfterValidator(_HEADER_VALUE)]
    ] = {}

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


def _mode(value: object) -> object:
    """YAML reads a bare `off` as false."""
    value = "off" if value is False else value
    canary = _CANARY.fullmatch(value) if isinstance(value, str) else None
    if value in (None, "enforce", "shadow", "off") or (canary and 0 < float(canary[1]) <= _ALL):
        return value
    raise ValueError("must be enforce, shadow, off, or canary and a share such as canary 10%")


def _param(value: object) -> object:
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not texts and not isinstance(value, str | int | float):
        raise ValueError("must be a string, a number, true, false or a list of strings, in quotes")
    return value


_NAMED = Annotated[str, AfterValidator(_named)]


class PolicyOverride(Section):
    """What configuration says of one policy; it wins over the policy's own text."""

    params: dict[str, Annotated[Any, AfterValidator(_param)]] = {}
    weight: float | None = Field(default=None, gt=0, le=1_000_000)
    order: int | None = None
    mode: Annotated[
        str | None, BeforeValidator(_mode, json_schema_input_type=str | Literal[False] | None)
    ] = None


class SourceSection(Section):
    """One of several sources: a ConfigMap, those of a selector in a namespace, or a folder."""

    config_map: _NAMED | None = None
    selector: Annotated[str, Field(min_length=1)] | None = None
    namespace: Annotated[str, Field(min_length=1)] | None = None
    dir: Annotated[str, Field(min_length=1)] | None = None
    profiles: list[str] = []

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.config_map, self.selector, self.dir].count(None) != 2:  # noqa: PLR2004 - one of three
            raise ValueError("a source is one of configMap, selector (with namespace) and dir")
        if (self.selector is None) != (self.namespace is None):
            raise ValueError("selector and namespace go together")
        return self

    @property
    def folder(self) -> str:
        """What stands before the names of its files, beside those of other sources."""
        if self.dir is not None:
            return f"{Path(self.dir).name}/"
        return f"{self.config_map or self.namespace}/"


class GuardSection(Section):
    """When a change of policies is taken back: what rose by how much, how long after it."""

    within: Duration = "5min"
    pending: Annotated[int, Field(gt=0)] | None = None
    errors: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _looks(self) -> Self:
        if self.pending is None and self.errors is None:
            raise ValueError("it checks nothing; give pending, errors or both")
        return self


class TenantsSection(Section):
    """Policies of namespaces about their own pods: a ConfigMap of one name in each.

    `namespaces` are names or patterns (`team-*`), `score_share` percent of all weights of scores.
    """

    config_map: Annotated[str, AfterValidator(_name)]
    namespaces: Annotated[list[str], Field(min_length=1)]
    policies: Annotated[int, Field(gt=0)] = 10
    cost: Annotated[int, Field(gt=0)] = 500_000
    score_share: Annotated[float, Field(gt=0, le=50)] = 20


class PoliciesSection(Section):
    """Where policies come from, and what becomes of a bad change."""

    dir: Annotated[str, Field(min_length=1)] | None = None
    config_map: _NAMED | None = None
    sources: list[SourceSection] = []
    tenants: TenantsSection | None = None
    state: _NAMED | None = None
    guard: GuardSection | None = None
    overrides: dict[str, PolicyOverride] = {}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if [self.dir is None, self.config_map is None, not self.sources].count(False) > 1:
            raise ValueError("dir, configMap and sources exclude each other; give one")
        folders = [one.folder for one in self.sources]
        for folder in folders:
            if folders.count(folder) > 1:
                raise ValueError(f"two sources are named {folder.removesuffix('/')!r}")
        return self

    @property
    def all_sources(self) -> list[SourceSection]:
        """Them all, however they were named."""
        if self.dir is not None:
            return [SourceSection(dir=self.dir)]
        if self.config_map is not None:
            return [SourceSection(config_map=self.config_map)]
        return self.sources

    @property
    def has_sources(self) -> bool:
        """Whether policies come from anywhere."""
        return bool(self.all_sources) or self.tenants is not None

    @property
    def in_folders(self) -> bool:
        """Whether names of files say of which source they are."""
        several = len(self.sources) > 1 or any(one.selector is not None for one in self.sources)
        return several or self.tenants is not None

    def tenant_of(self, file: str) -> str:
        """The namespace whose file it is, as files in folders are called; empty: of no tenant."""
        namespace, _, rest = file.partition("/")
        if self.tenants is None or rest.partition("/")[0] != self.tenants.config_map:
            return ""
        own = f"{namespace}/", f"{namespace}/{self.tenants.config_map}/"
        allowed = any(fnmatchcase(namespace, one) for one in self.tenants.namespaces)
        return namespace if allowed and not any(s.folder in own for s in self.all_sources) else ""


class ProfileSection(Section):
    """What is Berth's own of a profile: the labels of the nodes that it sees."""

    node_selector: dict[str, str] = {}


class BerthDocument(Section):
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
