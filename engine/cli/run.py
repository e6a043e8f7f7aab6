"""`berth run`: the scheduler against a cluster."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click

from engine.cli import options, runflags
from engine.cli.logs import VERBOSITY, log_of_a_process
from engine.cli.loop import run_in_loop
from engine.cli.private import open_private
from engine.cli.stopping import on_signal, until_told

_WHY = 5
"""The level of the log from which it says why."""


@click.command("run", help="Run the scheduler against a cluster.")
@options.KUBECONFIG
@click.option("--config", metavar="FILE", help="Configuration file.")
@options.POLICIES
@options.POLICY_CONFIGMAP
@click.option("--scheduler-name", metavar="NAME", help="Name that pods ask for.  [default: berth]")
@runflags.election
@options.PROMETHEUS_URL
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a journal that `berth replay` can check.",
)
@runflags.serving
@click.option(
    "--pod-max-in-unschedulable-pods-duration",
    metavar="DURATION",
    default="5m",
    help="After so long a pod that fits nowhere is tried again all the same.  [default: 5m]",
)
@click.option("--write-config-to", metavar="FILE", help="Write the configuration, and end.")
@options.LOGGING_FORMAT
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=VERBOSITY,
    metavar="LEVEL",
    default="2",
    help="0: no line a pod; 2: one; 4: more; 5: also why it went there.  [default: 2]",
)
@runflags.stock
def command(
    *,
    config: str | None,
    record: Path | None,
    verbosity: int,
    logging_format: str,
    **flags: Any,  # noqa: ANN401 - each has its own type
) -> None:
    """Runs until SIGTERM or SIGINT, then ends cleanly."""
    from engine.config import ConfigError, load
    from engine.extenders.asking import Extenders
    from engine.plugins.profiles import make_profiles

    log_of_a_process(verbosity, as_json=logging_format == "json")
    try:
        settings = with_flags(load(config), flags)
        notes = runflags.notes(flags)
        make_profiles(settings, config)  # before a journal is overwritten
        Extenders(settings.extenders)  # their certificates are read
    except ConfigError as wrong:
        raise click.ClickException(str(wrong)) from wrong
    for note in (*(f"{config}: {one}" for one in settings.notes), *notes):
        logging.getLogger("engine").warning("%s", note)
    if flags["write_config_to"]:
        _write_configuration(settings, flags["write_config_to"])
        return
    warn_of_folder(settings.berth.policies.dir)
    with contextlib.ExitStack() as open_files:
        try:
            journal = open_files.enter_context(open_private(record)) if record else None
        except OSError as failed:
            raise click.ClickException(
                f"{record}: cannot be written: {failed.strerror}"
            ) from failed
        _run_to_the_end(settings, flags, journal, why=verbosity >= _WHY)


def with_flags(settings: Any, flags: dict[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """Flags win over the file.

    Raises:
        ConfigError: flags contradict each other.
    """
    from engine.config import ConfigError, PrometheusSection, parse
    from engine.policysections import PoliciesSection

    folder, config_map = flags["policies"], flags["policy_configmap"]
    if folder and config_map:
        raise ConfigError("--policies and --policy-configmap exclude each other; give one")
    if config_map:
        parse("--policy-configmap", PoliciesSection, {"configMap": config_map})
    berth = settings.berth
    if folder or config_map:
        policies = berth.policies.model_copy(
            update={"dir": folder, "config_map": config_map, "sources": []}
        )
        berth = berth.model_copy(update={"policies": policies})
    if flags["prometheus_url"]:
        asked = parse("--prometheus-url", PrometheusSection, {"url": flags["prometheus_url"]})
        prometheus = berth.prometheus.model_copy(update={"url": asked.url})
        berth = berth.model_copy(update={"prometheus": prometheus})
    update: dict[str, Any] = {"berth": berth}
    if flags["scheduler_name"]:
        if len(settings.profiles) > 1:
            raise ConfigError("--scheduler-name is for one profile, and the file has several")
        [only] = settings.profiles
        named = only.model_copy(update={"scheduler_name": flags["scheduler_name"]})
        update["profiles"] = (named,)
    longest = flags.get("pod_max_in_unschedulable_pods_duration")
    if longest:
        update["max_in_unschedulable_seconds"] = _seconds(longest)
    return runflags.with_election(settings.model_copy(update=update), flags)


def _seconds(duration: str) -> float:
    from engine.config import ConfigError
    from engine.sections import duration_of, seconds

    try:
        return seconds(duration_of(duration))
    except ValueError as wrong:
        raise ConfigError(f"--pod-max-in-unschedulable-pods-duration: {wrong}") from wrong


def warn_of_folder(folder: str | None) -> None:
    """Says at once what would else be said when the cluster is there."""
    from engine.policy.sources import SUFFIX, policies_in

    files = {} if folder is None else policies_in(Path(folder))
    if folder is not None and not files:
        wrong = "is not there" if files is None else f"has no file whose name ends in {SUFFIX}"
        logging.getLogger("engine").warning(
            "folder %s %s: no pod is scheduled until it has one", folder, wrong
        )


def _write_configuration(settings: Any, path: str) -> None:  # noqa: ANN401 - see engine.cli
    import yaml

    from engine.front import configuration

    documents = configuration(settings).values()
    try:
        Path(path).write_text(yaml.safe_dump_all(documents, sort_keys=False), "utf-8")
    except OSError as failed:
        raise click.ClickException(f"{path}: cannot be written: {failed.strerror}") from failed


def _run_to_the_end(settings: Any, flags: dict[str, Any], journal: Any, *, why: bool) -> None:  # noqa: ANN401 - see engine.cli
    from engine.kube.errors import LeaseLost
    from engine.serving.certificates import CertificateError
    from engine.serving.server import ListenError

    try:
        run_in_loop(_run(settings, flags, journal, why=why))
    except (CertificateError, ListenError) as wrong:
        raise click.ClickException(str(wrong)) from wrong
    except LeaseLost as lost:
        # As kube-scheduler: whoever restarts us gets a follower that knows nothing wrong.
        logging.getLogger("engine").critical("Leader election lost: %s", lost)
        sys.exit(1)


async def _run(settings: Any, flags: dict[str, Any], journal: Any, *, why: bool) -> None:  # noqa: ANN401 - see engine.cli
    from engine.app import App, RunOptions
    from engine.clock import SystemClock

    serving = runflags.server_options(flags)
    options = RunOptions(settings, flags["kubeconfig"], journal, why, serving)
    app = App(options, clock=SystemClock())
    with until_told() as stop, on_signal(signal.SIGUSR2, app.comparer.ask):
        await app.run(stop)
    logging.getLogger("engine").info("Stopped; no binding is in flight")
