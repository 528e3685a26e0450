"""Where a meta-classifier comes from: its own text, its neighbours, its first clicks, each with its share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats


@dataclass(frozen=True)
class Neighbour:
    """Something that informs an item: an observed item by its classifier, or a cluster by its vector.

    `weight` is what the generator multiplies its vector with; `share` is its part of the meta-classifier in percent:
    the weighted vector projected on the whole. `voter` is the revealed query that brought it, None where the item's
    own text did.
    """

    id: str
    text: str
    similarity: float
    weight: float
    share: float
    voter: str | None = None


@dataclass(frozen=True)
class Explanation:
    """Where a meta-classifier comes from; the shares add up to 100 percent."""

    text: str
    neighbours: list[Neighbour]
    text_share: float
    neighbour_share: float
    learnt_share: float
    revealed_share: float = 0.0


def decompose(
    text: str,
    vector: Floats,
    parts: Floats,
    weights: Floats,
    names: Sequence[tuple[str, str] | None],
    similarities: Floats,
    voters: Sequence[str | None],
    first_clicks: Floats | None,
) -> Explanation:
    """Split one meta-classifier into the shares of its parts.

    Args:
        text: The item's text.
        vector: (dim,) the meta-classifier.
        parts: (K + 1, dim) the weighted embedding of its text, then the weighted vector of each neighbour.
        weights: (K,) the weights of the neighbours.
        names: (K,) id and text of each neighbour; None where there is no neighbour.
        similarities: (K,) similarity of each neighbour.
        voters: (K,) the revealed query that brought each neighbour; None for the item's own text.
        first_clicks: (dim,) what the revealed queries add; None where there are none.
    """
    if first_clicks is not None:
        parts = np.concatenate([parts, first_clicks[None]])
    shares = (100 * (parts @ vector) / max(float(vector @ vector), 1e-12)).tolist()
    revealed_share = shares.pop() if first_clicks is not None else 0.0
    found = zip(names, similarities.tolist(), weights.tolist(), shares[1:], voters, strict=True)
    neighbours = [
        Neighbour(*name, similarity, weight, share, voter)
        for name, similarity, weight, share, voter in found
        if name is not None
    ]
    return Explanation(
        text,
        neighbours,
        text_share=shares[0],
        neighbour_share=sum(shares[1:]),
        learnt_share=100 - sum(shares) - revealed_share,
        revealed_share=revealed_share,
    )
