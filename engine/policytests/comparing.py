"""Where the two evaluators, and a scheduling cycle, do not agree: a fault of Berth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dsl.policytest import CannotJudgeError, Rejection
from engine.policytests.answers import ByColumns, place_of, rules_of
from engine.policytests.meaning import ByReference


def differences(columns: ByColumns, meaning: ByReference) -> list[str]:
    """What the two do not agree on; empty: nothing."""
    found = []
    if dict(columns.rejections()) != dict(meaning.rejections()):
        found.append(
            f"rejections: by columns {_told(columns.rejections())};"
            f" by reference {_told(meaning.rejections())}"
        )
    elif not columns.stopped_early and not columns.cycle_agrees():
        found.append(f"a scheduling cycle leaves other nodes than {_told(columns.rejections())}")
    else:
        found.extend(_choice(columns))
    for what, ask in _QUESTIONS.items():
        if what == _VICTIMS and columns.preempted().runs > _MOST_RUNS:
            continue
        left, right = _asked(ask, columns), _asked(ask, meaning)
        if left != right:
            found.append(f"{what}: by columns {left}; by reference {right}")
    for pod in columns.scene.pods:
        held = columns.gate(pod.name), meaning.gate(pod.name)
        if held[0] != held[1]:
            found.append(f"the gate of {pod.name}: by columns {held[0]}; by reference {held[1]}")
    for plan in columns.plans:
        found.extend(
            f"whether {place_of(rule)} applies"
            for rule in rules_of(plan)
            if columns.applies(rule) != meaning.applies(rule)
        )
    return found


def _gang(answers: ByColumns) -> object:
    """The gang of the pod without what is missing in it, as nothing missing equals itself."""
    found = answers.gang()
    return None if found is None else repr(found[1])


def _evictions(answers: ByColumns) -> object:
    found = answers.evictions()
    return None if found is None else (found.ordered, found.limit, found.across)


_VICTIMS: Final = "the victims"
#: Who may be evicted is compared always; a long search, node by node, would take minutes.
_MOST_RUNS: Final = 300
_QUESTIONS: Mapping[str, Callable[[ByColumns], Any]] = {
    "scores": lambda answers: answers.scores(),
    "best": lambda answers: list(answers.best()),
    "the order of the queue": lambda answers: list(answers.order()),
    "the gang": _gang,
    "who may be evicted": _evictions,
    _VICTIMS: lambda answers: answers.preemption(),
    "permit": lambda answers: answers.permission(),
    "what is done around binding": lambda answers: answers.effects(),
}


def _asked(ask: Callable[[ByColumns], Any], answers: ByColumns) -> Any:  # noqa: ANN401 - any answer
    """An answer, or that there is none: no node may be chosen."""
    try:
        return ask(answers)
    except CannotJudgeError as none:
        return str(none)


def _choice(columns: ByColumns) -> Iterator[str]:
    """A scheduling cycle takes one of the best nodes, but for a nominated one."""
    if columns.stopped_early or columns.scene.pod.pod.status.nominated_node_name:
        return
    chosen, best = columns.cycle_chooses(), list(columns.best())
    if (chosen is None) == bool(best) or (chosen is not None and chosen not in best):
        yield f"a scheduling cycle takes {chosen}, not one of {best}"


def _told(rejections: Mapping[str, Rejection]) -> str:
    said = [f'{name} "{one.message}" {one.status}' for name, one in rejections.items()]
    return ", ".join(said) or "nothing rejected"
