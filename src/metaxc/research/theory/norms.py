"""The quantities of the bounds, measured on a trained model.

The lemma is about one shape: an item's embedding and its K selected classifiers are mixed with weights that sum to 1,
and one linear layer M follows. Each kind of generator is laid beside that shape as a sum of parts, and says what stands
for M and which of it the lemma does not cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from metaxc.arrays import Floats
from metaxc.emmett import Emmett
from metaxc.errors import ConfigError
from metaxc.generators import (
    Combine,
    Gated,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
    gather,
)

SAMPLED = 2_000
"""Queries and items that norms are taken over, at most; more would move a maximum little, and the query memory makes
every query cost a search."""


@dataclass(frozen=True)
class Part:
    """One summand of a generator in the lemma's shape.

    Args:
        name: What it is.
        spectral: ‖M‖₂.
        frobenius: ‖M‖_F.
        vectors: V, the largest norm of what is mixed (or enters the linear layer).
        covered: What of it the lemma covers.
    """

    name: str
    spectral: float
    frobenius: float
    vectors: float
    covered: str


@dataclass(frozen=True)
class Quantities:
    """What the bounds are made of.

    Args:
        queries: N, training queries with a click on an observed item.
        items: L, observed items.
        clicks: Positive pairs among the N·L.
        dim: d.
        neighbours: K.
        query_norm: B, over a sample of the training queries, as `search` scores them.
        classifier_norm: W, over the vectors that inform novel items.
        item_norm: Over a sample of the items' embeddings.
        meta_norm: U, over a sample of the meta-classifiers that novel items would get.
        parts: The generator.
    """

    queries: int
    items: int
    clicks: int
    dim: int
    neighbours: int
    query_norm: float
    classifier_norm: float
    item_norm: float
    meta_norm: float
    parts: tuple[Part, ...]

    @property
    def p(self) -> float:
        """The share of positive pairs."""
        return self.clicks / (self.queries * self.items)

    @property
    def spectral(self) -> float:
        """‖M‖₂ of all parts together."""
        return sum(part.spectral for part in self.parts)


@dataclass(frozen=True)
class Mixed:
    """Items as a generator sees them: (n, dim) embeddings, (n, K) rows, (n, K, dim) classifiers, (n, K) scores."""

    embeddings: Floats
    rows: NDArray[np.int64]
    selected: Floats
    scores: Floats


def mixed(model: Emmett, at_most: int = SAMPLED, seed: int = 0) -> Mixed:
    """Some observed items, each with its neighbours and without itself: as in training."""
    itself = len(model.selector.embeddings) == len(model.embeddings)
    count = len(model.embeddings)
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:at_most])
    embeddings = np.asarray(model.embeddings[rows], dtype=np.float32)
    texts = [model.items.texts[row] for row in model.observed[rows].tolist()]
    near, scores = model.selector.select(
        embeddings, model.neighbours, exclude_self=rows if itself else None, texts=texts
    )
    return Mixed(embeddings, near, gather(model.neighbour_vectors, near), scores)


def measured(model: Emmett, queries: Floats, items: Mixed, *, count: int, clicks: int) -> Quantities:
    """The quantities of a model.

    Args:
        model: What was trained.
        queries: (n, dim) embeddings of some training queries, as `Emmett.encode_queries` makes them.
        items: By `mixed`.
        count: N.
        clicks: Positive pairs.
    """
    informing, scale = longest(model.neighbour_vectors), model.calibration.novel_scale
    vectors = max(informing, longest(items.embeddings))
    made = scale * model.generator.generate(items.embeddings, items.selected, items.scores)
    return Quantities(
        queries=count,
        items=len(model.classifiers),
        clicks=clicks,
        dim=model.encoder.dim,
        neighbours=model.neighbours,
        query_norm=longest(queries),
        classifier_norm=informing,
        item_norm=longest(items.embeddings),
        meta_norm=longest(made),
        parts=parts_of(model.generator, items, vectors, scale),
    )


def parts_of(generator: TorchGenerator, items: Mixed, vectors: float, scale: float = 1.0) -> tuple[Part, ...]:
    """A generator beside the lemma's shape.

    Args:
        generator: Trained.
        items: Some items, for weights that differ from item to item.
        vectors: The largest norm of an embedding or classifier.
        scale: What meta-classifiers are multiplied by.
    """
    dim = items.embeddings.shape[1]
    if isinstance(generator, ResidualTransformer):
        start = _multiple(
            1 + abs(generator.strength.item()), dim, vectors, scale, "the combine it starts at", WEIGHED
        )
        weight = scale * generator.out.weight.detach()
        return (
            start,
            Part(
                "the learnt correction",
                float(torch.linalg.matrix_norm(weight, 2)),
                float(torch.linalg.matrix_norm(weight)),
                longest_normed(generator.norm, dim),
                "its last linear layer, behind a layer norm that bounds what enters; attention, feed-forward and depth "
                "before it are taken for fixed",
            ),
        )
    if isinstance(generator, PostNormTransformer):
        last = generator.layers.layers[-1]
        assert isinstance(last, nn.TransformerEncoderLayer)
        gain = scale * last.norm2.weight.detach()
        return (
            Part(
                "the last layer norm",
                float(gain.abs().max()),
                float(gain.norm()),
                sqrt(dim),
                "the gain of the last layer norm as a diagonal M; everything before it is taken for fixed",
            ),
        )
    total = float(np.abs(generator.weights(items.embeddings, items.selected, items.scores)).sum(axis=1).max())
    if isinstance(generator, Combine | Sum | WeightedSum):
        return (_multiple(total, dim, vectors, scale, "the weighted sum", WEIGHED),)
    if isinstance(generator, Gated):
        return (_multiple(total, dim, vectors, scale, "the gated sum", GATED),)
    raise ConfigError(
        "The theory does not know this generator",
        got=generator.kind,
        expected="combine, sum, weighted_sum, gated, transformer or post_norm",
    )


WEIGHED = (
    "all of it: weights that sum to c are c times a mixture, so M is c times the identity; the lemma's class, with "
    "any M of that norm, is far larger than the few constants that were chosen"
)
GATED = "all of it, with mixtures that are free for each item; c is the largest sum of weights met on a sample of items"


def _multiple(total: float, dim: int, vectors: float, scale: float, name: str, covered: str) -> Part:
    return Part(name, scale * total, scale * total * sqrt(dim), vectors, covered)


def longest(rows: Floats) -> float:
    """The largest norm of a row; 0 where there is none."""
    return float(np.linalg.norm(rows, axis=1).max()) if len(rows) else 0.0


def longest_normed(norm: nn.LayerNorm, dim: int) -> float:
    """No output of a layer norm is longer: normalised vectors have norm √d at most."""
    bias = 0.0 if norm.bias is None else float(norm.bias.detach().norm())
    return float(norm.weight.detach().abs().max()) * sqrt(dim) + bias
