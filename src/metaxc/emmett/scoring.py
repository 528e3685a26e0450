"""The vector of an item: one formula for any number of clicks. Everything that ranks items calls this.

    trust in its own clicks:   t(n) = n / (n + prior_clicks)
    novelty:                   r(n) = novelty_prior / (m + novelty_prior),   m = learnt clicks + others / 3
    length:                    s(n) = 1 + (novel_scale − 1) · r(n)

    vector:   u(n) = s · [ z + r · (G − z) ] + own · t · w,   and r(n) as one more coordinate
    score:    q · u + exposure · r

n is the number of the item's clicks, z the embedding of its text, w its own classifier, and G what the generator makes
of the classifiers of its neighbours, which are trusted by their clicks too, with a prior of their own. Without clicks
the vector is the meta-classifier of a novel item, with many clicks the classifier of an observed one; nothing jumps at
a first click. "Novel", "clicked" and "observed" are labels for people.

Clicks that came after the training count a third against an item's novelty: the embedding of its text has not learnt
from them as it has from those of the training, so the item still needs its neighbours and the exposure
(`benchmarks/life.py`, docs/decisions.md).

The last coordinate of a query is the exposure: what is added to the score of an item without clicks. So any index that
ranks by inner product serves it, and it may differ from request to request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.classifiers import Classifiers

NEIGHBOUR_PRIOR = 10.0
"""Clicks at which a neighbour's classifier has half its weight, where nothing else was chosen."""


UNLEARNT_SHARE = 1 / 3
"""What a click that the encoder has not learnt from counts against an item's novelty. Where it counts whole, items lose
recall with their first clicks; where it counts a tenth, they take too many places of others (docs/decisions.md)."""

MOST = 1e6
"""Largest constant: far beyond all that is chosen, and far from where float32 overflows."""


MOST_NEIGHBOURS = 10_000
"""Largest K; more than any selection needs, and far less than would fill the memory."""


class Calibration(BaseModel):
    """How items with many, few and no clicks rank together. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    own: float = Field(1.5, ge=0, le=MOST, description="weight of an item's own classifier")
    prior_clicks: float = Field(30.0, ge=0, le=MOST, description="clicks at which it has half that weight")
    novelty_prior: float = Field(
        3.0,
        ge=0,
        le=MOST,
        description="clicks at which an item is half as novel as one without; 0: the first click ends it",
    )
    novel_scale: float = Field(
        1.0, gt=0, le=MOST, description="multiplies the meta-classifiers of novel items"
    )
    exposure: float = Field(
        0.0,
        ge=-MOST,
        le=MOST,
        description="added to the score of a novel item; a search may use another value",
    )


def click_trust(clicks: Rows | Doubles | Floats, prior: float) -> Floats:
    """float32 of the shape of `clicks`: n / (n + prior) for items with n clicks.

    A few clicks are mostly noise, many are reliable. A prior of 0 trusts all alike.
    """
    n = clicks.astype(np.float32)
    trust: Floats = (n / np.maximum(n + prior, 1e-6)).astype(np.float32)
    return trust


def scale_by_trust(classifiers: Classifiers, prior: float) -> Floats:
    """(items, dim) float32: classifiers times the trust in the clicks that they were fitted on."""
    return classifiers.weights * click_trust(classifiers.clicks, prior)[:, None]


@dataclass(frozen=True)
class PartWeights:
    """What the parts of an item's vector are multiplied with; each of the shape of the click counts.

    Args:
        text: Weight of the text's embedding z.
        generated: Weight of what the generator made, G.
        own: Weight of the item's own classifier w.
        novelty: The last coordinate: 1 without clicks, near 0 with many.
    """

    text: Floats
    generated: Floats
    own: Floats
    novelty: Floats

    def at(self, rows: Rows) -> PartWeights:
        """The weights at these rows, of any shape."""
        return PartWeights(*(part.take(rows) for part in (self.text, self.generated, self.own, self.novelty)))


def weigh_parts(
    clicks: Rows | Doubles | Floats,
    calibration: Calibration,
    learnt_clicks: Rows | Doubles | None = None,
) -> PartWeights:
    """The weights of the formula above for items with these numbers of clicks, of any shape.

    Args:
        clicks: The numbers of clicks.
        calibration: The constants.
        learnt_clicks: How many of them the encoder has learnt from; None for all.
    """
    counted = clicks if learnt_clicks is None else _count_against_novelty(clicks, learnt_clicks)
    novelty = 1 - click_trust(counted, calibration.novelty_prior)
    scale = 1 + (calibration.novel_scale - 1) * novelty
    own = calibration.own * click_trust(clicks, calibration.prior_clicks)
    return PartWeights(scale * (1 - novelty), scale * novelty, own, novelty)


def _count_against_novelty(clicks: Rows | Doubles | Floats, learnt_clicks: Rows | Doubles) -> Doubles:
    learnt = learnt_clicks.astype(np.float64)
    counted: Doubles = learnt + UNLEARNT_SHARE * (clicks.astype(np.float64) - learnt)
    return counted


def item_vectors(
    embeddings: Floats, generated: Floats, classifiers: Classifiers | None, calibration: Calibration
) -> Floats:
    """(items, dim + 1) float32: items with any number of clicks; the last coordinate is their novelty.

    Args:
        embeddings: (items, dim) embeddings of their texts.
        generated: (items, dim) what the generator made of their neighbours; read only where novelty is not 0.
        classifiers: Their own classifiers, with the clicks that these were fitted on; None where no item has a click.
        calibration: The constants.
    """
    if classifiers is None:
        weights = weigh_parts(np.zeros(len(embeddings), np.int64), calibration)
    else:
        weights = weigh_parts(classifiers.clicks, calibration, classifiers.learnt_clicks)
    vectors = weights.text[:, None] * embeddings + weights.generated[:, None] * generated
    if classifiers is not None:
        vectors += weights.own[:, None] * classifiers.weights
    return np.concatenate([vectors, weights.novelty[:, None]], axis=1)


def query_vectors(queries: Floats, exposure: float) -> Floats:
    """(queries, dim + 1) float32: queries with the exposure as their last coordinate."""
    last = np.full((len(queries), 1), exposure, dtype=np.float32)
    return np.concatenate([queries, last], axis=1)


def item_scores(
    text_scores: NDArray[np.float32],
    generated_scores: NDArray[np.float32],
    own_scores: NDArray[np.float32],
    weights: PartWeights,
    exposure: float,
) -> NDArray[np.float32]:
    """The scores that queries give to the vectors above, from the scores that they give to their parts.

    Scores are linear in the vectors, so many calibrations are compared with one multiplication of queries and items.

    Args:
        text_scores: (queries, items) with the items' embeddings.
        generated_scores: (queries, items) with what the generator made.
        own_scores: (queries, items) with their own classifiers.
        weights: Of `weigh_parts`, of a shape that broadcasts to (queries, items).
        exposure: The last coordinate of the queries.
    """
    scores = weights.text * text_scores + weights.generated * generated_scores
    scores += weights.own * own_scores
    scores += exposure * weights.novelty
    return scores
