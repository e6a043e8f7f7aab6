"""Checks and what is said of them, at /livez, /readyz and /healthz and one by one below.

The words are kube-scheduler's: a check that failed is named, why is for the log and for those who
may read more than an anonymous request.

Source: k8s.io/apiserver pkg/server/healthz/healthz.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec


class Check(msgspec.Struct, frozen=True):
    """Something that is well or not: `wrong` says what is, empty while all is well."""

    name: str
    wrong: Callable[[], str]


PING = Check("ping", lambda: "")


class Verdict(msgspec.Struct, frozen=True):
    """What is said of some checks; `why` is for the log."""

    text: str
    why: str = ""

    @property
    def well(self) -> bool:
        """Whether nothing failed."""
        return not self.why


def told(
    group: str, checks: Sequence[Check], *, verbose: bool = False, exclude: Collection[str] = ()
) -> Verdict:
    """What is said of the checks of a group, such as `readyz`; without those that are excluded."""
    lines, faults = [], []
    for check in checks:
        if check.name in exclude:
            lines.append(f"[+]{check.name} excluded: ok")
        elif why := check.wrong():
            lines.append(f"[-]{check.name} failed: reason withheld")
            faults.append(f"{check.name}: {why}")
        else:
            lines.append(f"[+]{check.name} ok")
    known = {check.name for check in checks}
    unknown = sorted(set(exclude) - known)
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    listed = "\n".join(lines)
    if faults:
        return Verdict(f"{listed}\n{group} check failed\n", "; ".join(faults))
    return Verdict(f"{listed}\n{group} check passed\n" if verbose else "ok")
