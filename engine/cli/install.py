"""`berth install`: the manifests of this version, for `kubectl apply`.

They are those of deploy/kustomize/base, which are made from the chart: no third copy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import click

_NAMESPACE: Final = "berth-system"
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WHOLE: Final = re.compile(rf"(?<=[ \[]){_NAMESPACE}(?=[\n,}}\]])")
_IMAGE: Final = "image: berth:"
_FILES: Final = ("base/namespace.yaml", "base/berth.yaml")
_MONITORING: Final = "components/prometheus-operator/monitoring.yaml"
_WEBHOOK: Final = "components/webhook/webhook.yaml"


@click.command(
    "install",
    help="""Print the manifests that install Berth.

\b
berth install --image IMAGE | kubectl apply --server-side -f -
""",
)
@click.option("--dry-run", is_flag=True, hidden=True)  # as it is without
@click.option(
    "--image", metavar="IMAGE", help="Image to run, from your registry.  [default: berth:VERSION]"
)
@click.option(
    "--namespace", metavar="NAME", default=_NAMESPACE, show_default=True, help="Where to install."
)
@click.option("--monitoring", is_flag=True, help="With ServiceMonitor, alerts and dashboard.")
@click.option("--webhook", is_flag=True, help="With the admission webhook.")
def command(
    *, dry_run: bool, image: str | None, namespace: str, monitoring: bool, webhook: bool
) -> None:
    """They go to stdout, and no cluster is asked."""
    del dry_run
    if not _LABEL.fullmatch(namespace):
        raise click.UsageError(f"--namespace: {namespace!r} is not a namespace name")
    more = [*([_MONITORING] if monitoring else []), *([_WEBHOOK] if webhook else [])]
    click.echo(manifests(image=image, namespace=namespace, more=more), nl=False)


def manifests(*, image: str | None, namespace: str, more: Sequence[str] = ()) -> str:
    """The manifests as one YAML stream, with those of components."""
    folder = _folder()
    texts = [folder.joinpath(name).read_text("utf-8") for name in (*_FILES, *more)]
    text = "---\n".join(texts)
    # The namespace first: an image may have that word in its name.
    if namespace != _NAMESPACE:  # in quotes, as 123, on or 1e3 would be no text in YAML
        text = _WHOLE.sub(json.dumps(namespace), text).replace(_NAMESPACE, namespace)
    if not image:
        return text
    said = f"image: {json.dumps(image)}\n"
    return "".join(
        f"{line.partition(_IMAGE)[0]}{said}" if _IMAGE in line else line
        for line in text.splitlines(keepends=True)
    )


def _folder() -> Traversable:
    shipped = files("engine") / "manifests"
    return shipped if shipped.is_dir() else files("engine") / ".." / "deploy" / "kustomize"
