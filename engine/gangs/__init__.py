"""Pods that start together: `cycle.Gangs` tries them, `holds` has what it works on."""

from engine.gangs.cycle import Gangs
from engine.gangs.holds import waits_alone

__all__ = ["Gangs", "waits_alone"]
