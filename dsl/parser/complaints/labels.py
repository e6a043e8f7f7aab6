"""Tests of labels and of other fields with a key.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.connectives import WORDS
from dsl.parser.complaints.place import CLAUSES, KEYWORDS, OWNER, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS, PLURALS
from dsl.spelling import NOTHING, closest, quoted_key

_KEY: Final = r"[\w./-]+|\"_*\""
#: The key of a label that a test starts with, and who has it.
TEST: Final = (
    rf"(?<![\w.$])((?:pod|node|namespace|it|workload)\.(label|annotation|taint)s?)[ \t]+({_KEY})"
)
_IS_THERE: Final = re.compile(
    r"(?:is[ \t]+)?(?:exists?|present|set|defined)(?![\w./-])", re.IGNORECASE
)
_IS_NOT_THERE: Final = re.compile(
    r"(?:is[ \t]+)?(?:(?:does[ \t]*not|doesn't|not)[ \t]*exists?|not[ \t]+(?:present|set|defined)"
    r"|missing|absent|unset|undefined)(?![\w./-])",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    rf"(?:(not)[ \t]+)?(?:(?:is[ \t]+)?(not[ \t]*)?equals?(?:[ \t]+to)?|eq|:=)?[ \t]*({_KEY})",
    re.IGNORECASE,
)
_OPERATOR: Final = re.compile(
    r"[ \t]*(?:[=!<>+*/?-]|(?:is|in|not|contains|starts|ends|like|matches)(?!\w))"
)
_NOT_IN: Final = re.compile(r"not_?in(?!\w)", re.IGNORECASE)
#: `Gt 8`, as a node selector says it.
_AMOUNT: Final = re.compile(r"(gte?|lte?|ge|le)[ \t]+(\d[\d.]*)(?![\w.])", re.IGNORECASE)
_SIGNS: Final = {"g": ">", "l": "<"}
#: A further word, so that the one before it was not the value alone.
_MORE: Final = re.compile(
    rf"[ \t]+(?!(?:{'|'.join((*KEYWORDS, *CLAUSES))}|[A-Z]+)(?![\w.]))[A-Za-z0-9]+(?![\w.])"
)
_EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def value(place: Place) -> Refusal | None:
    """`node.label pool gpu`, `node.label pool exists`, `node.taint dedicated NoSchedule`."""
    before = re.sub(r"[ \t]+not\Z", "", place.before)
    test = re.search(rf"{TEST}\Z", before)
    if test is None or place.kind == "end":
        return _of_field(place)
    rest = place.bare[len(before) :]
    start = len(place.bare) - len(rest.lstrip())
    return _asked(place, test, start) or _equal(place, test, start)


def _asked(place: Place, test: re.Match[str], start: int) -> Refusal | None:
    """Words of other languages that ask for a label: `Exists`, `NotIn [a]`, `Gt 8`."""
    owner, key = test[1], place.text[test.start(3) : test.end(3)]
    forms = (
        (_IS_NOT_THERE, f"{owner}[{key}] is missing"),
        (_IS_THERE, f"{owner} {key}"),
        (_NOT_IN, f"{owner} {key} not in"),
    )
    for pattern, better in forms:
        found = pattern.match(place.bare, start)
        if found is not None and place.mends(test.start(), found.end(), better):
            return _instead(place, found, better, test.start())
    found = _AMOUNT.match(place.bare, start)
    if found is None:
        return None
    sign = _SIGNS[found[1][0].lower()] + ("=" if found[1][1].lower() == "e" else "")
    sign += "=" if found[1][2:] else ""
    better = f"number({owner}[{key}]) {sign} {found[2]}"
    return _instead(place, found, better, test.start())


def _equal(place: Place, test: re.Match[str], start: int) -> Refusal | None:
    """`node.label pool gpu`, `node.label pool equals gpu`, `node.label pool not gpu`."""
    owner, key = test[1], place.text[test.start(3) : test.end(3)]
    found = _VALUE.match(place.bare, start)
    if found is None or _MORE.match(place.bare, found.end()) is not None:
        return None
    word = place.text[found.start(3) : found.end(3)]
    if owner.startswith("node.taint") and word in _EFFECTS:
        what = "a taint is asked for by key and value, whatever its effect"
        return _instead(place, found, f"{owner} {key}", test.start(), what)
    if word.lower() in _MEANING or (word.isalpha() and closest(word, KEYWORDS) is not None):
        return None
    better = f"{owner} {key}{'!=' if found[1] or found[2] else '='}{word}"
    if key in _MEANING and key not in _HOLDS:
        return None
    if key in _HOLDS:
        better = f"{owner.rstrip('s')} {word}"
        found = re.compile(rf"{key}[ \t]+{re.escape(word)}").search(place.text, test.end(1))
        assert found is not None
    if not place.mends(test.start(), found.end(), better):
        return None
    alone = found.group().strip() == word and better.endswith(f"={word}")
    what = f"no `=` stands before `{word}`" if alone else ""
    return _instead(place, found, better, test.start(), what)


#: `node.taints contains dedicated`
_HOLDS: Final = frozenset({"contains", "has", "have", "includes", "include", "contain"})
#: Words that are no value of a label.
_MEANING: Final = frozenset({*KEYWORDS, *CLAUSES, *WORDS})


def _instead(
    place: Place, found: re.Match[str], better: str, start: int, what: str = ""
) -> Refusal:
    """Refuses some words and writes a whole test instead of it."""
    written = " ".join(place.text[slice(*found.span())].split())
    return Refusal(
        "P001", what or f"`{written}` does not fit here", *found.span(),
        helps=(f"write  {better}",), fix=better, fix_at=(start, found.end()),
    )  # fmt: skip


def _of_field(place: Place) -> Refusal | None:
    """`pod.toleration dedicated=gpu`, `node.condition Ready`: their key stands in brackets."""
    found = re.search(
        r"(?<![\w.$])((?:pod|node|(?:it\.)?namespace|it|workload)\.(\w+))\Z", place.before
    )
    key = re.match(rf"({_KEY})(?:[ \t]*(!?)=[ \t]*({_KEY}))?", place.behind)
    if found is None or key is None or place.start == found.end():
        return None
    owner = found[1].replace(found[2], PLURALS.get(found[2], found[2]))
    if owner not in FIELDS or not FIELDS[owner].keyed or key[1] in _MEANING:
        return None
    if owner.endswith((".label", ".annotation", ".taint")):
        return _as_value(place, (found.start(), place.start + key.end()), owner, key)
    better = f"{owner}[{quoted_key(place.text[place.start : place.start + key.end(1)])}]"
    end = place.start + key.end()
    if key[3] is not None:
        text = place.text[place.start + key.start(3) : end]
        better += f" is {'not ' if key[2] else ''}{text}"
    elif owner == "node.condition" and _OPERATOR.match(place.bare, end) is None:
        # That there is a condition says nothing: each has a status.
        return _of_condition(place, (found.start(), end), better)
    elif _OPERATOR.match(place.bare, end) is None:
        better += " is present"
    if not place.mends(found.start(), end, better):
        return None
    return Refusal(
        "P001", f"the key of `{owner}` stands in brackets", found.start(), end,
        helps=(f"write  {better}",), fix=better,
    )  # fmt: skip


def _of_condition(place: Place, span: tuple[int, int], field: str) -> Refusal | None:
    """`not node.condition DiskPressure`."""
    denied = re.search(r"(?<![\w.])not[ \t]+\Z", place.bare[: span[0]])
    start = denied.start() if denied is not None else span[0]
    better = f'{field} is {"not " if denied is not None else ""}"True"'
    if not place.mends(start, span[1], better):
        return None
    return Refusal(
        "P001", "the key of `node.condition` stands in brackets, and its status is compared",
        *span, helps=(f"write  {better}",), fix=better, fix_at=(start, span[1]),
    )  # fmt: skip


def _as_value(
    place: Place, span: tuple[int, int], owner: str, key: re.Match[str]
) -> Refusal | None:
    """`x ?? pod.label b`, `5 * node.label a=b`: a test where its value or a number belongs."""
    if key[3] is not None:
        help_ = f"a test is no number:  if {owner} {key.group()} then ... else 0"
        return place.at(*span, "P001", "a label is tested, not counted", help_)
    better = f"{owner}[{quoted_key(key[1])}]"
    if not place.mends(*span, better):
        return None
    return place.instead(span, "P001", "the value of a label has its key in brackets", better)


def label_then_operator(place: Place) -> Refusal | None:
    """`node.label a like b`: a label test knows symbols and `in` only."""
    if place.met not in ("like", "contains", "matches", "is", "starts", "ends", "??"):
        return None
    found = re.search(rf"({OWNER}\.\w+)[ \t]+([\w./-]+|\"_*\")\Z", place.before)
    if found is None or found[2] == "not" or found[1].rpartition(".")[2].rstrip("s") not in (
        "label", "annotation", "taint",
    ):  # fmt: skip
        return None
    key = place.text[found.start(2) : found.end(2)]
    better = f"{found[1]}[{key}]"
    nothing = re.compile(r"is[ \t]+(not[ \t]+)?([a-z]+)\b(?![\w./-])", re.IGNORECASE)
    asked = nothing.match(place.bare, place.start)
    if asked is not None and asked[2].lower() in {*NOTHING, "missing", "present"}:
        there = (asked[2].lower() == "present") != (asked[1] is not None)
        better = f"{better} is {'present' if there else 'missing'}"
        return Refusal(
            "P001", f"`{place.met}` wants the value of a label", found.start(), found.end(),
            helps=(f"write  {better}",), fix=better, fix_at=(found.start(), asked.end()),
        )  # fmt: skip
    return Refusal(
        "P001", f"`{place.met}` wants the value of a label", found.start(), found.end(),
        helps=(f"write  {better} {place.met} ...",), fix=better,
    )  # fmt: skip


_OWNED: Final = r"(?:pod|node|(?:it\.)?namespace|workload|it)\.(?:label|annotation)s?"


def labels_compared(place: Place) -> Refusal | None:
    """`it.label app=pod.label app`: a label test compares with a word only."""
    pair = re.compile(
        rf"(?<![\w.])({_OWNED})[ \t]+([\w./-]+)[ \t]*(==?|!=|\b(?:is[ \t]+)?(?:not[ \t]+)?"
        r"(?:is[ \t]+not|is|same[ \t]+as|the[ \t]+same[ \t]+as|equals?(?:[ \t]+to)?|eq|matches)\b"
        rf"|\bis\b)[ \t]*({_OWNED})[ \t]+([\w./-]+)"
    )
    for found in pair.finditer(place.bare):
        if not found.start() < place.start <= found.end():
            continue
        sign = "!=" if found[3] == "!=" or "not" in found[3].split() else "=="
        sides = ((found[1], found[2]), (found[4], found[5]))
        better = f" {sign} ".join(f"{owner}[{quoted_key(key)}]" for owner, key in sides)
        message = "a label test compares with a word, not with another label"
        return place.instead(found.span(), "P001", message, better)
    return None


def whose_label(place: Place) -> Refusal | None:
    """`count(node.pods where label app=web)`, `filter: label zone=a`."""
    found = re.search(r"(?<![\w.$])(label|annotation|taint)s?[ \t]*\Z", place.before)
    test = re.match(r"[\w./-]+(?:[ \t]*(?:!?=)[ \t]*[\w./-]+)?", place.behind)
    if found is None or test is None or place.keyword in ("prebind", "preBind", "gang", "quota"):
        return None
    if re.search(r"\bpermit\b", place.keyword) or re.match(r"like|contains|is\b", place.met):
        return None
    word = found[1]
    of_pods = re.search(r"\bwhere\b[^()]*\Z", place.before) is not None
    owners = ("it",) if of_pods else ("node",) if word == "taint" else ("node", "pod")
    shown = [f"{owner}.{word} {test.group()}" for owner in owners]
    span = (found.start(), found.start() + len(found.group().rstrip()))
    better = f"it.{word}"
    fix = better if of_pods and place.mends(*span, better) else None
    return place.at(
        *span, "P001", f"whose {word} this is stands in front", f"write  {'   or   '.join(shown)}",
        fix=fix,
    )  # fmt: skip
