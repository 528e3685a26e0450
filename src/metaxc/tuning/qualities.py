"""How good a ranking of validation queries is: overall, and for novel and observed items apart.

Nine of ten clicks are on observed items, so a mean over all queries does not show what happens to the novel ones. The
objective (`metaxc.tuning.calibration`) therefore looks at novel items, and at items by their number of clicks, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.metrics import CLICK_SLICES, harmonic_mean, hits, mean_precision_and_recall, relevant_counts

SLACK = 0.3
"""Points of quality; half the standard error of three folds of 2,000 validation queries."""

SLICE_PRIOR = 200.0
"""Pairs at which a slice by clicks counts half: its standard error is then about three points. Nothing is allowed for
beyond that. Where a slice might fall below the encoder alone by its standard error, the search used all of it, and
items with a few clicks fell further below on test queries (docs/decisions.md)."""

DEPTH = 10
"""Results per query that count."""


@dataclass(frozen=True)
class Quality:
    """P@1 and R@10 in percent; settings are compared by their mean."""

    precision: float
    recall: float

    @property
    def mean(self) -> float:
        """The mean of both."""
        return (self.precision + self.recall) / 2

    def standard_error(self, queries: int) -> float:
        """Of the less certain of the two figures at most, in points: values between 0 and 100 with the mean m have a
        variance of at most m · (100 − m)."""
        return max(math.sqrt(one * (100 - one) / max(queries, 1)) for one in (self.precision, self.recall))

    def is_close_to(self, other: Quality) -> bool:
        """Whether neither figure is more than `SLACK` below the other's."""
        return self.precision >= other.precision - SLACK and self.recall >= other.recall - SLACK

    def to_dict(self) -> dict[str, float]:
        """The figures by the metrics' names."""
        return {"P@1": self.precision, "R@10": self.recall}


@dataclass(frozen=True)
class MixedQuality(Quality):
    """The quality of a ranking of all items, with novel and observed items apart; all in percent.

    Args:
        novel: R@10 of novel items: over queries that clicked one, the share of these among the first ten of all items.
        observed: R@10 of observed items, alike.
        novel_share: The share of novel items among the first ten.
        by_clicks: (slices,) the share of relevant query-item pairs that are found, by clicks of the item
            (`CLICK_SLICES`); NaN where there are none.
        pairs: (slices,) how many such pairs there are.
        unfamiliar: `by_clicks` of unfamiliar queries alone; None where it is not known which these are.
        unfamiliar_pairs: `pairs` of unfamiliar queries alone, alike.
    """

    novel: float
    observed: float
    novel_share: float
    by_clicks: Doubles
    pairs: Rows
    unfamiliar: Doubles | None = None
    unfamiliar_pairs: Rows | None = None

    @property
    def harmonic_mean(self) -> float:
        """H, the harmonic mean of `novel` and `observed`."""
        return float(harmonic_mean(np.array(self.novel), np.array(self.observed)))

    def shortfall(self, other: MixedQuality) -> float:
        """How far the slices by clicks are below those of another ranking; the sum. Each slice counts over all queries
        or over the unfamiliar ones, whichever is further below, and by its number of pairs (`SLICE_PRIOR`)."""
        below = _missing(other.by_clicks, self.by_clicks, other.pairs)
        if (
            self.unfamiliar is not None
            and other.unfamiliar is not None
            and other.unfamiliar_pairs is not None
        ):
            below = np.maximum(below, _missing(other.unfamiliar, self.unfamiliar, other.unfamiliar_pairs))
        return float(below.sum())

    def to_dict(self) -> dict[str, float]:
        """The figures by the metrics' names."""
        return {
            **super().to_dict(),
            "novel R@10": self.novel,
            "observed R@10": self.observed,
            "H": self.harmonic_mean,
            "novel share": self.novel_share,
        }


def _missing(wanted: Doubles, found: Doubles, pairs: Rows) -> Doubles:
    """(slices,) the points that are missing, less where a slice has few pairs; 0 where it has none."""
    missing: Doubles = np.nan_to_num(np.maximum(wanted - found, 0.0)) * pairs / (pairs + SLICE_PRIOR)
    return missing


def mean_quality(found: Sequence[Quality]) -> Quality:
    """The mean over several folds."""
    return Quality(
        float(np.mean([one.precision for one in found])), float(np.mean([one.recall for one in found]))
    )


def mean_mixed_quality(found: Sequence[MixedQuality]) -> MixedQuality:
    """The mean over several folds."""
    names = ("precision", "recall", "novel", "observed", "novel_share")
    by_clicks = _mean_of_known([one.by_clicks for one in found])
    first, found_10, novel, observed, share = (
        float(np.mean([getattr(one, name) for one in found])) for name in names
    )
    pairs = np.sum([one.pairs for one in found], axis=0)
    unfamiliar = [one.unfamiliar for one in found if one.unfamiliar is not None]
    counts = [one.unfamiliar_pairs for one in found if one.unfamiliar_pairs is not None]
    return MixedQuality(
        first,
        found_10,
        novel,
        observed,
        share,
        by_clicks,
        pairs,
        _mean_of_known(unfamiliar) if unfamiliar else None,
        np.sum(counts, axis=0) if counts else None,
    )


def _mean_of_known(slices: Sequence[Doubles]) -> Doubles:
    """The mean of several arrays, place by place, over those that are not NaN there."""
    stacked = np.stack(slices)
    known = ~np.isnan(stacked)
    counts = np.where(known.any(axis=0), known.sum(axis=0), np.nan)
    mean: Doubles = np.where(known, stacked, 0.0).sum(axis=0) / counts
    return mean


def ranking_quality(ranked: Rows, relevant: csr_array) -> Quality:
    """How good a ranking, (queries, 10) rows of items, is; every query has a relevant item."""
    return Quality(*mean_precision_and_recall(ranked, relevant, DEPTH))


class Relevance:
    """What validation queries clicked, as far as it does not depend on the setting that is compared.

    Args:
        relevant: (queries, items); every query has a relevant item.
        novel: (items,) bool, the items that play novel.
        clicks: (items,) how many clicks remain to learn from.
        unfamiliar: (queries,) bool, the queries that are least like those that remain to learn from; None if unknown.
    """

    def __init__(
        self, relevant: csr_array, novel: Mask, clicks: Rows | Doubles, unfamiliar: Mask | None = None
    ):
        self.relevant, self.novel, self.unfamiliar = relevant, novel, unfamiliar
        fewest = [fewest for fewest, _ in CLICK_SLICES.values()]
        self.slices = np.searchsorted(fewest, np.floor(clicks), side="right") - 1
        self.pairs = np.bincount(self.slices[relevant.indices], minlength=len(fewest))
        self.counts = relevant_counts(relevant)
        query = np.repeat(np.arange(len(self.counts)), self.counts)
        self.unfamiliar_pairs = None
        if unfamiliar is not None:
            some = self.slices[relevant.indices[unfamiliar[query]]]
            self.unfamiliar_pairs = np.bincount(some, minlength=len(fewest))
        self.novel_counts = np.bincount(query, weights=novel[relevant.indices], minlength=len(self.counts))

    def quality(self, ranked: Rows) -> MixedQuality:
        """The quality of a ranking, (queries, 10) rows of items, best first."""
        hit = hits(ranked, self.relevant)
        is_novel = self.novel[np.maximum(ranked, 0)] & (ranked >= 0)
        return self.summarize(
            hit[:, 0],
            np.nonzero(hit)[0],
            ranked[hit],
            100 * float(is_novel.sum() / max((ranked >= 0).sum(), 1)),
        )

    def summarize(self, first: Mask, query: Rows, item: Rows, novel_share: float) -> MixedQuality:
        """The quality of a ranking by what it found.

        Args:
            first: (queries,) bool, whether the first result is relevant.
            query: (found,) the query of each relevant item among the first ten.
            item: (found,) that item.
            novel_share: Percentage of novel items among the first ten.
        """
        found = np.bincount(query, minlength=len(self.counts))
        found_novel = np.bincount(query[self.novel[item]], minlength=len(self.counts))
        found_pairs = np.bincount(self.slices[item], minlength=len(self.pairs))
        unfamiliar = None
        if self.unfamiliar is not None and self.unfamiliar_pairs is not None:
            some = np.bincount(self.slices[item[self.unfamiliar[query]]], minlength=len(self.pairs))
            unfamiliar = _percent(some, self.unfamiliar_pairs)
        return MixedQuality(
            100 * float(first.mean()),
            _mean_share(found, self.counts),
            _mean_share(found_novel, self.novel_counts),
            _mean_share(found - found_novel, self.counts - self.novel_counts),
            novel_share,
            _percent(found_pairs, self.pairs),
            self.pairs,
            unfamiliar,
            self.unfamiliar_pairs,
        )


def _percent(found: Rows, pairs: Rows) -> Doubles:
    """The share that is found, in percent; NaN where there are no pairs."""
    share: Doubles = 100 * found / np.where(pairs > 0, pairs, np.nan)
    return share


def _mean_share(found: Rows, counts: Rows | Doubles) -> float:
    """Recall in percent over the queries that have such a relevant item; 0 where there is none."""
    asked = counts > 0
    return 100 * float((found[asked] / counts[asked]).mean()) if asked.any() else 0.0
