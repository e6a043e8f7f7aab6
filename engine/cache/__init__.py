"""State: the cluster as columns, with assume and forget; snapshots are views of it."""

from engine.cache.cache import Cache, CacheSnapshot

__all__ = ["Cache", "CacheSnapshot"]
