"""The vector of an item: one formula for any number of clicks. Everything that ranks items calls this.

    trust in its own clicks:   t(n) = n / (n + prior_clicks)
    novelty:                   r(n) = novelty_prior / (m + novelty_prior),   m = learnt clicks + others / 3
    length:                    s(n) = 1 + (novel_scale − 1) · r(n)

    freshness:                 f(n) = exp(−n / (n + 3) · days since its last click / freshness_days), where that is set
    exposure share:            e = r(n), or f where items have one, + exposure_bonus, interpolated between
                               `BONUS_CLICKS`, from 0 to 1
    response of a query:       ρ(q) = max over the most clicked items of q · w, divided by the mean of training queries

    vector:   u(n) = s · [ z + r · (G − z) ] + own · t · w,   and e as one more coordinate
    score:    q · u + exposure · ρ(q) · e

n is the number of the item's clicks, z the embedding of its text, w its own classifier, and G what the generator makes
of the classifiers of its neighbours, which are trusted by their clicks too, with a prior of their own. Without clicks
the vector is the meta-classifier of a novel item, with many clicks the classifier of an observed one; nothing jumps at
a first click. "Novel", "clicked" and "observed" are labels for people.

Clicks that came after the training count a third against an item's novelty: the embedding of its text has not learnt
from them as it has from those of the training, so the item still needs its neighbours and the exposure
(`benchmarks/life.py`, docs/decisions.md).

Where clicks have times, what is asked for now is what was asked for lately: items that were clicked last year are less
likely to be clicked next than items of this week, and a new item is the freshest of all. There the exposure may follow
freshness instead of novelty, which the folds decide (docs/decisions.md). Time runs more slowly for an item with few
clicks: that something seldom clicked was not clicked lately says little. The days are counted up to the end of the
training clicks; an item without clicks, and one with a click that came after the training, has a freshness of 1.

The last coordinate of a query is the exposure times its response: what is added to the score of an item without clicks.
So any index that ranks by inner product serves it, and it may differ from request to request. What observed items gain
by their classifiers differs from query to query, and so does what novel items need beside them: for a query to which no
classifier responds, an offset that is right for others would fill the first ten with novel items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.classifiers import Classifiers

NEIGHBOUR_PRIOR = 10.0
"""Clicks at which a neighbour's classifier has half its weight, where nothing else was chosen."""


FRESHNESS_PRIOR = 3.0
"""Clicks at which the time since the last of them counts half. From 0 to 10 the latest windows of time hardly differ
(`benchmarks/freshness.py`, docs/decisions.md)."""

UNLEARNT_SHARE = 1 / 3
"""What a click that the encoder has not learnt from counts against an item's novelty. Where it counts whole, items lose
recall with their first clicks; where it counts a tenth, they take too many places of others (docs/decisions.md)."""

MOST = 1e6
"""Largest constant: far beyond all that is chosen, and far from where float32 overflows."""


MOST_NEIGHBOURS = 10_000
"""Largest K; more than any selection needs, and far less than would fill the memory."""


BONUS_CLICKS = (0.0, 1.5, 3.5, 7.0, 20.0, 60.0, 200.0)
"""Clicks between which the bonus is interpolated, on a logarithmic scale; it is 0 at the first and from the last on."""

HEADS = 4_096
"""Classifiers whose response to a query is measured: those of the most clicked items. More are no better on folds."""

LEAST_RESPONSE = 0.05
"""The least response of a query, as a share of the mean: the exposure never changes its sign."""

LEAST_UNIT = 1e-3
"""Classifiers whose mean response is below this say nothing about queries."""

ITEM_BLOCK = 16_384
"""Items whose vectors are computed at once, so that many items need no memory beyond that of their vectors."""


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
    exposure_bonus: tuple[float, float, float, float, float] = Field(
        (0.0, 0.0, 0.0, 0.0, 0.0),
        description="added to the share of the exposure of items with about 1.5, 3.5, 7, 20 and 60 clicks",
    )
    freshness_days: float | None = Field(
        None,
        gt=0,
        le=MOST,
        description="days without a click after which about a third of the share of the exposure of an item with many "
        "clicks is left; None: the share follows the number of clicks",
    )
    response_unit: float | None = Field(
        None,
        gt=0,
        le=MOST,
        description="how strongly the classifiers respond to training queries, in the mean; None: the exposure is the "
        "same for every query",
    )

    @field_validator("exposure_bonus")
    @classmethod
    def _bounded(cls, bonus: tuple[float, ...]) -> tuple[float, ...]:
        if any(abs(value) > MOST for value in bonus):
            raise ValueError(f"each bonus must be between -{MOST:g} and {MOST:g}")
        return bonus


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
        exposed: The last coordinate, the share of the exposure that the item gets: 1 without clicks, near 0 with many.
    """

    text: Floats
    generated: Floats
    own: Floats
    exposed: Floats

    def at(self, rows: Rows) -> PartWeights:
        """The weights at these rows, of any shape."""
        return PartWeights(*(part.take(rows) for part in (self.text, self.generated, self.own, self.exposed)))


def weigh_parts(
    clicks: Rows | Doubles | Floats,
    calibration: Calibration,
    learnt_clicks: Rows | Doubles | None = None,
    ages: Floats | None = None,
) -> PartWeights:
    """The weights of the formula above for items with these numbers of clicks, of any shape.

    Args:
        clicks: The numbers of clicks.
        calibration: The constants.
        learnt_clicks: How many of them the encoder has learnt from; None for all.
        ages: Days since the last of the clicks, counted at the end of the training; None where all are newer than that
            or none is known.
    """
    counted = clicks if learnt_clicks is None else _count_against_novelty(clicks, learnt_clicks)
    novelty = 1 - click_trust(counted, calibration.novelty_prior)
    scale = 1 + (calibration.novel_scale - 1) * novelty
    own = calibration.own * click_trust(clicks, calibration.prior_clicks)
    share = novelty
    if calibration.freshness_days is not None:
        share = _freshness(counted, ages, calibration.freshness_days)
    exposed = np.clip(share + _interpolate_bonus(counted, calibration.exposure_bonus), 0.0, 1.0)
    return PartWeights(scale * (1 - novelty), scale * novelty, own, exposed)


def _freshness(clicks: Rows | Doubles | Floats, ages: Floats | None, days: float) -> Floats:
    """float32 of the shape of `clicks`: 1 for an item without clicks or just clicked, near 0 long after its last
    click."""
    if ages is None:
        return np.ones(clicks.shape, np.float32)
    fresh: Floats = np.exp(-click_trust(clicks, FRESHNESS_PRIOR) * ages / np.float32(days))
    return fresh


def _interpolate_bonus(clicks: Rows | Doubles | Floats, bonus: tuple[float, ...]) -> Floats:
    if not any(bonus):
        return np.zeros(clicks.shape, np.float32)
    found = np.interp(np.log1p(clicks.astype(np.float64)), np.log1p(BONUS_CLICKS), (0.0, *bonus, 0.0))
    return found.astype(np.float32)


def _count_against_novelty(clicks: Rows | Doubles | Floats, learnt_clicks: Rows | Doubles) -> Doubles:
    learnt = learnt_clicks.astype(np.float64)
    counted: Doubles = learnt + UNLEARNT_SHARE * (clicks.astype(np.float64) - learnt)
    return counted


def item_vectors(
    embeddings: Floats, generated: Floats, classifiers: Classifiers | None, calibration: Calibration
) -> Floats:
    """(items, dim + 1) float32: items with any number of clicks; the last coordinate is the share of the exposure
    that each gets.

    Args:
        embeddings: (items, dim) embeddings of their texts.
        generated: (items, dim) what the generator made of their neighbours; read only where novelty is not 0.
        classifiers: Their own classifiers, with the clicks that these were fitted on; None where no item has a click.
        calibration: The constants.
    """
    if classifiers is None:
        weights = weigh_parts(np.zeros(len(embeddings), np.int64), calibration)
    else:
        weights = weigh_parts(classifiers.clicks, calibration, classifiers.learnt_clicks, classifiers.ages)
    vectors = np.empty((len(embeddings), embeddings.shape[1] + 1), np.float32)
    vectors[:, -1] = weights.exposed
    for start in range(0, len(vectors), ITEM_BLOCK):
        at = slice(start, start + ITEM_BLOCK)
        made = vectors[at, :-1]
        np.multiply(weights.text[at, None], embeddings[at], out=made)
        made += weights.generated[at, None] * generated[at]
        if classifiers is not None:
            made += weights.own[at, None] * classifiers.weights[at]
    return vectors


@dataclass(frozen=True)
class ClassifierResponse:
    """How strongly the classifiers of observed items respond to a query, relative to the mean training query.

    Args:
        heads: (n, dim) classifiers of the most clicked items.
        unit: Their response to training queries, in the mean; None where the exposure is the same for every query.
    """

    heads: Floats
    unit: float | None

    @classmethod
    def of(cls, classifiers: Classifiers, unit: float | None) -> ClassifierResponse:
        """The response of these classifiers, with a unit that is known."""
        order = np.argsort(-classifiers.clicks.astype(np.float64), kind="stable")[:HEADS]
        return cls(classifiers.weights[np.sort(order)], unit)

    @classmethod
    def fit(cls, classifiers: Classifiers, queries: Floats) -> ClassifierResponse:
        """The response of these classifiers, in units of its mean over the training queries, or a sample of them."""
        heads = cls.of(classifiers, None).heads
        sample = np.asarray(queries[:: max(1, len(queries) // HEADS)], dtype=np.float32)
        mean = float(_best_scores(sample, heads).mean()) if len(sample) else 0.0
        return cls(heads, mean if mean > LEAST_UNIT else None)

    def __call__(self, queries: Floats) -> Floats:
        """(queries,) float32: 1 for a query like the mean training query, at least `LEAST_RESPONSE`."""
        if self.unit is None or not len(self.heads):
            return np.ones(len(queries), np.float32)
        best = _best_scores(queries, self.heads)
        response: Floats = np.maximum(best / self.unit, LEAST_RESPONSE).astype(np.float32)
        return response


def _best_scores(queries: Floats, classifiers: Floats) -> Floats:
    """(queries,) the highest score that each query gives to a classifier, at least 0."""
    best: Floats = (np.asarray(queries, np.float32) @ classifiers.T).max(axis=1, initial=0.0)
    return best


def query_vectors(queries: Floats, exposure: float | Floats) -> Floats:
    """(queries, dim + 1) float32: queries with the exposure, one for all or one for each, as their last coordinate."""
    last = np.broadcast_to(np.asarray(exposure, dtype=np.float32), (len(queries),))
    return np.concatenate([queries, last[:, None]], axis=1)


def item_scores(
    text_scores: NDArray[np.float32],
    generated_scores: NDArray[np.float32],
    own_scores: NDArray[np.float32],
    weights: PartWeights,
    exposure: float | Floats,
) -> NDArray[np.float32]:
    """The scores that queries give to the vectors above, from the scores that they give to their parts.

    Scores are linear in the vectors, so many calibrations are compared with one multiplication of queries and items.

    Args:
        text_scores: (queries, items) with the items' embeddings.
        generated_scores: (queries, items) with what the generator made.
        own_scores: (queries, items) with their own classifiers.
        weights: Of `weigh_parts`, of a shape that broadcasts to (queries, items).
        exposure: The last coordinate of the queries: one for all, or (queries, 1).
    """
    # torch multiplies and adds in one pass, without arrays in between: a third of NumPy's time.
    scores = torch.from_numpy(text_scores) * torch.from_numpy(weights.text)
    scores.addcmul_(torch.from_numpy(generated_scores), torch.from_numpy(weights.generated))
    scores.addcmul_(torch.from_numpy(own_scores), torch.from_numpy(weights.own))
    scores.addcmul_(torch.as_tensor(exposure, dtype=torch.float32), torch.from_numpy(weights.exposed))
    return scores.numpy()
