"""Answers of Prometheus: bytes in, series with a number out, in steps that let others run.

Knows no server and no question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, pairwise
from time import sleep
from typing import Final

import msgspec

from engine.signals.samples import Series
from engine.text import wire
from engine.text.display import one_line

_PAUSE_EVERY = 256
_PIECE: Final = 64 << 10
"""Bytes decoded at once: the event loop waits until decoding returns."""
_BETWEEN: Final = re.compile(rb'\}\s*,\s*\{\s*"metric"\s*:')
_COMMA: Final = b" \t\r\n,"
_CURES: Final = {
    "scalar": "write vector(...) around it, which makes it a series",
    "matrix": "leave the range out, or take one value of it, as with rate(...)",
}
give_way: Final = partial(sleep, 0)
"""Lets the event loop run now and not after the interpreter's 5 ms."""


class Refused(Exception):  # noqa: N818 - a state of the question
    """Prometheus answered, but not this question."""


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    result: msgspec.Raw
    result_type: str = msgspec.field(name="resultType", default="vector")


class _Envelope(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_envelope = msgspec.json.Decoder(_Envelope)
_vector = msgspec.json.Decoder(list[msgspec.Raw])
_sample = msgspec.json.Decoder(_Sample)


def vector_in(body: bytes) -> Iterable[bytes]:
    """The series of an answer, as they came, in lists of some 64 KiB.

    They are cut apart where one ends and the next begins, which stands in no text: there quotes are
    escaped. Of whoever writes in another order all is one list.

    Raises:
        Refused: there is no vector in it.
    """
    cuts: list[int] = []
    while (found := _BETWEEN.search(body, cuts[-1] + _PIECE if cuts else 0)) is not None:
        cuts.append(found.start() + 1)
    middle, rest = pairwise(cuts), body if not cuts else body[: cuts[0]] + body[cuts[-1] :]
    try:
        envelope = wire.decode(_envelope.decode, rest)
    except msgspec.DecodeError as error:
        raise Refused(f"the answer cannot be read: {error}") from error
    if envelope.data is None:
        raise Refused(one_line(envelope.error) or f"the answer says {envelope.status!r}")
    if envelope.data.result_type != "vector":
        kind = envelope.data.result_type
        raise Refused(f"the query gives a {kind}; {_CURES.get(kind, 'series are needed')}")
    lists = (b"[%b]" % body[start:end].lstrip(_COMMA) for start, end in middle)
    return chain([bytes(envelope.data.result)], lists)


def error_text(body: bytes) -> str:
    """What a server says that is wrong, in one line."""
    try:
        return one_line(wire.decode(_envelope.decode, body).error)
    except msgspec.DecodeError:
        return one_line(body[:200].decode("utf-8", "replace"))


def parse_vector(
    result: Iterable[bytes], by: Sequence[str], *, every: bool = False
) -> list[Series]:
    """The series of an instant vector that have a number, with those of the labels `by` they have.

    The vector comes in lists of JSON.

    With `every` each label has its place, and is empty where a series does not have it.

    Raises:
        msgspec.DecodeError: it is no instant vector.
        Refused: it has samples that are no numbers.
    """
    parsed = []
    raws = (raw for one in result for raw in wire.decode(_vector.decode, one))
    for number, raw in enumerate(raws):
        if not number % _PAUSE_EVERY:
            give_way()
        sample = wire.decode(_sample.decode, raw)
        if every:
            names = tuple(sample.metric.get(label, "") for label in by)
        else:
            names = tuple(sample.metric[label] for label in by if label in sample.metric)
        if sample.value is None:
            raise Refused("it has native histograms; write histogram_quantile(...) or the like")
        time, text = sample.value
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            parsed.append(Series(names, value, time))
    return parsed
