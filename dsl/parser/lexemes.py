"""One statement's text becomes its words with their place in the grammar.

For the formatter, which needs every word and sign; Lark's objects do not leave this module.
"""

from typing import Any

from lark import Lark, Token, Tree

from dsl.source import Span
from dsl.syntax import Lexeme

#: Start, end and name of a rule.
_Stretch = tuple[int, int, str]


def read_lexemes(tables: Lark, text: str, base: int, start: str) -> tuple[Lexeme, ...]:
    """Returns the words of a text that parses; `base` is where the text starts in its file."""
    interactive: Any = tables.parse_interactive(text, start=start)
    tokens = [token for token in interactive.iter_parse() if token.type != "_NL"]
    stretches = _preorder(interactive.feed_eof())
    lexemes = []
    stack: list[_Stretch] = []
    at = 0
    for token in tokens:
        first, last = token.start_pos or 0, token.end_pos or 0
        while stack and stack[-1][1] <= first:
            stack.pop()
        opened = at
        while at < len(stretches) and stretches[at][0] <= first:
            stack.append(stretches[at])
            at += 1
        opens = tuple(name for _, _, name in stretches[opened:at])
        owner = stack[-1][2] if stack else ""
        span = Span(base + first, base + last)
        lexemes.append(Lexeme(span, token.type, str(token), owner, opens, len(stack)))
    return tuple(lexemes)


def _preorder(root: Any) -> list[_Stretch]:  # noqa: ANN401 - Lark does not say what it returns
    """Returns the rules below the start symbol, parents first, in the order of the text."""
    found = []
    todo = [*reversed(root.children)]
    while todo:
        node = todo.pop()
        if node is None or isinstance(node, Token):
            continue
        assert isinstance(node, Tree)
        if not node.meta.empty:
            found.append((node.meta.start_pos, node.meta.end_pos, str(node.data)))
        todo.extend(reversed(node.children))
    return found
