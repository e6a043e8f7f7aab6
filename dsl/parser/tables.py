"""The grammar's tables: read from the package where they were made with it, built otherwise.

Building takes half a second, reading a twentieth of that. The file is made when the package is
installed (`python -m dsl.parser.tables`), by the same Lark from the same grammar, or it is not
used. It is a pickle, which is code: only the one beside this file is read.
"""

import functools
import hashlib
import io
import pkgutil
from typing import TYPE_CHECKING, Any, Final

import lark
from lark import Lark

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "grammar.tables"
_STARTS: Final = ["start", "testfile", "expr"]


def grammar_text() -> str:
    """Returns the grammar that ships with the package."""
    # Not importlib.resources: with what that imports, it is a fifth of importing the language.
    text = pkgutil.get_data("dsl", "grammar.lark")
    assert text is not None
    return text.decode("utf-8")


def build_tables(*, strict: bool = False) -> Lark:
    """Builds the tables of all three start symbols."""
    return Lark(
        grammar_text(),
        parser="lalr",
        lexer="contextual",
        start=_STARTS,
        propagate_positions=True,
        maybe_placeholders=True,
        strict=strict,
    )


@functools.cache
def load_tables() -> Lark:
    """Returns the tables, as fast as can be; all parsers of a process share them."""
    try:
        kept = pkgutil.get_data("dsl", FILE) or b""
    except FileNotFoundError:
        kept = b""
    head, _, body = kept.partition(b"\n")
    if head == _fingerprint():
        tables: Lark = Lark.load(io.BytesIO(body))
        return tables
    return build_tables()


def write_tables(path: "Path") -> None:
    """Makes the file that `load_tables` reads."""
    body: Any = io.BytesIO()
    build_tables().save(body)
    path.write_bytes(_fingerprint() + b"\n" + body.getvalue())


def _fingerprint() -> bytes:
    """Names what the tables were made from and by."""
    made_from = f"{lark.__version__}\0{_STARTS}\0{grammar_text()}"
    return hashlib.sha256(made_from.encode()).hexdigest().encode()


if __name__ == "__main__":
    from pathlib import Path

    write_tables(Path(__file__).parents[1] / FILE)
