"""The quantities in the bounds, measured on a trained model.

The lemma covers one architecture: an item's embedding and its K selected classifiers are mixed with weights that sum
to 1, and one linear layer M follows. Each kind of generator is written as a sum of such parts. Each part states what
takes the role of M and how much of the generator the lemma covers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import nn

from metaxc.arrays import Floats, Rows
from metaxc.emmett import Emmett
from metaxc.emmett.scoring import item_vectors
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

SAMPLE_SIZE = 2_000
"""Queries and items that norms are measured on, at most. More would change a maximum little, and query expansion costs
a search per query."""

WEIGHTED_SUM_COVERAGE = (
    "all of it: weights that sum to c are c times a mixture, so M is c times the identity; the lemma's class, with "
    "any M of that norm, is far larger than the few constants that were chosen"
)
GATED_COVERAGE = (
    "all of it, with mixtures free for each item; c is the largest sum of weights on a sample of items"
)


@dataclass(frozen=True)
class GeneratorPart:
    """One summand of a generator in the form of the lemma.

    Args:
        name: What the part is.
        spectral: ‖M‖₂.
        frobenius: ‖M‖_F.
        vectors: V, the largest norm of the vectors that are mixed (or that enter the linear layer).
        covered: How much of the part the lemma covers.
    """

    name: str
    spectral: float
    frobenius: float
    vectors: float
    covered: str


@dataclass(frozen=True)
class Quantities:
    """The numbers that the bounds are computed from.

    Args:
        queries: N, training queries with a click on an observed item.
        items: L, observed items.
        clicks: Positive pairs among the N·L.
        dim: d.
        neighbours: K.
        query_norm: B, over a sample of the training queries as `search` scores them.
        classifier_norm: W, over the vectors that novel items are generated from.
        item_norm: Largest norm over a sample of the items' embeddings.
        meta_norm: U, over a sample of the meta-classifiers that the items would get as novel ones.
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
    parts: tuple[GeneratorPart, ...]

    @property
    def p(self) -> float:
        """The share of positive pairs."""
        return self.clicks / (self.queries * self.items)

    @property
    def spectral(self) -> float:
        """‖M‖₂ of all parts together."""
        return sum(part.spectral for part in self.parts)


@dataclass(frozen=True)
class GeneratorInputs:
    """The inputs of a generator: (n, dim) embeddings, (n, K) rows, (n, K, dim) classifiers, (n, K) scores."""

    embeddings: Floats
    rows: Rows
    selected: Floats
    scores: Floats


def sample_generator_inputs(model: Emmett, limit: int = SAMPLE_SIZE, seed: int = 0) -> GeneratorInputs:
    """A sample of observed items with their neighbours, each item excluded from its own, as in training."""
    selects_items = len(model.selector.embeddings) == len(model.embeddings)
    rows = np.sort(np.random.default_rng(seed).permutation(len(model.embeddings))[:limit])
    embeddings = np.asarray(model.embeddings[rows], dtype=np.float32)
    texts = [model.items.texts[row] for row in model.observed[rows].tolist()]
    selected, scores = model.selector.select(
        embeddings, model.neighbours, exclude_self=rows if selects_items else None, texts=texts
    )
    return GeneratorInputs(embeddings, selected, gather(model.neighbour_vectors, selected), scores)


def measure_quantities(
    model: Emmett, queries: Floats, inputs: GeneratorInputs, *, count: int, clicks: int
) -> Quantities:
    """Measure the quantities of a model.

    Args:
        model: A trained model.
        queries: (n, dim) a sample of the training queries, from `Emmett.encode_queries`.
        inputs: A sample of items, from `sample_generator_inputs`.
        count: N.
        clicks: Number of positive pairs.
    """
    classifier_norm, item_norm = largest_norm(model.neighbour_vectors), largest_norm(inputs.embeddings)
    generated = model.generator.generate(inputs.embeddings, inputs.selected, inputs.scores)
    vectors = max(classifier_norm, item_norm)
    return Quantities(
        queries=count,
        items=len(model.classifiers),
        clicks=clicks,
        dim=model.encoder.dim,
        neighbours=model.neighbours,
        query_norm=largest_norm(queries),
        classifier_norm=classifier_norm,
        item_norm=item_norm,
        meta_norm=largest_norm(item_vectors(inputs.embeddings, generated, None, model.calibration)[:, :-1]),
        parts=decompose_generator(model.generator, inputs, vectors, model.calibration.novel_scale),
    )


def decompose_generator(
    generator: TorchGenerator, inputs: GeneratorInputs, vectors: float, scale: float = 1.0
) -> tuple[GeneratorPart, ...]:
    """Write a generator as a sum of parts in the form of the lemma.

    Args:
        generator: A trained generator.
        inputs: A sample of items, for mixing weights that differ between items.
        vectors: The largest norm of an embedding or classifier.
        scale: Multiplies the meta-classifiers.
    """
    dim = inputs.embeddings.shape[1]

    def weighted_sum(name: str, total: float, covered: str) -> tuple[GeneratorPart, ...]:
        return (GeneratorPart(name, scale * total, scale * total * sqrt(dim), vectors, covered),)

    if isinstance(generator, ResidualTransformer):
        total = 1 + abs(generator.strength.item())
        weight = scale * generator.out.weight.detach()
        return (
            *weighted_sum("the combine it starts at", total, WEIGHTED_SUM_COVERAGE),
            GeneratorPart(
                "the learned correction",
                float(torch.linalg.matrix_norm(weight, 2)),
                float(torch.linalg.matrix_norm(weight)),
                layer_norm_bound(generator.norm, dim),
                "its last linear layer, after a layer norm that bounds its input; the attention, feed-forward and "
                "depth before it are treated as fixed",
            ),
        )
    if isinstance(generator, PostNormTransformer):
        last = generator.layers.layers[-1]
        assert isinstance(last, nn.TransformerEncoderLayer)
        gain = scale * last.norm2.weight.detach()
        return (
            GeneratorPart(
                "the last layer norm",
                float(gain.abs().max()),
                float(gain.norm()),
                sqrt(dim),
                "the gain of the last layer norm as a diagonal M; everything before it is treated as fixed",
            ),
        )
    weights = generator.weights(inputs.embeddings, inputs.selected, inputs.scores)
    total = float(np.abs(weights).sum(axis=1).max())
    if isinstance(generator, Combine | Sum | WeightedSum):
        return weighted_sum("the weighted sum", total, WEIGHTED_SUM_COVERAGE)
    if isinstance(generator, Gated):
        return weighted_sum("the gated sum", total, GATED_COVERAGE)
    raise ConfigError(
        "The bounds do not cover this generator",
        got=generator.kind,
        expected="combine, sum, weighted_sum, gated, transformer or post_norm",
    )


def largest_norm(rows: Floats) -> float:
    """The largest norm of a row; 0 where there is none."""
    return float(np.linalg.norm(rows, axis=1).max()) if len(rows) else 0.0


def layer_norm_bound(norm: nn.LayerNorm, dim: int) -> float:
    """The largest norm that a layer norm can output: normalised vectors have norm at most √d."""
    bias = 0.0 if norm.bias is None else float(norm.bias.detach().norm())
    return float(norm.weight.detach().abs().max()) * sqrt(dim) + bias
