"""`berth status`: which policies a running scheduler has in force, and why not others."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import click
import msgspec

from engine.cli import options
from engine.cli.refusals import reported
from engine.clock import SystemClock
from engine.kube.client import KubeClient, Response, segment
from engine.kube.errors import KubeError, NotFound
from engine.kube.session import Session
from engine.objects import ConfigMap
from engine.text import wire
from engine.text.display import plain

_BEFORE: Final = "What follows is the last known state."


class Standing(msgspec.Struct):
    """How one source stands."""

    source: str
    state: str
    policies: list[str]
    why: str


class Status(msgspec.Struct, rename="camel"):
    """What the scheduler writes into its status ConfigMap."""

    bundle: str | None
    since: str
    sources: list[Standing]
    lease: str = ""
    troubles: list[str] = []
    not_kept: str = ""
    tenants: int = 0
    tenants_refused: int = 0


class _LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    holder_identity: str | None = None
    renew_time: datetime | None = None
    lease_duration_seconds: int = 0


class _Lease(msgspec.Struct):
    """What is read of the lease by which replicas elect their leader."""

    spec: _LeaseSpec = _LeaseSpec()


@click.command("status", help="""Show which policies are in force in a cluster.

NAMESPACE/NAME is `policies.state` of the scheduler's configuration.  [default: berth-system/berth]
""")  # fmt: skip
@click.argument("state", default="berth-system/berth", metavar="[NAMESPACE/NAME]")
@options.KUBECONFIG
@options.CONTEXT
@options.FORMAT
@reported(KubeError, ConnectionError)
def command(state: str, kubeconfig: str | None, context: str | None, style: str) -> None:
    """STATE is `policies.state` of the configuration.

    Exits with 1 if a source is not in force, the leader is refused what it needs, or nobody leads.
    """
    if state.count("/") != 1 or not all(state.split("/")):
        raise click.UsageError(f"{state!r} is not NAMESPACE/NAME, as `policies.state` has it")
    text, found, leader, leads = asyncio.run(_ask(state, kubeconfig, context))
    if style == "json":
        click.echo(text)
        if not leads:
            click.echo(plain(leader), err=True)
    else:
        _show(found, leader)
    if not leads or found.troubles or any(source.state != "InForce" for source in found.sources):
        sys.exit(1)


def _show(found: Status, leader: str) -> None:
    if leader:
        click.echo(plain(leader))
    for trouble in found.troubles:
        click.echo(f"The leader is cut off: {plain(trouble)}")
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
    if found.not_kept:
        click.echo(f"\nNot kept for the next start: {plain(found.not_kept)}.")
    if found.tenants:
        refused = f"{found.tenants_refused} of them refused"
        click.echo(f"\nNamespaces with policies of their own: {found.tenants}, {refused}.")


async def _ask(
    state: str, kubeconfig: str | None, context: str | None
) -> tuple[str, Status, str, bool]:
    """The status as it is and as it is read; who leads, and whether anybody does."""
    namespace, _, name = state.partition("/")
    path = f"/api/v1/namespaces/{segment(namespace)}/configmaps/{segment(f'{name}-status')}"
    async with await Session.connect(kubeconfig, context, clock=SystemClock()) as session:
        try:
            answer = (await session.request("GET", path)).checked()
        except NotFound as missing:
            raise click.ClickException(
                f"ConfigMap {state}-status does not exist: no scheduler whose configuration says"
                f" `policies: state: {state}` has started yet (one that runs writes it again within"
                " a minute). If yours says another name, give that; without one, `kubectl describe`"
                " of the ConfigMap of policies shows their state."
            ) from missing
        text, found = _read(answer, state)
        leader, leads = await _leader(session, found.lease) if found.lease else ("", True)
    return text, found, leader, leads


def _read(answer: Response, state: str) -> tuple[str, Status]:
    try:
        found = wire.decode(msgspec.json.Decoder(ConfigMap).decode, answer.body)
        text = (found.data or {}).get("status.json", "")
        return text, wire.decode(msgspec.json.Decoder(Status).decode, text.encode())
    except msgspec.DecodeError as wrong:
        raise click.ClickException(
            f"ConfigMap {state}-status does not hold what Berth writes; a running scheduler"
            " rewrites it within a minute"
        ) from wrong


async def _leader(client: KubeClient, lease: str) -> tuple[str, bool]:
    """Who decides, by the lease; False: nobody does, as far as can be seen."""
    namespace, _, name = lease.partition("/")
    collection = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases"
    try:
        answer = await client.request("GET", f"{collection}/{segment(name)}")
        spec = answer.decoded(msgspec.json.Decoder(_Lease).decode, f"lease {lease}").spec
    except NotFound:
        return f"No scheduler leads: lease {lease} does not exist. {_BEFORE}", False
    except KubeError as failed:
        return f"Which scheduler leads is not known: {failed}", True
    if not spec.holder_identity or spec.renew_time is None:
        return f"No scheduler leads: nobody holds lease {lease}. {_BEFORE}", False
    ago = (_now(answer) - spec.renew_time).total_seconds()
    if ago > spec.lease_duration_seconds:
        last = spec.renew_time.isoformat(timespec="seconds")
        return (
            f"No scheduler seems to lead: {spec.holder_identity} held lease {lease} and last"
            f" renewed it at {last}, {ago:.0f} s ago. Look at its pods and their logs. {_BEFORE}",
            False,
        )
    return f"{spec.holder_identity} leads (lease {lease}).", True


def _now(answer: Response) -> datetime:
    """By the server's clock: that of this machine may be another."""
    said = answer.headers.get("date")
    if said is not None:
        return parsedate_to_datetime(said)
    return datetime.fromtimestamp(SystemClock().time(), UTC)
