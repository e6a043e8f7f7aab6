"""Declarations and header lines: names, signs, types, ranges and values of `param`, `mode: ...`.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.spelling import closest

_TYPES: Final = MappingProxyType(
    {
        **dict.fromkeys(("str", "text", "char", "varchar"), "string"),
        **dict.fromkeys(("int", "integer", "float", "double", "num", "numeric", "long", "percent",
                         "percentage", "uint"), "number"),
        **dict.fromkeys(("boolean", "flag"), "bool"),
        **dict.fromkeys(("list", "array", "strings", "set", "[]string"), "list of string"),
        **dict.fromkeys(("timespan", "interval", "period", "seconds", "minutes", "hours"),
                        "duration"),
        **dict.fromkeys(("timestamp", "date", "datetime"), "time"),
        **dict.fromkeys(("bytes", "memory", "cpu", "resource"), "quantity"),
    }
)  # fmt: skip
_MODES: Final = MappingProxyType(
    {
        **dict.fromkeys(("dry-run", "dryrun", "dry", "audit", "warn", "test", "observe"), "shadow"),
        **dict.fromkeys(("on", "enabled", "active", "deny", "strict", "true"), "enforce"),
        **dict.fromkeys(("disabled", "none", "ignore", "false", "no"), "off"),
        "canary": "canary 10%",
    }
)  # fmt: skip
_LIVE: Final = "a mode is enforce or off (shadow and canary 10% are read, but not run yet)"
_TYPE_NAMES: Final = ("string", "number", "quantity", "duration", "bool", "time")


def declaration(place: Place) -> Refusal | None:
    """A declaration without its `=`, with a colon behind its word, or a name that is none."""
    found = re.match(
        r"(let|param|metric|use)\b[ \t]*(:?)[ \t]*(\$?)([A-Za-z_][\w.-]*)?", place.text
    )
    if found is None or place.start > found.end() + 1:
        return None
    word, colon, dollar, name = found.groups()
    if colon and place.start <= found.end(2):
        value = "=" in place.text[found.end() :].split("\n", 1)[0] or word == "use"
        return Refusal(
            "P005", f"`{word}` takes no colon", found.start(2), found.end(2),
            helps=(_without_colon(word, name),), fix="" if value else None,
        )  # fmt: skip
    if word == "use":
        return None
    if name is None:
        return place.refuse("P009", f"`{word}` needs a name", f"write  {word} NAME = ...")
    start, end = found.start(4), found.end(4)
    if dollar:
        message = f"`{word}` names it without the dollar"
        return Refusal(
            "P014", message, found.start(3), end, helps=(f"write  {word} {name}",), fix=name
        )
    better = re.sub(r"\W", "_", name).strip("_")
    if better != name:
        message = f"`{name}` is no name: a name has letters, digits and `_`"
        return place.at(start, end, "P009", message, f"write  {better}", fix=better)
    return _equals_sign(place, word, name, end)


def _without_colon(word: str, name: str | None) -> str:
    if word == "metric":
        return f'write  metric {name or "NAME"} = promql "QUERY"   (bundled metrics need no line)'
    return f"write  {word} {name or 'NAME'}" + (" = ..." if word != "use" else "")


def _equals_sign(place: Place, word: str, name: str, end: int) -> Refusal | None:
    if place.met == "=" or "EQUAL" not in place.accepts:
        return None
    rest = place.text[end:].split("\n", 1)[0].strip()
    if word == "param":
        return _param_type(place, name, rest)
    value = rest.lstrip(":= \t") or "..."
    message = f"`{word} {name}` needs a `=`"
    lead = re.compile(r"[ \t]*(?::[ \t]*=?)?[ \t]*").match(place.text, end)
    stop = lead.end() if lead is not None else end
    help_ = f"write  {word} {name} = {value}"
    return Refusal(
        "P005", message, place.start, place.end, helps=(help_,), fix=" = ", fix_at=(end, stop)
    )


def _param_type(place: Place, name: str, rest: str) -> Refusal | None:
    typed = re.match(r"([a-z]+)\b", rest)
    if typed is None or place.met.startswith('"'):
        return None
    kind = _TYPES.get(typed[1], typed[1])
    return Refusal(
        "P005", "a colon stands before the type of a parameter", place.start, place.end,
        helps=(f"write  param {name}: {kind}",), fix=f": {kind}",
        fix_at=(len(place.before), place.end),
    )  # fmt: skip


def param(place: Place) -> Refusal | None:
    """The type of a parameter, and what its values may be."""
    if place.keyword != "param":
        return None
    of_type = re.match(
        r"(param[ \t]+(\w+)[ \t]*:[ \t]*)(\[\]string|list of \w+|[\w-]+)", place.text
    )
    if of_type is not None and place.start < of_type.end(3) + 2 and place.met != '"':
        word = of_type[3]
        kind = "list of string" if word == "list of strings" else _TYPES.get(word)
        span = of_type.span(3)
        if kind is not None:
            return place.instead(span, "P001", f"there is no type `{word}`", kind)
        if "TYPE" in place.accepts:
            near = closest(word, _TYPE_NAMES)
            helps = [f"did you mean `{near}`?"] if near else [
                f"a type is {', '.join(_TYPE_NAMES)} or list of one of them"
            ]  # fmt: skip
            if near is None and "=" not in place.text[of_type.end() :].split("\n")[0]:
                helps.append(f"with a value and no type write  param {of_type[2]} = {word}")
            return place.at(*span, "P001", f"there is no type `{word}`", *helps, fix=near)
    range_ = re.match(
        r"(in|between|range)[ \t]+\(?(\S+?)[ \t]*(?:\.\.|and|to|,)[ \t]*([\w.%]+)\)?", place.behind
    )
    if range_ is not None:
        span = (place.start, place.start + range_.end())
        better = f"from {range_[2]} to {range_[3]}"
        return place.instead(span, "P001", f"`{range_[1]}` does not fit here", better)
    choice = re.search(r"one[ \t]+of\Z", place.before)
    if choice is not None and "LSQB" in place.accepts:
        end = place.line(place.start)[1]
        words = place.text[place.start : end].strip("() \t")
        return place.instead(
            (place.start, end), "P001", "the words of a choice stand in brackets", f"[{words}]"
        )
    return None


def header(place: Place) -> Refusal | None:
    """Values of header lines: quotes where none belong, none where they do, other words."""
    found = re.match(r"(\w+)[ \t]*:[ \t]*", place.text)
    named = re.match(r"(policy|version)[ \t]*:[ \t]*(\S[^\n#]*)", place.text)
    if named is not None and named.start(2) < place.start <= named.end(2):
        better = re.sub(r"[^A-Za-z0-9._/-]+", "-", named[2].strip()).strip("-._/")
        span = (named.start(2), named.start(2) + len(named[2].rstrip()))
        return place.instead(span, "P001", f"`{named[1]}` takes one word", better)
    if found is None or place.start != found.end():
        return None
    word = found[1]
    span = place.line(place.start)
    value = place.text[place.start : span[1]].strip()
    span = (place.start, place.start + len(value))
    if word == "description" and value:
        text = value.replace('"', "'")
        return place.instead(span, "P001", "a description is a quoted text", f'"{text}"')
    if word == "mode":
        plain = value.strip("\"'").lower()
        share = re.fullmatch(r"canary[ \t]+(\d+(\.\d+)?)", plain)
        better = f"canary {share[1]}%" if share is not None else _MODES.get(plain, plain)
        if better == "shadow" and plain != "shadow":
            return place.at(*span, "P001", f"`{value}` is no mode", _LIVE)
        if re.fullmatch(r"enforce|shadow|off|canary \d+(\.\d+)?%", better):
            return place.instead(span, "P001", f"`{value}` is no mode", better)
        near = closest(plain, ("enforce", "shadow", "off"))
        hints = [f"did you mean `{near}`?"] if near else []
        hints.append(_LIVE)
        return place.at(*span, "P001", f"`{value}` is no mode", *hints, fix=near)
    if word in ("policy", "version") and value[:1] in "\"'":
        better = re.sub(r"[^A-Za-z0-9._/-]+", "-", value.strip("\"'")).strip("-._/") or "NAME"
        return place.instead(span, "P001", f"`{word}` takes a word without quotes", better)
    return None
