"""How a statement begins: its word, the colon, names of declarations, values of the header.

Each check looks for one kind of mistake and the first that recognises it speaks.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.place import Place, Refusal
from dsl.source import SourceFile, Span
from dsl.spelling import closest

STATEMENTS: Final = (
    "policy", "description", "version", "language", "mode", "order", "weight", "gate", "preEnqueue",
    "sort", "queueSort", "prefilter", "preFilter", "filter", "require", "forbid", "preempt",
    "postFilter", "prescore", "preScore", "score", "first", "prefer", "avoid", "spread",
    "normalize", "reserve", "permit", "prebind", "preBind", "bind", "postbind", "postBind", "gang",
    "quota",
)  # fmt: skip
DECLARATIONS: Final = ("let", "param", "metric", "use")
#: Clauses, which take no colon.
_CLAUSES: Final = (
    "message", "status", "weight", "missing", "normalize", "every", "stale", "default", "unit",
    "by", "order", "pick", "limit", "min", "max", "wait", "skew", "reject", "annotate", "event",
)  # fmt: skip
#: Words that other languages and tools start a line with, and the statement that does it here.
_ELSEWHERE: Final = MappingProxyType(
    {
        **dict.fromkeys(("deny", "reject", "disallow", "block", "exclude", "drop", "ban"),
                        "forbid: CONDITION"),
        **dict.fromkeys(("allow", "accept", "permits", "assert", "must", "ensure", "validate",
                         "constraint", "only"), "require: CONDITION"),
        **dict.fromkeys(("when", "if", "match", "where", "rule", "rules", "on", "unless", "for",
                         "foreach", "case", "while", "select", "from"),
                        "filter: CONDITION -> CONDITION"),
        **dict.fromkeys(("then", "else", "return", "and", "or"), "filter: CONDITION -> CONDITION"),
        **dict.fromkeys(("nodeselector", "affinity", "nodeaffinity", "matchlabels"),
                        "require: node.label KEY=VALUE"),
        "podaffinity": "require: any(node.pods where it.label KEY=VALUE)",
        "podantiaffinity": "forbid: any(node.pods where it.label KEY=VALUE)",
        "antiaffinity": "forbid: any(node.pods where it.label KEY=VALUE)",
        "tolerations": "filter: node.taint KEY -> pod.label KEY=VALUE",
        "taints": "filter: node.taint KEY -> pod.label KEY=VALUE",
        "topologyspreadconstraints": "spread: over zone skew 1 hard",
        "nodename": "require: node.name is NAME",
        "priorityclassname": "filter: pod.priority_class is NAME -> CONDITION",
        **dict.fromkeys(("name", "metadata", "module", "plugin"), "policy: NAME"),
        "title": 'description: "..."',
        **dict.fromkeys(("priority", "orderby", "sortby", "queue"), "sort: pod.priority desc"),
        **dict.fromkeys(("var", "const", "set", "define", "val", "local", "alias", "with"),
                        "let NAME = EXPRESSION"),
        **dict.fromkeys(("params", "parameters", "args", "arguments", "config", "values",
                         "inputs"), "param NAME: string = VALUE"),
        **dict.fromkeys(("metrics", "query", "promql", "source", "record", "expr"),
                        'metric NAME = promql "QUERY"'),
        **dict.fromkeys(("import", "include", "load", "require_relative", "package", "extends"),
                        "use NAME"),
        **dict.fromkeys(("rank", "rate", "scoring", "scoreplugin", "maximize", "minimize",
                         "points"), "score: EXPRESSION"),
        **dict.fromkeys(("normalizescore", "normalise", "scale"), "normalize: minmax"),
        **dict.fromkeys(("preemption", "evict", "victims", "kill"),
                        "preempt: victims where it.priority < pod.priority"),
        **dict.fromkeys(("limit", "limits", "resourcequota", "resources"),
                        "quota: by pod.namespace max cpu 20"),
        **dict.fromkeys(("distribute", "balance"), "spread: over zone"),
        **dict.fromkeys(("pack", "binpack"),
                        "prefer: most node.cpu.requested/node.cpu.allocatable"),
        **dict.fromkeys(("podgroup", "mingroup", "coscheduling"), "gang: by pod.label[KEY] min 3"),
        **dict.fromkeys(("wait", "delay"), "permit: CONDITION -> wait 60s until CONDITION"),
        **dict.fromkeys(("annotate", "label"), 'prebind: annotate KEY = "VALUE"'),
        **dict.fromkeys(("enabled", "dryrun", "enforcementaction"), "mode: off"),
        **dict.fromkeys(("selector", "scope", "podselector", "namespaceselector", "targets"),
                        "applies to: pod.namespace is NAME"),
    }
)  # fmt: skip
#: First lines of texts that are no policies at all.
_FOREIGN: Final = (
    (r"---[ \t]*$|apiVersion[ \t]*:|kind[ \t]*:[ \t]*[A-Z]", "YAML (a Kubernetes object)"),
    (r"package[ \t]+[\w.]+[ \t]*$", "Rego or Go"),
    (r"(default|import)[ \t]+(allow|deny|data|input|rego|future)\b", "Rego"),
    (r"(deny|allow|violation|warn)(\[.*\])?[ \t]*(contains\b.*)?(if[ \t]*)?\{", "Rego"),
    (r"(def|class)[ \t]+\w+.*:[ \t]*$|(from[ \t]+\w+[ \t]+)?import[ \t]+\w+[ \t]*$", "Python"),
    (r"(func|type)[ \t]+[\w(]", "Go"),
    (r"(?i:select[ \t]+.+[ \t]from[ \t]|create[ \t]+(policy|table)\b)", "SQL"),
    (r"(acl|use_backend|frontend|backend|server|location)[ \t]+\S", "the configuration of a proxy"),
)
_SHAPE: Final = "a policy is lines such as  filter: pod.name contains nginx -> node.label KEY=VALUE"
_TYPES: Final = MappingProxyType(
    {
        **dict.fromkeys(("str", "text", "char", "varchar"), "string"),
        **dict.fromkeys(("int", "integer", "float", "double", "num", "numeric", "long", "percent",
                         "percentage", "uint"), "number"),
        **dict.fromkeys(("boolean", "flag"), "bool"),
        **dict.fromkeys(("list", "array", "strings", "set", "[]string"), "list of string"),
        **dict.fromkeys(("timespan", "interval", "period"), "duration"),
        **dict.fromkeys(("timestamp", "date", "datetime"), "time"),
        **dict.fromkeys(("bytes", "memory", "cpu", "resource"), "quantity"),
    }
)  # fmt: skip
_MODES: Final = MappingProxyType(
    {
        **dict.fromkeys(("dry-run", "dryrun", "dry", "audit", "warn", "test", "observe"), "shadow"),
        **dict.fromkeys(("on", "enabled", "active", "deny", "strict", "true"), "enforce"),
        **dict.fromkeys(("disabled", "none", "ignore", "false", "no"), "off"),
        "canary": "canary 10%",
    }
)  # fmt: skip
_LIVE: Final = "a mode is enforce or off (shadow and canary 10% are read, but not run yet)"
_TYPE_NAMES: Final = ("string", "number", "quantity", "duration", "bool", "time")
_REST: Final = re.compile(r"[^\n]*")


def foreign(text: str) -> str | None:
    """Returns which language the text of a statement is in, None where it may be ours."""
    line = text.split("\n", 1)[0].split("#", 1)[0].rstrip()
    return next((name for sign, name in _FOREIGN if re.match(sign, line)), None)


def wrong_language(text: str, name: str) -> Refusal:
    """Refuses a text that is no policy, once for all of it."""
    first = re.match(r"\S+", text)
    end = len(first.group()) if first is not None else 1
    return Refusal("P004", f"this looks like {name}, and is no policy", 0, end, helps=(_SHAPE,))


def is_ours(text: str) -> bool:
    """Whether a text starts with the word of a statement, or with one close to it."""
    found = re.match(r"[A-Za-z_-]+", text)
    if found is None:
        return False
    word = found.group()
    if word in (*STATEMENTS, *DECLARATIONS, "applies"):
        return True
    known = _known_word(word)
    return known is not None and re.match(r"[ \t]*:", text[found.end() :]) is not None


def is_closing(text: str, *, lost: bool) -> bool:
    """Whether a line belongs to the one before: it closes its bracket, or is an item of its list.

    Args:
        text: the line.
        lost: whether the line before was no statement.
    """
    item = re.match(r"-[ \t]+", text)
    if lost and item is not None and not is_ours(text[item.end() :]):
        return True
    return re.fullmatch(r"[\s})\];,]+(?:#[^\n]*\s*)*", text) is not None


def continued(source: SourceFile, first: Span, line: Span) -> Diagnostic:
    """Refuses a line in column 1 that continues the statement above it."""
    number = source.position(first.start)[0]
    word = re.match(r"[A-Za-z]*", source.slice(first))
    name = word.group() if word is not None else "statement"
    start = re.match(r"[\w.]+|->|\S", source.slice(line))
    end = line.start + (len(start.group()) if start is not None else 1)
    return Diagnostic(
        "P012",
        f"this line continues the `{name}` of line {number}, so it is indented",
        source,
        Span(line.start, end),
        label="a new statement starts in column 1",
        helps=("put spaces in front of it",),
        fix=Fix(Span(line.start, line.start), "  "),
    )


def statement_word(place: Place) -> Refusal | None:
    """What stands in column 1."""
    if place.alone:
        return None
    found = re.match(r"[A-Za-z_][A-Za-z_-]*", place.text)
    if found is None:
        return None if place.start > 0 else _no_word(place)
    word = found.group().rstrip("-")
    rest = place.text[len(word) :].lstrip(" \t")
    if word == "applies" and re.match(r"to\b", rest):
        return _applies(place)
    if place.start > len(place.text) - len(rest):
        return None
    if word in STATEMENTS:
        return None if rest.startswith(":") else _no_colon(place, word)
    if word in DECLARATIONS:
        return None
    told = _declaring(word, rest)
    if told is not None:
        return told
    known = _known_word(word)
    if known is not None:
        message = f"there is no statement `{word}`"
        help_ = f"did you mean `{known}`?"
        return place.at(0, len(word), "P004", message, help_, fix=known)
    return place.at(0, len(word), "P004", f"there is no statement `{word}`", *_advice(word, rest))


def declaring_word(word: str) -> str:
    """Returns the declaration that a word of another language or a misspelt one means."""
    plain = word.lower()
    near = closest(plain, DECLARATIONS) if plain not in _ELSEWHERE else None
    named = _ELSEWHERE.get(plain, "").split(" ")[0]
    if plain in ("def", "final", "static", "dim", "lte", "variable", "constant"):
        return "let"
    if plain.startswith("param"):
        return "param"
    return near or (named if named in DECLARATIONS[:-1] else "")


def _declaring(word: str, rest: str) -> Refusal | None:
    """`metrics heat = ...`, `Let share = ...`, `def free = ...`: the line declares a name."""
    given = re.match(r"\$?([A-Za-z_]\w*)[ \t]*(?::[ \t]*[a-z][a-z ]*)?:?=(?!=)[ \t]*", rest)
    if given is None:
        return None
    meant = declaring_word(word)
    from_query = re.match(r"(?:promql|annotation|usage|object)\b", rest[given.end() :])
    meant = "metric" if from_query is not None else meant
    if not meant:
        return None
    line = rest.split("\n", 1)[0].split(" #")[0].rstrip()
    near = closest(word.lower(), (meant,)) is not None
    help_ = f"did you mean `{meant}`?" if near else f"write  {meant} {line}"
    return Refusal(
        "P004", f"there is no statement `{word}`", 0, len(word), helps=(help_,), fix=meant
    )


def _known_word(word: str) -> str | None:
    """Returns the statement that a word is but for its spelling."""
    plain = re.sub(r"[-_]", "", word).lower()
    if plain in ("applies", "appliesto", "applyto", "appliesfor"):
        return "applies to"
    if plain in _ELSEWHERE or plain in _EXPRESSIONS or plain in _NO_STATEMENT:
        return None
    same = next((one for one in (*STATEMENTS, *DECLARATIONS) if one.lower() == plain), None)
    if same is not None:
        return _SHORT.get(same, same)
    return closest(plain, _NEAR_WORDS)


_EXPRESSIONS: Final = frozenset(
    {"pod", "pods", "node", "nodes", "namespace", "it", "cluster", "time", "zone", "not", "count",
     "any", "all", "max", "min", "sum", "avg"}
)  # fmt: skip
_NO_STATEMENT: Final = frozenset({"kind", "spec", "status", "message", "key", "value", "operator"})


_SHORT: Final = MappingProxyType(
    {"preEnqueue": "gate", "queueSort": "sort", "preFilter": "prefilter", "postFilter": "preempt",
     "preScore": "prescore", "preBind": "prebind", "postBind": "postbind"}
)  # fmt: skip
_NEAR_WORDS: Final = [one for one in (*STATEMENTS, *DECLARATIONS) if one not in _SHORT]


def _advice(word: str, rest: str) -> list[str]:
    plain = re.sub(r"[-_]", "", word).lower()
    line = rest.splitlines()[0].strip() if rest else ""
    behind = re.match(r"(\"[^\"]*\"|'[^']*'|\w+)[ \t]*(?::|->)[ \t]*(\S.*)", line)
    if plain in ("message", "status") and behind is not None:
        return [f"it stands behind the rule:  filter: {behind[2]} {word} {behind[1]}"]
    if plain in ("message", "status"):
        return ["it belongs to the rule above: indent it, and write it without a colon"]
    given = re.match(r":?=(?!=)[ \t]*(.*)", line)
    if given is not None and plain not in _ELSEWHERE:
        return [f"to give a value a name write  let {word} = {given[1]}".rstrip()]
    named = re.match(r"[A-Za-z][\w.-]*[ \t]*:[ \t]+(\S.*)", line)
    if plain in ("rule", "rules") and named is not None:
        return [f"a rule has no name: write  filter: {named[1]}"]
    if plain in _ELSEWHERE:
        return [f"write  {_ELSEWHERE[plain]}"]
    if plain in _EXPRESSIONS or re.match(r"[ \t]*(->|is\b|==|contains\b|[-+*/<>]\s)", line):
        whole = f"{word}{rest.splitlines()[0] if rest[:1] in '.(' else f' {line}'}".rstrip()
        tests = re.search(r"->|\bis\b|[<>=]|\b(contains|and|or|not|in)\b", whole)
        keyword = "score" if tests is None and re.search(r"[-+*/]", whole) else "filter"
        return [f"a rule starts with its word:  {keyword}: {whole}"]
    return ["a statement starts with its word in column 1:  filter: CONDITION"]


def _no_word(place: Place) -> Refusal:
    line = place.text.split("\n", 1)[0]
    if line.startswith(("//", "/*", "--", ";")):
        sign = line[:2] if line[0] in "/-" else line[0]
        body = line[len(sign) :].replace("*/", "").strip()
        return Refusal(
            "P014", f"a comment starts with `#`, not with `{sign}`", 0, len(sign),
            helps=(f"write  # {body}".rstrip(),), fix=f"# {body}".rstrip(), fix_at=(0, len(line)),
        )  # fmt: skip
    item = re.match(r"-[ \t]+(?=\w)", line)
    if item is not None:
        message = "a policy has no list items: each statement stands in column 1"
        return Refusal(
            "P004", message, 0, 1, helps=(f"write  {line[item.end() :].strip()}",), fix="",
            fix_at=(0, item.end()),
        )  # fmt: skip
    sign = line[:1]
    if sign.isdigit() or sign == "(":
        help_ = f"a rule starts with its word:  score: {line.strip()}"
    else:
        help_ = "a statement starts with its word in column 1:  filter: CONDITION"
    return place.at(0, 1, "P004", f"a statement does not start with `{sign}`", help_)


def _no_colon(place: Place, word: str) -> Refusal:
    """`filter node.ready`, `filter = ...`, `filter(...)`, `filter { ... }`."""
    line = _REST.match(place.text, len(word))
    rest = line.group() if line is not None else ""
    lead = re.match(r"[ \t]*(?:(?:==?|:=|\+=|->|=>|if\b|by\b)[ \t]*)?", rest)
    kept = rest[lead.end() if lead is not None else 0 :].rstrip()
    if kept.startswith("{"):
        kept = kept.strip("{} \t")
    shown = kept.split("#")[0].rstrip() or "..."
    near = f"write  {'sort' if rest.lstrip().startswith('by') else word}: {shown}"
    fix = None
    if not rest.lstrip().startswith(("{", "by")) and kept:
        fix = f"{word}: "
    return Refusal(
        "P005", f"`{word}` needs a colon", 0, len(word), helps=(near,), fix=fix,
        fix_at=(0, len(word) + (lead.end() if lead is not None else 0)),
    )  # fmt: skip


def _applies(place: Place) -> Refusal | None:
    found = re.match(r"applies[ \t]+to\b", place.text)
    if found is None or place.start > found.end() + 1 or "COLON" not in place.accepts:
        return None
    return Refusal(
        "P005", "`applies to` needs a colon", 0, found.end(),
        helps=("write  applies to: CONDITION",), fix="applies to:",
    )  # fmt: skip


def block(place: Place) -> Refusal | None:
    """`filter: |`, a list of `- ` lines, lines of `key: value`: blocks of YAML."""
    head = re.match(r"\w+[ \t]*:[ \t]*([|>][+-]?)?[ \t]*\n", place.bare)
    if head is None or place.alone:
        return None
    if head[1] is not None:
        return Refusal(
            "P014", f"`{head[1]}` has no meaning here: an indented line continues the statement",
            *head.span(1), helps=("leave it out",), fix="",
        )  # fmt: skip
    item = re.compile(r"[ \t]+(-)[ \t]+").match(place.bare, head.end())
    if item is not None:
        lines = [one.strip().lstrip("- ") for one in place.text[head.end() :].splitlines()]
        better = " and ".join(one for one in lines if one and not one.startswith("#"))
        end = len(place.text.rstrip())
        fix = better if place.mends(item.start(1), end, better) else None
        return Refusal(
            "P014", "a statement has no list items: conditions are joined by `and`",
            *item.span(1), helps=(f"write  {place.keyword}: {better}",), fix=fix,
            fix_at=(item.start(1), end),
        )  # fmt: skip
    key = re.compile(r"[ \t]+([A-Za-z_][\w.-]*)[ \t]*:[ \t]").match(place.bare, head.end())
    if key is None or key[1] in STATEMENTS:
        return None
    return place.at(
        *key.span(1), "P014", "a statement has no keys: it is one line, continued by indenting",
        f"write  {place.keyword}: EXPRESSION" + (" weight 2" if place.keyword == "score" else ""),
    )  # fmt: skip


def indented(place: Place) -> Refusal | None:
    """An indented line that looks like a statement of its own."""
    start = place.text.rfind("\n", 0, place.start) + 1
    if start == 0 or place.alone:
        return None
    line = place.text[start:]
    found = re.match(r"[ \t]+(([A-Za-z]+)[ \t]*:|(let|param|metric|use)[ \t]+\w+[ \t]*[=(:])", line)
    if found is None:
        return None
    word = found.group(2) or found.group(3)
    first = start + len(line) - len(line.lstrip(" \t"))
    if word not in (*STATEMENTS, *DECLARATIONS) or place.start > start + found.end():
        return None
    return Refusal(
        "P012", "this line is indented, so it continues the", first, first + len(word),
        label="a new statement starts in column 1", helps=("remove the leading spaces",),
        fix="", fix_at=(start, first), continues=place.keyword,
    )  # fmt: skip


def clause_colon(place: Place) -> Refusal | None:
    """`message: "..."`, `weight: 5`: a clause with a colon."""
    found = re.search(r"(?<![\w.$])([A-Za-z]+)\Z", place.before)
    if place.met != ":" or found is None or found[1] not in _CLAUSES or found.start() == 0:
        return None
    value = _REST.match(place.text, place.start + 1)
    shown = value.group().strip() if value is not None else "..."
    return Refusal(
        "P005", f"`{found[1]}` takes no colon here", place.start, place.start + 1,
        helps=(f"write  {found[1]} {shown}",), fix="",
    )  # fmt: skip


def same_line(place: Place) -> Refusal | None:
    """A second statement behind the first: `filter: node.ready score: load`."""
    found = re.match(r"([A-Za-z]+)[ \t]*:(?!=)", place.behind)
    if found is None or place.alone or place.start == 0 or place.text[place.start - 1] == "\n":
        return None
    word = found[1]
    if word not in STATEMENTS or place.before.endswith(":"):
        return None
    gap = len(place.before)
    return Refusal(
        "P012", f"`{word}` starts a statement, and that needs a line of its own",
        place.start, place.start + len(word), helps=(f"put  {word}: ...  on a line of its own",),
        fix="\n", fix_at=(gap, place.start),
    )  # fmt: skip


# ---- declarations and header


def declaration(place: Place) -> Refusal | None:
    """A declaration without its `=`, with a colon behind its word, or a name that is none."""
    found = re.match(
        r"(let|param|metric|use)\b[ \t]*(:?)[ \t]*(\$?)([A-Za-z_][\w.-]*)?", place.text
    )
    if found is None or place.start > found.end() + 1:
        return None
    word, colon, dollar, name = found.groups()
    if colon and place.start <= found.end(2):
        value = "=" in place.text[found.end() :].split("\n", 1)[0] or word == "use"
        return Refusal(
            "P005", f"`{word}` takes no colon", found.start(2), found.end(2),
            helps=(_without_colon(word, name),), fix="" if value else None,
        )  # fmt: skip
    if word == "use":
        return None
    if name is None:
        return place.refuse("P009", f"`{word}` needs a name", f"write  {word} NAME = ...")
    start, end = found.start(4), found.end(4)
    if dollar:
        message = f"`{word}` names it without the dollar"
        return Refusal(
            "P014", message, found.start(3), end, helps=(f"write  {word} {name}",), fix=name
        )
    better = re.sub(r"\W", "_", name).strip("_")
    if better != name:
        message = f"`{name}` is no name: a name has letters, digits and `_`"
        return place.at(start, end, "P009", message, f"write  {better}", fix=better)
    return _equals_sign(place, word, name, end)


def _without_colon(word: str, name: str | None) -> str:
    if word == "metric":
        return f'write  metric {name or "NAME"} = promql "QUERY"   (bundled metrics need no line)'
    return f"write  {word} {name or 'NAME'}" + (" = ..." if word != "use" else "")


def _equals_sign(place: Place, word: str, name: str, end: int) -> Refusal | None:
    if place.met == "=" or "EQUAL" not in place.accepts:
        return None
    rest = place.text[end:].split("\n", 1)[0].strip()
    if word == "param":
        return _param_type(place, name, rest)
    value = rest.lstrip(":= \t") or "..."
    message = f"`{word} {name}` needs a `=`"
    lead = re.compile(r"[ \t]*(?::[ \t]*=?)?[ \t]*").match(place.text, end)
    stop = lead.end() if lead is not None else end
    help_ = f"write  {word} {name} = {value}"
    return Refusal(
        "P005", message, place.start, place.end, helps=(help_,), fix=" = ", fix_at=(end, stop)
    )


def _param_type(place: Place, name: str, rest: str) -> Refusal | None:
    typed = re.match(r"([a-z]+)\b", rest)
    if typed is None or place.met.startswith('"'):
        return None
    kind = _TYPES.get(typed[1], typed[1])
    return Refusal(
        "P005", "a colon stands before the type of a parameter", place.start, place.end,
        helps=(f"write  param {name}: {kind}",), fix=f": {kind}",
        fix_at=(len(place.before), place.end),
    )  # fmt: skip


def param(place: Place) -> Refusal | None:
    """The type of a parameter, and what its values may be."""
    if place.keyword != "param":
        return None
    of_type = re.match(
        r"(param[ \t]+(\w+)[ \t]*:[ \t]*)(\[\]string|list of \w+|[\w-]+)", place.text
    )
    if of_type is not None and place.start < of_type.end(3) + 2 and place.met != '"':
        word = of_type[3]
        kind = "list of string" if word == "list of strings" else _TYPES.get(word)
        span = of_type.span(3)
        if kind is not None:
            return place.instead(span, "P001", f"there is no type `{word}`", kind)
        if "TYPE" in place.accepts:
            near = closest(word, _TYPE_NAMES)
            helps = [f"did you mean `{near}`?"] if near else [
                f"a type is {', '.join(_TYPE_NAMES)} or list of one of them"
            ]  # fmt: skip
            if near is None and "=" not in place.text[of_type.end() :].split("\n")[0]:
                helps.append(f"with a value and no type write  param {of_type[2]} = {word}")
            return place.at(*span, "P001", f"there is no type `{word}`", *helps, fix=near)
    range_ = re.match(
        r"(in|between|range)[ \t]+\(?(\S+?)[ \t]*(?:\.\.|and|to|,)[ \t]*([\w.%]+)\)?", place.behind
    )
    if range_ is not None:
        span = (place.start, place.start + range_.end())
        better = f"from {range_[2]} to {range_[3]}"
        return place.instead(span, "P001", f"`{range_[1]}` does not fit here", better)
    choice = re.search(r"one[ \t]+of\Z", place.before)
    if choice is not None and "LSQB" in place.accepts:
        end = place.line(place.start)[1]
        words = place.text[place.start : end].strip("() \t")
        return place.instead(
            (place.start, end), "P001", "the words of a choice stand in brackets", f"[{words}]"
        )
    return None


def header(place: Place) -> Refusal | None:
    """Values of header lines: quotes where none belong, none where they do, other words."""
    found = re.match(r"(\w+)[ \t]*:[ \t]*", place.text)
    named = re.match(r"(policy|version)[ \t]*:[ \t]*(\S[^\n#]*)", place.text)
    if named is not None and named.start(2) < place.start <= named.end(2):
        better = re.sub(r"[^A-Za-z0-9._/-]+", "-", named[2].strip()).strip("-._/")
        span = (named.start(2), named.start(2) + len(named[2].rstrip()))
        return place.instead(span, "P001", f"`{named[1]}` takes one word", better)
    if found is None or place.start != found.end():
        return None
    word = found[1]
    span = place.line(place.start)
    value = place.text[place.start : span[1]].strip()
    span = (place.start, place.start + len(value))
    if word == "description" and value:
        text = value.replace('"', "'")
        return place.instead(span, "P001", "a description is a quoted text", f'"{text}"')
    if word == "mode":
        plain = value.strip("\"'").lower()
        share = re.fullmatch(r"canary[ \t]+(\d+(\.\d+)?)", plain)
        better = f"canary {share[1]}%" if share is not None else _MODES.get(plain, plain)
        if better == "shadow" and plain != "shadow":
            return place.at(*span, "P001", f"`{value}` is no mode", _LIVE)
        if re.fullmatch(r"enforce|shadow|off|canary \d+(\.\d+)?%", better):
            return place.instead(span, "P001", f"`{value}` is no mode", better)
        near = closest(plain, ("enforce", "shadow", "off"))
        hints = [f"did you mean `{near}`?"] if near else []
        hints.append(_LIVE)
        return place.at(*span, "P001", f"`{value}` is no mode", *hints, fix=near)
    if word in ("policy", "version") and value[:1] in "\"'":
        better = re.sub(r"[^A-Za-z0-9._/-]+", "-", value.strip("\"'")).strip("-._/") or "NAME"
        return place.instead(span, "P001", f"`{word}` takes a word without quotes", better)
    return None
