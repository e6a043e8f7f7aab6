"""What extenders are sent and what they answer: values in, JSON out, and back. No I/O.

Names of fields are read as Go does, whatever the case of their letters: extenders in other
languages write them as they like. Whatever is wrong with an answer is one kind of error.

Source: k8s.io/kube-scheduler extender/v1 types.go; kubernetes pkg/scheduler/extender.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from engine.framework.opinion import LEFT_OUT, MOST, SCALE
from engine.objects import Identity, Known
from engine.pods.podinfo import PodInfo
from engine.text import wire
from engine.text.display import one_line

T = TypeVar("T")
Failed = dict[str, str]
Victims = Mapping[str, tuple[Sequence[PodInfo], int]]
"""Node -> who would have to go, and how many of them a disruption budget protects."""

_LONGEST_REASON: Final = 256
_encode: Final = msgspec.json.Encoder().encode


class BadAnswer(Exception):  # noqa: N818 - an answer, and no fault of ours
    """An extender did not say what it was asked; the text says why."""


class Whole(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object as the server has it, without `managedFields`."""

    metadata: WholeMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


class WholeMeta(Identity, frozen=True):
    """All of `metadata` that somebody outside of the API server reads."""

    generate_name: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[dict[str, Any]] | None = None
    finalizers: list[str] | None = None


class Filtered(NamedTuple):
    """The nodes left, in the order of the question, and why others are not."""

    names: list[str]
    failed: Failed
    unresolvable: Failed


class _Nodes(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


_named = msgspec.json.Decoder(Known)
_nodes = msgspec.json.Decoder(_Nodes | None)
_whole = msgspec.json.Decoder(Whole)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_anything = msgspec.json.Decoder()
_names = msgspec.json.Decoder(list[str] | None)
_reasons = msgspec.json.Decoder(dict[str, str] | None)
_text = msgspec.json.Decoder(str | None)


# ---- questions


def whole(body: bytes) -> tuple[Whole, bytes]:
    """An object of the server, and its JSON without `managedFields`.

    Raises:
        msgspec.DecodeError: it cannot be read.
    """
    found = wire.decode(_whole.decode, body)
    return found, _encode(found)


def about(pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes] | None) -> bytes:
    """The question of filter and prioritize; `nodes` are the objects, None to send names alone."""
    given = (
        None if nodes is None else {"metadata": {}, "items": [msgspec.Raw(nodes[n]) for n in names]}
    )
    return _encode(
        {"Pod": msgspec.Raw(pod), "Nodes": given, "NodeNames": names if nodes is None else None}
    )


def about_victims(pod: bytes, victims: Victims, *, by_uid: bool) -> bytes:
    """The question of preempt."""
    each = {
        node: {
            "Pods": [{"UID": one.uid} if by_uid else one.pod for one in pods],
            "NumPDBViolations": violations,
        }
        for node, (pods, violations) in victims.items()
    }
    sent, other = "NodeNameToMetaVictims", "NodeNameToVictims"
    if not by_uid:
        sent, other = other, sent
    return _encode({"Pod": msgspec.Raw(pod), sent: each, other: None})


def to_bind(pod: PodInfo, node: str) -> bytes:
    """The question of bind."""
    return _encode(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    )


# ---- answers


def filtered(body: bytes, asked: Sequence[str], *, by_name: bool) -> Filtered:
    """The answer of filter.

    Raises:
        BadAnswer: it is none, or names a node that was not asked about.
    """
    fields = _folded(body)
    _no_error(fields)
    if not by_name:
        fields.pop("nodenames", None)
    left = set(_nodes_of(fields)[0])
    unknown = left.difference(asked)
    if unknown:
        raise BadAnswer(f"it leaves node {one_line(min(unknown))!r}, which it was not asked about")
    known = set(asked)
    return Filtered(
        [name for name in asked if name in left],
        _told(_read(fields, "failednodes", _reasons), known),
        _told(_read(fields, "failedandunresolvablenodes", _reasons), known),
    )


def scored(body: bytes, asked: Collection[str], weight: int) -> dict[str, int]:
    """The answer of prioritize, of the nodes asked about; of two entries of one, the sum.

    Raises:
        BadAnswer: it is none, or has a score that cannot be added.
    """
    entries = _decoded(_anything, body)
    if entries is not None and not isinstance(entries, list):
        raise BadAnswer("it is not a list of scores")
    found: dict[str, int] = {}
    known = set(asked)
    for entry in entries or ():
        fields = _lower(entry)
        host, score = fields.get("host", ""), fields.get("score", 0)
        if not isinstance(host, str) or type(score) is not int:
            raise BadAnswer("a score is not a whole number, or has no host")
        if host in known:
            found[host] = found.get(host, 0) + score
            if abs(found[host]) * weight * SCALE > MOST:
                raise BadAnswer(f"its score {score} of node {host} is out of all bounds")
    return found


def agreed(body: bytes, asked: Victims) -> dict[str, list[str]]:
    """The answer of preempt: the nodes left, with the UIDs of those who would have to go.

    Raises:
        BadAnswer: it is none, or names a node or nobody where it was not asked.
    """
    fields = _folded(body)
    each = _read(fields, "nodenametometavictims", _anything)
    found: dict[str, list[str]] = {}
    for node, victims in _lower(each, keep_keys=True).items():
        if node not in asked:
            raise BadAnswer(f"it names node {one_line(node)!r}, which it was not asked about")
        pods = _lower(victims).get("pods") or []
        if not isinstance(pods, list):
            raise BadAnswer("its victims are not a list")
        found[node] = [str(_lower(pod).get("uid", "")) for pod in pods]
    return found


def done(body: bytes) -> None:
    """The answer of bind.

    Raises:
        BadAnswer: it is none, or says that the pod is not bound.
    """
    _no_error(_folded(body))


# ---- the other way round: what extenders are asked


class Question(NamedTuple):
    """A pod's JSON and the nodes asked about; `nodes` their JSON, None where names were sent."""

    pod: bytes
    names: list[str]
    nodes: dict[str, msgspec.Raw] | None


def asked_of(body: bytes) -> Question:
    """The question of filter and prioritize.

    Raises:
        BadAnswer: it is none.
    """
    fields = _folded(body)
    return Question(_pod_of(fields), *_nodes_of(fields))


def victims_of(body: bytes) -> tuple[Question, dict[str, tuple[list[str], int]]]:
    """The question of preempt: the victims' UIDs by node, and how many budgets would break.

    Raises:
        BadAnswer: it is none.
    """
    fields = _folded(body)
    by_uid = _read(fields, "nodenametometavictims", _anything)
    found: dict[str, tuple[list[str], int]] = {}
    whole = _read(fields, "nodenametovictims", _anything) if by_uid is None else by_uid
    for node, victims in _lower(whole, keep_keys=True).items():
        one = _lower(victims)
        listed, violations = one.get("pods") or [], one.get("numpdbviolations") or 0
        if not isinstance(listed, list) or not isinstance(violations, int):
            raise BadAnswer("its victims are not a list")
        pods = [_lower(pod) for pod in listed]
        uids = [str(pod.get("uid") or _lower(pod.get("metadata")).get("uid", "")) for pod in pods]
        found[node] = uids, violations
    return Question(_pod_of(fields), list(found), None), found


def _nodes_of(fields: Mapping[str, msgspec.Raw]) -> tuple[list[str], dict[str, msgspec.Raw] | None]:
    """The names of the nodes that are named or sent, and what was sent of each."""
    names = _read(fields, "nodenames", _names)
    if names is not None:
        return names, None
    sent = _read(fields, "nodes", _nodes)
    items = (None if sent is None else sent.items) or ()
    nodes = {_decoded(_named, one).metadata.name: one for one in items}
    return list(nodes), nodes


def _pod_of(fields: Mapping[str, msgspec.Raw]) -> bytes:
    if "pod" not in fields:
        raise BadAnswer("there is no pod in it")
    return bytes(fields["pod"])


# ---- inside


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return wire.decode(decoder.decode, body)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"its answer cannot be read: {error}") from error


def _folded(body: bytes) -> dict[str, msgspec.Raw]:
    fields = _decoded(_fields, body) or {}
    return {name.lower(): value for name, value in fields.items()}


def _read(
    fields: Mapping[str, msgspec.Raw], name: str, decoder: msgspec.json.Decoder[T]
) -> T | None:
    raw = fields.get(name)
    return None if raw is None else _decoded(decoder, raw)


def _no_error(fields: Mapping[str, msgspec.Raw]) -> None:
    error = _read(fields, "error", _text)
    if error:
        raise BadAnswer(f"it says: {one_line(error)[:_LONGEST_REASON]}")


def _told(reasons: Failed | None, known: Collection[str]) -> Failed:
    each = (reasons or {}).items()
    return {
        node: one_line(why)[:_LONGEST_REASON] or LEFT_OUT for node, why in each if node in known
    }


def _lower(value: object, *, keep_keys: bool = False) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadAnswer("its answer has other values where fields are expected")
    return value if keep_keys else {str(name).lower(): one for name, one in value.items()}
