"""The formatter: one style, the same meaning, all comments, whatever it is given."""

import re
from functools import lru_cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsl.diagnostics import Diagnostic
from dsl.formatter import WIDTH, format_source
from dsl.formatter import pieces as layout
from dsl.formatter.pieces import canonical_texts
from dsl.parser import Parser
from dsl.parser.tables import load_tables
from dsl.source import make_source
from dsl.syntax import SHORT_POINTS as POINTS
from engine.cli import main
from tests import effort

HERE = Path(__file__).parent
SPEC = sorted((HERE.parent / "spec").glob("*.md"))
PARSER = Parser()


def examples():
    text = (HERE / "data" / "examples.txt").read_text(encoding="utf-8")
    for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        yield name, body


def spec_tests():
    for path in SPEC:
        blocks = re.findall(r"^```policytest\n(.*?)^```", path.read_text("utf-8"), re.M | re.S)
        for number, block in enumerate(blocks):
            yield f"{path.stem}-{number}", block


EXAMPLES = dict(examples())


@lru_cache(maxsize=16)
def lexemes(text, tests):
    return PARSER.lexemes(make_source("a.policy", text), tests=tests)


def outcome(text, tests=False, width=WIDTH):
    source = make_source("a.policy", text)
    return format_source(source, lambda one: lexemes(one.text, tests), width)


def fmt(text, tests=False, width=WIDTH):
    formatted = outcome(text, tests, width)
    assert formatted.text is not None, formatted.diagnostics
    again = outcome(formatted.text, tests, width).text
    assert again == formatted.text
    return formatted.text


def words(text, tests=False):
    """All words in the canonical spelling with their place in the grammar."""
    statements, findings = lexemes(text, tests)
    assert not findings
    return [
        [
            (shown, one.owner, one.opens, one.depth)
            for one, shown in zip(statement, canonical_texts(statement), strict=True)
        ]
        for statement in statements
    ]


def comments(text):
    return re.findall(r"#[^\n]*", text)


# ---- examples


@effort.each("name, text", EXAMPLES.items())
def test_examples_keep_their_tree(name, text):
    written = fmt(text)
    assert words(written) == words(text)
    assert [one.rstrip() for one in comments(written)] == [one.rstrip() for one in comments(text)]
    assert fmt("\ufeff" + text.replace("\n", "\r\n")) == written
    for line in written.split("\n"):
        assert line == line.rstrip() or '"""' in written
        assert len(line) <= WIDTH or '"' in line


@pytest.mark.parametrize(
    "text",
    [
        "filter: pod.name contains nginx -> node.label test=test\n",
        "score: 100 - bandwidth/max*100\n",
        EXAMPLES["06-header"],
        EXAMPLES["09-metric-full"],
        EXAMPLES["40-preempt"],
        EXAMPLES["50-gang"],
        EXAMPLES["52-quota"],
        EXAMPLES["60-multiline-string"],
        EXAMPLES["76-crane-hotspot"],
    ],
)
def test_what_is_in_style_stays(text):
    assert fmt(text) == text


@effort.each("block, text", spec_tests())
def test_tests_of_the_specification_keep_their_words(block, text):
    written = fmt(text, tests=True)
    assert words(written, tests=True) == words(text, tests=True)


def test_names_of_rules_and_terminals_are_those_of_the_grammar():
    tables = load_tables()
    rules = {str(one.alias or one.origin.name) for one in tables.rules}
    terminals = {one.name for one in tables.terminals}
    named = (
        layout._CLAUSES | layout._ACTIONS | layout._ATTRIBUTES | layout._TIGHT_EQUALS
        | {rule for rule, _ in layout._BARE_CLAUSES}
        | {rule for rule, _ in layout._LOOSENESS}
    )  # fmt: skip
    assert named <= rules
    kinds = layout._TIGHT_BEFORE | layout._TIGHT_AFTER | layout._TIGHT | layout._CLOSING
    assert kinds <= terminals
    assert {"_ARROW", "RELOP", "DOTTED", "LABELOF", "MODE", "TEXTOP", "MINUS"} <= terminals


# ---- rules, one by one


GOLDEN = {
    "colon": ("filter :node.ready", "filter: node.ready"),
    "arrow": ("filter: pod.gpu > 0->node.ready", "filter: pod.gpu > 0 -> node.ready"),
    "products": ("score: 100-load / max * 100", "score: 100 - load/max*100"),
    "minus": ("score: - load+ - 1*( - 2 )", "score: -load + -1*(-2)"),
    "comparison": ("filter: node.cpu.free>=pod.cpu", "filter: node.cpu.free >= pod.cpu"),
    "label": ("filter: node.label a = b", "filter: node.label a=b"),
    "label number": ("filter: node.label cores > 8", "filter: node.label cores>8"),
    "label expression": (
        "filter: node.label a = ( pod.label[ x ] )",
        "filter: node.label a=(pod.label[x])",
    ),
    "label equals": ("filter: node.labels a == b", "filter: node.label a=b"),
    "plural": (
        "filter: node.labels[a] is b and pod.annotations[c] is d and node.taints e",
        "filter: node.label[a] is b and pod.annotation[c] is d and node.taint e",
    ),
    "plural with tail": ("score: node.resources[a].free", "score: node.resource[a].free"),
    "list": ("filter: pod.name in[ a,b ,c ]", "filter: pod.name in [a, b, c]"),
    "range": ("filter: time.hour in 8 .. 18", "filter: time.hour in 8..18"),
    "call": ("score: clamp ( load ,0,1 )", "score: clamp(load, 0, 1)"),
    "fallback": ("score: load??0", "score: load ?? 0"),
    "aggregate": (
        "score: sum (it.cpu  over node.pods where it.name is a)",
        "score: sum(it.cpu over node.pods where it.name is a)",
    ),
    "text operator": (
        "filter: pod.name starts   with a",
        "filter: pod.name starts with a",
    ),
    "mode": ("mode: canary \t 10%", "mode: canary 10%"),
    "param": ('param a:string=b one of[b,c]"what"', 'param a: string = b one of [b, c] "what"'),
    "use": ("use a(b=c,d=e)as f weight 2", "use a (b = c, d = e) as f weight 2"),
    "annotate": ("prebind: annotate a/b=node.zone", "prebind: annotate a/b = node.zone"),
    "sort": ("queueSort: pod.qos [A,B],pod.name desc", "sort: pod.qos [A, B], pod.name desc"),
    "conditional": ("score: if(a)then 1 else-1", "score: if (a) then 1 else -1"),
    "trailing blanks": ("score: 5 \t \n\n\n", "score: 5"),
    "blank lines": ("\n\nscore: 5\n\n\n \nscore: 6", "score: 5\n\nscore: 6"),
    "header": ("policy: a\n\nweight: 2\n\n\nscore: 5", "policy: a\nweight: 2\n\nscore: 5"),
    "header with a comment": ("policy: a\n\n# b\nweight: 2", "policy: a\n\n# b\nweight: 2"),
    "joined": ("filter:\n  a\n    and\n\n b", "filter: a and b"),
    "joined at the arrow": ("filter: a ->\n  b\n  message 'c'", "filter: a -> b\n  message 'c'"),
    "clause of its own": ("score: a\n\n      weight 2 missing 0", "score: a\n  weight 2 missing 0"),
    "long text": (
        f"filter: a -> b message '{'x' * 80}' status unresolvable",
        f"filter: a -> b\n  message '{'x' * 80}'\n  status unresolvable",
    ),
    "long head": (
        f"filter: {'a' * 60} -> {'b' * 60} message 'x'",
        f"filter: {'a' * 60} ->\n  {'b' * 60}\n  message 'x'",
    ),
    "long condition": (
        f"filter: {'a' * 60} and {'b' * 60} or c == d",
        f"filter: {'a' * 60}\n    and {'b' * 60}\n  or c == d",
    ),
    "long sum": (
        f"score: {' + '.join(['a' * 40] * 5)}",
        f"score: {' + '.join(['a' * 40] * 2)}\n  + {' + '.join(['a' * 40] * 2)}\n  + {'a' * 40}",
    ),
    "long product": (
        f"score: {'a' * 60}*{'b' * 60}",
        f"score: {'a' * 60}\n  * {'b' * 60}",
    ),
    "long list": (
        f"filter: pod.name in [{', '.join(['a' * 30] * 4)}]",
        f"filter: pod.name in [{', '.join(['a' * 30] * 2)},\n  {', '.join(['a' * 30] * 2)}]",
    ),
    "long left side": (
        f"filter: {'a' * 60} or {'b' * 60} -> c",
        f"filter: {'a' * 60}\n    or {'b' * 60} ->\n  c",
    ),
    "long conditional": (
        f"score: if {'a' * 50} then {'b' * 50} else c",
        f"score: if {'a' * 50}\n    then {'b' * 50}\n  else c",
    ),
    "actions": (
        f"postbind: annotate a = {'b' * 60}, label c = {'d' * 60}",
        f"postbind: annotate a = {'b' * 60},\n  label c = {'d' * 60}",
    ),
    "differences": (
        "let a = 1\nscore: a-load + 3-2 - node.pods.free-a + now-pod.created - 3-abs(a) - b - c",
        "let a = 1\nscore: a - load + 3 - 2 - node.pods.free - a + now - pod.created"
        " - 3 - abs(a) - b - c",
    ),
    "unbreakable": (f"score: {'a' * 120}", f"score: {'a' * 120}"),
    "text of several lines": (
        'filter: a message """x \n\n  y   z\n"""   status   unresolvable',
        'filter: a message """x \n\n  y   z\n""" status unresolvable',
    ),
    "no comment in a text": ('description: """\n#a """ # b', 'description: """\n#a """  # b'),
}  # fmt: skip


@effort.each("case, texts", GOLDEN.items())
def test_rule(case, texts):
    before, after = texts
    assert fmt(before) == after + "\n"


@pytest.mark.parametrize("alias", POINTS)
def test_aliases_become_the_short_words(alias):
    rest = {"queueSort": "pod.name", "postFilter": "never", "preScore": "node.ready"}.get(
        alias, "event 'x'" if "ind" in alias else "pod.gpu > 0"
    )
    assert fmt(f"{alias}: {rest}\n") == f"{POINTS[alias]}: {rest}\n"


@pytest.mark.parametrize("text", ["", "\n \n\t\n", "\ufeff", "\r\n\r\n"])
def test_nothing_stays_nothing(text):
    assert fmt(text) == ""


COMMENTS = {
    "between": ("#a\n\n\n#b  \nscore: 5\n   # c\n\n  # d\n", "#a\n\n#b\nscore: 5\n  # c\n\n# d\n"),
    "only": ("\n\n   # a\n# b", "# a\n# b\n"),
    "trailing": ("score: 5# a\nscore: 6 # b", "score: 5  # a\nscore: 6  # b\n"),
    "inside": (
        "filter: # a\n  x # b\n# c\n\n    # d\n  and y # e\n",
        "filter:  # a\n  x  # b\n  # c\n  # d\n  and y  # e\n",
    ),
    "before a clause": (
        "filter: x # a\n # b\n   message 'm' # c\n # d\n status # e\n unresolvable # f\n# g\n",
        "filter: x  # a\n  # b\n  message 'm'  # c\n  # d\n  status  # e\n    unresolvable  # f\n"
        "# g\n",
    ),
    "in brackets": (
        "filter: pod.name in [ # a\n  b, # c\n  d ]",
        "filter: pod.name in [  # a\n  b,  # c\n  d]\n",
    ),
    "not a comment": ("description: '# a'  # b '", "description: '# a'  # b '\n"),
    "do not count for the width": (f"score: 5 weight 2 # {'a' * 100}", None),
    "of a clause that is switched off": (
        "filter: x\n  message 'm'\n    # status unresolvable\n  # more\n\n  # other\nscore: 5",
        "filter: x\n  message 'm'\n  # status unresolvable\n  # more\n\n# other\nscore: 5\n",
    ),
}


@pytest.mark.parametrize("case", COMMENTS)
def test_comments(case):
    before, after = COMMENTS[case]
    written = fmt(before)
    if after is None:
        after = before.replace(" #", "  #") + "\n"
    assert written == after
    assert [one.rstrip() for one in comments(before)] == comments(written)


def test_a_policytest():
    before = """\
use  a(pool=test)
now:"2025-03-01T10:00:00Z"


node: a cpu 4    memory 8Gi label test = test metric bandwidth 10  age 5m
node: b
   label zone=z2
running: on b name web  count 3
pending:name c   priority 1
metric: rtt [a,b]=0.1
pdb: x namespace y label a=b allowed 1
test: "one"
 given pod name my-nginx-1   cpu 100m
     # a comment
 given param pool=x expect feasible [a,b] # why


 expect rejected [c] message "no"
   status unresolvable
 expect score a 75
"""
    after = """\
use a (pool = test)
now: "2025-03-01T10:00:00Z"

node: a  cpu 4  memory 8Gi  label test=test  metric bandwidth 10 age 5m
node: b
  label zone=z2
running: on b  name web  count 3
pending: name c  priority 1
metric: rtt [a, b] = 0.1
pdb: x  namespace y  label a=b  allowed 1
test: "one"
  given pod name my-nginx-1 cpu 100m
  # a comment
  given param pool = x
  expect feasible [a, b]  # why

  expect rejected [c] message "no"
    status unresolvable
  expect score a 75
"""
    assert fmt(before, tests=True) == after


def test_long_lines_of_a_policytest():
    labels = [f"label {'x' * 20}=y" for _ in range(8)]
    text = f'node: a  {"  ".join(labels)}\ntest: "t"\n  given pod {" ".join(labels)}\n'
    text += f'  expect rejected [a] message "{"m" * 90}" status unresolvable\n'
    written = fmt(text, tests=True)
    assert written == (
        f"node: a  {'  '.join(labels[:3])}\n  {'  '.join(labels[3:6])}\n  {'  '.join(labels[6:])}\n"
        f'test: "t"\n  given pod {" ".join(labels[:3])}\n    {" ".join(labels[3:6])}\n'
        f"    {' '.join(labels[6:])}\n"
        f'  expect rejected [a]\n    message "{"m" * 90}"\n    status unresolvable\n'
    )


# ---- what is left alone


@pytest.mark.parametrize(
    "text",
    ["filter: (\nscore:5\n", "  score: 5\n", "score:“a”\n", 'filter: a message "{"\n',
     'policy: "a"\n', 'description: "\\x"\n'],
)  # fmt: skip
def test_files_with_errors_are_left_alone(text):
    formatted = outcome(text)
    assert formatted.text is None
    assert all(isinstance(one, Diagnostic) for one in formatted.diagnostics)
    assert formatted.diagnostics


def test_a_text_that_would_be_read_as_another_is_left_alone():
    """CR CR LF is LF after two readings: what is written must not be another text."""
    formatted = outcome('description: """a\r\r\nb"""\n')
    assert formatted.text is None
    assert not formatted.diagnostics


def test_a_file_that_grew_over_a_limit_is_left_alone():
    text = "score:" + "+".join(["a" * 40] * 3100) + "\n"
    assert len(text) < 128 * 1024
    assert outcome(text).text is None


def test_long_chains_are_formatted():
    assert fmt("score: " + "+".join(["1"] * 900)).startswith("score: 1 + 1")
    assert fmt("filter: " + " or ".join(["a"] * 900)).count("\n") == 900
    deep = "(" * 60 + "a+" * 60 + "a" + ")" * 60
    assert "a + a" in fmt(f"score: {deep}")


# ---- properties


blanks = st.sampled_from([" ", "  ", "\t", " \t "])
breaks = st.sampled_from(["\n  ", " \n\t", "\n\n \n   ", "\r\n "])
remarked = st.sampled_from(["  # c\n  ", "# c\n# d\n   ", "\n # e\n\n\t"])


def stirred(draw, text, *, notes):
    """The words of a text with other blanks, line ends and comments between them."""
    source = make_source("a", text)
    statements, _ = PARSER.lexemes(source)
    out, end = "", 0
    for statement in statements:
        out += source.text[end : statement[0].span.start]
        pieces = layout.make_pieces(source.text, statement)
        for at, (word, piece) in enumerate(zip(statement, pieces, strict=True)):
            before = source.text[end : word.span.start]
            if at == 0 or "#" in before:
                gap = before if at else ""
            elif piece.rank == layout.CLAUSE and not notes:
                gap = draw(breaks if "\n" in before else blanks)
            elif word.kind == "INDEX":
                gap = ""
            else:
                kinds = [blanks, breaks, *([remarked] if notes else [])]
                kinds += [st.just("")] if not piece.gap else []
                gap = draw(st.one_of(kinds))
            out += gap + word.text
            end = word.span.end
    return out + source.text[end:]


@given(st.data(), st.sampled_from(sorted(EXAMPLES)))
@settings(deadline=None, max_examples=effort.examples(100))
def test_blanks_and_line_ends_change_nothing(data, name):
    text = EXAMPLES[name]
    other = stirred(data.draw, text, notes=False)
    assert fmt(other) == fmt(text)


@given(st.data(), st.sampled_from(sorted(EXAMPLES)))
@settings(deadline=None, max_examples=effort.examples(100))
def test_comments_anywhere_stay_and_change_no_meaning(data, name):
    text = EXAMPLES[name]
    other = stirred(data.draw, text, notes=True)
    written = fmt(other)
    assert words(written) == words(text)
    shown = [one.rstrip() for one in comments(other)]
    assert comments(written) == shown


@given(st.data(), st.sampled_from(sorted(EXAMPLES)), st.integers(8, 90), st.booleans())
@settings(deadline=None, max_examples=effort.examples(100))
def test_narrow_lines_change_nothing_either(data, name, width, notes):
    other = stirred(data.draw, EXAMPLES[name], notes=notes)
    written = fmt(other, width=width)
    assert words(written) == words(other)
    if not notes:
        assert written == fmt(EXAMPLES[name], width=width)
        assert fmt(written, width=width) == written


@pytest.mark.parametrize("step", effort.EVERY)
@pytest.mark.parametrize("width", [8, 20, 40, 60, 80])
def test_narrow_lines_of_the_specifications_tests(width, step):
    for _, text in list(spec_tests())[::step]:
        assert words(fmt(text, True, width), tests=True) == words(text, tests=True)


WORDS = st.sampled_from(
    ["filter", "score", ":", "->", " ", "  ", "\n", "\n  ", "# c\n", "pod.name", "node.label", "a",
     "=", "==", "is", "not", "in", "[", "]", "(", ")", ",", "5", "80%", "of", "*", "/", "-", "+",
     "??", '"x"', "'", '"""', "$p", "let", "message", "weight", "if", "then", "else", "max", "\r",
     "\r\n", "\ufeff", "{", "..", "node", "test", "given", "expect", "\u2028", "\x0c", "é"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(WORDS, max_size=25).map("".join)), st.booleans())
@example("\ufeff\ufeff", False)
@settings(deadline=None, max_examples=effort.examples(300))
def test_any_text_gives_a_text_or_is_left_alone(text, tests):
    formatted = outcome(text, tests)
    if formatted.text is not None:
        assert outcome(formatted.text, tests).text == formatted.text
        assert formatted.text == "" or formatted.text.endswith("\n")


# ---- the command


def run(*args, **more):
    return CliRunner().invoke(main, ["fmt", *map(str, args)], **more)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.policy").write_bytes(b"score: 5\n")
    (tmp_path / "bad.policy").write_bytes(b"\xef\xbb\xbfscore:5\r\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a.policytest").write_bytes(b'node: a cpu 4\ntest:"t"')
    (tmp_path / "deep" / "other.txt").write_bytes(b"score:5")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "h.policy").write_bytes(b"score:5")
    return tmp_path


def test_fmt_writes_files_of_a_folder(folder):
    result = run(folder)
    assert result.exit_code == 0
    assert result.stderr == "2 files formatted, 1 file in style\n"
    assert (folder / "bad.policy").read_bytes() == b"score: 5\n"
    assert (folder / "deep/er/a.policytest").read_bytes() == b'node: a  cpu 4\ntest: "t"\n'
    assert (folder / "deep/other.txt").read_bytes() == b"score:5"
    assert (folder / ".hidden/h.policy").read_bytes() == b"score:5"
    assert run(folder, "--check").exit_code == 0


def test_fmt_takes_this_folder_if_none_is_named(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert run("--check").stdout == "bad.policy\ndeep/er/a.policytest\n"


def test_check_names_what_would_change_and_writes_nothing(folder):
    result = run("--check", folder, folder / "bad.policy")
    assert result.exit_code == 1
    assert result.stdout == f"{folder}/bad.policy\n{folder}/deep/er/a.policytest\n"
    assert (folder / "bad.policy").read_bytes() == b"\xef\xbb\xbfscore:5\r\n"


def test_diff_prints_what_would_change_and_writes_nothing(folder):
    path = folder / "deep/er/a.policytest"
    result = run("--diff", path)
    assert result.exit_code == 0
    assert result.stdout == (
        f'--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n-node: a cpu 4\n-test:"t"\n'
        '\\ No newline at end of file\n+node: a  cpu 4\n+test: "t"\n'
    )
    assert path.read_bytes() == b'node: a cpu 4\ntest:"t"'
    assert run("--diff", "--check", path).exit_code == 1


def test_errors_are_reported_and_the_others_formatted(folder):
    (folder / "broken.policy").write_bytes(b"score:5\nfilter: (\n")
    (folder / "latin.policy").write_bytes(b"# \xe9\n")
    result = run(folder)
    assert result.exit_code == 2
    assert "error[P002]" in result.stderr
    assert "broken.policy:2:9" in result.stderr
    assert "not UTF-8" in result.stderr
    assert (folder / "broken.policy").read_bytes() == b"score:5\nfilter: (\n"
    assert (folder / "bad.policy").read_bytes() == b"score: 5\n"
    assert run("--check", folder).exit_code == 2


def test_stdin_goes_to_stdout():
    assert run("-", input="score:5*load # é").stdout == "score: 5*load  # é\n"
    assert run("-", "--check", input="score:5").exit_code == 1
    assert run("-", "--check", input="score: 5\n").exit_code == 0
    broken = run("-", input="score:")
    assert (broken.exit_code, broken.stdout) == (2, "")
    assert "stdin.policy:1:" in broken.stderr
    odd = 'description: """a\r\r\nb"""'
    assert run("-", input=odd).stdout_bytes == odd.encode()
