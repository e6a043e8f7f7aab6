"""Sections of configuration files about the process, not about decisions, as checked values.

Source: kubernetes component-base config/v1alpha1 and config/validation, client-go
tools/leaderelection (NewLeaderElector).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

_ONE: Final = r"(\d+(?:\.\d+)?)(ms|min|[smhd])"
_PART: Final = re.compile(_ONE, re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_WORD: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_JITTER: Final = 1.2
"""A retry may be put off by so much; see client-go's JitterFactor."""


def matching(pattern: str, wrong: str) -> Callable[[str], str]:
    """Gives texts of a form back; of another one `wrong` says what it is not, and what to write.

    It raises ValueError then.
    """
    form = re.compile(pattern, re.ASCII)

    def checked(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{text!r} {wrong}")
        return text

    return checked


_namespace = matching(
    rf"(?=.{{1,63}}$){_WORD}", "is not a namespace name; write one like kube-system"
)
_lease = matching(
    rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*", "is not a lease name; write one like berth"
)
duration_of = matching(
    rf"(?=.*[1-9])(?:{_ONE})+", "is not a duration above 0; write one like 15s, 5min or 1m30s"
)
Duration = Annotated[
    str,
    # A bare number lacks its unit, which says more than that it is no text.
    BeforeValidator(lambda given: str(given) if isinstance(given, int | float) else given),
    AfterValidator(duration_of),
]
OfKubernetes = Annotated[
    Duration,
    AfterValidator(
        matching(r"([\d.]+(ms|[smh]))+", "has a unit that Kubernetes lacks; write h, m, s or ms")
    ),
]
"""A `Duration` where kube-scheduler's own configuration has one."""


def seconds(duration: str) -> float:
    """How long a `Duration` is: `1m30s` is 90, `1.5s` is 1.5."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(duration))


def is_address(url: str) -> bool:
    """Whether there can be an HTTP server: a host, and a port that there is."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that stays open, a port above 65535
        return False


CLOSED: Final = ConfigDict(
    extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
)
"""How all documents and sections are read: nothing unknown, in the camel case of the files, and no
text as a number, as kube-scheduler has it."""


class _Section(BaseModel):
    model_config = CLOSED


class ClientConnection(_Section):
    """How to reach the API server."""

    kubeconfig: str | None = None
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50
    burst: Annotated[int, Field(ge=0)] = 100


class LeaderElection(_Section):
    """Who of several replicas schedules.

    The lease has a name of our own: beside a kube-scheduler whose name it shared, one would never
    lead.
    """

    leader_elect: bool = True
    lease_duration: OfKubernetes = "15s"
    renew_deadline: OfKubernetes = "10s"
    retry_period: OfKubernetes = "2s"
    resource_lock: Literal["leases"] = "leases"
    resource_name: Annotated[str, Field(min_length=1), AfterValidator(_lease)] = "berth"
    resource_namespace: Annotated[str, Field(min_length=1), AfterValidator(_namespace)] = (
        "kube-system"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        lease, renew, retry = map(
            seconds, (self.lease_duration, self.renew_deadline, self.retry_period)
        )
        if not self.leader_elect:
            return self
        if lease < 1 or lease != int(lease):
            raise ValueError(f"leaseDuration {self.lease_duration} must be in whole seconds")
        if lease <= renew:
            raise ValueError(
                f"leaseDuration {self.lease_duration} must be longer than renewDeadline"
                f" {self.renew_deadline}, so that a leader stops before another begins"
            )
        if renew <= _JITTER * retry:
            raise ValueError(
                f"renewDeadline {self.renew_deadline} must be longer than {_JITTER} times"
                f" retryPeriod {self.retry_period}, so that a renewal can be tried again"
            )
        return self
