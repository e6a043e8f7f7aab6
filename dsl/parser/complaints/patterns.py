"""Habits that are told by a pattern alone: one table of patterns, their names and their cures.

The first row that fits speaks. A row's replacement is proposed only if the statement can be read
further with it; what needs more than a pattern is an attempt of its own, in another module.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from msgspec import Struct

from dsl.parser.complaints.place import FIELD, LAST_VALUE, OWNER, PATH, Place
from dsl.parser.refusal import Refusal
from dsl.schema import FIELDS

#: Stands in patterns for the place where reading stopped; in the text searched it is `_MARK`.
_HERE: Final = "§"
_MARK: Final = "\ue000"


class Pattern(Struct, frozen=True):
    """What is written in place of something, and what to say of it.

    In `form` a `§` is the place where reading stopped, a `~` blanks or none, a blank some blanks;
    comments are blank, and the insides of texts `_`. Without a `§`, the place is in the stretch
    that is replaced, or right behind it. The other texts may hold `{group}`, `{group.low}` for it
    in lower case, and `{better}`; blanks around them are left out but in `{quoted}`.

    Attributes:
        form: a regular expression, whose group `cut` is what to replace.
        message: what is wrong.
        better: what to write instead of `cut`; None if nobody knows.
        help: what to do, if it is not writing `better`.
        words: the statements it may stand in, parted by blanks; of all of them if empty.
        unless: what must not be found, in the form of `form`.
        wants: what the grammar must have taken.
        code: the code of the finding.
        of_all: whether the whole statement must be readable with the replacement.
        anyhow: whether it is said also where the replacement does not do.
        untried: whether the replacement is right whatever follows it.
    """

    form: str
    message: str
    better: str | None = None
    help: str = ""
    words: str = ""
    unless: str = ""
    wants: str = ""
    code: str = "P001"
    of_all: bool = False
    anyhow: bool = False
    untried: bool = False

    def told(self, place: Place, marked: str) -> Refusal | None:
        """Returns what is said of a place if the pattern fits there."""
        if (self.words and place.keyword not in self.words.split()) or not (
            {self.wants} <= {"", *place.accepts}
        ):
            return None
        if self.unless and _compiled(self.unless).search(marked) is not None:
            return None
        here = _HERE in self.form
        for found in _compiled(self.form).finditer(marked if here else place.bare):
            told = self._of(place, _Found(place, found, marked=here))
            if told is not None:
                return told
        return None

    def _of(self, place: Place, found: "_Found") -> Refusal | None:
        cut = found.span("cut")
        start, end = under = found.under()
        if not found.marked and not start <= place.start <= end + 1:
            return None
        if not place.text[start:end].strip():
            under = (place.start, place.end)
        better = None if self.better is None else found.filled(self.better)
        if better is not None and place.text[slice(*cut)] == better:
            return None
        tried = place.heals if self.of_all else place.mends
        fits = better is None or self.untried or tried(*cut, better)
        if not fits and not self.anyhow:
            return None
        help_ = found.filled(self.help, better or "")
        if not help_:
            help_ = f"write  {better}" if better and better.strip() else "leave it out"
        return Refusal(
            self.code, found.filled(self.message), *under, helps=(help_,),
            fix=better if fits else None, fix_at=cut,
        )  # fmt: skip


class _Found:
    """Where a pattern was found, with places and texts as they were written."""

    def __init__(self, place: Place, found: re.Match[str], *, marked: bool) -> None:
        self._place = place
        self._found = found
        self.marked = marked

    def span(self, group: str) -> tuple[int, int]:
        """Returns where a group stands; the mark takes no room."""
        start, end = self._found.span(group)
        if not self.marked:
            return start, end
        at = self._place.start
        return start - (start > at), end - (end > at)

    def under(self) -> tuple[int, int]:
        """Returns what to underline: the group `at`, or what is replaced, without blanks."""
        start, end = self.span("at" if "at" in self._found.groupdict() else "cut")
        text = self._place.text[start:end]
        return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())

    def filled(self, form: str, better: str = "") -> str:
        """Returns a text with what was found in it."""
        if "{" not in form:
            return form
        given = {one: _Written(self._text(one)) for one in self._found.groupdict()}
        return form.format(**given, better=better, met=self._place.met)

    def _text(self, group: str) -> str:
        start, end = self.span(group)
        text = self._place.text[start:end] if start >= 0 else ""
        return text if group == "quoted" else text.strip()


class _Written(str):
    """A text of the author."""

    __slots__ = ()

    @property
    def low(self) -> str:
        """The same in lower case."""
        return self.lower()


def known(place: Place) -> Refusal | None:
    """What a row of the table says of a place."""
    return told_by(PATTERNS, place)


def told_by(rows: Iterable[Pattern], place: Place) -> Refusal | None:
    """What the first row that fits says of a place."""
    bare = place.bare.replace(_MARK, "?")
    marked = bare[: place.start] + _MARK + bare[place.start :]
    told = (row.told(place, marked) for row in rows)
    return next((one for one in told if one is not None), None)


@cache
def _compiled(form: str) -> re.Pattern[str]:
    """Compiled when a statement is wrong, not when the package is loaded."""
    form = form.replace(" ", r"[ \t]+").replace("~", r"[ \t]*").replace(_HERE, _MARK)
    return re.compile(form)


#: A value of one word.
_VALUE: Final = r"(?:[\w.$%]+|\"_*\")"
_KEY: Final = r"(?:[\w./-]+|\"_*\")"
#: The key of a label that a test starts with, and who has it.
_TEST: Final = (
    rf"(?<![\w.$])(?P<owner>(?:{OWNER}|workload)\.(?:label|annotation|taint)s?) (?P<key>{_KEY})"
)
#: The end of a line.
_EOL: Final = r"(?=~(?:\n|\Z))"
#: The end of a word.
_END: Final = r"(?![\w.])"
#: What is divided in `pod.cpu/node.cpu.free`, and no domain of a key.
_FIELDS: Final = "|".join(map(re.escape, FIELDS))
_ACTIONS: Final = "bind prebind preBind postbind postBind"
_UNFIT: Final = "`{cut}` does not fit here"
_BEHIND_PREFER: Final = "`{at}` stands behind `prefer:`"
_QUOTED_KEY: Final = "the key of a label stands in quotes"
_LIST_TYPE: Final = "a list of values has a type of its own"

PATTERNS: Final = (
    # aggregates
    Pattern(
        r"\bover (?P<cut>(?:nodes|candidates)~§(?:group(?:ed)? )?by~\(?~(?:node\.)?"
        r"(?P<of>zone|region|rack)\b~\)?)(?=~(?:\)|where\b))",
        "nodes are grouped by the set they are of", "{of}.nodes",
    ),
    Pattern(
        r"(?P<cut>\b(?i:count)~\(~(?P<at>(?i:distinct|unique|different)) §)(?=(?P<rest>[^\n]*))",
        "`distinct` is an aggregate of its own", "distinct(", "write  distinct({rest}",
        anyhow=True,
    ),
    # spread
    Pattern(
        rf"\Aspread:~(?P<cut>(?P<at>(?!(?:{_FIELDS})/)[\w-]+(?:\.[\w-]+)+/[\w./-]+)"
        r" (?i:max_?skew|skew)~[:=]?~(?P<skew>\d+))",
        f"{_QUOTED_KEY}, behind `over`", 'over "{at}" skew {skew}',
        'write  spread: over "{at}" skew {skew}', unless=r"\bover\b",
    ),
    Pattern(
        rf"\Aspread:~(?P<cut>(?!(?:{_FIELDS})/)[\w-]+(?:\.[\w-]+)+/[\w./-]+)",
        f"{_QUOTED_KEY}, behind `over`", 'over "{cut}"', 'write  spread: over "{cut}"',
        unless=r"\bover\b",
    ),
    Pattern(
        r"\bover (?P<cut>node\.labels?\[~\"?(?P<key>[\w./-]+)\"?~\])",
        "a topology is named by the key of the nodes' label, in quotes", '"{key}"',
        'write  over "{key}"', words="spread",
    ),
    Pattern(
        r"\bover (?P<cut>pod\.labels?\[~\"?(?P<key>[\w./-]+)\"?~\])",
        "a topology is named by the key of the nodes' label, in quotes",
        help='write  over "{key}"', words="spread",
    ),
    Pattern(
        r"\bover (?P<cut>node§\.(?P<name>[\w./-]+))", "`{cut}` is no topology", "{name}",
        words="spread", untried=True,
    ),
    Pattern(
        r"\bover (?P<cut>\w+§\.[\w./-]+)", _QUOTED_KEY, '"{cut}"', words="spread", untried=True,
    ),
    Pattern(
        r"\bover (?P<over>\w+)\s*(?P<cut>§(?:and|or) (?P<also>\w+))", "a `spread` has one topology",
        help="write two lines  spread: over {over}   and   spread: over {also}", words="spread",
    ),
    Pattern(
        r"\Aspread:~(?P<cut>(?:pods|evenly|replicas|equally|them) )over\b", _UNFIT, "",
        words="spread",
    ),
    Pattern(
        rf"\bover \w+\s*(?P<cut>§by){_END}", "its peers are said by `peers by`", "peers by",
        words="spread",
    ),
    Pattern(
        rf"\bpeers\s*(?P<cut>§){FIELD.pattern}", "`by` is missing behind `peers`", "by ",
        "write  peers by ...", words="spread",
    ),
    Pattern(
        r"\Aspread:~(?P<cut>(?P<key>pod\.labels?(?:\[[^\[\]\n]*\]|\.\w+)) §(?P<at>over) "
        r"(?P<over>[\w-]+|\"_*\"))",
        "the topology stands first, then its peers", "over {over} peers by {key}",
    ),
    # sort, and keys of preempt
    Pattern(
        r",~(?P<cut>(?P<at>then|and)\s+§)", "`{at}` does not fit here", "",
        "keys are parted by commas", words="sort preempt postFilter", untried=True,
    ),
    Pattern(
        rf"(?P<cut>\s*§(?P<at>then)){_END}", "keys are parted by commas", ",", "write  ... , ...",
        words="sort queueSort",
    ),
    Pattern(
        rf"(?P<cut>§(?:reversed?|descending|decreasing|highest)){_END}", _UNFIT, "desc",
        words="sort queueSort", wants="DESC",
    ),
    Pattern(
        rf"(?P<cut>§(?:ascending|increasing|lowest)){_END}", _UNFIT, "asc",
        words="sort queueSort", wants="DESC",
    ),
    Pattern(
        rf"\A(?:sort|queueSort):~(?P<cut>(?P<word>desc|asc) §(?P<key>{PATH}))",
        "`{word}` stands behind its key", "{key} {word}", words="sort queueSort",
    ),
    Pattern(
        rf"\Asort:~(?P<cut>(?P<at>least) (?P<rest>\S[^\n]*?)){_EOL}", _BEHIND_PREFER, "{rest}",
        "write  sort: {rest}", of_all=True, anyhow=True,
    ),
    Pattern(
        rf"\Asort:~(?P<cut>(?P<at>most) (?P<rest>\S[^\n]*?)){_EOL}", _BEHIND_PREFER,
        "{rest} desc", "write  sort: {rest} desc", of_all=True, anyhow=True,
    ),
    Pattern(
        r"\b(?P<verb>order|pick) (?P<cut>(?P<at>by)\s*§)", "`{verb}` has no `by`", "",
        "write  {verb} ...", words="preempt postFilter", untried=True,
    ),
    Pattern(
        r"\bpick (?:[^\n]*,~)?(?P<cut>(?:least|lowest|fewest|smallest)~§)",
        "`pick` takes the node with the smallest value", "",
    ),
    # scores and preferences
    Pattern(
        rf"\A(?P<cut>(?:score|first):~(?P<at>most|least)) (?=(?P<rest>\S[^\n]*?){_EOL})",
        _BEHIND_PREFER, "prefer: {at}", "write  prefer: {at} {rest}", anyhow=True,
    ),
    Pattern(
        rf"\A(?:filter|require|forbid|let)\b[^:=]*[:=]~(?P<cut>(?P<at>least|most)) "
        rf"(?=(?P<rest>\S[^\n]*?){_EOL})",
        _BEHIND_PREFER, help="write  prefer: {at} {rest}",
    ),
    Pattern(
        r"(?P<cut>§reversed?)(?!\w)", "`reverse` turns a scale round", "normalize minmax reverse",
        words="score", unless=r"\bnormalize\b[\s\S]*§",
    ),
    Pattern(
        r"(?P<cut>§default~[=:]?~(?P<value>\d[\d.]*))", "`default` does not fit here",
        "missing {value}", wants="MISSING",
    ),
    Pattern(
        r"\bweight~(?P<cut>§\"(?P<value>_*)\")", "a weight takes no quotes", "{value}",
        words="score",
    ),
    Pattern(
        rf"\Ascore:~(?P<value>[\s\S]*?)~(?P<cut>§desc){_END}", "`desc` is a word of `sort`",
        help="write  prefer: most {value}", words="score",
    ),
    Pattern(
        rf"\Ascore:~(?P<value>[\s\S]*?)~(?P<cut>§asc){_END}", "`asc` is a word of `sort`",
        help="write  prefer: least {value}", words="score",
    ),
    Pattern(
        r"\Aweight:~(?P<cut>\d[\d.]*~%)", "a weight is a plain number", code="P007",
        help="write for example  weight: 5   (a policy has weight 1 unless it says so)",
    ),
    # filters
    Pattern(
        r"\bstatus\s*(?P<cut>§\"(?P<word>_*)\")", "a status takes no quotes", "{word.low}",
        untried=True,
    ),
    # quota
    Pattern(
        r"(?P<cut>§:)", "no sign stands between a resource and its amount", "", words="quota",
        wants="WORD", code="P014", untried=True, unless=r":\s*§",
    ),
    Pattern(
        r"\Aquota:~(?=(?P<rest>[^\n]*))(?P<cut>max|min) \w", "a quota says whose pods it counts",
        help="write  quota: by pod.namespace {rest}", wants="_ARROW", code="P009",
    ),
    Pattern(
        r"\b(?:max|min)\b[\s\S]*?(?P<cut>\s*§)"
        rf"(?P<more>(?:cpu|memory|pods|storage|\"_+\") {_VALUE})",
        "amounts are parted by commas", ", ", "write  , {more}", words="quota",
    ),
    # gang
    Pattern(
        r"\bwithin (?P<cut>node§\.(?P<topology>zone|region|rack)\b)",
        "a topology is named by one word", "{topology}", words="gang",
    ),
    Pattern(
        rf"\Agang:~(?P<cut>(?P<min>min \d+) (?P<by>by {PATH}))", "`by` stands first", "{by} {min}",
    ),
    Pattern(
        rf"\Agang:~(?P<cut>(?!by\b)(?P<key>{PATH}) (?:size|min|of) (?P<size>\d+))",
        "`by` stands before what the pods share", "by {key} min {size}",
    ),
    # preempt
    Pattern(
        r"\bvictims\s*(?P<cut>§)it\.", "`where` is missing behind `victims`", "where ",
        "write  victims where ...", words="preempt postFilter",
    ),
    Pattern(
        rf"(?P<cut>§(?:all|any|anybody|pods)){_END}", _UNFIT, "victims",
        words="preempt postFilter", wants="VICTIMS",
    ),
    # bind and what stands around it
    Pattern(
        r"->~(?P<cut>(?i:dry(?:[-_]?run)?~-?(?:~run)?))(?!\w)", "`dry run` is two words", "dry run",
        words="bind", untried=True,
    ),
    Pattern(
        r"\A(?P<head>\w+):~(?P<cut>(?P<action>[\s\S]*?)~§(?P<at>->)"
        rf"~(?P<condition>[^\n]*?)){_EOL}",
        "the condition stands before `->`", "{condition} -> {action}", "write  {head}: {better}",
        words=_ACTIONS, of_all=True,
    ),
    *(
        Pattern(
            rf"(?<![\w.])(?P<cut>(?P<at>(?:(?:pod|it)\.)?{word}s?"
            r"(?:(?P<open>\[~)| )(?P<key>\"_*\"|[\w./-]+)(?(open)~\]))~=)(?!=)"
            rf"(?=~(?P<value>[^\n]*))",
            f"a pod gets {what} by `{verb}`", f"{verb} {{key}} =",
            f"write  {verb} {{key}} = {{value}}", words="prebind preBind", untried=True,
        )
        for word, what, verb in (
            ("annotation", "an annotation", "annotate"), ("label", "a label", "label"),
        )
    ),
    Pattern(
        r"\b(?P<key>(?:annotate|label) (?:[\w./-]+|\"_*\"))\s*(?P<cut>§)(?=\S)",
        "no `=` stands behind the key", "= ", "write  {key} = ...", words=_ACTIONS, wants="EQUAL",
    ),
    Pattern(
        r"\b(?P<verb>annotate|label)\b[\s\S]*,\s*(?P<cut>§)(?P<another>[\w./-]+~=)(?!=)",
        "each key has its `{verb}`", "{verb} ", "write  {verb} {another} ...", words=_ACTIONS,
    ),
    # param
    Pattern(
        r"\Aparam \w+~:~(?P<cut>(?P<type>string|number|quantity|duration|time)~=~"
        r"§(?P<at>\((?P<items>[^()]*)\)))",
        "several values stand in a list", "list of {type} = [{items}]",
    ),
    Pattern(r"=\s*(?P<cut>§=)", "one `=` gives a value", "", words="param"),
    Pattern(
        r"(?P<cut>§\[~(?P<type>\w+)~\])", _LIST_TYPE, "list of {type}", words="param",
        wants="TYPE",
    ),
    Pattern(r":~(?P<cut>(?P<type>\w+)\s*§\[\])", _LIST_TYPE, "list of {type}", words="param"),
    Pattern(
        r":~\w+\s*(?P<cut>§)(?=(?P<value>[\d$][^\n]*))", "no `=` stands before the value", "= ",
        "write  = {value}", words="param", wants="EQUAL",
    ),
    Pattern(
        r"(?P<cut>§(?!to\b)\(?~(?P<low>\w+)~(?:\.\.|-|to)~(?P<high>\w+)~\)?)",
        "what the value may be stands behind `from`", "from {low} to {high}", words="param",
        wants="FROM",
    ),
    # use
    Pattern(
        rf"(?P<cut>§(?P<name>\w+)~=~(?P<value>{_VALUE}))", "arguments stand in parentheses",
        "({name} = {value})", words="use", wants="LPAR",
    ),
    Pattern(
        rf"(?P<cut>(?P<weight>weight {_VALUE})~§(?P<given>\((?:[^()]|\([^()]*\))*\)))",
        "arguments stand before `weight`", "{given} {weight}", words="use",
    ),
    Pattern(
        r"(?P<cut>§,~(?P<other>[\w-]+))", "a `use` names one policy",
        help="write on a line of its own  use {other}", words="use", wants="LPAR",
    ),
    # metric
    *(
        Pattern(
            rf"(?P<cut>§(?:{words}))(?= {behind})", _UNFIT, better, words="metric",
            unless=r"\bunit \w+\s*§",
        )
        for words, better, behind in (
            ("on|per", "by", "[A-Za-z_]"), ("refresh|scrape|interval", "every", r"\d"),
            ("maxage|max_age", "stale", r"\d"),
        )
    ),
    # tests of labels
    Pattern(
        rf"(?P<cut>{_TEST}~=~§\*)(?![\w.*-])",
        "that there is a label is asked by its key", "{owner} {key}", untried=True,
    ),
    Pattern(
        rf"{_TEST}\s*(?P<cut>§)\[", "no `in` stands before this list", "in ", "write  in [...]",
        unless=r"\bin\s*§",
    ),
    Pattern(
        rf"{_TEST}~!?=~{_KEY}(?P<cut>\s*§(?:,~)?(?P<at>{_KEY}))(?=~(?P<sign>!?=)(?!=))",
        "each label test names whose label it is", " and {owner} {at}",
        "write  ...{better}{sign}...", code="P014",
    ),
    Pattern(
        rf"(?P<owner>{OWNER}\.\w+) (?P<key>[\w./-]+)\s*(?P<cut>§(?P<at>:)~(?P<value>[\w./-]+))",
        "a label is tested by `=`", "={value}", "write  {owner} {key}={value}", code="P014",
    ),
    Pattern(
        r"node\.taints? (?P<taint>[\w./-]+(?:=[\w./-]*)?)\s*(?P<cut>§(?P<at>:)(?:~[\w./-]+)?)",
        "a taint is asked for by key and value, whatever its effect", "",
        "write  node.taint {taint}", code="P014", untried=True,
    ),
    # values
    Pattern(
        r"(?P<cut>§(?P<at>(?i:not_?in))~\((?P<items>[^()\[\]]*[^()\[\]\s])~\))",
        "a blank is missing in `{at}`, and a list stands in square brackets", "not in [{items}]",
    ),
    Pattern(
        r"\bby (?P<cut>§\(~(?P<name>\w+)~\))", "`by` takes the name alone", "{name}", untried=True,
    ),
    Pattern(
        rf"(?<![\w.])(?P<cut>(?P<amount>\d[\d.]*(?:ms|min|[smhd]))\s*§(?P<at>ago)){_END}",
        "`ago` does not fit here", "now - {amount}",
    ),
    *(
        Pattern(
            rf"(?P<cut>(?P<value>{PATH})\[~{slice_}~\]~{sign}~(?P<text>\"_*\"))",
            "a text has no slices", f"{no}{{value}} {where} with {{text}}", untried=True,
        )
        for slice_, where in ((r"0?:\d+", "starts"), (r"-\d+:", "ends"))
        for sign, no in (("==", ""), ("!=", "not "))
    ),
    Pattern(
        r"(?P<operator>\b(?:contains|starts with|ends with|is|like)|(?<=\w)=)"
        rf"\s*(?P<cut>§\w*_){_END}",
        "`{cut}` needs quotes", '"{cut}"', 'write  {operator} "{cut}"', untried=True,
    ),
    Pattern(
        rf"(?<![\w.])(?P<share>\d[\d.]*%)\s*(?P<cut>§)(?P<at>{FIELD.pattern})",
        "no `of` stands between `{share}` and `{at}`", "of ", "write  {share} of {at}",
    ),
    Pattern(
        r"(?P<cut>0?(?P<hour>\d{1,2})§:\d\d)", "there are no times of the day", code="P007",
        help="ask for the hour:  time.hour >= {hour}",
    ),
    Pattern(
        r"(?<![\w.$])(?P<cut>cron|schedule|crontab)\s*§\"", "there are no schedules of cron",
        help="ask the time:  time.hour in 22..23 and time.weekday in [mon, tue]",
    ),
    Pattern(
        r"(?P<cut>§%(?P<number>\d[\d.]*))(?= of\b)", "the `%` stands behind its number",
        "{number}%", code="P007",
    ),
    Pattern(
        rf"\b(?P<cut>is~(?P<left>{FIELD.pattern}|\"_*\")\s*§\+~(?P<right>{FIELD.pattern}|\"_*\"))",
        "texts are put together by `join`", "== join({left}, {right})",
    ),
    Pattern(
        rf"(?P<cut>(?P<value>{LAST_VALUE.pattern.removesuffix(chr(92) + 'Z')})\s*§!\x7e)",
        "`!~` is not an operator here", "not {value} matches", code="P014",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<word>missing|present)\s*§(?P<field>{FIELD.pattern}))",
        "`is {word}` stands behind the field", "{field} is {word}",
    ),
)  # fmt: skip
"""All rows, in the order in which they are tried; what a statement alone has stands first."""
