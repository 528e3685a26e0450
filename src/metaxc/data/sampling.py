"""A part of a data set, to try things on before they are run on all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.errors import DataError


def sample_dataset(dataset: Dataset, items: int, train: int, test: int, seed: int = 0) -> Dataset:
    """Some of the items at random, and some of the queries that clicked one of them.

    Items keep all clicks of the queries that are left, so that the share of novel items and, as long as `train` allows,
    the number of clicks of an item are those of the whole data set. Fewer items are easier to rank: figures of a part
    cannot be compared with those of the whole.

    Args:
        dataset: The whole data set.
        items: How many items are kept at most.
        train: How many training queries are kept at most.
        test: How many test queries are kept at most.
        seed: Draws all of them.
    """
    if min(items, train, test) < 1:
        raise DataError(
            "A part of a data set needs items and queries",
            got=f"{items} items, {train} training queries, {test} test queries",
            expected="at least one of each",
        )
    random = np.random.default_rng(seed)
    rows = _draw(random, np.arange(len(dataset.items)), items)

    def part(log: ClickLog, most: int) -> tuple[ClickLog, Rows]:
        log = log.take_items(rows)
        kept = _draw(random, np.flatnonzero(np.diff(log.clicks.indptr) > 0), most)
        return log.take(kept), kept

    learnt, _ = part(dataset.train, train)
    tested, kept = (None, None) if dataset.test is None else part(dataset.test, test)
    filters = dataset.filters
    if filters is not None and kept is not None:
        filters = csr_array(csr_array(filters[kept])[:, rows])
    return replace(
        dataset,
        items=dataset.items.take(rows),
        train=learnt,
        test=tested,
        novel=None if dataset.novel is None else dataset.novel[rows],
        filters=filters,
    )


def _draw(random: np.random.Generator, rows: Rows, most: int) -> Rows:
    """At most so many of the rows, ascending."""
    return rows if len(rows) <= most else np.sort(random.choice(rows, most, replace=False))
