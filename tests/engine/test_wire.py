from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kube.errors import NotFound, status_error
from engine.kube.listing import BadObject, Decoders
from engine.objects import Described, Pod
from engine.text.wire import decode, flattened

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('\\"{}[]aä')),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
)


def nested(depth: int) -> bytes:
    return b'{"f:\\"}":[' * depth + b'"]\\\\"' + b"]}" * depth


def pod(name: bytes, fields: bytes = b"{}") -> bytes:
    return b'{"metadata":{"name":"%b","uid":"u","managedFields":[{"f":%b}]}}' % (name, fields)


@given(JSONS)
def test_what_is_not_deep_stays(value: object) -> None:
    data = json.dumps(value).encode()
    assert flattened(data) == data


@given(JSONS, st.integers(100, 300))
def test_what_is_deep_is_a_number_and_the_rest_stays(value: object, depth: int) -> None:
    after = json.dumps(value).encode()
    flat = json.loads(flattened(b'{"deep":%b,"after":%b}' % (nested(depth), after)))
    inner = flat["deep"]
    while inner != 0:
        [inner] = inner.values() if isinstance(inner, dict) else inner
    assert flat["after"] == value


@pytest.mark.parametrize(
    "data", [b"", b"]}" * 300, b'"' + nested(300), nested(300)[:-5], b"\\", b"[" * 9_000]
)
def test_what_is_no_json_is_flattened_too(data: bytes) -> None:
    assert len(flattened(data)) == len(data)
    with pytest.raises(msgspec.DecodeError):
        decode(msgspec.json.Decoder().decode, data)


class TestObjectsOfAnyUser:
    """`fieldsV1` may be as deep as the API server reads, and msgspec recurses to skip it."""

    decoders = Decoders(Pod)

    @pytest.mark.parametrize("depth", [600, 5_000, 200_000])
    def test_a_deep_one_is_read_and_its_page_stays_readable(self, depth: int) -> None:
        page = b'{"metadata":{"resourceVersion":"5"},"items":[%b,%b]}'
        meta, items = self.decoders.items(page % (pod(b"a", nested(depth)), pod(b"b")))
        assert meta.resource_version == "5"
        assert [one.metadata.name for one in items if isinstance(one, Pod)] == ["a", "b"]
        line = b'{"type":"ADDED","object":%b}\n'
        lines = line % pod(b"a", nested(depth)) + line % b"7" + line % pod(b"b")
        a, bad, b = [event.object for event in self.decoders.events(lines)]
        assert isinstance(a, Pod)
        assert isinstance(bad, BadObject)
        assert isinstance(b, Pod)

    def test_one_that_is_no_utf8_is_passed_over(self) -> None:
        page = b'{"metadata":{"resourceVersion":"5"},"items":[%b,%b]}'
        _, (bad, good) = self.decoders.items(page % (pod(b"a\xff"), pod(b"b")))
        assert isinstance(bad, BadObject)
        assert bad.reason == "invalid UTF-8: invalid start byte"
        assert isinstance(good, Pod)

    def test_a_deep_status_is_an_error_all_the_same(self) -> None:
        body = b'{"message":"no","details":{"causes":%b}}' % nested(5_000)
        error = status_error(404, body)
        assert isinstance(error, NotFound)
        assert error.message == "no"


class Odd(Described, frozen=True):
    level: int = 0

    def __post_init__(self) -> None:
        if self.level:
            raise KeyError(self.level)


def test_a_struct_that_raises_leaves_out_that_object_alone() -> None:
    one = b'{"type":"ADDED","object":{"metadata":{"name":"%b"},"level":%b}}\n'
    bad, good = Decoders(Odd).events(one % (b"a", b"1") + one % (b"b", b"0"))
    assert isinstance(bad.object, BadObject)
    assert (bad.object.meta.name, bad.object.reason) == ("a", "KeyError: 1")
    assert isinstance(good.object, Odd)
