"""What leaves the process on the console and in files."""

import logging
import stat

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.cli.logs import log_to_stderr
from engine.cli.refusals import reported
from engine.cli.run import open_private


def test_what_users_write_forges_no_log_line_and_drives_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_to_stderr(logging.INFO, "%(levelname).1s %(message)s")
    logging.getLogger("x").info('Gated pod="%s"', "p\nI forged\x1b]0;title\x07\u202e")
    try:
        int("x")
    except ValueError:
        logging.getLogger("x").exception("failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ['I Gated pod="p', r'    I forged\x1b]0;title\x07\u202e"']
    assert [line for line in lines if not line.startswith("    ")][1:] == ["E failed"]
    assert "\x1b" not in "".join(lines)


def test_a_reader_that_has_enough_is_no_error_of_ours():
    """As `head` is; click ends such a command without a word."""
    with pytest.raises(BrokenPipeError), reported(ConnectionError):
        raise BrokenPipeError


def test_files_are_for_their_owner_alone(tmp_path):
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("longer than what follows")
    old.chmod(0o666)
    open_private(new).close()
    with open_private(old) as file:
        file.write("ä".encode())
    assert {stat.S_IMODE(one.stat().st_mode) for one in (new, old)} == {0o600}
    assert old.read_text("utf-8") == "ä"


@pytest.mark.parametrize("command", ["check", "fmt", "export-affinity", "convert"])
def test_what_does_not_end_is_not_read_to_its_end(command):
    done = CliRunner().invoke(main, [command, "/dev/zero"])
    assert done.exit_code == (2 if command == "fmt" else 1)
    assert "/dev/zero: cannot be read: " in done.output
    assert "it is longer than 1 MiB" in done.output


@pytest.mark.parametrize(
    "command", ["check {}/uses.policy", "explain pod p -f {}/pods.yaml --policies {}/long.policy"]
)
def test_nor_is_a_policy_beside_those_named_or_in_force(command, tmp_path):
    (tmp_path / "uses.policy").write_text("use other\n")
    (tmp_path / "pods.yaml").write_text("{kind: Pod, metadata: {name: p, namespace: default}}")
    (tmp_path / "long.policy").write_bytes(bytes((1 << 20) + 1))
    done = CliRunner().invoke(main, command.format(tmp_path, tmp_path).split())
    assert done.exit_code == 1
    assert "it is longer than 1 MiB" in done.stderr
    assert "long.policy" in done.stderr


def test_the_standard_input_is_bounded_as_files_are():
    done = CliRunner().invoke(main, ["check", "-"], input=bytes(1 << 20) + b"x")
    assert "-: cannot be read: it is longer than 1 MiB" in done.output
