"""DefaultBinder: the pod is bound by the scheduler's own Binding, which needs nobody's say.

Source: kubernetes plugins/defaultbinder/default_binder.go.
"""

from __future__ import annotations

from typing import Final

from engine.framework.interface import Points


class DefaultBinder:
    """Stands in profiles for the way in which pods are bound where nobody says another."""

    name: Final = "DefaultBinder"

    def points(self) -> Points:
        """None of its own: what it would say is what happens anyway."""
        return Points()
