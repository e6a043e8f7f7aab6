"""Configuration files as checked values.

A file holds one or two YAML documents: a stock KubeSchedulerConfiguration, of which this version
reads what `SchedulerDocument` lists and refuses the rest, and a BerthConfiguration. Nothing here
reads a policy or asks a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from zoneinfo import ZoneInfo

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

SCHEDULER_API: Final = "kubescheduler.config.k8s.io/v1"
BERTH_API: Final = "berth.dev/v1"
DEFAULT_NAME: Final = "berth"
Duration = Annotated[str, Field(pattern=r"^(\d+(ms|s|m|min|h|d))+$")]


class ConfigError(Exception):
    """A configuration cannot be used; the message says where, what and what to write instead."""


class _Document(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )


_D = TypeVar("_D", bound=_Document)


class ClientConnection(_Document):
    """How to reach the API server."""

    kubeconfig: str | None = None


class ProfileDocument(_Document):
    """One profile of a KubeSchedulerConfiguration."""

    scheduler_name: str = "default-scheduler"


class SchedulerDocument(_Document):
    """The part of a KubeSchedulerConfiguration that this version reads."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"]
    kind: Literal["KubeSchedulerConfiguration"]
    client_connection: ClientConnection = ClientConnection()
    pod_initial_backoff_seconds: Annotated[int, Field(gt=0)] = 1
    pod_max_backoff_seconds: Annotated[int, Field(gt=0)] = 10
    profiles: Annotated[list[ProfileDocument], Field(max_length=1)] = []


class PolicyOverride(_Document):
    """What configuration says of one policy; it wins over the policy's own text."""

    params: dict[str, Any] = {}
    weight: float | None = Field(default=None, gt=0, le=1_000_000)
    order: int | None = None
    mode: Literal["enforce", "off"] | None = None


class PoliciesSection(_Document):
    """Where policies come from."""

    dir: str | None = None
    config_map: str | None = Field(default=None, pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$")
    overrides: dict[str, PolicyOverride] = {}


class MetricSection(_Document):
    """A metric that policies may read by name."""

    promql: str
    by: str | None = None
    every: Duration = "15s"
    stale: Duration = "2m"
    default: float | None = None
    unit: str = ""


class PrometheusSection(_Document):
    """Where metrics are asked for."""

    url: str | None = None
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)


class BerthDocument(_Document):
    """A BerthConfiguration."""

    api_version: Literal["berth.dev/v1"] = "berth.dev/v1"
    kind: Literal["BerthConfiguration"] = "BerthConfiguration"
    policies: PoliciesSection = PoliciesSection()
    metrics: dict[str, MetricSection] = {}
    prometheus: PrometheusSection = PrometheusSection()
    time_zone: str = "UTC"
    gpu_resources: list[str] = ["nvidia.com/gpu", "amd.com/gpu"]
    seed: int = 0

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (OSError, ValueError) as unknown:
            raise ValueError(
                f"no time zone is called {name!r}; write one like Europe/Berlin"
            ) from unknown
        return name


class Settings(_Document):
    """Everything `berth run` was told, files and flags together."""

    scheduler_name: str = DEFAULT_NAME
    kubeconfig: str | None = None
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    berth: BerthDocument = BerthDocument()


def load(path: str | None) -> Settings:
    """Reads a configuration file; without one, everything has its default.

    Raises:
        ConfigError: the file cannot be read or says something that is not understood.
    """
    if path is None:
        return Settings()
    try:
        documents = [d for d in yaml.safe_load_all(Path(path).read_text("utf-8")) if d is not None]
    except (OSError, UnicodeDecodeError) as failed:
        raise ConfigError(f"{path}: cannot be read: {failed}") from failed
    except yaml.YAMLError as failed:
        raise ConfigError(f"{path}: is not YAML: {_one_line(failed)}") from failed
    scheduler: SchedulerDocument | None = None
    berth: BerthDocument | None = None
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == "KubeSchedulerConfiguration" and scheduler is None:
            scheduler = _parse(path, SchedulerDocument, document)
        elif kind == "BerthConfiguration" and berth is None:
            berth = _parse(path, BerthDocument, document)
        else:
            raise ConfigError(
                f"{path}: expected at most one document of kind KubeSchedulerConfiguration"
                f" ({SCHEDULER_API}) and one of kind BerthConfiguration ({BERTH_API}),"
                f" found kind {kind!r}"
            )
    return _settings(scheduler, berth or BerthDocument())


def _settings(scheduler: SchedulerDocument | None, berth: BerthDocument) -> Settings:
    if scheduler is None:
        return Settings(berth=berth)
    return Settings(
        scheduler_name=scheduler.profiles[0].scheduler_name if scheduler.profiles else DEFAULT_NAME,
        kubeconfig=scheduler.client_connection.kubeconfig,
        initial_backoff_seconds=scheduler.pod_initial_backoff_seconds,
        max_backoff_seconds=scheduler.pod_max_backoff_seconds,
        berth=berth,
    )


def _parse(path: str, kind: type[_D], document: object) -> _D:
    try:
        return kind.model_validate(document)
    except ValidationError as failed:
        first = failed.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            what = "this field is unknown, or not in this version yet"
        raise ConfigError(f"{path}: {where}: {what}") from failed


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
