"""Answers a stock kube-scheduler as an HTTP extender, by policies alone.

Asks the framework of policies about the newest snapshot and changes nothing.

Source: k8s.io/kube-scheduler extender/v1 types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import structs

from dsl.plan import Plan
from engine.basis import AnyFramework
from engine.extenders.client import MOST_BYTES
from engine.extenders.messages import BadAnswer, Question, asked_of, victims_of
from engine.framework.opinion import SCALE
from engine.framework.runtime import Framework, Frameworks, PluginError, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code
from engine.objects import Pod
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.policy.bundle import Bundle
from engine.policy.preemption import PolicyPreemption
from engine.policy.shadow import enforced, in_force
from engine.policy.world import Worlds
from engine.serving.server import BadCallError, Call
from engine.text import wire

PATHS: Final = ("/filter", "/prioritize", "/preempt")
NOT_READY: Final = "berth has no policies in force yet"
_NOT_SEEN: Final = "berth has not seen this node yet"
_UNSAID: Final = {
    "sorts": "kube-scheduler sorts its queue itself",
    "gates": "kube-scheduler asks no extender before the queue",
    "tiers": "an extender gives scores alone; kube-scheduler adds its own to them",
    "reserves": "an extender is not asked after a node was chosen",
    "permits": "an extender is not asked after a node was chosen",
    "prebinds": "an extender is not asked before a binding",
    "binds": "kube-scheduler binds",
    "postbinds": "an extender is not told of bindings",
    "gangs": "an extender is asked about one pod at a time",
    "quotas": "an extender is asked about one pod at a time",
}
"""Rules that an extender cannot apply, by the attribute of a plan, and why."""
_pod = msgspec.json.Decoder(Pod)
_encode = msgspec.json.Encoder().encode

Advice = tuple[Framework, PolicyPreemption]
Rules = Callable[[], Advice | None]
"""The policies in force; None before the first."""


def unsaid(plans: Sequence[Plan]) -> Iterator[str]:
    """A line for each rule that an extender cannot apply, and why."""
    for plan in filter(None, map(in_force, plans)):
        for attribute, why in _UNSAID.items():
            for rule in getattr(plan, attribute):
                yield f"{rule.source.name}:{rule.line}: has no effect through an extender: {why}"
        for rule in plan.preempts:
            if rule.core.order or rule.core.pick or rule.core.limit is not None:
                yield (
                    f"{rule.source.name}:{rule.line}: an extender only says who may be evicted:"
                    " kube-scheduler picks the victims"
                )


def advice_of(
    frameworks: AnyFramework | None, bundle: Bundle | None, worlds: Worlds
) -> Advice | None:
    """The policies in force: the framework that filters and scores, and the preemption."""
    if bundle is None or not isinstance(frameworks, Frameworks):
        return None
    # Quotas and gangs need accounts, which are not kept here.
    alone = [structs.replace(one, quotas=()) for one in enforced(bundle.plans)]
    return next(iter(frameworks)), PolicyPreemption(alone, worlds)


def advice_on(
    in_force: Callable[[], tuple[AnyFramework | None, Bundle | None]], worlds: Worlds
) -> Rules:
    """Gives `advice_of` what is in force, which is made once for all calls."""
    known: AnyFramework | None = None
    advice: Advice | None = None

    def rules() -> Advice | None:
        nonlocal known, advice
        frameworks, bundle = in_force()
        if frameworks is not known or advice is None:
            known, advice = frameworks, advice_of(frameworks, bundle, worlds)
        return advice

    return rules


def calls_of(rules: Rules, snapshot: Callable[[], Snapshot]) -> dict[str, Call]:
    """The calls of the server, by path; every answer is made from one snapshot."""

    async def answered(
        answer: Callable[[bytes, Advice | None, Snapshot], object], body: bytes
    ) -> bytes:
        try:
            return _encode(answer(body, rules(), snapshot()))
        except BadAnswer as bad:
            raise BadCallError(str(bad)) from bad

    each = (_filtered, _prioritized, _preempted)
    return {
        path: Call(partial(answered, of), MOST_BYTES) for path, of in zip(PATHS, each, strict=True)
    }


def _filtered(body: bytes, rules: Advice | None, snapshot: Snapshot) -> object:
    """The nodes that policies leave, and why not the others.

    Raises:
        BadAnswer: the body is no question of filter.
    """
    question = asked_of(body)
    if rules is None:
        return {"Error": NOT_READY}
    try:
        failed, never = _rejected(_read(question), snapshot, rules[0], question.names)
    except PluginError as fault:
        return {"Error": str(fault)}
    left = [name for name in question.names if name not in failed and name not in never]
    answer: dict[str, Any] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": never}
    if question.nodes is None:
        return answer | {"NodeNames": left}
    return answer | {"Nodes": {"metadata": {}, "items": [question.nodes[name] for name in left]}}


def _prioritized(body: bytes, rules: Advice | None, snapshot: Snapshot) -> object:
    """The scores of policies, 0..10.

    Raises:
        BadAnswer: the body is no question of prioritize.
    """
    question = asked_of(body)
    totals = dict.fromkeys(question.names, 0.0)
    if rules is not None:
        totals.update(_scored(_read(question), snapshot, rules[0], question.names))
    return [{"Host": name, "Score": round(one / SCALE)} for name, one in totals.items()]


def _preempted(body: bytes, rules: Advice | None, snapshot: Snapshot) -> object:
    """The nodes where all victims may be evicted by `preempt:` lines.

    Raises:
        BadAnswer: the body is no question of preempt.
    """
    question, asked = victims_of(body)
    pod = _read(question)
    allowed = frozenset() if rules is None else _evictable(rules[1], pod, snapshot)
    left = {
        node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
        for node, (uids, violations) in asked.items()
        if allowed is None or set(uids) <= allowed
    }
    return {"NodeNameToMetaVictims": left}


def _read(question: Question) -> PodInfo:
    try:
        return make_pod_info(wire.decode(_pod.decode, question.pod))
    except (msgspec.DecodeError, ValueError) as error:
        raise BadAnswer(f"the pod cannot be read: {error}") from error


def _scored(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, names: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """The scores of the known nodes; none if a policy fails, which is logged."""
    nodes = snapshot.nodes
    rows = np.array(sorted({nodes.row(name) for name in names} - {-1}), np.intp)
    total = np.zeros(len(rows))
    with suppress(PluginError):
        for _, weight, _, normal in framework.scores(pod, snapshot, rows):
            total += weight * normal
        yield from zip(map(nodes.name, rows.tolist()), total.tolist(), strict=True)


def _evictable(rules: PolicyPreemption, pod: PodInfo, snapshot: Snapshot) -> frozenset[str] | None:
    """The UIDs of the pods that policies evict for this one; None: they do not say."""
    said = rules.decides(pod, snapshot)
    if not said:
        return None
    rows = [row for one in said if one.evictions is not None for row in one.evictions.ordered]
    return frozenset(snapshot.pods.pod(row).uid for row in rows)


def _rejected(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, names: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Why nodes are rejected: those where evictions could help, and the others.

    Raises:
        PluginError: a policy failed.
    """
    nodes = snapshot.nodes
    failed = {name: _NOT_SEEN for name in names if nodes.row(name) < 0}
    never: dict[str, str] = {}
    try:
        passed = framework.candidates(framework.class_of(pod, snapshot), pod, snapshot)
        if len(passed) == nodes.count:
            return failed, never
        rejections = framework.rejections(pod, snapshot)
    except Unfit as unfit:
        rejections = framework.ended(unfit, snapshot)
    if rejections.ended is not None:
        ended = rejections.ended
        words = ended.pre_filter_message or ", ".join(ended.reasons) or "no node fits"
        into = never if ended.unresolvable else failed
        into.update((name, words) for name in names if name not in failed)
        return failed, never
    asked = set(names)
    for one in rejections.each:
        into = never if one.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE else failed
        words = ", ".join(one.status.reasons)
        for row in one.rows.tolist():
            name = nodes.name(row)
            if name in asked:
                into[name] = words
    return failed, never
