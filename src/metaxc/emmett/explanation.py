"""Where a meta-classifier comes from: its own text, its neighbours, its first clicks, each with its share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.selectors.voting import OWN_TEXT


@dataclass(frozen=True)
class Neighbour:
    """What informs an item: an observed item by its classifier, or a cluster by its vector.

    `weight` is what the generator multiplies its vector with; `share` is its part of the
    meta-classifier: the weighted vector projected on the whole, in percent. `voter` is the revealed query
    whose vote brought it, None where the item's own text did.
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


@dataclass(frozen=True)
class Selected:
    """What informs n items.

    Args:
        rows: (n, K) rows of the bank, −1 pads.
        scores: (n, K) how similar, −inf where padded.
        voters: (n, K) by which voter: `OWN_TEXT`, or the place of a revealed query.
    """

    rows: Rows
    scores: Floats
    voters: Rows

    def without(self, unwanted: Sequence[int]) -> Selected:
        """The others alone: nothing takes the place of what is left out."""
        off = np.isin(self.rows, np.asarray(unwanted, dtype=np.int64))
        return Selected(np.where(off, -1, self.rows), np.where(off, -np.inf, self.scores), self.voters)


@dataclass(frozen=True)
class Made:
    """Meta-classifiers of n items, with what they were made of.

    Args:
        chosen: What was selected.
        selected: (n, K, dim) the vectors at its rows.
        generated: (n, dim) what the generator made of them.
        evidence: (n, dim) what the revealed queries add.
    """

    chosen: Selected
    selected: Floats
    generated: Floats
    evidence: Floats | None


def explained(
    text: str,
    made: Made,
    embedding: Floats,
    weights: Floats,
    whole: Floats,
    name: Callable[[int], tuple[str, str]],
    voters: Sequence[str],
) -> Explanation:
    """One item's meta-classifier, taken apart.

    Args:
        text: The item's.
        made: What was made, of this one item.
        embedding: (dim,) the item's own.
        weights: (K + 1,) what the generator multiplied the embedding and each selected vector with, scaled as the
            meta-classifier is.
        whole: (dim,) the meta-classifier.
        name: Row of the bank to its id and text.
        voters: What to call the revealed queries.
    """
    parts = weights[:, None] * np.concatenate([embedding[None], made.selected[0]])
    if made.evidence is not None:
        parts = np.concatenate([parts, made.evidence])
    shares = (100 * (parts @ whole) / max(float(whole @ whole), 1e-12)).tolist()
    revealed_share = shares.pop() if made.evidence is not None else 0.0
    neighbours = [
        Neighbour(
            *name(int(row)),
            float(made.chosen.scores[0, place]),
            float(weights[place + 1]),
            shares[place + 1],
            voters[voter] if voter != OWN_TEXT else None,
        )
        for place, (row, voter) in enumerate(zip(made.chosen.rows[0], made.chosen.voters[0], strict=True))
        if row >= 0
    ]
    return Explanation(
        text,
        neighbours,
        text_share=shares[0],
        neighbour_share=sum(shares[1:]),
        learnt_share=100 - sum(shares) - revealed_share,
        revealed_share=revealed_share,
    )
