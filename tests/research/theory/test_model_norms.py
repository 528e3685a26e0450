"""Quantities measured on generators and models whose norms are known."""

from math import sqrt

import numpy as np
import pytest
import torch

from metaxc.errors import ConfigError
from metaxc.generators import (
    Combine,
    Gated,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
)
from metaxc.research.theory.model_norms import (
    GeneratorInputs,
    decompose_generator,
    largest_norm,
    sample_generator_inputs,
)


@pytest.fixture
def items():
    random = np.random.default_rng(0)
    rows = np.array([[0, 1], [1, -1]])
    scores = np.array([[0.9, 0.5], [0.7, -np.inf]], dtype=np.float32)
    selected = random.normal(size=(2, 2, 16)).astype(np.float32)
    selected[1, 1] = 0
    return GeneratorInputs(random.normal(size=(2, 16)).astype(np.float32), rows, selected, scores)


def test_a_combine_is_a_multiple_of_a_mixture(items):
    (part,) = decompose_generator(Combine(strength=0.5), items, vectors=1.0, scale=2.0)
    assert part.spectral == pytest.approx(3.0), "2 · (1 + 0.5)"
    assert part.frobenius == pytest.approx(12.0), "√16 times that"
    assert part.vectors == 1.0


def test_sums_count_what_they_sum(items):
    assert decompose_generator(Sum(), items, 1.0)[0].spectral == pytest.approx(3.0), "z and two neighbours"
    weighted = WeightedSum(2)
    with torch.no_grad():
        weighted.c.copy_(torch.tensor([1.0, -0.5, 0.25]))
    assert decompose_generator(weighted, items, 1.0)[0].spectral == pytest.approx(1.75)


def test_an_untrained_gated_generator_is_the_combine(items):
    (gated,) = decompose_generator(Gated(strength=0.5), items, 1.0)
    assert gated.spectral == pytest.approx(1.5, rel=1e-5)
    assert "free for each item" in gated.covered


def test_a_transformer_is_its_combine_and_its_last_layer(items):
    generator = ResidualTransformer(16, strength=0.5)
    start, correction = decompose_generator(generator, items, 1.0)
    assert start.spectral == pytest.approx(1.5)
    assert correction.spectral == 0.0, "zero at the start"
    with torch.no_grad():
        generator.out.weight.copy_(torch.diag(torch.arange(16.0)))
        generator.norm.weight.fill_(2.0)
        generator.norm.bias.fill_(0.5)
    correction = decompose_generator(generator, items, 1.0)[1]
    assert correction.spectral == pytest.approx(15.0)
    assert correction.frobenius == pytest.approx(sqrt(sum(i * i for i in range(16))))
    assert correction.vectors == pytest.approx(2 * 4 + 0.5 * 4), "gain · √d + ‖bias‖"


def test_the_layer_norm_bound_holds(items):
    generator = ResidualTransformer(16)
    with torch.no_grad():
        generator.norm.weight.normal_()
        generator.norm.bias.normal_()
        normed = generator.norm(100 * torch.randn(500, 16))
    assert float(normed.norm(dim=1).max()) <= decompose_generator(generator, items, 1.0)[1].vectors


def test_the_post_norm_transformer_ends_in_a_layer_norm(items):
    (part,) = decompose_generator(PostNormTransformer(16), items, 1.0)
    assert (part.spectral, part.frobenius, part.vectors) == (1.0, pytest.approx(4.0), 4.0)


def test_an_unknown_generator_is_an_error(items):
    class Other(Sum):
        kind = "other"

    class Alien(TorchGenerator):
        kind = "alien"

        def weigh(self, embeddings, selected, scores):
            return torch.ones(len(scores), scores.shape[1] + 1)

    assert decompose_generator(Other(), items, 1.0)[0].spectral == pytest.approx(3.0)
    with pytest.raises(ConfigError, match="alien"):
        decompose_generator(Alien(), items, 1.0)


def test_the_largest_norm_of_no_rows_is_0():
    assert largest_norm(np.empty((0, 3), np.float32)) == 0.0


def test_an_item_is_not_among_its_own_neighbours(model):
    found = sample_generator_inputs(model)
    assert len(found.rows) == 160
    assert not (found.rows == np.arange(160)[:, None]).any()
    assert (found.rows // 4 == np.arange(160)[:, None] // 4).all(), "but its group is"
