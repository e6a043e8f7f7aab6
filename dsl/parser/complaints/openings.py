"""How a statement begins: its word and the colon behind it.

Knows the words that other languages and tools start a line with. Each attempt looks for one habit;
a replacement that is proposed has been tried where that is possible.
"""

import re
import textwrap
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from dsl.spelling import closest, edit_distance

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
REST_OF_LINE: Final = re.compile(r"[^\n]*")


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
    return _whole_line(place, word, rest) or _unknown(place, word, rest)


def _unknown(place: Place, word: str, rest: str) -> Refusal:
    """A word that no statement has: another spelling of one, or one of another language."""
    known = known_word(word)
    to = re.match(r"[A-Za-z_-]+[ \t]+[Tt][Oo]\b", place.text)
    if known == "applies to" and to is not None:
        word = to.group()
    message = f"there is no statement `{word}`"
    if known is not None:
        help_ = f"did you mean `{known}`?"
        return place.at(0, len(word), "P004", message, help_, fix=known)
    return place.at(0, len(word), "P004", message, *_advice(word, rest))


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


def known_word(word: str) -> str | None:
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
    if plain in ("rule", "rules") and line in ("", ":"):
        return ["a policy has no sections: leave the line out"]
    if plain in _ELSEWHERE:
        return [f"write  {_filled(_ELSEWHERE[plain], rest)}"]
    if plain in _SETTINGS:
        return ["nothing stands for it here: leave it out"]
    if plain in _EXPRESSIONS or re.match(r"[ \t]*(->|is\b|==|contains\b|[-+*/<>]\s)", line):
        whole = f"{word}{rest.splitlines()[0] if rest[:1] in '.(' else f' {line}'}".rstrip()
        tests = re.search(r"->|\bis\b|[<>=]|\b(contains|and|or|not|in)\b", whole)
        keyword = "score" if tests is None and re.search(r"[-+*/]", whole) else "filter"
        return [f"a rule starts with its word:  {keyword}: {whole}"]
    return ["a statement starts with its word in column 1:  filter: CONDITION"]


#: Settings of other tools that a policy does not have.
_SETTINGS: Final = frozenset(
    {"failurepolicy", "validationactions", "matchconditions", "matchconstraints", "variables",
     "auditannotations", "apiversion", "timeoutseconds", "sideeffects", "background"}
)  # fmt: skip


def _filled(form: str, rest: str) -> str:
    """Returns a line with the key and the value that stand in the text."""
    pair = re.search(
        r"(?<![\w.])([A-Za-z0-9][\w./-]*)[ \t]*[=:][ \t]*[\"']?([A-Za-z0-9][\w.-]*)", rest
    )
    if pair is None or form.count("KEY=VALUE") != 1 or form.count("KEY") != 1:
        return form
    if pair[1] in ("key", "operator", "value") or pair[1][0].isupper() or "\n" in rest.strip():
        return form
    return form.replace("KEY=VALUE", f"{pair[1]}={pair[2]}")


def _whole_line(place: Place, word: str, rest: str) -> Refusal | None:
    """Lines of which all is known: `share = 5`, `name: x`, `include x`, `if A: B`."""
    message = f"there is no statement `{word}`"
    plain = re.sub(r"[-_]", "", word).lower()
    line = rest.split("\n", 1)[0].split(" #")[0].rstrip()
    end = place.line(0)[1]
    given = re.match(r":?=(?!=)[ \t]*(\S.*)", line)
    near = closest(word.lower(), (*STATEMENTS, *DECLARATIONS))
    typo = near is not None and edit_distance(word.lower(), near) <= 1
    if given is not None and plain not in _ELSEWHERE and not typo:
        better = f"let {word} = {given[1]}"
        return Refusal(
            "P004", "a value gets its name by `let`", 0, len(word), helps=(f"write  {better}",),
            fix=better, fix_at=(0, end),
        )  # fmt: skip
    if plain in ("function", "func", "fn", "def", "macro") and "=" in line:
        help_ = "a name stands for one value:  let NAME = EXPRESSION"
        return place.at(0, len(word), "P004", "there are no functions of your own here", help_)
    if plain in _COMMANDS:
        help_ = "leave the line out"
        return place.at(0, len(word), "P004", "this is a command, and no statement", help_)
    better = ""
    value = re.fullmatch(r":?[ \t]*([\"']?)([A-Za-z0-9][\w./-]*)\1", line)
    names = re.fullmatch(r":?[ \t]*(\[[\w\s,.\"'-]+\]|[\w.-]+)", line)
    rule = re.fullmatch(
        r"[ \t]*(\S.*?)[ \t]*(?::|->|\bthen\b|\{)[ \t]*([^{}]*\w[^{}]*?)[ \t]*\}?", line
    )
    if value is not None and _ELSEWHERE.get(plain, "") in ("policy: NAME", "use NAME"):
        better = _ELSEWHERE[plain].replace("NAME", value[2].removesuffix(".policy"))
    elif names is not None and plain in ("namespaces", "namespace", "appliestonamespaces"):
        listed = names[1].startswith("[")
        better = f"applies to: pod.namespace {'in' if listed else 'is'} {names[1]}"
    elif rule is not None and plain in ("if", "when", "where") and not line.startswith(":"):
        better = f"filter: {rule[1]} -> {rule[2]}"
    if not better or end < len(place.text.rstrip()):
        return None
    return Refusal(
        "P004", message, 0, len(word), helps=(f"write  {better}",), fix=better, fix_at=(0, end)
    )


_COMMANDS: Final = frozenset(
    {"kubectl", "helm", "berth", "curl", "export", "echo", "sudo", "git", "cat", "python"}
)


def _no_word(place: Place) -> Refusal:
    line = place.text.split("\n", 1)[0]
    html = re.fullmatch(r"<!--[ \t]*(.*?)[ \t]*-->[ \t]*", line)
    if html is not None:
        better = f"# {html[1]}"
        return Refusal(
            "P014", "a comment starts with `#`, not with `<!--`", 0, 4, helps=(f"write  {better}",),
            fix=better, fix_at=(0, len(line.rstrip())),
        )  # fmt: skip
    patch = re.match(r"[+-][ \t]*(?=([A-Za-z]+)\b)", line)
    if patch is not None and patch[1] in (*STATEMENTS, *DECLARATIONS) and line[0] == "+":
        return Refusal(
            "P004", "a statement does not start with `+`", 0, 1, helps=("leave it out",), fix="",
            fix_at=(0, patch.end()),
        )  # fmt: skip
    if re.fullmatch(r"[\s})\];,]+", line) is not None:
        message = f"`{line.strip()}` closes nothing"
        return place.at(0, len(line.rstrip()), "P004", message, "leave it out", fix="")
    if re.match(r"[$%>][ \t]+\w", line) is not None:
        return place.at(0, 1, "P004", "this is a command, and no statement", "leave the line out")
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
    line = REST_OF_LINE.match(place.text, len(word))
    rest = line.group() if line is not None else ""
    opened = re.match(r"[ \t]*(?:\"[^\"\n]*\"[ \t]*)?\{[ \t]*\n", place.text[len(word) :])
    if opened is not None:
        return _opened(place, word, len(word) + opened.end())
    lead = re.match(r"[ \t]*(?:(?:==?|:=|;|\+=|->|=>|if\b|by\b)[ \t]*)?", rest)
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


def _opened(place: Place, word: str, start: int) -> Refusal:
    """`filter {`, and what it holds on the lines below."""
    lines = [one.strip() for one in place.text[start:].splitlines()]
    inside = [one for one in lines if one and not one.startswith(("#", "}"))]
    message = f"`{word}` needs a colon, and no braces"
    line = re.sub(
        r"\A(?:condition|expression|expr|rule|when)[ \t]*[=:][ \t]*", "", " ".join(inside)
    )
    if len(inside) != 1 or re.match(r"\w+[ \t]*(?:=(?!=)|:)", line):
        help_ = f"write the whole rule on one line:  {word}: ..."
        return place.at(0, len(word), "P005", message, help_)
    better = f"{word}: {line}"
    return Refusal(
        "P005", message, 0, len(word), helps=(f"write  {better}",), fix=better,
        fix_at=(0, len(place.text.rstrip())),
    )  # fmt: skip


def _applies(place: Place) -> Refusal | None:
    found = re.match(r"applies[ \t]+to\b", place.text)
    if found is None or place.start > found.end() + 1 or "COLON" not in place.accepts:
        return None
    return Refusal(
        "P005", "`applies to` needs a colon", 0, found.end(),
        helps=("write  applies to: CONDITION",), fix="applies to:",
    )  # fmt: skip


#: Lines of the header: they do have a name.
_HEADER: Final = ("policy", "description", "version", "language", "mode", "order", "weight")


def doubled(place: Place) -> Refusal | None:
    """`filter filter: x`, `let let x = 5`, `score: score: load`."""
    if place.alone:
        return None
    found = re.match(
        r"([A-Za-z]+)[ \t]*:?[ \t]+(\1)(?=[ \t]*:(?!=)|[ \t]+[A-Za-z_]\w*)", place.text
    )
    if found is None or found[1] not in (*STATEMENTS, *DECLARATIONS):
        return _two_words(place)
    again = place.text[found.end() :].lstrip().startswith(":")
    colon = ":" in found.group()
    if place.start > found.end() + 1 + len(place.text[found.end() :].split("\n", 1)[0]):
        return None
    if found[1] in DECLARATIONS and re.match(r"[ \t]+\w+", place.text[found.end() :]) is None:
        return None
    if found[1] in STATEMENTS and (found[1] in _HEADER or not (again or not colon)):
        return None
    return Refusal(
        "P001", f"`{found[1]}` stands twice", *found.span(2), helps=("leave one out",), fix="",
        fix_at=(0, found.start(2)),
    )  # fmt: skip


def _two_words(place: Place) -> Refusal | None:
    """`filter: score: load`: which of the two is meant, nobody knows."""
    found = re.match(r"([A-Za-z]+):[ \t]*([A-Za-z]+):(?!=)[ \t]*([^\n]*)", place.text)
    if found is None or place.start > found.start(3):
        return None
    first, second, rest = found[1], found[2], found[3].rstrip()
    if not {first, second} <= {*STATEMENTS} - {*_HEADER, "normalize"}:
        return None
    return place.at(
        *found.span(2), "P001", f"`{second}` starts a statement of its own",
        f"write  {second}: {rest}   or   {first}: {rest}",
    )  # fmt: skip


def named(place: Place) -> Refusal | None:
    """`filter nginx: A -> B`, `score spread: load`, `policy nginx {`."""
    found = re.match(
        r"([A-Za-z]+)[ \t]+([A-Za-z][\w.-]*|\"[^\"\n]*\"|'[^'\n]*')[ \t]*(:(?!=)|\{)[ \t]*([^\n]*)",
        place.text,
    )
    if found is None or place.alone or found[1] not in STATEMENTS or place.start > found.end():
        return None
    word, name, sign, rest = found.groups()
    if word in ("policy", "version"):
        if rest.split("#")[0].strip() not in ("", "{"):
            return None
        plain = re.sub(r"[^A-Za-z0-9._/-]+", "-", name).strip("-._/")
        better = f"{word}: {plain}"
        end = found.end() if rest else found.end(3)
        inside = textwrap.dedent(place.text[found.end() :].strip("\n")).rstrip()
        if sign == "{" and inside.endswith("\n}"):
            # All of the block are statements of the policy.
            lines = textwrap.dedent(inside.removesuffix("}").rstrip())
            better, end = f"{better}\n{lines}", len(place.text.rstrip())
        return Refusal(
            "P005", f"`{word}` needs a colon, and nothing stands behind its name", 0, len(word),
            helps=(f"write  {word}: {plain}",), fix=better, fix_at=(0, end),
        )  # fmt: skip
    if word in _HEADER or sign == "{" or not rest:
        return None
    return Refusal(
        "P005", "a rule has no name", *found.span(2),
        helps=(f"write  {word}: {rest.rstrip()}", "what it is for stands in a comment:  # ..."),
        fix=f"{word}: ", fix_at=(0, found.start(4)),
    )  # fmt: skip
