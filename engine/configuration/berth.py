"""BerthConfiguration as checked values: policies, metrics, and what else is Berth's own."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, field_serializer, model_validator

from engine.configuration.forms import Duration, Section, is_address, matching, seconds
from engine.configuration.policies import PoliciesSection
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
