"""`berth install`: the manifests of this version, printed or put into a cluster.

They are those of deploy/kustomize/base, which are made from the chart: no third copy.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import click
import msgspec
import yaml

from engine.cli import options
from engine.cli.refusals import reported
from engine.clock import SystemClock
from engine.kube.client import APPLY_PATCH, KubeClient, Response
from engine.kube.errors import KubeError, NotFound, StatusError
from engine.kube.session import Session

_NAMESPACE: Final = "berth-system"
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_WHOLE: Final = re.compile(rf"(?<=[ \[]){_NAMESPACE}(?=[\n,}}\]])")
_IMAGE: Final = "image: berth:"
_PLURALS: Final = {"NetworkPolicy": "networkpolicies"}
_FILES: Final = ("base/namespace.yaml", "base/berth.yaml")
_MONITORING: Final = "components/prometheus-operator/monitoring.yaml"
_WEBHOOK: Final = "components/webhook/webhook.yaml"


class _Subject(msgspec.Struct):
    namespace: str = ""


class _Binding(msgspec.Struct):
    """A ClusterRoleBinding, as far as it is read."""

    subjects: list[_Subject] | None = None


_binding: Final = msgspec.json.Decoder(_Binding)


@click.command("install", help="Install Berth in a cluster, or print its manifests.")
@click.option("--dry-run", is_flag=True, help="Print the manifests and contact no cluster.")
@click.option(
    "--image", metavar="IMAGE", help="Image to run, from your registry.  [default: berth:VERSION]"
)
@click.option(
    "--namespace", metavar="NAME", default=_NAMESPACE, show_default=True, help="Where to install."
)
@click.option("--monitoring", is_flag=True, help="With ServiceMonitor, alerts and dashboard.")
@click.option("--webhook", is_flag=True, help="With the admission webhook.")
@options.KUBECONFIG
@options.CONTEXT
@reported(KubeError, ConnectionError)
def command(
    *,
    dry_run: bool,
    image: str | None,
    namespace: str,
    monitoring: bool,
    webhook: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """What is there already is changed as `kubectl apply --server-side` would; policies stay."""
    if not _LABEL.fullmatch(namespace):
        raise click.UsageError(f"--namespace: {namespace!r} is not a namespace name")
    more = [*([_MONITORING] if monitoring else []), *([_WEBHOOK] if webhook else [])]
    text = manifests(image=image, namespace=namespace, more=more)
    if dry_run:
        click.echo(text, nl=False)
        return
    if not image:
        raise click.UsageError(
            "--image is required: the image that deploy/Dockerfile builds, where your nodes can"
            " pull it; --dry-run prints the manifests without"
        )
    asyncio.run(_apply(text, kubeconfig, context))


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


async def _apply(text: str, kubeconfig: str | None, context: str | None) -> None:
    items = [one for one in yaml.safe_load_all(text) if one]
    async with await Session.connect(kubeconfig, context, clock=SystemClock()) as session:
        for item in items:
            await _check_whose(session, item)
        for item in items:
            name = f"{item['kind'].lower()}/{item['metadata']['name']}"
            if _is_policies(item) and await _there(session, item) is not None:
                click.echo(f"{name} is left as it is")
                continue
            answer = await session.request(
                "PATCH",
                _path(item),
                params={"fieldManager": "berth-install", "force": "true"},
                body=json.dumps(item).encode(),  # which is YAML
                content_type=APPLY_PATCH,
            )
            try:
                answer.checked()
            except NotFound as absent:
                kind = f"{item['kind']} ({item['apiVersion']})"
                raise click.ClickException(
                    f"{name}: this cluster has no {kind}; first install what brings it: for"
                    " --monitoring that is the Prometheus operator"
                ) from absent
            except StatusError as refused:
                raise click.ClickException(f"{name}: {refused}") from refused
            click.echo(f"{name} applied")


async def _check_whose(session: KubeClient, item: dict[str, Any]) -> None:
    """What has no namespace may be that of an installation elsewhere, which would lose its rights.

    Raises:
        click.ClickException: it is.
    """
    if item["kind"] != "ClusterRoleBinding":
        return
    answer = await _there(session, item)
    [here] = [one["namespace"] for one in item["subjects"]]
    there = None if answer is None else answer.decoded(_binding.decode, _path(item)).subjects
    others = [one.namespace for one in there or () if one.namespace not in ("", here)]
    if others:
        raise click.ClickException(
            f"ClusterRoleBinding {item['metadata']['name']} gives its rights to the"
            f" Berth in namespace {others[0]}, which would lose them; nothing was changed. Remove"
            f" it first (berth install --namespace {others[0]} --dry-run | kubectl delete -f -), or"
            " install a second with Helm, under a release name and scheduler names of its own"
        )


async def _there(session: KubeClient, item: dict[str, Any]) -> Response | None:
    """What the cluster has of it; None: nothing.

    Raises:
        StatusError: that is not known.
    """
    try:
        return (await session.request("GET", _path(item))).checked()
    except NotFound:
        return None


def _is_policies(item: dict[str, Any]) -> bool:
    """The ConfigMap of policies is its owner's: what is written there stays."""
    return item["kind"] == "ConfigMap" and any(key.endswith(".policy") for key in item["data"])


def _path(item: dict[str, Any]) -> str:
    version, kind, meta = item["apiVersion"], item["kind"], item["metadata"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    within = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{within}/{_PLURALS.get(kind, kind.lower() + 's')}/{meta['name']}"
