"""What became of each mutant, judged by hand in equivalent.txt; a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.forks import Outcome, Verdict
from tests.mutants.operators import Mutant

ARGUED = "argued"
COLUMNS = ("generated", *(one.value for one in Outcome), ARGUED, "not run", "open")


Results = dict[Mutant, Verdict]
Key = tuple[str, str, str, str]


def key_of(mutant: Mutant) -> Key:
    return mutant.path, mutant.name, mutant.source, mutant.what


class Equivalent:
    """Mutants that no test can tell from the code: file, function, line, change, reason, by tabs.

    Changes of a line for one reason stand together, "; " between them; the same change twice on a
    line has one judgement.
    """

    def __init__(self, file: Path) -> None:
        self.reasons: dict[Key, str] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("# "):
                path, name, source, changes, reason = line.split("\t")
                for what in changes.split("; "):
                    self.reasons[path, name, source, what] = reason

    def reason(self, mutant: Mutant) -> str | None:
        return self.reasons.get(key_of(mutant))

    def stale(self, mutants: Iterable[Mutant]) -> list[Key]:
        """The judgements of lines or changes that are no more, of the files of these mutants."""
        some = list(mutants)
        there = {key_of(one) for one in some}
        paths = {one.path for one in some}
        return [one for one in self.reasons if one[0] in paths and one not in there]


@dataclass(frozen=True)
class Report:
    """The mutants of some files and what is known of them."""

    mutants: Mapping[str, Sequence[Mutant]]
    results: Results
    equivalent: Equivalent

    @property
    def open(self) -> list[tuple[Mutant, str]]:
        """Those neither killed nor argued, with their outcome."""
        some = [(one, self._outcome(one)) for each in self.mutants.values() for one in each]
        closed = (Outcome.KILLED.value, Outcome.TIMEOUT.value, ARGUED)
        return [(one, outcome) for one, outcome in some if outcome not in closed]

    @property
    def killed_though_argued(self) -> list[tuple[Mutant, str]]:
        """Judgements that a test has disproved."""
        some = [one for each in self.mutants.values() for one in each]
        argued = [one for one in some if self.equivalent.reason(one)]
        still = {key_of(one) for one in argued if self._outcome(one) == ARGUED}
        found = [(one, self.results.get(one)) for one in argued if key_of(one) not in still]
        return [(one, result.test) for one, result in found if result]

    def table(self) -> str:
        """Markdown: a line for each file, and one for all."""
        lines = [f"| file | {' | '.join(COLUMNS)} |", f"|{'---|' * (len(COLUMNS) + 1)}"]
        whole: Counter[str] = Counter()
        for path, some in self.mutants.items():
            counts = Counter(self._outcome(one) for one in some)
            counts["open"] = sum(path == one.path for one, _ in self.open)
            counts["generated"] = len(some)
            whole += counts
            lines.append(_row(path, counts))
        return "\n".join([*lines, _row("all", whole)])

    def _outcome(self, mutant: Mutant) -> str:
        result = self.results.get(mutant)
        if result is not None and not result.outcome.is_open:
            return result.outcome.value
        if self.equivalent.reason(mutant):
            return ARGUED
        return result.outcome.value if result is not None else "not run"


def _row(name: str, counts: Mapping[str, int]) -> str:
    return f"| {name} | {' | '.join(str(counts.get(one, 0)) for one in COLUMNS)} |"
