"""HTTPS of our own: health, metrics and pages that say how the scheduler is.

Knows nothing of scheduling: whoever composes it hands it checks, pages and a `Telemetry`.
"""
