"""Estimates from random signs compared with closed forms and with the derived bounds."""

from math import sqrt

import numpy as np
import pytest

from metaxc.research.theory import bounds
from metaxc.research.theory.empirical import (
    MixtureInputs,
    draw_signs,
    estimate_free_vectors,
    estimate_mixtures,
)


@pytest.fixture
def unit():
    return lambda n, dim=6, seed=0: _unit(np.random.default_rng(seed).normal(size=(n, dim)))


def _unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_orthogonal_queries_have_a_closed_form():
    # ‖Σ σ_i x_i‖ = √n for every draw, so the estimate is W/√n without any error
    found = estimate_free_vectors(np.eye(16, dtype=np.float32), 5, 3.0, draws=4)
    assert found.mean == pytest.approx(3.0 / 4)
    assert found.standard_error == pytest.approx(0.0, abs=1e-7)


def test_the_estimate_meets_the_expectation_of_two_queries_on_a_line():
    # ⟨σ₁ + σ₂⟩ is 0 or ±2, each half of the time: E sup = W/2 · 1
    found = estimate_free_vectors(np.ones((2, 1), dtype=np.float32), 1, 1.0, draws=4_000, seed=1)
    assert found.mean == pytest.approx(0.5, abs=4 * found.standard_error)
    assert found.standard_error == pytest.approx(0.5 / sqrt(4_000), rel=0.05)


def test_with_one_vector_to_mix_the_estimate_is_the_norm_of_the_weighted_sum():
    # all inputs alike: h = t for every item and any mixing, so sup = m · ‖Xᵀσ·1‖ · ‖t‖ / (N·L)
    t = np.array([[0.0, 2.0]], dtype=np.float32)
    inputs = MixtureInputs(np.repeat(t, 3, axis=0), t, np.zeros((3, 2), dtype=np.int64))
    x = np.eye(2, dtype=np.float32)
    random = np.random.default_rng(5)
    expected = [5 * 2 * np.linalg.norm(draw_signs(2, 3, random).sum(axis=1)) / 6 for _ in range(6)]
    for mixing in ("mean", "attention", "free"):
        found = estimate_mixtures(x, inputs, 5.0, mixing, draws=6, steps=3, seed=5)
        assert found.mean == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.fixture
def small(unit):
    random = np.random.default_rng(3)
    return unit(10, seed=1), MixtureInputs(
        unit(12, seed=2), unit(9, seed=4), random.integers(0, 9, size=(12, 3))
    )


def test_larger_classes_fit_signs_better_and_stay_below_their_bounds(small):
    queries, inputs = small
    options = {"draws": 8, "steps": 60}
    fixed = estimate_mixtures(queries, inputs, 2.0, "mean", **options).mean
    attention = estimate_mixtures(queries, inputs, 2.0, "attention", **options).mean
    free = estimate_mixtures(queries, inputs, 2.0, "free", **options).mean
    trained = estimate_mixtures(queries, inputs, 2.0, "free", train_classifiers=1.0, **options).mean
    assert fixed < attention < free < trained
    assert fixed <= bounds.fixed_mixing_complexity(1.0, 1.0, 2.0, 120)
    assert free <= bounds.free_mixing_complexity(1.0, 1.0, 2.0, 3, 12, 10)
    assert trained <= bounds.free_vectors_complexity(1.0, 2.0, 10)


def test_ascent_finds_the_best_mixing_where_all_can_be_enumerated(unit):
    # free mixing is convex in the weights, so the best stands in a corner: 2³ of them
    x, own, bank = unit(4, 3, 1), unit(3, 3, 2), unit(3, 3, 3)
    inputs = MixtureInputs(own, bank, np.arange(3).reshape(3, 1))
    random = np.random.default_rng(9)
    best = []
    for _ in range(5):
        along = x.T @ draw_signs(4, 3, random)
        corners = [np.where(np.array(corner)[:, None] == 0, own, bank) for corner in np.ndindex(2, 2, 2)]
        best.append(max(np.linalg.norm(along @ corner) for corner in corners) / 12)
    found = estimate_mixtures(x, inputs, 1.0, "free", draws=5, steps=100, starts=6, seed=9).mean
    assert found <= np.mean(best) + 1e-6
    assert found > 0.97 * np.mean(best)


def test_attention_stays_within_its_norm_bound(small):
    queries, inputs = small
    none = estimate_mixtures(queries, inputs, 2.0, "attention", attention=1e-9, draws=4).mean
    assert none == pytest.approx(estimate_mixtures(queries, inputs, 2.0, "mean", draws=4).mean, rel=1e-4)


def test_trained_classifiers_stay_within_their_norm_bound(small):
    queries, inputs = small
    least = estimate_mixtures(queries, inputs, 2.0, "mean", train_classifiers=0.1, draws=4).mean
    most = estimate_mixtures(queries, inputs, 2.0, "mean", train_classifiers=5.0, draws=4).mean
    assert least < most
