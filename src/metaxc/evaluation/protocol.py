"""The evaluation protocol: two settings, their metrics, and the conventions behind the numbers.

*Zero-shot* ranks the novel items only, over test queries that clicked a novel item. *Generalized* ranks all items, over
all test queries with a click. Every result contains `CONVENTIONS`, which make it comparable with others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.emmett import Emmett
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation.by_kind import BY_KIND_CONVENTIONS, ByKind, evaluate_by_kind, training_counts
from metaxc.evaluation.intervals import bootstrap
from metaxc.evaluation.overlap import Overlap, check_overlap
from metaxc.evaluation.searches import DEPTH, INDEX_SAMPLE, Search, VectorSearch, model_search
from metaxc.metrics import (
    PROPENSITY_A,
    PROPENSITY_B,
    PerQuery,
    inverse_propensities,
    pairs_within,
    query_values,
    relevant_counts,
    without_pairs,
)

SETTINGS = ("zero_shot", "generalized")
RESAMPLES = 1000


def conventions(a: float = PROPENSITY_A, b: float = PROPENSITY_B) -> str:
    """What the numbers mean, for propensities with the given constants."""
    return (
        "Percent. Zero-shot ranks the novel items over test queries with a novel relevant item; generalized "
        "ranks all items over test queries with a relevant item; other queries are left out. "
        "P@k divides by k, R@k by the number of relevant items; nDCG@k has binary gains and an ideal of "
        "min(k, relevant) hits. A rank without a result counts 0. Equal scores rank by item order. "
        "Filter pairs are removed from the ranking and from the relevant items. "
        "PSP@k is the sum over queries of inverse-propensity gains divided by the sum of the best possible; "
        f"propensities from training clicks with A={a:g}, B={b:g}, novel items counting 0 clicks. "
        f"{BY_KIND_CONVENTIONS} "
        f"Intervals: 95 % bootstrap over queries, {RESAMPLES} resamples."
    )


CONVENTIONS = conventions()


@dataclass(frozen=True)
class Evaluation:
    """The results of a search on a data set, by setting ("zero_shot", "generalized").

    Args:
        metrics: Percent, by metric.
        intervals: (low, high) of the 95 % interval in percent, by metric; empty if not requested.
        counts: The number of evaluated "queries" and of ranked "items".
        seconds: Wall-clock time of the search, encoding of the queries included.
        per_query: (queries,) float64 in percent, by metric. Their mean is the metric, PSP@k included: its gains are
            divided by the mean of the possible gains, which do not depend on the model. The values of two models
            on one data set can therefore be passed to `paired_bootstrap` directly.
        queries: Rows in `dataset.test` of the evaluated queries, in the order of `per_query`.
        conventions: What the numbers mean.
        by_kind: The generalized ranking by kind of item and by training clicks; None if it was not evaluated.
        overlap: What of the test part the model was trained on; None where no model was compared with it.
        index_recall: By setting, percent of the first 10 and 100 items of an exact search that were found, on a sample
            of the queries; empty where the search was exact.
    """

    metrics: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    counts: Mapping[str, Mapping[str, int]]
    seconds: Mapping[str, float]
    per_query: Mapping[str, Mapping[str, Doubles]] = field(repr=False)
    queries: Mapping[str, Rows] = field(repr=False)
    conventions: str = field(default=CONVENTIONS, repr=False)
    by_kind: ByKind | None = field(default=None, repr=False)
    overlap: Overlap | None = field(default=None, repr=False)
    index_recall: Mapping[str, Mapping[str, float]] = field(default_factory=dict, repr=False)

    def __getitem__(self, setting: str) -> Mapping[str, float]:
        """The metrics of a setting: `evaluation["zero_shot"]["P@1"]`."""
        return self.metrics[setting]

    def metrics_dict(self) -> dict[str, dict[str, Any]]:
        """The metrics by setting as JSON; "generalized" also has "novel", "observed", "H", "novel_share" and
        "by_clicks" (`ByKind.to_dict`)."""
        found: dict[str, dict[str, Any]] = {setting: dict(values) for setting, values in self.metrics.items()}
        if self.by_kind is not None:
            found["generalized"] |= self.by_kind.to_dict()
        return found

    def intervals_dict(self) -> dict[str, dict[str, Any]]:
        """[low, high] of the 95 % intervals as JSON, under the keys of `metrics_dict`; the slices of "by_clicks"
        contain their own."""
        found: dict[str, dict[str, Any]] = {
            setting: {name: list(interval) for name, interval in ranges.items()}
            for setting, ranges in self.intervals.items()
        }
        if self.by_kind is not None and self.intervals:
            found["generalized"] |= self.by_kind.intervals_dict()
        return found

    def to_dict(self) -> dict[str, Any]:
        """The results as JSON, without the per-query values."""
        return {
            **self.metrics_dict(),
            "intervals": self.intervals_dict(),
            "counts": {setting: dict(counts) for setting, counts in self.counts.items()},
            "seconds": dict(self.seconds),
            "conventions": self.conventions,
            **({"index_recall": dict(self.index_recall)} if self.index_recall else {}),
            **({} if self.overlap is None else {"overlap": self.overlap.to_dict()}),
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
    """Evaluate a search on the test log of a data set.

    Args:
        search: search(query texts, k, among) -> (queries, k) rows of items, best first; see `Search`.
        dataset: A data set with a test log and novel items.
        settings: The settings to evaluate.
        intervals: Whether to compute 95 % confidence intervals.
        seed: Seed of the bootstrap.
        propensity: A and B of PSP@k; 0.55, 1.5 unless a benchmark has its own (XC: Amazon 0.6, 2.6;
            Wikipedia 0.5, 0.4).
    """
    unknown = [setting for setting in settings if setting not in SETTINGS]
    if unknown or not settings:
        raise ConfigError(
            "Unknown setting", got=unknown or "no setting", expected=f"some of {', '.join(SETTINGS)}"
        )
    test, filters = _remove_filter_pairs(dataset)
    weights = _training_weights(dataset, *propensity)
    metrics: dict[str, dict[str, float]] = {}
    ranges: dict[str, dict[str, tuple[float, float]]] = {}
    counts: dict[str, dict[str, int]] = {}
    seconds: dict[str, float] = {}
    per_query: dict[str, dict[str, Doubles]] = {}
    queries: dict[str, Rows] = {}
    by_kind: ByKind | None = None
    index_recall: dict[str, dict[str, float]] = {}
    for setting in settings:
        among = dataset.novel_mask if setting == "zero_shot" else None
        relevant = pairs_within(test.clicks, among)
        rows = _rows_with_relevant(relevant, setting)
        excluded = None if filters is None else pairs_within(csr_array(filters[rows]), among)
        started = time.perf_counter()
        ranked = _rank(search, [test.queries.texts[row] for row in rows], among, excluded, relevant.shape[1])
        seconds[setting] = time.perf_counter() - started
        if isinstance(search, VectorSearch) and search.is_indexed:
            index_recall[setting] = search.measure_recall([test.queries.texts[row] for row in rows], among)
        relevant = csr_array(relevant[rows])
        values = query_values(ranked, relevant, inverse_propensity=weights)
        metrics[setting] = {name: value.percent() for name, value in values.items()}
        per_query[setting] = {n: 100.0 * v.gained / v.possible.mean() for n, v in values.items()}
        queries[setting] = rows
        counts[setting] = {
            "queries": len(rows),
            "items": len(dataset.items) if among is None else int(among.sum()),
        }
        if intervals:
            ranges[setting] = _intervals(values, seed)
        if setting == "generalized":
            by_kind = evaluate_by_kind(
                ranked, relevant, dataset, rows, resamples=RESAMPLES if intervals else 0, seed=seed
            )
    meaning = conventions(*propensity) + _describe_index(index_recall)
    return Evaluation(
        metrics,
        ranges,
        counts,
        seconds,
        per_query,
        queries,
        meaning,
        by_kind,
        index_recall=index_recall,
    )


def _describe_index(recalls: Mapping[str, Mapping[str, float]]) -> str:
    """How much of an exact search a search through an index found; empty where there was none."""
    if not recalls:
        return ""
    found = ", ".join(
        f"{setting.replace('_', '-')} {recall['R@10']:.1f} % of the first 10 and {recall['R@100']:.1f} % of 100"
        for setting, recall in recalls.items()
    )
    return (
        f" Items were found through an index: {found} of an exact search, on {INDEX_SAMPLE} queries at most."
    )


def _remove_filter_pairs(dataset: Dataset) -> tuple[ClickLog, csr_array | None]:
    """The test log without its filter pairs, and these pairs, or None where there are none."""
    if dataset.test is None:
        raise DataError(
            "The data set has no test queries",
            got=repr(dataset),
            expected="a test log",
            fix="add test queries and clicks, or call metaxc.data.split(dataset)",
        )
    test, filters = dataset.test, dataset.filters
    if filters is not None and filters.shape != test.clicks.shape:
        raise DataError(
            "The filter pairs do not match the test log",
            got=f"shape {filters.shape}",
            expected=f"shape {test.clicks.shape} (test queries, items)",
        )
    if filters is None or filters.nnz == 0:
        return test, None
    clicks, filters = pairs_within(test.clicks, None), pairs_within(filters, None)
    relevant = csr_array(clicks - clicks.multiply(filters))
    relevant.eliminate_zeros()
    return ClickLog(test.queries, relevant), filters


def _training_weights(dataset: Dataset, a: float, b: float) -> Doubles:
    """(items,) inverse propensities from the training clicks on observed items; novel items count 0 clicks."""
    return inverse_propensities(training_counts(dataset), len(dataset.observed_log()), a, b)


def _rows_with_relevant(relevant: csr_array, setting: str) -> Rows:
    rows = np.flatnonzero(relevant_counts(relevant))
    if not len(rows):
        kind = "novel item" if setting == "zero_shot" else "item"
        raise DataError(
            f"There is nothing to evaluate in the setting {setting}",
            got=f"{relevant.shape[0]:,} test queries, none with a click on any {kind}",
            expected="at least one",
            fix="choose other novel items, or omit this setting",
        )
    return rows


def _rank(
    search: Search, texts: Sequence[str], among: Mask | None, excluded: csr_array | None, items: int
) -> Rows:
    """(queries, up to DEPTH) rows of items; searches deeper where filter pairs will be removed."""
    extra = 0 if excluded is None else int(relevant_counts(excluded).max())
    k = min(DEPTH + extra, items if among is None else int(among.sum()))
    ranked = np.asarray(search(texts, k, among))
    if ranked.ndim != 2 or len(ranked) != len(texts) or not np.issubdtype(ranked.dtype, np.integer):
        raise DataError(
            "The search did not return a ranking",
            got=f"shape {ranked.shape}, {ranked.dtype}",
            expected=f"shape ({len(texts)}, {k}), int64",
        )
    if excluded is not None:
        ranked = without_pairs(ranked, excluded)
    if among is not None and not (among[np.clip(ranked, 0, items - 1)] | (ranked < 0)).all():
        raise DataError(
            "The search returned an item that `among` excludes",
            expected="items where `among` is True, or -1",
            fix="apply `among` inside the search",
        )
    return ranked[:, :DEPTH].astype(np.int64)


def _intervals(values: Mapping[str, PerQuery], seed: int) -> dict[str, tuple[float, float]]:
    gained = np.stack([value.gained for value in values.values()], axis=1)
    possible = np.stack([value.possible for value in values.values()], axis=1)
    low, high = bootstrap(100.0 * gained, RESAMPLES, seed, possible=possible)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(values)}


def evaluate_model(
    model: Emmett,
    dataset: Dataset,
    *,
    exposure: float | None = None,
    allow_overlap: bool = False,
    settings: Sequence[str] = SETTINGS,
    intervals: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Evaluate a model on the test log of a data set; an `OverlapError` if it was trained on a part of that.

    Args:
        model: The model.
        dataset: A data set with a test log and novel items.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        allow_overlap: Evaluates what the model was trained on too; `Evaluation.overlap` says that.
        settings, intervals, seed: As in `evaluate`.
    """
    overlap = check_overlap(model, dataset, allow_overlap=allow_overlap)
    search = model_search(model, dataset, exposure, allow_overlap=True)
    return replace(
        evaluate(search, dataset, settings=settings, intervals=intervals, seed=seed), overlap=overlap
    )
