"""How long a batch will take: fixed cost + cost per token, estimated from the batches before it."""

from __future__ import annotations

DECAY = 0.95
"""Weight of an earlier batch relative to the next one: the last twenty batches decide, some seconds of work."""

SHRINK = 0.01
"""Pulls the slope towards proportionality. Without it the two costs could not be told apart where all batches have the
same size."""

MOST_SURPRISE = 4.0
SURPRISE_FLOOR = 0.05
"""An observation counts for at most this many times what was expected, plus these seconds: the first batch loads
libraries, and must not make a service refuse requests for minutes."""


class ServiceTime:
    """A running least-squares estimate of seconds = fixed + per_token · tokens.

    It starts from 0.2 ms per token, between a static encoder and a transformer on one core.
    """

    def __init__(self) -> None:
        self._weight, self._x, self._y, self._xx, self._xy = 1.0, 500.0, 0.1, 500.0**2, 500.0 * 0.1
        self.fixed, self.per_token = 0.0, 0.0002

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a batch."""
        seconds = min(seconds, MOST_SURPRISE * self.predict(tokens) + SURPRISE_FLOOR)
        self._weight = DECAY * self._weight + 1
        self._x = DECAY * self._x + tokens
        self._y = DECAY * self._y + seconds
        self._xx = DECAY * self._xx + tokens * tokens
        self._xy = DECAY * self._xy + tokens * seconds
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        proportional = mean_y / mean_x
        pull = SHRINK * mean_x * mean_x
        variance = max(self._xx / self._weight - mean_x * mean_x, 0.0)
        covariance = self._xy / self._weight - mean_x * mean_y
        slope = (covariance + pull * proportional) / (variance + pull)
        self.per_token = min(max(slope, 0.0), proportional)  # both costs are positive
        self.fixed = mean_y - self.per_token * mean_x

    def predict(self, tokens: float, batches: float = 1) -> float:
        """Seconds for this many tokens in this many batches."""
        return self.fixed * batches + self.per_token * tokens
