"""An expectation and the answers of a lab become a verdict. Knows no policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dsl.policytest import Expected, listed
from engine.policytests.answers import Answers, Preempted, Rejection

TOLERANCE: Final = 2e-6
#: Where no node is feasible, of so many is told why.
_MOST_FATES: Final = 8


@dataclass(frozen=True, slots=True)
class Failure:
    """What came out instead; `nodes` are those worth a closer look."""

    message: str
    nodes: tuple[str, ...] = ()


def judge(expected: Expected, answers: Answers) -> Failure | None:
    """Compares one expectation with the answers; None: it holds.

    Raises:
        CannotJudgeError: this version has no answer.
    """
    match expected.name:
        case "feasible" | "rejected":
            return _judge_nodes(expected, answers)
        case "score":
            return _judge_score(expected, answers)
        case "best":
            return _judge_best(expected, answers)
        case "skipped":
            return _judge_skipped(expected, answers)
        case "gated" | "ungated":
            return _judge_gate(expected, answers)
        case "permit":
            verdict, said = answers.permission
            if verdict != expected.names[0]:
                return Failure(f"permit says {verdict}" + (f': "{said}"' if said else ""))
            return _other_message(expected, said)
        case "annotation" | "label" | "unset":
            return _judge_written(expected, answers)
        case "victims" | "nominated":
            return _judge_preempted(expected, answers.preemption)
        case _:
            return _judge_said(expected, answers)


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _judge_nodes(expected: Expected, answers: Answers) -> Failure | None:
    rejections = answers.rejections
    there = [one for one in answers.nodes if (one in rejections) == (expected.name == "rejected")]
    if expected.message is not None:
        # A message may name its node, so it picks the nodes that are meant.
        there = [one for one in there if rejections[one].message == expected.message]
    wrong = tuple(one for one in answers.nodes if (one in there) != (one in expected.names))
    if wrong:
        what = expected.name + (" with this message" if expected.message is not None else "")
        lines = [f"{what} are {_list(there)}" if there else f"no node is {what}"]
        return Failure("\n".join((*lines, *(_fate(name, rejections) for name in wrong))), wrong)
    for name in expected.names if expected.status is not None else ():
        given = rejections[name]
        if given.status != expected.status:
            return Failure(f"{name} is rejected by {given.place} as {given.status}", (name,))
    return None


def _fate(name: str, rejections: Mapping[str, Rejection]) -> str:
    there = rejections.get(name)
    if there is None:
        return f"{name} passes"
    return f'{name} is rejected by {there.place}: "{there.message}"'


def _judge_score(expected: Expected, answers: Answers) -> Failure | None:
    (name,) = expected.names
    refused = answers.rejections.get(name)
    if refused is not None:
        text = f'{name} has no score: it is rejected by {refused.place}: "{refused.message}"'
        return Failure(text, (name,))
    scores = answers.scores
    if scores is None:
        return Failure(f"{name} has no score: every scoring rule abstained")
    if abs(scores[name] - expected.number) > TOLERANCE:
        return Failure(f"the score of {name} is {_number(scores[name])}", (name,))
    return None


def _number(value: float) -> str:
    return f"{round(value, 6):.6f}".rstrip("0").rstrip(".")


def _judge_best(expected: Expected, answers: Answers) -> Failure | None:
    best = tuple(answers.best)
    if best == expected.names:
        return None
    scores = answers.scores or {}
    shown = ", ".join(f"{name} {_number(value)}" for name, value in scores.items())
    what = f"the best are {_list(best)}" if len(best) > 1 else f"the best is {''.join(best)}"
    text = what if best else "no node is feasible"
    rejections = answers.rejections
    stopped = expected.names if best else answers.nodes[:_MOST_FATES]
    lines = [text, *([f"scores: {shown}"] if shown else [])]
    lines.extend(_fate(name, rejections) for name in stopped if name in rejections)
    return Failure("\n".join(lines), (*best, *expected.names))


def _judge_skipped(expected: Expected, answers: Answers) -> Failure | None:
    number, there = int(expected.number), answers.numbered
    if number not in there:
        names = listed([str(one) for one in there]) or "none"
        return Failure(f"there is no rule {number}; the rules that can be asked are {names}")
    if not answers.applies(there[number]):
        return None
    return Failure(f"rule {number} did apply", tuple(answers.nodes))


def _judge_gate(expected: Expected, answers: Answers) -> Failure | None:
    held = answers.gate(expected.names[0])
    if expected.name == "ungated":
        return None if held is None else Failure(f'{expected.names[0]} is held: "{held}"')
    if held is None:
        return Failure(f"nothing holds {expected.names[0]} before the queue")
    return _other_message(expected, held)


def _other_message(expected: Expected, said: str) -> Failure | None:
    if expected.message is None or said == expected.message:
        return None
    return Failure(f'the message is\n"{said}"')


def _judge_written(expected: Expected, answers: Answers) -> Failure | None:
    """What is set, or not set, whether as an annotation or as a label."""
    kinds, key = answers.written, expected.names[0]
    if expected.name == "unset":
        values = (there[key] for there in kinds.values() if key in there)
        return next((Failure(f'{key} is set to "{value}"') for value in values), None)
    there = kinds[expected.name]
    if key not in there:
        return Failure(f"{key} is not set; set are {_list(sorted(there))}")
    return None if there[key] == expected.value else Failure(f'{key} is set to "{there[key]}"')


def _judge_preempted(expected: Expected, found: Preempted) -> Failure | None:
    if expected.name == "victims":
        got = sorted(found.victims)
        text = f"the victims are {_list(got)}"
    else:
        got = [found.nominated] if found.nominated else []
        text = f"nominated is {found.nominated or 'none'}"
    return None if got == sorted(expected.names) else Failure(text)


def _judge_said(expected: Expected, answers: Answers) -> Failure | None:
    """The order of the queue, or the Events, whole."""
    if expected.name == "order":
        got = answers.order
        text = f"the order is {_list(got)}"
    else:
        got = answers.events
        quoted = "\n".join(f'"{one}"' for one in got)
        text = f"the events are\n{quoted}" if got else "there is no event"
    return None if tuple(got) == expected.names else Failure(text)
