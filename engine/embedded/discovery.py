"""The pages by which clients find out what is served: enough of them for kubectl.

Pure data from the table of resources; built once.
"""

from __future__ import annotations

from typing import Final

from engine.embedded.errors import Object
from engine.embedded.resources import GROUP_VERSIONS, RESOURCES, VERBS, Resource

VERSION: Object = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1+berth.embedded",
}

OPENAPI_V2: Final = "openapi/v2"
OPENAPI_V2_PROTOBUF: Final = b"\x0a\x032.0"
"""A document of field 1 alone, `swagger: "2.0"`. kubectl asks for it when it meets a kind that is
not served, and must be able to read it to say so."""


def documents() -> dict[str, Object]:
    """Path (without slash in front) -> the document served there."""
    groups = [_group(group, version) for group, version in GROUP_VERSIONS if group]
    pages: dict[str, Object] = {
        "version": VERSION,
        "api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    pages |= {f"apis/{group['name']}": {"apiVersion": "v1"} | group for group in groups}
    for group, version in GROUP_VERSIONS:
        served = [item for item in RESOURCES if (item.group, item.version) == (group, version)]
        base = served[0].base_path
        pages[base] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": served[0].api_version,
            "resources": [entry for item in served for entry in _entries(item)],
        }
        pages[f"openapi/v3/{base}"] = _openapi_v3(served)
    bases = [path.removeprefix("openapi/v3/") for path in pages if path.startswith("openapi/v3/")]
    links = {base: {"serverRelativeURL": f"/openapi/v3/{base}"} for base in bases}
    pages["openapi/v3"] = {"paths": links}
    return pages


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"kind": "APIGroup", "name": group, "versions": [entry], "preferredVersion": entry}


def _entries(item: Resource) -> list[Object]:
    singular = item.kind.lower()
    entry: Object = {
        "name": item.plural,
        "singularName": singular,
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": list(VERBS),
    }
    if item.short_names:
        entry["shortNames"] = list(item.short_names)
    entries = [entry]
    for subresource in item.subresources:
        binding = subresource == "binding"
        entries.append(
            {
                "name": f"{item.plural}/{subresource}",
                "singularName": "",
                "namespaced": item.namespaced,
                "kind": "Binding" if binding else item.kind,
                "verbs": ["create"] if binding else ["get", "patch", "update"],
            }
        )
    return entries


def _openapi_v3(served: list[Resource]) -> Object:
    """Just enough for clients to see that the server validates fields itself."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for item in served:
        middle = "namespaces/{namespace}/" if item.namespaced else ""
        kind = {"group": item.group, "version": item.version, "kind": item.kind}
        operation = {
            "parameters": [parameter],
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}},
        }
        paths[f"/{item.base_path}/{middle}{item.plural}/{{name}}"] = {"patch": operation}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Berth, embedded cluster", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }
