"""What a line of a test file starts with, up to the name of what it is about.

Makes the right beginning and compares it with what is written; attributes are read elsewhere.
"""

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.fixtures import of_attributes
from dsl.parser.complaints.pieces import Beside, Change, Clause, Piece, better_text
from dsl.parser.complaints.values import SAMPLE, binary, is_word, meant
from dsl.parser.refusal import Refusal
from dsl.parser.tests import listed, no_given
from dsl.parser.testwords import ATTRIBUTES, DEFAULT_NOW, GIVEN, HEADS, KEYED, TIME, UNNAMED
from dsl.spelling import closest

_GIVES: Final = MappingProxyType(
    {
        **dict.fromkeys(("time", "date", "clock"), "now"),
        **dict.fromkeys(("parameter", "parameters", "params", "arg"), "param"),
        **dict.fromkeys(("bound", "placed", "scheduled"), "running"),
        **dict.fromkeys(("queued", "waiting"), "pending"),
        **dict.fromkeys(("completed", "succeeded", "failed"), "finished"),
        **dict.fromkeys(("host", "machine"), "node"),
        **dict.fromkeys(("podgroup", "gang"), "group"),
        **dict.fromkeys(("deployment",), "workload"),
    }
)
_FILLERS: Final = frozenset({":", "a", "an", "the", "that", "there", "is", "=", "one", "some"})
_ON: Final = frozenset({"on", "at", "in", "node", "upon"})

# ---- what a line starts with


def of_head(clause: Clause, known: Beside) -> Iterator[Refusal]:
    """Yields what is wrong with the first line of a statement."""
    pieces, text = clause.pieces, clause.text
    word = pieces[0].text
    if word == "use":
        told = _use(pieces, text)
        if told is not None:
            yield told
    elif word == "test":
        size = next((at for at, one in enumerate(pieces) if at and one.fresh), len(pieces))
        told = _test(pieces[:size], text)
        if told is not None:
            yield told
        below = pieces[size] if size < len(pieces) else None
        if below is not None and below.text in HEADS and below.text not in GIVEN:
            message = f"`{below.text}` stands above the tests, in column 1"
            yield Refusal("P012", message, below.start, below.end, helps=("move the line up",))
    elif word in HEADS:
        yield from _fixture(word, [word, ":"], 1, pieces, text, known)


def of_given(clause: Clause, known: Beside) -> Iterator[Refusal]:
    """Yields what is wrong with a `given`."""
    pieces, text = clause.pieces, clause.text
    at = 0
    while at < len(pieces) - 1 and pieces[at].text.lower() in _FILLERS:
        if pieces[at].text in known.nodes and pieces[at + 1].text in ATTRIBUTES["node"]:
            break
        at += 1
    if not pieces:
        start = max(text.rfind("given"), 0)
        help_ = "write  given pod name p"
        yield Refusal(
            "P001", "nothing follows `given`", start, start + len("given"), helps=(help_,)
        )
    if not pieces or pieces[at].kind != "word":
        return
    one = pieces[at]
    kind = one.text if one.text in GIVEN else _kind_of_given(one.text)
    behind = pieces[at + 1] if at + 1 < len(pieces) else None
    if kind is None:
        yield _no_kind(pieces[at:], known)
        return
    if behind is not None and behind.text == "=" and kind not in ("now", "param"):
        yield _as_param(pieces[at:])
        return
    yield from _fixture(kind, [kind], at + 1, pieces, text, known)


def _kind_of_given(word: str) -> str | None:
    low = word.lower()
    return _GIVES.get(low) or closest(low, GIVEN)


def _no_kind(pieces: Sequence[Piece], known: Beside) -> Refusal:
    one = pieces[0]
    behind = pieces[1] if pieces[1:] else None
    if behind is not None and behind.text == "=" and pieces[2:]:
        return _as_param(pieces)
    told = no_given(one.start, one.text)
    better = ""
    if one.text.isdecimal() and behind is not None and behind.text in ("pod", "pods"):
        better = f"pod count {one.text}"
        return Refusal(
            told.code, told.message, one.start, behind.end, helps=(f"write  {better}",), fix=better
        )
    if one.text in known.nodes:
        better = f"node {one.text}"
    elif behind is not None and behind.text in ATTRIBUTES["pod"] and is_word(one.text):
        better = f"pod name {one.text}"
    elif one.text in ATTRIBUTES["pod"] and behind is not None:
        better = f"pod {one.text}"
    if not better:
        return told
    return Refusal(
        told.code, told.message, one.start, one.end, helps=(f"write  {better}",), fix=better
    )


def _as_param(pieces: Sequence[Piece]) -> Refusal:
    one, end = pieces[0], pieces[min(2, len(pieces) - 1)].end
    value = pieces[2].text if pieces[2:] else "VALUE"
    better = f"param {one.text.lstrip('$')} = {value}"
    message = f"there is no `given {one.text}`"
    return Refusal(
        "P001", message, one.start, end, helps=(f"write  {better}",),
        fix=better if pieces[2:] else None,
    )  # fmt: skip


def _fixture(
    kind: str, front: list[str], at: int, pieces: Sequence[Piece], text: str, known: Beside
) -> Iterator[Refusal]:
    """The head of a fixture, up to its name, then its attributes.

    Args:
        kind: what the fixture is.
        front: what stands before its name as it should be.
        at: how many pieces of the front are read.
        pieces: all of the fixture.
        text: the statement.
        known: what the file says besides.
    """
    while at < len(pieces) and pieces[at].text in (":", "=", "=="):
        at += 1
    if kind in ("now", "metric", "param"):
        told = _SPECIAL[kind](front, at, pieces, text, known)
        if told is not None:
            yield told
        return
    used, names, gone = _names(kind, at, pieces, known)
    if used < 0:
        yield _nameless(kind, front, pieces, at)
        return
    several = [] if kind in UNNAMED else names
    if len(several) > 1:
        yield _one_a_line(front, pieces, used, several)
        return
    on = ["on"] if kind in ("running", "finished") else []
    wanted = [*front, *on, *several, *gone]
    better = better_text(pieces[:used], wanted)
    if better is not None:
        yield _of_front(kind, front, pieces[:used], better, text)
    yield from of_attributes(kind, pieces[used:], text, known)


def _of_front(
    kind: str, front: list[str], pieces: Sequence[Piece], change: Change, text: str
) -> Refusal:
    words = [one.text for one in pieces]
    colon = front[-1] == ":"
    extra = next((one for one in words if one not in front), words[0])
    extra = extra if change.better else text[change.start : change.end]
    code, message = "P001", f"`{extra}` does not fit here"
    if colon and words[1:2] != [":"]:
        code, message = "P005", f"`{kind}` needs a colon"
    elif not colon and ":" in words:
        message = "no `:` stands behind `given` and what is given"
    elif kind in ("running", "finished") and "on" not in words:
        code, message = "P009", f"`{kind}` says on which node the pod is"
    elif kind in ("running", "finished") and words.index("on") > len(front):
        message = f"`{kind}` says first on which node the pod is"
    elif any(one.kind == "text" for one in pieces):
        message = f"the name of a `{kind}` is written without quotes"
    elif "name" in words:
        message = f"the name of a `{kind}` stands right behind {'its colon' if colon else 'it'}"
    elif kind not in words:
        message = f"there is no `given {extra}`"
    return change.refusal(code, message, text)


def _names(
    kind: str, at: int, pieces: Sequence[Piece], known: Beside
) -> tuple[int, list[str], list[str]]:
    """Returns where the attributes start, the names before, and attributes that stand too early.

    -1 where no name is known.
    """
    if kind in UNNAMED:
        return at, [], []
    gone: list[str] = []
    if kind in ("running", "finished"):
        at, gone = _place(at, pieces, known)
        if at < 0:
            return -1, [], []
    if _is(pieces, at, "name") and at + 1 < len(pieces):
        behind = pieces[at + 1]
        skip = 2 if behind.text in (":", "=") else 1
        if at + skip < len(pieces) and pieces[at + skip].text not in ATTRIBUTES[kind]:
            at += skip
    if at >= len(pieces) or pieces[at].kind == "sign" or not is_word(pieces[at].plain):
        return -1, [], []
    if _no_name(kind, at, pieces):
        return -1, [], []
    names = [pieces[at].plain]
    at += 1
    while _is(pieces, at, ",", "and") and at + 1 < len(pieces) and (
        pieces[at + 1].text not in ATTRIBUTES[kind] and is_word(pieces[at + 1].plain)
    ):  # fmt: skip
        names.append(pieces[at + 1].plain)
        at += 2
    if len(names) == 1 and _is(pieces, at, ":", ",", "with", "has"):
        at += 1
    return at, names, gone


def _is(pieces: Sequence[Piece], at: int, *words: str) -> bool:
    return at < len(pieces) and pieces[at].text in words


def _no_name(kind: str, at: int, pieces: Sequence[Piece]) -> bool:
    """`node: cpu 4`: an attribute where the name should be."""
    one = pieces[at]
    behind = pieces[at + 1] if at + 1 < len(pieces) else None
    if one.kind == "text" or one.text not in ATTRIBUTES[kind] or behind is None or behind.fresh:
        return False
    return behind.text in ("=", ":") or (
        behind.kind != "sign" and behind.text not in ATTRIBUTES[kind]
    )


def _place(at: int, pieces: Sequence[Piece], known: Beside) -> tuple[int, list[str]]:
    """Steps over `on`, and over what stands before it by mistake; -1 where no node is told."""
    if at < len(pieces) and pieces[at].text in _ON and at + 1 < len(pieces):
        return at + 1, []
    for ahead in (1, 2):
        if _is(pieces, at + ahead, "on") and at + ahead + 1 < len(pieces):
            # `running: web on a`: the name stands behind the node.
            words = [
                one.plain for one in pieces[at : at + ahead] if one.text not in ("name", "pod")
            ]
            return at + ahead + 1, ["name", *words]
    if at < len(pieces) and pieces[at].text in known.nodes:
        return at, []
    return -1, []


def _nameless(kind: str, front: list[str], pieces: Sequence[Piece], at: int) -> Refusal:
    one = pieces[min(at, len(pieces) - 1)]
    if at >= len(pieces):
        one = one._replace(start=one.end, end=one.end + 1)
    write = " ".join([*front, ""]).replace(" :", ":").strip()
    if front[-1] != ":":
        write = f"given {write}"
    if kind in ("running", "finished"):
        help_ = f"write  {write} on NODE name web"
        return Refusal(
            "P009", f"`{kind}` says on which node the pod is", one.start, one.end, helps=(help_,)
        )
    rest = " ".join(two.text for two in pieces[at : at + 2]) if at + 1 < len(pieces) else ""
    rest = rest if one.text in ATTRIBUTES[kind] and one.text not in KEYED else ""
    rest = rest.replace("=", "VALUE").replace(":", "VALUE")
    default = "cpu 4" if kind == "node" else "..."
    message = f"`{kind}` needs a name"
    if one.text in ATTRIBUTES[kind]:
        message += " first"
    help_ = f"write  {write} NAME {rest or default}"
    return Refusal("P009", message, one.start, one.end, helps=(help_,))


def _one_a_line(
    front: list[str], pieces: Sequence[Piece], used: int, names: Sequence[str]
) -> Refusal:
    """`node: a, b  cpu 4`."""
    start, end = pieces[0].start, pieces[used - 1].end
    first = next(one for one in pieces[1:] if one.plain == names[0])
    if used < len(pieces) or front[-1] != ":":
        helps = (f"write a line for each of {listed(names)}",)
        fix = None
    else:
        helps = (f"write a line for each:  {front[0]}: {names[0]}",)
        fix = "\n".join(f"{front[0]}: {name}" for name in names)
    message = f"a `{front[0]}` line is about one"
    return Refusal("P001", message, first.start, end, helps=helps, fix=fix, fix_at=(start, end))


# ---- now, metric, param, use, test


def _now(
    front: list[str], at: int, pieces: Sequence[Piece], text: str, known: Beside
) -> Refusal | None:
    rest = pieces[at:]
    write = f"{front[0]}: " if front[-1] == ":" else f"given {front[0]} "
    if not rest:
        one = pieces[-1]
        help_ = f'write  {write}"{DEFAULT_NOW}"'
        return Refusal("P001", "the time stands in quotes", one.start, one.end, helps=(help_,))
    said = " ".join(one.plain for one in rest)
    better = meant(TIME, "now", said, known.now)
    if better is None:
        help_ = f'write  "{DEFAULT_NOW}"'
        code, message = "P702", "this is not a time"
        if rest[0].kind != "text":
            code, message, help_ = "P001", "the time stands in quotes", f'write  "{DEFAULT_NOW}"'
        return Refusal(code, message, rest[0].start, rest[-1].end, helps=(help_,))
    if rest[0].kind == "text" and not rest[1:] and better.strip('"') == rest[0].plain:
        better = rest[0].text
    found = better_text(pieces, [*front, better])
    if found is None:
        return None
    message = "the time stands in quotes"
    if front[-1] == ":" and pieces[1].text != ":":
        return found.refusal("P005", f"`{front[0]}` needs a colon", text)
    if rest[0].kind == "text":
        message = "this is not a time" if better.strip('"') != rest[0].plain else (
            f"`{pieces[0].text}` does not fit here"
        )  # fmt: skip
    elif not any(one.text == front[0] for one in pieces[:at]):
        message = f"there is no `given {pieces[at - 1].text}`"
    return found.refusal("P001" if rest[0].kind != "text" else "P702", message, text)


def _metric(
    front: list[str], at: int, pieces: Sequence[Piece], text: str, known: Beside
) -> Refusal | None:
    rest = list(pieces[at:])
    write = f"{front[0]}: " if front[-1] == ":" else f"given {front[0]} "
    if len(rest) < 2 or rest[0].kind != "word":  # noqa: PLR2004 - a name and a value
        one = rest[0] if rest else pieces[-1]
        help_ = f"write  {one.text} = VALUE" if rest else f"write  {write}NAME = VALUE"
        return Refusal("P009", "`metric` needs a name and a value", one.start, one.end,
                       helps=(help_,))  # fmt: skip
    name = rest.pop(0)
    keys: list[str] = []
    if rest[0].text in ("[", "("):
        close = next((n for n, one in enumerate(rest) if one.text in ("]", ")")), -1)
        names = [one.text for one in rest[1:close] if one.kind != "sign"]
        keys = ["[", *[part for one in names for part in (one, ",")][:-1], "]"]
        rest = rest[close + 1 :] if close > 0 else []
    while len(rest) > 1 and rest[0].text in ("=", "==", ":", "is"):
        del rest[0]
    if not rest or rest[0].kind == "sign":
        one = pieces[-1]
        shown = " ".join([name.text, *keys]).replace("[ ", "[").replace(" ]", "]")
        help_ = f"write  {write}{shown.replace(' ,', ',')} = VALUE"
        return Refusal("P009", f"nothing follows `{one.text}`", one.start, one.end, helps=(help_,))
    value = meant(SAMPLE, name.text, " ".join(one.plain for one in rest), None)
    whose = [one for one in rest if one.text not in ("of", "on", "is", "=", ":", "node")]
    if len(whose) == 2 and whose[0].text in known.nodes:  # noqa: PLR2004 - a node and a value
        start = "node: " if front[-1] == ":" else "node "
        better = f"{start}{whose[0].text} metric {name.text} {whose[1].plain}"
        message = f"the metric `{name.text}` of a node stands with the node"
        fix = None if front[-1] == ":" else better
        return Refusal(
            "P001", message, pieces[0].start, pieces[-1].end, helps=(f"write  {better}",), fix=fix
        )
    if value is None:
        return _no_query(front, pieces, name, rest)
    found = better_text(pieces, [*front, name.text, *keys, "=", value])
    if found is None or (rest[0].kind == "text" and value == rest[0].plain):
        return None
    message = f"`{write.strip()} {name.text}` needs a `=`"
    code = "P005"
    helps: tuple[str, ...] = ()
    if any(one.text == "=" for one in pieces):
        code, message = "P702", "the value of a metric is a number"
        helps = binary(value)
    if front[-1] == ":" and pieces[1].text != ":":
        code, message = "P005", f"`{front[0]}` needs a colon"
    return found.refusal(code, message, text, *helps)


def _no_query(
    front: list[str], pieces: Sequence[Piece], name: Piece, rest: Sequence[Piece]
) -> Refusal | None:
    """`metric heat = promql "..."`: a test gives values."""
    if rest[0].text not in ("promql", "annotation", "usage", "object", "avg", "sum", "rate"):
        return None
    if front[-1] == ":" and pieces[1].text != ":":
        help_ = f"write  metric: {name.text} = VALUE   (the query stands in the policy)"
        message = "`metric` needs a colon"
        return Refusal("P005", message, pieces[0].start, pieces[0].end, helps=(help_,))
    help_ = f"write  {name.text} = VALUE   (the query stands in the policy)"
    message = "the value of a metric is a number"
    return Refusal("P702", message, name.start, rest[-1].end, helps=(help_,))


def _param(
    front: list[str], at: int, pieces: Sequence[Piece], text: str, _known: Beside
) -> Refusal | None:
    rest = [one for one in pieces[at:] if one.text not in (":", "==", "is", "to")]
    if any(one.text == "=" for one in rest[1:2]) and len(rest) == len(pieces[at:]):
        found = better_text(pieces[:at], front)
    elif len(rest) == 2:  # noqa: PLR2004 - a name and a value
        found = better_text(pieces, [*front, rest[0].text, "=", rest[1].text])
    else:
        return None
    if found is None:
        return None
    message = f"there is no `given {pieces[0].text}`"
    if pieces[at - 1].text == front[0]:
        message = f"`param {rest[0].text}` needs a `=`"
    return found.refusal("P001", message, text)


_SPECIAL: Final = MappingProxyType({"now": _now, "metric": _metric, "param": _param})


def _use(pieces: Sequence[Piece], text: str) -> Refusal | None:
    """`use: p`, `use p limit=2`, `use p (limit: 2)`, `use "p"`."""
    rest = [one for one in pieces[1:] if one.text not in (":", "=", "==")]
    rest = rest[1:] if rest and rest[0].text in ("policy", "the") and rest[1:] else rest
    if not rest:
        return None
    if len(rest) > 2 and rest[1].text == ",":  # noqa: PLR2004 - a name, a comma and a name
        better = f"\nuse {rest[2].plain}"
        help_ = f"write a line for each:  use {rest[2].plain}"
        message = "a `use` is about one policy"
        return Refusal("P001", message, rest[1].start, rest[2].end, helps=(help_,), fix=better)
    if rest[0].kind == "sign":
        return None
    name = re.sub(r"\A(?:\.{0,2}/)*(?:.*/)?|\.policy\Z", "", rest[0].plain)
    if not is_word(name):
        return None
    taken = _arguments(rest[1:])
    if taken is None:
        return None
    args, tail = taken
    wanted = ["use", name, *(["(", *args, ")"] if args else []), *tail]
    found = better_text(pieces, wanted)
    if found is None:
        return None
    message = "no `:` stands between `use` and its policy"
    if pieces[1].text != ":":
        message = "the parameters of a policy stand in brackets, each with a `=`"
        message = message if args else f"`{pieces[1].text}` is no name of a policy"
        if not found.better:
            message = f"`{text[found.start : found.end]}` does not fit here"
    return found.refusal("P001", message, text)


def _arguments(rest: Sequence[Piece]) -> tuple[list[str], list[str]] | None:
    """Returns the parameters of a `use` and what stands behind them, as both should be."""
    args: list[str] = []
    tail: list[str] = []
    words = [one for one in rest if one.text not in ("(", ")", ",", "with", "and")]
    while words:
        one = words.pop(0)
        if one.text in ("as", "weight") and words:
            tail += [one.text, words.pop(0).text]
        elif one.kind == "word" and words and words[0].text not in ("[", "{"):
            args += [*([","] if args else []), one.text, "=", words.pop(0).text]
        else:
            return None
    return args, tail


def _test(pieces: Sequence[Piece], text: str) -> Refusal | None:
    """`test "t"`, `test: t`, `test("t"):`."""
    rest = [one for one in pieces[1:] if one.text not in (":", "(", ")", "{", "=")]
    texts = [one for one in rest if one.kind == "text"]
    if len(texts) == 1 and len(rest) == 1:
        found = better_text(pieces, ["test", ":", texts[0].text])
        if found is None:
            return None
        colon = pieces[1].text == ":"
        code = "P001" if colon else "P005"
        message = "a test is its name and what stands below" if colon else "`test` needs a colon"
        return found.refusal(code, message, text)
    line = [one for one in rest if not one.fresh and one.start < line_end(text, 0)]
    if not line or texts:
        return None
    start, end = line[0].start, line[-1].end
    better = f'"{text[start:end].strip()}"'
    if pieces[1].text != ":":
        better, start = f"test: {better}", 0
        return Refusal(
            "P005", "`test` needs a colon", 0, _to_colon(pieces, end), helps=(f"write  {better}",),
            fix=better,
        )  # fmt: skip
    return Refusal(
        "P009", "a test needs a name in quotes", start, _to_colon(pieces, end),
        helps=(f"write  {better}",), fix=better,
    )  # fmt: skip


def line_end(text: str, start: int) -> int:
    """Returns where the line around a place ends."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _to_colon(pieces: Sequence[Piece], end: int) -> int:
    """Returns the end of the line's last piece where that is a colon or a bracket too many."""
    last = [one.end for one in pieces if one.text in (":", "{", ")") and not one.fresh]
    return max([end, *last])
