"""How sure a number is: bootstrap over queries.

Queries are drawn with replacement; a draw is kept as how often it took each query, so all metrics of all
resamples of a block are one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from metaxc.arrays import Doubles
from metaxc.errors import ConfigError, DataError

# Counts held at once, 8 bytes each: 100 resamples of 40,000 queries are 32 MB.
BLOCK = 4_000_000


def bootstrap(
    values: Doubles,
    resamples: int = 1000,
    seed: int = 0,
    *,
    possible: Doubles | None = None,
    confidence: float = 0.95,
) -> tuple[Doubles, Doubles]:
    """Percentile confidence intervals of means over queries.

    Args:
        values: (queries, metrics) float64, one row per query.
        resamples: How many times the queries are drawn again.
        seed: Of the draws; the same seed draws the same queries, whatever the values.
        possible: (queries, metrics) float64; when given, the statistic is sum(values) / sum(possible)
            and not the mean (PSP@k, see `metaxc.metrics.PerQuery`).
        confidence: Share of the resamples inside the interval.

    Returns:
        low and high, (metrics,) float64 each.
    """
    _check(values, 2, resamples)
    if possible is not None and possible.shape != values.shape:
        raise DataError(
            "Doubles and what was possible differ in shape", got=possible.shape, expected=values.shape
        )
    queries = len(values)
    drawn = []
    for counts in _draws(queries, resamples, seed):
        total = counts @ values
        drawn.append(total / (queries if possible is None else counts @ possible))
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(np.concatenate(drawn), [tail, 1.0 - tail], axis=0)
    return low, high


def paired_bootstrap(a: Doubles, b: Doubles, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of "a and b have the same mean", from the same queries answered twice.

    The differences are shifted to a mean of 0 and drawn again; p is the share of resamples whose mean is at
    least as far from 0 as the one seen, the one seen counting as a resample (so p is never 0).

    Args:
        a, b: (queries,) float64, a metric of two systems, the same query in the same place.
        resamples: How many times the queries are drawn again; the smallest p is 1 / (resamples + 1).
        seed: Of the draws.
    """
    if a.shape != b.shape:
        raise DataError(
            "A paired test needs the same queries on both sides",
            got=f"shapes {a.shape} and {b.shape}",
            expected="one value per query, in the same order",
        )
    difference = a - b
    _check(difference, 1, resamples)
    seen = difference.mean()
    centred = difference - seen
    # Resampled means sit on a lattice with the one seen; rounding must not decide who is farther.
    bar = abs(seen) - 1e-12 * np.abs(difference).max()
    extreme = sum(
        int((np.abs(counts @ centred) / len(centred) >= bar).sum())
        for counts in _draws(len(centred), resamples, seed)
    )
    return (extreme + 1) / (resamples + 1)


def _draws(queries: int, resamples: int, seed: int) -> Iterator[Doubles]:
    """Blocks of (resamples in the block, queries) float64: how often each query was drawn."""
    generator = np.random.default_rng(seed)
    block = max(1, BLOCK // queries)
    for start in range(0, resamples, block):
        counts = np.empty((min(block, resamples - start), queries))
        for row in counts:
            row[:] = np.bincount(generator.integers(queries, size=queries), minlength=queries)
        yield counts


def _check(values: Doubles, axes: int, resamples: int) -> None:
    if values.ndim != axes or not len(values):
        raise DataError(
            "There is nothing to resample",
            got=f"shape {values.shape}",
            expected="shape (queries, metrics)" if axes == 2 else "shape (queries,), at least one query",
        )
    if resamples < 1:
        raise ConfigError("The number of resamples is out of its range", got=resamples, expected="at least 1")
