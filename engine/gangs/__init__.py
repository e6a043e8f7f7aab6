"""Pods that start together: `running.Gangs` tries them, `turn` has what it works on."""

from engine.gangs.running import Gangs
from engine.gangs.turn import Chosen, Refused

__all__ = ["Chosen", "Gangs", "Refused"]
