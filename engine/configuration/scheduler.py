"""KubeSchedulerConfiguration as checked values. Fields that it does not list are refused.

Source: kubernetes pkg/scheduler/apis/config: v1/defaults.go, validation/validation.go;
component-base config/v1alpha1 and config/validation; client-go tools/leaderelection
(NewLeaderElector), rest.TLSClientConfig.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from engine.configuration.forms import OfKubernetes, Section, is_address, matching, seconds

SCHEDULER_API: Final = "kubescheduler.config.k8s.io/v1"
_WORD: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_JITTER: Final = 1.2
"""A retry may be put off by so much; see client-go's JitterFactor."""
_URL: Final = re.compile(r"https?://[^\s/?#]+[^\s?#]*", re.ASCII)
_RESOURCE: Final = re.compile(
    r"(?!requests\.)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
    re.ASCII,
)
_namespace = matching(
    rf"(?=.{{1,63}}$){_WORD}", "is not a namespace name; write one like kube-system"
)
_lease = matching(
    rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*", "is not a lease name; write one like berth"
)


class ClientConnection(Section):
    """How to reach the API server."""

    kubeconfig: str | None = None
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50
    burst: Annotated[int, Field(ge=0)] = 100


class LeaderElection(Section):
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


class EnabledPlugin(Section):
    """A plugin by name, and the weight of its scores; 0 is 1."""

    name: Annotated[str, Field(min_length=1)]
    weight: Annotated[int, Field(ge=0)] = 0


class PluginSet(Section):
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


class PluginsDocument(Section):
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


class PluginConfig(Section):
    """Arguments of a plugin; it reads them itself."""

    name: Annotated[str, Field(min_length=1)]
    args: dict[str, Any] = {}


class ProfileDocument(Section):
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


# ---- extenders ----------------------------------------------------------------------------------


def _url(text: str) -> str:
    if not (_URL.fullmatch(text) and is_address(text)):
        raise ValueError(f"{text!r} is not a URL; write one like http://127.0.0.1:8888/scheduler")
    return text


def _extended(name: str) -> str:
    group = name.partition("/")[0]
    if not _RESOURCE.fullmatch(name) or group == "kubernetes.io" or ".kubernetes.io" in group:
        raise ValueError(f"{name!r} is not an extended resource; write one like example.com/gpu")
    return name


def _encoded(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError as wrong:
        raise ValueError("is not base64") from wrong
    return text


Verb = Annotated[
    str, AfterValidator(matching(r"[A-Za-z0-9._~/-]*", "is not a path; write a word like filter"))
]
Data = Annotated[str, AfterValidator(_encoded)]


class ExtenderTLS(Section):
    """`tlsConfig`: whom to trust, and who we are; data is base64, and wins over files.

    A key is for nobody to see: it is in no journal and on no page.
    """

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: Annotated[Data, Field(exclude=True)] = ""
    key_data: Annotated[Data, Field(exclude=True, repr=False)] = ""
    ca_data: Data = ""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.insecure and (self.ca_file or self.ca_data):
            raise ValueError("insecure and a CA exclude each other")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            raise ValueError("a certificate and its key belong together")
        return self


class ManagedResource(Section):
    """A resource of pods that the extender is asked about."""

    name: Annotated[str, AfterValidator(_extended)]
    ignored_by_scheduler: bool = False


class ExtenderDocument(Section):
    """One of `extenders`."""

    url_prefix: Annotated[str, AfterValidator(_url)]
    filter_verb: Verb = ""
    preempt_verb: Verb = ""
    prioritize_verb: Verb = ""
    bind_verb: Verb = ""
    weight: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    enable_https: Annotated[bool, Field(alias="enableHTTPS")] = False
    tls_config: ExtenderTLS | None = None
    http_timeout: Annotated[OfKubernetes, Field(alias="httpTimeout")] = "5s"
    node_cache_capable: bool = False
    managed_resources: list[ManagedResource] = []
    ignorable: bool = False

    @field_validator("http_timeout", mode="before")
    @classmethod
    def _default(cls, given: object) -> object:
        """0 means the default to kube-scheduler."""
        return "5s" if given in ("0", "0s") else given

    @model_validator(mode="after")
    def _weighed(self) -> Self:
        if self.prioritize_verb and not self.weight:
            raise ValueError("weight must be greater than 0 with a prioritizeVerb")
        return self


def checked(extenders: list[ExtenderDocument]) -> list[ExtenderDocument]:
    """All of them, in the order in which they are called: those that may fail come last.

    Raises:
        ValueError: two of them want the same.
    """
    binders = [one.url_prefix for one in extenders if one.bind_verb]
    if len(binders) > 1:
        raise ValueError(f"only one may have a bindVerb, and {binders[0]} and {binders[1]} have")
    names = [resource.name for one in extenders for resource in one.managed_resources]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"managedResources: {name} is listed twice")
    return sorted(extenders, key=lambda one: one.ignorable)


def ignored(extenders: Sequence[ExtenderDocument]) -> list[str]:
    """The resources that NodeResourcesFit does not look at, as an extender does."""
    return [of.name for one in extenders for of in one.managed_resources if of.ignored_by_scheduler]


class SchedulerDocument(Section):
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
