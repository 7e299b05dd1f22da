"""Scores: what measuring a task under one mask gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The metric of plain text: nats a token. All others are shares, 0 to 1.
LOG_PROB = "log_prob"

# One hopeless item cannot dominate a mean: no answer counts as less likely than exp(-12).
LOG_PROB_FLOOR = -12.0
# Margins of so many nats count as half decided.
MARGIN_SCALE = 0.5
# A gradient of a score (a forward pass and a backward one) takes as long as so many scores.
GRADIENT_COST = 3


@dataclass(frozen=True)
class Score:
    """Scores of one task's items under one mask.

    Attributes
    ----------
    log_prob : ndarray of float, shape (items,)
        Log-probability of the right answer, in nats: of the whole answer; for choices among the
        choices; for plain text the mean over its tokens. For what is only judged as right or
        wrong, `value`.
    value : ndarray of float, shape (items,)
        The task's own metric: 1 for a right answer and 0 for a wrong one, or for plain text
        `log_prob`. Where items count differently in a task's mean, times an item's weight.
    margin : ndarray of float, shape (items,)
        By how much the right answer is likelier than the best other one, in nats: the smallest
        such margin over an answer's tokens, or that over the other choices. Positive where the
        answer is right; zero for plain text.
    """

    log_prob: NDArray[np.float64]
    value: NDArray[np.float64]
    margin: NDArray[np.float64]

    @property
    def search(self) -> float:
        """The search score: mean log-probability of the right answer, floored item by item."""
        return float(self.floored.mean())

    @property
    def floored(self) -> NDArray[np.float64]:
        """Log-probabilities, none below `LOG_PROB_FLOOR`: the search score item by item."""
        return np.maximum(self.log_prob, LOG_PROB_FLOOR)

    @property
    def smooth(self) -> NDArray[np.float64]:
        """How right each answer is, by its margin: one half at zero, one far above it."""
        # Loaded here: the words of tables need this module, but not SciPy.
        from scipy.special import expit

        return np.asarray(expit(self.margin / MARGIN_SCALE))

    @property
    def smooth_accuracy(self) -> float:
        """Mean of `smooth`: close to the accuracy, but it moves before answers flip."""
        return float(self.smooth.mean())

    @property
    def metric(self) -> float:
        """The claim metric: accuracy, or mean log-probability a token."""
        return float(self.value.mean())


def margin_of(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Margins for answers that are only judged, 0 to 1: those whose `Score.smooth` is the value."""
    from scipy.special import logit

    return np.asarray(MARGIN_SCALE * logit(np.clip(value, 1e-6, 1 - 1e-6)))
