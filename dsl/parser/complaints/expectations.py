"""What a test expects, as it should be written: the words of other tools, and the signs too many.

Makes the right text of a line and compares it with what is written, so that the smallest stretch
is replaced. Knows no cluster but the names that the file gives.
"""

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from dsl.functions import parse_number
from dsl.parser.complaints.pieces import Beside, Piece, better_text
from dsl.parser.complaints.values import is_word
from dsl.parser.refusal import Refusal
from dsl.parser.testwords import EXPECTATIONS, Shape
from dsl.spelling import closest
from dsl.types import is_missing

#: Words for what is expected that others use, and how it is written here; `*` is what follows.
_MEANT: Final = MappingProxyType(
    {
        **dict.fromkeys(("infeasible", "unfeasible", "denied", "forbidden", "filtered",
                         "excluded", "unfit", "refused", "blocked", "reject", "rejects",
                         "denies", "deny", "impossible"), "rejected"),
        **dict.fromkeys(("schedulable", "allowed", "accepted", "fits", "fit", "nodes", "possible",
                         "accepts", "passes", "pass", "candidates", "eligible"), "feasible"),
        **dict.fromkeys(("chosen", "placed", "scheduled", "winner", "node", "bound", "wins", "win",
                         "selected", "picked", "lands",
                         "land", "top", "highest"), "best"),
        **dict.fromkeys(("preempted", "evicted", "evict", "preempt", "evicts", "preempts",
                         "victim"), "victims"),
        **dict.fromkeys(("nominates", "nomination"), "nominated"),
        **dict.fromkeys(("held", "hold", "holds"), "gated"),
        **dict.fromkeys(("scores", "scored", "points"), "score"),
        **dict.fromkeys(("sequence", "queue", "sorted", "ordered"), "order"),
        **dict.fromkeys(("event",), "events"),
        **dict.fromkeys(("skips", "skip", "abstains", "ignored"), "skipped"),
        **dict.fromkeys(("annotated", "annotations", "annotate"), "annotation"),
        **dict.fromkeys(("fails", "failure", "errors"), "error"),
    }
)  # fmt: skip
#: Words that say all of it when nothing follows.
_WHOLE: Final = MappingProxyType(
    {
        **dict.fromkeys(("pending", "unschedulable", "nowhere", "unplaced", "stuck"),
                        ("feasible", "none")),
        **dict.fromkeys(("permitted", "permit-allowed"), ("permit", "allow")),
        **dict.fromkeys(("waiting", "waits", "wait"), ("permit", "wait")),
        **dict.fromkeys(("none", "nothing", "nobody"), ("feasible", "none")),
        **dict.fromkeys(("allow", "allows"), ("permit", "allow")),
        **dict.fromkeys(("reject", "deny", "unpermitted"), ("permit", "reject")),
    }
)  # fmt: skip
_PERMITS: Final = MappingProxyType(
    {
        **dict.fromkeys(("allowed", "allows", "yes", "true", "granted", "accept", "ok"), "allow"),
        **dict.fromkeys(("rejected", "rejects", "denied", "deny", "no", "false"), "reject"),
        **dict.fromkeys(("waits", "waiting", "waited"), "wait"),
    }
)
_OPPOSITE: Final = MappingProxyType(
    {"feasible": "rejected", "rejected": "feasible", "gated": "ungated", "ungated": "gated"}
)
_ALL: Final = frozenset({"all", "any", "every", "everywhere", "both", "*"})
_NONE: Final = frozenset({"none", "nothing", "nobody", "no", "nowhere", "empty", "null", "-"})
_FILLERS: Final = frozenset(
    {"is", "are", "be", "to", "on", "of", "for", "in", "at", "by", "the", "node", "nodes", "pod",
     "pods", "only", "exactly",
     "->", "=>", "that", "a", "an", "=", "==", ":", "rule", "was", "being", "set",
     "it", "should", "must", "will", "equals", "equal", "about", "around", "as", "has", "gets",
     "get", "from"}
)  # fmt: skip
_BETWEEN_ITEMS: Final = frozenset({",", ";", "and", "or", "<", "then", "before"})
_COMPARED: Final = ("<", ">", "<=", ">=", "!=", "above", "below", "over", "under", "least", "most")
_REASONS: Final = MappingProxyType(
    {
        **dict.fromkeys(("because", "reason", "msg", "saying", "says", "text", "why", "messages",
                         "due"), "message"),
        **dict.fromkeys(("state", "code", "statuscode"), "status"),
    }
)  # fmt: skip
_LINKS: Final = frozenset({",", "with", "and", "of", "to", ":", "=", "==", "is", "as", "by", "the"})
#: So many nodes are offered for a score.
_FEW: Final = 3
_STATUS: Final = ("unschedulable", "unresolvable")
_NAMES: Final = ", ".join([*EXPECTATIONS][:-1]) + f" and {[*EXPECTATIONS][-1]}"


def of_expectation(
    pieces: Sequence[Piece], text: str, beside: Beside, start: int
) -> Refusal | None:
    """Returns what is wrong with an expectation, None where nothing is or nobody knows.

    Args:
        pieces: what stands behind `expect`.
        text: the statement.
        beside: what is known of the rest of the file.
        start: where `expect` starts.
    """
    if not pieces:
        help_ = f"a test expects {_NAMES}"
        end = start + len("expect")
        return Refusal("P009", "nothing follows `expect`", start, end, helps=(help_,))
    return _Reading(pieces, text, beside).refusal()


class _Reading:
    """Reads an expectation generously; `wanted` is how it should be."""

    def __init__(self, pieces: Sequence[Piece], text: str, beside: Beside) -> None:
        self.pieces = list(pieces)
        self.text = text
        self.beside = beside
        self.rest = list(pieces)
        self.wanted: list[str] = []
        #: The first thing that is wrong: code and message.
        self.told: tuple[str, str] | None = None
        self.helps: tuple[str, ...] = ()
        #: What nobody can write for the author.
        self.open: Refusal | None = None

    def refusal(self) -> Refusal | None:
        self._read()
        if self.open is not None:
            return self.open
        found = better_text(self.pieces, self.wanted)
        if found is None or self.told is None:
            return None
        return found.refusal(*self.told, self.text, *self.helps)

    def _tell(self, code: str, message: str) -> None:
        self.told = self.told or (code, message)

    def _stuck(self, span: tuple[int, int], code: str, message: str, *helps: str) -> None:
        if self.open is None:
            code, message = self.told or (code, message)
            self.open = Refusal(code, message, *span, helps=helps)

    @property
    def _last(self) -> int:
        return self.pieces[-1].end

    # ---- the word

    def _read(self) -> None:
        turned = self._lead()
        if not self.rest:
            return
        name = self._name(turned=turned)
        if name is None:
            return
        self.wanted.append(name)
        if self.rest or name in ("error",):
            self._subject(name, EXPECTATIONS[name])
        elif len(self.wanted) == 1:
            self._nothing_follows(name)
        if self.open is None and self.rest:
            self._replies(EXPECTATIONS[name], name)

    def _lead(self) -> bool:
        """Steps over what stands before the word; returns whether a `not` is among it."""
        turned = False
        while self.rest:
            one = self.rest[0]
            low = one.text.lower()
            if one.text in self._names():
                return turned
            if [two.text for two in self.rest] in (["no", "node"], ["no", "nodes"]):
                self._tell("P701", "there is no expectation `no`")
                self.wanted, self.rest = ["feasible", "none"], []
                return False
            if low in ("not", "no", "never") and len(self.rest) > 1:
                turned = not turned
                self._tell("P001", f"there is no `expect {one.text}`")
            elif low in (":", "=", "==") or (
                low in _FILLERS - {"node", "nodes"} and len(self.rest) > 1
            ):
                self._tell("P001", f"`{one.text}` does not fit here")
            else:
                return turned
            del self.rest[0]
        return turned

    def _name(self, *, turned: bool) -> str | None:
        one = self.rest[0]
        low = one.text.lower()
        later = next(
            (at for at, two in enumerate(self.rest[1:4], 1) if self._is_word(one, two)), None
        )
        if one.text in self.beside.nodes and later is None and self.rest[1:]:
            values = [two for two in self.rest[1:] if two.text not in _LINKS]
            if len(values) == 1 and not is_missing(parse_number(values[0].plain)):
                self._tell("P001", "what is expected of a node is its `score`")
                return "score"
        mine = low not in EXPECTATIONS and (low not in _MEANT or low in ("node", "nodes"))
        if mine and later is not None:
            # `expect a to be feasible`: what it is about stands in front.
            self._tell("P001", f"what is expected stands behind `expect`, before `{one.text}`")
            front = [
                two
                for two in self.rest[:later]
                if two.text.lower() not in _FILLERS or two.text in self._names()
            ]
            if any(two.text in ("not", "never") for two in front):
                turned = not turned
                front = [two for two in front if two.text not in ("not", "never")]
            low = self.rest[later].text.lower()
            low = low if low in EXPECTATIONS else _MEANT[low]
            self.rest = [*front, *self.rest[later + 1 :]]
            return _OPPOSITE.get(low, low) if turned else low
        whole = _WHOLE.get(low)
        if whole is not None and len(self.rest) == 1:
            self._tell("P701", f"there is no expectation `{one.text}`")
            if turned:
                self._stuck((one.start, one.end), "P701", "", "say where:  expect feasible [NODE]")
                return None
            self.rest = []
            self.wanted = [*whole]
            return None
        name = self._known_name(one, low)
        if name is None:
            return None
        del self.rest[0]
        return _OPPOSITE.get(name, name) if turned else name

    def _is_word(self, first: Piece, later: Piece) -> bool:
        """Whether a later word says what is expected; others' words only behind a name."""
        if later.text in EXPECTATIONS:
            return True
        return first.text in self._names() and later.text.lower() in _MEANT

    def _known_name(self, one: Piece, low: str) -> str | None:
        if one.text in EXPECTATIONS:
            return one.text
        name = low if low in EXPECTATIONS else _MEANT.get(low)
        message = f"there is no expectation `{one.text}`"
        if name is None:
            name = closest(one.text, EXPECTATIONS)
        if low in ("message", "because") or one.kind == "text":
            self._stuck(
                (one.start, self._last), "P701", message,
                f"say of which nodes:  rejected [NODE] message {self.rest[-1].text}",
            )  # fmt: skip
            return None
        if name is None:
            known = f"a test expects {_NAMES}"
            if one.text in self.beside.nodes or one.text in ("[", "(", "{"):
                said = self.rest[1] if one.kind == "sign" and self.rest[1:] else one
                known = f"say what of it:  feasible [{said.plain}]   or   best {said.plain}"
            self._stuck((one.start, one.end), "P701", message, known)
            return None
        self._tell("P701", message)
        return name

    def _nothing_follows(self, name: str) -> None:
        one = self.pieces[-1]
        example = self._example(name)
        if name == "rejected" and any(two.text in ("not", "no") for two in self.pieces):
            self.wanted = ["feasible", "none"]
            return
        if name in ("gated", "ungated") and len(self.beside.pods) == 1:
            self._tell("P009", f"nothing follows `{name}`")
            self.wanted.append(self.beside.pods[0])
            return
        start = self.pieces[0].start if self.told is not None else one.start
        self._stuck((start, one.end), "P009", f"nothing follows `{one.text}`", f"write  {example}")

    def _example(self, name: str) -> str:
        """An expectation as it is written, with the names of this file."""
        example = EXPECTATIONS[name].example
        nodes, pods = self.beside.nodes, self.beside.pods
        if nodes and name in ("feasible", "rejected"):
            return f"{name} [{', '.join(nodes[: _FEW - 1 if name == 'feasible' else 1])}]"
        if nodes and name in ("score", "best", "nominated"):
            return re.sub(r"\ba\b", nodes[0], example)
        if pods and name in ("gated", "ungated", "order"):
            return f"order [{', '.join(pods)}]" if name == "order" else f"{name} {pods[0]}"
        return example

    # ---- what it is about

    def _subject(self, name: str, shape: Shape) -> None:
        self._step_over(name)
        if not self.rest:
            self._nothing_follows(name)
        elif shape.listed:
            self._list(name, shape)
        elif name == "score":
            self._score()
        elif name == "annotation":
            self._annotation()
        else:
            self._one(name, shape)

    def _names(self) -> frozenset[str]:
        return frozenset((*self.beside.nodes, *self.beside.pods))

    def _step_over(self, name: str) -> None:
        """Words between an expectation and what it is about, unless something is called so."""
        while len(self.rest) > 1 or (self.rest and self.rest[0].text in ("=", "==", ":")):
            one = self.rest[0]
            low = one.text.lower()
            filler = low in _FILLERS or (name == "unset" and low == "annotation")
            if not filler or one.kind == "text" or one.text in self._names():
                return
            if self.rest[1:] and self.rest[1].text in ("message", "status") and one.kind != "sign":
                return
            self._tell("P001", f"no `{one.text}` stands between `{name}` and what is expected")
            del self.rest[0]

    def _list(self, name: str, shape: Shape) -> None:
        first = self.rest[0]
        low = first.text.lower()
        if first.kind != "sign" and low in _ALL and low not in self._names():
            other = _OPPOSITE.get(name) if name in ("feasible", "rejected") else None
            message = f"`expect {name}` takes a list"
            if other is None or self.rest[1:]:
                self._stuck(
                    (first.start, first.end), "P702", message, f"write  {self._example(name)}"
                )
                return
            self._tell("P702", message)
            del self.rest[0]
            self.wanted = [other, "none"]
            return
        if first.kind != "sign" and low in _NONE and shape.none and low not in self._names():
            del self.rest[0]
            if first.text != "none":
                self._tell("P702", f"`expect {name}` takes a list or `none`")
            self.wanted.append("none")
            return
        words = [one for one in self.rest if one.kind == "word"]
        if name == "events" and words == self.rest and len(words) > 1:
            self._tell("P001", "what an event says stands in quotes, in a list")
            self.rest = []
            self.wanted += ["[", f'"{self.text[words[0].start : words[-1].end]}"', "]"]
            return
        items = self._items(name)
        if items is None:
            return
        self.wanted.extend(items)

    def _items(self, name: str) -> list[str] | None:
        """The names of a list as it should be, its brackets and commas with it."""
        before = list(self.rest)
        opened = self.rest[0].text
        bracket = opened in ("[", "(", "{")
        if bracket:
            del self.rest[0]
        items: list[str] = []
        while self.rest and not (not bracket and self._ends_list(self.rest[0], name, items)):
            one = self.rest.pop(0)
            if bracket and one.text in ("]", ")", "}"):
                break
            if one.text in _BETWEEN_ITEMS and one.text not in self._names():
                continue
            if one.kind == "sign":
                self.open = self.open or Refusal(
                    "P001", f"`{one.text}` does not fit here", one.start, one.end,
                    helps=(f"write  {EXPECTATIONS[name].example}",),
                )  # fmt: skip
                return None
            items.append(one.text if one.kind == "text" or is_word(one.text) else f'"{one.text}"')
        wanted = ["[", *[part for item in items for part in (item, ",")][: 2 * len(items) - 1], "]"]
        if wanted != [one.text for one in before[: len(before) - len(self.rest)]]:
            if opened != "[":
                alone = len(items) == 1 and not bracket
                self._tell("P702" if alone else "P001", "a list stands in brackets")
            self._tell("P001", "items are parted by commas")
        return wanted

    def _ends_list(self, one: Piece, name: str, items: list[str]) -> bool:
        """Whether a list without brackets is over."""
        if one.text in ("message", "status", "with", *_REASONS):
            return True
        return one.kind == "text" and bool(items) and name == "rejected"

    def _one(self, name: str, shape: Shape) -> None:
        first = self.rest.pop(0)
        if first.text in ("[", "(") and len(self.rest) > 1 and self.rest[1].text in ("]", ")"):
            self._tell("P702", f"`expect {name}` takes one name, not a list")
            first = self.rest[0]
            del self.rest[:2]
        if first.kind == "sign":
            self._stuck(
                (first.start, self._last), "P702", f"`expect {name}` takes one name, not a list",
                f"write  {self._example(name)}",
            )  # fmt: skip
            return
        value = first.plain
        if self.rest and self.rest[0].text in (",", "and", "or"):
            message = f"`expect {name}` takes one name, not a list"
            self._stuck((first.start, self._last), "P702", message, f"write  {value}")
            return
        if first.kind == "text":
            self._tell("P001", f"no quotes stand around what `{name}` is about")
        if shape.words and value not in shape.words:
            said = f"{', '.join(shape.words[:-1])} or {shape.words[-1]}"
            self._tell("P702", f"`expect {name}` takes {said}")
            known = _PERMITS.get(value.lower()) or closest(value, shape.words)
            if known is None:
                help_ = f"write  {'   or   '.join(shape.words)}"
                self._stuck((first.start, first.end), "P702", "", help_)
                return
            value = known
        self._valued(name, first, value)

    def _valued(self, name: str, first: Piece, value: str) -> None:
        if name == "error" and re.fullmatch(r"p\d{3}", value):
            self._tell("P702", "the codes of findings start with a large P")
            value = value.upper()
        if name == "skipped":
            value = {"first": "1", "second": "2", "third": "3"}.get(value, value)
            value = re.sub(r"\A#|(?<=\d)(?:st|nd|rd|th)\Z", "", value)
            if value != first.text:
                self._tell("P702", "`expect skipped` takes the number of a rule")
            if not value.isdecimal() or not int(value):
                help_ = "write  1   for the first rule"
                message = "`expect skipped` takes the number of a rule, from 1"
                self._stuck((first.start, first.end), "P702", message, help_)
                return
        if shape_none(name) and value.lower() in _NONE and value not in self._names():
            if value != "none":
                self._tell("P702", f"`expect {name}` takes one name or `none`")
            value = "none"
        self.wanted.append(value)

    def _score(self) -> None:
        """`score a 75`, whatever stands around the two."""
        parts: list[Piece] = []
        while self.rest and self.rest[0].text not in ("message", "status"):
            one = self.rest.pop(0)
            if one.text.lower() in _COMPARED:
                self._tell("P001", "a score is compared with one number, which it equals")
                parts.extend(two for two in self.rest if two.kind == "word")
                node = parts[0].text if parts else "a"
                number = parts[-1].text if parts[1:] else "75"
                help_ = f"write the score itself:  score {node} {number}"
                self._stuck((one.start, one.end), "P001", "", help_)
                return
            if one.kind == "sign" or (
                one.text.lower() in (*_FILLERS, "approximately", "ca", "~")
                and one.text not in self._names()
            ):
                what = f"no `{one.text}` stands before the value expected"
                self._tell("P001", what)
                continue
            parts.append(one)
        self._node_and_score(parts)

    def _node_and_score(self, parts: list[Piece]) -> None:
        numbers = [one for one in parts if not is_missing(parse_number(one.plain.lstrip("~")))]
        nodes = [one for one in parts if one not in numbers or one.text in self.beside.nodes]
        numbers = [one for one in numbers if one not in nodes]
        given = all(one.text in self.beside.nodes for one in nodes)
        if given and len(nodes) > 1 and parts == [two for pair in zip(nodes, numbers, strict=False)
                                        for two in pair]:  # fmt: skip
            lines = [
                f"score {node.plain} {one.plain}" for node, one in zip(nodes, numbers, strict=True)
            ]
            self.open = Refusal(
                "P001", "each score has a line of its own", parts[0].start, parts[-1].end,
                helps=(f"write a line for each:  expect {lines[0]}",),
                fix="\n  expect ".join(lines).removeprefix("score "),
            )  # fmt: skip
            return
        if len(nodes) != 1 or len(numbers) != 1:
            value = numbers[0].plain if numbers else "75"
            one = [nodes[0].plain] if nodes else list(self.beside.nodes[:_FEW]) or ["NODE"]
            if parts[1:] and parts[0].text in self.beside.nodes and not numbers:
                span = parts[1].start, parts[-1].end
                help_ = "write a number, for example  75"
                self._stuck(span, "P702", "`expect score` takes a number", help_)
                return
            span = (parts[0].start, parts[-1].end) if parts else (self._last - 1, self._last)
            help_ = f"write  {'   or   '.join(f'{node} {value}' for node in one)}"
            self._stuck(span, *self._what_score(nodes, numbers), help_)
            return
        number = numbers[0].plain.lstrip("~")
        if number != numbers[0].plain:
            self._tell("P001", "a score is compared with one number, which it equals")
        if parts.index(nodes[0]):
            self._tell("P001", "the node stands in front of its score")
        if number.endswith("%"):
            share = f"{float(number[:-1]) / 100:g}"
            self.told = "P702", f"a score is a number from 0 to 100; `{number}` is {share}"
            number = number[:-1]
        self.wanted += [nodes[0].plain, number]

    @staticmethod
    def _what_score(nodes: list[Piece], numbers: list[Piece]) -> tuple[str, str]:
        if nodes and not numbers and len(nodes) > 1:
            return "P702", "`expect score` takes a number"
        return "P702", "`expect score` takes two values"

    def _annotation(self) -> None:
        key = self.rest.pop(0)
        if key.kind == "sign":
            self._stuck((key.start, self._last), "P001", f"`{key.text}` does not fit here",
                        f"write  {EXPECTATIONS['annotation'].example}")  # fmt: skip
            return
        split = re.fullmatch(r"([^:=]+):(.+)", key.text)
        self.wanted.append(key.plain if split is None else split[1])
        if key.kind == "text":
            self._tell("P001", "no quotes stand around the key of an annotation")
        if split is not None:
            self._tell("P001", "no `:` stands before the value expected")
            self.wanted.append(split[2])
            return
        while len(self.rest) > 1 and self.rest[0].text.lower() in _FILLERS:
            self._tell("P001", f"no `{self.rest[0].text}` stands before the value expected")
            del self.rest[0]
        if not self.rest:
            span = self.pieces[0].start, self._last
            help_ = f"write  annotation {key.plain} VALUE"
            self._stuck(span, "P702", "`expect annotation` takes two values", help_)
            return
        value = self.rest.pop(0)
        if value.kind == "word" and not is_word(value.text):
            self._tell("P001", f"`{value.text}` needs quotes")
            self.wanted.append(f'"{value.text}"')
        else:
            self.wanted.append(value.text)

    # ---- message and status

    def _replies(self, shape: Shape, name: str) -> None:
        while self.rest and self.open is None:
            one = self.rest.pop(0)
            low = one.text.lower()
            if low in (",", "and") and self.rest and self.rest[0].text in EXPECTATIONS:
                self._two(one, self.rest[0].start)
                return
            if one.text in EXPECTATIONS and self.rest:
                self._two(one, one.start)
                return
            word = low if low in ("message", "status") else _REASONS.get(low)
            if (
                word is None
                and self.rest
                and closest(low, ("message", "status"))
                and one.kind == "word"
            ):
                word = closest(low, ("message", "status"))
            if one.kind == "text" and shape.message:
                self._tell("P001", "what is said stands behind `message`")
                self.wanted += ["message", one.text]
                continue
            if word is None and low in _LINKS and self.rest:
                self._tell("P001", f"`{one.text}` does not fit here")
                continue
            if word is None and low in _STATUS and shape.status:
                self._tell("P001", "how a node is rejected stands behind `status`")
                self.wanted += ["status", low]
                continue
            if word is None or not (shape.message if word == "message" else shape.status):
                self._too_much(one, word, shape, name)
                return
            if one.text != word:
                self._tell("P001", f"`{one.text}` does not fit here")
            self._reply(one, word)

    def _two(self, one: Piece, behind: int) -> None:
        """`feasible [a] and rejected [b]`."""
        help_ = f"write below it  expect {self.text[behind : self._last]}"
        self.open = Refusal(
            "P001", "each expectation has a line of its own", one.start, one.end, helps=(help_,),
            fix="\n  expect ", fix_at=(self._before(one), behind),
        )  # fmt: skip

    def _before(self, one: Piece) -> int:
        """Returns where the piece before ends."""
        return self.pieces[self.pieces.index(one) - 1].end

    def _too_much(self, one: Piece, word: str | None, shape: Shape, name: str) -> None:
        end = self._last
        if word is not None:
            owners = [other for other, its in EXPECTATIONS.items()
                      if (its.message if word == "message" else its.status)]  # fmt: skip
            message = f"`expect {name}` has no {word}"
            self._stuck((one.start, end), "P702", message, f"`{word}` is for {', '.join(owners)}")
            return
        self.told = None
        takes = "two values" if shape.valued else "a list" if shape.listed else "one value"
        self._stuck(
            (one.start, one.end), "P702", f"`expect {name}` takes {takes}",
            f"leave `{one.text}` out",
        )  # fmt: skip

    def _reply(self, one: Piece, word: str) -> None:
        while len(self.rest) > 1 and self.rest[0].text.lower() in _LINKS:
            self._tell("P001", f"no `{self.rest[0].text}` stands behind `{word}`")
            del self.rest[0]
        if not self.rest:
            self._stuck((one.start, one.end), "P009", f"nothing follows `{one.text}`",
                        f"write  {word} {_EXAMPLE[word]}")  # fmt: skip
            return
        first = self.rest.pop(0)
        if word == "status":
            low = first.plain.lower()
            known = next((two for two in reversed(_STATUS) if low.endswith(two)), None)
            known = known or closest(low, _STATUS)
            if known != first.text:
                self._tell("P001", f"`{first.text}` does not fit here")
            if known is None:
                self._stuck((first.start, first.end), "P001", "", f"it is {' or '.join(_STATUS)}")
                return
            self.wanted += [word, known]
            return
        if first.kind == "text":
            self.wanted += [word, first.text]
            return
        if first.text in ("[", "(") and self.rest and self.rest[0].kind == "text":
            self._tell("P001", "`message` takes one text, not a list")
            self.wanted += [word, self.rest[0].text]
            self.rest = self.rest[2:]
            return
        if first.text in ("contains", "like", "matches", "starts", "ends", "includes"):
            message = "a message is compared as a whole"
            self._stuck((first.start, self._last), "P001", message, 'write  "no room"')
            return
        last = first
        while self.rest and self.rest[0].text != "status":
            last = self.rest.pop(0)
        self._tell("P001", "`message` takes a quoted text")
        said = self.text[first.start : last.end].replace('"', '\\"')
        self.wanted += [word, f'"{said}"']


_EXAMPLE: Final = MappingProxyType({"message": '"no room"', "status": "unresolvable"})


def shape_none(name: str) -> bool:
    """Whether an expectation may be that there is none."""
    return EXPECTATIONS[name].none
