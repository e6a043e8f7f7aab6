"""The words of one statement with their place in the grammar.

For the formatter, which needs every word and sign; Lark's objects do not leave this module.
"""

from collections.abc import Sequence
from typing import Any

from lark import Token, Tree

from dsl.source import Span
from dsl.syntax import Lexeme

#: Start, end and name of a rule.
_Stretch = tuple[int, int, str]


def lexemes_of(tree: Tree[Token], words: Sequence[Token], base: int) -> tuple[Lexeme, ...]:
    """Returns the words of a text and what they are of; `base` is where it starts in its file."""
    tokens = [token for token in words if token.type != "_NL"]
    stretches = _preorder(tree)
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
        opens = tuple([name for _, _, name in stretches[opened:at]])
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
