"""What an item's clicks say about it, in a size that does not grow with their number.

An item's own classifier depends on its clicked queries only through their sum and their number
(`FewShotFitter.fit_totals`). Its neighbours depend on which queries vote: the newest `MOST_VOTERS`. Up to that many
clicks the voters are all there is. Items with more have their running sum in the table `click_sums`, so that a click
costs the same whether it is the hundredth or the hundred-thousandth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from metaxc.arrays import Doubles, Floats
from metaxc.catalog.records import ItemRow
from metaxc.catalog.schema import CLICK_SUMS, decode_vectors
from metaxc.catalog.store import Store, Transaction

MOST_VOTERS = 64
"""Newest clicked queries of an item that vote for its neighbours. What neighbours contribute to its vector fades with
its clicks (`metaxc.emmett.scoring`): with a novelty prior of 3 clicks it is 4 % after 64, and 64 newer queries choose
them, while each voter costs a comparison with all observed items."""

Transform = Callable[[Floats], Floats]
"""(n, dim) query embeddings to the space in which classifiers are fitted: `Emmett.embed_queries`."""


@dataclass(frozen=True)
class ItemClicks:
    """The clicks of one item.

    Args:
        count: How many there are.
        voters: (min(count, MOST_VOTERS), dim) float32 embeddings of the newest clicked queries, the oldest first.
        total: (dim,) float64 sum of all clicked queries, transformed; None where the voters are all of them.
    """

    count: int
    voters: Floats
    total: Doubles | None = None

    @staticmethod
    def none(dim: int) -> ItemClicks:
        """No clicks."""
        return ItemClicks(0, np.empty((0, dim), np.float32))

    @staticmethod
    def of(queries: Floats, transform: Transform) -> ItemClicks:
        """From (clicks, dim) embeddings of all clicked queries, the oldest first."""
        total = _sum(queries, transform) if len(queries) > MOST_VOTERS else None
        return ItemClicks(len(queries), queries[-MOST_VOTERS:], total)

    def with_queries(self, queries: Floats, transform: Transform) -> ItemClicks:
        """These clicks and those of (n, dim) newer queries."""
        total, voters = self.total, np.concatenate([self.voters, queries])
        if total is not None:
            total = total + _sum(queries, transform)
        elif len(voters) > MOST_VOTERS:
            total = _sum(voters, transform)
        return ItemClicks(self.count + len(queries), voters[-MOST_VOTERS:], total)

    def write(self, transaction: Transaction, row: ItemRow) -> None:
        """Keep the sum of an item for its next click. One that the model was trained on needs none: its newer clicks
        leave its vector as it is."""
        if self.total is None or row.trained:
            transaction.delete(CLICK_SUMS, row.key)
        else:
            total = self.total.astype("<f8").tobytes()
            transaction.put(CLICK_SUMS, (row.key, self.count, total))


def read_item_clicks(
    store: Store, row: ItemRow, transform: Transform, without: int | None = None
) -> ItemClicks:
    """The clicks of an item, at a cost that does not depend on their number.

    Args:
        store: The catalog's store.
        row: The item.
        transform: As in `ItemClicks.of`.
        without: The number of a click to leave out.
    """
    removed = [] if without is None else _embeddings(store, "number = ?", (without,))
    count = row.clicks - len(removed)
    if row.trained:
        return replace(ItemClicks.none(store.dim), count=count)
    newest = _embeddings(store, "key = ? AND number IS NOT ?", (row.key, without), newest=MOST_VOTERS)
    voters = decode_vectors(newest[::-1], store.dim)
    if count <= MOST_VOTERS:
        return ItemClicks(count, voters)
    total = _read_total(store, row)
    if total is None:
        everything = _embeddings(store, "key = ? AND number IS NOT ?", (row.key, without), newest=-1)
        return ItemClicks.of(decode_vectors(everything[::-1], store.dim), transform)
    if removed:
        total = total - _sum(decode_vectors(removed, store.dim), transform)
    return ItemClicks(count, voters, total)


def _read_total(store: Store, row: ItemRow) -> Doubles | None:
    """The stored sum; None where an older version of metaxc has written the clicks."""
    if not store.fetch_all("SELECT 1 FROM sqlite_master WHERE name = ?", (CLICK_SUMS.name,)):
        return None
    stored = store.fetch_all(
        "SELECT total FROM click_sums WHERE key = ? AND clicks = ?", (row.key, row.clicks)
    )
    return np.frombuffer(stored[0][0], dtype="<f8").astype(np.float64) if stored else None


def _embeddings(store: Store, where: str, parameters: Sequence[int | None], newest: int = 1) -> list[bytes]:
    """Stored embeddings of clicks, the newest first, at most `newest` of them (−1 for all)."""
    statement = f"SELECT embedding FROM clicks WHERE {where} ORDER BY number DESC LIMIT ?"
    return [embedding for (embedding,) in store.fetch_all(statement, (*parameters, newest))]


def _sum(queries: Floats, transform: Transform) -> Doubles:
    total: Doubles = transform(queries).sum(axis=0, dtype=np.float64)
    return total
