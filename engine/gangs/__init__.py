"""Pods that start together: `running.Gangs` tries them, `turn` has what it works on."""

from engine.gangs.holds import waits_alone
from engine.gangs.running import Gangs
from engine.gangs.telling import Telling

__all__ = ["Gangs", "Telling", "waits_alone"]
