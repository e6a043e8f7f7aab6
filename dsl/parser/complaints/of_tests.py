"""Why a statement of a test file could not be read.

Knows what may stand in a test file; what holds of any text is asked of the attempts for policies.
"""

import re
from typing import Final

from dsl.parser.complaints.order import complain
from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Halt, Refusal
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from dsl.parser.tests import blank_out, helps_of_expectation, listed, no_given, refuse
from dsl.parser.testwords import EXPECTATIONS, GIVEN, HEADS, KEYED, PLAIN, UNNAMED
from dsl.source import QUOTED_OR_COMMENT
from dsl.spelling import closest

_EFFECTS: Final = "NoSchedule|NoExecute|PreferNoSchedule"
_VALUES: Final = frozenset({"WORD", "STRING"})


def complain_of_test(halt: Halt) -> Refusal:
    """Names what is wrong where reading a test file's statement stopped."""
    bare = QUOTED_OR_COMMENT.sub(blank_out, halt.text)
    word = re.compile(r"[A-Za-z_][\w-]*|\S").match(halt.text, halt.start)
    met = word.group() if word is not None and halt.kind != "end" else ""
    at = Place(halt.text, bare, halt.start, halt.end, halt.accepts, halt.kind, met)
    for check in _CHECKS:
        found = check(at)
        if found is not None:
            return found
    refusal = complain(halt, of_test=True)
    words = _plain_words(halt.accepts)
    if refusal.code in ("P001", "P009") and not refusal.helps and words:
        return Refusal(
            refusal.code, refusal.message, refusal.start, refusal.end, helps=(f"{words} fits here",)
        )
    return refusal


def _plain_words(accepts: frozenset[str]) -> str:
    if "GIVEN" in accepts:
        return "an attribute, `given`, `expect` or the next statement"
    return "an attribute" if "NAME" in accepts and "LABEL" in accepts else ""


def _head(at: Place) -> Refusal | None:
    """The word in column 1 and its colon."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.match(r"([A-Za-z_]+)([ \t]*)(:?)[ \t]*", bare)
    if found is None:
        return None if start else refuse(0, 1, "P004", f"a statement does not start with `{met}`")
    word, colon = found.group(1), found.group(3)
    if word in ("given", "expect"):
        help_ = f"indent it under its test:   {word} ..."
        return refuse(0, len(word), "P012", f"`{word}` belongs into a test", help_)
    if word not in HEADS:
        return _unknown_head(word)
    if word == "use" or start > found.end():
        return None
    if not colon:
        near = _line(text, bare, len(word))
        if word == "test":
            near = _named(near.removesuffix(":"))
        metric = re.match(r"metric[ \t]+(\w+)[ \t]*=[ \t]*(?![\d\s])", bare)
        if metric is not None:
            near = f"{metric.group(1)} = VALUE   (the query stands in the policy)"
        return refuse(0, len(word), "P005", f"`{word}` needs a colon", f"write  {word}: {near}")
    return _head_value(word, _line(text, bare, start), start)


def _line(text: str, bare: str, start: int) -> str:
    """Returns the rest of a line as written, without its comment."""
    return text[start : start + len(bare[start:].split("\n", 1)[0].rstrip())].strip()


def _named(name: str) -> str:
    """Returns the name of a test as it is written: in quotes."""
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
    return name if quoted else f'"{name.strip(chr(34)) or "what must hold"}"'


def _unknown_head(word: str) -> Refusal:
    if word in STATEMENTS or word in DECLARATIONS or word == "applies":
        return refuse(
            0, len(word), "P004", f"`{word}` belongs into a policy, not into a test of one",
            "name the policy to test:  use NAME",
        )  # fmt: skip
    near = closest(word, HEADS)
    help_ = f"did you mean `{near}`?" if near else f"a test file has {listed(HEADS)}"
    return refuse(0, len(word), "P004", f"a test file has no statement `{word}`", help_)


def _head_value(word: str, first: str, start: int) -> Refusal | None:
    """What stands right behind the colon."""
    end = start + max(len(first.split(maxsplit=1)[0]) if first else 0, 1)
    if word == "test":
        help_ = f'write  test: "{first or "what must hold"}"'
        return refuse(start, end, "P009", "a test needs a name in quotes", help_)
    if word == "now":
        help_ = 'write  now: "2025-03-01T10:00:00Z"'
        return refuse(start, end, "P001", "the time stands in quotes", help_)
    if word in ("running", "finished"):
        help_ = f"write  {word}: on NODE name web"
        return refuse(start, end, "P009", f"`{word}` says on which node the pod is", help_)
    if word == "metric":
        help_ = "write  metric: NAME = VALUE"
        return refuse(start, end, "P009", "`metric` needs a name and a value", help_)
    if word in UNNAMED:
        return None
    help_ = f"write  {word}: NAME cpu 4" if word == "node" else f"write  {word}: NAME ..."
    return refuse(start, end, "P009", f"`{word}` needs a name", help_)


def _own_line(at: Place) -> Refusal | None:
    """An indented line that starts like a statement."""
    bare, start = at.bare, at.start
    line = bare.rfind("\n", 0, start + 1) + 1
    found = re.compile(r"[ \t]+([A-Za-z]+)[ \t]*:").match(bare, line)
    if found is None or line == 0 or start > found.end() or found.group(1) not in HEADS:
        return None
    word = found.group(1)
    if word in GIVEN:
        help_ = f"in a test write  given {word} ...; for all tests remove the leading spaces"
    else:
        help_ = "remove the leading spaces"
    return Refusal(
        "P012", "this line is indented, so it continues the", found.start(1), found.end(1),
        label="a new statement starts in column 1", helps=(help_,),
        continues=re.match(r"\w*", bare).group(),  # type: ignore[union-attr]  # may be empty
    )  # fmt: skip


def _clause_word(at: Place) -> Refusal | None:
    """What follows `given` and `expect`, and words that should be one of them."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    if before.endswith("given") and "POD" in accepts:
        return no_given(start, met)
    if re.search(r"given[ \t]+(running|finished)\Z", before):
        word = before.rsplit(None, 1)[-1]
        help_ = f"write  given {word} on NODE name web"
        return refuse(start, start + 1, "P009", f"`{word}` says on which node the pod is", help_)
    if before.endswith("expect") and "ERROR" in accepts:
        end = start + max(len(met), 1)
        what = f"`{met}` is not something to expect" if met else "nothing follows `expect`"
        return refuse(start, end, "P009", what, *helps_of_expectation(met))
    line = bare.rfind("\n", 0, start) + 1
    first = re.compile(r"[ \t]+(\w+)").match(bare, line)
    if first is not None and line and first.group(1) not in ("given", "expect", *KEYED):
        near = closest(first.group(1), ("given", "expect"))
        if near is not None:
            help_ = f"did you mean `{near}`?"
            what = f"`{first.group(1)}` does not fit here"
            return refuse(first.start(1), first.end(1), "P001", what, help_)
    return None


def _expectation_word(at: Place) -> Refusal | None:
    """`expect event "x"`, `expect unschedulable`: the word itself is wrong."""
    bare, start = at.bare, at.start
    found = re.search(r"\bexpect[ \t]+([A-Za-z_][\w-]*)[^\n]*\Z", bare[:start].rstrip())
    if found is None or found.group(1) in EXPECTATIONS:
        return None
    word = found.group(1)
    message = f"there is no expectation `{word}`"
    return refuse(*found.span(1), "P701", message, *helps_of_expectation(word))


def _compared(at: Place) -> Refusal | None:
    """`expect score a == 0`: a sign between a name and the value expected."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.search(r"expect[ \t]+(score|annotation)[ \t]+([\w./-]+)\Z", bare[:start].rstrip())
    sign = re.compile(r"(?:==?|:)[ \t]*(\S*)").match(bare, start)
    if found is None:
        # `is` would be the value itself, were nothing behind it.
        said = re.search(
            r"expect[ \t]+(score|annotation)[ \t]+([\w./-]+)[ \t]+(is)[ \t]*\Z", bare[:start]
        )
        wanted = re.compile(r"\"_*\"|[\w./-]+").match(bare, start)
        if said is None or wanted is None:
            return None
        what = f"{said.group(1)} {said.group(2)} {text[wanted.start() : wanted.end()]}"
        message = "no `is` stands before the value expected"
        return refuse(*said.span(3), "P001", message, f"write  expect {what}")
    if sign is None or met not in ("=", ":"):
        return None
    value = text[sign.start(1) : sign.end(1)] or "VALUE"
    shown = bare[start : sign.start(1)].rstrip()
    return refuse(
        start, start + len(shown), "P001", f"no `{shown}` stands before the value expected",
        f"write  expect {found.group(1)} {found.group(2)} {value}",
    )  # fmt: skip


def _effect(at: Place) -> Refusal | None:
    """`taint dedicated=ml:NoSchedule`."""
    text, bare, start = at.text, at.bare, at.start
    form = re.compile(
        rf"\b(taint|toleration)[ \t]+([\w./-]+)(?:=(\"_*\"|[\w./-]*))?(:(?:{_EFFECTS}))\b"
    )
    for found in form.finditer(bare):
        if found.start() < start <= found.end():
            value = text[found.start(3) : found.end(3)] if found.group(3) else '""'
            word = found.group(1)
            message = f"a {word} is given by its key and value, without its effect"
            help_ = f"write  {word} {found.group(2)}={value}"
            return refuse(*found.span(4), "P001", message, help_)
    return None


def _list(at: Place) -> Refusal | None:
    """`expect feasible a, b`: a list without brackets."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.search(r"expect[ \t]+\w+[ \t]+([\w./-]+)\Z", bare[:start].rstrip())
    if found is None or met != ",":
        return None
    line = _line(text, bare, found.start(1))
    end = found.start(1) + len(line)
    return refuse(found.start(1), end, "P001", "a list stands in brackets", f"write  [{line}]")


def _pair(at: Place) -> Refusal | None:
    """`name=web`, `cpu: 4`, `label app`: the wrong sign between a name and its value."""
    text, bare, start, met, accepts = at.text, at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    if re.fullmatch(r"metric:[ \t]*\w+", before) and met != "=":
        end = start + max(len(met), 1)
        help_ = f"write  {before} = {met or 'VALUE'}"
        return refuse(start, end, "P005", f"`{before}` needs a `=`", help_)
    named = re.fullmatch(r"(\w+):[ \t]*([A-Za-z_]\w*)", before)
    if named is not None and met in ("=", ":") and named.group(1) in HEADS[2:]:
        help_ = f"write  {named.group(1)}: NAME {named.group(2)} VALUE"
        return refuse(
            named.start(2), start, "P009", f"`{named.group(1)}` needs a name first", help_
        )
    left = re.search(r"([A-Za-z_]\w*)\Z", before)
    if left is not None and met in ("=", ":") and accepts & _VALUES:
        value = text[start + 1 :].split()
        word = left.group(1)
        shown = value[0] if value and word not in KEYED else "VALUE"
        write = f"{word} KEY=VALUE" if word in KEYED else f"{word} {shown}"
        if re.search(r"\bmetric[ \t]+\w+\Z", before):
            write = f"metric {word} {shown}"
        elif word not in (*KEYED, *PLAIN):
            near = closest(word, (*KEYED, *PLAIN))
            write = f"{near or 'label'} {word}={value[0] if value else 'VALUE'}"
            write = f"{near} {shown}" if near in PLAIN else write
            write = f"{near} KEY=VALUE" if near in KEYED else write
        return refuse(
            start, start + 1, "P001", f"no `{met}` stands between `{word}` and its value",
            f"write  {write}",
        )  # fmt: skip
    return _key_and_value(at)


def _key_and_value(at: Place) -> Refusal | None:
    """`annotation a.io/x: a`, `labels team=red`, `label app`."""
    text, bare, start, met, accepts = at.text, at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    keyed = re.search(r"([a-z_]+)[ \t]+([\w./-]+|\"_*\")\Z", before)
    if keyed is None:
        return None
    word, key = keyed.group(1), text[keyed.start(2) : keyed.end(2)]
    given = re.compile(r"(?:==?|:)[ \t]*(\"_*\"|[^\s,=]+)").match(bare, start)
    value = text[given.start(1) : given.end(1)] if given is not None else "VALUE"
    end = start + max(len(met), 1)
    longer = re.compile(r"(:[\w./@:-]*)=([^\s,=]+)").match(bare, start)
    if word in KEYED and "EQUAL" in accepts and longer is not None:
        begin, whole = keyed.start(2), key + text[longer.start(1) : longer.end(1)]
        help_ = f'write  {word} "{whole}"={longer.group(2)}'
        return refuse(begin, longer.end(1), "P001", f"`{whole}` needs quotes", help_)
    if word in KEYED and "EQUAL" in accepts:
        help_ = f"write  {word} {key}={value}"
        return refuse(start, end, "P001", f"`{word}` takes a key and a value", help_)
    near = word.removesuffix("s") if word.removesuffix("s") in KEYED else closest(word, KEYED)
    if met == "=" and near is not None and word != near and "EQUAL" not in accepts:
        message = f"there is no attribute `{word}`"
        return refuse(*keyed.span(1), "P701", message, f"write  {near} {key}={value}")
    return None


def _needs_quotes(at: Place) -> Refusal | None:
    """`image nginx:1.25`, `created 2025-03-01T10:00:00Z`: signs that a bare word cannot have."""
    bare, start = at.bare, at.start
    if not start or bare[start - 1].isspace() or bare[start] in '\n,[]()="':
        return None
    found = re.search(r"[^\s=\[\],()\"]*\Z", bare[:start])
    head = found.group() if found else ""
    tail = re.compile(r"[^\s,\[\]()]*").match(bare, start)
    word = head + (tail.group() if tail else "")
    if not head or re.fullmatch(r"[\w.-]+:", word):
        return None
    begin = start - len(head)
    return refuse(begin, begin + len(word), "P001", f"`{word}` needs quotes", f'write  "{word}"')


def _missing_value(at: Place) -> Refusal | None:
    """An attribute or an expectation without its value."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    last = re.search(r"([A-Za-z_]\w*)\Z", before)
    if last is None or not accepts & _VALUES or "NAME" in accepts:
        return None
    if met and re.match(r"[\w\"'\[(]", met):
        return None
    word = last.group(1)
    if word in HEADS and bare.startswith(word):
        return None
    write = f"{word} KEY=VALUE" if word in KEYED else f"{word} VALUE"
    if re.search(rf"\bgiven[ \t]+pod[ \t]+{word}\Z", before):
        write = f"given pod name {word}"
    if word in EXPECTATIONS and re.search(rf"\bexpect[ \t]+{word}\Z", before):
        write = f"expect {EXPECTATIONS[word].example}"
    return refuse(
        last.start(1), last.end(1), "P009", f"nothing follows `{word}`", f"write  {write}"
    )


_CHECKS: Final = (
    _head, _own_line, _clause_word, _expectation_word, _compared, _list, _effect, _pair,
    _needs_quotes, _missing_value,
)  # fmt: skip
