"""Few-shot classifiers: what an item's first clicked queries say about it, without training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.classifiers.classifiers import Classifiers, normalize_rows
from metaxc.errors import DataError

Revealed = Sequence[Sequence[str] | Floats]
"""Per item the queries known to have clicked it, as texts or as (n, dim) query embeddings; may be empty."""


@dataclass(frozen=True)
class RevealedQueries:
    """The first clicked queries of n items, embedded.

    Args:
        queries: (queries, dim) embeddings, with the classifiers' query layer applied.
        owner: (queries,) the item that each query clicked, ascending.
        names: (queries,) what to call each query: its text, or its number.
        items: n.
    """

    queries: Floats
    owner: Rows
    names: list[str]
    items: int

    @staticmethod
    def embed(
        revealed: Revealed, items: int, embed: Callable[[Sequence[str] | Floats], Floats]
    ) -> RevealedQueries | None:
        """Embed the revealed queries of `items` items; None where nothing is revealed.

        Args:
            revealed: One list per item.
            items: n.
            embed: Query texts or embeddings to (queries, dim); all texts are embedded in one call.
        """
        if isinstance(revealed, str) or len(revealed) != items:
            raise DataError(
                "The lists of revealed queries do not match the items",
                got=repr(revealed) if isinstance(revealed, str) else f"{len(revealed)} lists, {items} items",
                expected="one list of queries per item, empty where none is known",
            )
        texts: list[str] = []
        for queries in revealed:
            if isinstance(queries, str):
                raise DataError(
                    "The revealed queries of an item must be a list",
                    got=f"the text {queries!r}",
                    fix=f"pass [{queries!r}]",
                )
            if not isinstance(queries, np.ndarray):
                texts += queries
        embedded, used = embed(texts) if texts else None, 0
        parts: list[Floats] = []
        names: list[str] = []
        for queries in revealed:
            if not len(queries):
                continue
            if isinstance(queries, np.ndarray):
                parts.append(embed(queries))
                names += [f"revealed query {number + 1}" for number in range(len(queries))]
            elif embedded is not None:
                parts.append(embedded[used : used + len(queries)])
                names += queries
                used += len(queries)
        if not parts:
            return None
        owner = np.repeat(np.arange(items), [len(queries) for queries in revealed])
        return RevealedQueries(np.concatenate(parts), owner, names, items)

    def of_items(self, start: int, stop: int) -> RevealedQueries | None:
        """The queries of the items `start` to `stop`; None where these have none."""
        first, last = np.searchsorted(self.owner, [start, stop])
        if first == last:
            return None
        return RevealedQueries(
            self.queries[first:last], self.owner[first:last] - start, self.names[first:last], stop - start
        )

    def totals(self) -> Floats:
        """(items, dim) float32: the sum of each item's queries; a zero row where it has none."""
        sums = np.zeros((self.items, self.queries.shape[1]), dtype=np.float32)
        np.add.at(sums, self.owner, self.queries)
        return sums


class FewShotFitter:
    """Fits ridge classifiers to the first clicks of items, w = G⁻¹ Σ query at unit length.

    G = XᵀX + penalty·I should be the Gram matrix of the training queries, which a model does not keep; the observed
    items' embeddings live in the same space and replace them. On pseudo-novel items (`benchmarks/votes.py`) neither is
    clearly better: the items' G tends to rank novel items better, the queries' G novel and observed ones together. The
    plain centroid of the revealed queries ranks novel items best where all of them have clicks, but it also contains
    what all queries have in common: such an item rises for every query, above observed items (24 points of P@1 lost on
    one data set with its own calibration) and above novel items without clicks.

    Args:
        embeddings: (observed, dim) embeddings of the observed items.
        penalty: The ridge penalty.
    """

    def __init__(self, embeddings: Floats, penalty: float = 1.0):
        self.embeddings, self.penalty = embeddings, penalty

    @cached_property
    def inverse_gram(self) -> Doubles:
        """(dim, dim) float64: G⁻¹, computed once.

        Scipy holds Python's lock while it factors a matrix, 1 to 70 ms at 384 dimensions. Done with every click, it
        would stop all searches each time.
        """
        rows = np.asarray(self.embeddings, dtype=np.float32)
        gram = (rows.T @ rows + self.penalty * np.eye(rows.shape[1])).astype(np.float32)
        inverse: Doubles = cho_solve(cho_factor(gram.astype(np.float64)), np.eye(len(gram)))
        return (inverse + inverse.T) / 2

    def fit(self, revealed: RevealedQueries) -> Classifiers:
        """One classifier per item from its revealed queries alone; a zero row where it has none."""
        clicks = np.bincount(revealed.owner, minlength=revealed.items)
        return self.fit_totals(revealed.totals().astype(np.float64), clicks)

    def fit_totals(self, totals: Doubles, clicks: Rows) -> Classifiers:
        """One classifier per item from the sum of its queries, which is all that the classifier depends on. The encoder
        has learnt from none of these clicks.

        Args:
            totals: (items, dim) float64 sums, with the classifiers' query layer applied; zero rows without queries.
            clicks: (items,) how many queries each sum has.
        """
        weights = normalize_rows(totals @ self.inverse_gram)
        return Classifiers(weights, clicks, learnt_clicks=np.zeros_like(clicks))
