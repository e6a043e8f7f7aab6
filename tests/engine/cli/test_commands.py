"""The command line: what it prints, what it returns, and what it does not import."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dsl.functions import FUNCTIONS
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from dsl.schema import CATALOGUE, FIELDS
from engine import __version__
from engine.cli import _COMMANDS, main
from engine.cli.explain import shipped, words
from tests.cluster.process import free_port

ROOT = Path(__file__).parents[3]
HEAVY = ("aiohttp", "kubernetes", "lark", "numpy", "prometheus_api_client", "pydantic", "yaml")
GOOD = "filter: pod.name contains nginx -> node.label test=test\n"
BROKEN = "filter: pod.name contains nginx -> node.lable test=test\n"
ALIASES = {"preEnqueue", "queueSort", "preFilter", "postFilter", "preScore", "preBind", "postBind"}
DOUBTFUL = "filter: pod.name contains namespace.name\n"


def berth(*args, **options):
    return CliRunner().invoke(main, [str(each) for each in args], **options)


def process(*args, timeout=60.0, env=None):
    return subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


# ---- the group -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command(flag):
    result = berth(flag)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    listed = re.findall(r"^  ([\w-]+)  +\S", result.stdout, re.MULTILINE)
    assert sorted(_COMMANDS) == sorted(name for name in listed if name in _COMMANDS)


def test_every_command_is_a_file_and_every_file_a_command():
    files = (ROOT / "engine" / "cli").glob("*.py")
    commands = {
        path.stem.replace("_", "-")
        for path in files
        if "\n@click.command(" in path.read_text("utf-8")
    }
    assert commands == set(_COMMANDS)


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_every_command_has_help_that_says_what_the_list_says(name):
    result = berth(name, "--help")
    assert result.exit_code == 0
    assert _COMMANDS[name].rstrip(".") in result.stdout
    assert f"Usage: main {name}" in result.stdout


@pytest.mark.parametrize("args", [["chekc"], ["check"], ["check", "--no-such-flag", "x"]])
def test_what_is_no_command_is_told_in_a_few_lines(args):
    result = berth(*args)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_a_cluster_whose_kubeconfig_cannot_be_written():
    result = berth("up", "--kubeconfig=no/such/file")
    assert result.stderr == "Error: no/such/file: cannot be written: No such file or directory\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--secure-port=0"],
        ["status"],
        ["inventory"],
        ["explain", "node", "a"],
        ["install", "--image=a"],
        ["webhook", "--policy-configmap=a/b", "--secure-port=19443"],
        ["extender", "--policy-configmap=a/b", "--port=18888"],
    ],
)
def test_whoever_asks_a_cluster_may_name_the_context(words, tmp_path):
    path = tmp_path / "kubeconfig"
    contexts = [{"name": "staging", "context": {"cluster": "a"}}]
    config = {"current-context": "staging", "contexts": contexts, "clusters": [], "users": []}
    path.write_text(yaml.safe_dump(config))
    result = process("-m", "engine", *words, f"--kubeconfig={path}", "--context=stagging")
    said = "context 'stagging' does not exist; did you mean staging?"
    assert (result.returncode, said in result.stderr) == (1, True)


def test_a_cluster_whose_port_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = berth("up", f"--port={port}")
    assert result.stderr == (
        f"Error: cannot listen on port {port}: address already in use; give another\n"
    )


@pytest.mark.parametrize(
    ("words", "number", "found"),
    [
        ("berth ex", 1, ["explain", "export-affinity", "extender"]),
        ("berth nothing --", 2, ["--version", "--help"]),
        ("berth fmt --", 2, ["--check", "--diff", "--help"]),
    ],
)
def test_a_shell_completes_words_without_a_command_imported_or_an_error(words, number, found):
    code = "import sys; from engine.cli import main\ntry: main(prog_name='berth')\n"
    code += "except SystemExit: print(*sys.modules)"
    env = {"_BERTH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    result = process("-c", code, env={**os.environ, **env})
    *shown, loaded = result.stdout.splitlines()
    assert [one.partition(",")[2] for one in shown] == found
    assert result.stderr == ""
    assert "engine.cli.explain" not in loaded.split()


@pytest.mark.parametrize(
    ("term", "no_color", "colored"),
    [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)],
)
def test_a_terminal_is_shown_colors_unless_its_user_wants_none(term, no_color, colored, tmp_path):
    (tmp_path / "a.policy").write_text(BROKEN)
    reads, writes = pty.openpty()
    env = {**os.environ, "TERM": term, "NO_COLOR": no_color}
    words = [sys.executable, "-m", "engine", "check", tmp_path / "a.policy"]
    subprocess.run(words, cwd=ROOT, env=env, stdout=writes, stderr=writes, check=False)
    os.close(writes)
    assert (b"\x1b[" in os.read(reads, 65_536)) is colored
    os.close(reads)


def test_version():
    asked = berth("--version")
    assert (asked.exit_code, asked.stdout) == (0, f"berth, version {__version__}\n")
    result = berth("version")
    assert result.exit_code == 0
    assert re.fullmatch(
        rf"berth {re.escape(__version__)} \(policy language 1, Python [\d.]+\)\n", result.stdout
    )


@pytest.mark.parametrize(
    "code", ["import engine.cli", "from engine.cli import main; main(['version'], False)",
             "from engine.cli import main; main(['--help'], False)"]
)  # fmt: skip
def test_nothing_heavy_is_imported_to_say_little(code):
    code = code.replace("False", "standalone_mode=False")
    loaded = process("-c", f"{code}\nimport sys; print(*sys.modules)").stdout.split()
    assert "click" in loaded
    assert not {name.partition(".")[0] for name in loaded} & set(HEAVY)


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (["policies", "fifo"], set()),
        (["explain", "P203"], set()),
        (["fmt", "--check", "policies/fifo.policy"], {"lark"}),
        (["check", "policies/fifo.policy"], {"lark", "numpy"}),
        (["test", "policies/fifo.policytest"], {"lark", "numpy", "yaml"}),
        (["eval", "1 + 2"], {"lark", "numpy"}),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_a_command_imports_what_it_needs(args, needed):
    code = f"from engine.cli import main\ntry: main({args!r})\nexcept SystemExit: pass\n"
    loaded = process("-c", f"{code}import sys; print(*sys.modules)").stdout.splitlines()[-1]
    heavy = {*HEAVY, "pydantic", "yaml", "requests", "lark", "numpy", "asyncio"}
    assert {name.partition(".")[0] for name in loaded.split()} & heavy == needed


def test_berth_is_also_a_module():
    result = process("-m", "engine", "version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("berth ")


# ---- check ---------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        path = Path(name)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def test_check_of_good_files(file):
    result = berth("check", file("a.policy", GOOD), file("b.policy", "sort: pod.created\n"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "2 files checked: all good\n"


def test_check_shows_the_place_and_the_cure_of_errors(file):
    result = berth("check", file("a.policy", BROKEN))
    assert result.exit_code == 1
    assert result.stdout == (
        "error[P101]: there is no field `node.lable`\n"
        " --> a.policy:1:36\n"
        "  |\n"
        "1 | filter: pod.name contains nginx -> node.lable test=test\n"
        "  |                                    ^^^^^^^^^^\n"
        "  = help: did you mean `node.label`?\n"
    )
    assert result.stderr == "1 file checked: 1 error, 0 warnings\n"


def test_check_reads_the_standard_input():
    result = CliRunner().invoke(main, ["check", "-"], input=BROKEN)
    assert result.exit_code == 1
    assert " --> stdin.policy:1:36\n" in result.stdout


def test_check_of_several_files_shows_all_that_is_wrong(file):
    names = [file("a.policy", BROKEN), file("b.policy", GOOD), file("c.policy", BROKEN * 2)]
    result = berth("check", *names)
    assert result.exit_code == 1
    assert re.findall(r"--> (\S+)", result.stdout) == [
        "a.policy:1:36",
        "c.policy:1:36",
        "c.policy:2:36",
    ]
    assert result.stderr == "3 files checked: 3 errors, 0 warnings\n"


def test_files_of_one_name_in_two_folders_are_no_clash(file, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    names = [file("one/a.policy", GOOD), file("two/a.policy", GOOD)]
    assert berth("check", *names).exit_code == 0


def test_warnings_are_shown_and_denied_on_demand(file):
    name = file("a.policy", DOUBTFUL)
    result = berth("check", name)
    assert result.exit_code == 0
    assert result.stdout.startswith("warning[P317]: ")
    assert result.stderr == "1 file checked: 0 errors, 1 warning\n"
    assert berth("check", "--deny-warnings", name).exit_code == 1
    assert berth("check", "--deny-warnings", file("b.policy", GOOD)).exit_code == 0


def test_check_in_json_is_one_object_of_the_same_findings(file):
    result = berth("check", "--format", "json", file("a.policy", BROKEN))
    assert (result.exit_code, result.stderr) == (1, "")
    (found,) = json.loads(result.stdout)["diagnostics"]
    assert (found["code"], found["severity"]) == ("P101", "error")
    assert (found["file"], found["line"], found["column"]) == ("a.policy", 1, 36)
    assert found["fix"]["text"] == "node.label"
    nothing = berth("check", "--format", "json", file("b.policy", GOOD))
    assert nothing.exit_code == 0
    assert json.loads(nothing.stdout) == {"diagnostics": []}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.policy", "cannot be read: No such file or directory"),
        ("empty", "has no file whose name ends in .policy"),
    ],
)
def test_check_of_what_cannot_be_read(name, said, file, tmp_path):
    (tmp_path / "empty").mkdir()
    file("a.policy", GOOD)
    result = berth("check", "a.policy", name)
    assert result.exit_code == 1
    assert result.stderr == f"Error: {name}: {said}\n"


@pytest.mark.parametrize("what", ["folder", "pipe"])
def test_check_of_a_folder_does_not_wait_for_what_is_no_file(what, file, tmp_path):
    file("a.policy", GOOD)
    path = tmp_path / "z.policy"
    path.mkdir() if what == "folder" else os.mkfifo(path)
    result = berth("check", ".")
    assert result.exit_code == 1
    assert result.stderr == "Error: z.policy: cannot be read: it is not a regular file\n"


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"", b"\x00\x01", "filter: \u2192".encode()])
def test_check_of_any_bytes_ends_well(text, file):
    result = berth("check", file("a.policy", text))
    assert result.exit_code in (0, 1)
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_check_of_a_test_file_names_the_command_for_it(tmp_path):
    path = tmp_path / "a.policytest"
    path.write_text('use a\ntest: "t"\n  given pod\n')
    result = berth("check", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: {path} is a test of policies, not a policy; run  berth test {path}\n"
    )


def test_a_glob_that_takes_in_the_tests_checks_the_policies(tmp_path):
    policy, tests = tmp_path / "a.policy", tmp_path / "a.policytest"
    policy.write_text("filter: node.label x\n")
    tests.write_text('use a\ntest: "t"\n  given pod\n')
    result = berth("check", str(policy), str(tests))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "1 file" in result.stderr


def test_check_reads_the_policies_of_a_manifest(tmp_path):
    text = (
        "# of the team\napiVersion: v1\nkind: ConfigMap\ndata:\n  a.policy: |\n    use b\n"
        "  b.policy: |\n    # with a comment\n    filter: node.redy\n  notes: |\n    no policy\n"
    )
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(text)]})
    for name, content in (("cm.yaml", text), ("list.yaml", listed)):
        path = tmp_path / name
        path.write_text(content)
        result = berth("check", str(path))
        assert result.exit_code == 1
        assert f"--> {path}/b.policy:2:9" in result.stdout
        assert result.stderr.startswith("2 files checked: ")
    good = text.replace("redy", "ready")
    path.write_text(good)
    assert berth("check", str(path)).exit_code == 0
    path.write_text(good, "utf-16")  # as a redirection of PowerShell does
    assert berth("check", str(path)).exit_code == 0
    assert berth("check", "-", input=good).stderr == "2 files checked: all good\n"
    assert "--> stdin.yaml/b.policy:2:9" in berth("check", "-", input=listed).stdout
    assert "--> stdin.yaml/b.policy:2:9" in berth("check", "-", input=text).stdout


def test_policies_of_one_name_in_several_config_maps_are_all_checked(tmp_path):
    """As those of namespaces are, which `kubectl get configmaps -A -o yaml` prints."""
    path = tmp_path / "all.yaml"
    texts = {"a": BROKEN, "b": GOOD}
    path.write_text(
        yaml.safe_dump_all(
            {
                "kind": "ConfigMap",
                "metadata": {"namespace": f"team-{name}", "name": "berth-policies"},
                "data": {"own.policy": text, "use.policy": "use own\nmode: off\n"},
            }
            for name, text in texts.items()
        )
    )
    result = berth("check", path)
    assert result.exit_code == 1
    assert re.findall(r"error.*\n --> (.+?):", result.stdout)[0] == (
        f"{path}/team-a/berth-policies/own.policy"
    )
    assert "P107" not in result.stdout, "each finds what it uses in its own"
    assert result.stderr.startswith("4 files checked: ")


def test_policies_of_one_name_in_config_maps_without_names_are_all_checked(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text(
        yaml.safe_dump_all(
            {"kind": "ConfigMap", "data": {"own.policy": text}} for text in (BROKEN, GOOD)
        )
    )
    result = berth("check", path)
    assert result.exit_code == 1
    assert f"--> {path}/1/own.policy:" in result.stdout
    assert result.stderr.startswith("2 files checked: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: v1\nkind: Pod\n", "has no ConfigMap with a key that ends in .policy"),
        ("kind: ConfigMap\ndata: {a.txt: b}\n", "has no ConfigMap with a key"),
        ("a: [", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("5", "has no ConfigMap"),
        ("apiVersion: v1\nitems: 3\n", "has no ConfigMap"),
    ],
)
def test_check_of_a_manifest_without_policies(text, said, tmp_path):
    path = tmp_path / "a.yml"
    path.write_text(text)
    result = berth("check", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


# ---- explain -------------------------------------------------------------------------------------


def test_explain_prints_the_page_of_a_code():
    page, code = shipped("errors") / "P203.md", "P203"
    for given in (code, code.lower()):
        result = berth("explain", given)
        assert (result.exit_code, result.stdout) == (0, page.read_text("utf-8").rstrip() + "\n")


def test_a_page_is_no_json():
    result = berth("explain", "P203", "--format=json")
    assert (result.exit_code, "--format json is for pod" in result.stderr) == (2, True)


def test_explain_of_a_code_that_was_split_names_the_new_ones():
    result = berth("explain", "P004")
    assert result.exit_code == 0
    assert result.stdout.startswith("# P004: there is no such statement")
    assert result.stdout.endswith("a code of its own now: P010: a file in another language\n")


def test_explain_of_what_only_the_log_names():
    result = berth("explain", "P603")
    assert result.exit_code == 0
    assert result.stdout.startswith("# P603: several series of a metric for one node")


def test_explain_of_a_bundled_policy():
    assert berth("explain", "spot-mix").stdout == berth("policies", "spot-mix").stdout


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("P000", "P000 is not a code of the language; codes look like P203"),
        ("P9999", "`P9999` is not a code, statement, field, function, metric or bundled policy"),
        ("../README", "codes look like P203, fields like pod.name"),
        ("", "codes look like P203, fields like pod.name"),
        ("fliter", "did you mean `filter`?"),
        ("spot_mix", "did you mean `spot-mix`?"),
        ("node.cpu.fre", "did you mean `node.cpu.free`?"),
        ("pod.spec.priority", "did you mean `pod.priority`?"),
        (
            "node.cpu",
            "did you mean `node.cpu.allocatable`, `node.cpu.capacity`, `node.cpu.free`, `node.cpu",
        ),
    ],
)
def test_explain_of_what_is_no_word(word, said):
    result = berth("explain", word)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


def test_explain_knows_every_word_of_the_language():
    """A table of the page that is no longer read would lose all its words at once."""
    known = set(words())
    statements = {*STATEMENTS, *DECLARATIONS} - ALIASES
    assert statements - known == set()
    assert set(FIELDS) - known == set()
    assert {*FUNCTIONS, *CATALOGUE} - known == set()
    told = berth("explain", "gang").stdout
    assert told.startswith("gang: [A ->] by X min N\n  meaning: pods with an equal X")
    assert "\n\ngang " in told, "its paragraph"
    clause = berth("explain", "reclaim").stdout
    assert clause.startswith("quota: [A ->] by X")
    assert "\n\nquota limits" in clause
    assert "\n- `reclaim` is the order" in clause, "the list below it"
    meant, surprising = "gate: [A ->] B", "what happens: ranges include their ends"
    told = berth("explain", "gate").stdout
    assert told.index(meant) < told.index(surprising)


def test_a_command_that_is_none():
    result = berth("chek")
    assert result.exit_code == 2
    assert result.stderr.endswith("Error: No such command 'chek'; did you mean check?\n")


def test_the_example_of_the_help_is_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [one.strip() for one in berth("--help").stdout.splitlines()]
    echo = next(one for one in lines if one.startswith("echo "))
    subprocess.run(echo, shell=True, check=True)
    assert berth(*shlex.split(lines[lines.index(echo) + 1])[1:]).exit_code == 0
    for line in lines[lines.index(echo) + 2 :][:2]:
        command, *flags = shlex.split(line.partition("&")[0])[1:]
        text = berth(command, "--help").stdout
        assert all(flag in text for flag in flags if flag.startswith("--")), line


# ---- run and its flags ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--config", "none.yaml"], "none.yaml: cannot be read: No such file or directory"),
        (["--policies", "x", "--policy-configmap", "a/b"], "exclude each other; give one"),
        (["--policy-configmap", "rules"], "'rules' names no ConfigMap; write NAMESPACE/NAME"),
        (["--prometheus-url", "x"], "'x' is not an address; write one like"),
        (["--record", "no/such/folder"], "no/such/folder: cannot be written: No such file"),
        (
            ["--pod-max-in-unschedulable-pods-duration=x"],
            "-duration: 'x' is not a duration above 0",
        ),
        (["--tls-cert-file=x.crt"], "--tls-cert-file and --tls-private-key-file belong together"),
        (
            ["--authorization-always-allow-paths=/livez,/a*b"],
            "--authorization-always-allow-paths: '/a*b': a * may only stand at the end",
        ),
        (["--leader-elect-resource-name=A B"], "resourceName: 'A B' is not a lease name; write"),
        (
            ["--leader-elect-resource-namespace=a.b"],
            "resourceNamespace: 'a.b' is not a namespace nam",
        ),
        (
            ["--secure-port=0", "--kubeconfig=no/such"],
            "cannot reach a cluster: no kubeconfig: no/such does not exist",
        ),
    ],
)
def test_run_refuses_what_it_cannot_use_in_one_line(args, said, file):
    result = process("-m", "engine", "run", *args)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert said in line


@pytest.mark.parametrize(
    ("command", "port"),
    [("run", "--secure-port"), ("webhook", "--secure-port"), ("extender", "--port")],
)
def test_a_log_of_json_lines_ends_with_one(command, port):
    result = process("-m", "engine", command, "--logging-format=json", "--kubeconfig=no/such",
                     "--policy-configmap=a/b", "--bind-address=127.0.0.1",
                     f"{port}={free_port()}")  # fmt: skip
    assert result.returncode == 1
    last = [json.loads(line) for line in result.stderr.splitlines()][-1]
    assert (last["level"], "no kubeconfig: no/such" in last["msg"]) == ("critical", True)


def test_flags_of_kube_scheduler_are_taken_with_a_note_or_refused_with_the_reason(tmp_path):
    written = tmp_path / "written.yaml"
    args = ("--kube-api-qps", "500", "--profiling=false", f"--write-config-to={written}", "-v=4")
    result = process("-m", "engine", "run", *args)
    assert (result.returncode, len(result.stderr.splitlines())) == (0, 2)
    assert "--kube-api-qps has no effect: requests are JSON, paced by how fast" in result.stderr
    assert "--profiling has no effect: the server speaks HTTP/1.1" in result.stderr
    assert "resourceName: berth" in written.read_text()
    result = process("-m", "engine", "run", "--master=https://10.0.0.1")
    assert result.returncode == 1
    assert "--master is not supported: put the API server's address" in result.stderr


@pytest.mark.parametrize(
    ("text", "args", "said"),
    [
        (
            "",
            ["--leader-elect", "--leader-elect-lease-duration=5s"],
            "--leader-elect: leaseDuration 5s must be longer than renewDeadline 10s",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: NodePort}]}}}]",
            [],
            "f.yaml: profiles.0: no plugin is named 'NodePort'; did you mean NodePorts?",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b}]",
            ["--scheduler-name=c"],
            "--scheduler-name is for one profile",
        ),
    ],
)
def test_run_refuses_a_configuration_before_it_overwrites_a_journal(text, args, said, tmp_path):
    path, journal = tmp_path / "f.yaml", tmp_path / "journal"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head + text)
    journal.write_text("kept")
    result = berth("run", "--config", str(path), "--record", str(journal), *args)
    assert (result.exit_code, journal.read_text()) == (1, "kept")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert said in line


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("here", "has no file whose name ends in .policy"),
        ("nowhere", "does not exist"),
        ("here/a.txt", "cannot be read ("),
    ],
)
def test_run_says_at_once_that_a_folder_holds_no_policy(folder, said, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").write_text("filter: node.ready")
    settings = ("--kubeconfig", "no/such/file", "--policies", str(tmp_path / folder))
    run = subprocess.Popen(
        [sys.executable, "-m", "engine", "run", *settings], stderr=subprocess.PIPE, text=True
    )
    with run:
        line = run.stderr.readline()
        run.terminate()
        run.stderr.read()
    assert f"W engine folder {tmp_path / folder} {said}" in line
    assert ": no pod is scheduled until it has" in line


# ---- the demo ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_does_what_it_promises():
    result = process("-m", "engine", "demo", "--plain")
    assert (result.returncode, result.stderr) == (0, "")
    shown = result.stdout
    assert re.findall(r"^(\d)\. ", shown, re.MULTILINE) == list("1234567")
    assert "error[P101]: there is no field `node.lable`" in shown
    assert re.search(r"^ +\| +\^{10}$", shown, re.MULTILINE)
    assert re.search(r"^ +node-01 +test=test +[\d.]+ MB/s +\d+ +\d+ *$", shown, re.MULTILINE)
    nginx = re.findall(r"^ +nginx-\d +-> \S+ +(.+)$", shown, re.MULTILINE)
    assert len(nginx) == 3
    assert all(re.match(r"demo\.policy:1 filter: 6 of 12 nodes pass; ", why) for why in nginx)
    assert "All of this happened, as the state of the cluster confirms." in shown
    for fact in ("pods bound       311", "pods/s in the burst", "one decision", "edit to effect"):
        assert fact in shown
    assert str(ROOT) not in shown
    assert "Traceback" not in shown
    assert not re.search(r"/(home|root|tmp|usr|work)\b", shown)


@pytest.mark.parametrize("words", [("check",), ("fmt",), ("test",), ("export-affinity",)])
def test_a_place_that_may_not_be_looked_at_is_one_line(words, monkeypatch):
    looked_at = Path.stat

    def refuse(path, **more):
        if path.name == "x.policy":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return looked_at(path, **more)

    monkeypatch.setattr(Path, "stat", refuse)
    done = berth(*words, "there/x.policy")
    assert (done.exit_code, done.stderr) == (1, "Error: there/x.policy: Permission denied\n")
