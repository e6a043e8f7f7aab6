"""`mode: canary P%`: a policy in force for a stable share of the pods, in shadow for the others.

The share is taken of workloads, so that all pods of one are treated alike; a pod without a workload
is one by itself. A greater share holds all that a smaller one did, and each policy has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from dsl.plan import Plan, RuleBase
from dsl.world import Subject

CANARY: Final = "canary"
SHADOW: Final = "shadow"
_ALL: Final = 100.0
_BYTES: Final = 8
_RANGE: Final = 256.0**_BYTES
_ONE_BY_ONE: Final = ("gates", "prefilters", "filters", "scores", "tiers", "reserves", "permits",
                      "prebinds", "binds", "postbinds")  # fmt: skip
#: How a rule is asked -> what it comes to for pods that it is not about.
_WITHOUT: Final[Mapping[str, object]] = MappingProxyType(
    {"prepare": None, "holds": True, "applies": False, "effects": ()}
)
Chosen = Callable[[Subject], bool]


def in_force(plan: Plan) -> Plan | None:
    """The policy as it decides; None if it has no say. A canary has one about its share."""
    member = _share(plan)
    if member is not None:
        return _only(plan, member)
    return plan if plan.mode == "enforce" else None


def in_shadow(plan: Plan) -> Chosen | None:
    """For which pods the policy is tried without an effect; None if for none."""
    member = _share(plan)
    if member is not None:
        return lambda subject: not member(subject)
    return (lambda _: True) if plan.mode == SHADOW else None


def _share(plan: Plan) -> Chosen | None:
    """For which pods a canary is in force; None if the policy is none."""
    word, _, share = plan.mode.partition(" ")
    return _member(plan, float(share.removesuffix("%")) / _ALL) if word == CANARY else None


def _member(plan: Plan, share: float) -> Chosen:
    def chosen(*who: str) -> bool:
        digest = blake2b("\0".join((plan.name, *who)).encode(), digest_size=_BYTES).digest()
        return int.from_bytes(digest) < share * _RANGE

    def member(subject: Subject) -> bool:
        workload = subject.text("pod.workload", None)
        if workload is None:
            return chosen(subject.text("pod.uid", None) or "")
        return chosen(subject.text("pod.namespace", None) or "", workload)

    return member


def _only(plan: Plan, chosen: Chosen) -> Plan:
    """The policy with rules that apply to these pods alone."""
    changed = {
        attribute: tuple([_rule_for(rule, chosen) for rule in getattr(plan, attribute)])
        for attribute in _ONE_BY_ONE
    }
    return replace(plan, **changed)


def _rule_for(rule: RuleBase, chosen: Chosen) -> RuleBase:
    def only(ask: Callable[..., object], without: object) -> Callable[..., object]:
        return lambda subject, *where: ask(subject, *where) if chosen(subject) else without

    asked = [(name, getattr(rule, name, None), without) for name, without in _WITHOUT.items()]
    return replace(rule, **{name: only(ask, without) for name, ask, without in asked if ask})
