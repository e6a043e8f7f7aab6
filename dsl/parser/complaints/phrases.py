"""Words and phrases of English and of other languages in place of an operator or before a value.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from functools import cache
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import KEYWORDS, LAST_VALUE, OWNER, PATH, Place, place_of
from dsl.parser.refusal import Halt, Refusal
from dsl.parser.statements import STATEMENTS
from dsl.schema import FIELDS
from dsl.spelling import AGGREGATES, closest

#: Phrases in place of an operator; `{L}` is the value before.
_PHRASES: Final = (
        (r"is\s+not\s+(?:null|none|nil|empty)\b", "is present"),
        (r"is\s+(?:null|none|nil)\b", "is missing"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+exists?\b", "is missing"),
        (r"(?:is\s+)?(?:exists?|existing|defined)\b", "is present"),
        (r"(?:does\s*not\s*|not\s*)exists?\b", "is missing"),
        (r"not\s+missing\b", "is present"),
        (r"not\s+present\b", "is missing"),
        (r"(missing|present)\b(?!\s*[\d\"$])", r"is \1"),
        (r"is\s+(true|false)\b", r"is \1"),
        (r"not\s+(?:less|fewer|smaller|lower)\s+than\b", ">="),
        (r"not\s+(?:greater|more|bigger|larger|higher)\s+than\b", "<="),
        (r"(?:is\s+)?(?:the\s+)?same\s+as\b", "is"),
        (r"(?:is\s+)?different\s+(?:from|than|to)\b", "is not"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+equals?(?:\s+to)?\b", "is not"),
        (r"not\s+between\s+(\S+)\s+and\s+(\S+)", r"not in \1..\2"),
        (r"(?:is\s+)?between\s+(\S+)\s+and\s+(\S+)", r"in \1..\2"),
        (r"(?:is\s+not|isnt|isn't|are\s+not)\s+in\b", "not in"),
        (r"(?:is\s+)?(?:not|none)\s+(?:one\s+)?of\b", "not in"),
        (r"(?:is\s+)?(?:one|any|either)\s+of\b", "in"),
        (r"(?:is|are)\s+in\b", "in"),
        (r"(?:isn't|isnt|aren't|arent)(?!\w)(?!\s+in\b)", "is not"),
        (r"(?:is\s+)?before\b(?!\s*\()", "<"),
        (r"(?:is\s+)?after\b(?!\s*\()", ">"),
        (r"(?:is\s+)?(?:greater|more|bigger|larger|higher)\s+(?:than\s+)?or\s+equals?(?:\s+to)?\b",
         ">="),
        (r"(?:is\s+)?(?:less|fewer|smaller|lower)\s+(?:than\s+)?or\s+equals?(?:\s+to)?\b", "<="),
        (r"(?:is\s+)?(?:greater|more|bigger|larger|higher)\s+than\b", ">"),
        (r"(?:is\s+)?(?:above|exceeds|exceeding|gt)\b", ">"),
        (r"(?:is\s+)?(?:less|fewer|smaller|lower)\s+than\b", "<"),
        (r"(?:is\s+)?(?:below|under|lt)\b", "<"),
        (r"(?:is\s+)?(?:at\s+least|gte|ge)\b", ">="),
        (r"(?:is\s+)?(?:at\s+most|lte|le)\b", "<="),
        (r"(?:is\s+)?not\s+equals?(?:\s+to)?\b|(?:is\s+)?(?:differs?\s+from|ne|neq)\b", "!="),
        (r"(?:is\s+)?equals?(?:\s+to)?\b|(?:is\s+)?eq\b|(?:is\s+)?the\s+same\s+as\b", "is"),
        (r"is\s+set\s+to\b|has\s+(?:the\s+)?value\b", "is"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:contains?|includes?|has|have)\b",
         "not {L} contains"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:starts?|begins?)[\s_]*with\b",
         "not {L} starts with"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+ends?[\s_]*with\b", "not {L} ends with"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+(?:matche?s?|regexp?|rlike)\b", "not {L} matches"),
        (r"(?:does\s+not|doesn't|doesnt|not)\s+i?like\b|unlike\b|not_?like\b", "not {L} like"),
        (r"not_?contains?\b|lacks\b", "not {L} contains"),
        (r"(?:starts?|begins?)[\s_]*with\b|starts(?!\s+with)\b|has\s+prefix\b|hasprefix\b",
         "starts with"),
        (r"ends?[\s_]*with\b|ends(?!\s+with)\b|has\s+suffix\b|hassuffix\b", "ends with"),
        (r"includes?\b|contain\b|containing\b|including\b|has\b|have\b", "contains"),
        (r"i?like\b|glob\b", "like"),
        (r"match\b|matching\b|regexp?\b|rlike\b|similar\s+to\b", "matches"),
        (r"elif\b|elsif\b|elseif\b", "else if"),
        (r"descending\b", "desc"),
        (r"ascending\b", "asc"),
        (r"order\s+by\b|sort\s+by\b|ordered\s+by\b", ""),
        (r"(?:if|with|for|when|having|such\s+that|whose|which)\b", "where"),
        (r"(?:on|of|in|from|within|for)\b", "over"),
        (r"(?:interval|each|step)\b", "every"),
        (r"(?:ttl|expires|max_age|maxage)\b", "stale"),
        (r"(?:because|reason|msg|saying|otherwise)\b", "message"),
        (r"max\s*skew\b|maxskew\b", "skew"),
        (r"(?:strict|required|strictly|donotschedule)\b", "hard"),
        (r"(?:size|members|minmember|min_member|minimum)\b", "min"),
        (r"(?:timeout|waits|schedule_timeout)\b", "wait"),
        (r"(?:maximum|upto)\b", "max"),
        (r"(?:times|priority|importance|factor)\b", "weight"),
        (r"then\b|implies\b|requires\b|must\s+have\b", "->"),
        (r"but\b|plus\b|also\b", "and"),
        (r"xor\b", "!="),
    (r"(?:ro|oder|ore)\b", "or"),
    (r"(?:adn|nad|nd|und|aand)\b", "and"),
    (r"starts\s+(?:wiht|wtih|iwth|whit|wit|wth)\b", "starts with"),
    (r"ends\s+(?:wiht|wtih|iwth|whit|wit|wth)\b", "ends with"),
)  # fmt: skip


@cache
def _phrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compiled when a statement is wrong, not when the package is loaded."""
    return tuple(
        (re.compile(rf"(?<![\w.$])(?:{pattern})", re.IGNORECASE), better)
        for pattern, better in _PHRASES
    )


#: Words before a value that other languages have.
_LEADS: Final = MappingProxyType(
    {
        "where": "", "when": "", "if": "", "then": "", "select": "", "that": "", "by": "",
        "return": "", "only": "", "lambda": "", "is": "", "some": "", "every": "", "all": "",
        "order": "", "order by": "", "exists": "", "the": "", "check": "", "do": "",
        "lowest": "least", "smallest": "least", "min": "least", "less": "least", "fewest": "least",
        "minimum": "least", "low": "least", "fewer": "least", "least of": "least",
        "highest": "most", "largest": "most", "max": "most", "more": "most", "biggest": "most",
        "maximum": "most", "high": "most", "greatest": "most", "most of": "most",
        "no": "not", "never": "not", "without": "not", "across": "over", "by topology": "over",
        "case": "if", "bool": "", "contains": "", "per": "over", "among": "over", "between": "over",
        "nicht": "not",
    }
)  # fmt: skip
_NEAR_LEADS: Final = ("not", "if", "least", "most", "over", "victims", "wait", "annotate", "label")


def upper_case(place: Place) -> Refusal | None:
    """`AND`, `Contains`, `IN`: words of the language are lower-case."""
    word = place.met
    if word.lower() == word or word.lower() not in KEYWORDS:
        return _upper_before(place)
    if not place.mends(place.start, place.end, word.lower()):
        return None
    return place.refuse(
        "P001", f"words of the language are lower-case: `{word}`", f"write  {word.lower()}",
        fix=word.lower(),
    )  # fmt: skip


def _upper_before(place: Place) -> Refusal | None:
    """`NOT node.ready`: the word before is the one."""
    found = re.search(r"(?<![\w.$])([A-Z][A-Za-z]*)\Z", place.before)
    if found is None or found[1].lower() not in (*KEYWORDS, *AGGREGATES):
        return None
    low = found[1].lower()
    if not place.mends(found.start(), found.end(), low):
        return None
    return place.at(
        *found.span(), "P001", f"words of the language are lower-case: `{found[1]}`",
        f"write  {low}", fix=low,
    )  # fmt: skip


def sql_like(place: Place) -> Refusal | None:
    """`LIKE '%nginx%'`."""
    denied = re.search(r"(?i)\bnot\Z", place.before)
    start = denied.start() if denied is not None else place.start
    form = re.compile(r"(?i)(not\s+)?i?like\s+(['\"])(.*?)\2")
    found = form.match(place.text, start)
    if found is None:
        return None
    pattern = found[3].replace("%", "*").replace("_", "?")
    folded = re.search(r"(?i)\bilike\b", found.group()) is not None
    pattern = pattern.lower() if folded else pattern
    better = f'like "{pattern}"'
    inner = pattern.strip("*")
    if re.fullmatch(r"[A-Za-z0-9.-]+", inner) and pattern == f"*{inner}*":
        better = f"contains {inner}"
    span = found.span()
    left = LAST_VALUE.search(place.bare[:start].rstrip())
    if (found[1] or folded) and left is not None:
        value = place.text[left.start() : left.end()]
        value = f"lower({value})" if folded else value
        span, better = (left.start(), span[1]), f"{'not ' if found[1] else ''}{value} {better}"
    what = "patterns are written with `like`, any text in them as `*`"
    return place.instead(span, "P014", what, better)


def phrase(place: Place) -> Refusal | None:
    """`is greater than`, `does not contain`, `begins with`, `between 1 and 5`, `exists` ..."""
    if place.kind == "end":
        return None
    for pattern, better in _phrases():
        for found in pattern.finditer(place.bare):
            if not found.start() <= place.start or len(place.before) > found.end():
                continue
            written = place.text[found.start() : found.end()]
            text = found.expand(better) if "\\" in better else better
            text = text.lower() if text.lower() == written.lower() else text
            text = _compared(text, place.bare[found.end() :].lstrip())
            start = found.start()
            if "{L}" in text:
                value = _value_before(place, start, text)
                if value is None:
                    continue
                start, text = value
            same = written.lower() == text and " " not in text
            if same or written == text or not place.mends(start, found.end(), text):
                continue
            message = f"`{' '.join(written.split())}` does not fit here"
            help_ = f"write  {text}" if text else "leave it out"
            return Refusal(
                "P001", message, found.start(), found.end(), helps=(help_,), fix=text,
                fix_at=(start, found.end()),
            )  # fmt: skip
    return None


#: What compares two values, and what compares one with a word.
_WITH_WORD: Final = MappingProxyType({"==": "is", "!=": "is not"})
_WITH_FIELD: Final = MappingProxyType({"is": "==", "is not": "!="})
_OWNED: Final = re.compile(r"(?:pod|node|it|namespace|workload|cluster|group)\.[a-z]")


def _compared(operator: str, behind: str) -> str:
    """Returns an operator as it is written before a field, or before a word."""
    if _OWNED.match(behind):
        return _WITH_FIELD.get(operator, operator)
    word = re.match(r"[A-Za-z][\w-]*(?![\w.(\[])", behind)
    return _WITH_WORD.get(operator, operator) if word is not None else operator


def contraction(place: Place) -> Refusal | None:
    """`doesn't match 'a.*'`, `ain't a`: the apostrophe starts no text."""
    found = re.compile(r"([a-z]+)n't(?!\w)").match(place.text, place.start)
    if found is None:
        return None
    verb = "is" if found[1] in ("ai", "is", "are") else "does"
    text = place.text[: found.start()] + f"{verb} not" + place.text[found.end() :]
    grown = len(f"{verb} not") - len(found.group())
    spelt = place_of(
        Halt(text, place.start, place.start + len(verb), place.accepts, place.kind, place.alone,
             place.read)
    )  # fmt: skip
    told = phrase(spelt)
    start, end, fix = place.start, found.end(), "is not"
    until = end
    if told is not None and told.repair is not None:
        start, end, fix = told.repair
        end, until = end - grown, told.end - grown
    elif verb == "does" or not place.mends(start, end, fix):
        return None
    return Refusal(
        "P001", f"`{place.text[place.start : until]}` does not fit here", place.start, until,
        helps=(f"write  {fix}",), fix=fix, fix_at=(start, end),
    )  # fmt: skip


def _value_before(place: Place, start: int, text: str) -> tuple[int, str] | None:
    """Puts what is tested before an operator into a text; returns where the text then starts."""
    left = LAST_VALUE.search(place.bare[:start].rstrip())
    if left is None:
        return None
    return left.start(), text.replace("{L}", place.text[left.start() : left.end()])


def twice(place: Place) -> Refusal | None:
    """`and and`, `is is`, `filter: filter: x`."""
    found = re.search(r"(?<![\w.$])([A-Za-z]+)\Z", place.before)
    if found is None or found[1] not in KEYWORDS:
        return None
    again = re.search(rf"(?<![\w.$]){found[1]}[ \t]+{found[1]}\Z", place.before)
    start = found.start() if again is not None else place.start
    if again is None and place.met != found[1]:
        return None
    word = found[1]
    return Refusal(
        "P001", f"`{word}` stands twice", start, start + len(word), helps=("leave one out",),
        fix="",
    )  # fmt: skip


def word_before(place: Place) -> Refusal | None:
    """`SELECT node`, `lambda n: ...`, `lowest load`, `nto node.ready`: the word before is wrong."""
    found = re.search(r"(?<![\w.$\"-])([A-Za-z_]+(?:[ \t]+(?:by|of))?)\Z", place.before)
    if found is None or not re.match(r"[\w\"$(]", place.text[place.start : place.start + 1]):
        return None
    word = found[1].lower()
    if word == "lambda":
        end = place.bare.find(":", place.start) + 1
        return Refusal(
            "P001", "there are no functions of your own here", found.start(), end or found.end(),
            helps=("write the expression itself",), fix="" if end else None,
        )  # fmt: skip
    if found[1] in STATEMENTS and found.start() == 0:
        return None
    if found[1] in STATEMENTS and place.mends(*found.span(), ""):
        message = f"`{found[1]}` starts a statement, and this is the inside of one"
        return place.at(*found.span(), "P001", message, "leave it out", fix="")
    if word in ("contains", "is", "like", "matches") and place.before[: found.start()].rstrip()[
        -1:
    ] in (":", ">", "("):  # fmt: skip
        tested = f"pod.name {word}"
        help_ = f"say what is tested:  {tested} ..."
        return place.at(*found.span(), "P001", f"nothing stands before `{word}`", help_, fix=tested)
    known = "over" if word == "by" and place.keyword == "spread" else _LEADS.get(word)
    better = known if known is not None else closest(word, _NEAR_LEADS)
    if better is not None and word != better and place.mends(*found.span(), better):
        help_ = f"write  {better}" if better else "leave it out"
        return place.at(*found.span(), "P001", f"`{found[1]}` does not fit here", help_, fix=better)
    return None


def glued(place: Place) -> Refusal | None:
    """`isnginx`, `weight5`, `andnode.label`: the blank behind a word is missing."""
    over = re.match(r"spread:[ \t]*(over(\w+))", place.text)
    if over is not None and "over" not in place.text[over.end() :]:
        return place.instead(
            over.span(1), "P001", f"a blank is missing in `{over[1]}`", f"over {over[2]}"
        )
    texts = re.match(r"(contains|starts?[ \t_]*with|ends?[ \t_]*with)(\w[\w.-]*)", place.behind)
    if texts is not None and "TEXTOP" in place.accepts:
        operator = re.sub(r"(start|end)s?[ \t_]*with", r"\1s with", texts[1])
        return _parted(place, texts.end(), f"{operator} {texts[2]}", sure=True)
    word = re.match(r"([a-z]+?)(?=\d)|[a-z][\w.]*", place.behind)
    if word is None:
        return None
    whole = re.match(r"[\w.]+", place.behind)
    assert whole is not None
    for keyword in sorted(KEYWORDS, key=len, reverse=True):
        rest = whole.group().removeprefix(keyword)
        if rest in ("", whole.group()) or keyword.upper() not in place.accepts:
            continue
        known = rest in KEYWORDS or rest.split(".")[0] in _OWNERS or rest[0].isdigit()
        if len(rest) == 1 and re.match(r"[ \t]+[\w\"]", place.behind[whole.end() :]) is not None:
            # `iss shop`: a letter too many, not a word that a blank is missing before.
            continue
        if not known and (keyword not in _BEFORE_TEXTS or not rest.isalnum()):
            continue
        if not place.mends(place.start, place.start + whole.end(), f"{keyword} {rest}"):
            continue
        return _parted(place, whole.end(), f"{keyword} {rest}", sure=known)
    return None


def _parted(place: Place, size: int, better: str, *, sure: bool) -> Refusal | None:
    span = (place.start, place.start + size)
    shown = place.text[slice(*span)]
    if sure:
        return place.instead(span, "P001", f"a blank is missing in `{shown}`", better)
    left = LAST_VALUE.search(place.before)
    hints = [f"if a blank is missing, write  {better}"]
    if left is not None and left.group() in FIELDS:
        hints.append(f"if it is one word, write  is {shown}")
    return place.at(*span, "P001", f"`{shown}` does not fit here", *hints)


def again(place: Place) -> Refusal | None:
    """`pod.name != a and != b`, `x > 100 or < 5`: what is tested stands in front of each test."""
    # A word that is an operator elsewhere reads as a name here.
    joint = re.search(
        r"\b((?:and|or)(?:[ \t]+not)?)([ \t]+(?:is|contains|starts|ends|like|matches|in))?\Z",
        place.before,
    )
    if joint is None:
        return None
    at = joint.end(2) - len(joint[2].lstrip()) if joint[2] else place.start
    operator = _OPERATOR.match(place.bare, at)
    before = place.bare[: joint.start()]
    tests = list(re.finditer(rf"({PATH}(?:\([^()]*\))?|\))[ \t]*{_OPERATOR.pattern}", before))
    if operator is None or not tests or tests[-1][1] == ")":
        return None
    value = place.text[tests[-1].start(1) : tests[-1].end(1)]
    owner = re.search(
        rf"{OWNER}\.(?:label|annotation|taint)s?[ \t]+\Z", before[: tests[-1].start(1)]
    )
    value = f"{owner.group().strip()} {value}" if owner is not None else value
    if not place.mends(at, at, f"{value} "):
        return None
    written = operator.group()
    return Refusal(
        "P001", f"nothing stands before `{written}`", *operator.span(),
        helps=(f"write  {joint[1]} {value} {written} ...",), fix=f"{value} ", fix_at=(at, at),
    )  # fmt: skip


_OPERATOR: Final = re.compile(
    r"(?:==|!=|<=|>=|<|>|(?:is|contains|starts[ \t]+with|ends[ \t]+with|like|matches|in)(?!\w))"
)
_OWNERS: Final = frozenset({"pod", "node", "namespace", "it", "workload", "cluster", "time", "now"})
#: Words that a text follows, so that any word may.
_BEFORE_TEXTS: Final = frozenset({"is", "like", "contains"})
