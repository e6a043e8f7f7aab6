"""The API over HTTP: paths and queries in, JSON, lists and watches out.

Speaks only HTTP; what a verb means is `api`'s business. One event loop, loopback, no encryption.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import ClientConnectionResetError, web

from engine.clock import Clock
from engine.embedded import errors, kubectl, resources
from engine.embedded.api import Api
from engine.embedded.errors import ApiError, Object
from engine.embedded.resources import BY_PATH, Resource
from engine.embedded.store import Change, Key, revision_of
from engine.pods.selectors import SelectorError, read_selector
from engine.text import wire

Handler = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]

HOST = "127.0.0.1"
_HOSTS = frozenset({HOST, "localhost"})
BODY_BYTES = 8 * 1024 * 1024
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
HEALTH = frozenset({"healthz", "livez", "readyz"})
TRUE = frozenset({"1", "true", "True"})
_TYPE = ("kind", "apiVersion")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Target(msgspec.Struct, frozen=True):
    """What a path points at."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        """Of the object in its collection."""
        return self.namespace, self.name


class View(msgspec.Struct, frozen=True):
    """Which objects a list or watch shows, and how."""

    target: Target
    tests: list[Predicate]
    as_table: bool

    def selects(self, item: Object) -> bool:
        """Whether the client wants to see this version of an object."""
        inside = self.target.namespace in ("", item["metadata"].get("namespace"))
        return inside and all(test(item) for test in self.tests)

    def seen(self, change: Change) -> tuple[str, Object]:
        """A change as the client sees it: objects come into view and leave it."""
        before, now = change.before, change.now
        was = before is not None and self.selects(before)
        if change.type != "DELETED" and self.selects(now):
            return "MODIFIED" if was else "ADDED", now
        if before is None or not was:
            return "", now
        # As it was in view, at the revision at which it left.
        left = {"resourceVersion": now["metadata"]["resourceVersion"]}
        return "DELETED", before | {"metadata": before["metadata"] | left}


class ApiServer:
    """Serves an `Api`; further roots (such as `prometheus`) can be mounted beside it."""

    def __init__(
        self,
        api: Api,
        *,
        clock: Clock,
        bookmark_seconds: float = 5.0,
        mounts: Mapping[str, Handler] | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._bookmark_seconds = bookmark_seconds
        self._mounts = mounts or {}
        self._documents = {path: _encode(page) for path, page in resources.documents().items()}
        self._watches: set[asyncio.Event] = set()
        self._closing = False
        self._runner: web.ServerRunner | None = None

    async def start(self, port: int) -> int:
        """Listen; returns the port (the one given, or a free one for 0)."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, port).start()
        self._closing = False
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """End the watches, then stop listening."""
        self._closing = True
        for wake in self._watches:
            wake.set()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    # Requests.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.strip("/")
        root, _, rest = path.partition("/")
        if "Origin" in request.headers or request.host.partition(":")[0] not in _HOSTS:
            # A web page that the user happens to visit must not drive the cluster.
            return _failure(ApiError(403, "requests from web pages are refused"))
        mounted = self._mounts.get(root)
        if mounted is not None:
            return await mounted(request, rest)
        if path == resources.OPENAPI_V2 and "protobuf" in request.headers.get("Accept", ""):
            return web.Response(body=resources.OPENAPI_V2_PROTOBUF)
        if path in self._documents:
            return _reply(self._documents[path])
        if root in HEALTH:
            return web.Response(text="ok")
        try:
            return await self._serve(request, self._target(path))
        except ApiError as refusal:
            return _failure(refusal)

    def _target(self, path: str) -> Target:
        parts = path.split("/")
        depth = {"api": 2, "apis": 3}.get(parts[0], 0)
        base, rest = "/".join(parts[:depth]), parts[depth:]
        if not depth or base not in self._documents:
            raise errors.no_such_resource()
        namespace = ""
        inside_namespace = 2
        if rest[:1] == ["namespaces"] and len(rest) > inside_namespace and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource, *more = [*rest, "", "", ""][: max(3, len(rest))]
        resource = BY_PATH.get((base, plural))
        known = resource is not None and (not subresource or subresource in resource.subresources)
        if resource is None or not known or any(more):
            raise errors.no_such_resource()
        if (namespace and not resource.namespaced) or (
            name and resource.namespaced and not namespace
        ):
            raise errors.no_such_resource()
        return Target(resource, namespace, name, subresource)

    async def _serve(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        body = await _body(request)
        if "dryRun" in request.query and request.method != "GET":
            raise ApiError(400, "the embedded cluster has no dryRun")
        if target.subresource == "binding":
            return self._bind(request, target, body)
        match request.method, bool(target.name):
            case "GET", _ if request.query.get("watch") in TRUE:
                return await self._watch(request, target)
            case "GET", False:
                return self._list(request, target)
            case "GET", True:
                item = self._api.get(target.resource, *target.key)
                if _wants_table(request):
                    return _reply(_encode(self._table(target, [item], revision_of(item))))
            case _:
                item = self._changed(request, target, body)
        status = 201 if request.method == "POST" else 200
        return _reply(_encode(target.resource.from_stored(item)), status)

    def _changed(self, request: web.BaseRequest, target: Target, body: bytes) -> Object:
        resource, key, sub = target.resource, target.key, target.subresource
        match request.method, bool(target.name):
            case "POST", False if target.namespace or not resource.namespaced:
                return self._api.create(resource, key[0], _json(body, resource.kind))
            case "PUT", True:
                return self._api.replace(resource, key, _json(body, resource.kind), sub)
            case "PATCH", True:
                if (how := request.content_type) not in {STRATEGIC, MERGE}:
                    raise ApiError(415, "415: Unsupported Media Type")
                patch, strategic = _json(body, resource.kind), how == STRATEGIC
                return self._api.patch(resource, key, patch, strategic=strategic, subresource=sub)
            case "DELETE", True if not sub:
                return self._api.delete(resource, key, _delete_options(request, body))
        raise errors.not_allowed()

    def _bind(self, request: web.BaseRequest, target: Target, body: bytes) -> web.Response:
        if request.method != "POST":
            raise errors.not_allowed()
        self._api.bind(target.namespace, target.name, _json(body, "Binding"))
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return _reply(_encode({**done, "code": 201}), 201)

    # Lists.

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        """All of it: a `limit` asks for pages, and a server need not make any."""
        view = _view(request, target)
        self._check_revision(_revision_of(request.query))
        revision = self._api.store.revision
        chosen = self._chosen(view)
        if view.as_table:
            return _reply(_encode(self._table(target, chosen, revision)))
        resource = target.resource
        # Items are without kind and apiVersion, as kube-apiserver writes them.
        shown = [
            {key: of for key, of in one.items() if key not in _TYPE}
            for one in map(resource.from_stored, chosen)
        ]
        page = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(revision)},
            "items": shown,
        }
        return _reply(_encode(page))

    def _chosen(self, view: View) -> list[Object]:
        items = self._api.collection(view.target.resource).items
        return [items[key] for key in sorted(items) if view.selects(items[key])]

    def _table(self, target: Target, items: Iterable[Object], revision: int) -> Object:
        return kubectl.table(target.resource.plural, items, self._clock.time(), revision)

    def _check_revision(self, wanted: int) -> None:
        current = self._api.store.revision
        if wanted > current:
            why = f"Timeout: Too large resource version: {wanted}, current: {current}"
            raise ApiError(504, why)

    # Watches.

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = request.query
        if "sendInitialEvents" in query:
            # As a server that cannot: clients fall back to a list and a watch from there.
            raise errors.invalid("ListOptions", "", "sendInitialEvents: it is not served here")
        view, revision = _view(request, target), _revision_of(query)
        marks = query.get("allowWatchBookmarks") in TRUE
        seconds = float(_whole(query.get("timeoutSeconds", "0"), "timeoutSeconds")) or 1800.0
        response = web.StreamResponse(headers={"Content-Type": JSON})
        response.enable_chunked_encoding()
        with contextlib.suppress(ClientConnectionResetError):  # the client left, as watchers do
            await response.prepare(request)
            try:
                await self._follow(view, revision, seconds, response, marks=marks)
            except ApiError as refusal:
                await response.write(_line("ERROR", _encode(refusal.status())))
            await response.write_eof()
        return response

    async def _follow(
        self,
        view: View,
        revision: int,
        seconds: float,
        response: web.StreamResponse,
        *,
        marks: bool,
    ) -> None:
        """Writes what changes after a revision, after 0 also what is there, for so many seconds."""
        store, collection = self._api.store, self._api.collection(view.target.resource)
        self._check_revision(revision)
        lines: list[bytes] = []
        if not revision:
            revision = store.revision
            lines = [self._shown(view, "ADDED", item) for item in self._chosen(view)]
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        end, mark_at = loop.time() + seconds, loop.time() + self._bookmark_seconds
        self._watches.add(wake)
        try:
            with collection.listening(wake.set):
                while True:
                    wake.clear()
                    seen = [view.seen(change) for change in collection.since(revision)]
                    revision = store.revision
                    lines += [self._shown(view, kind, item) for kind, item in seen if kind]
                    over = loop.time() >= min(end, mark_at)
                    if over and marks:
                        lines.append(_bookmark(view.target.resource, revision))
                    if lines:
                        await response.write(b"".join(lines))
                    if self._closing or loop.time() >= end:
                        return
                    lines = []
                    mark_at = loop.time() + self._bookmark_seconds if over else mark_at
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(min(end, mark_at)):
                            await wake.wait()
        finally:
            self._watches.discard(wake)

    def _shown(self, view: View, kind: str, item: Object) -> bytes:
        """An object as this view's client reads it in a watch."""
        resource = view.target.resource
        shown = resource.from_stored(item)
        if view.as_table:
            shown = self._table(view.target, [item], revision_of(item))
        return _line(kind, _encode(shown))


# Words on the wire.


def _bookmark(resource: Resource, revision: int) -> bytes:
    """Tells a client how far it has seen."""
    mark: Object = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(revision)},
    }
    if resource.kind == "Pod":
        # As kube-apiserver does: clients must not trip over the null.
        mark |= {"spec": {"containers": None}, "status": {}}
    return _line("BOOKMARK", _encode(mark))


def _reply(body: bytes, status: int = 200, **headers: str) -> web.Response:
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)


def _failure(refusal: ApiError) -> web.Response:
    headers = {"Retry-After": "1"} if refusal.reason == "Timeout" else {}
    return _reply(_encode(refusal.status()), refusal.code, **headers)


async def _body(request: web.BaseRequest) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > BODY_BYTES:
            raise ApiError(413, f"Request entity too large: limit is {BODY_BYTES}")
    if request.content_type == PROTOBUF and body:
        return _encode(kubectl.decode(bytes(body)))
    return bytes(body)


def _json(body: bytes, kind: str) -> Object:
    try:
        value = None if wire.is_deep(body) else wire.decode(_decode, body)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the object provided is no {kind}: {error}") from error
    if not isinstance(value, dict):
        raise ApiError(400, f"the object provided is no {kind}, or nested too deeply")
    return value


def _delete_options(request: web.BaseRequest, body: bytes) -> Object:
    options, name = _json(body, "DeleteOptions") if body else {}, "gracePeriodSeconds"
    if name in request.query:
        options[name] = _whole(request.query[name], name)
    return options


def _line(kind: str, json: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), json)


def _wants_table(request: web.BaseRequest) -> bool:
    first = request.headers.get("Accept", "").partition(",")[0]
    return "as=Table" in first and "v=v1" in first.replace("v=v1beta1", "")


def _view(request: web.BaseRequest, target: Target) -> View:
    fields = request.query.get("fieldSelector", "")
    if target.name:
        fields = f"metadata.name={target.name},{fields}"
    tests = field_predicates(fields, target.resource.plural)
    if labels := request.query.get("labelSelector", ""):
        tests.append(label_predicate(labels))
    return View(target, tests, _wants_table(request))


def _whole(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ApiError(400, f'invalid {what}: "{text}"') from None


def _revision_of(query: Mapping[str, str]) -> int:
    text = query.get("resourceVersion") or "0"
    if not text.isdecimal():
        raise ApiError(400, f'invalid resource version: "{text}"')
    return int(text)


# ---- selectors


Predicate = Callable[[Object], bool]

_EVERYWHERE = ("metadata.name", "metadata.namespace")
_REFERENCE = ("kind", "namespace", "name", "uid", "fieldPath")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.schedulerName", "status.phase"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": (*(f"involvedObject.{name}" for name in _REFERENCE), "reason", "type"),
}
_TERM = re.compile(r"(?P<key>[^=!]*)(?P<operator>==|=|!=)(?P<value>.*)")


def field_predicates(text: str, plural: str) -> list[Predicate]:
    """The tests that a field selector means for objects of a resource.

    Raises:
        ApiError: 400, it cannot be read, or the field cannot be selected.
    """
    return [_field_test(term, plural, text) for term in text.split(",") if term]


def _field_test(term: str, plural: str, text: str) -> Predicate:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ApiError(400, f"invalid selector: '{text}'; can't understand '{term}'")
    key, value, negated = found["key"], found["value"], found["operator"] == "!="
    if key not in _EVERYWHERE and key not in FIELDS.get(plural, ()):
        raise ApiError(400, f"field label not supported: {key}")
    path = tuple(key.split("."))
    return lambda item: (field_text(item, path) == value) is not negated


def field_text(item: Object, path: tuple[str, ...]) -> str:
    """A field as selectors compare it; absent ones are the empty string (false for booleans)."""
    value: Any = item
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if path[-1] == "unschedulable":
        return "true" if value else "false"
    return value if isinstance(value, str) else ""


def label_predicate(text: str) -> Predicate:
    """The test that a label selector (full set syntax) means.

    Raises:
        ApiError: 400, it cannot be read.
    """
    try:
        selector = read_selector(text)
    except SelectorError as wrong:
        raise ApiError(400, str(wrong)) from wrong
    return lambda item: selector.matches(item["metadata"].get("labels") or {})
