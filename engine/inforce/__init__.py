"""The policies of one process: their sources, the bundle in force, and who is told of it."""

from engine.inforce.inforce import Callbacks, InForce

__all__ = ["Callbacks", "InForce"]
