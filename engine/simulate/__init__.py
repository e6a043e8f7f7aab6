"""The scheduler without a cluster: journals and their replay, and a lab that lacks only a server.

Both drive the same cache, plugins and cycle as a running scheduler.
"""
