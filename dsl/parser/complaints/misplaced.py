"""Words that belong elsewhere in a statement, or into another one, and how it is written here.

Each check looks for one habit and the first that recognises it speaks. A replacement that is
proposed has been tried where that is possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.place import Place, Refusal
from dsl.schema import FIELDS
from dsl.spelling import quoted_key

_OWNED: Final = r"(?:pod|node|namespace|workload|it)\.(?:label|annotation)s?"
#: What ends a query that stands without quotes: clauses of the metric.
_METRIC_CLAUSES: Final = re.compile(
    r"(?:[ \t]+(?:by[ \t]+\w+|(?:every|stale|default|unit)[ \t]+\S+))*[ \t]*\Z"
)
_NO_OPERANDS: Final = frozenset(
    {"then", "else", "and", "or", "not", "in", "is", "like", "contains"}
)


def query_of(line: str) -> tuple[str, str]:
    """Returns the query that a line starts with, and the clauses of the metric behind it."""
    found = _METRIC_CLAUSES.search(line)
    end = found.start() if found is not None else len(line)
    return line[:end].rstrip(), line[end:].rstrip()


def in_quotes(query: str) -> str:
    """Returns a query as a text."""
    return f"'{query}'" if '"' in query else f'"{query}"'


def topology(place: Place) -> Refusal | None:
    """`spread: topology.kubernetes.io/zone maxSkew 1`: a key that reads as a division."""
    if place.keyword != "spread":
        return None
    key = re.match(r"spread:[ \t]*([\w-]+(?:\.[\w-]+)+/[\w./-]+)", place.text)
    if key is None or key[1].split("/")[0] in FIELDS or re.search(r"\bover\b", place.bare):
        return None
    clause = re.compile(r"[ \t]+(?i:max_?skew|skew)[ \t]*[:=]?[ \t]*(\d+)").match(
        place.bare, key.end()
    )
    end = clause.end() if clause is not None else key.end()
    better = f'over "{key[1]}"' + (f" skew {clause[1]}" if clause is not None else "")
    return Refusal(
        "P001", "the key of a label stands in quotes, behind `over`", *key.span(1),
        helps=(f"write  spread: {better}",), fix=better, fix_at=(key.start(1), end),
    )  # fmt: skip


def labels_compared(place: Place) -> Refusal | None:
    """`it.label app=pod.label app`: a label test compares with a word only."""
    pair = re.compile(
        rf"(?<![\w.])({_OWNED})[ \t]+([\w./-]+)[ \t]*(==?|!=)[ \t]*({_OWNED})[ \t]+([\w./-]+)"
    )
    for found in pair.finditer(place.bare):
        if not found.start() < place.start <= found.end():
            continue
        sign = "!=" if found[3] == "!=" else "=="
        sides = ((found[1], found[2]), (found[4], found[5]))
        better = f" {sign} ".join(f"{owner}[{quoted_key(key)}]" for owner, key in sides)
        message = "a label test compares with a word, not with another label"
        return place.instead(found.span(), "P001", message, better)
    return None


def no_then(place: Place) -> Refusal | None:
    """`if node.label zone=a 100 else 0`."""
    if "THEN" not in place.accepts or place.kind == "end" or place.met in _NO_OPERANDS:
        return None
    rest = re.search(r"\b(then|else)\b", place.behind)
    if rest is None:
        rest = re.search(r"$", place.behind) if place.met[:1].isdigit() else None
    if rest is None or rest[0] == "then" or not re.match(r"[\w$(\"]", place.met):
        return None
    if not place.mends(place.start, place.start, "then "):
        return None
    choice = place.text[place.start : place.start + rest.start()].strip()
    return Refusal(
        "P001", "`then` is missing in front of this", place.start, place.end,
        helps=(f"write  if ... then {choice} else {'...' if rest[0] else 0}",), fix="then ",
        fix_at=(place.start, place.start),
    )  # fmt: skip


def annotates(place: Place) -> Refusal | None:
    """`prebind: pod.annotation[k] = node.zone`, `prebind: annotation k = ...`."""
    if place.keyword not in ("prebind", "preBind"):
        return None
    found = re.search(
        r"(?<![\w.])(?:(?:pod|it)\.)?(annotation|label)s?"
        r"(?:\[([^\]]+)\]|[ \t]+([\w./-]+))[ \t]*=(?!=)",
        place.text,
    )
    if found is None or not found.start() <= place.start <= found.end():
        return None
    verb = "annotate" if found[1] == "annotation" else "label"
    key = (found[2] or found[3]).strip()
    value = place.text[found.end() : place.line(found.end())[1]].strip()
    what = "an annotation" if verb == "annotate" else "a label"
    written = found.group()[:-1].rstrip()
    return Refusal(
        "P001", f"a pod gets {what} by `{verb}`", found.start(), found.start() + len(written),
        helps=(f"write  {verb} {key} = {value}",), fix=f"{verb} {key} =", fix_at=found.span(),
    )  # fmt: skip


def clause_first(place: Place) -> Refusal | None:
    """`score: weight=5 node.cpu.free`: clauses stand behind what they are about."""
    found = re.match(
        r"(\w+:[ \t]*)(weight|missing|normalize|message|status)\b[ \t]*[=:]?[ \t]*(\"_*\"|[\w.]+%?)"
        r"(?:[ \t]*[,:])?[ \t]+(?=\S)",
        place.bare,
    )
    if found is None or place.alone or not found.start(2) <= place.start <= found.end():
        return None
    end = place.line(found.end())[1]
    value = place.text[found.start(3) : found.end(3)]
    rest = place.text[found.end() : end].strip()
    better = f"{rest} {found[2]} {value}"
    span = (found.start(2), end)
    fix = better if place.mends(*span, better) else None
    return Refusal(
        "P001", f"`{found[2]}` stands behind the expression", *found.span(2),
        helps=(f"write  {found[1].strip()} {better}",), fix=fix, fix_at=span,
    )  # fmt: skip


def ranked(place: Place) -> Refusal | None:
    """`score: most node.cpu.free`, `first: least load`."""
    found = re.match(r"(score|first):[ \t]*(most|least)\b[ \t]*(?=\S)", place.text)
    if found is None or not found.start(2) <= place.start <= found.end():
        return None
    better = f"prefer: {found[2]}"
    fix = better if place.mends(0, found.end(2), better) else None
    shown = " ".join(place.text[found.start(2) : place.line(found.end())[1]].split())
    return Refusal(
        "P001", f"`{found[2]}` stands behind `prefer:`", *found.span(2),
        helps=(f"write  prefer: {shown}",), fix=fix, fix_at=(0, found.end(2)),
    )  # fmt: skip


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


def default(place: Place) -> Refusal | None:
    """`score: load default 50`: what a score is where its value is missing."""
    value = re.match(r"default[ \t]*[=:]?[ \t]*(\d[\d.]*)", place.behind)
    if value is None or "MISSING" not in place.accepts:
        return None
    better = f"missing {value[1]}"
    span = (place.start, place.start + value.end())
    return place.instead(span, "P001", "`default` does not fit here", better)


def clock(place: Place) -> Refusal | None:
    """`time in "22:00".."06:00"`."""
    found = re.compile(
        r"(?<![\w.])time(?:\.\w+)?[ \t]+(?:is[ \t]+)?(in|between)"
        r"[ \t]+[\"']?(\d{1,2}):?(\d\d)?[\"']?"
        r"[ \t]*(?:\.\.+|-|to|and)[ \t]*[\"']?(\d{1,2}):?(\d\d)?[\"']?"
    ).search(place.text)
    if found is None or not found.start() <= place.start <= found.end():
        return None
    if found[3] is None and found[5] is None and found.group().startswith("time."):
        return None
    better = f"time.hour in {int(found[2])}..{int(found[4])}"
    return place.instead(found.span(), "P007", "there are no times of the day, but hours", better)
