"""`berth webhook`: policies are judged while somebody applies them."""

from __future__ import annotations

from typing import Any

import click

from engine.cli import options
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_until_told
from engine.cli.refusals import reported
from engine.cli.runflags import certificate_files
from engine.cli.settings import with_flags
from engine.clock import SystemClock
from engine.configuration.forms import is_address
from engine.configuration.settings import ConfigError, load
from engine.pods.selectors import SelectorError
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError, ServerOptions
from engine.webhook.process import PORT, Place, Webhook, WebhookOptions, webhooks


@click.command("webhook", help="Run the webhook that checks policies as they are applied.")
@options.KUBECONFIG
@options.CONTEXT
@click.option("--config", metavar="FILE", help="The scheduler's configuration file.")
@options.POLICY_CONFIGMAP
@click.option(
    "--name",
    metavar="NS/NAME",
    default="berth-system/berth-webhook",
    show_default=True,
    help="Service and Secret of the webhook; its ValidatingWebhookConfiguration is called NAME.",
)
@click.option("--url", metavar="URL", default="", help="Its URL, if not that of the Service.")
@options.listening(
    "--secure-port",
    PORT,
    "HTTPS port of admission reviews, /livez and /readyz.",
    address="0.0.0.0",
    where="Address to listen on.  [default: all]",
)
@click.option(
    "--ca-file",
    type=options.FILE,
    help="CA of --tls-cert-file, written as caBundle; without it another controller writes that.",
)
@options.LOGGING_FORMAT
@options.QUIET_VERBOSITY
@reported(ConfigError, SelectorError, CertificateError, ListenError)
def command(*, verbosity: int, logging_format: str, **flags: Any) -> None:  # noqa: ANN401 - each has its own type
    """Answers until SIGTERM or SIGINT, as a scheduler of the same configuration would."""
    log_of_a_process(verbosity, as_json=logging_format == "json")
    run_until_told(Webhook(_options(flags), SystemClock()).run)


def _options(flags: dict[str, Any]) -> WebhookOptions:
    """What the flags say.

    Raises:
        ConfigError, SelectorError: it cannot be done.
    """
    settings = with_flags(load(flags["config"]), flags)
    namespace, slash, name = flags["name"].partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ConfigError(f"--name: {flags['name']!r} is not NAMESPACE/NAME")
    if url := flags["url"]:
        if not url.startswith("https://"):
            raise ConfigError(f"--url: {url!r}: an API server calls https:// only")
        if not is_address(url):
            raise ConfigError(f"--url: {url!r} is not an address")
    place = Place(namespace, name, flags["url"])
    if not webhooks(settings.berth.policies, place.client):
        raise ConfigError(
            "no ConfigMap is a source of policies, so there is nothing to judge: give --config with"
            " the scheduler's file, or --policy-configmap"
        )
    if flags["ca_file"] and not flags["tls_cert_file"]:
        raise ConfigError("--ca-file is for --tls-cert-file; Berth knows the CA of its own Secret")
    serving = ServerOptions(flags["bind_address"], flags["secure_port"], certificate_files(flags))
    cluster, context = flags["kubeconfig"], flags["context"]
    return WebhookOptions(settings, cluster, place, serving, flags["ca_file"], context)
