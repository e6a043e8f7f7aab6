"""Flags of `berth run` that are kube-scheduler's: names, defaults and meaning are its own.

What of them has no meaning here is taken and told, so that a command line need not be rewritten;
what would be wrong to leave out is refused.

Source: kubernetes cmd/kube-scheduler/app/options, component-base config/options and logs/api/v1,
apiserver pkg/server/options.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

import click

from engine.cli import options
from engine.configuration.settings import ConfigError
from engine.serving.certificates import CertificateFiles
from engine.serving.server import ServerOptions

_WITHOUT_MEANING: Final = {
    "readers of metrics show a token, which is reviewed with the scheduler's own credentials": """
        authentication-kubeconfig authentication-skip-lookup authentication-token-webhook-cache-ttl
        authentication-tolerate-lookup-failure authorization-kubeconfig client-ca-file
        authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
        requestheader-allowed-names requestheader-client-ca-file requestheader-extra-headers-prefix
        requestheader-group-headers requestheader-uid-headers requestheader-username-headers""",
    "all metrics are shown, with all their labels": """
        allow-metric-labels allow-metric-labels-manifest disabled-metrics
        show-hidden-metrics-for-version""",
    "requests are JSON, paced by how fast the API server answers": """
        kube-api-burst kube-api-content-type kube-api-qps""",
    "the server speaks HTTP/1.1 with OpenSSL's default ciphers, and has no profiling": """
        contention-profiling disable-http2-serving http2-max-streams-per-connection
        permit-address-sharing permit-port-sharing profiling tls-cipher-suites
        tls-curve-preferences""",
    "Berth has no feature gates": "emulated-version feature-gates min-compatibility-version",
    "each line is written to stderr at once, and -v holds for all modules": """
        log-flush-frequency log-json-info-buffer-size log-json-split-stream
        log-text-info-buffer-size log-text-split-stream vmodule""",
}
TAKEN: Final = {name: why for why, names in _WITHOUT_MEANING.items() for name in names.split()}
"""Flags that are taken and change nothing, and why."""

REFUSED: Final = {
    "master": "put the API server's address into a kubeconfig, and give that as --kubeconfig",
    "tls-sni-cert-key": "the server has one certificate; give it as --tls-cert-file and"
    " --tls-private-key-file",
}
"""Flags without which something else would happen than was asked for, and what to do."""

_TLS_VERSIONS: Final = {"VersionTLS12": "TLSv1_2", "VersionTLS13": "TLSv1_3"}


SERVING: Final = options.together(
    options.listening(
        "--secure-port",
        10259,
        "HTTPS port of /livez, /readyz, /metrics and others; 0: no server.",
        address="0.0.0.0",
        where="Address to listen on.  [default: all]",
        least=0,
    ),
    click.option(
        "--cert-dir",
        metavar="DIR",
        default="",
        help="Folder that keeps the self-signed certificate.  [default: in memory]",
    ),
    click.option(
        "--tls-min-version",
        type=click.Choice(list(_TLS_VERSIONS)),
        default="VersionTLS12",
        help="Oldest version of TLS to accept.  [default: VersionTLS12]",
    ),
    click.option(
        "--authorization-always-allow-paths",
        metavar="PATHS",
        default="/healthz,/readyz,/livez",
        help="Paths that need no authorization.  [default: /healthz,/readyz,/livez]",
    ),
)
"""The flags of the server."""


def server_options(flags: Mapping[str, Any]) -> ServerOptions | None:
    """What the flags say of the server; None: there is none.

    Raises:
        ConfigError: a path is none.
    """
    if not flags["secure_port"]:
        return None
    given = flags["authorization_always_allow_paths"].split(",")
    paths = tuple(f"/{path.lstrip('/')}" for path in given if path)
    for path in paths:
        if "*" in path[:-1]:
            raise ConfigError(
                f"--authorization-always-allow-paths: {path!r}: a * may only stand at the end"
            )
    return ServerOptions(
        flags["bind_address"],
        flags["secure_port"],
        certificate_files(flags),
        paths,
        ssl.TLSVersion[_TLS_VERSIONS[flags["tls_min_version"]]],
    )


def certificate_files(flags: Mapping[str, Any]) -> CertificateFiles:
    """Where the flags say that the certificate of a server is."""
    from engine.serving.selfmade import SelfMade  # cryptography, for those alone who serve

    files = flags["tls_cert_file"], flags["tls_private_key_file"], flags.get("cert_dir", "")
    return CertificateFiles(*files, SelfMade())


STOCK: Final = options.together(
    *(
        click.option(f"--{name}", is_flag=False, flag_value="", hidden=True, multiple=True)
        for name in (*TAKEN, *REFUSED)
    )
)
"""What is taken or refused."""


def notes(flags: Mapping[str, Any]) -> list[str]:
    """A line for each flag that was given and changes nothing.

    Raises:
        ConfigError: one was given that is refused.
    """
    for name, instead in REFUSED.items():
        if flags[name.replace("-", "_")]:
            raise ConfigError(f"--{name} is not supported: {instead}")
    return [
        f"--{name} has no effect: {why}"
        for name, why in TAKEN.items()
        if flags[name.replace("-", "_")]
    ]
