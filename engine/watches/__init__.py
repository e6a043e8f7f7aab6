"""What policies read beside nodes and pods, watched while one of them reads it."""

from engine.watches.watcher import Watcher

__all__ = ["Watcher"]
