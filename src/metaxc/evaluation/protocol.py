"""The evaluation protocol: two settings, their metrics, and the conventions behind the numbers.

*Zero-shot* ranks the novel items only, over test queries that clicked a novel item. *Generalized* ranks all items, over
all test queries with a click. Every result contains `CONVENTIONS`, which make it comparable with others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Floats, Mask, Rows
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Adapted, Encoder, Pretrained
from metaxc.errors import ConfigError, DataError
from metaxc.evaluation.by_kind import BY_KIND_CONVENTIONS, ByKind, evaluate_by_kind, training_counts
from metaxc.evaluation.intervals import bootstrap
from metaxc.evaluation.overlap import Overlap, check_overlap
from metaxc.index.topk import top_k
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

Search = Callable[[Sequence[str], int, Mask | None], Rows]
"""search(query texts, k, among) -> (queries, k) int64, rows of `dataset.items` best first, −1 for no result;
`among` is a mask of the items that may be ranked, None for all."""

SETTINGS = ("zero_shot", "generalized")
DEPTH = 100
RESAMPLES = 1000
BARE_ENCODER = "bare encoder"
"""The name of a pretrained encoder by itself in tables."""


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
    for setting in settings:
        among = dataset.novel_mask if setting == "zero_shot" else None
        relevant = pairs_within(test.clicks, among)
        rows = _rows_with_relevant(relevant, setting)
        excluded = None if filters is None else pairs_within(csr_array(filters[rows]), among)
        started = time.perf_counter()
        ranked = _rank(search, [test.queries.texts[row] for row in rows], among, excluded, relevant.shape[1])
        seconds[setting] = time.perf_counter() - started
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
    return Evaluation(metrics, ranges, counts, seconds, per_query, queries, conventions(*propensity), by_kind)


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


QueryEncoder = Callable[[Sequence[str]], Floats]
"""Query texts to (n, dim) float32."""


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


def model_search(
    model: Emmett, dataset: Dataset, exposure: float | None = None, *, allow_overlap: bool = False
) -> Search:
    """Search by a trained model; items that the model does not know are represented as novel ones, by their texts.

    Args:
        model: The model.
        dataset: Has the items.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        allow_overlap: Also where the model was trained on the test part, which is otherwise an `OverlapError`.
    """
    if dataset.test is not None and dataset.novel is not None:
        check_overlap(model, dataset, allow_overlap=allow_overlap)
    encode = partial(model.encode_queries, exposure=exposure)
    return _vector_search(encode, item_vectors(model, dataset), dataset)


def encoder_search(encoder: Encoder, dataset: Dataset) -> Search:
    """Search by an encoder alone: dense retrieval, the baseline."""
    return _vector_search(encoder.encode_queries, encoder.encode_items(dataset.items.texts), dataset)


def encoder_baselines(encoder: Encoder) -> dict[str, Encoder]:
    """What a model must always be compared with, by name: its encoder alone, and the pretrained base of an adapted one.

    Args:
        encoder: The encoder of a model.
    """
    if isinstance(encoder, Adapted) and encoder.base is not None:
        return {"adapted encoder alone": encoder, BARE_ENCODER: encoder.base}
    pretrained = encoder.kind == Pretrained.kind
    return {BARE_ENCODER if pretrained else f"{encoder.kind} encoder alone": encoder}


def item_vectors(model: Emmett, dataset: Dataset) -> Floats:
    """(items, dim) float32: the vectors by which the model ranks the data set's items, in the data set's order."""
    rows = np.asarray([model.items.row_of.get(name, -1) for name in dataset.items.ids], dtype=np.int64)
    for place, row in enumerate(rows.tolist()):
        if row >= 0 and model.items.texts[row] != dataset.items.texts[place]:
            raise DataError(
                "An item has different texts in the data set and in the model",
                got=f"{dataset.items.ids[place]!r}: {dataset.items.texts[place]!r}",
                expected=repr(model.items.texts[row]),
                fix="evaluate on the data the model was trained on, or train again",
            )
    vectors = model.vectors[np.maximum(rows, 0)]
    unknown = np.flatnonzero(rows < 0).tolist()
    if len(unknown):
        vectors[unknown] = model.represent([dataset.items.texts[row] for row in unknown])
    return vectors


def encode_test_queries_once(encode: QueryEncoder, dataset: Dataset) -> QueryEncoder:
    """An encoder that encodes all test queries together, the first time one of them is needed.

    A search gets blocks and subsets of the test queries. Encoded as one list they are encoded once, and found in the
    embedding cache by every system that is evaluated. Other queries are encoded when they come.
    """
    texts = [] if dataset.test is None else list(dataset.test.queries.texts)
    row_of = {text: row for row, text in enumerate(texts)}
    encoded: list[Floats] = []

    def encode_queries(queries: Sequence[str]) -> Floats:
        if not queries or any(text not in row_of for text in queries):
            return encode(queries)
        if not encoded:
            encoded.append(encode(texts))
        return np.asarray(encoded[0][[row_of[text] for text in queries]], dtype=np.float32)

    return encode_queries


def _vector_search(encode: QueryEncoder, vectors: Floats, dataset: Dataset) -> Search:
    encode_queries = encode_test_queries_once(encode, dataset)

    def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        return top_k(encode_queries(queries), vectors, k, among)[0]

    return search
