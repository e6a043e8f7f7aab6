import pytest

from engine.text.display import one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ä 日本 👩‍💻", "ä 日本 👩‍💻"),
        ("a\nI forged\r\x1b[2J\0\x9b", r"a\nI forged\r\x1b[2J\x00\x9b"),
        ("a\u202eb\u2066\u200f\u2028", r"a\u202eb\u2066\u200f\u2028"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text, shown):
    assert plain(text) == shown


def test_long_texts_are_cut():
    assert plain("x" * 5_000_000, 10) == "xxxxxx ..."
    assert plain("x" * 10, 10) == "x" * 10
    assert plain("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert one_line("  a \n\t b  ") == "a b"
