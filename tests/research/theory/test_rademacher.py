"""The lemmas and the corollary against hand-worked values, limits, and the true suprema."""

from math import exp, log, sqrt

import numpy as np
import pytest

from metaxc.research.theory import rademacher
from metaxc.research.theory.empirical import Tokens, of_free_vectors, of_mixtures, signs_of


def test_published_terms_by_hand():
    # ln(K + 1) = ln 4 with K = 3; d = 9
    assert rademacher.frozen_stated(2.0, 0.5, 9, 3) == pytest.approx(3 * sqrt(log(4)))
    # B·W·√(L/M) = 2 · 3 · √(1/16) on top
    assert rademacher.trainable_stated(2.0, 3.0, 0.5, 9, 3, 25, 16) == pytest.approx(1.5 * 3 * sqrt(log(4)))
    # B·W·√(L/N) = 2 · 3 · √(25/16)
    assert rademacher.trainable_proof(2.0, 3.0, 0.5, 9, 3, 25, 16) == pytest.approx(7.5 * 3 * sqrt(log(4)))
    assert rademacher.extreme_stated(2.0, 3.0, 10, 25) == pytest.approx(12.0)


def test_derived_terms_by_hand():
    assert rademacher.fixed_mixing(2.0, 3.0, 0.5, 36) == pytest.approx(0.5)
    # N = 8, L = 2, K + 1 = e²: 1/4 + √(4/8)
    k = exp(2) - 1
    assert rademacher.free_mixing(1.0, 1.0, 1.0, k, 2, 8) == pytest.approx(0.25 + sqrt(0.5))
    assert rademacher.free_vectors(2.0, 3.0, 9) == pytest.approx(2.0)


def test_terms_grow_with_k_and_slowly():
    for term in (
        lambda k: rademacher.frozen_stated(1, 1, 64, k),
        lambda k: rademacher.trainable_stated(1, 1, 1, 64, k, 100, 400),
        lambda k: rademacher.trainable_proof(1, 1, 1, 64, k, 100, 400),
        lambda k: rademacher.free_mixing(1, 1, 1, k, 100, 400),
    ):
        values = [term(k) for k in (1, 3, 10, 100)]
        assert values == sorted(values)
        assert len(set(values)) == 4
        assert values[-1] < 3 * values[0], "√ln: 100 neighbours cost less than three times one"


def test_trainable_classifiers_cost_the_root_of_the_items():
    few, many = (rademacher.trainable_proof(1, 1, 1, 64, 3, items, 400) for items in (100, 400))
    assert many == pytest.approx(2 * few), "with the queries fixed"
    # as stated it grows only while the number of pairs is fixed: 400 items with 100 queries, 100 with 400
    stated = [rademacher.trainable_stated(1, 1, 1, 64, 3, items, 40_000 // items) for items in (100, 400)]
    assert stated[1] == pytest.approx(2 * stated[0])
    same = [rademacher.trainable_stated(1, 1, 1, 64, 3, items, 400) for items in (100, 400)]
    assert same[0] == pytest.approx(same[1]), "and not at all with the queries fixed"


def test_statement_and_proof_of_the_corollary_differ_by_the_root_of_the_items():
    stated = rademacher.trainable_stated(1, 2, 3, 64, 3, 144, 400)
    assert rademacher.trainable_proof(1, 2, 3, 64, 3, 144, 400) == pytest.approx(12 * stated)


def test_by_the_published_terms_training_the_classifiers_would_be_better():
    frozen = rademacher.frozen_stated(1, 1, 64, 3)
    assert rademacher.trainable_stated(1, 1, 1, 64, 3, 100, 400) < frozen
    assert rademacher.trainable_proof(1, 1, 1, 64, 3, 100, 400) < frozen, "while items are fewer than queries"


def test_frozen_classifiers_do_not_cost_more_with_more_items():
    fixed = [rademacher.fixed_mixing(1, 1, 1, 400 * items) for items in (100, 400)]
    assert fixed[1] == pytest.approx(fixed[0] / 2)
    free = [rademacher.free_mixing(1, 1, 1, 3, items, 400) for items in (100, 10_000)]
    assert free[1] < free[0]
    assert free[1] > sqrt(2 * log(4) / 400), "what the mixing costs stays"


def test_free_vectors_over_frozen_ones_is_the_root_of_the_items():
    frozen = rademacher.fixed_mixing(1, 1, 1, 400 * 144)
    assert rademacher.free_vectors(1, 1, 400) == pytest.approx(12 * frozen)


def test_everything_falls_with_more_queries_but_the_published_lemma():
    assert rademacher.free_mixing(1, 1, 1, 3, 9, 10**10) < 1e-4
    assert rademacher.fixed_mixing(1, 1, 1, 10**10) == pytest.approx(1e-5)
    assert rademacher.free_vectors(1, 1, 10**10) == pytest.approx(1e-5)


@pytest.fixture
def unit():
    return lambda n, dim=6, seed=0: _unit(np.random.default_rng(seed).normal(size=(n, dim)))


def _unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_orthogonal_queries_have_a_closed_form():
    # ‖Σ σ_i x_i‖ = √n for every draw, so the estimate is W/√n without any error
    found = of_free_vectors(np.eye(16, dtype=np.float32), 5, 3.0, draws=4)
    assert found.mean == pytest.approx(3.0 / 4)
    assert found.standard_error == pytest.approx(0.0, abs=1e-7)


def test_the_estimate_meets_the_expectation_of_two_queries_on_a_line():
    # ⟨σ₁ + σ₂⟩ is 0 or ±2, each half of the time: E sup = W/2 · 1
    found = of_free_vectors(np.ones((2, 1), dtype=np.float32), 1, 1.0, draws=4_000, seed=1)
    assert found.mean == pytest.approx(0.5, abs=4 * found.standard_error)
    assert found.standard_error == pytest.approx(0.5 / sqrt(4_000), rel=0.05)


def test_with_one_vector_to_mix_the_estimate_is_the_norm_of_the_weighted_sum():
    # all tokens alike: h = t for every item and any mixing, so sup = m · ‖Xᵀσ·1‖ · ‖t‖ / (N·L)
    t = np.array([[0.0, 2.0]], dtype=np.float32)
    tokens = Tokens(np.repeat(t, 3, axis=0), t, np.zeros((3, 2), dtype=np.int64))
    x = np.eye(2, dtype=np.float32)
    random = np.random.default_rng(5)
    expected = [5 * 2 * np.linalg.norm(signs_of(2, 3, random).sum(axis=1)) / 6 for _ in range(6)]
    for mixing in ("mean", "attention", "free"):
        found = of_mixtures(x, tokens, 5.0, mixing, draws=6, steps=3, seed=5)
        assert found.mean == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.fixture
def small(unit):
    random = np.random.default_rng(3)
    return unit(10, seed=1), Tokens(unit(12, seed=2), unit(9, seed=4), random.integers(0, 9, size=(12, 3)))


def test_larger_classes_follow_signs_better_and_stay_under_their_bounds(small):
    queries, tokens = small
    options = {"draws": 8, "steps": 60}
    fixed = of_mixtures(queries, tokens, 2.0, "mean", **options).mean
    attention = of_mixtures(queries, tokens, 2.0, "attention", **options).mean
    free = of_mixtures(queries, tokens, 2.0, "free", **options).mean
    trained = of_mixtures(queries, tokens, 2.0, "free", train_classifiers=1.0, **options).mean
    assert fixed < attention < free < trained
    assert fixed <= rademacher.fixed_mixing(1.0, 1.0, 2.0, 120)
    assert free <= rademacher.free_mixing(1.0, 1.0, 2.0, 3, 12, 10)
    assert trained <= rademacher.free_vectors(1.0, 2.0, 10)


def test_ascent_finds_the_best_mixing_where_all_can_be_tried(unit):
    # free mixing is convex in the weights, so the best stands in a corner: 2³ of them
    x, own, bank = unit(4, 3, 1), unit(3, 3, 2), unit(3, 3, 3)
    tokens = Tokens(own, bank, np.arange(3).reshape(3, 1))
    random = np.random.default_rng(9)
    best = []
    for _ in range(5):
        along = x.T @ signs_of(4, 3, random)
        corners = [np.where(np.array(corner)[:, None] == 0, own, bank) for corner in np.ndindex(2, 2, 2)]
        best.append(max(np.linalg.norm(along @ corner) for corner in corners) / 12)
    found = of_mixtures(x, tokens, 1.0, "free", draws=5, steps=100, starts=6, seed=9).mean
    assert found <= np.mean(best) + 1e-6
    assert found > 0.97 * np.mean(best)


def test_attention_stays_within_its_ball(small):
    queries, tokens = small
    none = of_mixtures(queries, tokens, 2.0, "attention", attention=1e-9, draws=4).mean
    assert none == pytest.approx(of_mixtures(queries, tokens, 2.0, "mean", draws=4).mean, rel=1e-4)


def test_trained_classifiers_stay_within_their_ball(small):
    queries, tokens = small
    least = of_mixtures(queries, tokens, 2.0, "mean", train_classifiers=0.1, draws=4).mean
    most = of_mixtures(queries, tokens, 2.0, "mean", train_classifiers=5.0, draws=4).mean
    assert least < most
