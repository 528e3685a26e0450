"""Query sides of one model compared on held-out queries: how far the query tower moves, how queries are expanded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.emmett import ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import ClassifierResponse, query_vectors
from metaxc.encoders import Encoder
from metaxc.index.topk import top_k
from metaxc.metrics import without_pairs
from metaxc.tuning import MixedQuality, Relevance
from metaxc.tuning.grids import EXPANSION_NEIGHBOURS, EXPANSION_STRENGTHS
from metaxc.tuning.qualities import DEPTH, SLACK


@dataclass(frozen=True)
class QuerySide:
    """One way to answer queries.

    Args:
        encoder: Encodes queries.
        expansion: Expands them; None for no expansion.
        exposure: Their last coordinate.
        extent: How far the query tower has moved, from 0 (the present one) to 1 (as trained).
        kept: Whether the training queries of the expansion are those that the model had.
    """

    encoder: Encoder
    expansion: QueryExpansion | None
    exposure: float = 0.0
    extent: float = 0.0
    kept: bool = False

    def describe(self) -> dict[str, Any]:
        """What was chosen, for people and reports."""
        expansion = None if self.expansion is None else self.expansion.config.model_dump()
        return {
            "extent": self.extent,
            "exposure": self.exposure,
            "expansion": expansion,
            "expansion_queries_kept": self.kept,
        }


Compared = list[tuple[QuerySide, MixedQuality]]
"""Query sides with their quality: the model's own, that with newer training queries, and all others."""


class HeldOutQueries:
    """Queries that validate, and how well they find what they clicked among all items.

    Args:
        relevance: What they clicked.
        vectors: (items, dim + 1) float32 vectors of all items.
        own: (queries, items) pairs that are left out of a ranking, because the item's text is the query; None for none.
        response: What the exposure of each query is multiplied with; None for 1.
    """

    def __init__(
        self,
        relevance: Relevance,
        vectors: Floats,
        own: csr_array | None = None,
        response: ClassifierResponse | None = None,
    ):
        self.relevance, self.vectors, self.own, self.response = relevance, vectors, own, response

    def quality(self, queries: Floats, exposure: float) -> MixedQuality:
        """How well (queries, dim) embeddings, expanded where they are to be, find what was clicked."""
        extra = 0 if self.own is None else int(np.diff(self.own.indptr).max(initial=0))
        k = min(DEPTH + extra, len(self.vectors))
        exposures = exposure if self.response is None else exposure * self.response(queries)
        ranked, _ = top_k(query_vectors(queries, exposures), self.vectors, k)
        return self.relevance.quality(
            ranked if self.own is None else without_pairs(ranked, self.own)[:, :DEPTH]
        )

    def expansions(
        self, queries: Floats, expansion: QueryExpansion, exposure: float
    ) -> Iterator[tuple[ExpansionConfig, MixedQuality]]:
        """Ways to expand (queries, dim) embeddings by training queries, with the quality of each."""
        rows, scores = expansion.nearest(queries, max(k for k, _ in EXPANSION_NEIGHBOURS))
        for k, temperature in EXPANSION_NEIGHBOURS:
            direction = expansion.direction(rows[:, :k], scores[:, :k], temperature)
            for strength in EXPANSION_STRENGTHS:
                config = ExpansionConfig(neighbours=k, temperature=temperature, strength=strength)
                yield config, self.quality(queries + np.float32(strength) * direction, exposure)


def choose_query_side(compared: Compared) -> QuerySide:
    """The query side with the best mean of P@1 and R@10 that costs novel items no more than `SLACK`.

    The model's own with newer training queries stays where nothing is better by more than `SLACK`, and the model's own
    as it was where even those cost more than that.
    """
    (before, as_it_was), (refreshed, with_newer) = compared[:2]
    fair = [one for one in compared if one[1].novel >= as_it_was.novel - SLACK]
    best, reached = max(fair, key=lambda one: one[1].mean)
    if best is not before and reached.mean > max(as_it_was.mean, with_newer.mean) + SLACK:
        return best
    stays_fair = with_newer.novel >= as_it_was.novel - SLACK
    return refreshed if stays_fair and with_newer.mean >= as_it_was.mean - SLACK else before
