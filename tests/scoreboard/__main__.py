"""`make scoreboard`: what the language says of texts people write, held against the base line.

Each line of texts.txt is an origin, what was said of the text when the base line was taken (code,
start and end of each finding; `fix` or `wrong` where its fixes gave the policy meant, or another),
the text, and the policies that are right for it, if that is known. The file is frozen: see
CONTRIBUTING.md. A finding is kept where its code, or what the code has become, stands at the same
place: where it starts.
"""

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import fields

from dsl.codes import OLD
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.parser import Parser
from dsl.policytest.reading import read_suite

HERE = Path(__file__).parent
TEXTS = HERE / "texts.txt"
ROOT = HERE.parents[1]
COMPILER, READER = Compiler(), Parser()
#: How much a text of each origin counts: what is met more often counts more.
WEIGHTS = {
    "cel": 1, "first-tries": 3, "kubernetes": 2, "others": 1, "promql": 1, "python": 2, "rego": 1,
    "second-tries": 3, "sql": 1, "tests": 1, "typos": 3, "units": 2, "yaml": 2,
}  # fmt: skip
ROUNDS = 6
#: What only a chain, or a later version, can say of a bundled policy or of the cookbook.
ELSEWHERE = ("P104", "P107")
GOALS = {"findings kept": 90, "right fixes kept": 80, "fixes that parse and cure": 100}
#: What a plan says of its text and not of its meaning.
ASIDE = {"source", "span", "text", "hash", "name_span", "line", "id", "used"}


class Case(Struct, frozen=True):
    """One line of texts.txt."""

    origin: str
    said: tuple[tuple[str, str], ...]
    fixed: str
    text: str
    rights: tuple[str, ...]


def escaped(text):
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def unescaped(text):
    return re.sub(r"\\(.)", lambda one: {"n": "\n", "t": "\t", "r": "\r"}.get(one[1], one[1]), text)


def cases():
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        origin, said, text, *rights = line.split("\t")
        places = [one.split("@") for one in said.split(" ") if "@" in one]
        fixed = said.split(" ")[-1]
        yield Case(
            origin,
            tuple((code, at.split("-")[0]) for code, at in places),
            fixed if "@" not in fixed else "",
            unescaped(text),
            tuple(map(unescaped, rights)),
        )


@cache
def found(text, origin=""):
    """All findings of a text, and what it means if it is right."""
    if origin == "tests":
        suite = read_suite("a.policytest", text, READER)
        return suite.diagnostics, repr(suite) if suite.ok else None
    result = COMPILER.compile({"a.policy": text})
    return result.diagnostics, meaning(result.plans) if result.ok else None


def meaning(part):
    """A plan or a tree as plain values, without places."""
    if isinstance(part, Struct):
        named = ((one.name, getattr(part, one.name)) for one in fields(part))
        return type(part).__name__, *((name, meaning(one)) for name, one in named
                                      if name not in ASIDE and not callable(one))  # fmt: skip
    if isinstance(part, tuple | list):
        return tuple(map(meaning, part))
    return sorted(map(repr, part)) if isinstance(part, frozenset | dict) else repr(part)


def applied(text, findings):
    last = len(text) + 1
    fixes = {one.fix for one in findings if one.fix is not None}
    for fix in sorted(fixes, key=lambda one: (one.span.start, one.span.end), reverse=True):
        if fix.span.end <= last:
            text = text[: fix.span.start] + fix.text + text[fix.span.end :]
            last = fix.span.start
    return text


def mended(text, origin):
    """The text with all fixes, as often as there are any."""
    for _ in range(ROUNDS):
        better = applied(text, found(text, origin)[0])
        if better == text:
            break
        text = better
    return text


def outcome(case):
    """`fix` where the fixes give a policy that is meant, `wrong` another, `new` nobody knows."""
    better = mended(case.text, case.origin)
    means = found(better, case.origin)[1]
    if better == case.text or means is None:
        return ""
    if not case.rights:
        return "new"
    return "fix" if any(means == found(one, case.origin)[1] for one in case.rights) else "wrong"


def uncured(case):
    """What is left by a fix: its finding, or a text that cannot be read."""
    text, origin = case.text, case.origin
    findings = found(text, origin)[0]
    for one in findings:
        if one.fix is None:
            continue
        again = found(applied(text, [one]), origin)[0]
        keys = {(other.code, other.message, other.span.start) for other in again}
        if (one.code, one.message, one.span.start) in keys:
            return f"{one.code} {one.fix.text!r} does not cure"
    errors = [one for one in findings if one.is_error]
    if errors and all(one.fix is not None for one in errors):
        again = found(applied(text, findings), origin)[0]
        if any(one.code < "P1" and one.code != "P011" and one.is_error for one in again):
            return f"{applied(text, findings)!r} cannot be read"
    return ""


def said(text, origin):
    for one in found(text, origin)[0]:
        line, column = one.source.position(one.span.start)
        last, end = one.source.position(one.span.end)
        to = f"{end}" if last == line else f"{last}:{end}"
        yield f"{'' if one.is_error else 'w'}{one.code}", f"{line}:{column}", to


def right():
    """Names and texts of policies that are right, a line each in data/right.txt."""
    text = (ROOT / "tests" / "dsl" / "data" / "right.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, _, policy = line.partition("\t")
        yield name, f"{unescaped(policy)}\n"


def loud():
    """Right policies of which something is said; of examples, that they are wrong."""
    for name, policy in right():
        yield name, render(COMPILER.compile({f"{name}.policy": policy}).diagnostics)
    text = (ROOT / "tests" / "dsl" / "data" / "examples.txt").read_text(encoding="utf-8")
    for part in re.split(r"(?m)^=== ", text)[1:]:
        title, _, policy = part.partition("\n")
        findings = COMPILER.compile({f"{title.strip()}.policy": policy}).diagnostics
        # Examples use other policies, and parameters that a configuration gives.
        yield title, render([one for one in findings if one.code < "P1"])
    for folder in ("policies", "examples"):
        for path in sorted((ROOT / folder).rglob("*.policy")):
            findings = COMPILER.compile({path.name: path.read_text(encoding="utf-8")}).diagnostics
            yield path.name, render([one for one in findings if one.code not in ELSEWHERE])


def become(code):
    """The code and what it was split into."""
    return {code, *OLD.get(code.removeprefix("w"), ())}


def main():
    shown = set(sys.argv[1:])
    counts, good, total = Counter(), Counter(), Counter()
    for case in cases():
        weight = WEIGHTS[case.origin]
        now = [(code, at) for code, at, _ in said(case.text, case.origin)]
        left = list(now)
        lost = []
        for code, at in case.said:
            same = next((one for one in left if one[1] == at and one[0] in become(code)), None)
            if same is None:
                lost.append((code, at))
            else:
                left.remove(same)
        kept = len(case.said) - len(lost)
        good["findings kept"] += weight * kept
        total["findings kept"] += weight * len(case.said)
        counts[case.origin, "kept"] += kept
        counts[case.origin, "of"] += len(case.said)
        counts[case.origin, "more"] += len(left)
        after, bad = outcome(case), uncured(case)
        if case.fixed == "fix":
            good["right fixes kept"] += weight * (after == "fix")
            total["right fixes kept"] += weight
        counts[case.origin, "fixes"] += case.fixed == "fix"
        counts[case.origin, "same"] += case.fixed == after == "fix"
        counts[case.origin, "gained"] += case.fixed != "fix" and after == "fix"
        counts[case.origin, "wrong"] += after == "wrong"
        counts[case.origin, "unjudged"] += after == "new" and case.fixed != "new"
        any_fix = any(one.fix is not None for one in found(case.text, case.origin)[0])
        good["fixes that parse and cure"] += any_fix and not bad
        total["fixes that parse and cure"] += any_fix
        for kind, holds in (
            ("lost", lost), ("more", left), ("wrong", after == "wrong"), ("uncured", bad),
            ("unfixed", case.fixed == "fix" != after), ("unjudged", after == "new"),
        ):  # fmt: skip
            if holds and kind in shown:
                better = escaped(mended(case.text, case.origin)) if after else ""
                print(kind, case.origin, escaped(case.text), "|", holds, "|", now, "|", better)
    spoken = [(name, text) for name, text in loud() if text]
    for name, text in spoken:
        print(f"right, and not silent: {name}\n{text}")
    columns = ("kept", "of", "more", "fixes", "same", "gained", "wrong", "unjudged")
    print(f"{'origin':14}{'weight':>9}", *(f"{one:>9}" for one in columns))
    for origin, weight in WEIGHTS.items():
        print(f"{origin:14}{weight:9}", *(f"{counts[origin, one]:9}" for one in columns))
    sums = {one: sum(counts[origin, one] for origin in WEIGHTS) for one in columns}
    print(f"{'':23}", *(f"{sums[one]:9}" for one in columns))
    for name, goal in GOALS.items():
        share = 100 * good[name] / max(total[name], 1)
        print(f"{name:28}{share:6.1f} %  (at least {goal})")
    wrong = sums["wrong"]
    print(f"fixes of another policy: {wrong} (0); right policies not silent: {len(spoken)} (0)")


if __name__ == "__main__":
    main()
