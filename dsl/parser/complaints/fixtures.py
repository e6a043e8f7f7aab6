"""The attributes of what a test gives: each that is no attribute as it is written, and its cure.

Goes from attribute to attribute whatever stands there, so that one slip is one finding. Knows the
table of attributes and what others call them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dsl.parser.complaints.attributes import LABELS, SAME, STATES, YES
from dsl.parser.complaints.pairs import BETWEEN, Pairs
from dsl.parser.complaints.pieces import GIVES, Beside, Piece
from dsl.parser.complaints.values import SAMPLE, binary, example, is_word, meant, quoted
from dsl.parser.refusal import Refusal
from dsl.parser.testwords import (
    AMOUNT,
    ATTRIBUTES,
    EXPECTS,
    FLAG,
    GIVEN,
    HEADS,
    KEYED,
    PLAIN,
    TEXT,
    TEXTS,
    UNNAMED,
    WHOLE,
)  # fmt: skip
from dsl.spelling import closest

_OF_NODES: Final = ("chosen", "nominated_node", "previous_node")
_FILLERS: Final = (
    "and",
    "with",
    "has",
    "having",
    "plus",
    "the",
    "a",
    "an",
    "that",
    "which",
    "is",
    "in",
)
_ASKING: Final = ("requests", "requesting", "asking", "needs", "needing", "using", "uses")
_PARTS: Final = ("allocatable", "capacity", "free", "available", "total", "requested", "resources")
_FEW: Final = 8
_MOST_WORDS: Final = 3


class _Value(NamedTuple):
    """A value as it is written and as it should be; `better` is None where nobody knows."""

    start: int
    end: int
    written: str
    better: str | None


def of_attributes(
    kind: str, pieces: Sequence[Piece], text: str, beside: Beside
) -> Iterator[Refusal]:
    """Yields what is wrong with the attributes of a fixture, from left to right.

    Args:
        kind: of the fixture.
        pieces: what stands behind its name.
        text: the statement.
        beside: what is known of the rest of the file.
    """
    return _Walk(kind, pieces, text, beside).run()


class _Walk(Pairs):
    """Goes from attribute to attribute."""

    def run(self) -> Iterator[Refusal]:
        while self.at < len(self.pieces):
            before = self.at
            told = self._attribute(self.pieces[self.at])
            if told is not None:
                yield told
            if self.at == before:
                return

    # ---- one attribute

    def _attribute(self, one: Piece) -> Refusal | None:
        if one.kind == "sign":
            return self._sign(one)
        mine = one.text in self.known and not self._is(3, "=")
        if one.fresh and one.text in HEADS and self._is(1, ":") and not mine:
            # A statement of its own that is indented.
            return None
        if one.text in ("given", "expect") and one.fresh and self.kind != "pod":
            return self._no_test(one)
        if one.kind == "word" and one.text in self.known and not self._one_more(one):
            self.at += 1
            return self._known(one, one.text, "")
        return self._unknown(one)

    def _one_more(self, one: Piece) -> bool:
        """`limit cpu=1 memory=2Gi`: one more pair of the attribute before."""
        return (
            self.keyed in ("request", "limit", "resource", "min", "max")
            and one.text not in KEYED
            and self._is(1, "=")
            and self.pieces[self.at - 2].text == "="
        )

    def _no_test(self, one: Piece) -> Refusal:
        """`given` and `expect` with no test above."""
        self.at = len(self.pieces)
        help_ = 'write above it  test: "what must hold"'
        line = self.text.rfind("\n", 0, one.start) + 1
        return Refusal(
            "P012", f"`{one.text}` belongs into a test", one.start, one.end, helps=(help_,),
            fix='test: "what must hold"\n', fix_at=(line, line),
        )  # fmt: skip

    def _comma(self, one: Piece) -> Refusal | None:
        """`cpu 4,5` and `given pod a, b`: a comma that is more than one too many."""
        behind = self.pieces[self.at + 1] if self.at + 1 < len(self.pieces) else None
        before = self.pieces[self.at - 1] if self.at else None
        if before is None or behind is None or behind.kind != "word" or behind.text in self.known:
            return None
        if before.end == one.start and behind.start == one.end and behind.text.isdecimal():
            self.at += 2
            better = f"{before.text}.{behind.text}"
            message = "a number has a point, not a comma"
            return self._refuse((before.start, behind.end), "P001", message, better)
        named = self.at - (self.pieces[0].text == "name") == 1
        if self.kind == "pod" and named and before.text not in self.known:
            self.at += 2
            help_ = f"write below it  given pod name {behind.text}"
            return Refusal(
                "P001", "each pod has a `given` of its own", one.start, behind.end, helps=(help_,),
                fix=f"\n  given pod name {behind.text}",
            )  # fmt: skip
        return None

    def _sign(self, one: Piece) -> Refusal | None:
        more = self._comma(one) if one.text in (",", "and") else None
        if more is not None:
            return more
        if one.text in (",", ";", ":") or (one.text == "=" and not self.at):
            self.at += 1
            behind = self._next()
            better = " " if behind is not None and behind.start == one.end and self.at > 1 else ""
            return Refusal(
                "P001", f"no `{one.text}` stands between attributes", one.start, one.end,
                helps=(f"leave the `{one.text}` out",), fix=better,
            )  # fmt: skip
        if one.text in "{([":
            return self._bracketed(one)
        return None

    def _bracketed(self, one: Piece) -> Refusal | None:
        """`{cpu: 4, memory: 8Gi}`."""
        pairs, end = self._pairs()
        if end < 0:
            return None
        parts = [self._pair(name, value) for name, value in pairs]
        better = "  ".join(part for part in parts if part)
        return self._refuse(
            (one.start, end), "P001", "attributes stand without brackets",
            better if parts and all(parts) else None, *(() if all(parts) else
            ("write each as  NAME VALUE",)),
        )  # fmt: skip

    def _pair(self, name: str, value: str | None) -> str | None:
        kind = self.known.get(name)
        if value is None:
            return None
        if kind is None:
            return f"label {name}={quoted(value)}" if "label" in self.known else None
        if name in KEYED:
            return None
        better = meant(kind, name, value, self.beside.now)
        return None if better is None else f"{name} {better}"

    def _known(self, one: Piece, name: str, said: str) -> Refusal | None:
        """The value of an attribute; `said` is what was written for its name."""
        if name == "metric":
            return self._metric(one, said)
        if name in KEYED:
            self.keyed = name
            return self._with_key(one, name, said)
        return self._plain(one, name, said)

    # ---- NAME value

    def _plain(self, one: Piece, name: str, said: str) -> Refusal | None:
        kind = self.known[name]
        between = self._skip(*BETWEEN)
        if not between and kind != TEXT:
            between = self._skip("is", "of", "to", "at")
        if not between and name in _OF_NODES and self.at + 1 < len(self.pieces):
            between = self._skip("node", "on")
        value = self._value(kind, name)
        if value is None:
            return self._no_value(one, name, kind)
        whole = one.start, value.end
        better = None if value.better is None else f"{name} {value.better}"
        if said and not between and value.better == value.written:
            return self._other_word(one, name, said)
        if said:
            return self._refuse(whole, "P701", self._no_attribute(said), better)
        if between:
            message = f"no `{between}` stands between `{name}` and its value"
            helps = () if better is not None else example(kind, name)
            return self._refuse(whole, "P001", message, better, *helps)
        if value.better == value.written:
            return None
        return self._wrong_value(kind, name, value)

    def _other_word(self, one: Piece, name: str, said: str) -> Refusal:
        near = closest(said, (name,))
        help_ = f"did you mean `{near}`?" if near else f"write  {name}"
        message = self._no_attribute(said)
        return Refusal("P701", message, one.start, one.end, helps=(help_,), fix=name)

    def _wrong_value(self, kind: str, name: str, value: _Value) -> Refusal:
        span, written = (value.start, value.end), value.written
        if kind == TEXT and value.better == f'"{written}"':
            return self._refuse(span, "P001", f"`{written}` needs quotes", value.better)
        if value.better is not None and kind == TEXT:
            message = f"`{name}` is never `{written}`"
            help_ = f"did you mean `{value.better}`?"
            return Refusal("P702", message, *span, helps=(help_,), fix=value.better)
        if value.better is not None and value.better.strip('"') == written:
            return self._refuse(span, "P001", f"`{written}` needs quotes", value.better)
        what = "is never" if kind == TEXT else f"is {kind}, not"
        helps = () if value.better is not None else example(kind, name)
        message = f"`{name}` {what} `{written}`"
        if value.better is not None:
            helps = binary(value.better)
        return self._refuse(span, "P702", message, value.better, *helps)

    def _no_value(self, one: Piece, name: str, kind: str) -> Refusal:
        last = self.pieces[self.at - 1]
        span = one.start, last.end
        if kind == FLAG:
            message = f"`{name}` is true or false"
            return self._refuse(span, "P009", message, f"{name} true")
        if not self.at - 1 and self.kind in UNNAMED and name not in ("name", "from"):
            helps = (f"write  {name} VALUE",)
            return self._refuse(span, "P009", f"nothing follows `{name}`", None, *helps)
        return self._refuse(span, "P009", f"nothing follows `{name}`", None, f"write  {name} VALUE")

    def _value(self, kind: str, name: str) -> _Value | None:
        """Steps over a value: the most words that are one together."""
        one = self._next()
        if one is None or (kind != TEXT and one.kind == "word" and one.text in self.known):
            return None
        if one.kind == "sign":
            return self._listed(kind, name)
        for count in range(_MOST_WORDS, 0, -1):
            words = self.pieces[self.at : self.at + count]
            if len(words) < count or any(
                two.kind != "word" or two.fresh or two.text in self.known for two in words[1:]
            ):
                continue
            if count > 1 and (kind in (TEXT, FLAG, TEXTS) or one.kind == "text"):
                continue
            text = " ".join(two.plain for two in words)
            better = meant(kind, name, text, self.beside.now)
            if better is None and count > 1:
                continue
            self.at += count
            start, end = one.start, words[-1].end
            return _Value(start, end, self.text[start:end], self._as_written(kind, one, better))
        return None

    def _as_written(self, kind: str, one: Piece, better: str | None) -> str | None:
        """Quotes are right around most values."""
        if better is None or one.kind != "text":
            return better
        if kind == TEXT and better in (one.plain, quoted(one.plain)):
            return one.text
        return one.text if better.strip('"') == one.plain else better

    def _listed(self, kind: str, name: str) -> _Value | None:
        first = self.pieces[self.at]
        if first.text != "[":
            return None
        depth_end = next(
            (at for at in range(self.at, len(self.pieces)) if self.pieces[at].text == "]"), None
        )
        if depth_end is None:
            return None
        inner = [one for one in self.pieces[self.at + 1 : depth_end] if one.kind != "sign"]
        self.at = depth_end + 1
        end = self.pieces[depth_end].end
        written = self.text[first.start : end]
        if kind == TEXTS:
            better: str | None = f"[{', '.join(self._item(one) for one in inner)}]"
            better = (
                written if re.sub(r"\s", "", written) == re.sub(r"\s", "", better or "") else better
            )
        else:
            better = meant(kind, name, inner[0].plain, self.beside.now) if len(inner) == 1 else None
        return _Value(first.start, end, written, better)

    def _item(self, one: Piece) -> str:
        return one.text if one.kind == "text" else quoted(one.text)

    # ---- metric NAME value

    def _metric(self, one: Piece, said: str) -> Refusal | None:
        between = self._skip(*BETWEEN)
        name = self._next()
        if name is None or name.kind != "word":
            span = one.start, self.pieces[self.at - 1].end
            return self._refuse(
                span, "P009", "a `metric` has a name and a value", None, "write  metric NAME VALUE"
            )
        self.at += 1
        between = self._skip(*BETWEEN, "is", "of", "at") or between
        value = self._value(SAMPLE, name.text)
        if value is None:
            span = one.start, self.pieces[self.at - 1].end
            help_ = f"write  metric {name.text} VALUE"
            return self._refuse(span, "P009", f"nothing follows `{name.text}`", None, help_)
        told = None
        if value.written in ("missing", "none", "null", "absent", "stale") and not said:
            help_ = "leave it out: what is not given is missing"
            return Refusal(
                "P702", "the value of a metric is a number", one.start, value.end, helps=(help_,),
                fix="", fix_at=(self.pieces[max(self.pieces.index(one) - 1, 0)].end
                                if self.pieces.index(one) else one.start, value.end),
            )  # fmt: skip
        if said or between:
            message = f"no `{between}` stands between `{name.text}` and its value"
            better = f"metric {name.text} {value.better or value.written}"
            told = self._refuse((one.start, value.end), "P001", message, better)
            if said:
                told = self._refuse(
                    (one.start, value.end), "P701", self._no_attribute(said), better
                )
        elif value.better != value.written:
            told = self._sample(value)
        age = self._age()
        return told or age

    def _sample(self, value: _Value) -> Refusal:
        helps = example(SAMPLE, "") if value.better is None else ()
        if value.better is not None:
            helps = binary(value.better)
        message = "the value of a metric is a number"
        return self._refuse((value.start, value.end), "P702", message, value.better, *helps)

    def _age(self) -> Refusal | None:
        """`age 5m` behind a metric."""
        one = self._next()
        if one is None or one.text not in ("age", "aged", "old", "stale", "since"):
            return None
        self.at += 1
        between = self._skip(*BETWEEN)
        value = self._value("a duration", "age")
        if value is None:
            return self._refuse(
                (one.start, one.end), "P009", "nothing follows `age`", None, "write  age 5m"
            )
        better = None if value.better is None else f"age {value.better}"
        if one.text != "age" or between:
            message = "how old a sample is stands behind `age`"
            return self._refuse((one.start, value.end), "P001", message, better)
        if value.better == value.written:
            return None
        return self._wrong_value("a duration", "age", value)

    # ---- what is no attribute

    def _unknown(self, one: Piece) -> Refusal | None:
        if one.kind == "text":
            return self._name(one) if not self.at else None
        if one.fresh and self.kind in GIVEN and one.text.lower() in (*EXPECTS, *GIVES):
            self.at = len(self.pieces)
            message = "each line of a test starts with `given` or `expect`"
            return Refusal("P001", message, one.start, one.end)
        letters = re.sub(r"[^a-z0-9]", "", one.text.lower())
        for attempt in (
            self._state, self._label_of_node, self._turned, self._count, self._pair_alone,
        ):  # fmt: skip
            told = attempt(one, letters)
            if told is not None:
                return told
        if self._says_nothing(one, letters):
            return self._leave_out(one)
        dotted = next((two for two in reversed(one.text.split(".")[1:]) if two in self.known), None)
        if "." in one.text and dotted is None and one.text.split(".")[0] in KEYED:
            return self._dotted_key(one)
        same = dotted or self._called(letters, one.text)
        if same is not None:
            self.at += 1
            return self._known(one, same, one.text)
        if not self.at and self._is_name():
            return self._name(one)
        if one.text.lower() in _FILLERS and self.at + 1 < len(self.pieces):
            return self._leave_out(one)
        return self._near(one) or self._of_others(one)

    def _says_nothing(self, one: Piece, letters: str) -> bool:
        """Whether a word leads to what is said: `with cpu 4`, `needs 2 gpus`, `free cpu 2`."""
        if self.at + 1 >= len(self.pieces):
            return False
        if letters in _ASKING and self.pieces[self.at + 1].text[:1].isdigit():
            return True
        if one.text in _PARTS and (self._is(1, "{") or self._starts_attribute(self.at + 1)):
            return True
        # Words of one letter are names of pods more often.
        return not self.at and one.text in _FILLERS and len(one.text) > 1 and one.text != "the"

    def _leave_out(self, one: Piece) -> Refusal:
        self.at += 1
        behind = self._next()
        stop = one.end if behind is None else behind.start
        return Refusal(
            "P001", f"`{one.text}` does not fit here", one.start, one.end,
            helps=(f"leave `{one.text}` out",), fix="", fix_at=(one.start, stop),
        )  # fmt: skip

    def _dotted_key(self, one: Piece) -> Refusal | None:
        """`label.zone=z1`."""
        name, _, key = one.text.partition(".")
        value = self.pieces[self.at + 2] if self.at + 2 < len(self.pieces) else None
        if value is None or not self._is(1, *BETWEEN) or name not in self.known:
            return None
        self.at += 3
        better = f"{name} {key}={quoted(value.plain)}"
        message = f"`{name}` takes a key and a value"
        return self._refuse((one.start, value.end), "P001", message, better)

    def _called(self, letters: str, word: str) -> str | None:
        """Returns the attribute that others call so."""
        for one in (letters, letters.removesuffix("s"), letters.removesuffix("es")):
            found = SAME.get(one)
            if found in self.known:
                return found
            for name in self.known:
                if name.replace("_", "") == one:
                    # `cpus` is a slip of the pen; `labels` and `hostNetwork` are other words.
                    return name if name in KEYED or name.replace("_", "") != word else None
        return None

    def _state(self, one: Piece, letters: str) -> Refusal | None:
        """`cordoned`, `not ready`."""
        turned = letters in ("not", "non", "no", "isnot")
        word = self.pieces[self.at + 1] if turned and self.at + 1 < len(self.pieces) else one
        plain = re.sub(r"[^a-z0-9]", "", word.text.lower())
        name, value = STATES.get(plain, (word.text if turned else "", True))
        if self.known.get(name) != FLAG:
            return None
        self.at += 2 if turned else 1
        end = word.end
        behind = self._next()
        if behind is not None and behind.text in BETWEEN:
            self.at += 1
            behind = self._next()
        if behind is not None and behind.text.lower() in YES:
            self.at += 1
            end = behind.end
            value = value is YES[behind.text.lower()]
        better = f"{name} {str(value is not turned).lower()}"
        said = self.text[one.start : word.end]
        return self._refuse((one.start, end), "P701", self._no_attribute(said), better)

    def _label_of_node(self, one: Piece, letters: str) -> Refusal | None:
        """`zone z2`: a label with a name of its own."""
        key = None if self.keyed and self._is(1, *BETWEEN) else LABELS.get(letters)
        if key is None or self.kind not in ("node", "pod", "running", "pending", "finished"):
            return None
        name = "label" if self.kind == "node" else "node_selector"
        self.at += 1
        self._skip(*BETWEEN, "in", "is")
        value = self._next()
        if value is None or value.kind == "sign" or value.text in self.known:
            self.at -= 1
            return None
        self.at += 1
        better = f"{name} {key}={quoted(value.plain)}"
        message = f"{self._no_attribute(one.text)}: it is a label"
        return self._refuse((one.start, value.end), "P701", message, better)

    def _turned(self, one: Piece, letters: str) -> Refusal | None:
        """`4 cpu`: the value in front."""
        behind = self.pieces[self.at + 1] if self.at + 1 < len(self.pieces) else None
        if behind is None:
            return None
        name = behind.text if behind.text in self.known else behind.text.removesuffix("s")
        kind = self.known.get(name)
        if kind not in (AMOUNT, WHOLE) or name in (*KEYED, "metric"):
            return None
        value = meant(kind, name, one.text, None)
        third = self.pieces[self.at + 2] if self.at + 2 < len(self.pieces) else None
        if not letters[:1].isdigit() or value is None:
            return None
        if third is not None and third.kind != "sign" and not self._starts_attribute(self.at + 2):
            fourth = self._starts_attribute(self.at + 3) and self.at + 3 < len(self.pieces)
            if third.text not in _FILLERS and not fourth:
                return None
        self.at += 2
        better = f"{name} {value}"
        message = f"the value stands behind `{name}`"
        return self._refuse((one.start, behind.end), "P001", message, better)

    def _count(self, one: Piece, letters: str) -> Refusal | None:
        """`running: on a 3 pods`."""
        if "count" not in self.known or not letters.isdecimal() or not int(letters):
            return None
        self.at += 1
        end = one.end
        behind = self._next()
        if behind is not None and behind.text in ("pods", "pod", "x", "times", "replicas"):
            self.at += 1
            end = behind.end
        message = "how many pods there are stands behind `count`"
        return self._refuse((one.start, end), "P001", message, f"count {letters}")

    def _pair_alone(self, one: Piece, letters: str) -> Refusal | None:
        """`app=web`: a label, or one more of what stands before."""
        behind = self.pieces[self.at + 1 : self.at + 3]
        if not behind or behind[0].text not in BETWEEN or one.text.split(".")[0] in self.known:
            return None
        if self._called(letters, "") and not self._one_more(one):
            return None
        near = closest(one.text, [name for name in self.known if name not in KEYED])
        if near is not None and not self._one_more(one):
            return None
        name = self.keyed or "label"
        if "/" in one.text and len(behind) > 1 and "kubernetes.io" not in one.text:
            amount = meant(AMOUNT, "resource", behind[1].plain, None)
            name = name if amount is None or self.keyed else self._resource()
        if name not in self.known or len(behind) < 2 or behind[1].kind == "sign":  # noqa: PLR2004 - a sign and a value
            return None
        self.at += 3
        better = f"{name} {quoted(one.plain)}={quoted(behind[1].plain)}"
        message = f"{self._no_attribute(one.text)}"
        return self._refuse((one.start, behind[1].end), "P701", message, better)

    def _is_name(self) -> bool:
        """Whether the first word is the name of a pod, which has an attribute for it."""
        if "name" not in self.known:
            return False
        word = self.pieces[0].text
        behind = self.pieces[1] if len(self.pieces) > 1 else None
        if behind is None or behind.text in self.known or behind.text in (",", "{", *_FILLERS):
            return behind is None or closest(word, self.known) is None or "-" in word
        return "-" in word and behind.kind != "sign"

    def _name(self, one: Piece) -> Refusal | None:
        if "name" not in self.known:
            return None
        self.at += 1
        better = f"name {meant(TEXT, 'name', one.plain, None) or quoted(one.plain)}"
        message = f"the name of a pod is an attribute: `{one.plain}` is none"
        return self._refuse((one.start, one.end), "P701", message, better)

    def _near(self, one: Piece) -> Refusal | None:
        """`cpus 4`: another word, and the value behind it is read as that of the word meant."""
        if one.text in ("given", "expect"):
            self.at = len(self.pieces)
            message = f"`{one.text}` starts a line of a test"
            return Refusal("P001", message, one.start, one.end)
        near = closest(one.text, [*self.known, "given", "expect"])
        if near is None:
            return None
        message = self._no_attribute(one.text)
        told = Refusal(
            "P701", message, one.start, one.end, helps=(f"did you mean `{near}`?",), fix=near
        )
        self.at += 1
        if near not in self.known:
            self.at = len(self.pieces)
            return told
        inner = self._known(one, near, "")
        if inner is None or inner.start != one.start:
            return told
        return Refusal("P701", message, inner.start, inner.end, helps=inner.helps, fix=inner.fix)

    def _of_others(self, one: Piece) -> Refusal:
        """What other fixtures have, a metric, a label, or nothing that is known."""
        self.at += 1
        self._skip(*BETWEEN)
        value = self._next()
        message = self._no_attribute(one.text)
        span = one.start, one.end
        there = value is not None and value.kind != "sign" and not value.fresh
        if not there or value is None or self._starts_attribute(self.at):
            return self._refuse(span, "P701", message, None, *self._choices(one.text))
        self.at += 1
        whole = one.start, value.end
        every = (*PLAIN, *KEYED)
        other = one.text if one.text in every else closest(one.text, every)
        owners = [kind for kind, known in ATTRIBUTES.items() if other in known]
        if owners:
            help_ = f"`{other}` is an attribute of {_either(owners)}"
            return self._refuse(span, "P701", message, None, help_)
        sample = meant(SAMPLE, one.text, value.plain, None) if "metric" in self.known else None
        if "/" in one.text and sample is not None and self._resource() in self.known:
            better = f"{self._resource()} {one.text}={sample}"
            return self._refuse(whole, "P701", message, better)
        sample = sample if one.text.isidentifier() else None
        metric = f"metric {one.text} {sample}"
        label = f"label {one.text}={quoted(value.plain)}"
        if sample is not None and one.text in self.beside.metrics:
            return self._refuse(whole, "P701", f"{message}: it is a metric", metric)
        choices = [metric] if sample is not None else []
        choices += [label] if "label" in self.known and is_word(one.text) else []
        if not choices:
            return self._refuse(span, "P701", message, None, *self._choices(one.text))
        help_ = f"write  {'   or   '.join(choices)}"
        return Refusal("P701", message, *whole, helps=(help_,))

    def _resource(self) -> str:
        return "resource" if self.kind == "node" else "request"

    def _choices(self, word: str) -> tuple[str, ...]:
        if len(self.known) <= _FEW:
            return (f"there are {', '.join(sorted(self.known))}",)
        if "label" in self.known and is_word(word):
            return (f"leave it out; a label is written  label {word}=VALUE",)
        return ()


def _either(kinds: Sequence[str]) -> str:
    names = [f"`{one}`" for one in kinds]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
