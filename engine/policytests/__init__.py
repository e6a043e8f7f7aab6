"""Policy tests run: fixtures become a cluster in memory, real plugins answer, the language judges.

Reads the test files, policies and manifests it is told to, nothing else; no clock, no network.
"""
