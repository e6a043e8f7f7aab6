"""Texts that want quotes, have those of another language, or hold what ends them.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re

from dsl.parser.complaints.connectives import WORDS
from dsl.parser.complaints.place import CLAUSES, FIELD, KEYWORDS, LAST_VALUE, Place, written_here
from dsl.parser.complaints.queries import in_metric
from dsl.parser.refusal import Refusal
from dsl.spelling import closest


def apostrophe(place: Place) -> Refusal | None:
    """`'don't'`: the apostrophe ends the text."""
    before = place.text[: place.start]
    first = re.search(r"'[^'\n]*'\Z", before)
    more = re.match(r"\w[^'\n]*'", place.text[place.start :])
    if first is None or more is None or '"' in first.group() + more.group():
        return None
    span = (first.start(), place.start + more.end())
    last = place.text.rfind("'", span[1], place.line(place.start)[1])
    if last > 0 and '"' not in place.text[span[0] : last] and place.heals(
        span[0], last + 1, f'"{place.text[span[0] + 1 : last]}"'
    ):  # fmt: skip
        span = (span[0], last + 1)
    inner = place.text[span[0] + 1 : span[1] - 1]
    return place.instead(span, "P001", "the apostrophe ends this text", f'"{inner}"')


def unquoted(place: Place) -> Refusal | None:
    """A text that needs quotes: a message, a regular expression, a query, `nginx:1.25`."""
    before = place.before
    line = place.text[place.start : place.line(place.start)[1]].strip()
    if "STRING" in place.accepts and before.endswith(("message", "event")):
        word = "message" if before.endswith("message") else "event"
        span = (place.start, place.start + len(line))
        line = re.sub(r"\A[fFrRbu](?=\")", "", line)
        said = line.lstrip("=:(").rstrip(")").strip().strip(chr(34))
        if not said:
            help_ = f'write what is to be said:  {word} "..."'
            return place.at(*span, "P009", f"`{word}` takes a quoted text", help_)
        better = f'"{said}"'
        gap = "" if place.text[place.start - 1].isspace() else " "
        return Refusal(
            "P001", f"`{word}` takes a quoted text", *span, helps=(f"write  {word} {better}",),
            fix=gap + better,
        )  # fmt: skip
    if before.endswith("matches") and "STRING" in place.accepts:
        return _pattern(place)
    if before.endswith("promql") and "STRING" in place.accepts:
        return in_metric(place, line)
    return _touching(place)


def _pattern(place: Place) -> Refusal | None:
    """`matches /^web-.*$/i`, `matches r"x"`, `matches pod.label[x]`, `matches web.*`."""
    text = place.text[place.start :]
    raw = re.match(r"[rRbBuU]{1,2}(?:\"([^\"\n]*)\"|'([^'\n]*)')", text)
    slashes = re.match(r"/((?:\\.|[^/\n])+)/([a-z]*)", text)
    field = FIELD.match(place.text, place.start)
    words = re.match(r"\S+", text)
    left = LAST_VALUE.search(place.before[: -len("matches")].rstrip())
    message = "a regular expression stands in quotes"
    if raw is not None:
        inner, end = raw[1] if raw[1] is not None else raw[2], raw.end()
    elif slashes is not None:
        inner, end = slashes[1].replace("\\/", "/"), slashes.end()
    elif field is not None and left is not None:
        value = place.text[left.start() : left.end()]
        better = f"{value} == {written_here(field.group())}"
        return Refusal(
            "P001", "`matches` takes a regular expression, not a field", place.start,
            field.end(), helps=(f"write  {better}",), fix=better,
            fix_at=(left.start(), field.end()),
        )  # fmt: skip
    else:
        if words is None:
            return None
        inner, end = words.group(), words.end()
    better = f"'{inner}'" if "'" not in inner else f'"{inner}"'
    span = (place.start, place.start + end)
    if slashes is None or "i" not in slashes[2] or left is None:
        return place.instead(span, "P001", message, better)
    lower = f"lower({place.text[left.start() : left.end()]}) matches {better}"
    return Refusal(
        "P001", f"{message}, and there is no `i` behind it", *span, helps=(f"write  {lower}",),
        fix=lower if inner.lower() == inner else None, fix_at=(left.start(), span[1]),
    )  # fmt: skip


def _is_no_text(before: str, more: str) -> bool:
    """Whether what follows a word is a field, or the effect of a taint."""
    field = re.match(r"(pod|node|namespace|it|cluster|zone|time)\.\w", more)
    taint = re.search(r"\.taints?[ \t]+[\w./-]+(=[\w./-]*)?\Z", before)
    return field is not None or taint is not None


def _tested(place: Place) -> re.Match[str] | None:
    """Returns the word operator and its word, where a text could go on."""
    before = place.before
    if place.kind == "end" or before.endswith(("==", "<=", ">=", "!=")):
        return None
    tested = re.search(r"(contains|starts with|ends with|is|is not|like|=)[ \t]+(\S+)\Z", before)
    return tested or re.search(r"(?<=\w)(=|!=)([\w./$-]+)\Z", before)


def _touching(place: Place) -> Refusal | None:
    """`nginx:1.25`, `nginx*`: signs that a bare word does not have."""
    tested = _tested(place)
    if tested is None or place.start != tested.end(2):
        return None
    operator, word = tested.group(1), tested.group(2)
    tail = re.match(r"[^\s()\[\],;]*", place.text[place.start :])
    more = tail.group() if tail else ""
    if more in ("", ":") or _is_no_text(place.before, more) or re.fullmatch(r"\d+(\.\d+)?", word):
        return None
    span = (tested.start(2), place.start + len(more))
    if word.startswith("$") and operator != "like":
        # In quotes a parameter would be no more than its name.
        better = f'(join({word}, "{more}"))'
        fix = better if place.mends(*span, better) else None
        message = "a parameter and a text are put together by `join`"
        return place.at(*span, "P001", message, f"write  {operator} {better}", fix=fix)
    if "*" in more and operator in ("contains", "is", "starts with", "ends with", "like"):
        better = f"like {word}{more}"
        whole = (tested.start(1), span[1])
        if re.fullmatch(r"[\w*?./-]+", f"{word}{more}") and operator != "like":
            return Refusal(
                "P001", f"`{word}{more}` is a pattern", *span, helps=(f"write  {better}",),
                fix=better, fix_at=whole,
            )  # fmt: skip
    better = f'"{word}{more}"'
    if '"' in f"{word}{more}" or not place.mends(*span, better):
        return None
    return Refusal(
        "P001", f"`{word}{more}` needs quotes", *span, helps=(f"write  {operator} {better}",),
        fix=better,
    )  # fmt: skip


def odd_start(place: Place) -> Refusal | None:
    """`ends with :latest`, `contains @sha256`, `contains /nginx/`: signs in front of a word."""
    operator = re.search(r"\b(contains|starts with|ends with|is|is not)\Z", place.before)
    word = re.match(r"(?:[@:/~]+[\w.:/@-]*\w/?|[@:/_.-])(?![^\s)\],])", place.text[place.start :])
    if operator is None or word is None or place.start == operator.end():
        return None
    shown = word.group()
    slashes = re.fullmatch(r"/([\w.-]+)/", shown)
    better = slashes[1] if slashes is not None else f'"{shown}"'
    span = (place.start, place.start + word.end())
    if not place.mends(*span, better):
        return None
    what = "this is a text, not a pattern" if slashes is not None else f"`{shown}` needs quotes"
    return place.instead(span, "P001", what, better)


def of_words(place: Place) -> Refusal | None:
    """`contains my app`: a text of several words, none of which means something to a rule."""
    tested = _tested(place)
    if tested is None or place.start == tested.end(2):
        return None
    words = re.match(r"[A-Za-z0-9][\w.-]*(?:[ \t]+[A-Za-z0-9][\w.-]*)*", place.behind)
    if words is None or _is_no_text(place.before, place.met):
        return None
    written = [tested.group(2), *words.group().split()]
    start = tested.start(2)
    for found in re.finditer(r"\S+", words.group()):
        end = place.start + found.end()
        text = place.text[start:end]
        meaning = {*KEYWORDS, *CLAUSES, *WORDS}
        if any(one.lower() in meaning for one in (written[0], found.group())):
            return None
        if closest(found.group(), (*KEYWORDS, *CLAUSES)) is None and place.heals(
            start, end, f'"{text}"'
        ):
            return Refusal(
                "P001", f"`{place.met}` does not fit here", place.start, place.end,
                helps=(f'a text with blanks:  {tested.group(1)} "{text}"',), fix=f'"{text}"',
                fix_at=(start, end),
            )  # fmt: skip
    return None


def of_python(place: Place) -> Refusal | None:
    """`f"nginx-{node.name}"`: texts of Python."""
    found = re.search(r"(?<![\w.$])[fFrRbu]\Z", place.bare[: place.start])
    text = re.match(r"\"([^\"]*)\"|'([^']*)'", place.text[place.start :])
    if found is None or text is None:
        return None
    span = (found.start(), place.start + text.end())
    inner = text[1] if text[1] is not None else text[2]
    if found.group() not in "fF" or "{" not in inner:
        return place.instead(span, "P001", "a text has no letter before it", text.group())
    parts = [one for one in re.split(r"(\{[^{}]*\})", inner) if one]
    shown = ", ".join(one[1:-1] if one.startswith("{") else f'"{one}"' for one in parts)
    return place.instead(span, "P001", "texts are put together by `join`", f"join({shown})")


def inner_quotes(place: Place) -> Refusal | None:
    """`message "{node.label["zone"]}"`, `promql "x{a="b"}"`: quotes within quotes."""
    behind = place.text[place.start : place.start + 1]
    if place.text[place.start - 1 : place.start] != '"' or not behind or behind in ",;)] \t\n":
        return None
    first = re.search(r"\"[^\"\n]*\"\Z", place.text[: place.start])
    end = place.text.find("\n", place.start)
    end = len(place.text) if end < 0 else end
    if first is None:
        return None
    close = place.text.rfind('"', place.start, end)
    if close < 0:
        return None
    inner = place.text[first.start() + 1 : close]
    better = f"'{inner}'" if place.keyword == "metric" else '"' + inner.replace('"', "'") + '"'
    if "'" in inner or inner.count('"') % 2 or not place.heals(first.start(), close + 1, better):
        return None
    what = "a quote within a text ends it"
    return place.instead((first.start(), close + 1), "P001", what, better)


def hole(place: Place) -> Refusal | None:
    """`{load:.2f}`, `{load!r}`: formats of other languages in a message."""
    found = re.match(r"(:[.\w<>,]*|![rsa])[ \t]*\Z", place.text[place.start :])
    if not place.alone or found is None:
        return None
    expression = place.text[: place.start].strip()
    digits = re.search(r"\.(\d)", found.group())
    better = f"round({expression})" if digits is not None else expression
    return Refusal(
        "P013", "braces of a message hold an expression only", place.start, len(place.text),
        helps=(f"write  {{{better}}}",), fix=better, fix_at=(0, len(place.text)),
    )  # fmt: skip
