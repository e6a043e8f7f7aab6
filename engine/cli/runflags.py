"""Flags of `berth run` that are kube-scheduler's: names, defaults and meaning are its own.

What of them has no meaning here is taken and told, so that a command line need not be rewritten;
what would be wrong to leave out is refused.

Source: kubernetes cmd/kube-scheduler/app/options, component-base config/options and logs/api/v1,
apiserver pkg/server/options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from engine.cli import options

F = TypeVar("F", bound=Callable[..., Any])

_ELECTION: Final = {
    "leader_elect": (
        "leaderElect",
        "Whether several replicas elect who schedules; the others stand by.  [default: true]",
    ),
    "leader_elect_lease_duration": (
        "leaseDuration",
        "For how long others wait once the leader is silent.  [default: 15s]",
    ),
    "leader_elect_renew_deadline": (
        "renewDeadline",
        "After so long without a renewal the leader ends.  [default: 10s]",
    ),
    "leader_elect_retry_period": (
        "retryPeriod",
        "Between two renewals, or two looks at another's lease.  [default: 2s]",
    ),
    "leader_elect_resource_lock": ("resourceLock", "Only `leases`."),
    "leader_elect_resource_name": ("resourceName", "Name of the lease.  [default: berth]"),
    "leader_elect_resource_namespace": (
        "resourceNamespace",
        "Namespace of the lease.  [default: kube-system]",
    ),
}


_OWN_CREDENTIALS: Final = "who may read metrics is asked with the scheduler's own credentials"
_TOKENS_ONLY: Final = "whoever reads metrics shows a token; certificates and headers are not read"
_PACED: Final = "requests are paced by how fast the API server answers"
_HTTP1: Final = "the server speaks HTTP/1.1"
_NO_PROFILES: Final = "there is nothing to profile over HTTP"
_OPENSSL: Final = "what OpenSSL thinks safe is offered"
_LINES: Final = "each line is written at once"
_ALL_METRICS: Final = "all metrics are shown, with all their labels"
_NO_GATES: Final = "there are no feature gates"
_KEPT: Final = "answers are kept for ten seconds"

TAKEN: Final = {
    "allow-metric-labels": _ALL_METRICS,
    "allow-metric-labels-manifest": _ALL_METRICS,
    "authentication-kubeconfig": _OWN_CREDENTIALS,
    "authentication-skip-lookup": _TOKENS_ONLY,
    "authentication-token-webhook-cache-ttl": _KEPT,
    "authentication-tolerate-lookup-failure": _TOKENS_ONLY,
    "authorization-kubeconfig": _OWN_CREDENTIALS,
    "authorization-webhook-cache-authorized-ttl": _KEPT,
    "authorization-webhook-cache-unauthorized-ttl": _KEPT,
    "client-ca-file": _TOKENS_ONLY,
    "contention-profiling": _NO_PROFILES,
    "disable-http2-serving": _HTTP1,
    "disabled-metrics": _ALL_METRICS,
    "emulated-version": _NO_GATES,
    "feature-gates": _NO_GATES,
    "http2-max-streams-per-connection": _HTTP1,
    "kube-api-burst": _PACED,
    "kube-api-content-type": "requests are JSON",
    "kube-api-qps": _PACED,
    "log-flush-frequency": _LINES,
    "log-json-info-buffer-size": _LINES,
    "log-json-split-stream": "all lines go to stderr",
    "log-text-info-buffer-size": _LINES,
    "log-text-split-stream": "all lines go to stderr",
    "permit-address-sharing": "addresses are shared as the system has it",
    "permit-port-sharing": "a port is for one process",
    "profiling": _NO_PROFILES,
    "requestheader-allowed-names": _TOKENS_ONLY,
    "requestheader-client-ca-file": _TOKENS_ONLY,
    "requestheader-extra-headers-prefix": _TOKENS_ONLY,
    "requestheader-group-headers": _TOKENS_ONLY,
    "requestheader-uid-headers": _TOKENS_ONLY,
    "requestheader-username-headers": _TOKENS_ONLY,
    "show-hidden-metrics-for-version": _ALL_METRICS,
    "tls-cipher-suites": _OPENSSL,
    "tls-curve-preferences": _OPENSSL,
    "vmodule": "-v is for all modules",
}
"""Flags that are taken and change nothing, and why."""

REFUSED: Final = {
    "master": "write the API server's address into a kubeconfig, and give that as --kubeconfig",
    "tls-sni-cert-key": "the server has one certificate; give it as --tls-cert-file and"
    " --tls-private-key-file",
}
"""Flags without which something else would happen than was asked for, and what to do."""

_DEFAULT_PORT: Final = 10259
_TLS_VERSIONS: Final = {"VersionTLS12": "TLSv1_2", "VersionTLS13": "TLSv1_3"}


def serving(command: F) -> F:
    """Adds the flags of the server."""
    for add in reversed(
        (
            click.option(
                "--secure-port",
                type=click.IntRange(0, 65535),
                metavar="PORT",
                default=_DEFAULT_PORT,
                help="Port of /livez, /readyz, /metrics ... by HTTPS; 0: none.  [default: 10259]",
            ),
            click.option(
                "--bind-address",
                metavar="ADDRESS",
                default="0.0.0.0",
                help="Where that is.  [default: all addresses]",
            ),
            click.option(
                "--cert-dir",
                metavar="DIR",
                default="",
                help="Where the certificate that Berth makes is kept.  [default: in memory]",
            ),
            click.option("--tls-cert-file", metavar="FILE", default="", help="A certificate."),
            options.KEY,
            click.option(
                "--tls-min-version",
                type=click.Choice(list(_TLS_VERSIONS)),
                default="VersionTLS12",
                help="[default: VersionTLS12]",
            ),
            click.option(
                "--authorization-always-allow-paths",
                metavar="PATHS",
                default="/healthz,/readyz,/livez",
                help="What anybody may read.  [default: /healthz,/readyz,/livez]",
            ),
        )
    ):
        command = add(command)
    return command


def server_options(flags: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """What the flags say of the server; None: there is none."""
    import ssl

    from engine.serving.certificates import CertificateFiles
    from engine.serving.server import ServerOptions

    if not flags["secure_port"]:
        return None
    maker = None
    if not flags["tls_cert_file"]:
        from engine.serving.selfmade import SelfMade

        maker = SelfMade()
    files = CertificateFiles(
        flags["tls_cert_file"], flags["tls_private_key_file"], flags["cert_dir"], maker
    )
    paths = flags["authorization_always_allow_paths"].split(",")
    return ServerOptions(
        flags["bind_address"],
        flags["secure_port"],
        files,
        tuple(path for path in paths if path),
        ssl.TLSVersion[_TLS_VERSIONS[flags["tls_min_version"]]],
    )


def stock(command: F) -> F:
    """Adds what is taken or refused."""
    for name in (*TAKEN, *REFUSED):
        add = click.option(f"--{name}", is_flag=False, flag_value="", hidden=True, multiple=True)
        command = add(command)
    return command


def notes(flags: Mapping[str, Any]) -> list[str]:
    """A line for each flag that was given and changes nothing.

    Raises:
        ConfigError: one was given that is refused.
    """
    from engine.config import ConfigError

    for name, instead in REFUSED.items():
        if flags[name.replace("-", "_")]:
            raise ConfigError(f"--{name} is not in this version: {instead}")
    return [
        f"--{name} changes nothing: {why}"
        for name, why in TAKEN.items()
        if flags[name.replace("-", "_")]
    ]


def election(command: F) -> F:
    """Adds the flags of leader election."""
    for name, (_, text) in reversed(_ELECTION.items()):
        flag = f"--{name.replace('_', '-')}"
        if name == "leader_elect":
            # Go's way: alone it means true.
            add = click.option(
                flag, is_flag=False, flag_value="true", type=bool, metavar="BOOL", help=text
            )
        else:
            add = click.option(flag, metavar=name.rsplit("_", 1)[-1].upper(), help=text)
        command = add(command)
    return command


def with_election(settings: Any, flags: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """Settings with what the flags say of leader election; they win over the file.

    Raises:
        ConfigError: what they say together cannot be.
    """
    from engine.config import parse
    from engine.sections import LeaderElection

    given = {field: flags.get(name) for name, (field, _) in _ELECTION.items()}
    given = {field: value for field, value in given.items() if value is not None}
    if not given:
        return settings
    document = {**settings.election.model_dump(by_alias=True), **given}
    return settings.model_copy(
        update={"election": parse("--leader-elect", LeaderElection, document)}
    )
