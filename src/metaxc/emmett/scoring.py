"""The vector of an item: how its text, its neighbours and its own clicks are weighted. Everything else calls this.

    trust in n clicks:  t(n) = n / (n + prior)
    novel item:         u = novel_scale · G(z, t(n₁)·w₁, …, t(n_K)·w_K)
    with first clicks:  u = novel_scale · G(…) + own · t(n) · w,  w fitted to these clicks alone
    observed item:      u = z + own · t(n) · w

z is the embedding of the item's text, w its own classifier, and G the generator over the classifiers of its neighbours,
which are trusted by their clicks too, with a prior of their own.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from metaxc.arrays import Doubles, Floats, Rows
from metaxc.classifiers import Classifiers

NEIGHBOUR_PRIOR = 10.0
"""Clicks at which a neighbour's classifier has half its weight, where nothing else was chosen."""


class Calibration(BaseModel):
    """How observed and novel items rank together. Chosen on pseudo-novel items by `metaxc.tuning`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    own: float = Field(1.5, ge=0, description="weight of an observed item's own classifier")
    prior_clicks: float = Field(30.0, ge=0, description="clicks at which it has half that weight")
    novel_scale: float = Field(1.0, gt=0, description="multiplies the meta-classifiers of novel items")


def click_trust(clicks: Rows | Doubles, prior: float) -> Floats:
    """(items,) float32: n / (n + prior) for items with n clicks.

    A few clicks are mostly noise, many are reliable. A prior of 0 trusts all alike.
    """
    n = clicks.astype(np.float32)
    trust: Floats = (n / np.maximum(n + prior, 1e-6)).astype(np.float32)
    return trust


def scale_by_trust(classifiers: Classifiers, prior: float) -> Floats:
    """(items, dim) float32: classifiers times the trust in the clicks that they were fitted on."""
    return classifiers.weights * click_trust(classifiers.clicks, prior)[:, None]


def observed_vectors(embeddings: Floats, classifiers: Classifiers, calibration: Calibration) -> Floats:
    """(items, dim) float32: observed items, by their texts and their own classifiers."""
    return embeddings + own_part(classifiers, calibration)


def novel_vectors(generated: Floats, first_clicks: Floats | None, calibration: Calibration) -> Floats:
    """(items, dim) float32: novel items, by what the generator made and, where there are any, their first clicks.

    Args:
        generated: (items, dim) the generator's output.
        first_clicks: (items, dim) the `own_part` of classifiers fitted to the items' first clicks; None for no clicks.
        calibration: The constants.
    """
    scaled = calibration.novel_scale * generated
    return scaled if first_clicks is None else scaled + first_clicks


def own_part(classifiers: Classifiers, calibration: Calibration) -> Floats:
    """(items, dim) float32: what items' own classifiers add to their vectors."""
    return calibration.own * scale_by_trust(classifiers, calibration.prior_clicks)


def mixed_scores(
    text_scores: Tensor,
    classifier_scores: Tensor,
    clicks: Rows | Doubles,
    novel_scores: Tensor,
    calibration: Calibration,
    out: Tensor,
) -> Tensor:
    """The scores that queries give to the vectors above, from the scores that they give to their parts.

    Scores are linear in the vectors, so many calibrations are compared with one multiplication of queries and items.

    Args:
        text_scores: (queries, observed) with the observed items' embeddings.
        classifier_scores: (queries, observed) with their own classifiers.
        clicks: (observed,) how many each classifier was fitted on.
        novel_scores: (queries, novel) with what the generator made.
        calibration: The constants.
        out: (queries, observed + novel) is overwritten and returned, observed items first.
    """
    weight = calibration.own * torch.from_numpy(click_trust(clicks, calibration.prior_clicks))
    observed = text_scores.shape[1]
    torch.addcmul(text_scores, classifier_scores, weight.expand_as(text_scores), out=out[:, :observed])
    torch.mul(novel_scores, calibration.novel_scale, out=out[:, observed:])
    return out
