"""One contract for every generator, and what is special to each; training stands in test_training.py."""

import json

import numpy as np
import pytest
import torch

from metaxc.errors import ModelError
from metaxc.generators import (
    Combine,
    Gated,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    WeightedSum,
    gather,
    load_generator,
    save_generator,
)
from metaxc.generators.transformer import neighbour_features

DIM, K = 8, 3
ALL = {
    "combine": lambda: Combine(0.7, 0.2),
    "gated": lambda: nudged(Gated(0.7, 0.2)),
    "sum": Sum,
    "weighted_sum": lambda: WeightedSum(K),
    "transformer": lambda: ResidualTransformer(DIM),
    "post_norm": lambda: PostNormTransformer(DIM),
    "transformer told of clicks": lambda: nudged(ResidualTransformer(DIM, features=1, hidden=12)),
    "post_norm told of clicks": lambda: nudged(PostNormTransformer(DIM, features=1, hidden=12)),
}


def nudged(generator):
    """Away from the start, where most of its parts do nothing yet."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in generator.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return generator


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
        if kind != "post_norm":
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
        with pytest.raises(ModelError, match="do not match"):
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


def test_an_untrained_gate_is_the_combine():
    gate = Gated(0.7, 0.2)
    gate.prepare(*(torch.from_numpy(part) for part in inputs(50, seed=1)))
    np.testing.assert_allclose(
        gate.generate(*inputs()), Combine(0.7, 0.2).generate(*inputs()), rtol=1e-4, atol=1e-5
    )


def test_a_gate_does_not_notice_that_the_space_is_turned():
    """What it learns in one encoder's space holds in another's: only lengths and angles count."""
    z, selected, scores = inputs()
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(DIM, DIM)))[0].astype(np.float32)
    gate, transformer = nudged(Gated()), nudged(ResidualTransformer(DIM))
    turned = (z @ turn, selected @ turn, scores)
    np.testing.assert_allclose(gate.weights(*turned), gate.weights(z, selected, scores), rtol=1e-3)
    np.testing.assert_allclose(
        gate.generate(*turned), gate.generate(z, selected, scores) @ turn, rtol=1e-2, atol=1e-4
    )
    assert (
        np.abs(transformer.generate(*turned) - transformer.generate(z, selected, scores) @ turn).max() > 0.1
    )


def test_a_gate_sees_how_many_clicks_a_neighbour_has():
    """Trust is the length of what a neighbour lends; it can change all weights, not only scale one of them."""
    z, selected, scores = inputs()
    selected /= np.linalg.norm(selected, axis=2, keepdims=True)
    gate = nudged(Gated())
    before = gate.weights(z, selected, scores)
    selected[:, 0] *= 0.1
    after = gate.weights(z, selected, scores)
    assert (np.abs(after - before) > 1e-3).any(axis=1).all()


def test_gather_gives_zeros_for_padding():
    rows = np.array([[1, -1]])
    assert gather(np.array([[1.0], [2.0]], np.float32), rows).tolist() == [[[2.0], [0.0]]]


@pytest.mark.parametrize("make", [PostNormTransformer, ResidualTransformer])
def test_type_embeddings_tell_the_item_from_its_neighbours(make):
    """Without types and positions a transformer sees a set of tokens: which one is the item would not matter."""
    torch.manual_seed(0)
    tokens = make(8).tokens
    item, neighbour = torch.randn(2, 1, 8)
    scores = torch.ones(1, 1)
    one, _ = tokens(item, neighbour[:, None], scores)
    other, _ = tokens(neighbour, item[:, None], scores)
    assert not torch.allclose(one, other.flip(1))
    with torch.no_grad():
        tokens.encoder_type.copy_(tokens.classifier_type)
    one, _ = tokens(item, neighbour[:, None], scores)
    other, _ = tokens(neighbour, item[:, None], scores)
    torch.testing.assert_close(one, other.flip(1))


def test_the_papers_generator_depends_on_which_token_is_the_item():
    torch.manual_seed(0)
    generator = PostNormTransformer(8).eval()
    item, neighbour = np.float32(np.random.default_rng(0).normal(size=(2, 1, 8)))
    scores = np.ones((1, 1), np.float32)
    made = generator.generate(item, neighbour[:, None], scores)
    swapped = generator.generate(neighbour, item[:, None], scores)
    assert np.abs(made - swapped).max() > 1e-3


@pytest.mark.parametrize("make", [PostNormTransformer, ResidualTransformer])
def test_the_control_sees_no_neighbours_and_stays_a_control(make, tmp_path):
    z, selected, scores = inputs()
    generator = nudged(make(DIM, alone=1, features=1))
    made = generator.generate(z, selected, scores)
    np.testing.assert_array_equal(generator.generate(z, 5 - selected, scores / 2), made)
    assert not np.allclose(generator.generate(-z, selected, scores), made)
    np.testing.assert_array_equal(generator.weights(z, selected, scores)[:, 1:], 0)
    save_generator(tmp_path, generator)
    np.testing.assert_array_equal(load_generator(tmp_path).generate(z, 5 - selected, scores), made)
    neighbourly = nudged(make(DIM, features=1))
    assert not np.allclose(
        neighbourly.generate(z, 5 - selected, scores), neighbourly.generate(z, selected, scores)
    )


def test_the_zero_start_is_the_mean_of_the_normalised_tokens():
    torch.manual_seed(0)
    z, selected, scores = inputs()
    scores[0, -1], selected[0, -1] = -np.inf, 0
    generator = PostNormTransformer(DIM, zero_start=True)
    types = generator.tokens.encoder_type.detach().numpy(), generator.tokens.classifier_type.detach().numpy()
    tokens = np.concatenate([(z + types[0])[:, None], selected + types[1]], axis=1)
    tokens -= tokens.mean(axis=2, keepdims=True)
    tokens *= np.sqrt(DIM) / np.linalg.norm(tokens, axis=2, keepdims=True)
    expected = tokens.mean(axis=1)
    expected[0] = tokens[0, :-1].mean(axis=0)
    np.testing.assert_allclose(generator.generate(z, selected, scores), expected, atol=1e-3)
    assert not np.allclose(PostNormTransformer(DIM).generate(z, selected, scores), expected, atol=0.1)


def test_what_is_told_of_a_neighbour():
    """Unit classifiers scaled by the trust in 30 and 10 clicks with a prior of 10: ln 3 and 0; and a padded one."""
    selected = np.zeros((1, 3, DIM), np.float32)
    selected[0, 0, 0], selected[0, 1, 1] = 30 / 40, 10 / 20
    scores = torch.tensor([[0.9, 0.6, -torch.inf]])
    told = neighbour_features(torch.from_numpy(selected), scores)[0].numpy()
    expected = [[0.9, 0.0, np.log(0.75), np.log(3)], [0.6, -0.3, np.log(0.5), 0.0], [0, 0, 0, 0]]
    np.testing.assert_allclose(told, expected, atol=1e-5)


@pytest.mark.parametrize("make", [PostNormTransformer, ResidualTransformer])
def test_older_models_keep_their_settings(make):
    assert make(DIM).settings() == {"dim": DIM, "depth": 1}
    assert make(DIM, hidden=5, alone=1).settings() == {"dim": DIM, "depth": 1, "hidden": 5, "alone": 1}


@pytest.mark.parametrize("features", [0, 1])
def test_similarities_reach_the_post_norm_transformer_only_as_features(features):
    z, selected, scores = inputs()
    generator = nudged(PostNormTransformer(DIM, features=features))
    moved = generator.generate(z, selected, scores - 0.5 * np.arange(K, dtype=np.float32))
    assert np.allclose(moved, generator.generate(z, selected, scores), atol=1e-5) == (not features)


@pytest.mark.parametrize("value", [-0.1, 1e300, "1", None, True])
def test_settings_that_are_no_numbers_in_range_are_refused(tmp_path, value):
    save_generator(tmp_path, Combine(0.5, 0.1))
    facts = json.loads((tmp_path / "generator.json").read_text())
    assert facts["settings"]["strength"] == 0.5
    (tmp_path / "generator.json").write_text(
        json.dumps({**facts, "settings": {**facts["settings"], "strength": value}})
    )
    with pytest.raises(ModelError, match="strength is not a number from 0"):
        load_generator(tmp_path)
