"""What single statements have, as it is often tried at first: keys, amounts, topologies, actions.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import FIELD, PATH, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS

_VALUE: Final = r"[\w.$%]+|\"_*\"|'_*'"


def own(place: Place) -> Refusal | None:
    """What only this statement has: keys, amounts, topologies, ranges, arguments."""
    check = _CHECKS.get(place.keyword)
    return check(place) if check is not None and place.kind != "end" else None


def _mended(
    place: Place, span: tuple[int, int], message: str, better: str, shown: str = ""
) -> Refusal | None:
    """Refuses a stretch for which another text can be read further."""
    if not place.mends(*span, better):
        return None
    start, end = span
    if start == end or not place.text[start:end].strip():
        start, end = place.start, place.end
    start += len(place.text[start:end]) - len(place.text[start:end].lstrip())
    help_ = f"write  {shown or better}" if shown or better.strip() else "leave it out"
    return Refusal("P001", message, start, end, helps=(help_,), fix=better, fix_at=span)


_TURNED: Final = MappingProxyType(
    {
        **dict.fromkeys(("reverse", "reversed", "descending", "decreasing", "highest"), "desc"),
        **dict.fromkeys(("ascending", "increasing", "lowest"), "asc"),
    }
)


def _sort(place: Place) -> Refusal | None:
    """`sort: a then b`, `sort: desc a`, `sort: a reverse`."""
    if place.met == "then":
        span = (len(place.before), place.end)
        return _mended(place, span, "keys are parted by commas", ",", "... , ...")
    if place.met in _TURNED and "DESC" in place.accepts:
        what = f"`{place.met}` does not fit here"
        return _mended(place, (place.start, place.end), what, _TURNED[place.met])
    front = re.search(r"(?:sort|queueSort):[ \t]*((desc|asc)[ \t]+)\Z", place.bare[: place.start])
    key = re.match(PATH, place.behind)
    if front is None or key is None:
        return None
    value = place.text[place.start : place.start + key.end()]
    span = (front.start(1), place.start + key.end())
    return _mended(place, span, f"`{front[2]}` stands behind its key", f"{value} {front[2]}")


def _quota(place: Place) -> Refusal | None:
    """`quota: by pod.namespace max cpu 10 memory 32Gi`."""
    more = re.match(rf"(cpu|memory|pods|storage|\"_+\")[ \t]+({_VALUE})", place.behind)
    if more is None or re.search(r"\b(?:max|min)\b", place.before) is None:
        return None
    shown = f", {place.text[place.start : place.start + more.end()]}"
    span = (len(place.before), place.start)
    return _mended(place, span, "amounts are parted by commas", ", ", shown)


def _spread(place: Place) -> Refusal | None:
    """`spread: over zone and node`, `spread: evenly over zones`, `over zone by pod.label[app]`."""
    also = re.match(r"(?:and|or)[ \t]+(\w+)", place.behind)
    over = re.search(r"\bover[ \t]+(\w+)\Z", place.before)
    if also is not None and over is not None:
        end = place.start + also.end()
        return place.at(
            place.start, end, "P001", "a `spread` has one topology",
            f"write two lines  spread: over {over[1]}   and   spread: over {also[1]}",
        )  # fmt: skip
    front = re.match(
        r"spread:[ \t]*((?:pods|evenly|replicas|equally|them)[ \t]+)over\b", place.bare
    )
    if front is not None and place.start <= front.end():
        return _mended(place, front.span(1), f"`{front[1].strip()}` does not fit here", "")
    if over is not None and place.met == "by":
        return _mended(
            place, (place.start, place.end), "its peers are said by `peers by`", "peers by"
        )
    if place.before.endswith("peers") and FIELD.match(place.text, place.start) is not None:
        span = (place.start, place.start)
        return _mended(place, span, "`by` is missing behind `peers`", "by ", "peers by ...")
    return None


def _param(place: Place) -> Refusal | None:
    """`param n: number 5`, `param n = 5 to 10`, `param n = 5 (1..10)`, `param n: [string]`."""
    if place.before.endswith("=") and place.behind.startswith("="):
        return _mended(place, (place.start, place.start + 1), "one `=` gives a value", "")
    listed = re.match(r"\[[ \t]*(\w+)[ \t]*\]", place.behind)
    if listed is not None and "TYPE" in place.accepts:
        span = (place.start, place.start + listed.end())
        return _mended(
            place, span, "a list of values has a type of its own", f"list of {listed[1]}"
        )
    array = re.search(r":[ \t]*(\w+)\Z", place.before)
    if array is not None and place.behind.startswith("[]"):
        span = (array.start(1), place.start + 2)
        return _mended(place, span, "a list of values has a type of its own", f"list of {array[1]}")
    if array is not None and re.match(r"[\d\"'$]", place.behind) and "EQUAL" in place.accepts:
        value = place.text[place.start : place.line(place.start)[1]]
        if not value.startswith(('"', "'")):
            span = (place.start, place.start)
            return _mended(place, span, "no `=` stands before the value", "= ", f"= {value}")
    bounds = re.match(r"\(?[ \t]*(\w+)[ \t]*(?:\.\.|-|to)[ \t]*(\w+)[ \t]*\)?", place.behind)
    if bounds is not None and "FROM" in place.accepts:
        span = (place.start, place.start + bounds.end())
        what = "what the value may be stands behind `from`"
        if place.met == "to":
            return None
        return _mended(place, span, what, f"from {bounds[1]} to {bounds[2]}")
    return None


def _use(place: Place) -> Refusal | None:
    """`use a device=eth1`, `use a weight 5 (device = eth1)`, `use a, b`."""
    given = re.match(rf"(\w+)[ \t]*=[ \t]*({_VALUE})", place.behind)
    if given is not None and "LPAR" in place.accepts:
        end = place.start + given.end()
        value = place.text[place.start + given.start(2) : end]
        better = f"({given[1]} = {value})"
        return _mended(place, (place.start, end), "arguments stand in parentheses", better)
    weight = re.search(rf"(weight[ \t]+(?:{_VALUE}))[ \t]*\Z", place.bare[: place.start])
    close = place.closing(place.start) + 1 if place.behind.startswith("(") else 0
    if weight is not None and close:
        arguments = place.text[place.start : close]
        what = "arguments stand before `weight`"
        better = f"{arguments} {place.text[weight.start(1) : weight.end(1)]}"
        return _mended(place, (weight.start(1), close), what, better)
    other = re.match(r",[ \t]*([\w-]+)", place.behind)
    if other is None or "LPAR" not in place.accepts:
        return None
    end = place.start + other.end()
    return place.at(
        place.start,
        end,
        "P001",
        "a `use` names one policy",
        f"write on a line of its own  use {other[1]}",
    )


def _action(place: Place) -> Refusal | None:
    """`postbind: event "x" -> A`, `bind: default -> A`, `annotate k v`: the condition is first."""
    head = re.match(r"(\w+):[ \t]*", place.text)
    if head is not None and place.behind.startswith("->"):
        action = place.text[head.end() : place.start].strip()
        end = place.line(place.start)[1]
        condition = place.text[place.start + 2 : end].strip()
        better = f"{condition} -> {action}"
        if place.heals(head.end(), end, better):
            span = (head.end(), end)
            return Refusal(
                "P001", "the condition stands before `->`", place.start, place.start + 2,
                helps=(f"write  {head[1]}: {better}",), fix=better, fix_at=span,
            )  # fmt: skip
    unsigned = re.search(r"\b(annotate|label)[ \t]+(?:[\w./-]+|\"_*\")[ \t]*\Z", place.before)
    if unsigned is not None and "EQUAL" in place.accepts:
        span = (place.start, place.start)
        return _mended(
            place, span, "no `=` stands behind the key", "= ", f"{unsigned.group()} = ..."
        )
    verb = re.search(r"\b(annotate|label)\b", place.before)
    another = re.match(r"[\w./-]+[ \t]*=(?!=)", place.behind)
    if verb is not None and another is not None and place.before.endswith(","):
        span = (place.start, place.start)
        shown = f"{verb[1]} {place.text[place.start : place.start + another.end()]} ..."
        return _mended(place, span, f"each key has its `{verb[1]}`", f"{verb[1]} ", shown)
    return None


def _preempt(place: Place) -> Refusal | None:
    """`preempt: victims it.priority < pod.priority`, `-> all`."""
    if place.before.endswith("victims") and place.behind.startswith("it."):
        span = (place.start, place.start)
        return _mended(
            place, span, "`where` is missing behind `victims`", "where ", "victims where ..."
        )
    if place.met in ("all", "any", "anybody", "pods") and "VICTIMS" in place.accepts:
        return _mended(
            place, (place.start, place.end), f"`{place.met}` does not fit here", "victims"
        )
    return None


def _gang(place: Place) -> Refusal | None:
    """`gang: min 4 by pod.label[job]`, `gang: pod.label[job] min 4`, `within node.zone`."""
    within = re.search(r"\bwithin[ \t]+(node)\Z", place.before)
    domain = re.match(r"\.(zone|region|rack)\b", place.behind)
    if within is not None and domain is not None:
        span = (within.start(1), place.start + domain.end())
        return _mended(place, span, "a topology is named by one word", domain[1])
    turned = re.match(rf"gang:[ \t]*(min[ \t]+\d+)[ \t]+(by[ \t]+{PATH})", place.bare)
    if turned is not None and place.start <= turned.end():
        by = place.text[turned.start(2) : turned.end(2)]
        span = (turned.start(1), turned.end())
        return _mended(place, span, "`by` stands first", f"{by} {turned[1]}")
    group = re.match(rf"gang:[ \t]*({PATH})[ \t]+(?:size|min|of)[ \t]+(\d+)", place.bare)
    if group is not None and place.start <= group.end() and group[1] != "by":
        key = place.text[group.start(1) : group.end(1)]
        return _mended(
            place, (group.start(1), group.end()), "`by` stands before what the pods share",
            f"by {key} min {group[2]}",
        )  # fmt: skip
    return None


_OF_METRIC: Final = MappingProxyType(
    {"on": "by", "per": "by", "refresh": "every", "scrape": "every", "interval": "every",
     "maxage": "stale", "max_age": "stale"}
)  # fmt: skip


def _metric(place: Place) -> Refusal | None:
    """`metric heat = promql "x" on node refresh 30s`."""
    better = _OF_METRIC.get(place.met)
    wanted = r"\w+[ \t]+[A-Za-z_]" if better == "by" else r"\w+[ \t]+\d"
    of_unit = re.search(r"\bunit[ \t]+\w+\Z", place.before)
    if better is None or of_unit is not None or re.match(wanted, place.behind) is None:
        return None
    what = f"`{place.met}` does not fit here"
    return _mended(place, (place.start, place.end), what, better)


def _score(place: Place) -> Refusal | None:
    """`score: node.cpu.free desc`, `weight "5"`."""
    quoted = re.match(r"\"([^\"\n]*)\"|'([^'\n]*)'", place.text[place.start :])
    if place.before.endswith("weight") and quoted is not None:
        span = (place.start, place.start + quoted.end())
        return _mended(place, span, "a weight takes no quotes", quoted[1] or quoted[2] or "")
    head = re.match(r"score:[ \t]*", place.text)
    if place.met not in ("desc", "asc") or head is None:
        return None
    value = place.text[head.end() : place.start].strip()
    which = "most" if place.met == "desc" else "least"
    return place.refuse(
        "P001", f"`{place.met}` is a word of `sort`", f"write  prefer: {which} {value}"
    )


_CHECKS: Final[MappingProxyType[str, Callable[[Place], Refusal | None]]] = MappingProxyType(
    {
        "sort": _sort, "queueSort": _sort, "quota": _quota, "spread": _spread, "param": _param,
        "use": _use, "bind": _action, "prebind": _action, "preBind": _action, "postbind": _action,
        "postBind": _action, "preempt": _preempt, "postFilter": _preempt, "gang": _gang,
        "metric": _metric, "score": _score,
    }
)  # fmt: skip


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


def by_label(place: Place) -> Refusal | None:
    """`by (instance)`, `over node.zone`, `over topology.kubernetes.io/zone`."""
    name = re.match(r"\(([ \t]*\w+[ \t]*)\)", place.behind)
    if name is not None and place.before.endswith(" by"):
        span = (place.start, place.start + name.end())
        return place.instead(span, "P001", "`by` takes the name alone", name[1].strip())
    over = re.search(r"over[ \t]+([\w]+)\Z", place.bare[: place.start])
    more = re.match(r"\.[\w./-]+", place.behind)
    if over is None or more is None or place.keyword != "spread":
        return None
    whole = over[1] + more.group()
    span = (over.start(1), place.start + more.end())
    if over[1] == "node":
        return place.instead(span, "P001", f"`{whole}` is no topology", more.group()[1:])
    return place.instead(span, "P001", "the key of a label stands in quotes", f'"{whole}"')


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


def least_or_most(place: Place) -> Refusal | None:
    """`filter: least load`, `sort: most pod.priority`, `let a = least load`."""
    found = re.match(
        r"((?:filter|require|forbid|sort|let)\b[^:=]*[:=][ \t]*)(least|most)[ \t]+(?=\S)",
        place.bare,
    )
    if found is None or not found.start(2) <= place.start <= found.end():
        return None
    rest = place.text[found.end() : place.line(found.end())[1]]
    span = found.span(2)
    if place.keyword == "sort":
        better = rest if found[2] == "least" else f"{rest} desc"
        whole = (found.start(2), found.end() + len(rest))
        return Refusal(
            "P001", f"`{found[2]}` stands behind `prefer:`", *span,
            helps=(f"write  sort: {better}",), fix=better if place.heals(*whole, better) else None,
            fix_at=whole,
        )  # fmt: skip
    return place.at(
        *span, "P001", f"`{found[2]}` stands behind `prefer:`", f"write  prefer: {found[2]} {rest}"
    )


def ordered(place: Place) -> Refusal | None:
    """`order by it.started_at`, `pod.priority desc, then pod.queued_at`: keys and their commas."""
    then = re.search(r",[ \t]*(then|and)\Z", place.before)
    if place.keyword in ("sort", "preempt", "postFilter") and then is not None:
        end = place.start
        return Refusal(
            "P001", f"`{then[1]}` does not fit here", *then.span(1),
            helps=("keys are parted by commas",), fix="", fix_at=(then.start(1), end),
        )  # fmt: skip
    by = re.search(r"\b(order|pick)[ \t]+(by)\Z", place.before)
    if place.keyword in ("preempt", "postFilter") and by is not None:
        return Refusal(
            "P001", f"`{by[1]}` has no `by`", *by.span(2), helps=(f"write  {by[1]} ...",),
            fix="", fix_at=(by.start(2), place.start),
        )  # fmt: skip
    pick = re.search(
        r"\bpick[ \t]+(?:[^\n]*,[ \t]*)?((?:least|lowest|fewest|smallest)[ \t]*)\Z", place.before
    )
    if pick is None or not place.mends(pick.start(1), place.start, ""):
        return None
    return Refusal(
        "P001", "`pick` takes the node with the smallest value", *pick.span(1),
        helps=("leave it out",), fix="", fix_at=(pick.start(1), place.start),
    )  # fmt: skip
