"""Kubernetes timestamps as epoch seconds."""

from __future__ import annotations

from datetime import datetime


def epoch_seconds(text: str | None) -> float:
    """Seconds since the epoch, NaN if there is no text or it is no RFC 3339 time. Never raises."""
    if not text:
        return float("nan")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("nan")
