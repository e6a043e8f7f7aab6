"""`mode: canary P%`: a policy in force for a stable share of the pods, in shadow for the others.

The share is taken of workloads, so that all pods of one are treated alike; a pod without a workload
is one by itself. A greater share holds all that a smaller one did, and each policy has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from dsl.plan import Plan, RuleBase
from dsl.world import Subject
from engine.policy.findings import CANARY, SHADOW

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
    chosen = _share(plan)
    if chosen is None:
        return plan if plan.mode == "enforce" else None
    rules = {name: [_rule_for(one, chosen) for one in getattr(plan, name)] for name in _ONE_BY_ONE}
    return replace(plan, **{name: tuple(some) for name, some in rules.items()})


def enforced(plans: Iterable[Plan]) -> list[Plan]:
    """The policies as they decide, in the order in which they are asked."""
    return sorted(filter(None, map(in_force, plans)), key=turn_of)


def turn_of(plan: Plan) -> tuple[int, str]:
    """By what policies are ordered."""
    return plan.order, plan.name


def in_shadow(plan: Plan) -> Chosen | None:
    """For which pods the policy is tried without an effect; None if for none."""
    member = _share(plan)
    if member is not None:
        return lambda subject: not member(subject)
    return (lambda _: True) if plan.mode == SHADOW else None


def _share(plan: Plan) -> Chosen | None:
    """For which pods a canary is in force; None if the policy is none."""
    word, _, percent = plan.mode.partition(" ")
    if word != CANARY:
        return None
    most = float(percent.removesuffix("%")) / _ALL * _RANGE

    def member(subject: Subject) -> bool:
        workload = subject.text("pod.workload", None)
        fields = ("pod.uid",) if workload is None else ("pod.namespace", "pod.workload")
        who = (subject.text(field, None) or "" for field in fields)
        digest = blake2b("\0".join((plan.name, *who)).encode(), digest_size=_BYTES).digest()
        return int.from_bytes(digest) < most

    return member


def _rule_for(rule: RuleBase, chosen: Chosen) -> RuleBase:
    def only(ask: Callable[..., object], without: object) -> Callable[..., object]:
        return lambda subject, *where: ask(subject, *where) if chosen(subject) else without

    asked = [(name, getattr(rule, name, None), without) for name, without in _WITHOUT.items()]
    return replace(rule, **{name: only(ask, without) for name, ask, without in asked if ask})
