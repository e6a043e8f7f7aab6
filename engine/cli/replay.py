"""`berth replay`: the decisions of a journal made again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from dsl.compiler import Compiler
from engine.cli import options
from engine.cli.refusals import reported
from engine.configuration.settings import ConfigError, Settings
from engine.framework.runtime import Frameworks
from engine.journal.replay import FrameworksOf, replay
from engine.plugins.profiles import make_profiles
from engine.policy import chain
from engine.policy.bundle import NO_POLICIES, Bundle, compile_at_once, compile_settings
from engine.policy.findings import new_compiler
from engine.policy.sources import Texts
from engine.text.display import plain


def frameworks_of(instead: Texts | None = None) -> FrameworksOf:
    """What makes the frameworks of a journal's rules and settings, for `journal.replay`.

    With other texts `instead` of the rules of the journal, under its settings. It raises
    click.ClickException for rules and profiles that this version refuses, and ValueError for
    settings that are none.
    """
    compiler = new_compiler()

    def frameworks(files: Texts, settings: Mapping[str, str]) -> Frameworks:
        read = Settings.model_validate_json(settings.get("settings", ""))
        return ruled(read, files if instead is None else instead, compiler)[0]

    return frameworks


def ruled(settings: Settings, files: Texts | None, compiler: Compiler) -> tuple[Frameworks, Bundle]:
    """What decides under these settings and policies.

    Raises:
        click.ClickException: this version refuses the profiles or the policies.
    """
    with reported(ConfigError):
        profiles = make_profiles(settings)
    bundle = NO_POLICIES
    if files:
        made = compile_at_once(compiler, files, compile_settings(settings.berth, profiles))
        if not isinstance(made, Bundle):
            raise click.ClickException(made.text)
        bundle = made
    return chain.frameworks_of(profiles, bundle, worlds=chain.worlds_of(settings.berth)), bundle


@click.command("replay", help="Replay the decisions of a journal and compare.")
@click.argument("journal", type=options.READABLE, metavar="JOURNAL")
@reported(ValueError)
def command(journal: Path) -> None:
    """Exit 1 if any decision comes out differently."""
    report = replay(journal, frameworks_of())
    for difference in report.differences:
        click.echo(plain(difference))
    if report.cut:
        click.echo("the last line is cut off (was Berth killed?) and was skipped", err=True)
    click.echo(f"{report.decisions} decisions replayed, {report.equal} the same")
    if report.differences:
        sys.exit(1)
