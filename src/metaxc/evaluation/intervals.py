"""Confidence intervals and significance tests by bootstrap over queries.

Queries are drawn with replacement. A resample is represented by how often it contains each query, so all metrics of all
resamples of a block are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from metaxc.arrays import Doubles
from metaxc.errors import ConfigError, DataError

SIGNIFICANCE_LEVEL = 0.05
PAIRED_RESAMPLES = 1_999
"""Of a paired test among many (a row of a table each); the smallest p is 0.0005."""

BLOCK = 4_000_000
"""Counts in memory at once, 8 bytes each: 100 resamples of 40,000 queries are 32 MB."""


def bootstrap(
    values: Doubles,
    resamples: int = 1000,
    seed: int = 0,
    *,
    possible: Doubles | None = None,
    derive: Callable[[Doubles], Doubles] | None = None,
    confidence: float = 0.95,
) -> tuple[Doubles, Doubles]:
    """Percentile confidence intervals of means over queries.

    Args:
        values: (queries, metrics) float64, one row per query.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples; the same seed draws the same queries for any values.
        possible: (queries, metrics) float64; when given, the statistic is sum(values) / sum(possible)
            instead of the mean (PSP@k, see `metaxc.metrics.PerQuery`). A resample in which nothing is possible
            is left out.
        derive: Computes further statistics of each resample from its metrics, such as a harmonic mean:
            (n, metrics) float64 -> (n, derived) float64. Their intervals follow those of the metrics.
        confidence: Share of the resamples inside the interval.

    Returns:
        low and high, (metrics,) float64 each; with `derive`, (metrics + derived,).
    """
    _check(values, 2, resamples)
    if possible is not None and possible.shape != values.shape:
        raise DataError(
            "The values and the possible values differ in shape", got=possible.shape, expected=values.shape
        )
    queries = len(values)
    statistics = []
    for counts in _resample_counts(queries, resamples, seed):
        total = counts @ values
        if possible is None:
            statistic = total / queries
        else:
            with np.errstate(invalid="ignore"):  # 0 / 0: nothing is possible in the resample
                statistic = total / (counts @ possible)
        statistics.append(statistic if derive is None else np.column_stack([statistic, derive(statistic)]))
    tail = (1.0 - confidence) / 2.0
    low, high = np.nanquantile(np.concatenate(statistics), [tail, 1.0 - tail], axis=0)
    return low, high


class PairedDifference(NamedTuple):
    """The difference a − b of two systems' means over the same queries.

    Args:
        difference: The mean of a − b.
        low, high: Its 95 % interval.
        p: p-value of "no difference", from a paired bootstrap.
        significant: Whether p is below 0.05.
    """

    difference: float
    low: float
    high: float
    p: float
    significant: bool

    @property
    def below(self) -> bool:
        """Whether a is below b beyond the interval."""
        return self.high < 0


def paired_interval(a: Doubles, b: Doubles, seed: int = 0) -> PairedDifference:
    """Compare two systems on the same queries.

    Args:
        a, b: (queries,) a metric of two systems, the same query at the same position.
        seed: Seed of the resamples.

    Example:
        >>> paired_interval(np.array([0.0, 50.0, 0.0, 50.0]), np.array([50.0, 100.0, 50.0, 100.0])).below
        True
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    p = paired_bootstrap(a, b, PAIRED_RESAMPLES, seed)
    low, high = bootstrap((a - b)[:, None], seed=seed)
    return PairedDifference(float((a - b).mean()), float(low[0]), float(high[0]), p, p < SIGNIFICANCE_LEVEL)


def paired_bootstrap(a: Doubles, b: Doubles, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of "a and b have the same mean", from the same queries answered twice.

    The differences are shifted to a mean of 0 and resampled. p is the share of resamples whose mean is at least as
    far from 0 as the observed mean, which itself counts as a resample (so p is never 0).

    Args:
        a, b: (queries,) float64, a metric of two systems, the same query at the same position.
        resamples: Number of bootstrap resamples; the smallest p is 1 / (resamples + 1).
        seed: Seed of the resamples.
    """
    if a.shape != b.shape:
        raise DataError(
            "A paired test needs the same queries on both sides",
            got=f"shapes {a.shape} and {b.shape}",
            expected="one value per query, in the same order",
        )
    difference = a - b
    _check(difference, 1, resamples)
    observed = difference.mean()
    centred = difference - observed
    # Resampled means often equal the observed one exactly; rounding errors must not decide the comparison.
    threshold = abs(observed) - 1e-12 * np.abs(difference).max()
    extreme = sum(
        int((np.abs(counts @ centred) / len(centred) >= threshold).sum())
        for counts in _resample_counts(len(centred), resamples, seed)
    )
    return (extreme + 1) / (resamples + 1)


def _resample_counts(queries: int, resamples: int, seed: int) -> Iterator[Doubles]:
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
            "There are no values to resample",
            got=f"shape {values.shape}",
            expected="shape (queries, metrics)" if axes == 2 else "shape (queries,), at least one query",
        )
    if resamples < 1:
        raise ConfigError("The number of resamples is out of range", got=resamples, expected="at least 1")
