"""Times, days and durations as they are written elsewhere.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.spelling import days

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def moments(place: Place) -> Refusal | None:
    """`2025-03-01T10:00:00Z`, `INTERVAL '5 minutes'`."""
    for found in _TIME.finditer(place.bare):
        if found.start() <= place.start <= found.end():
            moment = found.group().replace(" ", "T")
            moment += "" if moment.count(":") > 1 or found[1] else ":00"
            moment += "" if found[1] else "Z"
            better = f'time("{moment}")'
            return place.instead(found.span(), "P007", "a time stands in a call of `time`", better)
    interval = re.search(r"\b(?i:interval)\Z", place.before)
    amount = re.match(r"['\"]?(\d+)[ \t]+(second|minute|hour|day)s?\b['\"]?",
                      place.text[place.start :])  # fmt: skip
    if interval is not None and amount is not None:
        unit = {"second": "s", "minute": "min", "hour": "h", "day": "d"}[amount[2]]
        span = (interval.start(), place.start + amount.end())
        return place.instead(span, "P001", "a duration is one word", f"{amount[1]}{unit}")
    return None


_SPAN: Final = re.compile(
    r"(?<![\w.])(?:time\.)?now[ \t]+(?:in|between)[ \t]+\(?[\"']?([\dTtZz:.+-]+)[\"']?"
    r"[ \t]*(?:\.\.|to|and|,)[ \t]*[\"']?([\dTtZz:.+-]+)[\"']?\)?"
)


def between_times(place: Place) -> Refusal | None:
    """`now in "2026-12-20T00:00:00Z".."2027-01-03T00:00:00Z"`."""
    for found in _SPAN.finditer(place.text):
        ends = (found[1], found[2])
        whole = all(_TIME.fullmatch(one) and one.endswith("Z") for one in ends)
        if not whole or not found.start() < place.start <= found.end():
            continue
        better = f'now >= time("{ends[0]}") and now < time("{ends[1]}")'
        if place.mends(*found.span(), better):
            message = "a stretch of time is two comparisons"
            return place.instead(found.span(), "P007", message, better)
    return None


def weekdays(place: Place) -> Refusal | None:
    """`time.weekday in mon..fri`."""
    found = re.search(r"\bin[ \t]+(\w+[ \t]*(?:\.\.|to)[ \t]*\w+)", place.bare)
    better = days(found[1]) if found is not None else ""
    if found is None or not better or not found.start() < place.start <= found.end():
        return None
    return place.instead(found.span(1), "P001", "days stand in a list", better)


_HOURS: Final = 24
#: `time.now > 22:00`, `at 22:00`, `before 6:00`.
_AT: Final = re.compile(
    r"(?<![\w.])(?:(?:time(?:\.(?:now|time))?|now)[ \t]*(?P<sign>[<>]=?)[ \t]*"
    r"|(?P<word>at|after|since|from|before|until)[ \t]+)[\"']?(?P<hour>\d{1,2}):00[\"']?(?!\w)"
)


def clock(place: Place) -> Refusal | None:
    """`time in "22:00".."06:00"`, `now > 22:00`."""
    for one in _AT.finditer(place.text):
        early = (one["sign"] or "").startswith("<") or one["word"] in ("before", "until")
        better = f"time.hour {'<' if early else '>='} {int(one['hour'])}"
        if one.start() <= place.start <= one.end() and place.mends(*one.span(), better):
            what = "there are no times of the day, but hours"
            if one["sign"] is None and not early:
                # Until when is not said: the hours behind midnight may be meant too.
                help_ = f"write  {better}   or, through the night,  {better} or time.hour < 6"
                return place.at(*one.span(), "P007", what, help_)
            return place.instead(one.span(), "P007", what, better)
    found = re.compile(
        r"(?<![\w.])(?:time(?:\.\w+)?|now)[ \t]+(?:is[ \t]+)?(in|between)"
        r"[ \t]+[\"']?(\d{1,2}):?(\d\d)?[\"']?"
        r"[ \t]*(?:\.\.+|-|to|and)[ \t]*[\"']?(\d{1,2}):?(\d\d)?[\"']?"
    ).search(place.text)
    if found is None or not found.start() <= place.start <= found.end():
        return None
    if found[3] is None and found[5] is None and found.group().startswith(("time.", "now")):
        return None
    return _hours(place, found)


def _hours(place: Place, found: re.Match[str]) -> Refusal:
    """Writes the hours of `22:00..06:00`: the last of them is that before the end."""
    what = "there are no times of the day, but hours"
    first, last, till = int(found[2]), int(found[4]), found[5]
    if till is not None and not int(till):
        last = (last - 1) % _HOURS
    better = f"time.hour in {first}..{last}"
    if not int(found[3] or 0) and not int(till or 0):
        return place.instead(found.span(), "P007", what, better)
    return place.at(
        *found.span(), "P007", what,
        f"hours are whole: from {first}:00 to the end of hour {last} it is  {better}",
    )  # fmt: skip
