"""Names of resources: one that no pod can ask for is warned of (P210)."""

from typing import Final

from dsl.checker.scope import Scope, closest
from dsl.diagnostics import Fix, Severity
from dsl.source import Span

#: What the API server takes without a domain in a container's requests and limits.
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
#: A size, or the name of a volume plugin, follows.
_OPEN: Final = ("hugepages-", "attachable-volumes-")
#: What ResourceQuota and other tools call them -> what a container asks for.
_OTHERWISE: Final = {
    "cpus": "cpu", "cores": "cpu", "vcpu": "cpu", "vcpus": "cpu",
    "requests.cpu": "cpu", "limits.cpu": "cpu",
    "mem": "memory", "ram": "memory", "requests.memory": "memory", "limits.memory": "memory",
    "storage": "ephemeral-storage", "disk": "ephemeral-storage",
    "requests.ephemeral-storage": "ephemeral-storage",
    "gpu": "nvidia.com/gpu", "gpus": "nvidia.com/gpu", "requests.nvidia.com/gpu": "nvidia.com/gpu",
}  # fmt: skip


def name_resource(scope: Scope, key: str, span: Span, *, of_node: bool = False) -> None:
    """Warns of a resource that the API server lets no pod ask for.

    Args:
        scope: where the finding goes.
        key: the name.
        span: where it stands.
        of_node: what a node has is meant, which may be `pods`, too.
    """
    meant = _OTHERWISE.get(key) or _OTHERWISE.get(key.lower())
    known = key in _NATIVE or key.startswith(_OPEN) or (of_node and key == "pods")
    if known or ("/" in key and meant is None):
        return
    near = meant or (key.lower() if key.lower() in _NATIVE else closest(key, _NATIVE))
    written = f'"{near}"' if near is not None and "/" in near else near
    scope.report(
        "P210",
        f"no pod can ask for a resource called `{key}`",
        span,
        *([f"did you mean `{near}`?"] if near else []),
        f"without a domain there are {', '.join(_NATIVE)} and hugepages-SIZE; others have one,"
        ' in quotes: "nvidia.com/gpu"',
        fix=Fix(span, written) if written else None,
        severity=Severity.WARNING,
    )
