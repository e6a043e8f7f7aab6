"""Measurements as tables for people; ratios against the other side of the same run stand out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.bench.measure import Measurement

REQUIRED_DECISIONS = 3000
REQUIRED_OF = {"nodes": 5000, "workload": "new class each", "rules": "two policies"}
COLUMNS = {
    "engine": (
        ("decisions_per_second", "decisions/s", "{:,.0f}"),
        ("best_decisions_per_second", "best pass", "{:,.0f}"),
        ("p50_us", "p50 us", "{:,.0f}"),
        ("p99_us", "p99 us", "{:,.0f}"),
        ("rss_mib", "RSS MiB", "{:,.0f}"),
    ),
    "cluster": (
        ("pods_per_second", "pods/s", "{:,.4g}"),
        ("with_events_per_second", "with Events/s", "{:,.4g}"),
        ("cpu_ms_a_pod", "CPU ms/pod", "{:.2f}"),
        ("cpu_ms_a_pod_with_events", "with Events", "{:.2f}"),
        ("apiserver_cpu_ms_a_pod", "apiserver ms/pod", "{:.2f}"),
        ("rss_mib", "RSS MiB", "{:,.3g}"),
    ),
    "language": (
        ("us", "us", "{:,.4g}"),
        ("other_us", "other us", "{:,.4g}"),
        ("ratio", "ratio", "{:.2f}"),
    ),
}
TITLES = {
    "engine": "Engine alone, in process (by CPU time of the thread; medians of passes)",
    "cluster": "End to end on a real API server (medians of alternating runs; ratios run by run)",
    "language": "Small things (medians)",
}


def show(console: Console, part: str, rows: Sequence[Measurement]) -> None:
    """Prints one part."""
    table = Table(title=TITLES[part], title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for _, heading, _ in COLUMNS[part]:
        table.add_column(heading, justify="right")
    if part == "language":
        table.add_column("against")
        table.add_column("at most", justify="right")
    for row in rows:
        cells = [
            form.format(row.values[key]) if key in row.values else ""
            for key, _, form in COLUMNS[part]
        ]
        if part == "language":
            cells.append(str(row.tags.get("other", "")))
            cells.append(bound_of(row))
        style = "bold" if "ratio" in row.tags else None
        table.add_row(row.name, *cells, style=style)
    console.print(table)
    console.print()


def bound_of(row: Measurement) -> str:
    """What a small thing may take, in words; empty where nothing is required."""
    if "at_most" in row.tags:
        return f"{row.tags['at_most']:g} times"
    return f"{row.tags['us_at_most']:,g} us" if "us_at_most" in row.tags else ""


def requirements(rows: Sequence[Measurement]) -> list[tuple[str, bool]]:
    """What has to hold, as far as it was measured: in words, and whether it does."""
    found = []
    for row in rows:
        if REQUIRED_OF.items() <= row.tags.items():
            rate = row.values["decisions_per_second"]
            text = f"5,000 nodes, every pod a new class: {rate:,.0f} decisions/s"
            found.append((f"{text}, at least {REQUIRED_DECISIONS:,}", rate >= REQUIRED_DECISIONS))
        for key, value in (("at_most", "ratio"), ("us_at_most", "us")):
            if key in row.tags:
                bound, number = float(row.tags[key]), row.values[value]
                text = f"{row.name}: {number:,.3g}, at most {bound_of(row)}"
                found.append((text, number <= bound))
        if row.part == "cluster" and "ratio" in row.tags:
            ratio = row.values["pods_per_second"]
            found.append((f"{row.name}: {ratio:.2f} times its pods/s, more than 1", ratio > 1))
    return found
