"""`berth webhook`: policies are judged while somebody applies them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from engine.cli import options
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_in_loop
from engine.cli.stopping import until_told

_NAME: Final = "berth-system/berth-webhook"


@click.command("webhook", help="Judge policies while somebody applies them.")
@options.KUBECONFIG
@click.option("--config", metavar="FILE", help="The scheduler's configuration file.")
@options.POLICY_CONFIGMAP
@click.option(
    "--name",
    metavar="NS/NAME",
    default=_NAME,
    show_default=True,
    help="Its Service and its Secret; its ValidatingWebhookConfiguration is called NAME.",
)
@click.option("--url", metavar="URL", default="", help="Where the API server finds it instead.")
@click.option(
    "--secure-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    default=9443,
    show_default=True,
    help="Port of reviews, /livez and /readyz by HTTPS.",
)
@click.option(
    "--bind-address", metavar="ADDRESS", default="0.0.0.0", help="[default: all addresses]"
)
@click.option(
    "--tls-cert-file", metavar="FILE", default="", help="A certificate.  [default: the Secret's]"
)
@options.KEY
@click.option(
    "--ca-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Whom the API server is to trust then; without it others write that.",
)
@options.LOGGING_FORMAT
@options.QUIET_VERBOSITY
def command(*, verbosity: int, logging_format: str, **flags: Any) -> None:  # noqa: ANN401 - each has its own type
    """Answers until SIGTERM or SIGINT, as a scheduler of the same configuration would."""
    from engine.clock import SystemClock
    from engine.config import ConfigError
    from engine.framework.selectors import SelectorError
    from engine.serving.certificates import CertificateError
    from engine.serving.server import ListenError
    from engine.webhook.process import Webhook

    log_of_a_process(verbosity, as_json=logging_format == "json")

    async def run() -> None:
        webhook = Webhook(_options(flags), SystemClock())
        with until_told() as stop:
            await webhook.run(stop)

    try:
        run_in_loop(run())
    except (ConfigError, SelectorError, CertificateError, ListenError) as wrong:
        raise click.ClickException(str(wrong)) from wrong


def _options(flags: dict[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """What the flags say.

    Raises:
        ConfigError, SelectorError: it cannot be done.
    """
    from engine.cli.run import with_flags
    from engine.config import ConfigError, load
    from engine.serving.certificates import CertificateFiles
    from engine.serving.selfmade import SelfMade
    from engine.serving.server import ServerOptions
    from engine.webhook.process import WebhookOptions
    from engine.webhook.registration import Place, webhooks

    others = dict.fromkeys(("policies", "prometheus_url", "scheduler_name"))
    settings = with_flags(load(flags["config"]), {**others, **flags})
    namespace, slash, name = flags["name"].partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ConfigError(f"--name: {flags['name']!r} is not NAMESPACE/NAME")
    if flags["url"] and not flags["url"].startswith("https://"):
        raise ConfigError(f"--url: {flags['url']!r}: an API server asks by https:// only")
    place = Place(namespace, name, flags["url"])
    if not webhooks(settings.berth.policies, place.client):
        raise ConfigError(
            "no ConfigMap is a source of policies, so there is nothing to judge: give --config with"
            " the scheduler's file, or --policy-configmap"
        )
    certificate = flags["tls_cert_file"]
    if flags["ca_file"] and not certificate:
        raise ConfigError("--ca-file is for --tls-cert-file: of its own Secret Berth knows whom")
    files = CertificateFiles(
        certificate, flags["tls_private_key_file"], maker=None if certificate else SelfMade()
    )
    serving = ServerOptions(flags["bind_address"], flags["secure_port"], files)
    return WebhookOptions(settings, flags["kubeconfig"], place, serving, flags["ca_file"])
