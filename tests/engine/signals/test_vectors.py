"""Answers of Prometheus, well formed and odd, become series."""

from __future__ import annotations

import json

import pytest

from engine.clock import ManualClock
from engine.signals.prometheus import parse_vector, vector_in

NOW = ManualClock().time()


def test_series_without_a_number_or_a_name():
    result = json.dumps(
        [
            {"metric": {"node": "a", "instance": "b:1"}, "value": [1.5, "2"]},
            {"metric": {}, "value": [1, "3"]},
            {"metric": {"node": "c"}, "value": [1, "NaN"]},
            {"metric": {"node": "c"}, "value": [1, "-Inf"]},
            {"metric": {"node": "c"}, "value": [1, "rubbish"]},
        ]
    ).encode()
    first = [(("b:1", "a"), 2.0, 1.5), ((), 3.0, 1.0)]
    assert [*parse_vector([result], ("instance", "node"))] == first
    both = [(("b:1", "a"), 2.0, 1.5), (("", ""), 3.0, 1.0)]
    assert [*parse_vector([result], ("instance", "node"), every=True)] == both


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,\n", " :\t")])
def test_a_large_answer_is_decoded_in_pieces_wherever_its_texts_look_like_the_end_of_a_series(
    separators: tuple[str, str],
):
    odd = ['},{"metric":', '"},{"metric":{', "\\", '\\"},{"metric":{}}', "}, {", "\u00e4", ""]
    result = [
        {"metric": {"instance": f"{odd[n % len(odd)]}{n}"}, "value": [NOW, str(n)]}
        for n in range(5_000)
    ]
    data = {"resultType": "vector", "result": result}
    for size in (0, 1, 2, 3, 5_000):
        data["result"] = result[:size]
        answer = {"status": "success", "data": data, "warnings": ['},{"metric":']}
        lists = list(vector_in(json.dumps(answer, separators=separators).encode()))
        assert max(map(len, lists)) < 130_000
        found = sorted(parse_vector(lists, ("instance",)), key=lambda one: one.value)
        assert (
            found
            == [
                ((str(one["metric"]["instance"]),), float(n), NOW)  # type: ignore[index]  # as above
                for n, one in enumerate(result[:size])
            ]
        )
