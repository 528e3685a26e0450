"""The first clicks of an item: its revealed queries, as voters and as evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.classifiers.classifiers import Classifiers, normalize_rows
from metaxc.errors import DataError

Revealed = Sequence[Sequence[str] | Floats]
"""Per item the queries known to have clicked it, as texts or as (n, dim) query embeddings; may be empty."""


@dataclass(frozen=True)
class FewClicks:
    """The revealed queries of n items, one after the other.

    Args:
        queries: (queries, dim) as the classifiers score them.
        owner: (queries,) the item of each, ascending.
        names: What to call each: its text, or its number.
        items: n.
    """

    queries: Floats
    owner: Rows
    names: list[str]
    items: int

    @staticmethod
    def of(
        revealed: Revealed, items: int, embed: Callable[[Sequence[str] | Floats], Floats]
    ) -> FewClicks | None:
        """None where nothing is revealed.

        Args:
            revealed: One list per item.
            items: n.
            embed: Query texts or embeddings to (queries, dim); all texts come in one call.
        """
        if isinstance(revealed, str) or len(revealed) != items:
            raise DataError(
                "Revealed queries do not fit the items",
                got=repr(revealed) if isinstance(revealed, str) else f"{len(revealed)} lists, {items} items",
                expected="one list of queries per item, empty where none is known",
            )
        texts: list[str] = []
        for queries in revealed:
            if isinstance(queries, str):
                raise DataError(
                    "One revealed query in place of a list", got=repr(queries), fix=f"pass [{queries!r}]"
                )
            if not isinstance(queries, np.ndarray):
                texts += queries
        embedded, taken = embed(texts) if texts else None, 0
        parts: list[Floats] = []
        names: list[str] = []
        for queries in revealed:
            if not len(queries):
                continue
            if isinstance(queries, np.ndarray):
                parts.append(embed(queries))
                names += [f"revealed query {number + 1}" for number in range(len(queries))]
            elif embedded is not None:
                parts.append(embedded[taken : taken + len(queries)])
                names += queries
                taken += len(queries)
        if not parts:
            return None
        owner = np.repeat(np.arange(items), [len(queries) for queries in revealed])
        return FewClicks(np.concatenate(parts), owner, names, items)

    def classifiers(self, inverse: Doubles) -> Classifiers:
        """A ridge classifier per item from its revealed queries alone, w = gram⁻¹ Σ query at unit length; a zero row
        where there are none.

        Args:
            inverse: (dim, dim) of a `gram`, as `inverted` makes it.
        """
        sums = np.zeros((self.items, self.queries.shape[1]), dtype=np.float32)
        np.add.at(sums, self.owner, self.queries)
        weights = sums.astype(np.float64) @ inverse
        return Classifiers(normalize_rows(weights), np.bincount(self.owner, minlength=self.items))


def gram(embeddings: Floats, penalty: float = 1.0) -> Floats:
    """(dim, dim) float32: XᵀX + penalty·I of the observed items' embeddings.

    Ridge classifiers need that of the training queries, which a model does not keep; items live in the same space
    and stand in for them. On pseudo-novel items (`benchmarks/votes.py`) neither is clearly better: that of the items
    tends to rank novel items better, that of the queries novel and observed ones together. The plain centroid of the
    revealed queries ranks novel items best where all of them have clicks. But it also adds what all queries have in
    common: an item rises for every query, related or not, above observed items (24 points of P@1 lost on one data set
    with its own calibration) and above novel ones without clicks.
    """
    rows = np.asarray(embeddings, dtype=np.float32)
    return (rows.T @ rows + penalty * np.eye(rows.shape[1])).astype(np.float32)


def inverted(gram: Floats) -> Doubles:
    """(dim, dim) float64: its inverse, to be kept. Scipy holds Python's lock while it factors a matrix, 1 to 70 ms at
    384 dimensions: done with every click, all searches would stand still as often."""
    made: Doubles = cho_solve(cho_factor(gram.astype(np.float64)), np.eye(len(gram)))
    return (made + made.T) / 2
