"""One contract for every generator, and what is special to each."""

import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional

from metaxc.encoders.training.batches import clustered_order
from metaxc.errors import ModelError
from metaxc.generators import (
    Combine,
    GeneratorTraining,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    WeightedSum,
    gather,
    load_generator,
    save_generator,
    train_generator,
)
from metaxc.generators.training import weighted_cross_entropy

DIM, K = 8, 3
ALL = {
    "combine": lambda: Combine(0.7, 0.2),
    "sum": Sum,
    "weighted_sum": lambda: WeightedSum(K),
    "transformer": lambda: ResidualTransformer(DIM),
    "post_norm": lambda: PostNormTransformer(DIM),
}


def inputs(n=5, seed=0):
    random = np.random.default_rng(seed)
    return (
        random.normal(size=(n, DIM)).astype(np.float32),
        random.normal(size=(n, K, DIM)).astype(np.float32),
        np.sort(random.random((n, K)).astype(np.float32))[:, ::-1].copy(),
    )


@pytest.mark.parametrize("kind", ALL)
class TestContract:
    def test_one_vector_per_item_the_same_each_time(self, kind):
        generator = ALL[kind]()
        made = generator.generate(*inputs())
        assert made.shape == (5, DIM)
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made, generator.generate(*inputs()))

    def test_what_stands_in_padding_does_not_matter(self, kind):
        generator = ALL[kind]()
        z, selected, scores = inputs()
        scores[:, 2] = -np.inf
        other = selected.copy()
        other[:, 2] = 0
        if kind in ("combine", "sum", "weighted_sum", "transformer"):
            selected[:, 2] = 0  # `gather` gives zeros there
        made = generator.generate(z, selected, scores)
        np.testing.assert_allclose(made, generator.generate(z, other, scores), atol=1e-5)
        assert np.isfinite(generator.generate(z, other, np.full_like(scores, -np.inf))).all()

    def test_weights_are_of_the_text_and_each_neighbour(self, kind):
        z, selected, scores = inputs()
        scores[:, 2] = -np.inf
        weights = ALL[kind]().weights(z, selected, scores)
        assert weights.shape == (5, K + 1)
        assert (weights[:, 3] == 0).all()

    def test_saved_and_loaded_it_is_the_same(self, kind, tmp_path):
        generator = ALL[kind]()
        save_generator(tmp_path, generator)
        again = load_generator(tmp_path)
        np.testing.assert_array_equal(again.generate(*inputs()), generator.generate(*inputs()))
        (tmp_path / "generator.json").write_text(json.dumps({"kind": kind, "settings": {"nonsense": 1}}))
        with pytest.raises(ModelError, match="does not fit"):
            load_generator(tmp_path)


def test_combine_by_hand():
    z, selected, scores = inputs(1)
    e = np.exp(scores[0] / 0.2)
    expected = z[0] + 0.7 * (e / e.sum()) @ selected[0]
    np.testing.assert_allclose(Combine(0.7, 0.2).generate(z, selected, scores)[0], expected, rtol=1e-5)


def test_sums_by_hand():
    z, selected, scores = inputs(1)
    np.testing.assert_allclose(Sum().generate(z, selected, scores)[0], z[0] + selected[0].sum(0), rtol=1e-5)
    weighted = WeightedSum(K)
    with torch.no_grad():
        weighted.c.copy_(torch.tensor([0.5, 1.0, 2.0, 3.0]))
    expected = 0.5 * z[0] + selected[0, 0] + 2 * selected[0, 1] + 3 * selected[0, 2]
    np.testing.assert_allclose(weighted.generate(z, selected, scores)[0], expected, rtol=1e-5)


def test_an_untrained_residual_transformer_is_the_combine():
    made = ResidualTransformer(DIM, strength=0.7, temperature=0.2).generate(*inputs())
    np.testing.assert_allclose(made, Combine(0.7, 0.2).generate(*inputs()), atol=1e-6)


def test_gather_gives_zeros_for_padding():
    rows = np.array([[1, -1]])
    assert gather(np.array([[1.0], [2.0]], np.float32), rows).tolist() == [[[2.0], [0.0]]]


def test_weighted_cross_entropy_by_hand():
    logits = torch.tensor([[2.0, -1.0]])
    clicked = torch.tensor([[True, False]])
    expected = 3 * functional.softplus(torch.tensor(-2.0)) + functional.softplus(torch.tensor(-1.0))
    torch.testing.assert_close(weighted_cross_entropy(logits, clicked, 3.0), expected)


def test_clustered_order_is_a_permutation_that_keeps_groups_together():
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(8), 16, axis=0) + 0.01 * random.normal(size=(128, 8))
    order = clustered_order(groups.astype(np.float32), 16, random)
    assert sorted(order) == list(range(128))
    runs = (np.diff(order // 16) != 0).sum()
    assert runs < 40  # a random order has about 112 changes of group
    assert order.tolist() != clustered_order(groups.astype(np.float32), 16, random).tolist()


@pytest.mark.parametrize("kind", ["weighted_sum", "transformer", "post_norm"])
def test_training_learns_to_trust_the_neighbours(kind):
    """Embeddings are noise, classifiers of the same group point at the group's queries."""
    random = np.random.default_rng(0)
    groups, each, dim = 16, 8, 32
    axes = np.linalg.qr(random.normal(size=(dim, dim)))[0].astype(np.float32)
    group = np.repeat(np.arange(groups), each)
    queries = axes[group]
    classifiers = axes[group]
    z = random.normal(size=(groups * each, dim)).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    clicks = csr_array((group[:, None] == group[None, :]).astype(np.float32))
    near = np.stack(
        [np.flatnonzero((group == g) & (np.arange(len(group)) != i))[:K] for i, g in enumerate(group)]
    )
    scores = np.ones(near.shape, np.float32)
    make = {
        "weighted_sum": lambda: WeightedSum(K),
        "transformer": lambda: ResidualTransformer(dim, strength=0.1),
        "post_norm": lambda: PostNormTransformer(dim),
    }[kind]
    torch.manual_seed(0)
    generator = make()

    def loss():
        made = generator.generate(z, gather(classifiers, near), scores)
        logits = 20 * torch.from_numpy(queries @ made.T) - 10  # where training starts
        return weighted_cross_entropy(logits, torch.from_numpy(clicks.toarray() > 0), 4.0).item()

    before = loss()
    config = GeneratorTraining(epochs=60, batch=64, learning_rate=5e-3)
    train_generator(generator, queries, z, clicks, classifiers, near, scores, config)
    assert loss() < 0.5 * before
    made = generator.generate(z, gather(classifiers, near), scores)
    assert ((queries[::each] @ made.T).argmax(axis=0) == group).all()
