"""Columns of texts as the dictionary grows; reservations and orders at their edges."""

import re
import sys

import numpy as np
import pytest

from dsl.functions import TEXT_TESTS, glob_match, join, replace, version
from dsl.lower.texts import FLOAT, CodeTable, tables
from tests.dsl import oracle
from tests.dsl.bothways import POD, passing, plan_of, raw, subject
from tests.dsl.worlds import FakePod, FakeWorld, Texts
from tests.effort import each

# ---- texts


@pytest.mark.parametrize(
    "test", ["len(node.zone) > 5", "node.zone matches '.*[13579]'", "number(node.zone) is missing"]
)
def test_tables_of_texts_grow_with_the_dictionary(test):
    """One text more each time, so that every size of a table is met; some nodes have none."""
    known = Texts()
    rule = plan_of(f"filter: {test}").filters[0]
    for count in range(60):
        zones = [{"node.zone": f"zone{one}" if one % 3 else str(one)} for one in range(count)]
        world = FakeWorld([{}, *zones, {}], dictionary=known)
        expected = [oracle.passes(rule.core, world, subject(), row) for row in range(count + 2)]
        assert rule.verdict((), world, slice(0, count + 2)).tolist() == expected
    other = FakeWorld([{"node.zone": "zone11"}, {}, {"node.zone": "b"}])
    expected = [oracle.passes(rule.core, other, subject(), row) for row in range(3)]
    assert rule.verdict((), other, slice(0, 3)).tolist() == expected


def test_each_text_is_looked_at_once():
    asked = []

    def length(text):
        asked.append(text)
        return float(len(text))

    table, known = CodeTable(length, FLOAT), Texts()
    codes = np.array([known.code(one) for one in ("a", "bb", "a")] + [-1], np.int32)
    for _ in range(3):
        found = table.take(codes, known).tolist()
        assert found[:3] == [1.0, 2.0, 1.0]
        assert found[3] != found[3]
    for one in range(20):
        known.code(f"more {one}")
        assert table.take(codes[:3], known).tolist() == [1.0, 2.0, 1.0]
    assert asked == ["a", "bb"]
    for one in range(40):
        codes = np.append(codes, known.code(f"{one}"))
        table.take(codes, known)
    assert len(asked) == 42
    again = Texts()
    assert table.take(np.array([again.code("bb")]), again).tolist() == [2.0]
    assert asked[42:] == ["bb"]


def test_tables_are_kept_by_the_other_arguments_and_forgotten_when_there_are_many():
    known = Texts()
    codes = np.array([known.code("xyz")], np.int32)
    table = tables(lambda *texts: float(len("".join(texts))), 0, FLOAT)
    first = table(("a",))
    assert table(("a",)) is first
    assert table(("a", "bb")).take(codes, known).tolist() == [6.0]
    for one in range(254):
        table((f"{one}",))
    assert table(("a",)) is first
    for one in range(256):
        table((f"{one}",))
    assert table(("a",)) is not first


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("join(node.name, node.zone) is missing", [False, True, True]),
        ("join(node.name, pod.label[none]) is missing", [True, True, True]),
        ("string(node.gpu.free) is missing", [False, True, False]),
        ("string(node.gpu.free) is 1", [True, False, False]),
        ("before(node.zone, '-') is missing", [False, True, True]),
        ("node.zone in [a-b, c, d, e, f, g, h, i, j, k, b]", [True, False, False]),
        ("node.name in [a-b, c, d, e, f, g, h, i, j, k, b, a]", [True, True, False]),
        ("node.zone == node.name", [False, False, False]),
        ("pod.label[none] == node.zone", [False, False, False]),
        ("(node.zone ?? pod.label[none] ?? node.name) is b", [False, True, False]),
    ],
)
def test_missing_texts_are_no_texts(test, expected):
    hosts = [
        {"node.name": "a", "node.zone": "a-b", "node.gpu.free": 1.0},
        {"node.name": "b"},
        {"node.gpu.free": 2.5},
    ]
    world = FakeWorld(hosts)
    for text in "cdefghijk":
        world.dictionary.code(text)
    assert passing(f"filter: {test}", world, subject()) == expected


def test_a_text_that_nobody_has_is_not_taken_for_another():
    known = Texts()
    zones = [{"node.zone": text} for text in "abcdef"]
    for text in "abcdef":
        known.code(text)
    world = FakeWorld(zones, dictionary=known)
    assert passing("filter: node.zone is unheard-of", world, subject()) == [False] * 6
    assert passing("filter: node.zone is c", world, subject()) == [text == "c" for text in "abcdef"]


def test_pods_of_a_label_are_those_of_the_nodes_with_an_equal_one():
    racks = [{"node.label[rack]": one} if one else {} for one in ("r", "s", "r", None)]
    pods = [{"on": row, "it.gpu": float(row + 1)} for row in (0, 1, 2, 2, 3)]
    world = FakeWorld(racks, pods)
    assert raw('score: count(pods_in("rack"))', world, subject()) == [3.0, 1.0, 3.0, 0.0]
    text = 'score: sum(it.gpu over pods_in("rack") where it.gpu > pod.gpu)'
    assert raw(text, world, subject()) == [7.0, 2.0, 7.0, 0.0]


# ---- reservations, orders


def test_reservations_are_silent_about_zeros_and_say_plainly_yes_or_no():
    rule = plan_of("reserve: 1 / node.gpu.free > 0.3").reserves[0]
    world = FakeWorld([{"node.gpu.free": 0.0}, {"node.gpu.free": 2.0}])
    assert rule.holds(subject(), world, 0) is False
    assert rule.holds(subject(), world, 1) is True


def test_orders_end_with_the_uid_of_the_pod_if_it_has_one():
    plan = plan_of("sort: pod.priority desc")
    nameless = FakePod.of({one: value for one, value in POD.items() if one != "pod.uid"})
    assert plan.sort_key(subject(), FakeWorld([]))[-1] == "u"
    assert plan.sort_key(nameless, FakeWorld([]))[-1] == ""


# ---- patterns, versions, replacements: what comes from annotations takes no time and no room


@each("text", ["", "a", "ab", "aab", "b*", "?", "aba\nb"])
@each(
    "pattern",
    ["", "*", "?", "a*", "*b", "a?b", "*a*b*", "**", "?*?", "a", "*?b", "[a]*", "b*", "?\n?"],
)
def test_a_glob_is_what_its_regular_expression_is(pattern, text):
    meant = re.escape(pattern).replace(r"\*", "(?s:.)*").replace(r"\?", "(?s:.)")
    assert glob_match(pattern, text) == (re.fullmatch(meant, text) is not None)


def test_a_pattern_has_its_limit_and_no_text_makes_it_slow():
    assert glob_match("a" * 1023 + "*", "a" * 2000)
    assert not glob_match("a" * 1024 + "*", "a" * 2000)
    # Going back to each star in turn would take years.
    assert not glob_match("*a" * 500 + "b", "a" * 20_000)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|a)*(a|b){200}b", "(" * 60 + "a" + "*)" * 60 + "b"]
)
def test_no_pattern_goes_back(pattern):
    """Going back would take years; a text of half a surrogate pair is a text."""
    assert not TEXT_TESTS["matches"]("a" * 4000, pattern)
    assert TEXT_TESTS["matches"]("\udce9", "\udce9")
    assert not TEXT_TESTS["matches"]("\udce9", "x")


def test_joins_of_joins_do_not_grow_without_end():
    lets = "\n".join(f"let x{at + 1} = join(x{at}, x{at})" for at in range(40))  # a terabyte
    text = f"let x0 = pod.name\n{lets}\nfilter: LAST is missing"
    world, calls = FakeWorld([{"node.name": "a"}]), []
    for last, missing in (("x16", False), ("x17", True), ("x40", True)):
        sys.setprofile(lambda frame, *_: calls.append(frame.f_lineno))
        assert passing(text.replace("LAST", last), world, subject(name="p")) == [missing], last
        sys.setprofile(None)
    assert len(calls) < 1_000_000  # What is missing is worked out once, too: not 2 ** 23 times.
    long = "a" * 70_000
    assert (join(long, ""), join(long, "b"), join("", long)) == (long, None, long)


def test_replacements_of_replacements_do_not_grow_without_end():
    assert replace("a" * 256, "a", "b" * 256) == "b" * 65_536
    assert replace("a" * 256, "a", "b" * 257) is None
    assert replace("a" * 70_000, "a", "") == ""
    assert replace("a" * 70_000, "a", "b") == "b" * 70_000
    assert replace("a" * 70_000, "a", "bb") is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("v1.31.4", (1, 31, 4, 0)),
        ("V2", (2, 0, 0, 0)),
        ("535.104.05", (535, 104, 5, 0)),
        ("5.10.0-8-amd64", (5, 10, 0, 8)),
        ("4.18.0-553.16.1.el8_10", (4, 18, 0, 553)),
        ("v1.31.4-gke.1372000", (1, 31, 4, 0)),
        ("v1.31.0-rc.1", (1, 31, 0, 0)),
        ("1.2.3.4.99999", (1, 2, 3, 4)),
        ("00000001.00000", (1, 0, 0, 0)),
        ("1..2", (1, 0, 0, 0)),
        ("8999.9999.9999.9999", (8999, 9999, 9999, 9999)),
        ("9000", None),
        ("1.10000", None),
        ("1." + "9" * 9000, None),
        ("", None),
        ("v", None),
        ("-1", None),
        ("x1.2", None),
        ("²", None),
    ],
)
def test_a_version_is_its_first_four_numbers(text, numbers):
    found = version(text)
    if numbers is None:
        assert np.isnan(found)
    else:
        assert found == sum(one * 10_000**at for one, at in zip(numbers, (3, 2, 1, 0), strict=True))
