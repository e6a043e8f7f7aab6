"""What a call of another language is called here.

A table and look-ups for the helps of diagnostics. Decides nothing about what is right; knows no
tree.
"""

import re
from collections.abc import Sequence
from typing import Final

from dsl.foreign.fields import Spelling, plain
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.nearest import called, closest
from dsl.schema import FIELDS, POD_SETS, canonical

_SHORT: Final = 4
#: Calls of other languages. `{0}` is the first argument, or what stands before the dot.
_FORMS: Final = """
len({0})                    size length
{0} is present              has exists isset defined haskey
{0} is missing              isnull absent isempty
{0} starts with {1}         startswith hasprefix
{0} ends with {1}           endswith hassuffix
{0} contains {1}            contains includes
{0} matches {1}             matches match regexp
({?})                       coalesce ifnull orvalue default
number({0})                 int float double tonumber tofloat
time({0})                   timestamp
avg({*})                    mean average
max({*})                    maximum greatest
min({*})                    minimum least
sum({*})                    total
min({0}, {1})               clampmax
max({0}, {1})               clampmin
(log2({0}) / log2(2.718281828))  log ln
(log2({0}) / log2(10))      log10
upper({0})                  toupper
lower({0})                  tolower lowerascii
join({*})                   concat
not ({0})                   not
({0} and {1})               and
{0}[{1}]                    get
now                         now
version({0})                semver
replace({0}, {1}, {2})      replaceall
"""
_CALLS: Final = {
    name: form
    for form, names in (re.split(r" {2,}", line) for line in _FORMS.strip().splitlines())
    for name in names.split(" ")
}
#: Functions of PromQL that nothing here stands for.
QUERIES: Final = re.compile(
    r"i?(rate|delta)|increase|deriv|\w+_over_time|topk|\w+_quantile|label_\w+"
)
#: What stands before the dot of a call and is no value.
_LIBRARIES: Final = frozenset(
    {"lists", "math", "np", "object", "re", "regex", "str", "strings", "time", "units"}
)
#: A field, perhaps with a key.
PATH: Final = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\[[^\[\]]*\])?(?:\.[A-Za-z_]\w*)*"
_TESTS: Final = re.compile(r"\{0\} [a-z ]+ \{1\}")
_QUOTED: Final = re.compile(r"\w?[\"']")
_UNLIKE: Final = re.compile(r"\A\w[\"']|[\\^]")
_METHOD: Final = re.compile(rf"({PATH})\.([A-Za-z_]\w*)\(([^()]*)\)")
#: Functions of CEL and others that go through a list, and what does that here.
_LOOPS: Final = called({"any": "exists any some", "all": "all every", "count": "filter"})


def method_for(owner: str, name: str, args: Sequence[str]) -> Spelling:
    """Returns how a call of a value's function is written here, those in its arguments too."""

    def written(call: re.Match[str]) -> str:
        found = call_for(f"{call[1]}.{call[2]}", call[3].split(","))
        return found.text or call[0] if found is not None else call[0]

    inner = [_METHOD.sub(written, one) for one in args]
    if name in _LOOPS and len(args) > 1 and args[0].isidentifier():
        asked = re.sub(rf"\b{args[0]}\.", "it.", inner[1])
        return Spelling(f"{_LOOPS[name]}({owner} where {asked})")
    return call_for(f"{owner}.{name}", inner) or Spelling("", sure=False)


def call_for(name: str, args: Sequence[str]) -> Spelling | None:
    """Returns how a call of a function, or of a method `VALUE.method`, is written here."""
    owner, _, method = name.rpartition(".")
    parts = [one.strip() for one in args if one.strip()]
    if owner and owner.lower() not in _LIBRARIES:
        parts.insert(0, owner)
    word = plain(method)
    if word in (*AGGREGATES, *FUNCTIONS) and (word != plain(name) or word != method):
        return Spelling(f"{word}({', '.join(parts)})")
    # Of four letters one edit makes another word: `bind` is no `find`.
    close = closest(word, _CALLS) if len(word) > _SHORT else None
    form = _CALLS.get(word) or _CALLS.get(close or "")
    if form is None:
        return None
    if word == "get" and len(parts) > 1:
        path = canonical(parts[0])
        better = f"({path}[{parts[1]}] ?? {parts[2]})" if parts[2:] else f"{path}[{parts[1]}]"
        return Spelling(better, sure=path in FIELDS and FIELDS[path].keyed)
    if form == "len({0})" and parts and parts[0] in POD_SETS:
        return Spelling(f"count({parts[0]})")
    wanted = [int(one) for one in re.findall(r"\{(\d)\}", form)]
    if max(wanted, default=-1) >= len(parts):
        return None
    # A text in front, an anchor or an escape: what is meant is another test, or another text.
    if _TESTS.match(form) and (_QUOTED.match(parts[0]) or _UNLIKE.search(parts[1])):
        return None
    put = {"*": ", ".join(parts), "?": " ?? ".join(parts)}
    put |= {str(n): part for n, part in enumerate(parts)}
    return Spelling(re.sub(r"\{(\d|[*?])\}", lambda found: put[found[1]], form))
