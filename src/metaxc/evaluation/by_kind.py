"""The generalized ranking by kind of item: what happens to novel items where they compete with observed ones.

Most clicks are on observed items, so the mean over queries hardly changes when novel items vanish from the ranking.
Here the same ranking of all items is split by kind of item and by the item's number of training clicks.

- *Novel*: over queries with a novel relevant item, R@10 is the share of these items among the first ten of all items,
  and P@1 whether the first result is one of them. *Observed* alike.
- *H* is the harmonic mean of both R@10, the usual figure of generalized zero-shot learning.
- *Novel share* is the share of novel items, relevant or not, among the first ten results.
- *By clicks*: pair recall at 10, the share of relevant (query, item) pairs found among the first ten results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.evaluation.intervals import bootstrap
from metaxc.metrics import (
    CLICK_SLICES,
    PerQuery,
    harmonic_mean,
    hits,
    pairs_within,
    precision,
    recall,
    relevant_counts,
)

TOP = 10
KINDS = ("novel", "observed")
KIND_METRICS = ("P@1", f"R@{TOP}")

BY_KIND_CONVENTIONS = (
    "Novel and observed split the generalized ranking: P@1 and R@10 over queries with a relevant item of that kind, "
    "only such items counting as relevant; H is the harmonic mean of both R@10; novel share is the share of novel "
    "items among the first ten results. By clicks: share of relevant query-item pairs found among the first ten, by "
    "training clicks of the item (one per query, novel items 0)."
)


class Figure(NamedTuple):
    """A value in percent, None where there is nothing to count, and its 95 % interval, None if not requested."""

    value: float | None
    interval: tuple[float, float] | None = None


class ClickSlice(NamedTuple):
    """Pair recall at 10 of the items with about equally many training clicks, in percent.

    Args:
        value: Share of the pairs that are found; None in a slice without pairs.
        interval: Its 95 % interval; None if not requested or without pairs.
        pairs: Number of relevant (query, item) pairs.
        items: Number of different items in these pairs.
    """

    value: float | None
    interval: tuple[float, float] | None
    pairs: int
    items: int


@dataclass(frozen=True)
class ByKind:
    """The generalized ranking by kind of item.

    Args:
        kinds: By kind ("novel", "observed") and metric ("P@1", "R@10").
        harmonic_mean: H, of both R@10.
        novel_share: Share of novel items among the first ten results.
        by_clicks: By slice (`CLICK_SLICES`).
        per_query: (queries of the kind,) float64 in percent, by kind and metric.
        queries: Rows in `dataset.test` of the queries with a relevant item of the kind, in the order of `per_query`.
    """

    kinds: Mapping[str, Mapping[str, Figure]]
    harmonic_mean: Figure
    novel_share: Figure
    by_clicks: Mapping[str, ClickSlice]
    per_query: Mapping[str, Mapping[str, Doubles]] = field(repr=False)
    queries: Mapping[str, Rows] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON; the slices with their intervals."""
        kinds = {
            kind: {
                **{name: figure.value for name, figure in figures.items()},
                "queries": len(self.queries[kind]),
            }
            for kind, figures in self.kinds.items()
        }
        slices = {
            name: {**one._asdict(), "interval": None if one.interval is None else list(one.interval)}
            for name, one in self.by_clicks.items()
        }
        single = {"H": self.harmonic_mean.value, "novel_share": self.novel_share.value}
        return {**kinds, **single, "by_clicks": slices}

    def intervals_dict(self) -> dict[str, Any]:
        """The intervals as JSON, under the keys of `to_dict`; the slices contain their own."""

        def as_list(figure: Figure) -> list[float] | None:
            return None if figure.interval is None else list(figure.interval)

        kinds = {
            kind: {name: as_list(figure) for name, figure in figures.items()}
            for kind, figures in self.kinds.items()
        }
        return {**kinds, "H": as_list(self.harmonic_mean), "novel_share": as_list(self.novel_share)}


def training_counts(dataset: Dataset) -> Rows:
    """(items,) int64: training clicks of each item as a model may see them: one per query, and none of novel items."""
    counts = relevant_counts(csr_array(dataset.train.clicks.T))
    counts[dataset.novel_mask] = 0
    return counts


def evaluate_by_kind(
    ranked: Rows, relevant: csr_array, dataset: Dataset, rows: Rows, *, resamples: int = 1000, seed: int = 0
) -> ByKind:
    """Split a ranking of all items by kind of item and by training clicks.

    Args:
        ranked: (queries, depth) int64, rows of items, best first, padded with -1.
        relevant: (queries, items), not 0 for relevant items.
        dataset: Tells which items are novel, and has the training clicks.
        rows: (queries,) int64, rows of these queries in the test log.
        resamples: Bootstrap resamples over queries for the intervals; 0 for no intervals.
        seed: Seed of the bootstrap.
    """
    ranked = ranked[:, :TOP]
    novel, clicks = dataset.novel_mask, training_counts(dataset)
    masks = dict(zip(KINDS, (novel, ~novel), strict=True))
    values: dict[tuple[str, str], PerQuery] = {
        (kind, name): value
        for kind in KINDS
        for name, value in _kind_values(ranked, relevant, masks[kind]).items()
    }
    values["all", "novel share"] = PerQuery(
        np.asarray((novel[ranked] & (ranked >= 0)).sum(axis=1), np.float64),
        np.asarray((ranked >= 0).sum(axis=1), np.float64),
    )
    items = {}
    for name, (fewest, most) in CLICK_SLICES.items():
        pairs = pairs_within(relevant, (clicks >= fewest) & (clicks <= most))
        items[name] = len(np.unique(pairs.indices))
        values["clicks", name] = PerQuery(
            hits(ranked, pairs).sum(axis=1).astype(np.float64), relevant_counts(pairs).astype(np.float64)
        )
    figures, mean = _summarise(values, resamples, seed)
    asked = {kind: values[kind, "P@1"].possible > 0 for kind in KINDS}
    return ByKind(
        {kind: {name: figures[kind, name] for name in KIND_METRICS} for kind in KINDS},
        mean,
        figures["all", "novel share"],
        {
            name: ClickSlice(
                *figures["clicks", name], int(values["clicks", name].possible.sum()), items[name]
            )
            for name in CLICK_SLICES
        },
        {
            kind: {name: 100.0 * values[kind, name].gained[asked[kind]] for name in KIND_METRICS}
            for kind in KINDS
        },
        {kind: rows[asked[kind]] for kind in KINDS},
    )


def _kind_values(ranked: Rows, relevant: csr_array, of_kind: Mask) -> dict[str, PerQuery]:
    """P@1 and R@10 where only items of one kind count as relevant; queries without such an item are not counted."""
    own = pairs_within(relevant, of_kind)
    hit, count = hits(ranked, own), relevant_counts(own)
    asked = (count > 0).astype(np.float64)
    gained = (precision(hit, 1), recall(hit, np.maximum(count, 1), TOP))
    return {name: PerQuery(value, asked) for name, value in zip(KIND_METRICS, gained, strict=True)}


def _summarise(
    values: Mapping[tuple[str, str], PerQuery], resamples: int, seed: int
) -> tuple[dict[tuple[str, str], Figure], Figure]:
    """The figure of each value, and H; all intervals from the same resamples."""
    figures = dict.fromkeys(values, Figure(None))
    counted = {key: value for key, value in values.items() if value.possible.sum() > 0}
    if not counted:
        return figures, Figure(None)
    recalls = [(kind, f"R@{TOP}") for kind in KINDS]
    columns = list(counted)
    has_mean = all(key in counted for key in recalls)

    def derive(statistics: Doubles) -> Doubles:
        novel, observed = (statistics[:, columns.index(key)] for key in recalls)
        return harmonic_mean(novel, observed)[:, None]

    whole = np.array([[value.percent() for value in counted.values()]])
    numbers = np.column_stack([whole, derive(whole)])[0] if has_mean else whole[0]
    intervals: list[tuple[float, float] | None] = [None] * len(numbers)
    if resamples:
        gained = np.stack([100.0 * value.gained for value in counted.values()], axis=1)
        possible = np.stack([value.possible for value in counted.values()], axis=1)
        ends = bootstrap(gained, resamples, seed, possible=possible, derive=derive if has_mean else None)
        intervals = [(float(low), float(high)) for low, high in zip(*ends, strict=True)]
    made = [Figure(float(number), interval) for number, interval in zip(numbers, intervals, strict=True)]
    figures.update(zip(columns, made, strict=False))
    return figures, made[-1] if has_mean else Figure(None)
