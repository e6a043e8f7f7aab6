"""Which fix is offered where reading stopped: the best edit that lets it go on, and what is said.

Edits are rows of `dsl.foreign` that touch the place and changes of one word or sign to what the
grammar would have taken. That with which reading gets farthest is told; it is a fix only where the
row says so, or where letters, their case or a sign were wrong.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from dsl.foreign.calls import PATH, method_for
from dsl.foreign.forms import known_forms
from dsl.foreign.matcher import Match
from dsl.nearest import closest, edit_distance
from dsl.parser.automaton import Automaton, Place, Stop
from dsl.parser.statements import DECLARATIONS, STATEMENTS, known_word
from dsl.parser.told import BINDS, Refusal, closed, told
from dsl.syntax import HEADS

#: Signs that may be spare.
_SPARE: Final = {**dict.fromkeys(",;:=", "P023"), **dict.fromkeys(")]", "P002")}
#: What is said of a row that says nothing itself.
_SAYS: Final = {
    "P004": "there is no statement `{}`",
    "P007": "`{}` is not a number",
    "P014": "`{}` is not an operator here",
}
_WORDS: Final = frozenset((*STATEMENTS, *DECLARATIONS))
#: Words that are close to those of the grammar, and are words.
_ENGLISH: Final = frozenset(
    {"for", "the", "an", "at", "on", "no", "so", "do", "it", "as", "has", "xor"}
)
#: What makes a word the opposite of the one it looks like.
_NEGATION: Final = re.compile(r"un|not|non|n(?:in|and|or|is|like|contains|matches)\b", re.I)
#: Findings of one statement, at most.
_MAX_FOUND: Final = 8
#: Longer statements are read once: trying replacements would cost too much.
_MAX_TRIED: Final = 4000
#: Edits that are tried at most, and the letters that are read for it.
_MOST_TRIED: Final = 24
_MOST_READ: Final = 6000
#: A part of a help that stands for something of the author's.
_PLACEHOLDER: Final = re.compile(r"\b(?:KEY|NAME|VALUE|CONDITION|EXPRESSION|PARAM)\b")


class Edit(NamedTuple):
    """Another text for a stretch of the statement, what is said with it, and what it costs."""

    start: int
    end: int
    better: str
    refusal: Refusal
    cost: int
    order: int = 0


def findings(
    automaton: Automaton, text: str, start: str, stop: Stop, *, tries: bool
) -> list[Refusal]:
    """Returns what is wrong with a text in which reading stopped; places are those of the text.

    Reading goes on with what is to be written instead. If the whole text can be mended so, every
    mistake is reported, otherwise the first alone, without a fix: what follows a mistake that is
    not understood may be its consequence.
    """
    found: list[Refusal] = []
    now, met, shift, behind = text, stop, 0, 0
    while len(found) < _MAX_FOUND:
        tries = tries and len(text) * (2 * len(found) + 1) < _MAX_TRIED
        refusal = tell(Place(automaton, now, start, met), tries=tries)
        repair = refusal.fix
        if min(refusal.start, refusal.start if repair is None else repair[0]) < behind:
            break  # It is about what was put here, not about what was written.
        found.append(_moved(refusal, shift))
        if repair is None or len(text) > _MAX_TRIED:
            break
        first, last, better = repair
        now = now[:first] + better + now[last:]
        behind, shift = first + len(better), shift + last - first - len(better)
        _, after = automaton.read(now, start)
        if after is None:
            return found
        met = after
    else:
        return found
    if now != text:
        # What is left cannot be read: nobody knows whether it was meant so.
        return [replace(found[0], fix=None)]
    return found[:1]


def _moved(refusal: Refusal, shift: int) -> Refusal:
    """Returns a finding with its places as they were before what is put in front of it."""
    start, end, fix = refusal.start + shift, refusal.end + shift, refusal.fix
    fix = None if fix is None else (fix[0] + shift, fix[1] + shift, fix[2])
    return replace(refusal, start=start, end=end, fix=fix)


def tell(place: Place, *, tries: bool) -> Refusal:
    """Names what is wrong where reading stopped; without `tries` nothing else is read for it."""
    early = _not_first(place)
    if early is not None:
        return early
    best = _best(place) if tries and len(place.text) <= _MOST_READ else None
    unclosed = closed(place)
    # What is known to be written elsewhere goes before a word that would fit.
    known = _hinted(place) if best is not None and best[1].cost > _ALL else None
    if known is not None:
        return known
    if best is not None and (unclosed is None or (best[0] == 0 and best[1].cost < _ALL)):
        return best[1].refusal
    return unclosed or _hinted(place) or told(place)


def _best(place: Place) -> tuple[int, Edit] | None:
    """Returns the edit with which the least is left unread, and that; cheap ones first."""
    best: tuple[int, Edit] | None = None
    edits = sorted(_edits(place), key=lambda one: (one.cost, one.order))
    # Each try reads the statement: of a long one there are fewer.
    for edit in edits[: max(4, min(_MOST_TRIED, _MOST_READ // max(1, len(place.text))))]:
        if place.text[edit.start : edit.end] == edit.better:
            continue
        left = _left(place, edit)
        if left is not None and (best is None or left < best[0]):
            best = left, edit
            if left == 0:
                break
    return best


def _left(place: Place, edit: Edit) -> int | None:
    """Returns how much cannot be read behind an edit; None where it does not help."""
    text = place.text[: edit.start] + edit.better + place.text[edit.end :]
    reached = place.read(text)
    if reached > len(text):
        return 0
    behind = reached - len(edit.better) + edit.end - edit.start
    helps = reached > edit.start + len(edit.better) - (not edit.better) and (
        behind > place.start or (behind == place.start and edit.cost == 0)
    )
    if not helps or edit.cost > _ALL:
        return None
    return len(text) - reached


#: Comes behind all rows.
_LAST: Final = 10_000
#: An edit that costs more helps only where all can be read with it.
_ALL: Final = 3


def _edits(place: Place) -> Iterator[Edit]:
    yield from _called(place)
    yield from _rows(place)
    yield from _spellings(place)
    if place.start > 0 or place.alone:
        yield from _spare(place)
        yield from _missing(place)


# ---- rows of the table


def _rows(place: Place) -> Iterator[Edit]:
    words = frozenset() if place.of_test else _WORDS
    for match in known_forms().around(place.text, place.start, place.where, words):
        if match.better or match.row.sure:
            sure = match.row.sure and _PLACEHOLDER.search(match.row.better) is None
            cost = 1 if match.row.where in ("", "any") else 0
            yield Edit(match.start, match.end, match.better, _said(place, match, sure=sure), cost,
                       match.order)  # fmt: skip


def _said(place: Place, match: Match, *, sure: bool) -> Refusal:
    start, end = match.place
    better = match.better.strip()
    help_ = "leave it out" if not better else f"write  {better}"
    if better and not sure:
        help_ = f"did you mean  {better}"
    return Refusal(
        match.code, _says(place, match, match.row.say), start, max(end, start + 1), helps=(help_,),
        fix=(match.start, match.end, match.better) if sure else None,
    )  # fmt: skip


def _hinted(place: Place) -> Refusal | None:
    """A row that has nothing to write, but something to say."""
    found = [
        one
        for one in known_forms().around(place.text, place.start, place.where, _WORDS)
        if not one.row.sure
        and (not one.row.where.startswith("head") or place.start <= one.place[1])
    ]
    best = min(found, key=lambda one: (one.start - one.end, one.order), default=None)
    if best is None:
        return None
    help_ = best.row.say or f"did you mean  {best.better}"
    return Refusal(best.code, _says(place, best), *best.place, helps=(help_,))


def _says(place: Place, match: Match, say: str = "") -> str:
    """Returns what is said of a row, by itself or by its code, of what is underlined."""
    say = say or _SAYS.get(match.code, "`{}` does not fit here")
    return say.replace("{}", " ".join(place.text[slice(*match.place)].split()))


# ---- one word or sign


_METHOD: Final = re.compile(rf"(?<![\w.$])({PATH})\.([A-Za-z_]\w*)\s*\Z")
_LABELLED: Final = ("label", "labels", "annotation", "annotations", "taint", "taints")


def _called(place: Place) -> Iterator[Edit]:
    """`pod.name.startsWith("a")`: values have no functions of their own."""
    found = _METHOD.search(place.text, 0, place.start) if place.met == "(" else None
    arguments = _arguments(place) if found is not None else None
    if found is None or arguments is None or found[2] in _LABELLED:
        return
    end, parts = arguments
    better, sure, _ = method_for(found[1], found[2], parts)
    span = found.start(), end
    refusal = Refusal(
        "P106", f"there is no function `{found[2]}` of a value", *span,
        helps=(f"write  {better}",) if better else (),
        fix=(*span, better) if better and sure else None,
    )  # fmt: skip
    yield Edit(*span, better or "true", refusal, 0)


def _arguments(place: Place) -> tuple[int, list[str]] | None:
    """Returns where the call ends that opens here, and the texts of its arguments."""
    parts, depth, last = [], 0, place.start + 1
    for at in range(place.start, len(place.bare)):
        sign = place.bare[at]
        depth += (sign in "([{") - (sign in ")]}")
        if (sign == "," and depth == 1) or depth == 0:
            parts.append(place.text[last:at].strip())
            last = at + 1
        if depth == 0:
            return at + 1, [one for one in parts if one]
    return None


_OWNED: Final = re.compile(
    r"(?<![\w.$])(pod|node|namespace|workload|it)\.(\w+)[ \t]+(?:[\w./-]+[ \t]*)?\Z"
)


def _spellings(place: Place) -> Iterator[Edit]:
    """A word in other letters, or with a slip: that of a statement, or one that fits here."""
    first = re.match(r"[A-Za-z_-]*[A-Za-z_]", place.text)
    if first is not None and not place.alone and place.start <= first.end() + 1:
        known = known_word(first.group()) if not place.of_test else closest(first[0], HEADS)
        if known is not None and known != first.group():
            end = first.end()
            to = re.match(r"[ \t]+to\b", place.text[end:]) if known == "applies to" else None
            end += to.end() if to is not None else 0
            yield _spelt(place, (0, end), known, "P004", f"there is no statement `{first[0]}`")
    owned = _OWNED.search(place.text, 0, place.start)
    kind = closest(owned[2], ("label", "annotation", "taint")) if owned is not None else None
    if owned is not None and kind is not None and f"{kind}s" != owned[2] != kind:
        field = f"{owned[1]}.{owned[2]}"
        at = owned.start(), owned.end(2)
        yield _spelt(place, at, f"{owned[1]}.{kind}", "P101", f"there is no field `{field}`")
    word = re.compile(r"[A-Za-z_]+(?=[ \t]+\Z)").search(place.text, 0, place.start)
    if word is not None and word.start() > 0:
        # The word in front was read as a name: what could have stood there?
        fitting = place.named(place.fits(word.start()))
        yield from _near(place, word.span(), fitting)
    if place.start > 0 or place.alone:
        yield from _near(place, (place.start, place.end), place.named(place.accepts))


def _near(place: Place, at: tuple[int, int], fitting: list[str]) -> Iterator[Edit]:
    met = place.text[slice(*at)]
    if re.fullmatch(r"[A-Za-z_]+", met) is None:
        return
    near = next((one for one in fitting if one.lower() == met.lower()), None)
    if near is None and met.lower() not in place.keywords | _ENGLISH:
        near = closest(met, fitting)
        if near is not None and bool(_NEGATION.match(near)) != bool(_NEGATION.match(met)):
            near = None
    if near is not None and near != met:
        yield _spelt(place, at, near, "P016", f"`{met}` does not fit here")


def _spelt(place: Place, at: tuple[int, int], better: str, code: str, message: str) -> Edit:
    cost = 1 + edit_distance(place.text[slice(*at)].lower(), better.lower())
    refusal = Refusal(code, message, *at, helps=(f"did you mean `{better}`?",), fix=(*at, better))
    return Edit(*at, better, refusal, min(cost, _ALL), _LAST)


def _spare(place: Place) -> Iterator[Edit]:
    """A sign too much."""
    at, code, before = (place.start, place.end), _SPARE.get(place.met), place.bare[: place.start]
    if place.met == ":" and re.match(r"\S", place.bare[at[1] :]):
        code = None
    if place.at_end or code is None or re.search(r"[^\w\])\"' ]\Z", before):
        return
    message = f"`{place.met}` {'closes nothing' if code == 'P002' else 'does not fit here'}"
    # Where there are operators a bracket may decide what belongs together.
    sure = code != "P002" or not set(BINDS.findall(before))
    # `node: a, b` are two nodes, not one.
    sure = sure and not (place.of_test and re.fullmatch(r"\w+:\s*\S+\s*", before))
    # `node.label =a`: what is missing is in front.
    sure = sure and not re.search(r"\.(?:label|annotation|taint)s?\s*\Z", before)
    better = " " if re.match(r"\w\W\w", place.bare[max(at[0] - 1, 0) :]) else ""
    fix = (*at, better) if sure else None
    refusal = Refusal(code, message, *at, helps=("leave it out",), fix=fix)
    yield Edit(*at, better, refusal, 2)


#: What starts a test, or a list.
_TEST: Final = re.compile(r"(?:not\b\W*)?(?:[a-z_]+[.(]|\()|\[")
_VALUE: Final = re.compile(r"[\w\"'(\[$]")


def _missing(place: Place) -> Iterator[Edit]:
    """A comma or a word in front, without which nothing can be read."""
    at = place.start if not place.at_end else len(place.before)
    first = ("of", "then", "->") if "." in place.met else ("of", "then", "is", "contains", "->")
    fitting = [*place.named(place.accepts), *(("->",) if "_ARROW" in place.accepts else ())]
    fitting.sort(key=lambda one: first.index(one) if one in first else len(first))
    comma = "COMMA" in place.accepts and not place.at_end
    for word in (*((",",) if comma else ()), *fitting):
        # Nearly everything can be read behind these: what starts nothing of its own is no guess.
        starts = _TEST if word in ("and", "or", "->", "in") else _VALUE
        guess = starts.match(place.text, place.start) and place.met not in ("and", "or")
        if place.met and guess and (word.islower() or word in ("->", ",")):
            message = f"no `{word}` stands in front of `{place.met}`"
            help_ = f"did you mean  {word} {place.met}"
            refusal = Refusal("P023", message, place.start, place.end, helps=(help_,))
            yield Edit(at, at, f"{word} ", refusal, 2 if word == "," else _ALL + 1)


def _not_first(place: Place) -> Refusal | None:
    """A statement of its own that does not start its line."""
    line = place.bare.rfind("\n", 0, place.start) + 1
    before, behind = place.bare[line : place.start].rstrip(), place.bare[place.end :]
    # Behind another statement some are words of clauses.
    named = r"[ \t]+\w[^:\s]*[ \t]*[:=]" if before else r"[ \t]+\w"
    known = place.met in _WORDS and re.match(rf"[ \t]*:|{named}", behind)
    if place.of_test:
        known = place.met in HEADS and re.match(r"[ \t]*:", behind)
    if not known or not (before or line):
        return None
    help_, label, start = "remove the leading spaces", "a new statement starts in column 1", line
    message, goes_on = "this line is indented, so it continues the", place.keyword
    if before:
        message, label, goes_on = f"`{place.met}` starts a statement, but not its line", "", ""
        help_ = "begin a new line here (in YAML `|` keeps lines, and `>` joins them)"
        start += len(before)
    fix = (start, place.start, "\n" if before else "")
    return Refusal("P012", message, place.start, place.end, label, (help_,), fix, goes_on)
