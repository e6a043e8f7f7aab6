"""The engine of Berth: cache, queue, plugins, cycle and the edge to the API server."""

__version__ = "0.1.0"
