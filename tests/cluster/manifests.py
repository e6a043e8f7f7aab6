"""The chart rendered, and what is made of it: the base of kustomize and its part for Prometheus.

`python -m tests.cluster.manifests` writes them anew (`make manifests`).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/berth"
KUSTOMIZE = ROOT / "deploy/kustomize"
NAMESPACE = "berth-system"
HEAD = "# Made from deploy/helm/berth by `make manifests`; change the chart instead.\n"
MONITORING = "templates/monitoring.yaml"
WEBHOOK = "templates/webhook.yaml"
MONITORED = tuple(
    f"--set={one}.enabled=true" for one in ("serviceMonitor", "prometheusRule", "dashboard")
)
OF_HELM = re.compile(
    r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart|checksum/config): .*\n|^# Source: .*\n"
    r"|^ +annotations:\n(?= +spec:)|^ +annotations: \{helm.sh/resource-policy: keep\}\n",
    re.MULTILINE,
)


def helm(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs helm without a cluster."""
    command = [str(part) for part in (binaries.binary("helm"), *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done


def template(*flags: str) -> str:
    """The chart as the release `berth` in the namespace berth-system."""
    version = f"--kube-version={binaries.KUBERNETES_VERSION}"
    return helm("template", "berth", CHART, f"--namespace={NAMESPACE}", version, *flags).stdout


def kustomize(name: str) -> str:
    """What `kubectl kustomize` makes of a folder below deploy/kustomize."""
    command = [str(binaries.binary("kubectl")), "kustomize", str(KUSTOMIZE / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML stream."""
    return [one for one in yaml.safe_load_all(text) if one]


def made() -> dict[Path, str]:
    """The files that are made from the chart, and their texts."""
    monitoring = template(*MONITORED, f"--show-only={MONITORING}")
    roles = template("--set=everyPolicy=true", "--show-only=templates/rbac.yaml").split("\n---\n")
    webhook = template("--set=webhook.enabled=true", f"--show-only={WEBHOOK}")
    [role] = [one for one in roles if "\nkind: ClusterRole\n" in one]
    return {
        KUSTOMIZE / "components/every-policy/role.yaml": HEAD + _without_helm(role),
        KUSTOMIZE / "base/berth.yaml": HEAD + _without_helm(template()),
        KUSTOMIZE / "components/webhook/webhook.yaml": HEAD + _without_helm(webhook),
        KUSTOMIZE / "components/prometheus-operator/monitoring.yaml": HEAD
        + _without_helm(monitoring),
    }


def _without_helm(text: str) -> str:
    """What only Helm's releases have is left out."""
    while OF_HELM.search(text):
        text = OF_HELM.sub("", text)
    return re.sub(r"\n\n+---", "\n---", text).rstrip("\n") + "\n"


if __name__ == "__main__":
    for path, content in made().items():
        path.write_text(content, encoding="utf-8")
