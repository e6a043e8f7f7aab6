"""More habits that are told by a pattern alone: words and signs of whole phrases.

Rows as in `patterns`; these are asked before anything that looks at a word or a sign by itself,
so each is exact. A replacement is proposed only if the statement can be read further with it.
"""

from typing import Final

from dsl.parser.complaints.patterns import Pattern, told_by
from dsl.parser.complaints.place import FIELD, PATH, Place
from dsl.parser.refusal import Refusal

_KEY: Final = r"(?:[\w./-]+|\"_*\")"
_EOL: Final = r"(?=~(?:\n|\Z))"
_END: Final = r"(?![\w.])"
_FIELD: Final = FIELD.pattern
_RULES: Final = "filter require forbid gate prefilter preFilter reserve prefer avoid first"
_KEYED: Final = r"(?:(?:it\.)?namespace|pod|node|it|workload)\.(?:label|annotation|taint)"
_SET: Final = (
    r"(?:(?:node|cluster|zone|region|rack|workload|namespace|group)\.\w+|pod\.containers|nodes)"
)
_UNFIT: Final = "`{at}` does not fit here"
_LINE_EACH: Final = "each line of `{word}` says one thing"
_NUMBERS: Final = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip
#: Nothing follows that belongs to what stands before.
_CLOSES: Final = r"(?=~(?:\)|\n|\Z)| (?:and|or|order|pick|limit|across|message)\b)"
#: What an operator that wants the value of a label starts with.
_TESTED: Final = r"(?=~(?:[!=]=|[<>]|(?:is|in|not|like|contains|starts|ends|matches)\b))"


def known(place: Place) -> Refusal | None:
    """What a row of the table says of a place."""
    return told_by(HABITS, place)


HABITS: Final = (
    # the node of another pod
    Pattern(
        rf"(?P<cut>(?P<owner>it\.node\.label)s? §(?P<key>{_KEY})~==?~"
        rf"(?P<value>(?!(?:missing|present|not|true|false)\b)[A-Za-z][\w.-]*|\"_*\"))(?![\w./-])",
        "a label of its node has its key in brackets", "{owner}[{key}] is {value}",
    ),
    Pattern(
        rf"(?P<cut>(?P<owner>it\.node\.label)s? §(?P<key>{_KEY})){_CLOSES}",
        "a label of its node has its key in brackets", "{owner}[{key}] is present",
    ),
    Pattern(
        rf"(?P<cut>(?P<owner>it\.node\.taint)s? §(?P<key>{_KEY})){_CLOSES}",
        "a taint of its node has its key in brackets", "{owner}[{key}]",
    ),
    Pattern(
        rf"(?P<cut>(?P<owner>it\.node\.taint)s? §(?P<key>{_KEY})~==?~(?:[\w./-]+|\"_*\")?)",
        "a taint of its node is asked for by its key alone",
        help="whatever its value it is  {owner}[{key}]",
    ),
    # one item, one domain
    Pattern(
        r"(?P<cut>(?P<quoted>\bsplit~\([^()\n]*\))~§\[~(?P<index>\d+)~\])",
        "an item of a list is taken by `item`", "item({quoted}, {index})",
    ),
    Pattern(
        r"\bwithin (?P<cut>nodes_in~§\(~(?P<quoted>\"_+\")~\))",
        "`within` takes the key of the label alone", "{quoted}", words="gang",
    ),
    # weights and other clauses
    Pattern(
        r"\A(?P<word>prefer|avoid|score|spread)(?P<cut>~\(~(?P<weight>\d[\d.]*)~\)~:~"
        rf"(?P<rest>[^\n]*?)){_EOL}",
        "a weight stands behind the rule", ": {rest} weight {weight}",
        "write  {word}: {rest} weight {weight}", words="prefer avoid score spread",
    ),
    Pattern(
        rf"\A(?P<word>prefer|avoid):~(?P<cut>(?P<weight>\d[\d.]*)~§(?P<rest>(?:pod|node|least|most"
        rf"|namespace|any|count|not)\b[^\n]*?)){_EOL}",
        "a weight stands behind the rule", "{rest} weight {weight}",
        "write  {word}: {rest} weight {weight}", of_all=True,
    ),
    Pattern(
        r"(?P<cut>§\(~(?P<clause>(?:weight|skew|normalize|missing) [\w.]+)~\))",
        "a clause stands without brackets", "{clause}",
    ),
    Pattern(
        r"\b(?P<clause>weight|skew|every|stale|status|limit|unit|missing|normalize|message|wait"
        r"|default|backoff)(?P<cut>~§==?~)(?=(?P<value>[\w.$]+%?|\"_*\"))",
        "`{clause}` takes no `=`", " ", "write  {clause} {value}", code="P014",
    ),
    Pattern(
        r"(?P<cut>~(?P<at>[*+,])~weight~)§(?P<weight>\d[\d.]*)", _UNFIT, " weight ",
        "write  weight {weight}", words="score prefer avoid spread first",
    ),
    Pattern(r"(?P<cut>§(?P<at>with) )(?=weight )", _UNFIT, ""),
    Pattern(
        r"(?P<cut>§(?P<at>Weight|Message|Status|Missing|Normalize|Skew|Every|Stale|Default|Unit)"
        r"~[:=]?~)(?=\S)",
        "words of the language are lower-case: `{at}`", "{at.low} ", "write  {at.low}",
    ),
    Pattern(
        r"\b(?:minmax|default|rank|none)(?P<cut>~§,~)(?=reverse\b)",
        "clauses stand one behind the other, without commas", " ", "leave it out",
    ),
    Pattern(
        r"\b(?P<clause>weight|skew|limit|use|unit|usage|as)(?:~:)?~(?P<cut>§\"(?P<value>_+)\")"
        r"(?![\w.])",
        "`{clause}` takes no quotes", "{value}", "write  {clause} {value}",
    ),
    Pattern(
        r"\A(?P<word>let|metric|param) (?P<cut>§\"(?P<name>_+)\")", "a name takes no quotes",
        "{name}", "write  {word} {name}",
    ),
    *(
        Pattern(
            rf"\b(?P<clause>weight|skew|limit|min|max)(?:~:)?~(?P<cut>§{word}){_END}",
            "a number is written in digits", str(number), f"write  {{clause}} {number}",
            code="P007",
        )
        for number, word in enumerate(_NUMBERS, 1)
    ),
    # declarations
    Pattern(
        r"\Alet \w+(?P<cut>~(?P<at>:~(?:string|number|quantity|duration|bool|boolean|time|int|float"
        r"|str|list(?: of \w+)?))~)(?==[^=])",
        "a `let` has no type", " ", "leave it out",
    ),
    Pattern(
        r"\A(?:let|function|func|fn|def|macro) (?P<cut>(?P<name>\w+)~\((?P<inner>[^()]*)\))~=",
        "there are no functions of your own here",
        help="a name stands for one value:  let {name} = EXPRESSION",
    ),
    Pattern(
        r"\Alet \w+~=(?P<cut>~§=)", "one `=` gives a value", "", "leave one out", words="let",
    ),
    Pattern(
        r"\A(?:let|param)\b[^={}\n]*=~(?P<cut>\{~(?P<items>[^{}:=]*?)~\})",
        "a list stands in square brackets", "[{items}]", code="P014",
    ),
    Pattern(
        r"\Alet \w+~=~[^,\n]*?(?P<cut>~§,~)(?P<more>\w+~=[^=\n][^\n]*)",
        "each name has a line of its own", "\nlet ", "write on a line of its own  let {more}",
    ),
    # rules for some pods
    Pattern(
        r"\A(?P<word>\w+):~(?P<cut>(?P<at>(?i:when|if|whenever|where|for)) (?P<one>[^,\n]*?)~,"
        rf"(?:~then)?~(?P<two>[^,\n]*?)){_EOL}",
        "a rule for some pods is written with `->`", "{one} -> {two}",
        "write  {word}: {one} -> {two}", words=_RULES, unless="->", of_all=True,
    ),
    Pattern(
        r"\A(?P<word>prefer|avoid):~(?!least\b|most\b)(?P<one>[^,\n]*?)(?P<cut>~,~)"
        rf"(?P<two>(?:least|most) [^,\n]*?){_EOL}",
        "a rule for some pods is written with `->`", " -> ", "write  {word}: {one} -> {two}",
        unless="->", of_all=True,
    ),
    Pattern(
        r"\A(?P<word>\w+):~(?P<cut>(?:if )?(?!(?:some|every|all|exists|for)\b)"
        r"(?P<one>[^{}\n]*?[^{}\n\s])~(?P<at>\{)~(?:return )?"
        rf"(?P<two>[^{{}}\n]*?)~;?~\}}){_EOL}",
        "a rule for some pods is written with `->`", "{one} -> {two}",
        "write  {word}: {one} -> {two}", words=_RULES, unless="->", of_all=True, code="P014",
    ),
    Pattern(
        r"(?<=[\w\"\])])~(?P<cut>§(?:to|\|-|:-|-|>))(?=~(?:not )?(?:node|pod|namespace)\.\w)",
        "`{cut}` does not fit here", "->", "condition and demand are parted by `->`:  write  ->",
        words=_RULES,
        unless="->", wants="_ARROW", of_all=True,
    ),
    Pattern(
        rf"->[^\n]*?(?P<cut>~§(?P<at>else|otherwise) (?:reject|deny|fail|false|drop)){_EOL}",
        "what a rule demands rejects all others", "", "leave it out", words=_RULES,
    ),
    Pattern(
        rf"\A(?P<word>\w+):~(?P<cut>(?P<one>[^\n]*?)~->~(?P<two>[^\n]*?)~§(?P<at>else|otherwise) "
        rf"(?P<three>[^\n]*?)){_EOL}",
        "a rule has no `else`: a choice is written with `if`", "if {one} then {two} else {three}",
        "write  {word}: {better}", of_all=True,
    ),
    # two preferences
    Pattern(
        r"\A(?P<word>prefer|avoid):~(?:least|most)\b[^\n]*?"
        r"(?P<cut>~(?:,~then|and then|and|then|or|[,+;&])~(?P<two>least|most) )"
        r"(?=(?P<rest>[^\n]*))",
        _LINE_EACH, "\n{word}: {two} ", "write on a line of its own  {word}: {two} {rest}",
        words="prefer avoid", untried=True,
    ),
    Pattern(
        rf"\A(?:prefer|avoid):[^\n]*?(?P<cut>~§?(?P<at>first|last|best)){_EOL}", _UNFIT, "",
        words="prefer avoid", of_all=True,
    ),
    Pattern(
        r"\A(?:prefer|avoid):~(?P<cut>(?P<at>strongly|slightly|always|mostly|usually|really|rather"
        r"|preferably|ideally) )",
        "how much it counts is said by a weight", "",
        "leave it out, and write for example  weight 5",
        words="prefer avoid",
    ),
    Pattern(
        r"\A\w+:~(?:least |most )?(?P<cut>(?P<at>free|requested|allocatable) "
        r"§?(?P<field>node\.(?:cpu|memory|gpu|storage|pods)))(?![\w.])",
        "what is {at} is asked behind a dot", "{field}.{at}",
    ),
    # spread
    Pattern(
        r"\bover\b[^\n]*?(?P<cut>§(?P<at>max(?:imum)?)) (?=(?P<skew>\d+))", _UNFIT, "skew",
        "write  skew {skew}", words="spread",
    ),
    Pattern(
        rf"(?P<cut>~§(?P<at>soft|(?i:schedule_?anyway)|best-effort)){_END}",
        "without `hard` a spread is a preference", "", "leave it out", words="spread",
    ),
    Pattern(
        r"(?P<cut>§(?i:when_?unsatisfiable)~[:=]?~(?i:do_?not_?schedule)\b)",
        "`{cut}` does not fit here", "hard", words="spread",
    ),
    Pattern(
        r"(?P<cut>~§(?i:when_?unsatisfiable)~[:=]?~(?i:schedule_?anyway)\b)",
        "without `hard` a spread is a preference", "", "leave it out", words="spread",
    ),
    # fields and their keys
    Pattern(
        r"(?<![\w.$])(?P<cut>(?P<owner>pod|node|namespace|it)(?P<at>::|->|:|/|\\)"
        r"(?P<name>labels?|annotations?|taints?|name|namespace|zone|ready))(?!\w)(?=[^\n]*§)",
        "a dot stands between `{owner}` and what is asked of it", "{owner}.{name}", code="P014",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})(?!s\b)(?P<key>[a-z][\w./-]*))~§(?=!?=)",
        "a blank is missing in `{cut}`", "{owner} {key}",
    ),
    Pattern(
        r"(?<![\w.$])(?P<cut>(?P<owner>pod|node|namespace)(?P<name>(?:label|annotation|taint)s?))"
        rf"(?= {_KEY})",
        "a dot stands between `{owner}` and what is asked of it", "{owner}.{name}",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})s?~:?~(?P<at>\{{)~(?P<key>{_KEY})~[=:]~"
        rf"(?P<value>{_KEY})~\}})",
        "a label is tested without braces", "{owner} {key}={value}", code="P014",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})s?~:~\{{~(?P<key>{_KEY})~[=:]~(?P<value>{_KEY})~\}})",
        "a label is tested without braces", "{owner} {key}={value}", code="P014",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})s?~:?~\{{~(?P<key>{_KEY})~[=:]~(?P<value>{_KEY})~,"
        rf"~(?P<other>{_KEY})~[=:]~(?P<second>{_KEY})~\}})",
        "each label has a test of its own", "{owner} {key}={value} and {owner} {other}={second}",
        code="P014",
    ),
    *(
        Pattern(
            rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})s?~{opens}~(?P<key>{_KEY})~{closes}){behind}",
            "the key of a label stands in square brackets", "{owner}[{key}]", code="P014",
        )
        for opens, closes, behind in (
            (r"\{", r"\}", ""), ("<", ">", ""), ("/", "", _TESTED), ("::?", "", _TESTED),
        )
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})(?:/|::?)(?P<key>{_KEY}))(?=~!?=)",
        "a blank stands in front of the key", "{owner} {key}",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<owner>{_KEYED})s? (?P<key>{_KEY}))(?= (?:not )?in "
        r"§(?P<at>\d+~\.\.~\d+))",
        "a range holds numbers, and the value of a label is a text", "number({owner}[{key}])",
        "write  number({owner}[{key}]) in {at}",
    ),
    Pattern(
        r"(?<![\w.$])(?P<cut>(?P<owner>pod|node|namespace)s? §(?:without|(?:has|have|having|with)"
        r" no|lacks?|does not have) (?:(?:a|the|any) )?(?P<name>label|annotation|taint)s?)"
        r" (?=[\w\"])",
        "`{cut}` does not fit here", "not {owner}.{name}",
    ),
    Pattern(
        r"(?<![\w.$])(?P<cut>(?P<owner>pod|node|namespace)s? §(?:has|have|having|with)"
        r" (?:(?:a|the) )?(?P<name>label|annotation|taint)s?) (?=[\w\"])",
        "`{cut}` does not fit here", "{owner}.{name}",
    ),
    Pattern(
        rf"(?P<field>{_FIELD}) (?P<cut>(?P<at>not) §)(?=[A-Za-z\"][\w.-]*{_END})(?!(?i:in|like"
        r"|contains?|starts|ends|match(?:es)?|is|equals?|has|exists?|missing|present"
        r"|less|more|greater|fewer|higher|lower|bigger|larger|smaller|above|below|under|between|one"
        r"|any|set|defined)\b)",
        _UNFIT, "is not ", "write  {field} is not ...",
    ),
    # signs
    Pattern(r"(?P<cut>(?P<sign>[<>!]) §=)(?!=)", "`{sign}=` has no blank in it", "{sign}=",
            code="P014"),
    Pattern(r"(?P<cut>§\?~:)(?!\w)", "`{cut}` is not an operator here", "??", code="P014"),
    Pattern(r"(?P<cut>§\?\.)(?=\w)", "`?.` is not an operator here: what is missing stays missing",
            ".", code="P014"),
    Pattern(r"(?P<cut>§!!~)", "`!!` is not an operator here", "", code="P014"),
    Pattern(
        r"(?P<left>[\w)\]])(?P<cut>~§(?P<at>[xX\u00d7])~)(?=[\d(]|[a-z]+\.)",
        "`{at}` is not an operator here", " * ", "write  *", code="P014",
        words="score prescore let prefer avoid",
    ),
    Pattern(
        rf"(?P<cut>~§\\~)(?={PATH}|\d)", "`\\` is not an operator here", " / ", "write  /",
        code="P014",
    ),
    Pattern(
        r"(?P<cut>§?(?:…|\.\.\.?))(?=~(?:\n|\Z|->|message\b|weight\b|and\b|or\b))",
        "`{cut}` stands for what is not written yet", help="put a condition or a value here",
    ),
    Pattern(
        rf"(?<=[A-Za-z])(?P<cut>§[.!]){_EOL}", "a statement has no `{cut}` at its end", "",
        words=f"{_RULES} score let", code="P014",
    ),
    Pattern(r"(?P<cut>\$§?)(?=(?:pod|node|namespace|cluster|it)\.)", "fields are written without a "
            "`$`", ""),
    Pattern(
        r"(?P<cut>\$)(?P<owner>pod|node|namespace|cluster|it)§\.",
        "fields are written without a `$`", "", "write  {owner}.", untried=True,
    ),
    Pattern(r"(?P<cut>§[%#@]\{(?P<name>\w+)\})", "a parameter is written with a `$`", "${name}",
            code="P014"),
    # times and amounts
    Pattern(
        r"(?P<cut>(?P<at>half|a quarter|a third)~§?of)(?= )", "a share is written with `%`",
        help="write  50% of, 25% of, ...",
    ),
    Pattern(
        rf"(?P<cut>(?P<at>twice|double) §)(?=(?P<field>{_FIELD}|\w+))", _UNFIT, "2 * ",
        "write  2 * {field}",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<at>(?P<number>\d[\d.]*)[x\u00d7]) §?)(?=(?P<field>{_FIELD}))",
        "`{at}` is not a number", "{number} * ", "write  {number} * {field}", code="P007",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<number>\d[\d.]*)(?P<cut> §)(?=(?P<at>{_FIELD}))",
        "no sign stands between `{number}` and `{at}`", " * ", "write  {number} * {at}",
        unless=r"(?:contains|with|is|not|in|=) \d[\d.]* §", of_all=True,
    ),
    Pattern(
        rf"(?P<cut>(?P<value>{PATH})~§::~(?P<type>number|int|integer|float|double|numeric))(?!\w)",
        "a value is turned into a number by `number`", "number({value})", code="P014",
    ),
    Pattern(
        rf"(?P<cut>(?i:cast)\(~(?P<value>{PATH}) §?(?i:as) (?i:number|int|integer|float|double"
        r"|numeric)~\))",
        "a value is turned into a number by `number`", "number({value})",
    ),
    Pattern(
        r"(?<![\w.])\d[\w.]*(?P<cut> §(?P<at>(?:bytes|B|b|bits)/s(?:ec)?))(?!\w)",
        "`{at}` is no unit here", "", code="P007",
    ),
    Pattern(
        r"\bin \d+(?P<cut>\.\.§\.)(?=\d)", "a range is written with `..`", "..",
    ),
    # what is said in English
    *(
        Pattern(
            rf"\A\w+:~(?P<cut>(?:the )?nodes?§? §?(?:with|has|have|having)§? §?(?:{words})§? §?"
            rf"(?P<amount>\d[\w.]*)§? §?free {resource}){_EOL}",
            "a rule says it with a field and a sign", f"node.{field}.free {sign} {{amount}}",
        )
        for words, sign in (
            ("more than|over", ">"), ("at least", ">="), ("less than|fewer than|under", "<"),
        )
        for resource, field in (("(?:cores?|cpus?)", "cpu"), ("memory", "memory"), ("gpus?", "gpu"))
    ),
    Pattern(
        r"\A(?:prefer|avoid):~(?P<cut>(?:the )?nodes?§? §?with§? §?(?:the )?"
        rf"(?:fewer|fewest|less|least) §?pods){_EOL}",
        "what is preferred is said with a value", "least count(node.pods)", words="prefer",
    ),
    Pattern(
        r"\A(?:prefer|avoid):~(?P<cut>(?:the )?nodes?§? §?with§? §?(?:the )?"
        rf"(?:most|more) §?(?:free|available) (?P<of>cpu|memory|gpu|storage)){_EOL}",
        "what is preferred is said with a value", "most node.{of}.free", words="prefer",
    ),
    Pattern(
        r"(?P<cut>§?(?:cordoned|unschedulable)§? §?nodes?)(?!\w)", "a rule says it with a field",
        "node.unschedulable", words=_RULES,
    ),
    Pattern(
        rf"(?P<cut>concat\(~(?P<sign>\"_*\")~,~§?\[~(?P<one>{PATH})~,~(?P<two>{PATH})~\]~\))",
        "texts are put together by `join`", "join({one}, {sign}, {two})", code="P106",
    ),
    # sets
    Pattern(
        rf"\((?P<set>{_SET})(?P<cut> §)(?=(?P<at>(?:not )?it\.\w[\w.]*))",
        "no `where` stands between `{set}` and `{at}`", " where ",
        "write  {set} where {at} ...",
    ),
    Pattern(
        rf"\b(?P<name>sum|avg|max|min|median|distinct)\(~(?P<value>it\.[\w.]+)"
        rf"(?P<cut> §(?P<at>for|of|in|from)) (?=(?P<set>{_SET}))",
        _UNFIT, " over", "write  {name}({value} over {set})",
    ),
    Pattern(
        rf"(?<![\w.$])(?P<cut>(?P<set>{_SET})~§(?P<at>\|)~(?:length|len|count|size)\b)(?!~\()",
        "nothing is handed on by `|` here", "count({set})", code="P014",
    ),
    Pattern(
        rf"(?P<cut>~§\|~(?:[ef]?grep|contains|select-string)~(?:-\w+~)*"
        rf"(?P<word>{_KEY}))",
        "nothing is handed on by `|` here", " contains {word}", "write  contains {word}",
        code="P014",
    ),
    Pattern(
        rf"(?P<cut>[ef]?grep (?:-\w+ )*§(?P<word>{_KEY}) (?P<field>{_FIELD}))",
        "there are no commands here", "{field} contains {word}",
    ),
    Pattern(
        rf"\A(?P<word>\w+):[\s\S]*?(?P<cut>§(?i:order|sort)(?:ed)? (?i:by) (?P<key>{PATH})"
        rf"(?: (?i:asc))?){_EOL}",
        "a `{word}` orders nothing", help="write on a line of its own  prefer: least {key}",
        words="filter require forbid",
    ),
    # lists
    Pattern(
        r"(?P<cut>\[~§?\[(?P<items>[^\[\]]*)\]~\])", "one pair of brackets is enough", "[{items}]",
    ),
    Pattern(
        rf"(?P<cut>(?P<at>\[[^\[\]\n]*\])\.(?:includes|contains|has|include)\(~(?P<value>{PATH})~\))",
        "there are no methods here: `.includes(...)`", "{value} in {at}", code="P106",
    ),
    Pattern(
        rf"(?P<cut>(?P<at>/(?P<text>[\w-]+)/)\.(?:test|match)\(~(?P<value>{PATH})~\))",
        "there are no methods here: `.test(...)`", "{value} contains {text}", code="P106",
    ),
    Pattern(
        r"\bin (?P<cut>(?P<items>[\w./-]+(?:~,~[\w./-]+)+)~\])", "no `[` stands before this list",
        "[{items}]", code="P002",
    ),
    Pattern(
        rf"(?<![\w.$]){_KEYED}s? {_KEY}(?P<cut>~=~(?P<one>[\w.-]+)§(?P<at>\|)(?P<two>[\w.-]+))"
        r"(?![\w.|-])",
        "several values stand in a list", " in [{one}, {two}]", "write  in [{one}, {two}]",
    ),
    Pattern(
        rf"\blike (?P<cut>§?(?P<word>[\w.-]+)§?%){_EOL}", "any text is `*` in a pattern", "{word}*",
    ),
    # sort
    Pattern(
        rf"\A(?:sort|queueSort):[^\n]*?{_FIELD}(?: desc| asc)?(?P<cut> §)(?=(?P<at>{_FIELD}))",
        "keys are parted by commas", ", ", "write  , {at}", words="sort queueSort",
    ),
    Pattern(
        rf"\A(?:sort|queueSort):~(?P<cut>(?P<one>[^,\n]*?)~§->~(?!desc\b|asc\b)(?P<key>{PATH}))",
        "a key for some pods is written with `if`", "if {one} then {key} else 0",
        words="sort queueSort",
    ),
    Pattern(r"(?P<cut>~§;)(?=~\S)", "keys are parted by commas", ",", "write  ,",
            words="sort queueSort", code="P014"),
    Pattern(
        r"(?P<cut>(?P<word>desc|asc)~§?\(~(?P<key>[^()\n]*?)~\))", "`{word}` stands behind its key",
        "{key} {word}", words="sort queueSort",
    ),
    Pattern(r"(?P<cut>~§->)(?=~(?:desc|asc)\b)", "`->` does not fit here", "",
            words="sort queueSort"),
    Pattern(
        r"(?P<cut>~§(?i:nulls last))\b", "what is missing stands last anyway", "",
        words="sort queueSort",
    ),
    # scores of a condition
    Pattern(
        r"\Ascore:~(?P<cut>(?P<test>[^\n?]*(?:label|annotation|taint|is|contains|like|[<>=]=?) "
        rf"?[^\n?:*]*?)~§(?P<at>then|:|\*|=>)~(?P<points>\d[\d.]*)){_EOL}",
        "a choice is written with `if`", "if {test} then {points} else 0", words="score",
        of_all=True,
    ),
    Pattern(
        r"\A(?P<word>first):~[^\n]*?(?P<cut>~§(?:and )?then~)(?=(?P<rest>[^\n]*))", _LINE_EACH,
        "\nfirst: ", "write on a line of its own  first: {rest}", words="first", unless="->",
    ),
    # messages
    Pattern(
        rf"\bmessage~(?P<cut>\"(?P<quoted>_*)\"~§\+~(?P<value>{_FIELD}))",
        "a message holds values in braces", '"{quoted}{{{value}}}"',
    ),
    Pattern(
        rf"\bmessage~\"_*\"(?P<cut>~§,~(?P<value>{_FIELD}))", "a message holds values in braces",
        help='write  message "... {{{value}}} ..."', words=_RULES,
    ),
    Pattern(
        r"\A(?P<word>\w+):~(?P<cut>(?P<one>[^\n]*?) (?P<said>message \"_*\")~§(?P<at>->)"
        rf"~(?P<two>[^\n]*?)){_EOL}",
        "a message stands behind the rule", "{one} -> {two} {said}",
        "write  {word}: {one} -> {two} {said}", of_all=True,
    ),
    # parameters
    Pattern(
        r"\Aparam[^\n]*=~(?:\"_*\"|[\w.]+)(?P<cut>~§,)(?=~\"_*\"~(?:\n|\Z))",
        "what a parameter is for stands behind its value, without a comma", "", "leave it out",
        words="param", code="P014",
    ),
    Pattern(
        r"\Aparam[^\n]*=~\S+(?P<cut> §?\(?~(?:(?:with|in|range|between) )?§?\(?(?:min~[:=]?~)?"
        r"(?P<low>[\w.]+%?)~(?:\.\.|,|-|to|and|max)~[:=]?~(?P<high>[\w.]+%?)(?:~\))?)(?=~(?:\"|\n|\Z))",
        "what the value may be stands behind `from`", " from {low} to {high}",
        "write  from {low} to {high}", words="param",
    ),
    Pattern(
        r"\Amode:~(?:enforce|shadow|off)(?P<cut>~§:~\w+)", "`{cut}` does not fit here", "",
        words="mode",
    ),
    Pattern(
        r"\Aspread:~(?:[^\n]*->~)?(?P<cut>§)(?=(?P<at>zone|region|rack|node|hostname)\b(?![.]))",
        "`over` is missing in front of a topology", "over ", "write  over {at}", words="spread",
        unless=r"\bover\b",
    ),
    # metrics
    Pattern(
        r"\Ametric\b[^\n]*(?P<cut>§(?P<at>for each|for|grouped by|group by|group_by|labell?ed))"
        r" (?=(?P<by>[A-Za-z_]\w*))",
        _UNFIT, "by", "write  by {by}",
    ),
    Pattern(
        r"\Ametric\b[^\n]*(?P<cut>§offset (?P<at>\S+))", "`offset` belongs into the query",
        help='write  promql "... offset {at}"', words="metric",
    ),
    Pattern(r"(?P<cut>§units)(?= )", "`units` does not fit here", "unit", "did you mean `unit`?",
            words="metric"),
    Pattern(
        rf"\Ametric \w+~=~annotation(?P<cut>~[\[(]~(?P<key>{_KEY})~[\])])",
        "the key of an annotation stands behind it, without brackets", " {key}",
        "write  annotation {key}",
    ),
    # who a policy applies to
    Pattern(
        r"\Aapplies to:~(?P<cut>\[(?P<names>[\w\s,.\"-]*)\])" + _EOL,
        "a condition says whom a policy applies to", "pod.namespace in [{names}]",
    ),
    Pattern(
        r"\Aapplies to:~(?P<cut>(?:the )?namespaces? (?:is )?(?P<name>[\w-]+))" + _EOL,
        "a condition says whom a policy applies to", "pod.namespace is {name}",
    ),
    Pattern(
        r"\Aapplies to:~(?P<one>[^\n]*?)(?P<cut>~§->~)(?=(?P<two>[^\n]*))",
        "`applies to` takes one condition", "\nfilter: ",
        "write a rule of what it demands  filter: {two}",
    ),
    # what pods get, quotas, victims, permits, `use`
    Pattern(
        rf"\b(?P<verb>annotate|label) (?P<cut>(?:the |a )?(?P<at>pods?) §?)(?=(?P<key>{_KEY})~=)",
        "`{verb}` is about the pod", "", "write  {verb} {key} = ...",
        words="prebind preBind postbind postBind", untried=True,
    ),
    Pattern(
        rf"\b(?P<verb>annotate|label) (?P<cut>(?:the |a )?(?P<at>nodes?) §?)(?=(?P<key>{_KEY})~=)",
        "`{verb}` is about the pod: a node gets nothing", help="write  {verb} {key} = ...",
        words="prebind preBind postbind postBind",
    ),
    Pattern(
        rf"\Apre[bB]ind:~(?P<cut>(?:set|add) (?:an? |the )?(?:pod )?annotation (?P<key>{_KEY}) "
        r"(?:to|=)(?= ))",
        "a pod gets an annotation by `annotate`", "annotate {key} =",
    ),
    Pattern(
        rf"\Apre[bB]ind:~(?P<cut>pod\.annotation (?P<key>{_KEY})~=~(?P<value>[^\n]*?))~§{_EOL}",
        "a pod gets an annotation by `annotate`", "annotate {key} = {value}",
    ),
    Pattern(
        rf"\Aquota:~(?P<cut>(?!by\b)(?P<key>{_FIELD}))(?= §(?P<rest>[^\n]*))",
        "a quota says by what pods are counted", "by {key}", "write  quota: by {key} {rest}",
    ),
    Pattern(
        rf"\Aquota:~by {_FIELD}(?P<cut> §)(?=(?P<more>(?:cpu|memory|pods|storage|gpu) \d\S*))",
        "no `max` stands before the amounts", " max ", "write  max {more}",
    ),
    Pattern(
        rf"\Aquota:~by {_FIELD} (?P<cut>§(?P<at>limits?|upto|up to|hard|at most|maximum))(?= \w)",
        _UNFIT, "max",
    ),
    Pattern(
        r"\b(?:max|min)\b[\s\S]*?(?P<cut>\s+§)(?P<more>(?:cpu|memory|pods|storage)(?=~[=:]))",
        "amounts are parted by commas", ", ", "write  , {more} ...", words="quota", untried=True,
    ),
    Pattern(
        r"\A(?:preempt|postFilter):~(?P<cut>(?:pods|all|any|those|them)?~§?where §?)(?=it\.)",
        "`victims` says who is evicted", "victims where ", "write  victims where ...",
    ),
    Pattern(
        rf"\A(?P<word>preempt|postFilter):~(?P<cut>)(?P<at>it\.[^\n]*?)~§{_EOL}",
        "`victims where` says who is evicted", "victims where ",
        "write  {word}: victims where {at}", of_all=True,
    ),
    Pattern(
        r"(?P<cut>§(?:sort|order)(?:ed)? by )(?=(?P<key>it\.\S+))", "`{cut}` does not fit here",
        "order ", "write  order {key}", words="preempt postFilter",
    ),
    Pattern(
        rf"\A(?P<word>preempt|postFilter):~(?P<cut>never~§->~(?P<rest>[^\n]*?)){_EOL}",
        "the condition stands before `->`", "{rest} -> never", "write  {word}: {rest} -> never",
        of_all=True,
    ),
    Pattern(
        r"\Aquota:[^\n]*->~(?P<cut>§)(?=(?P<at>max|min)\b)",
        "a quota says by what pods are counted", "by pod.namespace ",
        "write  by pod.namespace {at} ...", words="quota",
    ),
    Pattern(
        r"\bwait (?P<cut>(?P<at>until)) §", "`wait` says how long",
        help="write  wait 60s until ...",
        words="permit",
    ),
    Pattern(
        r"\A(?P<word>permit):[^\n]*?wait (?P<at>\d\w*)(?P<cut>§)" + _EOL,
        "`wait` says until when", help="write  wait {at} until CONDITION", words="permit",
        code="P009",
    ),
    Pattern(
        r"\Apermit:[^\n]*?(?P<cut>§(?:deny|refuse|forbid|block|no))(?![\w.])",
        "`{cut}` does not fit here", "reject", untried=True,
    ),
    Pattern(
        rf"\Apermit:~(?P<cut>(?:deny|refuse|forbid|block)~§){_EOL}", "`{cut}` does not fit here",
        "reject", untried=True,
    ),
    Pattern(
        r"(?P<cut>§with (?P<name>\w+)~[=:]~(?P<value>[\w.$%]+|\"_*\"))",
        "arguments stand in parentheses", "({name} = {value})", words="use", wants="LPAR",
    ),
    Pattern(
        rf"\bas (?P<cut>(?P<one>\w+) §(?P<two>\w+)){_EOL}", "a name is one word", "{one}_{two}",
        words="use",
    ),
)  # fmt: skip
"""All rows, in the order in which they are tried."""
