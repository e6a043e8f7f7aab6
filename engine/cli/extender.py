"""`berth extender`: policies for a stock kube-scheduler, over its extender protocol."""

from __future__ import annotations

import logging
from typing import Any

import click
import yaml

from engine.advising import PATHS, unsaid
from engine.app import App, Hooks, RunOptions
from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_until_told
from engine.cli.refusals import reported
from engine.cli.run import warn_of_folder, with_flags
from engine.clock import SystemClock
from engine.config import (
    ConfigError,
    EnabledPlugin,
    PluginsDocument,
    PluginSet,
    ProfileDocument,
    load,
    parse,
)
from engine.extendersections import ExtenderDocument
from engine.policy.bundle import Bundle
from engine.sections import LeaderElection
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError, ServerOptions

_LOG = logging.getLogger("engine")


@click.command("extender", help="Serve policies to a kube-scheduler that may not be replaced.")
@options.KUBECONFIG
@click.option("--config", metavar="FILE", help="Configuration file: policies and metrics.")
@options.POLICIES
@options.POLICY_CONFIGMAP
@options.PROMETHEUS_URL
@click.option(
    "--scheduler-name",
    metavar="NAME",
    default="default-scheduler",
    show_default=True,
    help="Whose pods wait in the queue that policies may read.",
)
@options.listening(
    "--port",
    8888,
    "Port of the questions, and of /livez, /readyz, /metrics.",
    address="127.0.0.1",
    where="Where that is; whoever reaches it may ask, without --client-ca-file."
    "  [default: 127.0.0.1]",
)
@click.option("--plain-http", is_flag=True, help="HTTP instead of HTTPS.")
@click.option(
    "--client-ca-file",
    metavar="FILE",
    default="",
    help="Whose certificate kube-scheduler has to show (tlsConfig.certFile).",
)
@click.option(
    "--url",
    metavar="URL",
    help="Where kube-scheduler finds it, for --print-config.  [default: that address and port]",
)
@click.option("--print-config", is_flag=True, help="Print what kube-scheduler needs, and end.")
@options.QUIET_VERBOSITY
@reported(ConfigError, CertificateError, ListenError)
def command(*, verbosity: int, url: str | None, print_config: bool, **flags: Any) -> None:  # noqa: ANN401 - each has its own type
    """Answers until SIGTERM or SIGINT; decides and writes nothing itself."""
    if print_config:
        scheme = "http" if flags["plain_http"] else "https"
        host = flags["bind_address"]
        host = f"[{host}]" if ":" in host else host
        own = f"{scheme}://{host}:{flags['secure_port']}"
        parse("--url", ExtenderDocument, {"urlPrefix": url or own})
        click.echo(stanza(url or own), nl=False)
        return
    log_of_a_process(verbosity, as_json=False)
    hooks = Hooks(accepted=[_tell])
    run_until_told(App(_options(flags), clock=SystemClock(), hooks=hooks).run)


def _tell(bundle: Bundle) -> None:
    for line in unsaid(bundle.plans):
        _LOG.warning("%s", line)


def stanza(url: str) -> str:
    """What goes into the KubeSchedulerConfiguration of the stock scheduler."""
    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "preemptVerb": "preempt",
        **({"enableHTTPS": True} if url.startswith("https:") else {}),
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    lines = [
        "# Paste into the KubeSchedulerConfiguration of kube-scheduler (--config), and restart it.",
        "# Without tlsConfig.caFile any certificate is good. With ignorable: true pods are placed",
        "# without the policies while Berth is away.",
    ]
    return "\n".join([*lines, yaml.safe_dump({"extenders": [extender]}, sort_keys=False)])


def _options(flags: dict[str, Any]) -> RunOptions:
    """What the flags say.

    Raises:
        ConfigError: it cannot be done.
    """
    own = {**flags, "scheduler_name": None}
    settings = with_flags(load(flags["config"]), own, also=flags["scheduler_name"])
    if not settings.berth.policies.all_sources:
        raise ConfigError(
            "there is nothing to say: give --policies, --policy-configmap or --config"
        )
    warn_of_folder(settings.berth.policies.dir)
    none = PluginSet(disabled=[EnabledPlugin(name="*")])
    only = PluginsDocument(
        multi_point=none,
        queue_sort=PluginSet(enabled=[EnabledPlugin(name="PrioritySort")]),
        bind=PluginSet(enabled=[EnabledPlugin(name="DefaultBinder")]),
    )
    of = {"schedulerName": flags["scheduler_name"], "plugins": only}
    profile = parse("--scheduler-name", ProfileDocument, of)
    settings = settings.model_copy(
        update={
            "profiles": (profile,),
            "extenders": (),
            "election": LeaderElection(leader_elect=False),
            "delay_cache": False,
        }
    )
    plain, client_ca = flags["plain_http"], flags["client_ca_file"]
    for flag in ("client_ca_file", "tls_cert_file"):
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
    return RunOptions(settings, flags["kubeconfig"], serving=serving, advises=True)
