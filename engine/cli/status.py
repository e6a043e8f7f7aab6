"""`berth status`: which policies a running scheduler has in force, and why not others."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec

from engine import wire
from engine.cli import options
from engine.cli.refusals import reported
from engine.clock import SystemClock
from engine.display import plain
from engine.kube.errors import KubeError, NotFound
from engine.kube.session import Session, segment
from engine.objects import ConfigMap


class Standing(msgspec.Struct):
    """How one source stands."""

    source: str
    state: str
    policies: list[str]
    why: str


class Status(msgspec.Struct):
    """What the scheduler writes into its status ConfigMap."""

    bundle: str | None
    since: str
    sources: list[Standing]


@click.command("status", help="Show which policies are in force in a cluster.")
@click.argument("state", default="berth-system/berth", metavar="[NAMESPACE/NAME]")
@options.KUBECONFIG
@click.option("--json", "as_json", is_flag=True, help="What the ConfigMap says, as it is.")
@reported(KubeError, ConnectionError)
def command(state: str, kubeconfig: str | None, *, as_json: bool) -> None:
    """STATE is `policies.state` of the configuration; exits with 1 if a source is not in force."""
    if state.count("/") != 1 or not all(state.split("/")):
        raise click.UsageError(f"{state!r} is not NAMESPACE/NAME, as `policies.state` has it")
    found = asyncio.run(_ask(state, kubeconfig))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        _show(found)
    if any(source.state != "InForce" for source in found.sources):
        sys.exit(1)


def _show(found: Status) -> None:
    if found.bundle is None:
        click.echo("Nothing is in force, and no pod is scheduled.")
    else:
        click.echo(f"Bundle {plain(found.bundle)} is in force since {plain(found.since)}.")
    for source in found.sources:
        names = ", ".join(source.policies) or "none"
        state = "" if source.state == "InForce" else f" [{source.state}]"
        click.echo(f"\n{plain(source.source)}{plain(state)}: {plain(names)}")
        for line in source.why.splitlines():
            click.echo(f"  {plain(line)}")


async def _ask(state: str, kubeconfig: str | None) -> Status:
    namespace, _, name = state.partition("/")
    path = f"/api/v1/namespaces/{segment(namespace)}/configmaps/{segment(f'{name}-status')}"
    session = await Session.connect(kubeconfig, clock=SystemClock())
    try:
        answer = (await session.request("GET", path)).checked()
    except NotFound as missing:
        raise click.ClickException(
            f"There is no ConfigMap {state}-status: a scheduler writes it where its configuration"
            f" says `policies: state: {state}`. Name the one that yours says; /statusz tells the"
            " same."
        ) from missing
    finally:
        await session.close()
    try:
        found = wire.decode(msgspec.json.Decoder(ConfigMap).decode, answer.body)
        text = (found.data or {}).get("status.json", "")
        return wire.decode(msgspec.json.Decoder(Status).decode, text.encode())
    except msgspec.DecodeError as wrong:
        raise click.ClickException(
            f"ConfigMap {state}-status is not what Berth writes; it is written anew with the next"
            " change of policies"
        ) from wrong
