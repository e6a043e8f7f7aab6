"""The common ways from raw scores to 0..100, in the whole numbers kube-scheduler computes with.

Source: kubernetes plugins/helper/normalize_score.go.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.interface import Scores

MAX_SCORE: Final = 100.0


def by_maximum(scores: Scores, *, reverse: bool = False) -> Scores:
    """The highest score becomes 100 (0 if reversed), the others their part of it, truncated.

    Without any positive score all stay as they are, or become 100 if reversed.
    """
    highest = float(scores.max(initial=0.0))
    if highest == 0.0:
        return np.full(len(scores), MAX_SCORE) if reverse else scores
    share: Scores = np.trunc(scores * MAX_SCORE / highest)
    return MAX_SCORE - share if reverse else share
