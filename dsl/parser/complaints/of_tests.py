"""Why a statement of a test file could not be read, or says what there is not.

Goes through the statement clause by clause; what holds of any text is asked of the attempts for
policies.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dsl.functions import parse_time
from dsl.parser.complaints import brackets, signs
from dsl.parser.complaints.expectations import of_expectation
from dsl.parser.complaints.heads import line_end, of_given, of_head
from dsl.parser.complaints.order import complain
from dsl.parser.complaints.pieces import Beside, clauses_of
from dsl.parser.complaints.place import Place, place_of
from dsl.parser.complaints.values import is_word, quoted
from dsl.parser.refusal import Halt, Refusal
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from dsl.parser.tests import blank_out, listed, no_given, refuse
from dsl.parser.testwords import (
    DEFAULT_NOW,
    EXPECTATIONS,
    GIVEN,
    HEADS,
    KEYED,
    UNNAMED,
)  # fmt: skip
from dsl.source import QUOTED_OR_COMMENT
from dsl.spelling import closest
from dsl.types import is_missing

_VALUES: Final = frozenset({"WORD", "STRING"})
#: First words of lines elsewhere, and what they are here.
_HEADS: Final = MappingProxyType(
    {
        **dict.fromkeys(("import", "include", "require", "load", "policy", "policies", "using",
                         "testing", "from", "apply", "given-policy"), "use"),
        **dict.fromkeys(("it", "case", "describe", "def", "func", "fn", "scenario", "testcase",
                         "test_case", "example", "spec", "context"), "test"),
        **dict.fromkeys(("time", "clock", "date", "today", "at"), "now"),
        **dict.fromkeys(("budget", "poddisruptionbudget", "disruption_budget"), "pdb"),
        **dict.fromkeys(("elasticquota", "elastic_quota"), "quota"),
        **dict.fromkeys(("podgroup", "gang", "pod_group"), "group"),
        **dict.fromkeys(("deployment", "job", "statefulset"), "workload"),
        **dict.fromkeys(("host", "machine"), "node"),
        **dict.fromkeys(("bound", "placed"), "running"),
        **dict.fromkeys(("queued", "waiting", "queue"), "pending"),
        **dict.fromkeys(("completed", "succeeded", "failed"), "finished"),
    }
)  # fmt: skip
_METRIC_OF_FILE: Final = re.compile(r"\bmetric:?[ \t]+([A-Za-z_]\w*)")
_NODE_OF_FILE: Final = re.compile(r"(?m)^(?:[ \t]+given[ \t]+)?node:?[ \t]+([\w.-]+)")
_POD_OF_TEST: Final = re.compile(r"\bgiven[ \t]+pod[ \t]+(?:[^#\n]*[ \t])?name[ \t]+([\w.-]+)")
_NOW: Final = re.compile(r"(?m)^now:[ \t]*[\"']([^\"'\n]*)[\"']")
_GIVEN_NOW: Final = re.compile(r"\bgiven[ \t]+now[ \t]+[\"']([^\"'\n]*)[\"']")
_TEST: Final = re.compile(r"(?m)^test\b")
_DOTS: Final = re.compile(r"\.{2,}|…")
#: Metrics that are there without being declared, most of them of nodes.
_BUNDLED: Final = (
    "bandwidth",
    "transmit",
    "disk_io",
    "cpu_usage",
    "memory_usage",
    "load",
    "latency",
)


def complain_of_test(halt: Halt, file: str = "", start: int = 0) -> Refusal:
    """Names what is wrong where reading a test file's statement stopped.

    Args:
        halt: where that is.
        file: the text of the whole file.
        start: where the statement starts in it.
    """
    place = place_of(halt)
    for general in (brackets.open_text, signs.comment, brackets.unpaired):
        found = general(place)
        if found is not None:
            return found
    bare = QUOTED_OR_COMMENT.sub(blank_out, halt.text)
    word = re.compile(r"[A-Za-z_][\w-]*|\S").match(halt.text, halt.start)
    met = word.group() if word is not None and halt.kind != "end" else ""
    at = Place(halt.text, bare, halt.start, halt.end, halt.accepts, halt.kind, met)
    own = _own_line(at)
    told = next(findings(halt.text, beside(file, halt.text)), None)
    if told is not None and told.start <= halt.start:
        # An attribute with a colon below a fixture is no statement of its own.
        of_fixture = not re.match(r"test|use\b", halt.text)
        if own is None or told.start < own.start or (of_fixture and told.start == own.start):
            return told
    if own is not None:
        return own
    lone = re.match(r"(given|expect)\b", halt.text)
    if lone is not None:
        return _of_no_test(lone[1], below=_TEST.search(file, 0, start) is not None)
    for check in _CHECKS:
        found = check(at)
        if found is not None:
            return found
    refusal = complain(halt, of_test=True)
    words = _plain_words(halt.accepts)
    if refusal.code in ("P001", "P009") and not refusal.helps and words:
        return Refusal(
            refusal.code, refusal.message, refusal.start, refusal.end, helps=(f"{words} fits here",)
        )
    return refusal


def complain_early(text: str, file: str, refusal: Refusal) -> tuple[Refusal, ...]:
    """Names what is wrong with a statement that the grammar would take for something else.

    Args:
        text: the statement.
        file: the text of the whole file.
        refusal: what is known to be wrong, if nothing better is known.
    """
    told = tuple(findings(text, beside(file, text)))
    return told if told and told[0].start <= refusal.end else (refusal,)


def beside(file: str, statement: str) -> Beside:
    """Returns what the file says besides one of its statements."""
    known = _of_file(file)
    now = _GIVEN_NOW.search(statement)
    time = known.now if now is None else parse_time(now[1])
    return Beside(
        None if time is None or is_missing(time) else time,
        known.metrics,
        tuple(dict.fromkeys((*known.nodes, *_NODE_OF_FILE.findall(statement)))),
        tuple(_POD_OF_TEST.findall(statement)),
    )


@lru_cache(maxsize=4)
def _of_file(file: str) -> Beside:
    """What holds of the whole file; it is asked for with each clause that is wrong."""
    now = _NOW.search(file)
    return Beside(
        parse_time(now[1] if now is not None else DEFAULT_NOW),
        frozenset((*_BUNDLED, *_METRIC_OF_FILE.findall(file))),
        tuple(dict.fromkeys(_NODE_OF_FILE.findall(file))),
    )


def findings(text: str, known: Beside) -> Iterator[Refusal]:
    """Yields what is wrong with a statement, or with one clause of a test, clause by clause."""
    for clause in clauses_of(text):
        if clause.wrong is not None:
            yield clause.wrong
        dots = next((one for one in clause.pieces if _DOTS.fullmatch(one.text)), None)
        if dots is not None:
            message = f"`{dots.text}` stands for what is left out, and nothing fills it in"
            help_ = "write it out, or leave it out"
            yield Refusal("P001", message, dots.start, dots.end, helps=(help_,))
            continue
        if clause.word == "expect":
            start = text.rfind("expect", 0, clause.pieces[0].start if clause.pieces else len(text))
            told = of_expectation(clause.pieces, text, known, max(start, 0))
            if told is not None:
                yield told
        elif clause.word == "given":
            yield from of_given(clause, known)
        elif clause.pieces:
            yield from of_head(clause, known)


def _plain_words(accepts: frozenset[str]) -> str:
    if "GIVEN" in accepts:
        return "an attribute, `given`, `expect` or the next statement"
    return "an attribute" if "NAME" in accepts and "LABEL" in accepts else ""


# ---- the place where reading stopped


def _head(at: Place) -> Refusal | None:
    """The word in column 1 and its colon."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.match(r"([A-Za-z_]+)([ \t]*)(:?)[ \t]*", bare)
    if found is None:
        return None if start else _no_word(text, met)
    word = found.group(1)
    if word not in HEADS:
        return _unknown_head(word, text)
    if word == "use" or start > found.end():
        return None
    return _head_value(word, _line(text, bare, start), start)


def _no_word(text: str, met: str) -> Refusal:
    """`}` and `})` in column 1, or any other sign."""
    line = text[: line_end(text, 0)].rstrip()
    if re.fullmatch(r"[\s})\];,]+", line) is None:
        return refuse(0, 1, "P004", f"a statement does not start with `{met}`")
    message = "nothing is closed here: what belongs to a test is indented below it"
    return Refusal("P004", message, 0, len(line), helps=(f"leave `{line}` out",), fix="")


def _of_no_test(word: str, *, below: bool) -> Refusal:
    """`given` or `expect` in column 1, below a test or above all of them."""
    message = f"`{word}` belongs into a test"
    help_ = f"indent it under its test:   {word} ..."
    fix = "  "
    if not below:
        help_, fix = 'write above it  test: "what must hold"', 'test: "what must hold"\n  '
    return Refusal("P012", message, 0, len(word), helps=(help_,), fix=fix, fix_at=(0, 0))


def _line(text: str, bare: str, start: int) -> str:
    """Returns the rest of a line as written, without its comment."""
    return text[start : start + len(bare[start:].split("\n", 1)[0].rstrip())].strip()


def _unknown_head(word: str, text: str) -> Refusal:
    line = text[: line_end(text, 0)]
    name = re.match(r"param[ \t]+(\w+)[ \t]*(?::[^=]*)?=[ \t]*([^#\n]+)", line)
    if name is not None:
        given = f"{name[1]} = {name[2].strip()}"
        return refuse(
            0, len(line.rstrip()), "P004", "a parameter is given to its policy, or in a test",
            f"write  use NAME ({given})   or   given param {given}",
        )  # fmt: skip
    if word != "policy" and (word in STATEMENTS or word in DECLARATIONS or word == "applies"):
        return refuse(
            0, len(word), "P004", f"`{word}` belongs into a policy, not into a test of one",
            "name the policy to test:  use NAME",
        )  # fmt: skip
    message = f"a test file has no statement `{word}`"
    meant_word = _HEADS.get(word.lower())
    if meant_word == "test":
        return _other_test(message, text)
    if meant_word == "use":
        return _other_use(message, word, text)
    if word.lower() in ("pod", "pods"):
        helps = (
            "in a test write  given pod name p",
            "pods that are there for all tests:  running: on NODE   or   pending:",
        )
        return refuse(0, len(word), "P004", message, *helps)
    longer = [one for one in HEADS if one.startswith(word.lower()) and len(word) > 2]  # noqa: PLR2004 - `no` is many words
    near = meant_word or (longer[0] if longer else closest(word, HEADS))
    if near is None:
        return refuse(0, len(word), "P004", message, f"a test file has {listed(HEADS)}")
    help_ = f"did you mean `{near}`?"
    return Refusal("P004", message, 0, len(word), helps=(help_,), fix=near)


def _other_test(message: str, text: str) -> Refusal:
    """`it("t", () => {`, `def test_nginx():`, `Scenario: t`."""
    line = text[: line_end(text, 0)].rstrip()
    name = re.search(r"\"([^\"]*)\"|'([^']*)'", line)
    said = next((one for one in (name[1], name[2]) if one), "") if name is not None else ""
    if not said:
        said = re.sub(r"\A\w+[\s:(]*|[\s(){}:;=>,]+\Z", "", line)
        said = re.sub(r"\A[Tt]est_?", "", said).replace("_", " ").strip() or "what must hold"
    better = f'test: "{said}"'
    return Refusal("P004", message, 0, len(line), helps=(f"write  {better}",), fix=better)


def _other_use(message: str, word: str, text: str) -> Refusal:
    """`import p`, `policy: "p"`."""
    line = text[: line_end(text, 0)].split("#")[0].rstrip()
    name = re.fullmatch(r"\w+[\s:(=]*[\"']?(?:[\w.-]*/)*([\w-]+?)(?:\.policy)?[\"';)]*", line)
    better = f"use {name[1]}" if name is not None else "use NAME"
    return Refusal(
        "P004", message, 0, len(line) if name is not None else len(word),
        helps=(f"write  {better}",), fix=better if name is not None else None,
    )  # fmt: skip


def _head_value(word: str, first: str, start: int) -> Refusal | None:
    """What stands right behind the colon."""
    end = start + max(len(first.split(maxsplit=1)[0]) if first else 0, 1)
    if word == "test":
        help_ = 'write  test: "what must hold"'
        return refuse(start, end, "P009", "a test needs a name in quotes", help_)
    if word in UNNAMED:
        return None
    help_ = f"write  {word}: NAME cpu 4" if word == "node" else f"write  {word}: NAME ..."
    return refuse(start, end, "P009", f"`{word}` needs a name", help_)


def _own_line(at: Place) -> Refusal | None:
    """An indented line that starts like a statement."""
    bare, start = at.bare, at.start
    line = bare.rfind("\n", 0, start + 1) + 1
    found = re.compile(r"[ \t]+([A-Za-z]+)[ \t]*:").match(bare, line)
    if found is None or line == 0 or start > found.end() or found.group(1) not in HEADS:
        return None
    word = found.group(1)
    of_test = bare.startswith("test")
    if word in GIVEN:
        help_ = f"in a test write  given {word} ...; for all tests remove the leading spaces"
    else:
        help_ = "remove the leading spaces"
    fix, fix_at = "", (line, found.start(1))
    if of_test and word in GIVEN:
        fix, fix_at = f"given {word}", found.span()
        fix_at = found.start(1), found.end()
    return Refusal(
        "P012", "this line is indented, so it continues the", found.start(1), found.end(1),
        label="a new statement starts in column 1", helps=(help_,), fix=fix, fix_at=fix_at,
        continues=re.split(r"\W", bare, maxsplit=1)[0],
    )  # fmt: skip


def _clause_word(at: Place) -> Refusal | None:
    """What follows `given` and `expect`, and words that should be one of them."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    if before.endswith("given") and "POD" in accepts:
        return no_given(start, met)
    if before.endswith("expect") and "ERROR" in accepts:
        end = start + max(len(met), 1)
        what = f"`{met}` is not something to expect" if met else "nothing follows `expect`"
        return refuse(start, end, "P009", what, f"a test expects {listed(EXPECTATIONS)}")
    line = bare.rfind("\n", 0, start) + 1
    first = re.compile(r"[ \t]+(\w+)").match(bare, line)
    if first is not None and line and first.group(1) not in ("given", "expect", *KEYED):
        near = closest(first.group(1), ("given", "expect"))
        if near is not None:
            what = f"`{first.group(1)}` does not fit here"
            return Refusal(
                "P001", what, *first.span(1), helps=(f"did you mean `{near}`?",), fix=near
            )
    return None


def _needs_quotes(at: Place) -> Refusal | None:
    """`image nginx:1.25`, `created 2025-03-01T10:00:00Z`: signs that a bare word cannot have."""
    bare, start = at.bare, at.start
    if not start or bare[start - 1].isspace() or bare[start] in '\n,[]()="':
        return None
    found = re.search(r"[^\s=\[\],()\"]*\Z", bare[:start])
    head = found.group() if found else ""
    tail = re.compile(r"[^\s,\[\]()]*").match(bare, start)
    word = head + (tail.group() if tail else "")
    if not head or re.fullmatch(r"[\w.-]+:", word) or is_word(word):
        return None
    begin = start - len(head)
    return Refusal(
        "P001", f"`{word}` needs quotes", begin, begin + len(word), helps=(f'write  "{word}"',),
        fix=quoted(word),
    )  # fmt: skip


def _missing_value(at: Place) -> Refusal | None:
    """An attribute or an expectation without its value."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    last = re.search(r"([A-Za-z_]\w*)\Z", before)
    if last is None or not accepts & _VALUES or "NAME" in accepts:
        return None
    if met and re.match(r"[\w\"'\[(]", met):
        return None
    word = last.group(1)
    if word in HEADS and bare.startswith(word):
        return None
    write = f"{word} KEY=VALUE" if word in KEYED else f"{word} VALUE"
    if word in EXPECTATIONS and re.search(rf"\bexpect[ \t]+{word}\Z", before):
        write = f"expect {EXPECTATIONS[word].example}"
    return refuse(
        last.start(1), last.end(1), "P009", f"nothing follows `{word}`", f"write  {write}"
    )


_CHECKS: Final = (_head, _clause_word, _needs_quotes, _missing_value)
