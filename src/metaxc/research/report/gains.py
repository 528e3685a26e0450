"""Gains of single novel items over the bare encoder, and whether similar observed neighbours help.

An item's R@10 is the share of its test queries that have it among their first 10 results, novel items only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Doubles, Rows
from metaxc.data.dataset import Dataset
from metaxc.emmett import Emmett, Neighbour
from metaxc.evaluation.intervals import bootstrap
from metaxc.index.topk import top_k
from metaxc.research.report.comparison import (
    ConfidenceInterval,
    RelevantPairs,
    System,
    in_top,
    relevant_pairs,
)

BINS = 8
SMALLEST_BIN = 5
SHOWN_ITEMS = 20


@dataclass(frozen=True)
class SimilarityBin:
    """Novel items whose nearest observed neighbours are about equally similar.

    Args:
        low, high: Smallest and largest similarity in the bin.
        middle: Median similarity.
        items: Number of items.
        gain: Mean gain in R@10, percentage points; the interval is a bootstrap over items.
    """

    low: float
    high: float
    middle: float
    items: int
    gain: ConfidenceInterval


@dataclass(frozen=True)
class ExampleQuery:
    """A test query of an item, and the item's rank with each system; 0 means not among the first 100."""

    query: str
    rank: int
    bare_rank: int


@dataclass(frozen=True)
class ItemGain:
    """A novel item: R@10 with the model and with the bare encoder, and what its meta-classifier consists of."""

    id: str
    text: str
    queries: int
    recall: float
    bare_recall: float
    example: ExampleQuery
    neighbours: Sequence[Neighbour]
    text_share: float

    @property
    def gain(self) -> float:
        """Gain in R@10, percentage points."""
        return self.recall - self.bare_recall


@dataclass(frozen=True)
class ItemGains:
    """The gains of all novel items.

    Args:
        items: Number of novel items with a test query.
        better, worse: How many of them gained and lost.
        bins: By similarity of the nearest observed neighbour, least similar first.
        gained, lost: The items with the largest gains and losses.
    """

    items: int
    better: int
    worse: int
    bins: Sequence[SimilarityBin]
    gained: Sequence[ItemGain]
    lost: Sequence[ItemGain]


def compute_gains(
    model: Emmett, system: System, bare: System, dataset: Dataset, shown: int = SHOWN_ITEMS
) -> ItemGains:
    """Compare the model with the bare encoder on each novel item that a test query clicked.

    Args:
        model: The model.
        system: The model, evaluated.
        bare: The bare encoder, evaluated.
        dataset: The data set with novel items and a test log.
        shown: How many items to list as gained and lost, at most.
    """
    pairs = relevant_pairs(dataset, "zero_shot", system.evaluation.queries["zero_shot"])
    rows, at = np.unique(pairs.item, return_inverse=True)
    queries = np.bincount(at)
    recall, bare_recall = (
        100 * np.bincount(at, weights=in_top(one.ranks["zero_shot"])) / queries for one in (system, bare)
    )
    gain = recall - bare_recall
    embeddings = model.encoder.encode_items(dataset.items.texts)[rows]
    similarity = top_k(embeddings, model.embeddings, 1)[1][:, 0].astype(np.float64)

    def describe_item(place: int) -> ItemGain:
        row = int(rows[place])
        explanation = model.explain(dataset.items.texts[row])
        return ItemGain(
            dataset.items.ids[row],
            dataset.items.texts[row],
            int(queries[place]),
            float(recall[place]),
            float(bare_recall[place]),
            _find_example(dataset, pairs, np.flatnonzero(at == place), system, bare, gain[place] < 0),
            explanation.neighbours,
            explanation.text_share,
        )

    gained, lost = largest_changes(gain, queries, shown)
    return ItemGains(
        len(rows),
        int((gain > 0).sum()),
        int((gain < 0).sum()),
        bin_by_similarity(similarity, gain),
        [describe_item(place) for place in gained],
        [describe_item(place) for place in lost],
    )


def bin_by_similarity(similarity: Doubles, gain: Doubles, bins: int = BINS) -> list[SimilarityBin]:
    """Mean gain in bins of equally many items, least similar first.

    Args:
        similarity: (items,) similarity of the nearest observed neighbour.
        gain: (items,) percentage points.
        bins: Number of bins; fewer where a bin would hold fewer than 5 items.
    """
    order = np.argsort(similarity, kind="stable")
    found = []
    for part in np.array_split(order, max(1, min(bins, len(order) // SMALLEST_BIN))):
        low, high = bootstrap(gain[part][:, None])
        mean = ConfidenceInterval(float(gain[part].mean()), float(low[0]), float(high[0]))
        within = similarity[part]
        middle = float(np.median(within))
        found.append(SimilarityBin(float(within[0]), float(within[-1]), middle, len(part), mean))
    return found


def largest_changes(gain: Doubles, queries: Rows, shown: int) -> tuple[list[int], list[int]]:
    """Positions of the largest gains and of the largest losses; ties by more queries, then by order."""
    order = np.arange(len(gain))
    up, down = np.lexsort((order, -queries, -gain)), np.lexsort((order, -queries, gain))
    return (
        [int(place) for place in up if gain[place] > 0][:shown],
        [int(place) for place in down if gain[place] < 0][:shown],
    )


def _find_example(
    dataset: Dataset, pairs: RelevantPairs, item_pairs: Rows, system: System, bare: System, lost: bool
) -> ExampleQuery:
    """The item's first query that shows the change, else its first query."""
    rank, bare_rank = (one.ranks["zero_shot"][item_pairs] for one in (system, bare))
    found_by, missed_by = (bare_rank, rank) if lost else (rank, bare_rank)
    changed = np.flatnonzero(in_top(found_by) & ~in_top(missed_by))
    at = int(changed[0]) if len(changed) else 0
    row = int(system.evaluation.queries["zero_shot"][pairs.query[item_pairs[at]]])
    text = dataset.test.queries.texts[row] if dataset.test else ""
    return ExampleQuery(text, int(rank[at]), int(bare_rank[at]))
