"""Pods that start together: `running.Gangs` tries them, `turn` has what it works on."""

from engine.gangs.running import Gangs

__all__ = ["Gangs"]
