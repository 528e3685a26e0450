"""The systems a report compares, judged by the same queries, with the place each gave to every relevant item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.evaluation.protocol import SETTINGS, Evaluation, Search, evaluate
from metaxc.metrics import hits

MODEL, ADAPTED, BARE = "model", "adapted", "bare"


@dataclass(frozen=True)
class Number:
    """A mean with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 or −1 where the whole interval is on one side of 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Pairs:
    """The relevant (query, item) pairs of a setting, sorted by query, then item.

    Args:
        query: (pairs,) int64, place of the query among those judged (`Evaluation.queries`).
        item: (pairs,) int64, row of the item.
        queries: How many queries are judged.
    """

    query: Rows
    item: Rows
    queries: int


@dataclass(frozen=True)
class System:
    """Something that answers queries, judged.

    Args:
        key: "model", "adapted" (its encoder alone) or "bare" (the pretrained encoder).
        name: What the page calls it.
        evaluation: Its metrics.
        places: By setting, (pairs,) int64, the place from 1 at which each relevant pair's item was answered, in
            the order of `Pairs`; 0 where it is not among the first 100.
    """

    key: str
    name: str
    evaluation: Evaluation
    places: Mapping[str, Rows] = field(repr=False)


def judge(key: str, name: str, search: Search, dataset: Dataset) -> System:
    """Evaluate a search in both settings, and keep where it put the relevant items."""
    rankings: dict[str, Rows] = {}

    def recorded(texts: Sequence[str], k: int, among: Mask | None) -> Rows:
        ranked = search(texts, k, among)
        rankings["generalized" if among is None else "zero_shot"] = ranked
        return ranked

    evaluation = evaluate(recorded, dataset)
    places = {}
    for setting in SETTINGS:
        rows = evaluation.queries[setting]
        left_out = None if dataset.filters is None else csr_array(dataset.filters[rows])
        places[setting] = places_of(rankings[setting], pairs_of(dataset, setting, rows), left_out)
    return System(key, name, evaluation, places)


def pairs_of(dataset: Dataset, setting: str, query_rows: Rows) -> Pairs:
    """The pairs that count as relevant, as `metaxc.evaluation.evaluate` sees them: no filter pairs, and in the
    zero-shot setting novel items only."""
    if dataset.test is None:
        empty = np.empty(0, dtype=np.int64)
        return Pairs(empty, empty, 0)
    clicks = csr_array(dataset.test.clicks[query_rows])
    clicks.sum_duplicates()
    query = np.repeat(np.arange(len(query_rows)), np.diff(clicks.indptr))
    item = clicks.indices.astype(np.int64)
    kept = clicks.data != 0
    if setting == "zero_shot":
        kept &= dataset.novel_mask[item]
    if dataset.filters is not None:
        kept &= ~hits(item[:, None], csr_array(dataset.filters[query_rows[query]]))[:, 0]
    return Pairs(query[kept], item[kept], len(query_rows))


def places_of(ranked: Rows, pairs: Pairs, left_out: csr_array | None) -> Rows:
    """(pairs,) int64: where each pair's item stands among its query's answers, from 1; 0 for nowhere.

    Args:
        ranked: (queries, depth) int64, −1 for no answer.
        pairs: Sorted by query, then item.
        left_out: (queries, items), answers that do not take a place.
    """
    items = int(max(ranked.max(initial=0), pairs.item.max(initial=0))) + 1
    counted = ranked >= 0
    if left_out is not None:
        counted &= ~hits(ranked, left_out)
    place = np.where(counted, np.cumsum(counted, axis=1), 0)
    asked = np.arange(len(ranked))[:, None] * items + ranked
    keys = pairs.query * items + pairs.item
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    hit = (keys[at] == asked) & counted & (place <= 100)
    places = np.zeros(len(keys), dtype=np.int64)
    places[at[hit]] = place[hit]
    return places
