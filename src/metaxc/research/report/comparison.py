"""The systems that a report compares, and its first table: every system in both settings, with significance.

All systems answer the same queries. Many comparisons stand in one table, so p-values are corrected for their number
(Holm's method).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.evaluation.intervals import paired_bootstrap
from metaxc.evaluation.protocol import SETTINGS, Evaluation, evaluate
from metaxc.evaluation.searches import DEPTH, Search
from metaxc.metrics import hits

MODEL, ADAPTED, BARE = "model", "adapted", "bare"
SHOWN_METRICS = ("P@1", "P@5", "R@10", "R@100", "nDCG@10", "PSP@1")
SETTING_NAMES = {"zero_shot": "zero-shot", "generalized": "generalized"}
SIGNIFICANCE_LEVEL = 0.05
RESAMPLES = 10_000
TOP = 10
"""Results that count for R@10 of single items and slices."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or −1 where the whole interval is on one side of 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class RelevantPairs:
    """The relevant (query, item) pairs of a setting, sorted by query, then item.

    Args:
        query: (pairs,) int64, position of the query among the evaluated ones (`Evaluation.queries`).
        item: (pairs,) int64, row of the item.
        queries: Number of evaluated queries.
    """

    query: Rows
    item: Rows
    queries: int


@dataclass(frozen=True)
class System:
    """An evaluated system.

    Args:
        key: "model", "adapted" (the model's encoder alone) or "bare" (the pretrained encoder).
        name: The name on the page.
        evaluation: Its metrics.
        ranks: By setting, (pairs,) int64: the rank, from 1, of each relevant pair's item, in the order of
            `RelevantPairs`; 0 where the item is not among the first 100.
    """

    key: str
    name: str
    evaluation: Evaluation
    ranks: Mapping[str, Rows] = field(repr=False)


def evaluate_system(key: str, name: str, search: Search, dataset: Dataset) -> System:
    """Evaluate a search in both settings, and record the ranks of the relevant items."""
    rankings: dict[str, Rows] = {}

    def record(texts: Sequence[str], k: int, among: Mask | None) -> Rows:
        ranked = search(texts, k, among)
        rankings["generalized" if among is None else "zero_shot"] = ranked
        return ranked

    evaluation = evaluate(record, dataset)
    ranks = {}
    for setting in SETTINGS:
        rows = evaluation.queries[setting]
        filters = None if dataset.filters is None else csr_array(dataset.filters[rows])
        ranks[setting] = find_ranks(rankings[setting], relevant_pairs(dataset, setting, rows), filters)
    return System(key, name, evaluation, ranks)


def relevant_pairs(dataset: Dataset, setting: str, query_rows: Rows) -> RelevantPairs:
    """The pairs that `metaxc.evaluation.evaluate` counts as relevant: without filter pairs, and in the zero-shot
    setting only those of novel items."""
    if dataset.test is None:
        empty = np.empty(0, dtype=np.int64)
        return RelevantPairs(empty, empty, 0)
    clicks = csr_array(dataset.test.clicks[query_rows])
    clicks.sum_duplicates()
    query = np.repeat(np.arange(len(query_rows)), np.diff(clicks.indptr))
    item = clicks.indices.astype(np.int64)
    relevant = clicks.data != 0
    if setting == "zero_shot":
        relevant &= dataset.novel_mask[item]
    if dataset.filters is not None:
        relevant &= ~hits(item[:, None], csr_array(dataset.filters[query_rows[query]]))[:, 0]
    return RelevantPairs(query[relevant], item[relevant], len(query_rows))


def find_ranks(ranked: Rows, pairs: RelevantPairs, filters: csr_array | None) -> Rows:
    """(pairs,) int64: the rank, from 1, of each pair's item among its query's results; 0 if it is not among them.

    Args:
        ranked: (queries, depth) int64, −1 for no result.
        pairs: Sorted by query, then item.
        filters: (queries, items), results that are removed from the ranking.
    """
    items = int(max(ranked.max(initial=0), pairs.item.max(initial=0))) + 1
    counted = ranked >= 0
    if filters is not None:
        counted &= ~hits(ranked, filters)
    rank = np.where(counted, np.cumsum(counted, axis=1), 0)
    result_keys = np.arange(len(ranked))[:, None] * items + ranked
    pair_keys = pairs.query * items + pairs.item
    if not len(pair_keys):
        return np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(pair_keys, result_keys), len(pair_keys) - 1)
    hit = (pair_keys[at] == result_keys) & counted & (rank <= DEPTH)
    ranks = np.zeros(len(pair_keys), dtype=np.int64)
    ranks[at[hit]] = rank[hit]
    return ranks


def in_top(ranks: Rows) -> Mask:
    """Which items are among the first 10 results."""
    return (ranks > 0) & (ranks <= TOP)


@dataclass(frozen=True)
class Comparison:
    """The model compared with another system on one metric.

    Args:
        gain: Model minus the other system, percentage points.
        p: p-value of "no difference": paired bootstrap over queries, corrected for the number of comparisons.
    """

    gain: float
    p: float

    @property
    def verdict(self) -> str:
        """ "better" or "worse" where the difference is significant, else "same"."""
        if self.p >= SIGNIFICANCE_LEVEL or self.gain == 0:
            return "same"
        return "better" if self.gain > 0 else "worse"

    @property
    def p_text(self) -> str:
        """The p-value in words."""
        return "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"


@dataclass(frozen=True)
class HeadlineRow:
    """One system: its metrics, and the model's comparison with it (empty for the model itself)."""

    key: str
    name: str
    numbers: Mapping[str, ConfidenceInterval]
    against: Mapping[str, Comparison]


@dataclass(frozen=True)
class Headline:
    """The table of one setting."""

    setting: str
    queries: int
    items: int
    rows: Sequence[HeadlineRow]

    def row(self, key: str) -> HeadlineRow:
        """The row of a system."""
        return next(row for row in self.rows if row.key == key)


def compare_systems(systems: Sequence[System]) -> dict[str, Headline]:
    """The table of each setting; `systems` holds the model and everything that it is compared with."""
    model = next(system for system in systems if system.key == MODEL)
    others = [system for system in systems if system is not model]
    compared = [(s, system, m) for s in SETTINGS for system in others for m in SHOWN_METRICS]
    p_values = correct_p_values([_p_value(model, system, s, metric) for s, system, metric in compared])
    p_value = {(s, system.key, m): p for (s, system, m), p in zip(compared, p_values, strict=True)}
    tables = {}
    for setting in SETTINGS:
        rows = []
        for system in systems:
            result = system.evaluation
            numbers = {
                metric: ConfidenceInterval(result[setting][metric], *result.intervals[setting][metric])
                for metric in SHOWN_METRICS
            }
            against = {
                metric: Comparison(
                    model.evaluation[setting][metric] - result[setting][metric],
                    p_value[setting, system.key, metric],
                )
                for metric in (() if system is model else SHOWN_METRICS)
            }
            rows.append(HeadlineRow(system.key, system.name, numbers, against))
        counts = model.evaluation.counts[setting]
        tables[setting] = Headline(setting, counts["queries"], counts["items"], rows)
    return tables


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the probability of *any* false difference among the comparisons stays at the level."""
    order = np.argsort(p_values, kind="stable")
    steps = np.arange(len(p_values), 0, -1) * np.asarray(p_values, dtype=np.float64)[order]
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]


def summarise(tables: Mapping[str, Headline]) -> str:
    """The result in a few sentences."""
    zero_shot, generalized = tables["zero_shot"], tables["generalized"]
    model, bare, verdict = _first_results(zero_shot)
    text = (
        f"On {_count(zero_shot.items, 'item')} that nobody has clicked, the first result is right for {model} of "
        f"{_count(zero_shot.queries, 'query', 'queries')}, compared with {bare} for "
        f"{zero_shot.row(BARE).name}: {verdict}."
    )
    model, bare, verdict = _first_results(generalized)
    text += (
        f" Among all {_count(generalized.items, 'item')}, it is right for {model} of "
        f"{_count(generalized.queries, 'query', 'queries')}, compared with {bare}: {verdict}."
    )
    worse = [
        f"{SETTING_NAMES[setting]} {metric} ({table.row(MODEL).numbers[metric].value:.1f} compared with "
        f"{table.row(BARE).numbers[metric].value:.1f})"
        for setting, table in tables.items()
        for metric, comparison in table.row(BARE).against.items()
        if comparison.verdict == "worse"
    ]
    return f"{text} It is worse in {', '.join(worse)}." if worse else text


def _first_results(table: Headline) -> tuple[str, str, str]:
    bare = table.row(BARE)
    a, b = table.row(MODEL).numbers["P@1"].value, bare.numbers["P@1"].value
    digits = 0 if f"{a:.0f}" != f"{b:.0f}" else 1
    comparison = bare.against["P@1"]
    words = {
        "better": f"significantly better ({comparison.p_text})",
        "worse": f"significantly worse ({comparison.p_text})",
        "same": f"no significant difference ({comparison.p_text})",
    }
    return f"{a:.{digits}f} %", f"{b:.{digits}f} %", words[comparison.verdict]


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _p_value(model: System, other: System, setting: str, metric: str) -> float:
    a, b = (system.evaluation.per_query[setting][metric] for system in (model, other))
    return 1.0 if np.array_equal(a, b) else paired_bootstrap(a, b, RESAMPLES)
