"""What policies read beside nodes and pods, watched while one of them reads it."""

from engine.watching.watching import Watching

__all__ = ["Watching"]
