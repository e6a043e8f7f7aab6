"""`berth extender`: policies for a stock kube-scheduler, over its extender protocol."""

from __future__ import annotations

import logging
from typing import Any

import click

from engine.app import App, Hooks, RunOptions
from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_until_told
from engine.cli.refusals import reported
from engine.cli.settings import warn_of_folder, with_flags
from engine.clock import SystemClock
from engine.configuration import scheduler
from engine.configuration.settings import ConfigError, load, parse
from engine.extenders.server import PATHS, unsaid
from engine.policy.bundle import Bundle
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError, ServerOptions

_LOG = logging.getLogger("engine")


@click.command("extender", help="Serve policies to a kube-scheduler, as its HTTP extender.")
@options.KUBECONFIG
@options.CONTEXT
@click.option("--config", metavar="FILE", help="Configuration file: policies and metrics.")
@options.POLICIES
@options.POLICY_CONFIGMAP
@options.PROMETHEUS_URL
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="default-scheduler",
    show_default=True,
    help="schedulerName of the pending pods that policies may read.",
)
@options.listening(
    "--port",
    8888,
    "Port of the extender's verbs, /livez, /readyz and /metrics.",
    address="127.0.0.1",
    where="Address to listen on; without --client-ca-file anybody who reaches it may ask."
    "  [default: 127.0.0.1]",
)
@click.option("--plain-http", is_flag=True, help="Serve HTTP instead of HTTPS.")
@click.option(
    "--client-ca-file",
    metavar="FILE",
    default="",
    help="CA of the client certificate that kube-scheduler has to show (tlsConfig.certFile).",
)
@options.LOGGING_FORMAT
@options.QUIET_VERBOSITY
@reported(ConfigError, CertificateError, ListenError)
def command(*, verbosity: int, logging_format: str, **flags: Any) -> None:  # noqa: ANN401 - each has its own type
    """Answers until SIGTERM or SIGINT; decides and writes nothing itself."""
    log_of_a_process(verbosity, as_json=logging_format == "json")
    hooks = Hooks(accepted=[_tell])
    run_until_told(App(_options(flags), clock=SystemClock(), hooks=hooks).run)


def _tell(bundle: Bundle) -> None:
    for line in unsaid(bundle.plans):
        _LOG.warning("%s", line)


def _options(flags: dict[str, Any]) -> RunOptions:
    """What the flags say.

    Raises:
        ConfigError: it cannot be done.
    """
    own = {**flags, "scheduler_name": None}
    settings = with_flags(load(flags["config"]), own, also=flags["scheduler_name"])
    if not settings.berth.policies.all_sources:
        raise ConfigError(
            "there are no policies to serve: give --policies, --policy-configmap or --config"
        )
    warn_of_folder(settings.berth.policies.dir)
    none = scheduler.PluginSet(disabled=[scheduler.EnabledPlugin(name="*")])
    only = scheduler.PluginsDocument(
        multi_point=none,
        queue_sort=scheduler.PluginSet(enabled=[scheduler.EnabledPlugin(name="PrioritySort")]),
        bind=scheduler.PluginSet(enabled=[scheduler.EnabledPlugin(name="DefaultBinder")]),
    )
    of = {"schedulerName": flags["scheduler_name"], "plugins": only}
    profile = parse("--scheduler-name", scheduler.ProfileDocument, of)
    settings = settings.model_copy(
        update={
            "profiles": (profile,),
            "extenders": (),
            "election": scheduler.LeaderElection(leader_elect=False),
            "delay_cache": False,
        }
    )
    plain, client_ca = flags["plain_http"], flags["client_ca_file"]
    for flag in ("client_ca_file", "tls_cert_file", "tls_private_key_file"):
        if plain and flags[flag]:
            name = flag.replace("_", "-")
            raise ConfigError(f"--{name} needs HTTPS: leave --plain-http out")
    serving = ServerOptions(
        flags["bind_address"],
        flags["secure_port"],
        runflags.certificate_files(flags),
        (*ServerOptions().always_allowed, *PATHS),
        plain=plain,
        client_ca=client_ca,
    )
    return RunOptions(
        settings, flags["kubeconfig"], serving=serving, advises=True, context=flags["context"]
    )
