"""Builds the real programs the cluster tests run: a control plane, kubectl, helm, kubeconform.

They come from the Go modules pinned beside this file, are built once for each content of those
pins, and live in the user's cache folder, never in the repository. With KUBERNETES=1.36.3 in the
environment the API server and kube-scheduler, which may not be newer, are of that version, and its
pins are made from its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES_VERSION = "1.37.1"
KUBERNETES = os.environ.get("KUBERNETES") or KUBERNETES_VERSION
GO_WANTED = (1, 26)
PINS = ("go.mod", "go.sum", "etcd/go.mod", "etcd/go.sum")
PINS_OF_HELM = ("helm/go.mod", "helm/go.sum")
PACKAGES = {
    "etcd": (HERE / "etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (HERE, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-scheduler": (HERE, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": (HERE, "k8s.io/kubernetes/cmd/kubectl"),
    "helm": (HERE / "helm", "helm.sh/helm/v4/cmd/helm"),
    "kubeconform": (HERE / "helm", "github.com/yannh/kubeconform/cmd/kubeconform"),
}
OF_THE_SERVER = ("kube-apiserver", "kube-scheduler")
OF_E2E = {
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "e2e.test": "k8s.io/kubernetes/test/e2e",
}


def missing() -> str | None:
    """Say in one line what this machine lacks to run the cluster tests, if anything."""
    wanted = ".".join(map(str, GO_WANTED))
    go = shutil.which("go")
    if go is None:
        return f"cluster tests need Go {wanted} or newer on PATH (there is none)"
    env = os.environ | {"GOTOOLCHAIN": "local"}
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=env)
    found = re.search(r"go(\d+)\.(\d+)", said.stdout)
    if found is None or (int(found[1]), int(found[2])) < GO_WANTED:
        return f"cluster tests need Go {wanted} or newer (found: {said.stdout.strip() or 'none'})"
    return None


def folder(name: str) -> Path:
    """The cache folder of a program with exactly these pins."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "berth"
    if not _is_pinned(name):
        return cache / f"bin-{version_of(name)}"
    digest = hashlib.sha256(KUBERNETES_VERSION.encode())
    for pin in PINS_OF_HELM if PACKAGES[name][0].name == "helm" else PINS:
        digest.update((HERE / pin).read_bytes())
    return cache / f"bin-{digest.hexdigest()[:16]}"


def version_of(name: str) -> str:
    """The version of a program of Kubernetes."""
    return KUBERNETES if name in OF_THE_SERVER else KUBERNETES_VERSION


def _is_pinned(name: str) -> bool:
    return name in PACKAGES and version_of(name) == KUBERNETES_VERSION


def binary(name: str) -> Path:
    """The path of a program, built first where the cache does not hold it.

    A cold build of kube-apiserver takes some minutes; runs at the same time build only once.

    Raises:
        RuntimeError: the build failed; the message ends with what Go said.
    """
    target = folder(name) / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target.parent / ".lock"):
        if not target.exists():
            _build(name, target)
    return target


def module(path: str, version: str) -> Path:
    """The folder of a Go module's files, which the checksum database vouches for."""
    command = ["go", "mod", "download", "-json", f"{path}@{version}"]
    env = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        command, cwd=HERE / "helm", env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"cannot download {path}:\n{done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])


def _build(name: str, target: Path) -> None:
    version = version_of(name)
    source, package = PACKAGES[name] if name in PACKAGES else (HERE, OF_E2E[name])
    mode = "readonly"
    if not _is_pinned(name):
        source, mode = _module_of(version, target.parent), "mod"
    half_done = target.with_name(f".{name}.{os.getpid()}")
    verb = ("test", "-c", "-vet=off") if name.endswith(".test") else ("build",)
    flags = ("-trimpath", "-ldflags", _ldflags(version), "-o", str(half_done))
    command = ["go", *verb, *flags, package]
    env = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": f"-mod={mode}"}
    done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build {name}:\n{done.stderr[-4000:]}")
    half_done.rename(target)


def _module_of(version: str, folder: Path) -> Path:
    """A Go module that needs Kubernetes of this version, and its parts of the same.

    The checksum database vouches for all of it. Of the pinned version it has the pins, so most of
    what a program needs has been compiled for the API server.
    """
    if version == KUBERNETES_VERSION:
        for pin in ("go.mod", "go.sum"):
            shutil.copyfile(HERE / pin, folder / pin)
        return folder
    pins = (module("k8s.io/kubernetes", f"v{version}") / "go.mod").read_text()
    parts = re.findall(r"^\s+(\S+) => \./staging", pins, re.MULTILINE)
    lines = ["module berth.test/older", *re.findall(r"^go \S+$", pins, re.MULTILINE)]
    lines += [f"require k8s.io/kubernetes v{version}"]
    lines += [f"replace {one} => {one} v0{version[1:]}" for one in parts]
    (folder / "go.mod").write_text("\n".join([*lines, ""]))
    return folder


def _ldflags(version: str) -> str:
    major, minor, _ = version.split(".")
    stamp = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = [f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items()]
    return " ".join(["-s -w", *flags])


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
