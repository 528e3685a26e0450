"""Ranking metrics for each query: P@k, R@k, nDCG@k and propensity-scored P@k.

Each metric is a pure function of arrays that returns one value per query, from which means, confidence intervals and
paired tests are computed. The input is a ranking, not scores, so metrics cannot break ties in different ways (three
metric libraries give three values of P@1 on the same run).

- `ranked` is the ranking, (queries, depth) int64: rows of items, best first, padded with -1. If a metric is deeper than
  the ranking, the missing results count as wrong.
- `relevant` is the clicks, (queries, items): an item is relevant if its entry is not 0.
- **R@k, nDCG@k and PSP@k are undefined for a query without relevant items.** They do not check for it: `query_values`
  raises an error for such queries, and `evaluate_ranking` leaves them out.

Values are fractions, except that `evaluate_ranking` and `PerQuery.percent` return percentages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.errors import ConfigError, DataError

PRECISION_AT = (1, 3, 5, 30, 50, 100)
RECALL_AT = (1, 3, 5, 10, 30, 50, 100)
NDCG_AT = (10,)
PSP_AT = (1, 3, 5)

CLICK_SLICES: Mapping[str, tuple[int, float]] = {
    "0": (0, 0),
    "1-2": (1, 2),
    "3-4": (3, 4),
    "5-9": (5, 9),
    "10-29": (10, 29),
    "30-99": (30, 99),
    "100+": (100, np.inf),
}
"""Fewest and most training clicks of the items in a slice."""

# Jain et al. 2016; the XC repository uses 0.6, 2.6 on its Amazon sets and 0.5, 0.4 on Wikipedia.
PROPENSITY_A = 0.55
PROPENSITY_B = 1.5


class PerQuery(NamedTuple):
    """The values of a metric for each query; over many queries it is sum(gained) / sum(possible).

    `possible` is 1 for every query, except for PSP@k, where it is the gain of the best possible ranking, and for
    metrics of one kind of item (`metaxc.evaluation.by_kind`), where it is 0 for queries without such a relevant item.
    """

    gained: Doubles
    possible: Doubles

    def percent(self) -> float:
        """The metric over all queries, in percent."""
        return float(100.0 * self.gained.sum() / self.possible.sum())


def without_pairs(ranked: Rows, pairs: csr_array) -> Rows:
    """The ranking without some query-item pairs; what follows moves up and −1 fills the end.

    Args:
        ranked: (queries, k) rows of items, best first; −1 pads.
        pairs: (queries, items), the pairs that are removed.
    """
    removed = hits(ranked, pairs)
    order = np.argsort(removed, axis=1, kind="stable")
    return np.take_along_axis(np.where(removed, -1, ranked), order, axis=1)


def hits(ranked: Rows, relevant: csr_array) -> Mask:
    """Which results are relevant.

    Args:
        ranked: (queries, depth) int64, rows of items, best first, padded with -1.
        relevant: (queries, items), not 0 for relevant items.

    Returns:
        (queries, depth) bool.
    """
    queries, items = relevant.shape
    _check_ranking(ranked, queries, items)
    relevant = _canonical(relevant)
    relevant_rows = np.repeat(np.arange(queries, dtype=np.int64), relevant_counts(relevant))
    known = relevant_rows * items + relevant.indices
    if not len(known):
        return np.zeros(ranked.shape, dtype=np.bool_)
    asked = np.arange(queries, dtype=np.int64)[:, None] * items + ranked
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    # The key of a -1 is that of the last item of the previous query, so padding is excluded explicitly.
    return np.asarray((known[place] == asked) & (ranked >= 0), dtype=np.bool_)


def relevant_counts(relevant: csr_array) -> Rows:
    """(queries,) int64, number of relevant items of each query."""
    return np.diff(_canonical(relevant).indptr).astype(np.int64)


def pairs_within(pairs: csr_array, allowed: Mask | None) -> csr_array:
    """A copy of the pairs whose item is allowed: a 1 per pair, sorted, without duplicates and explicit zeros.

    Args:
        pairs: (queries, items).
        allowed: (items,) bool, None for all items.
    """
    kept = pairs.copy()
    kept.sum_duplicates()
    if allowed is not None:
        kept.data = np.where(allowed[kept.indices], kept.data, 0)
    kept.eliminate_zeros()
    kept.data[:] = 1
    return kept


def precision(hit: Mask, k: int) -> Doubles:
    """(queries,) P@k: relevant results among the first k, divided by k."""
    return np.asarray(hit[:, :k].sum(axis=1) / _positive(k), dtype=np.float64)


def recall(hit: Mask, relevant_count: Rows, k: int) -> Doubles:
    """(queries,) R@k: relevant results among the first k, divided by the number of relevant items."""
    return np.asarray(hit[:, : _positive(k)].sum(axis=1) / relevant_count, dtype=np.float64)


def mean_precision_and_recall(ranked: Rows, relevant: csr_array, depth: int) -> tuple[float, float]:
    """P@1 and R@depth in percent, in the mean over queries that all have a relevant item.

    Args:
        ranked: (queries, depth) rows of items, best first.
        relevant: (queries, items).
        depth: How many results count for the recall.
    """
    hit = hits(ranked, relevant)
    counts = relevant_counts(relevant)
    return 100 * float(precision(hit, 1).mean()), 100 * float(recall(hit, counts, depth).mean())


def ndcg(hit: Mask, relevant_count: Rows, k: int) -> Doubles:
    """(queries,) nDCG@k with gains of 0 and 1: the ideal ranking starts with min(k, relevant) relevant results."""
    discount = 1.0 / np.log2(np.arange(_positive(k)) + 2.0)
    gained = hit[:, :k] @ discount[: hit.shape[1]]
    ideal = np.cumsum(discount)[np.minimum(k, relevant_count) - 1]
    return np.asarray(gained / ideal, dtype=np.float64)


def harmonic_mean(a: Doubles, b: Doubles) -> Doubles:
    """2ab / (a + b), elementwise, and 0 where both are 0: near the smaller of the two, so neither can hide the other.

    Args:
        a, b: Arrays of one shape, not negative.
    """
    total = np.asarray(a + b, dtype=np.float64)
    return np.divide(2.0 * a * b, total, out=np.zeros_like(total), where=total != 0)


def inverse_propensities(
    click_counts: NDArray[np.int64] | Doubles,
    n_queries: int,
    a: float = PROPENSITY_A,
    b: float = PROPENSITY_B,
) -> Doubles:
    """The weight of a hit on each item, larger for items that are rare in training (Jain et al. 2016).

    1 / p = 1 + C (count + b)^-a with C = (log n_queries - 1) (b + 1)^a. With fewer than 3 queries C would be negative
    and a propensity larger than 1; C is then 0 and all items have the same weight.

    Args:
        click_counts: (items,) clicks of each item in the *training* log, 0 for novel items.
        n_queries: Number of training queries.
        a, b: The constants of the model; 0.55 and 1.5 unless a benchmark defines others.

    Returns:
        (items,) float64, each at least 1.
    """
    if n_queries < 1:
        raise DataError("Propensities need a training log", got=f"{n_queries} queries", expected="at least 1")
    c = max(np.log(n_queries) - 1.0, 0.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (np.asarray(click_counts, dtype=np.float64) + b) ** -a, dtype=np.float64)


def propensity_scored_precision(
    ranked: Rows, hit: Mask, relevant: csr_array, inverse_propensity: Doubles, k: int
) -> PerQuery:
    """PSP@k: hits weighted by the inverse propensity of their items, and the same for the best possible ranking.

    As in the extreme classification literature, the metric is sum(gained) / sum(possible) over queries, not the mean of
    the ratios, so both parts are returned.

    Args:
        ranked: (queries, depth) int64.
        hit: (queries, depth) bool, from `hits(ranked, relevant)`.
        relevant: (queries, items).
        inverse_propensity: (items,) float64, from `inverse_propensities`.
        k: Number of results that count.
    """
    if inverse_propensity.shape != (relevant.shape[1],):
        raise DataError(
            "The numbers of inverse propensities and items differ",
            got=inverse_propensity.shape,
            expected=(relevant.shape[1],),
        )
    first = slice(_positive(k))
    gained = np.where(hit[:, first], inverse_propensity[ranked[:, first]], 0.0).sum(axis=1) / k

    relevant = _canonical(relevant)
    counts = relevant_counts(relevant)
    query = np.repeat(np.arange(len(counts)), counts)
    weight = inverse_propensity[relevant.indices]
    weight = weight[np.lexsort((-weight, query))]
    place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    best = place < k
    possible = np.bincount(query[best], weights=weight[best], minlength=len(counts)) / k
    return PerQuery(gained, possible)


def query_values(
    ranked: Rows, relevant: csr_array, *, inverse_propensity: Doubles | None = None
) -> dict[str, PerQuery]:
    """All metrics of a ranking by name, for each query. Each query must have a relevant item.

    Args:
        ranked: (queries, depth) int64.
        relevant: (queries, items).
        inverse_propensity: (items,) float64; PSP@k is computed only if it is given.
    """
    hit, relevant_count = hits(ranked, relevant), relevant_counts(relevant)
    if not relevant_count.all():
        raise DataError(
            "A query has no relevant item",
            got=f"{int((relevant_count == 0).sum()):,} of {len(relevant_count):,} queries without one",
            expected="at least one relevant item per query",
            fix="remove these queries, or call evaluate_ranking, which ignores them",
        )
    plain = {f"P@{k}": precision(hit, k) for k in PRECISION_AT}
    plain |= {f"R@{k}": recall(hit, relevant_count, k) for k in RECALL_AT}
    plain |= {f"nDCG@{k}": ndcg(hit, relevant_count, k) for k in NDCG_AT}
    values = {name: PerQuery(gained, np.ones_like(gained)) for name, gained in plain.items()}
    if inverse_propensity is not None:
        for k in PSP_AT:
            values[f"PSP@{k}"] = propensity_scored_precision(ranked, hit, relevant, inverse_propensity, k)
    return values


def evaluate_ranking(
    ranked: Rows, relevant: csr_array, *, inverse_propensity: Doubles | None = None
) -> dict[str, float]:
    """All metrics of a ranking in percent, averaged over the queries with at least one relevant item.

    Args:
        ranked: (queries, depth) int64, rows of items, best first, padded with -1.
        relevant: (queries, items), not 0 for relevant items.
        inverse_propensity: (items,) float64, from `inverse_propensities`; PSP@k is computed only if it is given.

    Returns:
        P@1, 3, 5, 30, 50, 100; R@1, 3, 5, 10, 30, 50, 100; nDCG@10; PSP@1, 3, 5.

    Example:
        >>> clicked = csr_array([[1, 0, 1], [0, 1, 0]])
        >>> evaluate_ranking(np.array([[0, 1, 2], [0, 1, -1]]), clicked)["R@1"]
        25.0
    """
    _check_ranking(ranked, *relevant.shape)
    answerable = np.flatnonzero(relevant_counts(relevant))
    if not len(answerable):
        raise DataError(
            "There is no query to evaluate",
            got=f"{relevant.shape[0]:,} queries, none with a relevant item",
            expected="at least one query with a relevant item",
        )
    values = query_values(
        ranked[answerable], csr_array(relevant[answerable]), inverse_propensity=inverse_propensity
    )
    return {name: value.percent() for name, value in values.items()}


def _canonical(relevant: csr_array) -> csr_array:
    """The relevant pairs sorted, without duplicates and explicit zeros; the input itself if it is already so."""
    if relevant.has_canonical_format and relevant.data.all():
        return relevant
    relevant = relevant.copy()
    relevant.sum_duplicates()
    relevant.eliminate_zeros()
    return relevant


def _check_ranking(ranked: Rows, queries: int, items: int) -> None:
    if ranked.ndim != 2 or len(ranked) != queries:
        raise DataError(
            "The ranking does not match the queries",
            got=f"shape {ranked.shape}",
            expected=f"shape ({queries}, depth)",
        )
    if not np.issubdtype(ranked.dtype, np.integer):
        raise DataError("The ranking does not consist of item rows", got=ranked.dtype, expected="int64")
    if not ranked.size:
        return
    if ranked.min() < -1 or ranked.max() >= items:
        raise DataError(
            "The ranking contains an item that does not exist",
            got=f"rows from {ranked.min()} to {ranked.max()}",
            expected=f"0 to {items - 1}, or -1 for padding",
        )
    ordered = np.sort(ranked, axis=1)
    twice = np.flatnonzero(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1))
    if len(twice):
        raise DataError(
            "The ranking contains an item twice for one query",
            got=f"query row {twice[0]} and {len(twice) - 1:,} more",
            expected="each item at most once per query",
        )


def _positive(k: int) -> int:
    if k < 1:
        raise ConfigError("The depth of a metric is out of range", got=k, expected="at least 1")
    return k
