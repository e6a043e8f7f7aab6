"""A Kubernetes API subset in the process: others use `EmbeddedCluster` and its `Pace` only."""

from engine.embedded.cluster import EmbeddedCluster, Pace

__all__ = ["EmbeddedCluster", "Pace"]
