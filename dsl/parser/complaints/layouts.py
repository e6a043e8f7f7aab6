"""Lines within a statement: blocks and lists of YAML, two statements in one, wrong indenting.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from types import MappingProxyType
from typing import Final

from dsl.parser.complaints.openings import REST_OF_LINE, statement_word
from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.parser.statements import DECLARATIONS, STATEMENTS, is_statement

#: Clauses, which take no colon.
_CLAUSES: Final = (
    "message", "status", "weight", "missing", "normalize", "every", "stale", "default", "unit",
    "by", "order", "pick", "limit", "min", "max", "wait", "skew", "reject", "annotate", "event",
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


def mapping(place: Place) -> Refusal | None:
    """Keys of Kubernetes below a word: `nodeSelector:`, `key: a`, `policy:` with its `name:`."""
    head = re.match(
        r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*((?:pod|node)\.labels?)?[ \t]*(?:#[^\n]*)?\n(?=[ \t]+\S)",
        place.text,
    )
    if head is None or place.alone or place.start > head.end() + len("operator:") + _INDENT:
        return None
    lines = [one for one in place.text[head.end() :].splitlines() if one.strip()]
    pairs = [_PAIR.fullmatch(one) for one in lines]
    word = head[1].lower()
    better, what = "", f"there is no statement `{head[1]}`"
    if all(pairs):
        given = [(one[1].strip("\"'"), one[2].strip("\"'")) for one in pairs if one is not None]
        keys = {key.lower(): value for key, value in given}
        if word == "nodeselector":
            tests = [f"node.label {key}={value}" for key, value in given]
            better = f"filter: {' and '.join(tests)}"
        elif word == "policy" and set(keys) == {"name"}:
            better, what = f"policy: {keys['name']}", "a policy's name stands behind its colon"
        elif "key" in keys and "operator" in keys and head[1] in STATEMENTS:
            owner = (head[2] or "node").split(".")[0]
            better = _expression(head[1], keys).replace(": node.", f": {owner}.")
            what = "a statement has no keys: it is one line, continued by indenting"
    elif head[1] not in STATEMENTS and all(
        is_statement(one.strip()) or one.startswith(lines[0][: _depth(lines[0])] + " ")
        for one in lines
    ):
        depth = _depth(lines[0])
        better = "\n".join(one[depth:] for one in lines)
        return Refusal(
            "P004", f"there is no statement `{head[1]}`: a policy has no sections", 0, len(head[1]),
            helps=("leave the line out, and start those below in column 1",), fix=better,
            fix_at=(0, len(place.text.rstrip())),
        )  # fmt: skip
    if not better:
        return None
    return Refusal(
        "P004", what, *head.span(1), helps=(f"write  {better}",), fix=better,
        fix_at=(0, len(place.text.rstrip())),
    )  # fmt: skip


_INDENT: Final = 8
_PAIR: Final = re.compile(
    r"[ \t]+([\w./\"'-]+)[ \t]*:[ \t]+(\[[^\[\]]*\]|\"[^\"]*\"|'[^']*'|[\w./-]+)[ \t]*(?:#.*)?"
)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def listed(place: Place) -> Refusal | None:
    """`filter: A ->` with a list of demands below it."""
    arrow = re.search(r"->[ \t]*\n", place.bare)
    if arrow is None or place.alone or place.start < arrow.start():
        return None
    items = [one.strip() for one in place.text[arrow.end() :].splitlines() if one.strip()]
    if not items or not all(re.match(r"-[ \t]+\S", one) for one in items):
        return None
    better = " and ".join(one[1:].strip() for one in items)
    start = arrow.end() + _depth(place.text[arrow.end() :])
    end = len(place.text.rstrip())
    if not place.mends(start, end, better):
        return None
    return Refusal(
        "P014", "a statement has no list items: conditions are joined by `and`", start, start + 1,
        helps=(f"write  {better}",), fix=better, fix_at=(start, end),
    )  # fmt: skip


def constraint(place: Place) -> Refusal | None:
    """`spread: maxSkew: 1, topologyKey: zone`: a constraint of Kubernetes in one line."""
    head = re.match(r"spread:[ \t]*", place.text)
    end = place.line(0)[1]
    if head is None or "topologyKey" not in place.text[:end]:
        return None
    given = {
        key.lower(): value.strip("\"'")
        for key, value in re.findall(
            r"(\w+)[ \t]*[:=][ \t]*([^\s,{}]+)", place.text[head.end() : end]
        )
    }
    better = _spread(given)
    if not better or not place.mends(0, end, better):
        return None
    return Refusal(
        "P014", "a constraint of Kubernetes is written in words of `spread`", head.end(), end,
        helps=(f"write  {better}",), fix=better, fix_at=(0, end),
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
    value = REST_OF_LINE.match(place.text, place.start + 1)
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


_ITEM: Final = re.compile(r"([A-Za-z]\w*)[ \t]*:[ \t]*(\[[^\[\]\n]*\]|[^\s#][^\n#]*)")
_OPERATORS: Final = MappingProxyType(
    {"in": "in {}", "notin": "not in {}", "exists": "", "doesnotexist": "[] is missing"}
)


def items(place: Place) -> Refusal | None:
    """List items of Kubernetes below a key: `topologySpreadConstraints:`, `- key: a`."""
    head = re.match(r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*(?:#[^\n]*)?\n[ \t]*-[ \t]", place.bare)
    if head is None or place.alone:
        return None
    lines = place.text[head.end() - 2 :]
    given = {
        key.lower(): re.sub(r"\A([\"'])(.*)\1\Z", r"\2", value.strip())
        for key, value in _ITEM.findall(lines)
    }
    several = re.search(
        r"values[ \t]*:[ \t]*\n((?:[ \t]*-[ \t]+[\w./\"'-]+[ \t]*(?:\n|\Z))+)", lines
    )
    if several is not None:
        values = [one.strip("- \t") for one in several[1].splitlines()]
        given["values"] = f"[{', '.join(values)}]"
    better = _spread(given) or _expression(head[1], given)
    if better and "preferred" in head[1].lower() and re.fullmatch(r"\d+", given.get("weight", "")):
        better = f"{better.replace('filter:', 'prefer:', 1)} weight {given.pop('weight')}"
    single = len(re.findall(r"(?<!\w)(?:key|topologyKey)[ \t]*:", lines)) == 1
    if better and single:
        what = "lists of Kubernetes objects are written as statements"
        if head[1] not in STATEMENTS:
            what = f"there is no statement `{head[1]}`"
        # What the statement does not say would be lost: the pods that are counted, weights.
        exact = set(given) <= _SAID
        return Refusal(
            "P004", what, *head.span(1), helps=(f"write  {better}",),
            fix=better if exact else None, fix_at=(0, len(place.text.rstrip())),
        )  # fmt: skip
    if head[1] in STATEMENTS or place.start > head.end():
        return None
    rule = re.match(r"-[ \t]+([a-z]+)[ \t]*:[ \t]*(\S.*)", lines)
    shown = f"{rule[1]}: {rule[2]}" if rule is not None and rule[1] in STATEMENTS else ""
    tested = next((given[one] for one in ("expression", "expr", "cel") if one in given), "")
    shown = f"filter: {tested}" if tested else shown
    if shown:
        what = f"there is no statement `{head[1]}`: each rule stands in column 1"
        return place.at(*head.span(1), "P004", what, f"write  {shown}")
    return statement_word(place)


#: What a statement made of list items says of them.
_SAID: Final = frozenset(
    {"topologykey", "maxskew", "whenunsatisfiable", "key", "operator", "values"}
)


def _spread(given: dict[str, str]) -> str:
    """Returns the `spread:` of a constraint, "" where it is none."""
    key = given.get("topologykey", "")
    if not key:
        return ""
    known = {"topology.kubernetes.io/zone": "zone", "topology.kubernetes.io/region": "region",
             "kubernetes.io/hostname": "node", "zone": "zone", "node": "node"}  # fmt: skip
    skew = f" skew {given['maxskew']}" if re.fullmatch(r"\d+", given.get("maxskew", "")) else ""
    hard = " hard" if given.get("whenunsatisfiable") == "DoNotSchedule" else ""
    return f"spread: over {known.get(key) or chr(34) + key + chr(34)}{skew}{hard}"


def _expression(word: str, given: dict[str, str]) -> str:
    """Returns the rule of `key`, `operator` and `values`, "" where they are not given."""
    key, operator = given.get("key", ""), given.get("operator", "").lower()
    if not key or operator not in _OPERATORS or word.lower() in ("tolerations", "taints"):
        return ""
    owner = "pod" if "pod" in word.lower() else "node"
    rule = word if word in STATEMENTS else "filter"
    if operator == "doesnotexist":
        return f"{rule}: {owner}.label[{key}] is missing"
    values = given.get("values", "")
    if operator != "exists" and not values.startswith("["):
        return ""
    return f"{rule}: {owner}.label {key} {_OPERATORS[operator].format(values)}".rstrip()
