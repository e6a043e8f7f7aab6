"""Configuration files as checked values. Reads no policy, makes no plugin, asks no server."""
