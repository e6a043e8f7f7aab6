"""Regular expressions: what `re` says, in a number of steps that the length of the text bounds."""

import re
import sys

from hypothesis import example, given, settings
from hypothesis import strategies as st

import dsl.patterns
from dsl.patterns import MAX_SIGNS, Pattern, why_refused
from tests.effort import examples

#: Lines run a sign of the text, for each eight signs of the pattern, and before the first sign.
A_SIGN, AT_FIRST = 3, 400
ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", r"\d", r"\x61", "ab", "-"])
PLACES = st.sampled_from(["^", "$", r"\b", r"\A", r"\Z", r"\B"])
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{0,9}", "{,3}", "{1,}", "*?", "{0,2}?"])


def larger(parts):
    return (
        st.tuples(parts, parts).map("".join)
        | st.tuples(parts, parts).map(lambda two: f"({two[0]}|{two[1]})")
        | st.tuples(parts, REPEATS).map(lambda two: f"(?:{two[0]}){two[1]}")
    )


PATTERNS = st.recursive(ATOMS | PLACES, larger, max_leaves=8)
TEXTS = st.text("ab-.1", min_size=1, max_size=12)


@given(PATTERNS, TEXTS)
@settings(max_examples=examples(600), deadline=None)
@example("a\\$", "a$")
@example("^a$|^b$", "b")
def test_the_same_as_re(pattern, text):
    if why_refused(pattern) is None:
        assert Pattern(pattern).fits(text) == (re.fullmatch(pattern, text) is not None)


def lines(work):
    """How many lines of the module are run, in functions and in what they loop over."""
    count = 0

    def counted(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != dsl.patterns.__file__:
            return None
        count += event == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@given(PATTERNS, st.text("ab", min_size=1, max_size=6), st.sampled_from([50, 400]))
@settings(max_examples=examples(100), deadline=None)
@example("a{0,99}" * 5 + "b", "a", 4000)
@example("(a*)*b", "a", 4000)
@example("(a|a)*(a|b){200}", "ab", 2000)
@example("(" * 60 + "a" + "*)" * 60 + "b", "a", 2000)
def test_steps_grow_with_the_text_and_no_faster(pattern, text, times):
    if why_refused(pattern) is not None:
        return
    whole = text * times
    ready = Pattern(pattern)
    ready.fits(whole)
    again = lines(lambda: ready.fits(whole))
    assert again <= 30 * len(whole) + 100
    fresh = Pattern(pattern)
    bound = (A_SIGN * MAX_SIGNS // 8 + 30) * len(whole) + AT_FIRST * MAX_SIGNS * len(set(whole))
    assert lines(lambda: fresh.fits(whole)) <= bound
