"""Regular expressions: whether a whole text fits one, in time linear in the text.

RE2 matches them, which never goes back, whatever a pattern repeats.
"""

from functools import lru_cache
from typing import Any, Final

import re2

MAX_LENGTH: Final = 200
#: Bytes that a pattern takes at most, whatever texts it has seen.
_MAX_MEMORY: Final = 256 * 1024


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:  # noqa: ANN401 - RE2's own class is private
    options = re2.Options()
    options.log_errors, options.max_mem = False, _MAX_MEMORY
    return re2.compile(_bytes(pattern), options)


def _bytes(text: str) -> bytes:
    """Returns a text in UTF-8; what is none of it fits only itself."""
    return text.encode("utf-8", "surrogatepass")


def fits(pattern: str, text: str) -> bool:
    """Whether a whole text fits a pattern that is not refused."""
    return _compiled(pattern).fullmatch(_bytes(text)) is not None


def why_refused(pattern: str) -> str | None:
    """Returns why a pattern is refused, as the end of a sentence; None if it is fine."""
    if len(pattern) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    try:
        _compiled(pattern)
    except re2.error as error:
        return f"is not valid: {error.args[0].decode(errors='replace')}"
    return None
