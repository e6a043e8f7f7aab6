"""Pods that start together: `running.Gangs` tries them, `turn` has what it works on."""

from engine.gangs.holds import waits_alone
from engine.gangs.running import Gangs

__all__ = ["Gangs", "waits_alone"]
