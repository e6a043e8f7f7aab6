"""An expectation and the answers of a lab become a verdict. Knows no policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dsl.policytest.attributes import listed
from dsl.policytest.model import Expected
from engine.policytests.answers import Answers

TOLERANCE: Final = 2e-6
#: Where no node is feasible, of so many is told why.
_MOST_FATES: Final = 8


class Failure(NamedTuple):
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
            return _judge_skipped(int(expected.number), answers)
        case "annotation" | "label" | "unset":
            return _judge_written(expected, answers)
        case "gated" | "ungated" | "permit":
            return _judge_held(expected, answers)
        case _:
            return _judge_whole(expected, answers)


def _judge_held(expected: Expected, answers: Answers) -> Failure | None:
    """What becomes of a pod before the queue, and on its node."""
    name = expected.names[0]
    if expected.name == "permit":
        verdict, said = answers.permission
        if verdict != name:
            return Failure(f"permit says {verdict}" + (f': "{said}"' if said else ""))
    else:
        held = answers.gate(name)
        if expected.name == "ungated":
            return None if held is None else Failure(f'{name} is held: "{held}"')
        if held is None:
            return Failure(f"nothing holds {name} before the queue")
        said = held
    return _unlike(
        f'the message is\n"{said}"', said, said if expected.message is None else expected.message
    )


def _judge_written(expected: Expected, answers: Answers) -> Failure | None:
    """What is set, or not set, whether as an annotation or as a label."""
    name, kinds = expected.names[0], answers.written
    if expected.name == "unset":
        values = [there[name] for there in kinds.values() if name in there]
        return Failure(f'{name} is set to "{values[0]}"') if values else None
    there = kinds[expected.name]
    if name not in there:
        return Failure(f"{name} is not set; set are {_list(sorted(there))}")
    return _unlike(f'{name} is set to "{there[name]}"', there[name], expected.value)


def _judge_whole(expected: Expected, answers: Answers) -> Failure | None:
    """What has to be all of it: an order, victims and their node, Events."""
    names = expected.names
    if expected.name == "order":
        return _unlike(f"the order is {_list(answers.order)}", tuple(answers.order), names)
    if expected.name == "events":
        events = tuple(answers.events)
        quoted = "\n".join(f'"{one}"' for one in events)
        return _unlike(
            f"the events are\n{quoted}" if events else "there is no event", events, names
        )
    victims, node, why = answers.preemption
    got = sorted(victims if expected.name == "victims" else [node] if node else [])
    said = f"the victims are {_list(got)}" if expected.name == "victims" else "nominated is "
    said += (node or "none") if expected.name == "nominated" else ""
    return _unlike(f"{said}\n{why}".rstrip(), got, sorted(names))


def _unlike(message: str, got: object, wanted: object) -> Failure | None:
    return None if got == wanted else Failure(message)


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
        return Failure("\n".join((*lines, *(_fate(name, answers) for name in wrong))), wrong)
    for name in expected.names if expected.status is not None else ():
        given = rejections[name]
        if given.status != expected.status:
            return Failure(f"{name} is rejected by {given.place} as {given.status}", (name,))
    return None


def _fate(name: str, answers: Answers) -> str:
    there = answers.rejections.get(name)
    if there is None:
        return f"{name} passes"
    return f'{name} is rejected by {there.place}: "{there.message}"'


def _judge_score(expected: Expected, answers: Answers) -> Failure | None:
    (name,) = expected.names
    if name in answers.rejections:
        said = f"{name} has no score: {_fate(name, answers).replace(name, 'it', 1)}"
        return Failure(said, (name,))
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
    lines = [what if best else "no node is feasible", *([f"scores: {shown}"] if shown else [])]
    stopped = expected.names if best else answers.nodes[:_MOST_FATES]
    lines.extend(_fate(name, answers) for name in stopped if name in answers.rejections)
    return Failure("\n".join(lines), (*best, *expected.names))


def _judge_skipped(number: int, answers: Answers) -> Failure | None:
    there = answers.numbered
    if number not in there:
        names = listed([str(one) for one in there]) or "none"
        return Failure(f"there is no rule {number}; the rules that can be asked are {names}")
    if not answers.applies(there[number]):
        return None
    return Failure(f"rule {number} did apply", tuple(answers.nodes))
