"""`extenders` of a KubeSchedulerConfiguration as checked values. Calls nobody.

Source: kubernetes pkg/scheduler/apis/config: v1 types, validation/validation.go
(validateExtenders); client-go rest.TLSClientConfig.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from engine.configuration.forms import OfKubernetes, Section, is_address, matching

_URL: Final = re.compile(r"https?://[^\s/?#]+[^\s?#]*", re.ASCII)
_RESOURCE: Final = re.compile(
    r"(?!requests\.)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
    re.ASCII,
)


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
