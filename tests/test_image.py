"""The steps of deploy/Dockerfile in a fresh folder: what they copy, run and start is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import engine

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "deploy/Dockerfile"
STEP = re.compile(r"^([A-Z]+) +(.*)$", re.MULTILINE)


class Build:
    """Stages as folders; absolute paths of a stage lie below its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stages: dict[str, Path] = {}
        self.here = folder
        self.work = "/"
        self.env: dict[str, str] = {}
        self.user = "root"
        self.entry: list[str] = []
        self.command: list[str] = []

    def step(self, word: str, rest: str) -> None:
        match word:
            case "FROM":
                self.here = self.folder / f"stage-{len(self.stages)}"
                self.here.mkdir()
                self.stages[rest.partition(" AS ")[2] or "last"] = self.here
                self.env, self.user = {}, "root"
            case "WORKDIR":
                self.work = rest
                self.path(rest).mkdir(parents=True)
            case "COPY":
                self.copy(shlex.split(rest))
            case "RUN":
                self.run(rest)
            case "ENV":
                self.env |= dict(one.split("=", 1) for one in shlex.split(rest))
            case "USER":
                self.user = rest
            case "ENTRYPOINT":
                self.entry = [str(self.path(part)) for part in eval_json(rest)]
            case "CMD":
                self.command = eval_json(rest)
            case _:
                assert word in ("ARG", "EXPOSE"), f"{word} is not tried"

    def path(self, text: str) -> Path:
        return self.here / (text.lstrip("/") if text.startswith("/") else f"src/{text}")

    def copy(self, words: list[str]) -> None:
        stage = words.pop(0).partition("=")[2] if words[0].startswith("--from") else None
        *sources, target = words
        for source in sources:
            found = self.stages[stage] / source.lstrip("/") if stage else ROOT / source
            to = self.path(target)
            if found.is_dir():
                shutil.copytree(found, to, symlinks=True, ignore=_caches)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, to)

    def run(self, command: str) -> None:
        command = re.sub(r"(?<![\w/])/opt/", f"{self.here}/opt/", command)
        command = re.sub(r"^python3 ", f"{sys.executable} ", command)
        done = subprocess.run(
            ["/bin/sh", "-ec", command], cwd=self.path(self.work), capture_output=True, text=True,
            check=False, env=clean(),
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def eval_json(text: str) -> list[str]:
    return re.findall(r'"([^"]*)"', text)


def clean() -> dict[str, str]:
    """No environment of the tests' own."""
    return {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}


def _caches(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in ("__pycache__", "grammar.tables")}


@pytest.mark.slow
def test_the_image_is_built_and_runs_without_writing(tmp_path):
    build = Build(tmp_path)
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text("utf-8"), flags=re.MULTILINE)
    for word, rest in STEP.findall(text):
        build.step(word, rest)
    assert build.user.split(":")[0] != "0"
    assert build.command == ["run"]

    def berth(*words: str) -> str:
        # As in a container: no repository around, and nothing that may be written.
        before = files(build.here)
        done = subprocess.run(
            [*build.entry, *words], cwd="/", capture_output=True, text=True, check=False,
            env={**build.env, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert files(build.here) == before
        return done.stdout

    assert engine.__version__ in berth("version")
    assert "--config" in berth(*build.command, "--help")
    assert "P203" in berth("explain", "P203")
    assert "kind: Deployment" in berth("install", "--dry-run")


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_the_dockerfile_copies_what_the_package_is_built_of():
    """A folder that is forgotten there is missed here already, without building."""
    text = DOCKERFILE.read_text("utf-8")
    copied = set(re.findall(r"^COPY (\S+) \1$", text, re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    included = set(re.findall(r'^"([^"]+)" = "[^"]+"$', project, re.MULTILINE))
    packages = set(
        re.findall(r'^packages = \["engine", "dsl", "policies"\]$', project, re.MULTILINE)
    )
    assert packages
    assert copied == {"engine", "dsl", "policies", *included}
