"""The chart rendered, and what is made of it: the base of kustomize and its part for Prometheus.

What its schema knows of a configuration is made from the documents that Berth reads.

`python -m tests.cluster.manifests` writes them anew (`make manifests`).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import yaml

from engine.configuration.berth import BerthDocument
from engine.configuration.scheduler import SchedulerDocument
from engine.framework.interface import PluginArgs
from engine.plugins.registry import IN_TREE
from tests.cluster import binaries

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/berth"
SCHEMA = CHART / "values.schema.json"
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
    r"|^ +annotations:\n(?= +spec:)"
    r"|^ +annotations: \{(helm.sh/resource-policy|berth.dev/policies): .+\}.*\n",
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


def kustomize(name: str | Path) -> str:
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
        SCHEMA: _schema(),
        KUSTOMIZE / "components/every-policy/role.yaml": HEAD + _without_helm(role),
        KUSTOMIZE / "base/berth.yaml": HEAD + _without_helm(template()),
        KUSTOMIZE / "components/webhook/webhook.yaml": HEAD + _without_helm(webhook),
        KUSTOMIZE / "components/prometheus-operator/monitoring.yaml": HEAD
        + _without_helm(monitoring),
    }


def _schema() -> str:
    """The chart's schema with the definitions of both documents, one a line."""
    found = {}
    for kind in (SchedulerDocument, BerthDocument):
        name = kind.__name__
        whole = kind.model_json_schema(ref_template="#/definitions/{model}")
        found |= _bare(whole.pop("$defs") | {name: whole}, nulls=kind is SchedulerDocument)
    del found["SchedulerDocument"]["required"]  # the chart writes them
    takes = {name: kind or PluginArgs for name, (_, kind) in IN_TREE.items()}
    _, structs = msgspec.json.schema_components(takes.values(), ref_template="#/definitions/{name}")
    assert not found.keys() & structs.keys()
    closed = {name: {**one, "additionalProperties": False} for name, one in structs.items()}
    found |= _bare(closed, nulls=True)
    found["PluginConfig"]["allOf"] = [
        {
            "if": {"properties": {"name": {"const": name}}},
            "then": _bare(
                {"properties": {"args": {"$ref": f"#/definitions/{kind.__name__}"}}}, nulls=True
            ),
        }
        for name, kind in takes.items()
    ]
    lines = ",\n".join(f'    "{name}": {json.dumps(one)}' for name, one in sorted(found.items()))
    own = json.loads(SCHEMA.read_text("utf-8")) | {"definitions": None}
    text = json.dumps(own, indent=2).replace(": null", f": {{\n{lines}\n  }}")
    return f"{text}\n"


def _bare(schema: Any, *, nulls: bool) -> Any:
    """Without what checks nothing, and with null for every field where that means its default."""
    if isinstance(schema, list):
        return [_bare(one, nulls=nulls) for one in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = ("title", "description", "default", "properties")
    checks = {key: _bare(one, nulls=nulls) for key, one in schema.items() if key not in left_out}
    fields = {name: _bare(one, nulls=nulls) for name, one in schema.get("properties", {}).items()}
    if nulls:
        fields = {name: {"anyOf": [one, {"type": "null"}]} for name, one in fields.items()}
    if fields:
        checks["properties"] = fields
    return checks


def _without_helm(text: str) -> str:
    """What only Helm's releases have is left out."""
    while OF_HELM.search(text):
        text = OF_HELM.sub("", text)
    return re.sub(r"\n\n+---", "\n---", text).rstrip("\n") + "\n"


if __name__ == "__main__":
    for path, content in made().items():
        path.write_text(content, encoding="utf-8")
