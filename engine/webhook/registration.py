"""Which ConfigMaps the API server asks about, and where: the sources and nothing else.

The object is there already, without webhooks: who may change it by its name may not make one.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.configuration.berth import PoliciesSection
from engine.kube.client import APPLY_PATCH, KubeClient, segment
from engine.kube.errors import StatusError
from engine.pods.selectors import Selector, SelectorError, read_selector

_LOG = logging.getLogger(__name__)

PATH: Final = "/policies"
_API: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "ValidatingWebhookConfiguration"
_COLLECTION: Final = f"/apis/{_API}/validatingwebhookconfigurations"
_MANAGER: Final = "berth-webhook"
_DOMAIN: Final = "policies.berth.dev"
_NAMESPACE: Final = "kubernetes.io/metadata.name"
_TIMEOUT_SECONDS: Final = 5
_FORBIDDEN: Final = 403
_PIECE: Final = re.compile(r"\[[^\]]+\]|.")
_WILD: Final = {"*": ".*", "?": "."}


class Place(msgspec.Struct, frozen=True):
    """Where the webhook is, and what its objects are called.

    Its Service, and its Secret unless there are files, are called `name` in `namespace`, and so is
    the configuration. With a `url` the API server goes there, and not to the Service.
    """

    namespace: str
    name: str
    url: str = ""

    @property
    def host(self) -> str:
        """The name that the certificate is for."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def client(self) -> dict[str, Any]:
        """`clientConfig`, but for whom it trusts."""
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{PATH}"}
        service = {"namespace": self.namespace, "name": self.name, "path": PATH, "port": 443}
        return {"service": service}


def webhooks(policies: PoliciesSection, client: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The webhooks for the sources of a configuration; folders have none.

    Raises:
        SelectorError: what selects sources is nothing that a webhook can have.
    """
    return [
        {
            "name": name,
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "scope": "Namespaced",
                }
            ],
            **which,
            "clientConfig": client,
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT_SECONDS,
        }
        for name, which in _which(policies)
    ]


def _which(policies: PoliciesSection) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of webhooks, and what each is asked about."""
    named = sorted(one.config_map for one in policies.all_sources if one.config_map is not None)
    among = f"(request.namespace + '/' + request.name) in [{', '.join(map(_text, named))}]"
    if named:
        namespaces = sorted({one.partition("/")[0] for one in named})
        yield (
            _DOMAIN,
            {
                "namespaceSelector": _in_namespaces(namespaces),
                "matchConditions": [{"name": "named", "expression": among}],
            },
        )
    selected = [one for one in policies.all_sources if one.selector is not None]
    for number, one in enumerate(selected):
        which: dict[str, Any] = {
            "namespaceSelector": _in_namespaces([one.namespace or ""]),
            "objectSelector": _as_object(read_selector(one.selector or "")),
        }
        if named:
            which["matchConditions"] = [{"name": "not-named", "expression": f"!({among})"}]
        yield f"selected-{number}.{_DOMAIN}", which
    if policies.tenants is not None:
        spaces = "|".join(map(_as_expression, policies.tenants.namespaces))
        conditions = {
            "name": f"request.name == {_text(policies.tenants.config_map)}",
            "namespace": f"request.namespace.matches(r'^({spaces})$')",
            "not-named": f"!({among})",
        }
        of_tenants = [{"name": n, "expression": text} for n, text in conditions.items()]
        yield f"tenants.{_DOMAIN}", {"matchConditions": of_tenants}


def _text(name: str) -> str:
    """A text of CEL: the configuration lets in names of objects only, which need no escapes."""
    return f"'{name}'"


def _as_expression(pattern: str) -> str:
    """The regular expression of a pattern of namespaces, as fnmatch has it."""
    return "".join(
        one.replace("[!", "[^") if len(one) > 1 else _WILD.get(one) or re.escape(one)
        for one in _PIECE.findall(pattern)
    )


def _in_namespaces(names: list[str]) -> dict[str, Any]:
    one = {"key": _NAMESPACE, "operator": "In", "values": names}
    return {"matchExpressions": [one]}


def _as_object(selector: Selector) -> dict[str, Any]:
    found = []
    for one in selector.requirements or ():
        if one.operator in ("Gt", "Lt"):
            raise SelectorError(f"{one.key}: a webhook selects by =, !=, in, notin or existence")
        values = {"values": list(one.values)} if one.values else {}
        found.append({"key": one.key, "operator": one.operator, **values})
    return {"matchExpressions": found}


@dataclass(eq=False)
class Registration:
    """Keeps the configuration as it is to be, as long as somebody calls `apply`."""

    client: KubeClient
    place: Place
    policies: PoliciesSection
    _applied: bytes = field(default=b"", init=False)
    _trusted: bytes = field(default=b"", init=False)

    @property
    def missing(self) -> str:
        """Why nobody asks; empty once the API server has been told to."""
        return "" if self._applied else f"{_KIND} {self.place.name} is not written yet"

    async def apply(self, trusted: bytes | None) -> None:
        """Has the API server ask here, and trust these certificates (PEM).

        Those of the call before, too, as they may still be served, here or by another replica.
        None leaves whom it trusts to somebody else.

        Raises:
            KubeError: it could not be told.
        """
        client = self.place.client
        if trusted is not None:
            bundle = trusted
            if self._trusted not in (b"", trusted):
                bundle = trusted.rstrip() + b"\n" + self._trusted
            client["caBundle"] = base64.b64encode(bundle).decode()
        body = {
            "apiVersion": _API,
            "kind": _KIND,
            "metadata": {"name": self.place.name},
            "webhooks": webhooks(self.policies, client),
        }
        encoded = msgspec.json.encode(body)
        answer = await self.client.request(
            "PATCH",
            f"{_COLLECTION}/{segment(self.place.name)}",
            params={"fieldManager": _MANAGER, "force": "true"},
            body=encoded,
            content_type=APPLY_PATCH,
        )
        try:
            answer.checked()
        except StatusError as refused:
            if refused.code == _FORBIDDEN:
                refused.add_note(f"{_KIND} {self.place.name} is created by the manifests")
            raise
        if self._applied != encoded:
            _LOG.info('The API server now asks about policies configuration="%s"', self.place.name)
        self._applied, self._trusted = encoded, trusted or b""
