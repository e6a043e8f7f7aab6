"""Beginnings that would be right but for one thing: a doubled word, a name, another list's items.

Each check looks for one kind of mistake and the first that recognises it speaks. What a line
declares is read here even where its first word is misspelt: its uses are no mistakes then.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.openings import DECLARATIONS, STATEMENTS, declaring_word, statement_word
from dsl.parser.place import Place, Refusal

#: Lines of the header: they do have a name.
_HEADER: Final = ("policy", "description", "version", "language", "mode", "order", "weight")
_DECLARES: Final = re.compile(
    r"([A-Za-z]+)(?:[ \t]+\1(?=[ \t]+\w))?[ \t]*(:?)[ \t]*\$?([A-Za-z_]\w*(?:-\w+)*)"
)
_GIVES: Final = re.compile(r"[ \t]*(?::[ \t]*\w[\w ]*)?:?=(?!=)")
_ITEM: Final = re.compile(r"([A-Za-z]\w*)[ \t]*:[ \t]*(\[[^\[\]\n]*\]|[^\s#][^\n#]*)")
_OPERATORS: Final = MappingProxyType(
    {"in": "in {}", "notin": "not in {}", "exists": "", "doesnotexist": "[] is missing"}
)


def declares(text: str) -> tuple[str, ...]:
    """Returns the names that a line declares which cannot be read; of `a-b` its parts too."""
    found = _DECLARES.match(text)
    if found is None:
        return ()
    word, colon, name = found.groups()
    if word not in DECLARATIONS:
        gives = _GIVES.match(text, found.end()) is not None
        if colon or word in STATEMENTS or not (gives or declaring_word(word)):
            return ()
    elif word == "use":
        return ()
    parts = tuple(name.split("-"))
    return ("_".join(parts), *(parts if parts[1:] else ()))


def doubled(place: Place) -> Refusal | None:
    """`filter filter: x`, `let let x = 5`, `score: score: load`."""
    if place.alone:
        return None
    found = re.match(
        r"([A-Za-z]+)[ \t]*:?[ \t]+(\1)(?=[ \t]*:(?!=)|[ \t]+[A-Za-z_]\w*)", place.text
    )
    if found is None or found[1] not in (*STATEMENTS, *DECLARATIONS):
        return _two_words(place)
    again = place.text[found.end() :].lstrip().startswith(":")
    colon = ":" in found.group()
    if place.start > found.end() + 1 + len(place.text[found.end() :].split("\n", 1)[0]):
        return None
    if found[1] in DECLARATIONS and re.match(r"[ \t]+\w+", place.text[found.end() :]) is None:
        return None
    if found[1] in STATEMENTS and (found[1] in _HEADER or not (again or not colon)):
        return None
    return Refusal(
        "P001", f"`{found[1]}` stands twice", *found.span(2), helps=("leave one out",), fix="",
        fix_at=(0, found.start(2)),
    )  # fmt: skip


def _two_words(place: Place) -> Refusal | None:
    """`filter: score: load`: which of the two is meant, nobody knows."""
    found = re.match(r"([A-Za-z]+):[ \t]*([A-Za-z]+):(?!=)[ \t]*([^\n]*)", place.text)
    if found is None or place.start > found.start(3):
        return None
    first, second, rest = found[1], found[2], found[3].rstrip()
    if not {first, second} <= {*STATEMENTS} - {*_HEADER, "normalize"}:
        return None
    return place.at(
        *found.span(2), "P001", f"`{second}` starts a statement of its own",
        f"write  {second}: {rest}   or   {first}: {rest}",
    )  # fmt: skip


def named(place: Place) -> Refusal | None:
    """`filter nginx: A -> B`, `score spread: load`, `policy nginx {`."""
    found = re.match(
        r"([A-Za-z]+)[ \t]+([A-Za-z][\w.-]*|\"[^\"\n]*\"|'[^'\n]*')[ \t]*(:(?!=)|\{)[ \t]*([^\n]*)",
        place.text,
    )
    if found is None or place.alone or found[1] not in STATEMENTS or place.start > found.end():
        return None
    word, name, sign, rest = found.groups()
    if word in ("policy", "version"):
        if rest.split("#")[0].strip() not in ("", "{"):
            return None
        plain = re.sub(r"[^A-Za-z0-9._/-]+", "-", name).strip("-._/")
        better = f"{word}: {plain}"
        end = found.end() if rest else found.end(3)
        return Refusal(
            "P005", f"`{word}` needs a colon, and nothing stands behind its name", 0, len(word),
            helps=(f"write  {better}",), fix=better, fix_at=(0, end),
        )  # fmt: skip
    if word in _HEADER or sign == "{" or not rest:
        return None
    return Refusal(
        "P005", "a rule has no name", *found.span(2),
        helps=(f"write  {word}: {rest.rstrip()}", "what it is for stands in a comment:  # ..."),
        fix=f"{word}: ", fix_at=(0, found.start(4)),
    )  # fmt: skip


def items(place: Place) -> Refusal | None:
    """List items of Kubernetes below a key: `topologySpreadConstraints:`, `- key: a`."""
    head = re.match(r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*(?:#[^\n]*)?\n[ \t]*-[ \t]", place.bare)
    if head is None or place.alone:
        return None
    lines = place.text[head.end() - 2 :]
    given = {
        key.lower(): re.sub(r"\A([\"'])(.*)\1\Z", r"\2", value.strip())
        for key, value in _ITEM.findall(lines)
    }
    better = _spread(given) or _expression(head[1], given)
    if better and re.search(r"\n[ \t]*- ", lines) is None:
        what = "lists of Kubernetes objects are written as statements"
        if head[1] not in STATEMENTS:
            what = f"there is no statement `{head[1]}`"
        return place.at(*head.span(1), "P004", what, f"write  {better}")
    if head[1] in STATEMENTS or place.start > head.end():
        return None
    rule = re.match(r"-[ \t]+([a-z]+)[ \t]*:[ \t]*(\S.*)", lines)
    shown = f"{rule[1]}: {rule[2]}" if rule is not None and rule[1] in STATEMENTS else ""
    tested = next((given[one] for one in ("expression", "expr", "cel") if one in given), "")
    shown = f"filter: {tested}" if tested else shown
    if shown:
        what = f"there is no statement `{head[1]}`: each rule stands in column 1"
        return place.at(*head.span(1), "P004", what, f"write  {shown}")
    return statement_word(place)


def _spread(given: dict[str, str]) -> str:
    """Returns the `spread:` of a constraint, "" where it is none."""
    key = given.get("topologykey", "")
    if not key:
        return ""
    known = {"topology.kubernetes.io/zone": "zone", "topology.kubernetes.io/region": "region",
             "kubernetes.io/hostname": "node", "zone": "zone", "node": "node"}  # fmt: skip
    skew = f" skew {given['maxskew']}" if re.fullmatch(r"\d+", given.get("maxskew", "")) else ""
    hard = " hard" if given.get("whenunsatisfiable") == "DoNotSchedule" else ""
    return f"spread: over {known.get(key) or chr(34) + key + chr(34)}{skew}{hard}"


def _expression(word: str, given: dict[str, str]) -> str:
    """Returns the rule of `key`, `operator` and `values`, "" where they are not given."""
    key, operator = given.get("key", ""), given.get("operator", "").lower()
    if not key or operator not in _OPERATORS or word.lower() in ("tolerations", "taints"):
        return ""
    owner = "pod" if "pod" in word.lower() else "node"
    rule = word if word in STATEMENTS else "filter"
    if operator == "doesnotexist":
        return f"{rule}: {owner}.label[{key}] is missing"
    values = given.get("values", "")
    if operator != "exists" and not values.startswith("["):
        return ""
    return f"{rule}: {owner}.label {key} {_OPERATORS[operator].format(values)}".rstrip()
