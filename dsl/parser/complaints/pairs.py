"""Attributes with a key, `label KEY=VALUE`: the other ways in which people write them.

Holds the place in a clause, which the reading of all attributes shares.
"""

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.pieces import Beside, Piece
from dsl.parser.complaints.values import example, is_word, meant, quoted
from dsl.parser.refusal import Refusal
from dsl.parser.testwords import AMOUNT, ATTRIBUTES

#: Signs between a name and its value.
BETWEEN: Final = ("=", "==", ":")
_CLOSING: Final = MappingProxyType({"{": "}", "[": "]", "(": ")"})
_EFFECT: Final = re.compile(r":(?:NoSchedule|NoExecute|PreferNoSchedule)\Z")
#: `KEY`, `=` and `VALUE`.
_KEY_AND_VALUE: Final = 3
_EMPTY: Final = '""'


class Pairs:
    """A place in a clause, and the reading of what has a key there."""

    def __init__(self, kind: str, pieces: Sequence[Piece], text: str, beside: Beside) -> None:
        self.kind = kind
        self.known = ATTRIBUTES[kind]
        self.pieces = pieces
        self.text = text
        self.beside = beside
        self.at = 0
        #: The last attribute that takes a key.
        self.keyed = ""

    # ---- where we are

    def _next(self) -> Piece | None:
        return self.pieces[self.at] if self.at < len(self.pieces) else None

    def _starts_attribute(self, at: int) -> bool:
        """Whether an attribute stands at a place, so that none before goes on there."""
        if at >= len(self.pieces):
            return True
        return self.pieces[at].text in self.known

    def _skip(self, *signs: str) -> str:
        """Steps over one of these; returns it."""
        one = self._next()
        if one is None or one.text not in signs:
            return ""
        self.at += 1
        return one.text

    def _refuse(
        self, span: tuple[int, int], code: str, message: str, better: str | None, *helps: str
    ) -> Refusal:
        if better is not None:
            helps = (f"write  {better}", *helps)
        return Refusal(code, message, *span, helps=helps, fix=better)

    def _is(self, ahead: int, *words: str) -> bool:
        at = self.at + ahead
        return at < len(self.pieces) and self.pieces[at].text in words

    def _no_attribute(self, said: str) -> str:
        return f"a `{self.kind}` has no attribute `{said}`"

    # ---- NAME KEY=VALUE

    def _with_key(self, one: Piece, name: str, said: str) -> Refusal | None:
        begin = self.at
        self._skip(*BETWEEN)
        first = self._next()
        if first is not None and first.text in _CLOSING:
            pairs, end = self._pairs()
        else:
            pairs, end = self._bare_pairs(name)
        if end < 0 or not pairs:
            span = one.start, one.end
            message = f"nothing follows `{one.text}`"
            return self._refuse(span, "P009", message, None, f"write  {name} KEY=VALUE")
        parts = [self._key_value(name, key, value) for key, value in pairs]
        span = one.start, end
        told = [part for part in parts if part is not None]
        if len(told) < len(parts):
            return self._no_pair(span, name, pairs[parts.index(None)])
        better = " ".join(f"{name} {part}" for part in told)
        used = self.pieces[begin : self.at]
        written = self.text[span[0] : span[1]]
        if not said and len(used) == _KEY_AND_VALUE and used[1].text == "=":
            odd = next(
                (two.text for two in used[::2] if two.kind != "text" and not is_word(two.text)), ""
            )
            if odd and not _EFFECT.search(odd):
                return self._refuse(span, "P001", f"`{odd}` needs quotes", better)
            if (not odd and self.known[name] != AMOUNT) or told[0].endswith(f"={used[2].text}"):
                return None
            if not odd:
                message = f"`{name}` is {AMOUNT}, not `{used[2].text}`"
                return self._refuse(span, "P702", message, better)
        return self._refuse(span, *self._what_key(name, said, written), better)

    def _what_key(self, name: str, said: str, written: str) -> tuple[str, str]:
        if said:
            return "P701", self._no_attribute(said)
        if name in ("taint", "toleration") and re.search(_EFFECT.pattern[1:-2], written):
            return "P001", f"a {name} is given by its key and value, without its effect"
        if "," in written or re.search(r"[{(\[]", written):
            one_value = written.count("=") == 1 and "," in written
            if one_value:
                return "P001", "a value with a comma needs quotes"
            return "P001", f"each `{name}` is written for itself"
        return "P001", f"`{name}` takes a key and a value"

    def _no_pair(self, span: tuple[int, int], name: str, pair: tuple[str, str | None]) -> Refusal:
        key, value = pair
        if value is None:
            help_ = f"write  {name} {quoted(key)}=VALUE"
            return self._refuse(span, "P001", f"`{name}` takes a key and a value", None, help_)
        kind = self.known[name]
        return self._refuse(
            span, "P702", f"`{name}` is {kind}, not `{value}`", None, *example(kind, name)
        )

    def _key_value(self, name: str, key: str, value: str | None) -> str | None:
        """Returns `KEY=VALUE` as it is written, None where the value is missing or wrong."""
        if name in ("taint", "toleration"):
            key = _EFFECT.sub("", key)
            value = _EFFECT.sub("", value or "")
            return f"{quoted(key)}={quoted(value) if value else _EMPTY}"
        if value is None:
            return f"{key}=True" if name == "condition" else None
        if self.known[name] == AMOUNT:
            better = meant(AMOUNT, name, value, None)
            return None if better is None else f"{quoted(key)}={better}"
        return f"{quoted(key)}={quoted(value) if value else _EMPTY}"

    def _bare_pairs(self, name: str) -> tuple[list[tuple[str, str | None]], int]:
        """`k=v`, `k==v`, `k: v`, `k v`, `"k=v"`, `k=v,l=w`, `k`."""
        pairs: list[tuple[str, str | None]] = []
        end = -1
        while True:
            key = self._next()
            if key is None or key.kind == "sign" or (key.text in self.known and key.fresh):
                return pairs, end
            self.at += 1
            end = key.end
            told = self._one_pair(key, name)
            pairs.extend(told)
            end = self.pieces[self.at - 1].end
            comma = self._next()
            behind = self.pieces[self.at + 1 : self.at + 3]
            if comma is None or comma.text != "," or not behind or behind[0].text in self.known:
                return pairs, end
            self.at += 1
            if (
                pairs
                and not re.search("[=:]", behind[0].plain)
                and not (behind[1:] and behind[1].text in BETWEEN)
            ):
                # `zones=a,b`: one value with a comma in it.
                name_, value = pairs.pop()
                pairs.append((name_, f"{value},{behind[0].plain}"))
                self.at += 1
                return pairs, behind[0].end

    def _one_pair(self, key: Piece, name: str) -> list[tuple[str, str | None]]:
        between = self._skip(*BETWEEN)
        value = self._next()
        if not between and value is not None and value.text == "is":
            between = self._skip("is")
            value = self._next()
        if name in ("taint", "toleration") and value is not None and value.text == "effect":
            self.at += 1
            value = self._next()
        if name in ("taint", "toleration") and value is not None and self._effect(value):
            self.at += 1
            return [(key.plain, None)]
        if between:
            if value is None or value.kind == "sign" or value.fresh:
                return [(key.plain, "" if between == "=" else None)]
            self.at += 1
            behind = self.pieces[self.at + 1].text if self.at + 1 < len(self.pieces) else ""
            if self._is(0, ":") and _EFFECT.fullmatch(f":{behind}"):
                self.at += 2
            last = self._next()
            if name in ("taint", "toleration") and last is not None and self._effect(last):
                self.at += 1
            return [(key.plain, value.plain)]
        inner = re.findall(r"([^=,:\s]+)\s*[=:]\s*([^=,\s]*)", key.plain)
        whole = re.sub(r"[\s,]", "", key.plain)
        effect = name in ("taint", "toleration") and _EFFECT.search(key.plain)
        if (
            inner
            and not effect
            and "".join(f"{k}{v}" for k, v in inner) == re.sub(r"[=:]", "", whole)
        ):
            return list(inner)
        if effect or value is None or value.kind == "sign" or self._ends(value, name):
            return [(key.plain, None)]
        self.at += 1
        return [(key.plain, value.plain)]

    @staticmethod
    def _effect(one: Piece) -> bool:
        return _EFFECT.fullmatch(f":{one.plain}") is not None

    def _ends(self, value: Piece, name: str) -> bool:
        """Whether what stands behind a key is not its value."""
        if value.fresh or (name == "condition" and value.text in self.known):
            return True
        return value.text in self.known

    def _pairs(self) -> tuple[list[tuple[str, str | None]], int]:
        """`{k: v, l: w}`, with the bracket that is next; -1 where it is not closed."""
        opened = self.pieces[self.at].text
        close = _CLOSING[opened]
        stop = next(
            (at for at in range(self.at, len(self.pieces)) if self.pieces[at].text == close), None
        )
        if stop is None:
            return [], -1
        pairs: list[tuple[str, str | None]] = []
        inner = list(self.pieces[self.at + 1 : stop])
        self.at = stop + 1
        while inner:
            key = inner.pop(0)
            if key.kind == "sign":
                continue
            split = re.fullmatch(r"([^:=]+)[:=](.+)", key.plain)
            if inner and inner[0].text in BETWEEN and len(inner) > 1:
                pairs.append((key.plain, inner[1].plain))
                del inner[:2]
            elif split is not None:
                pairs.append((split[1], split[2]))
            else:
                pairs.append((key.plain, None))
        return pairs, self.pieces[stop].end
