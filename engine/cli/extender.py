"""`berth extender`: policies for a stock kube-scheduler, over its extender protocol."""

from __future__ import annotations

import logging
from typing import Any, Final

import click

from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_in_loop
from engine.cli.stopping import until_told

_PORT: Final = 8888


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
@click.option(
    "--port",
    "secure_port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    default=_PORT,
    show_default=True,
    help="Port of the questions, and of /livez, /readyz, /metrics.",
)
@click.option(
    "--bind-address",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Where that is; whoever reaches it may ask, without --client-ca-file.",
)
@click.option("--plain-http", is_flag=True, help="HTTP instead of HTTPS.")
@click.option("--tls-cert-file", metavar="FILE", default="", help="A certificate.  [default: own]")
@options.KEY
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
def command(*, verbosity: int, url: str | None, print_config: bool, **flags: Any) -> None:  # noqa: ANN401 - each has its own type
    """Answers until SIGTERM or SIGINT; decides and writes nothing itself."""
    if print_config:
        click.echo(stanza(url or _url_of(flags)), nl=False)
        return
    from engine.config import ConfigError
    from engine.serving.certificates import CertificateError
    from engine.serving.server import ListenError

    log_of_a_process(verbosity, as_json=False)
    try:
        run_in_loop(_run(_options(flags)))
    except (ConfigError, CertificateError, ListenError) as wrong:
        raise click.ClickException(str(wrong)) from wrong


def stanza(url: str) -> str:
    """What goes into the KubeSchedulerConfiguration of the stock scheduler."""
    import yaml

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


def _url_of(flags: dict[str, Any]) -> str:
    scheme = "http" if flags["plain_http"] else "https"
    return f"{scheme}://{flags['bind_address']}:{flags['secure_port']}"


def _options(flags: dict[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """What the flags say.

    Raises:
        ConfigError: it cannot be done.
    """
    import msgspec

    from engine.advising import PATHS
    from engine.app import RunOptions
    from engine.cli.run import warn_of_folder, with_flags
    from engine.config import (
        ConfigError,
        EnabledPlugin,
        PluginsDocument,
        PluginSet,
        ProfileDocument,
        load,
    )
    from engine.sections import LeaderElection

    settings = with_flags(load(flags["config"]), {**flags, "scheduler_name": None})
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
    profile = ProfileDocument(scheduler_name=flags["scheduler_name"], plugins=only)
    settings = settings.model_copy(
        update={
            "profiles": (profile,),
            "extenders": (),
            "election": LeaderElection(leader_elect=False),
            "delay_cache": False,
        }
    )
    more = {
        "cert_dir": "",
        "tls_min_version": "VersionTLS12",
        "authorization_always_allow_paths": ",".join(("/healthz", "/readyz", "/livez", *PATHS)),
    }
    serving = runflags.server_options({**flags, **more})
    plain, client_ca = flags["plain_http"], flags["client_ca_file"]
    if plain and client_ca:
        raise ConfigError("--client-ca-file needs HTTPS: leave --plain-http out")
    serving = msgspec.structs.replace(serving, plain=plain, client_ca=client_ca)
    return RunOptions(settings, flags["kubeconfig"], serving=serving, advises=True)


async def _run(options: Any) -> None:  # noqa: ANN401 - see engine.cli
    from engine.advising import unsaid
    from engine.app import App, Hooks
    from engine.clock import SystemClock

    log = logging.getLogger("engine")

    def tell(bundle: Any) -> None:  # noqa: ANN401 - see engine.cli
        for line in unsaid(bundle.plans):
            log.warning("%s", line)

    app = App(options, clock=SystemClock(), hooks=Hooks(accepted=[tell]))
    with until_told() as stop:
        await app.run(stop)
