"""State: the cluster as columns, with assume and forget; snapshots are views of it."""
