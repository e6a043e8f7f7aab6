"""What is written elsewhere and how it is written here: one row a line, see `matcher` for forms.

A row is a form, what to write instead (`""`: nothing, `?`: to be asked, not sure), what is said of
it (`-`: what is said of its code, `"`: the same as above, `{}` for what is underlined), and in
brackets the statements in which it holds, `head` for the start of a line, `test` for test files,
`any` for both. Two blanks part them; `~` is one that would be lost, `%name` a set or a sentence of
below; what has a `?` behind it may be left out. The order of rows decides between two that help as
much. No row is there for one text alone.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from dsl.foreign.matcher import Matcher, Row
from dsl.syntax import HEADS, KEYED

_SETS: Final = {
    "keyed": "|".join(KEYED),
    "head": "|".join(HEADS),
    "labels": "label|labels|annotation|annotations",
    "clauses": "by|every|stale|default|unit|END",
    "behind": "message|status|weight|missing|normalize|END",
    "domain": "node.zone|pod.zone|node.region|node.rack",
    "op": "==|!=|<|>|<=|>=",
    "query": 'a query of Prometheus stands in a metric:  metric NAME = promql "QUERY" by node',
    "param": "texts are not put in from outside: declare  param NAME: string = VALUE",
    "source": "a metric says where its values come from",
    "hours": "there are no times of the day, but hours",
    "minutes": "of a time of the day the minutes are counted",
    "holds": "an expectation says what holds",
    "asked": "pod.toleration|it.toleration|pod.node_selector|it.node_selector",
    "front": "the condition stands in front, before `->`",
    "keys": "here the key stands in brackets",
}
_WHERE: Final = {
    "sided": "filter require forbid prefer avoid gate prefilter",
    "rules": "score filter require forbid prefer avoid first gate let",
    "binds": "prebind postbind preBind postBind",
}
#: Words that may be left out: `is? at least`.
_LEFT_OUT: Final = re.compile(r"(?<!\S)([\w|:/]+)\?(?: |\Z)")
_TEXT: Final = r"""
P024: attributes and expectations of test files
  @ %keyed K = A : W  {1} K=A  taints are given without their effect  [test]
  @ label|annotation K = A , K2 = A2  {1} K=A {1} K2=A2  each label is said by itself  [test]
  @ %keyed K :? A  {1} K=A  `{}` is no KEY=VALUE  [test]
  @ %keyed T  {1} {T.bare}  a key and its value are not in quotes  [test]
  @ %keyed K  {1} K=VALUE  `{}` has no value  [test]
  expect >> pending|unschedulable|nothing  feasible none  there is no expectation `{}`  [test]
  @ metric W = A  metric W A  an attribute takes no `=`  [test]
  expect W K >> =|==|:|is  ""  an expectation has no `{}`  [test]
  expect W >> =|==|:|is|are|be|to  ""  "  [test]
  expect >> W ( K )  W K  an expectation has no brackets  [test]
  @ W = A  W A  an attribute takes no `=`  [test]
  @ W : A  W A  an attribute takes no colon  [test]
  running|finished : >> << K  on~  first it is said on which node  [test]
  use K >> W =|: A  (W = A)  values of parameters stand in parentheses  [test use]
P005: colons
  let W >> << N  =~  a value is given by `=`  [let]
  metric W >> << promql|annotation|usage|object  =~  "  [metric]
  let|param|metric W >> :=|==  =  "
  let|metric W >> :  ~=  "
  param W >> W2  : W2  a type stands behind a colon  [param]
  test T :  test: T  `test` needs a colon  [head test]
  @ %head  {1}:  `{}` needs a colon  [head test]
  : >> :  ""  one colon is enough
  applies to << A  applies to:  `{}` needs a colon  [head]
  @ S =|->|if|when|+=|:=  {S}:  "  [head]
  @ S  {S}:  "  [head]
P018: what stands in another place
  -> >> ->  ""  one `->` is enough
  : >> ->  ""  a rule for all pods has no `->`
  @ -> X ->  ?and X ->  a rule has one `->`; conditions in front of it are joined
  weight =|: A Z  Z weight A  `{}` stands behind the expression
  weight|missing A Z  Z {1} A  "
  @ score N : Z  score: Z weight {2}  a weight stands behind the expression  [head]
  score|first : @most|highest|max  prefer: most  `{}` stands behind `prefer:`  [score first]
  score|first : @least|lowest|min  prefer: least  "  [score first]
  P V A and|or P2 @B  P V A {4} P2 V B  `{}` is compared with nothing
  P is|== K and @is|== K2  ?P in [K, K2]  nothing is both
  P is not K or @is not K2  ?P not in [K, K2]  one of the two always holds
  P != K or @!= K2  ?P not in [K, K2]  "
  P X and|or >> @%op|is|contains|like|matches <<  P {4}  `{}` has nothing in front of it
  P X and|or >> @starts|ends with <<  P {4} with  "
  P X and|or >> @is not <<  P is not  "
  O K = A and|or @K2 = B  O K = A {5} O K2 = B  nobody says whose label `{}` is
  is|contains|like|with not? >> P  (P)  a field behind a word has parentheses
  if X @A else B  if X then A else B  `then` is missing in front of this
  >> over W @,|and W2  ?over W  each topology has a line of its own  [spread]
  wait >> until  ?  how long is said first:~~wait 10m until CONDITION  [permit]
  then A << END  then A else 0  an `else` is needed  [score]
  A @if|where X << END  if X then A else 0  the condition stands in front  [score]
  : >> Y @unless X << %behind  not (X) -> Y  %front  [sided]
  : >> Y @if|when|for|where X << %behind  X -> Y  "  [sided]
  @ R >> P  of P  no `of` stands in front of `{}`
P019: labels
  @ P >=|>|<=|< E  version(P) {2} version("E")  `version` compares versions
  @ O K =|==|!= O2 [ K2 ]  {O.one}[K] {3.equal} {O2.one}[K2]  a label test compares with a word
  @ O K =|==|!= O2 K2  {O.one}[K] {3.equal} {O2.one}[K2]  "
  @ O K << V  {O.one}[K]  here the value of a label is needed
  node.taint K = A >> : W  ""  a taint is asked without its effect
  @ %asked K  {1}[K] is present  %keys
  @ %asked|node.condition K = A  {1}[K] is A  "
  @ O K exists|defined|present  {O.one}[K] is present  here the key stands in brackets
  @ O ( T )  O[T]  the key of a label stands in brackets
  @ O K =|== [ M ]  {O.one}[K] in [M]  one of a list is asked by `in`
  @ O K =|== L  {O.one} K in [L]  "
  @ O K =|== Q *  {O.one}[K] like Q*  a pattern stands behind `like`
  W [ >> P << ]  (P)  a field in brackets has parentheses
  O K = A @, K2 = B  ?O K = A and O K2 = B  tests are joined by `and` and `or`
  >> , << P  ?and  "  [sided]
  >> , << P  ?or  a tier is one line: the next has its own  [first]
  >> , << not  ?and  tests are joined by `and` and `or`  [sided]
  O >> contains|has|have|with|includes K  K  a label is asked by its key
  ( A where >> %labels K  it.{4.one} K  whose label this is stands in front
  label|labels K = A  ?node.label K = A  "
P020: lists and ranges
  like K | K2  matches "K|K2"  one of several is asked by `matches`
  in >> L  [L]  a list stands in brackets
  in @[ X *  ?  no patterns stand in a list:~~A like 'gpu-*' or A is b
  @ is|==|= [ M ]  in [M]  one of a list is asked by `in`
  @ is|!= not? [ M ]  not in [M]  "
  @ is L  in [L]  "
  @ is not L  not in [L]  "
  in >> (|{ M )|}  [M]  a list stands in square brackets
  in >> T  [{T.bare}]  a list stands in brackets
  N >> ... << N2  ..  a range is written with `..`
  in >> N to|-|through|until N2  N..N2  "
  in >> mon|monday ..|-|to|through fri|friday  [mon, tue, wed, thu, fri]  days stand in a list
P021: queries of Prometheus
  metric W = >> prometheus|query|prom|expr? T  promql T  %source  [metric]
  by >> ( W )  W  one label is named, without brackets  [metric]
  promql ( T ) << %clauses  promql T  a query has no brackets  [metric]
  promql >> Y << %clauses  {Y.quote}  a query stands in quotes  [metric]
  metric W = >> W2 ( X ) << %clauses  promql {*.quote}  %source  [metric]
  @ W by|without|on ( M ) ( X )  ?  %query  [rules]
  @ W ( X ) by|without|on ( M )  ?  "  [rules]
  @ W ( W2 { X } [ X2 ] )  ?  "  [rules]
  @ W ( X , W2 ( W3 { X2 } [ X3 ] ) )  ?  "  [rules]
  @ W { W2 =|=~|!=|!~ X }  ?  "  [rules]
  @ W offset|on|ignoring|group_left|group_right X  ?  "  [rules]
P022: words that are one of a few
  mode : >> canary 1 << END  ?canary 1%  of 100 pods one is `1%`, and all are `enforce`  [mode]
  mode : >> canary N << END  canary {N.share}%  a canary is a share of the pods  [mode]
  mode : >> canary  ?  say of how many pods:~~canary 5%  [mode]
  str|text|word|label  string  there is no type `{}`  [param]
  int|integer|float|double|decimal|long  number  "  [param]
  boolean|flag  bool  "  [param]
  list of strings|texts|words  list of string  a list has one type  [param]
  over|within >> %domain  {2.tail}  -  [spread gang]
  over|within >> node.label [ X ]  {X.quote}  the key of a label stands in quotes  [spread gang]
P017: quotes that are missing, or too much
  like >> K  {K.quote}  `{}` needs quotes
  test : >> Z  {Z.quote}  what a test says stands in quotes  [test]
  image|images|name >> Q  {Q.quote}  `{}` needs quotes  [test]
  node|running|namespace|workload : >> T  {T.bare}  a name has no quotes  [test]
  @ T X '  "{T.bare}'{X}"  the apostrophe ends this text
  is|contains|with >> Q  {Q.quote}  `{}` needs quotes
  description : >> Z  {Z.quote}  a description is a quoted text
  policy|name : >> T  {T.kebab}  `policy` takes a word without quotes  [policy]
  policy : >> W Z  {*.kebab}  `policy` takes one word  [policy]
  policy : >> Q  {Q.kebab}  "  [policy]
  mode : >> T  {T.bare}  a mode has no quotes  [mode]
  param|let|metric >> K << =|:  {K.name}  `{}` is no name: letters, digits and _
  over >> J  "J"  the key of a label stands in quotes  [spread]
  spread : >> J  over "J"  the key of a label stands in quotes, behind `over`  [spread]
P007: numbers
  #ki|mi|gi|ti|kib|mib|gib|tib|kb|mb|gb|tb  {1.binary}
  #mbit|mbps /? s?  ({N}e6/8)  8 bits are a byte
  #gbit|gbps /? s?  ({N}e9/8)  "
  #cores|core|c|vcpu|vcpus|cpus|cpu|u|f  N
  #m  {N}m
  #min|mins|minute|minutes  {N}min
  #s|sec|secs|second|seconds  {N}s
  #h|hr|hrs|hour|hours  {N}h
  #d|day|days  {N}d
  #w|week|weeks  {N.weeks}d
  #y|year|years  {N.years}d
  #am|pm  ?  %hours
  #h #min|m  {1}{2}  a duration is one word
  @ N %  {N}%  a percentage has no blank before its `%`
  @ . N  0.N  a number starts with a digit
  @ N .  N  digits stand behind the point
  @ + N  N  a number has no plus sign
  @ N , N2  ?  a number has a point, not a comma
  @ N ' N2  {N}{N2}  a number has digits and a point only
  time in|is|between T ..|and|to T2  ?  hours are whole:~~time.hour in 22..5
  @ time.hour|time in|between N : 00|0 ..|to|and|- N3 : 00|0  time.hour in N..{N3.before}  %hours
  @ now|time|time.hour >|>= N : 00|0  time.hour >= N  "
  @ now|time|time.hour < N : 00|0  time.hour < N  "
  @ now|time|time.hour %op N : N2  time.hour*60 + time.minute {2} N*60 + N2  %minutes
  time.hour|time in|between N : N2  ?  %minutes:~~time.hour*60 + time.minute >= 8*60 + 30
P015: words of other languages
  @ sum ( 1 for W in A )  count(A)  there are no loops here
  contain|contais|has|have|includes|include|containing|holds  contains
  A not contains|like|matches B  not A {3} B
  A is not contains|like|matches  not A {4}
  A does not contain|contains|include B  not A contains B
  startswith|starts_with|beginswith|hasprefix|startwith  starts with
  endswith|ends_with|hassuffix|endwith  ends with
  starts|ends << A  {1} with
  equals|equal|eq  is
  is? equal|equals to  is
  is? not equal to  is not
  is not in  not in
  is? not one of  not in
  is in  in
  is? one of  in
  is? greater|bigger|more|larger|higher|above|over than  >
  is? less|smaller|fewer|lower|below|under than  <
  is? above|exceeds|gt  >
  is? below|under|lt  <
  is? at least  >=
  is? at most  <=
  exists|defined|present  is present
  exists|has A  A is present
  @ pod|pods|node|nodes|it|namespace has|have|with %labels K  {1.one}.{3.one} K
  like T  like {T.glob}
  @ is Q *  like Q*  a pattern stands behind `like`
  A is not Q *  not A like Q*  "
  @ in [ Q * ]  like Q*  "
  A not in [ Q * ]  not A like Q*  "
  @ O K in [ Q * ]  {O.one}[K] like Q*  "
  @ A ilike T  ?lower(A) like {T.low}
  ro  or
  nto|isnt|no  not
  between N and|to N2  in N..N2
  then|implies  ->  -  [sided]
  -> >> then|require|must|only|should|filter|allow|need|needs  ""
  : >> when|where|if|for|that|all|only|select|require|prefer  ""
  : >> @if|when :? X then :? Z  X -> Z
  @ case when X then X2 else X3 end  if X then X2 else X3
  @ A if X else B  if X then A else B
  @ len ( [ W for W2 in A if X ] )  count(A where {X.it})  there are no loops here
  @ any|all ( X for W in A )  {1}(A where {X.it})  there are no loops
  @ sum|max|min ( X for W in A )  {1}({X.it} over A)  "
  @ count ( * )  count(node.pods)
  @ count|sum|avg|any|all|min|max P  {1}(P)  `{}` takes its value in parentheses
  because|reason|msg  message  -  [any]
  UnschedulableAndUnresolvable|unresolved  unresolvable
  interval|each|step|refresh  every  -  [metric]
  descending|down  desc  -  [sort]
  : >> order by  ""  -  [sort]
  : >> by  ""  -  [sort]
  then  ,  -  [sort]
  lowest|less|min|minimum|fewest|smallest|fewer|oldest  least  -  [prefer avoid]
  highest|more|max|maximum|largest|biggest|greatest|newest  most  -  [prefer avoid]
  least|most of  {1}  -  [prefer avoid]
  : >> P << max|min|elastic  by P  -  [quota]
  : >> zone|node|region|rack << skew|hard|END  over {2}  -  [spread]
  max skew  skew  -  [spread]
  maxskew|max_skew|difference  skew  -  [spread]
  strict|required|must|strictly|donotschedule  hard  -  [spread]
  deny|refuse|block|forbid|no  reject  -  [permit]
  @ pod.annotation|pod.annotations [ K ]  annotate K  use `annotate`  [binds]
  @ pod.annotation|pod.annotations [ T ]  annotate T  "  [binds]
  @ pod.label|pod.labels [ K ]  label K  use `label`  [prebind]
  annotation K  annotate K  -  [prebind postbind]
  in|between|within N ..|to|and|- N2  from N to N2  -  [param]
  @ pod|node|it|namespace|cluster .. W2  {1}.W2
  if|with|having|when|filter  where
  in|on|of|from|across|by|per|for  over
P014: signs of other languages
  &&|&  and
  ||  or
  !  not
  ===  ==
  A !~ B  not A matches B
  !==|<>  !=
  => << U  >=
  @ > =  >=
  @ < =  <=
  =>|==>|-->|->>|=>>  ->
  - >  ->
  = << P  ==
  =~  matches
  A <|<= B @<|<= C  A {2} B and B {4} C  comparisons do not chain
  A >|>= B @>|>= C  A {2} B and B {4} C  "
  = << A  is
  : >> if|when X @: Z  X -> Z  -  [sided]
  O K @: A  O K=A  a label is tested by `=`
  @ P : A  P is A  `:` is not a comparison
  : >> |  ""  `{}` has no meaning here: an indented line continues the statement
  : >> > -  ""  "
  A ** B  pow(A, B)
  A ^ B  pow(A, B)
  A % B  mod(A, B)
  A // N  floor(A / N)
  like >> % K %  *K*  any text is `*` in a pattern
  // Z  # Z  a comment starts with `#`  [any]
  /* X */  ""  a comment starts with `#`, and ends the line  [any]
  -- Z  ?# Z  a comment starts with `#`  [any]
  @ { { . X } }  ?  %param
  @ $ { W }  ?  "
  X @? X2 : X3 ? X4 : X5 << END  if X then X2 else if X3 then X4 else X5
  X @? X2 : X3  if X then X2 else X3
  X @? X2 << END  X -> X2  -  [sided]
  X @? X2 << END  if X then X2 else 0  an `else` is needed  [score let]
  : >> { X : X2 }  ?  join conditions by `and`, and indent the next line
  : >> @- X - Z  X and Z  a statement has no list items: conditions are joined
P023: what is too much
  count ( distinct @X )  distinct(X)  `distinct` counts by itself
P004: words that start a line elsewhere
  policy|policies|import|include|load|using|testing : << K  use  -  [head test]
  it|case|describe|scenario|example|spec << :  test  -  [head test]
  deny|reject|disallow|block|exclude << :  forbid  -  [head]
  allow|accept|assert|must|ensure|validate|constraint << :  require  -  [head]
  if|when X then|require|must|-> :? Z  ?filter: X -> Z  a line starts with a statement  [head]
  if|when X : Z  ?filter: X -> Z  "  [head]
  nodeselector|affinity|nodeaffinity  ?require: node.label KEY=VALUE  -  [head]
  name|metadata|module|plugin : << K  policy:  -  [head]
  var|const|set|define|val << W =  let  -  [head]
  @W :=|= << A  let W =  a value gets its name by `let`  [head]
  message|status  ?  it belongs to the rule above: indent it, without a colon  [head]
  >> - << S  ""  a policy has no list items  [head]
"""


@cache
def known_forms() -> Matcher:
    """Returns the rows of the table, ready to be matched; made when something is wrong."""
    return Matcher(rows())


def rows() -> Iterator[tuple[str, Row]]:
    """Yields codes and rows of the table, with and without what may be left out."""
    for code, row in _lines():
        for form in _with_and_without(row.form):
            yield code, row._replace(form=form)


def _with_and_without(form: str) -> Iterator[str]:
    found = _LEFT_OUT.search(form)
    if found is None:
        yield form
        return
    before, behind = form[: found.start()], form[found.end() :]
    for words in (f"{found[1]} ", ""):
        yield from _with_and_without(f"{before}{words}{behind}")


def _lines() -> Iterator[tuple[str, Row]]:
    code = said = ""
    for line in _TEXT.strip().splitlines():
        if not line.startswith(" "):
            code = line[:4]
            continue
        parts = re.split(r" {2,}", line.strip())
        form, better, *rest = (
            re.sub(r"%([a-z]+)", lambda found: _SETS[found[1]], one) for one in parts
        )
        where = rest.pop()[1:-1] if rest and rest[-1].startswith("[") else ""
        said = rest[0] if rest and rest[0] != '"' else said if rest else ""
        say = said.replace("~", " ").removeprefix("-")
        sure = not better.startswith("?")
        better = better.removeprefix("?").replace("~", " ").replace('""', "")
        yield code, Row(form, better, say, _WHERE.get(where, where), sure)
