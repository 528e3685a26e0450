"""The vectors that can inform an item: those that the model was trained with, and those of items observed later.

A pool is a value: growing makes a new one that shares the large, unchanging arrays of the trained items and copies the
small ones of the items that came later. Whoever uses the old pool meanwhile is not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from metaxc.arrays import Doubles, Floats, Mask, Rows
from metaxc.classifiers import RevealedQueries
from metaxc.data import Texts
from metaxc.errors import DataError
from metaxc.generators import gather
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
from metaxc.index.topk import top_k
from metaxc.selectors import ClusterSelector, NearestSelector, Selector, Voters
from metaxc.selectors.nearest import drop_one
from metaxc.selectors.voting import OWN_TEXT


@dataclass(frozen=True)
class Selection:
    """The neighbours that were selected for n items.

    Args:
        rows: (n, K) rows of the pool, −1 pads.
        scores: (n, K) similarities, −inf where padded.
        voters: (n, K) what brought each neighbour: `OWN_TEXT`, or the place of a revealed query.
    """

    rows: Rows
    scores: Floats
    voters: Rows

    def without(self, rows: Sequence[int]) -> Selection:
        """The selection without these rows; nothing takes their place."""
        dropped = np.isin(self.rows, np.asarray(rows, dtype=np.int64))
        return Selection(
            np.where(dropped, -1, self.rows), np.where(dropped, -np.inf, self.scores), self.voters
        )


class TrainedPool:
    """What the model was trained with; never changes.

    Args:
        selector: Selects rows for an item.
        vectors: (m, dim) the vectors at these rows: by default the observed items' classifiers, scaled by trust.
        items: (m,) the observed items at these rows; None where the rows are something else.
        can_grow: Whether more items can be added: only where the nearest items inform by their classifiers.
    """

    def __init__(self, selector: Selector, vectors: Floats, items: Texts | None, can_grow: bool):
        self.selector, self.vectors, self.items, self.can_grow = selector, vectors, items, can_grow

    @cached_property
    def voters(self) -> Voters:
        """How revealed queries vote: by their scores with the vectors."""
        return Voters.over(self.selector.embeddings, self.vectors)

    @cached_property
    def sums(self) -> tuple[Doubles, Doubles]:
        """(dim,) sums of embeddings and of vectors."""
        return (
            self.selector.embeddings.sum(axis=0, dtype=np.float64),
            self.vectors.sum(axis=0, dtype=np.float64),
        )


@dataclass(frozen=True)
class LaterItems:
    """Items that were observed after training.

    Args:
        items: Their ids and texts.
        embeddings: (n, dim) their embeddings.
        vectors: (n, dim) the vectors by which they inform others.
        replaced: (m,) bool, the trained rows that they replace.
    """

    items: Texts
    embeddings: Floats
    vectors: Floats
    replaced: Mask


class NeighbourPool:
    """What informs items, and how it is selected.

    Args:
        trained: What the model was trained with.
        later: What was observed since; its rows follow the trained ones.
    """

    def __init__(self, trained: TrainedPool, later: LaterItems | None = None):
        self.trained, self.later = trained, later

    def __len__(self) -> int:
        count = len(self.trained.vectors)
        return (
            count if self.later is None else count + len(self.later.vectors) - int(self.later.replaced.sum())
        )

    def select(
        self,
        embeddings: Floats,
        k: int,
        texts: Sequence[str] | None = None,
        revealed: RevealedQueries | None = None,
        itself: Rows | None = None,
    ) -> Selection:
        """Select k neighbours for each of n items; their revealed queries vote too.

        Args:
            embeddings: (n, dim) the items' embeddings.
            k: How many.
            texts: (n,) the items' texts, for selectors that read them.
            revealed: The items' first clicked queries.
            itself: (n,) the row that each item is itself, −1 for none: no item informs itself.
        """
        selector, later = self.trained.selector, self.later
        if later is None:
            rows, scores = selector.select(embeddings, k, itself, texts)
        else:
            nearest = (
                selector.items
                if isinstance(selector, NearestSelector)
                else ArraySearch(selector.embeddings, most_scanned=MOST_SCANNED)
            )
            search = partial(_search_both, embeddings, nearest.search, later, later.embeddings)
            rows, scores = search(k) if itself is None else drop_one(*search(k + 1), itself)
        voters = np.full(rows.shape, OWN_TEXT, dtype=np.int64)
        if revealed is not None:
            rows, scores, voters = self._voters.elect(
                embeddings, rows, scores, revealed.queries, revealed.owner, itself
            )
        return Selection(rows, scores, voters)

    def vectors_at(self, rows: Rows) -> Floats:
        """(…, dim): the vectors at `rows`, zeros where a row is −1."""
        return _gather(rows, self.trained.vectors, None if self.later is None else self.later.vectors)

    def embeddings_at(self, rows: Rows) -> Floats:
        """(…, dim): the embeddings that the vectors at `rows` belong to, zeros where a row is −1."""
        embeddings = self.trained.selector.embeddings
        return _gather(rows, embeddings, None if self.later is None else self.later.embeddings)

    def row_of(self, id: str) -> int:
        """The row of the item with this id; −1 where it does not inform others."""
        if self.later is not None and id in self.later.items.row_of:
            return len(self.trained.vectors) + self.later.items.row_of[id]
        return -1 if self.trained.items is None else self.trained.items.row_of.get(id, -1)

    def name(self, row: int) -> tuple[str, str]:
        """Id and text of a row."""
        items, trained = self.trained.items, len(self.trained.vectors)
        if self.later is not None and row >= trained:
            items, row = self.later.items, row - trained
        if items is None:
            kind = "cluster" if isinstance(self.trained.selector, ClusterSelector) else "vector"
            return f"{kind} {row}", ""
        return items.ids[row], items.texts[row]

    def with_items(
        self, ids: Sequence[str], texts: Sequence[str], embeddings: Floats, vectors: Floats
    ) -> NeighbourPool:
        """A pool with more items; one with the id of an item that is there replaces it.

        Args:
            ids: (n,) ids of the items.
            texts: (n,) their texts.
            embeddings: (n, dim) their embeddings.
            vectors: (n, dim) the vectors by which they inform others.
        """
        trained = self.trained
        if not trained.can_grow or trained.items is None:
            raise DataError(
                "A model with a selector of its own cannot take more observed items",
                got=repr(trained.selector),
                fix="train again",
            )
        nothing = np.empty((0, embeddings.shape[1]), np.float32)
        before = self.later or LaterItems(
            Texts([], []), nothing, nothing, np.zeros(len(trained.vectors), dtype=bool)
        )
        new, replaced = set(ids), before.replaced.copy()
        kept = [place for place, name in enumerate(before.items.ids) if name not in new]
        replaced[[trained.items.row_of[name] for name in ids if name in trained.items.row_of]] = True
        later = LaterItems(
            Texts(
                [*(before.items.ids[place] for place in kept), *ids],
                [*(before.items.texts[place] for place in kept), *texts],
            ),
            np.concatenate([before.embeddings[kept], embeddings]),
            np.concatenate([before.vectors[kept], vectors]),
            replaced,
        )
        return NeighbourPool(trained, later)

    @cached_property
    def _voters(self) -> Voters:
        later, trained = self.later, self.trained
        if later is None:
            return trained.voters
        arrays = (trained.selector.embeddings, trained.vectors)
        mean_embedding, mean_vector = (
            ((total - array[later.replaced].sum(axis=0) + more.sum(axis=0)) / len(self)).astype(np.float32)
            for total, array, more in zip(
                trained.sums, arrays, (later.embeddings, later.vectors), strict=True
            )
        )
        return Voters(
            lambda queries, k: _search_both(queries, self._search_vectors, later, later.vectors, k),
            mean_embedding,
            mean_vector,
        )

    def _search_vectors(self, queries: Floats, k: int, excluded: Mask) -> tuple[Rows, Floats]:
        """Exact, because an index of the vectors would be built at the first click and kept for nothing else."""
        return top_k(queries, self.trained.vectors, k, ~excluded)


def _search_both(
    queries: Floats,
    search: Callable[[Floats, int, Mask], tuple[Rows, Floats]],
    later: LaterItems,
    later_rows: Floats,
    k: int,
) -> tuple[Rows, Floats]:
    """The k best of what a search finds in the trained rows, without the replaced ones, and of the later rows."""
    first, first_scores = search(queries, k, later.replaced)
    second, second_scores = top_k(queries, later_rows, k)
    rows = np.concatenate([first, np.where(second < 0, -1, second + len(later.replaced))], axis=1)
    scores = np.concatenate([first_scores, second_scores], axis=1)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)


def _gather(rows: Rows, trained: Floats, later: Floats | None) -> Floats:
    if later is None:
        return gather(trained, rows)
    is_later = rows >= len(trained)
    found = gather(trained, np.where(is_later, -1, rows))
    found[is_later] = later[rows[is_later] - len(trained)]
    return found
