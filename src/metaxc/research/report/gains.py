"""Novel items one by one: which gained over the bare encoder, which lost, and whether near neighbours help.

An item's R@10 is the share of its test queries that have it among their first 10 answers, novel items only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Doubles, Rows
from metaxc.data.dataset import Dataset
from metaxc.emmett import Emmett, Neighbour
from metaxc.evaluation.intervals import bootstrap
from metaxc.index.topk import top_k
from metaxc.research.report.systems import Number, Pairs, System, pairs_of

DEPTH = 10
BINS = 8
FEWEST_IN_BIN = 5
SHOWN = 20


@dataclass(frozen=True)
class Bin:
    """Novel items whose nearest observed neighbour is about equally similar.

    Args:
        low, high: Least and most similarity in the bin.
        middle: Median similarity.
        items: How many.
        gain: Mean gain in R@10, points of percent; the interval is a bootstrap over items.
    """

    low: float
    high: float
    middle: float
    items: int
    gain: Number


@dataclass(frozen=True)
class Example:
    """A test query of an item, and the place at which each system answered with it; 0 is not among the first 100."""

    query: str
    place: int
    bare_place: int


@dataclass(frozen=True)
class ItemGain:
    """A novel item: R@10 with the model and with the bare encoder, and where its meta-classifier comes from."""

    id: str
    text: str
    queries: int
    recall: float
    bare_recall: float
    example: Example
    neighbours: Sequence[Neighbour]
    text_share: float

    @property
    def gain(self) -> float:
        return self.recall - self.bare_recall


@dataclass(frozen=True)
class Gains:
    """What the novel items gained.

    Args:
        items: How many novel items have a test query.
        better, worse: How many of them gained and lost.
        bins: By similarity of the nearest observed neighbour, least similar first.
        gained, lost: The items that gained and lost most.
    """

    items: int
    better: int
    worse: int
    bins: Sequence[Bin]
    gained: Sequence[ItemGain]
    lost: Sequence[ItemGain]


def item_gains(model: Emmett, ours: System, bare: System, dataset: Dataset, shown: int = SHOWN) -> Gains:
    """Compare the model with the bare encoder on each novel item that a test query clicked."""
    pairs = pairs_of(dataset, "zero_shot", ours.evaluation.queries["zero_shot"])
    rows, at = np.unique(pairs.item, return_inverse=True)
    queries = np.bincount(at)
    recall, bare_recall = (
        100 * np.bincount(at, weights=_inside(system.places["zero_shot"])) / queries
        for system in (ours, bare)
    )
    gain = recall - bare_recall
    embeddings = model.encoder.encode_items(dataset.items.texts)[rows]
    similarity = top_k(embeddings, model.embeddings, 1)[1][:, 0].astype(np.float64)

    def tell(place: int) -> ItemGain:
        row = int(rows[place])
        why = model.explain(dataset.items.texts[row])
        return ItemGain(
            dataset.items.ids[row],
            dataset.items.texts[row],
            int(queries[place]),
            float(recall[place]),
            float(bare_recall[place]),
            _example(dataset, pairs, np.flatnonzero(at == place), ours, bare, gain[place] < 0),
            why.neighbours,
            why.text_share,
        )

    gained, lost = extremes(gain, queries, shown)
    return Gains(
        len(rows),
        int((gain > 0).sum()),
        int((gain < 0).sum()),
        similarity_bins(similarity, gain),
        [tell(place) for place in gained],
        [tell(place) for place in lost],
    )


def similarity_bins(similarity: Doubles, gain: Doubles, bins: int = BINS) -> list[Bin]:
    """Mean gain in bins of equally many items, least similar first.

    Args:
        similarity: (items,) of the nearest observed neighbour.
        gain: (items,) points of percent.
        bins: How many; fewer where a bin would hold fewer than 5 items.
    """
    order = np.argsort(similarity, kind="stable")
    made = []
    for part in np.array_split(order, max(1, min(bins, len(order) // FEWEST_IN_BIN))):
        low, high = bootstrap(gain[part][:, None])
        number = Number(float(gain[part].mean()), float(low[0]), float(high[0]))
        near = similarity[part]
        made.append(Bin(float(near[0]), float(near[-1]), float(np.median(near)), len(part), number))
    return made


def extremes(gain: Doubles, queries: Rows, shown: int) -> tuple[list[int], list[int]]:
    """Places of the largest gains and of the largest losses; ties by more queries, then by order."""
    order = np.arange(len(gain))
    up, down = np.lexsort((order, -queries, -gain)), np.lexsort((order, -queries, gain))
    return (
        [int(place) for place in up if gain[place] > 0][:shown],
        [int(place) for place in down if gain[place] < 0][:shown],
    )


def _example(
    dataset: Dataset, pairs: Pairs, of_item: Rows, ours: System, bare: System, lost: bool
) -> Example:
    """The first query of the item that shows the change, else its first."""
    place, bare_place = (system.places["zero_shot"][of_item] for system in (ours, bare))
    changed = np.flatnonzero(_inside(bare_place if lost else place) & ~_inside(place if lost else bare_place))
    at = int(changed[0]) if len(changed) else 0
    row = int(ours.evaluation.queries["zero_shot"][pairs.query[of_item[at]]])
    text = dataset.test.queries.texts[row] if dataset.test else ""
    return Example(text, int(place[at]), int(bare_place[at]))


def _inside(place: Rows) -> NDArray[np.bool_]:
    return (place > 0) & (place <= DEPTH)
