"""First attempts at aggregates, comparisons and clauses, and how they are written here.

Each check looks for one habit and the first that recognises it speaks. A replacement that is
proposed has been tried: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.place import CLAUSES, FIELD, KEYWORDS, LAST_VALUE, PATH, Place, Refusal
from dsl.schema import FIELDS, POD_SETS
from dsl.spelling import AGGREGATES, days
from dsl.types import Kind

#: Aggregates as other languages call them.
_QUANTIFIERS: Final = MappingProxyType(
    {
        **dict.fromkeys(("exists", "some", "exist", "anyof", "any_of"), "any"),
        **dict.fromkeys(("every", "forall", "each", "for_all"), "all"),
        **dict.fromkeys(("none", "no", "not_exists", "notexists", "noneof"), "not any"),
        **dict.fromkeys(("size", "len", "length", "number", "filter", "num", "number_of"), "count"),
        **dict.fromkeys(("total", "add"), "sum"),
        **dict.fromkeys(("mean", "average"), "avg"),
        **dict.fromkeys(("maximum", "highest"), "max"),
        **dict.fromkeys(("minimum", "lowest"), "min"),
    }
)
_NAMES: Final = "|".join(AGGREGATES)
#: What a condition is told by, where a value is none.
_IS_TEST: Final = re.compile(
    r"[<>=]|\b(?:is|like|contains|matches|in|not)\b|(?:label|annotation|taint)[ \t]+[\w\"]"
)
#: The last comparison of a stretch.
_COMPARED: Final = re.compile(r"[ \t]*(?:[<>]=?|[!=]=)[ \t]*[\w$.]+%?[ \t]*\Z")
_OWNER: Final = re.compile(r"(?<![\w.$])(pod|node|it|namespace)\Z")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def aggregate(place: Place) -> Refusal | None:
    """`some(node.pods where ..)`, `sum(it.cpu) over node.pods`, `count(node.pods) where ..`."""
    if place.met not in ("where", "over"):
        return None
    opened = _opened(place)
    if opened >= 0:
        return _renamed(place, opened) or _where_first(place, opened)
    return _behind(place)


def _opened(place: Place) -> int:
    """Returns where the bracket around the place opens, -1 where none does."""
    depth = 0
    for at in range(place.start - 1, -1, -1):
        sign = place.bare[at]
        depth += (sign in ")]") - (sign in "([")
        if depth < 0:
            return at if sign == "(" else -1
    return -1


def _renamed(place: Place, opened: int) -> Refusal | None:
    name = re.search(r"(?:\bnot[ \t]+)?(?<![\w.$])([A-Za-z_]\w*)\Z", place.bare[:opened])
    better = _QUANTIFIERS.get(name[1].lower()) if name is not None else None
    if name is None or better is None:
        return None
    span = name.span(1)
    if better == "not any" and name.group().startswith("not"):
        span, better = name.span(), "any"
    if not place.mends(*span, better):
        return None
    end = place.closing(opened) + 1
    rest = place.text[opened:end] if end else "(...)"
    return Refusal(
        "P106", f"there is no function `{name[1]}`", *name.span(1),
        helps=(f"write  {better}{rest}",), fix=better, fix_at=span,
    )  # fmt: skip


def _where_first(place: Place, opened: int) -> Refusal | None:
    """`sum(it.cpu where it.ready over node.pods)`: the pods come first."""
    close = place.closing(opened)
    inside = place.bare[opened + 1 : place.start]
    where = re.search(r"[ \t]+where\b", inside)
    if place.met != "over" or close < 0 or where is None:
        return None
    name = re.search(r"\w*\Z", place.bare[:opened])
    value = place.text[opened + 1 : opened + 1 + where.start()]
    condition = place.text[opened + 1 + where.start() : place.start].strip()
    better = f"{value} {place.text[place.start : close].strip()} {condition}"
    if not place.mends(opened + 1, close, better):
        return None
    return Refusal(
        "P001", "`over` stands before `where`", place.start, place.end,
        helps=(f"write  {name[0] if name else ''}({better})",), fix=better,
        fix_at=(opened + 1, close),
    )  # fmt: skip


def _behind(place: Place) -> Refusal | None:
    """What belongs into the brackets stands behind them, or there are none."""
    call = re.search(rf"(?<![\w.$])(?:{_NAMES})\([^()]*\)\Z", place.before)
    pods = re.search(r"(?<![\w.$])[a-z]+\.[a-z]+\Z", place.before)
    if call is None and (pods is None or pods.group() not in POD_SETS):
        return None
    found = call or pods
    assert found is not None
    head = place.text[found.start() : found.end()]
    head = head[:-1] if call is not None else f"count({head}"
    stop = re.compile(r"->|\b(?:message|weight|status|normalize|missing)\b|\n").search(
        place.bare, place.start
    )
    limit = stop.start() if stop is not None else place.line(place.start)[1]
    span = (place.start, len(place.bare[:limit].rstrip()))
    ends = _ends(place, *span)
    compared = bool(ends) and ends[0] < span[1]
    rule = place.keyword in ("filter", "require", "forbid", "gate", "reserve")
    if call is None and not compared and rule:
        head = f"any({found.group()}"
    if call is None and not compared and not rule:
        ends = []
    for end in ends:
        better = f"{head} {place.text[place.start : end]})"
        if place.heals(found.start(), end, better):
            return Refusal(
                "P001", f"`{place.met}` stands within the brackets", place.start, place.end,
                helps=(f"write  {better}",), fix=better, fix_at=(found.start(), end),
            )  # fmt: skip
    if place.met == "over":
        return None
    which = place.text[slice(*span)]
    helps = [f"write  {head} where CONDITION)"]
    if call is None:
        own = found.group()
        helps = [f"write  any({own} {which})   or   count({own} where CONDITION) < NUMBER"]
    return place.refuse("P001", "`where` stands within the brackets of an aggregate", *helps)


def _ends(place: Place, start: int, end: int) -> list[int]:
    """Returns where the inside of the brackets may end: the last comparison is of the result."""
    compared = _COMPARED.search(place.bare[start:end])
    if compared is None:
        return [end]
    last = start + compared.start()
    inside = place.bare[start:last].split(None, 1)[-1].strip()
    field = FIELDS.get(inside)
    is_test = _IS_TEST.search(inside) is not None or (field is not None and _is_flag(inside))
    return [last] if is_test or place.met == "over" else []


def _is_flag(name: str) -> bool:
    return FIELDS[name].type.kind is Kind.BOOL


# ---- values side by side


def beside(place: Place) -> Refusal | None:
    """`peers(node) 2`, `80% node.cpu.allocatable`: no sign stands between two values."""
    share = re.search(r"(?<![\w.])\d[\d.]*%\Z", place.before)
    path = re.match(PATH, place.behind)
    if share is not None and path is not None and FIELD.match(place.behind) is not None:
        if not place.mends(place.start, place.start, "of "):
            return None
        value = place.text[place.start : place.start + path.end()]
        return Refusal(
            "P001", f"no `of` stands between `{share.group()}` and `{value}`", place.start,
            place.start + path.end(), helps=(f"write  {share.group()} of {value}",), fix="of ",
            fix_at=(place.start, place.start),
        )  # fmt: skip
    number = re.match(r"\d[\w.]*%?(?![\w.])", place.behind)
    left = re.search(r"(?<![\w.$])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(\([^()]*\))?\Z", place.before)
    if number is None or left is None or "RELOP" not in place.accepts:
        return None
    field = FIELDS.get(left.group())
    if left[1] is None and (field is None or field.keyed):
        return None
    value = place.text[left.start() : left.end()]
    if not place.mends(place.start, place.start, "< "):
        return None
    return place.at(
        left.start(), place.start + number.end(), "P001",
        f"no comparison stands between `{value}` and `{number.group()}`",
        f"write  {value} < {number.group()}   or one of  <=  >  >=  ==  !=",
    )  # fmt: skip


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


# ---- times


def moments(place: Place) -> Refusal | None:
    """`2025-03-01T10:00:00Z`, `5min ago`, `INTERVAL '5 minutes'`, `cron "0 22 * * *"`."""
    for found in _TIME.finditer(place.bare):
        if found.start() <= place.start <= found.end():
            moment = found.group().replace(" ", "T")
            moment += "" if moment.count(":") > 1 or found[1] else ":00"
            moment += "" if found[1] else "Z"
            better = f'time("{moment}")'
            return place.instead(found.span(), "P007", "a time stands in a call of `time`", better)
    ago = re.search(r"(?<![\w.])(\d[\d.]*(?:ms|min|[smhd]))\Z", place.before)
    if place.met == "ago" and ago is not None:
        span = (ago.start(), place.end)
        return place.instead(span, "P001", "`ago` does not fit here", f"now - {ago[1]}")
    interval = re.search(r"\b(?i:interval)\Z", place.before)
    amount = re.match(r"['\"]?(\d+)[ \t]+(second|minute|hour|day)s?\b['\"]?",
                      place.text[place.start :])  # fmt: skip
    if interval is not None and amount is not None:
        unit = {"second": "s", "minute": "min", "hour": "h", "day": "d"}[amount[2]]
        span = (interval.start(), place.start + amount.end())
        return place.instead(span, "P001", "a duration is one word", f"{amount[1]}{unit}")
    if (
        re.search(r"(?<![\w.$])(?:cron|schedule|crontab)\Z", place.before)
        and place.behind[:1] in "\"'"
    ):
        return _cron(place)
    return None


def _cron(place: Place) -> Refusal:
    word = place.before.rsplit(None, 1)[-1].split("(")[-1]
    return place.at(
        len(place.before) - len(word), len(place.before), "P001", "there are no schedules of cron",
        "ask the time:  time.hour in 22..23 and time.weekday in [mon, tue]",
    )  # fmt: skip


def weekdays(place: Place) -> Refusal | None:
    """`time.weekday in mon..fri`."""
    found = re.search(r"\bin[ \t]+(\w+[ \t]*(?:\.\.|to)[ \t]*\w+)", place.bare)
    better = days(found[1]) if found is not None else ""
    if found is None or not better or not found.start() < place.start <= found.end():
        return None
    return place.instead(found.span(1), "P001", "days stand in a list", better)


# ---- clauses and signs


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


def remainder(place: Place) -> Refusal | None:
    """`ordinal(pod.name) % 2 == 0`, `hash(pod.uid) % 10 == 0`, `%90 of x`."""
    if not place.behind.startswith("%"):
        return None
    front = re.match(r"%(\d[\d.]*)(?=[ \t]+of\b)", place.behind)
    if front is not None:
        span = (place.start, place.start + front.end())
        return place.instead(span, "P007", "the `%` stands behind its number", f"{front[1]}%")
    call = re.search(r"(?<![\w.$])([a-z_]\w*)\([^()]*\)\Z", place.before)
    right = re.match(r"%[ \t]*(\d+|\$\w+)([ \t]*==[ \t]*\d+)?", place.behind)
    if call is None or right is None:
        return None
    value = place.text[call.start() : call.end()]
    span = (call.start(), place.start + right.end(1))
    better = f"mod({value}, {right[1]})"
    if call[1] == "hash":
        if right[2] is None or not right[1].isdigit() or 100 % max(int(right[1]), 1):
            return place.at(
                place.start, place.start + 1, "P014",
                "`hash` is a share, from 0 to 1", f"write for a tenth  {value} < 10%",
            )  # fmt: skip
        span = (span[0], place.start + right.end())
        better = f"{value} < {100 // max(int(right[1]), 1)}%"
    if not place.mends(*span, better):
        return None
    return Refusal(
        "P014", "`%` is not an operator here", place.start, place.start + 1,
        helps=(f"write  {better}",), fix=better, fix_at=span,
    )  # fmt: skip


def no_match(place: Place) -> Refusal | None:
    """`pod.name !~ "a"`, `missing node.label[zone]`: what is denied stands behind `not`."""
    left = LAST_VALUE.search(place.before)
    if place.behind.startswith("!~") and left is not None:
        value = place.text[left.start() : left.end()]
        span = (left.start(), place.start + 2)
        return place.instead(span, "P014", "`!~` is not an operator here", f"not {value} matches")
    word = re.search(r"(?<![\w.$])(missing|present)\Z", place.before)
    field = FIELD.match(place.text, place.start)
    if word is None or field is None:
        return None
    better = f"{field.group()} is {word[1]}"
    if not place.mends(word.start(), field.end(), better):
        return None
    span = (word.start(), field.end())
    return place.instead(span, "P001", f"`is {word[1]}` stands behind the field", better)


def no_dot(place: Place) -> Refusal | None:
    """`node label gpu=true`, `pod app=web`, `node zone is a`: the dot is missing."""
    owner = _OWNER.search(place.before)
    word = re.match(r"([A-Za-z][\w./-]*)", place.behind)
    if owner is None or word is None or place.start == owner.end():
        return None
    if place.text[owner.end() : place.start].strip():
        return None
    name = f"{owner[1]}.{word[1]}"
    span = (owner.start(), place.start + word.end())
    label = re.fullmatch(r"(label|annotation|taint)s?", word[1])
    test = re.match(r"[ \t]*(!?=)(?!=)[ \t]*([\w./-]*)", place.behind[word.end() :])
    if label is not None:
        better = f"{owner[1]}.{label[1]}"
    elif name in FIELDS and not FIELDS[name].keyed:
        better = name
        if test is not None:
            better += f" is {test[2]}" if test[1] == "=" else f" is not {test[2]}"
            span = (span[0], span[1] + test.end())
    elif test is not None and word[1] not in (*KEYWORDS, *CLAUSES):
        better = f"{owner[1]}.label {word[1]}"
    else:
        return None
    if not place.mends(*span, better):
        return None
    rest = (
        place.text[span[1] : span[1] + test.end()]
        if test is not None and name not in FIELDS
        else ""
    )
    return Refusal(
        "P001", f"a dot stands between `{owner[1]}` and what is asked of it", *span,
        helps=(f"write  {better}{rest}",), fix=better,
    )  # fmt: skip


def clause(place: Place) -> Refusal | None:
    """`-> dry-run`, `score: load reverse`, `status "unschedulable"`, `max 10 cpu`."""
    if place.keyword == "bind":
        dry = re.search(r"->[ \t]*(dry(?:[-_]?run)?[ \t]*-?(?:[ \t]*run)?)(?!\w)", place.bare, re.I)
        if dry is not None and dry.start() < place.start <= dry.end() + 1:
            return place.instead(dry.span(1), "P001", "`dry run` is two words", "dry run")
    reverse = re.match(r"reversed?(?!\w)", place.behind)
    before = place.before
    scaled = re.search(r"\bnormalize\b", before) is not None
    if place.keyword == "score" and reverse is not None and not scaled:
        span = (place.start, place.start + reverse.end())
        what = "`reverse` turns a scale round"
        return place.instead(span, "P001", what, "normalize minmax reverse")
    amount = re.match(r"weight:[ \t]*(\d[\d.]*)[ \t]*%", place.text)
    if amount is not None:
        return place.at(
            amount.start(1), amount.end(), "P007", "a weight is a plain number",
            "write for example  weight: 5   (a policy has weight 1 unless it says so)",
        )  # fmt: skip
    status = re.match(r"\"_*\"|'_*'", place.behind)
    if before.endswith("status") and status is not None:
        word = place.text[place.start + 1 : place.start + status.end() - 1]
        span = (place.start, place.start + status.end())
        return place.instead(span, "P001", "a status takes no quotes", word.lower())
    if place.keyword == "quota" and "_ARROW" in place.accepts:
        bare = re.match(r"quota:[ \t]*(max|min)[ \t]+\w", place.text)
        if bare is not None:
            rest = place.text[bare.start(1) : place.line(bare.start(1))[1]]
            return place.at(
                *bare.span(1), "P009", "a quota says whose pods it counts",
                f"write  quota: by pod.namespace {rest}",
            )  # fmt: skip
    if place.keyword == "spread":
        over = re.search(r"\bover[ \t]+((node|pod)\.labels?\[[ \t]*[\"']?([\w./-]+)[\"']?[ \t]*\])",
                         place.text)  # fmt: skip
        if over is not None and over.start() < place.start <= over.end():
            better = f'"{over[3]}"'
            what = "a topology is named by the key of the nodes' label, in quotes"
            fix = better if over[2] == "node" else None
            return place.at(*over.span(1), "P001", what, f"write  over {better}", fix=fix)
    return None
