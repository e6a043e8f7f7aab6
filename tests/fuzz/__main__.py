"""`python -m tests.fuzz`: looks for texts that the language trips over, half an hour of it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import click

from tests.fuzz.inputs import ROOT, SEPARATOR, seeds
from tests.fuzz.targets import Language

#: What is changed -> its share of the time.
TARGETS: Final = {"policies": 0.5, "policytests": 0.3, "bytes": 0.2}
MEBIBYTES: Final = 200
_TOLD: Final = re.compile(r"^stat::(\w+): +(\d+)$", re.MULTILINE)


class Folders(NamedTuple):
    """Where findings go, where policies are run, what was learnt of these inputs."""

    found: Path
    place: Path
    learnt: Path


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", type=float, default=1800, show_default=True,
              help="How long, in all.")  # fmt: skip
@click.option("--only", type=click.Choice(tuple(TARGETS)), multiple=True, help="Only these inputs.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Keep what was learnt here.")
@click.option("--found", type=click.Path(path_type=Path), help="Where findings go.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the first change.")
def main(
    seconds: float, only: tuple[str, ...], corpus: Path | None, found: Path | None, seed: int
) -> None:
    """Fuzzes compiler, formatter, policy tests and expressions; exit 1 if something is found.

    Each finding is an input to put into tests/fuzz/cases once it is mended.
    """
    # An exception, at which `subprocess.run` ends its child.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = found or Path(tempfile.mkdtemp(prefix="berth-found-"))
    found.mkdir(parents=True, exist_ok=True)
    shares = {name: share for name, share in TARGETS.items() if not only or name in only}
    if importlib.util.find_spec("atheris") is None:
        raise click.ClickException(f"atheris has no wheel for Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="berth-fuzz-") as folder:
        place = Path(folder) / "run"
        place.mkdir()
        learnt = corpus or Path(folder) / "corpus"
        for name, share in shares.items():
            time_of = seconds * share / sum(shares.values())
            told = _guided(name, time_of, Folders(found, place, learnt / name), seed)
            click.echo(f"{name}: {told}")
        kept = [one for one in sorted(found.iterdir()) if one.suffix != ".why" and one.is_file()]
        kept = [path for path in kept if _fails(path, place)]
    for path in kept:
        click.echo(f"\n{path}\n{_why(path)}")
    click.echo("nothing found" if not kept else f"{len(kept)} found")
    sys.exit(1 if kept else 0)


def _guided(name: str, seconds: float, folders: Folders, seed: int) -> str:
    """One process of atheris, again if memory or an endless input ended it."""
    found, place, learnt = folders
    start = learnt.with_name(f"{name}-seeds")
    for folder in (learnt, start):
        folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(_seeds(name)):
        (start / f"{number:04}").write_text(text, "utf-8")
    runs = memory = 0
    began = time.monotonic()
    while (left := int(seconds - (time.monotonic() - began))) > 0:
        options = {
            "max_total_time": left, "seed": seed + runs, "timeout": 120, "max_len": 8192,
            "rss_limit_mb": MEBIBYTES, "artifact_prefix": f"{found}/{name}-",
            "print_final_stats": 1, "verbosity": 0, "report_slow_units": 1000,
        }  # fmt: skip
        given = [f"-{key}={value}" for key, value in options.items()]
        command = [sys.executable, "-m", "tests.fuzz.guided", name, str(found), str(place)]
        ended = subprocess.run(
            [*command, *given, str(learnt), str(start)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        told = {name: int(number) for name, number in _TOLD.findall(ended.stdout)}
        runs += told.get("number_of_executed_units", 0)
        memory = max(memory, told.get("peak_rss_mb", 0))
        if ended.returncode:
            (found / f"{name}-{left}.log.why").write_text(ended.stdout, "utf-8")
            if time.monotonic() - began < 5:
                raise click.ClickException(f"atheris does not start:\n{ended.stdout[-2000:]}")
    return f"{runs:,} inputs in {time.monotonic() - began:.0f} s, {memory} MiB"


def _fails(path: Path, place: Path) -> bool:
    """Whether a finding is one: instrumented code is slow, and so is a busy machine."""
    with tempfile.TemporaryDirectory() as again:
        fails = not Language(place).try_one(path.read_bytes(), Path(again))
    if not fails:
        click.echo(f"{path.name} is fine without instruments")
    return fails


def _seeds(name: str) -> list[str]:
    known = seeds()
    if name == "bytes":
        return [text for text in known if len(text) < 200]
    return [text for text in known if (SEPARATOR in text) == (name == "policytests")]


def _why(path: Path) -> str:
    why = path.with_suffix(".why")
    told = why.read_text("utf-8").strip() if why.exists() else "memory or time, says libFuzzer"
    return "\n".join(told.splitlines()[-6:])


if __name__ == "__main__":
    main()
