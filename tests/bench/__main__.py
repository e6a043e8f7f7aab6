"""`python -m tests.bench`: measures, prints tables on stderr, and JSON lines if asked for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, TextIO

import click
from rich.console import Console

from tests.bench import cluster, compiling, decisions, language, report, several
from tests.bench.measure import Measurement

PARTS = ("engine", "language", "cluster")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    type=click.Choice(PARTS),
    multiple=True,
    help="Measure this part alone (may be repeated).",
)
@click.option("--quick", is_flag=True, help="Under a minute: fewer passes, a smaller cluster.")
@click.option(
    "--json",
    "out",
    type=click.File("w"),
    help="Write one JSON object a measurement to this file as it is taken; `-` is stdout.",
)
def main(*, only: tuple[str, ...], quick: bool, out: TextIO | None) -> None:
    """Measures Berth; tables go to stderr, JSON lines where --json says.

    engine: decisions in process, no I/O. language: small things against bare NumPy, what loading
    costs, gangs, quotas, shadow and records. cluster: Berth and kube-scheduler in turn on a real
    kube-apiserver and etcd; it needs Go or the programs that `make test` builds, and is left out in
    one line without.

    Numbers drift with the machine: compare ratios within one run. Ends with exit 1 if something
    that is required does not hold.
    """
    console = Console(stderr=True, width=130, highlight=False)
    began = time.monotonic()
    rows: list[Measurement] = []
    for part in PARTS:
        if only and part not in only:
            continue
        if part == "cluster" and (why := cluster.missing()):
            console.print(f"cluster part not run: {why}")
            continue
        taken = list(_written(_measure(part, quick=quick), out))
        report.show(console, part, taken)
        rows.extend(taken)
    failed = False
    for text, holds in report.requirements(rows):
        console.print(f"{'holds' if holds else 'DOES NOT HOLD'}: {text}")
        failed |= not holds
    console.print(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


def _measure(part: str, *, quick: bool) -> Iterator[Measurement]:
    match part:
        case "engine":
            return decisions.measure(decisions.QUICK if quick else decisions.Sizes())
        case "language":
            return chain(
                language.measure(language.QUICK if quick else language.Sizes()),
                compiling.measure(compiling.QUICK if quick else compiling.Sizes()),
                several.measure(several.QUICK if quick else several.Sizes()),
            )
        case _:
            return cluster.measure(cluster.QUICK if quick else cluster.Sizes())


def _written(rows: Iterator[Measurement], out: TextIO | None) -> Iterator[Measurement]:
    for row in rows:
        if out is not None:
            entry: dict[str, Any] = row.as_json()
            out.write(json.dumps(entry) + "\n")
            out.flush()
        yield row


if __name__ == "__main__":
    main()
