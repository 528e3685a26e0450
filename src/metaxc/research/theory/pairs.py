"""The pairs that a generator of the study is trained on: all of them, or one or two per query, drawn once for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Mask, Rows

QUERIES, ITEMS, PAIRS = 512, 256, 256
"""Per step. As many items pass through the generator either way; all pairs then cost little more than single ones."""


@dataclass(frozen=True)
class Batch:
    """Pairs.

    Args:
        queries: (n,) rows.
        items: (m,) rows; where pairs are single, m = n.
        clicked: (n, m), or (n,) where pairs are single.
    """

    queries: Rows
    items: Rows
    clicked: Mask

    def scored(self, queries: Tensor, made: Tensor) -> Tensor:
        """Inner products, in the shape of `clicked`."""
        return queries @ made.T if self.clicked.ndim == 2 else (queries * made).sum(dim=1)


class Batches(ABC):
    """A sample of pairs.

    Args:
        clicks: (queries, items).
        random: Where draws come from.
    """

    def __init__(self, clicks: csr_array, random: np.random.Generator):
        self.clicks, self.random = clicks, random

    @abstractmethod
    def draw(self) -> Batch:
        """Some of it, for one step."""

    @abstractmethod
    def whole(self) -> Batch:
        """All of it, or, of the Cartesian sample, all items with all queries."""


class Cartesian(Batches):
    """Every query with every item: one-vs-all."""

    def draw(self) -> Batch:
        n, m = self.clicks.shape
        queries = self.random.permutation(n)[:QUERIES]
        items = self.random.permutation(m)[:ITEMS]
        return Batch(queries, items, self.clicks[queries][:, items].toarray() > 0)

    def whole(self) -> Batch:
        n, m = self.clicks.shape
        return Batch(np.arange(n), np.arange(m), self.clicks.toarray() > 0)


class Single(Batches):
    """A fixed list of single pairs, from `pairs`."""

    def __init__(self, clicks: csr_array, random: np.random.Generator):
        super().__init__(clicks, random)
        queries, items = self.pairs()
        clicked = np.asarray(clicks[queries, items]).ravel() > 0
        self.all = Batch(queries, items, clicked)

    @abstractmethod
    def pairs(self) -> tuple[Rows, Rows]:
        """Queries and items of the pairs."""

    def draw(self) -> Batch:
        rows = self.random.permutation(len(self.all.queries))[:PAIRS]
        return Batch(self.all.queries[rows], self.all.items[rows], self.all.clicked[rows])

    def whole(self) -> Batch:
        return self.all


class Drawn(Single):
    """Each query with one item drawn at random, as the theory's paired sample is made: hardly any click."""

    def pairs(self) -> tuple[Rows, Rows]:
        n, m = self.clicks.shape
        return np.arange(n), self.random.integers(0, m, size=n)


class Clicked(Single):
    """Each query with one item it clicked, where it has one, and with one drawn at random."""

    def pairs(self) -> tuple[Rows, Rows]:
        n, m = self.clicks.shape
        counts = np.diff(self.clicks.indptr)
        asking = np.flatnonzero(counts > 0)
        places = self.clicks.indptr[asking] + self.random.integers(0, counts[asking])
        clicked = self.clicks.indices[places].astype(np.int64)
        drawn = self.random.integers(0, m, size=n)
        return np.concatenate([asking, np.arange(n)]), np.concatenate([clicked, drawn])
