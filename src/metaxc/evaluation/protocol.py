"""The two questions a model is asked, and its answers in numbers.

*Zero-shot*: among the novel items only, over test queries that clicked a novel item. *Generalized*: among all
items, over all test queries with a click. The conventions that make two people's P@1 comparable stand in
`CONVENTIONS` and travel with every result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation.intervals import bootstrap
from metaxc.metrics import (
    PROPENSITY_A,
    PROPENSITY_B,
    PerQuery,
    hits,
    inverse_propensities,
    query_values,
    relevant_counts,
)

Search = Callable[[Sequence[str], int, Mask | None], Rows]
"""search(query texts, k, among) -> (queries, k) int64, rows of `dataset.items` best first, -1 for no answer;
`among` is a mask over the items that may be ranked, None for all."""

SETTINGS = ("zero_shot", "generalized")
DEPTH = 100
RESAMPLES = 1000


def conventions(a: float = PROPENSITY_A, b: float = PROPENSITY_B) -> str:
    """What the numbers mean, for propensities with the constants given."""
    return (
        "Percent. Zero-shot ranks the novel items over test queries with a novel relevant item; generalized "
        "ranks all items over test queries with a relevant item; other queries are left out. "
        "P@k divides by k, R@k by the number of relevant items; nDCG@k has binary gains and an ideal of "
        "min(k, relevant) hits. A place without an answer counts 0. Equal scores rank by item order. "
        "Filter pairs are taken out of the ranking and out of the relevant items. "
        "PSP@k is the sum over queries of inverse-propensity gains divided by the sum of the best possible; "
        f"propensities from training clicks with A={a:g}, B={b:g}, novel items counting 0 clicks. "
        f"Intervals: 95 % bootstrap over queries, {RESAMPLES} resamples."
    )


CONVENTIONS = conventions()


@dataclass(frozen=True)
class Evaluation:
    """What a model reached on a data set, by setting ("zero_shot", "generalized").

    Args:
        metrics: Percent by metric's name.
        intervals: (low, high) of the 95 % interval by metric's name, percent; empty if not asked for.
        counts: "queries" judged and "items" ranked.
        seconds: Wall-clock time of the search, encoding of the queries included.
        per_query: (queries,) float64 by metric's name, percent. Their mean is the metric, PSP@k included: its
            gains are divided by the mean of the possible ones, which do not depend on the model. Two models'
            values on one data set therefore go into `paired_bootstrap` as they are.
        queries: Rows in `dataset.test` of the queries judged, in the order of `per_query`.
        conventions: What the numbers mean.
    """

    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    counts: Mapping[str, Mapping[str, int]]
    seconds: Mapping[str, float]
    per_query: Mapping[str, Mapping[str, Doubles]] = field(repr=False)
    queries: Mapping[str, Rows] = field(repr=False)
    conventions: str = field(default=CONVENTIONS, repr=False)

    def __getitem__(self, setting: str) -> Mapping[str, float]:
        """Metrics of a setting: `evaluation["zero_shot"]["P@1"]`."""
        return self.metrics[setting]

    def to_dict(self) -> dict[str, Any]:
        """Plain Python for JSON, without the per-query values."""
        return {
            **{setting: dict(values) for setting, values in self.metrics.items()},
            "intervals": {
                setting: {name: [low, high] for name, (low, high) in ranges.items()}
                for setting, ranges in self.intervals.items()
            },
            "counts": {setting: dict(counts) for setting, counts in self.counts.items()},
            "seconds": dict(self.seconds),
            "conventions": self.conventions,
        }


def evaluate(
    search: Search,
    dataset: Dataset,
    *,
    settings: Sequence[str] = SETTINGS,
    intervals: bool = True,
    seed: int = 0,
    propensity: tuple[float, float] = (PROPENSITY_A, PROPENSITY_B),
) -> Evaluation:
    """Judge a search by the test log of a data set.

    Args:
        search: search(query texts, k, among) -> (queries, k) rows of items, best first; see `Search`.
        dataset: With a test log and novel items.
        settings: Which questions to ask.
        intervals: Whether to compute 95 % confidence intervals.
        seed: Of the bootstrap.
        propensity: A and B of PSP@k; 0.55, 1.5 unless a benchmark has its own (XC: Amazon 0.6, 2.6;
            Wikipedia 0.5, 0.4).
    """
    unknown = [setting for setting in settings if setting not in SETTINGS]
    if unknown or not settings:
        raise ConfigError(
            "Unknown setting", got=unknown or "no setting", expected=f"some of {', '.join(SETTINGS)}"
        )
    test, filters = _judged(dataset)
    weights = _training_weights(dataset, *propensity)
    metrics: dict[str, dict[str, float]] = {}
    ranges: dict[str, dict[str, tuple[float, float]]] = {}
    counts: dict[str, dict[str, int]] = {}
    seconds: dict[str, float] = {}
    per_query: dict[str, dict[str, Doubles]] = {}
    queries: dict[str, Rows] = {}
    for setting in settings:
        among = dataset.novel_mask if setting == "zero_shot" else None
        relevant = _within(test.clicks, among)
        rows = _answerable(relevant, setting)
        left_out = None if filters is None else _within(csr_array(filters[rows]), among)
        started = time.perf_counter()
        ranked = _rank(search, [test.queries.texts[row] for row in rows], among, left_out, relevant.shape[1])
        seconds[setting] = time.perf_counter() - started
        values = query_values(ranked, csr_array(relevant[rows]), inverse_propensity=weights)
        metrics[setting] = {name: value.percent() for name, value in values.items()}
        per_query[setting] = {n: 100.0 * v.gained / v.possible.mean() for n, v in values.items()}
        queries[setting] = rows
        counts[setting] = {
            "queries": len(rows),
            "items": len(dataset.items) if among is None else int(among.sum()),
        }
        if intervals:
            ranges[setting] = _intervals(values, seed)
    return Evaluation(metrics, ranges, counts, seconds, per_query, queries, conventions(*propensity))


def _judged(dataset: Dataset) -> tuple[ClickLog, csr_array | None]:
    """The test log without its filter pairs, and these pairs where there are any."""
    if dataset.test is None:
        raise DataError(
            "The data set has no test queries",
            got=repr(dataset),
            expected="a test log",
            fix="give test queries and clicks, or call metaxc.data.split(dataset)",
        )
    test, filters = dataset.test, dataset.filters
    if filters is not None and filters.shape != test.clicks.shape:
        raise DataError(
            "Filter pairs do not fit the test log",
            got=f"shape {filters.shape}",
            expected=f"shape {test.clicks.shape} (test queries, items)",
        )
    if filters is None or filters.nnz == 0:
        return test, None
    clicks, filters = _ones(test.clicks), _ones(filters)
    kept = csr_array(clicks - clicks.multiply(filters))
    kept.eliminate_zeros()
    return ClickLog(test.queries, kept), filters


def _training_weights(dataset: Dataset, a: float, b: float) -> Doubles:
    """(items,) inverse propensities from what a learner may see; novel items have no clicks there."""
    log = dataset.observed_log()
    clicked = np.zeros(len(dataset.items), dtype=np.int64)
    clicked[dataset.observed_rows] = np.bincount(log.clicks.indices, minlength=log.clicks.shape[1])
    return inverse_propensities(clicked, len(log), a, b)


def _answerable(relevant: csr_array, setting: str) -> Rows:
    rows = np.flatnonzero(relevant_counts(relevant))
    if not len(rows):
        of = "novel item" if setting == "zero_shot" else "item"
        raise DataError(
            f"There is nothing to evaluate in the setting {setting}",
            got=f"{relevant.shape[0]:,} test queries, none with a click on any {of}",
            expected="at least one",
            fix="choose other novel items, or leave this setting out",
        )
    return rows


def _rank(
    search: Search, texts: Sequence[str], among: Mask | None, left_out: csr_array | None, items: int
) -> Rows:
    """(queries, up to DEPTH) rows of items; as deep as asked although filter pairs are dropped."""
    extra = 0 if left_out is None else int(relevant_counts(left_out).max())
    k = min(DEPTH + extra, items if among is None else int(among.sum()))
    ranked = np.asarray(search(texts, k, among))
    if ranked.ndim != 2 or len(ranked) != len(texts) or not np.issubdtype(ranked.dtype, np.integer):
        raise DataError(
            "The search's answer is not a ranking",
            got=f"shape {ranked.shape}, {ranked.dtype}",
            expected=f"shape ({len(texts)}, {k}), int64",
        )
    if left_out is not None:
        dropped = hits(ranked, left_out)
        order = np.argsort(dropped, axis=1, kind="stable")
        ranked = np.take_along_axis(np.where(dropped, -1, ranked), order, axis=1)
    if among is not None and not (among[np.clip(ranked, 0, items - 1)] | (ranked < 0)).all():
        raise DataError(
            "The search ranked an item it was told to leave out",
            expected="items where `among` is True, or -1",
            fix="apply `among` inside the search",
        )
    return ranked[:, :DEPTH].astype(np.int64)


def _intervals(values: Mapping[str, PerQuery], seed: int) -> dict[str, tuple[float, float]]:
    gained = np.stack([value.gained for value in values.values()], axis=1)
    possible = np.stack([value.possible for value in values.values()], axis=1)
    low, high = bootstrap(100.0 * gained, RESAMPLES, seed, possible=possible)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(values)}


def _within(pairs: csr_array, among: Mask | None) -> csr_array:
    """The pairs whose item may be ranked."""
    kept = _ones(pairs)
    if among is not None:
        kept.data *= among[kept.indices]
        kept.eliminate_zeros()
    return kept


def _ones(pairs: csr_array) -> csr_array:
    """A copy with a 1 per pair, sorted, none twice, no explicit zeros."""
    pairs = pairs.copy()
    pairs.sum_duplicates()
    pairs.eliminate_zeros()
    pairs.data[:] = 1.0
    return pairs
