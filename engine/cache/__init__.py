"""State: the cluster as columns, with assume and forget; snapshots are views of it.

Plugins see what reads of it, by the names in `engine.framework.snapshot`.
"""

from engine.cache.cache import Cache
from engine.cache.snapshot import Snapshot

__all__ = ["Cache", "Snapshot"]
