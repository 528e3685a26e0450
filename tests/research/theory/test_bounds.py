"""The bounds compared with hand-worked values and limits: Theorem 1, the lemmas and the corollary."""

from math import exp, inf, isinf, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metaxc.errors import ConfigError
from metaxc.research.theory import bounds


def test_q_by_hand():
    # M = 10, p = 0.1, κ = 2: 1 − 0.1 − 0.2 = 0.7, −2 · 10 · 0.49 = −9.8
    assert bounds.bad_set_probability("stated", 10, 0.1, 2).value == pytest.approx(exp(-9.8))
    assert bounds.bad_set_probability("proof", 10, 0.1, 2).value == pytest.approx(2 * exp(-9.8))
    # more than 2 of 10 positives: 0.3 − 0.1 = 0.2, −2 · 10 · 0.04 = −0.8
    assert bounds.bad_set_probability("derived", 10, 0.1, 2).value == pytest.approx(exp(-0.8))


def test_q_goes_to_zero_as_pairs_grow():
    for form in ("stated", "proof"):
        values = [bounds.bad_set_probability(form, pairs, 0.01, 0).value for pairs in (1, 3, 10, 30, 100)]
        assert values == sorted(values, reverse=True)
        assert values[-1] < 1e-80
    shares = [
        bounds.bad_set_probability("derived", pairs, 0.01, pairs // 10).value
        for pairs in (100, 1_000, 10_000)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1e-60


def test_derived_q_is_1_while_kappa_is_below_the_expected_clicks():
    assert bounds.bad_set_probability("derived", 1_000, 0.05, 40).value == 1.0
    assert bounds.bad_set_probability("stated", 1_000, 0.05, 40).value < 1e-300, (
        "the same sample, as the paper counts"
    )


@given(pairs=st.integers(2, 400), p=st.floats(0.001, 0.5), share=st.floats(0, 1))
def test_hoeffding_bounds_the_true_tails(pairs, p, share):
    kappa = int(share * pairs)
    more_than_kappa = stats.binom.sf(kappa, pairs, p)
    assert more_than_kappa <= bounds.bad_set_probability("derived", pairs, p, kappa).value + 1e-9
    nearly_all = stats.binom.sf(pairs - kappa - 1, pairs, p)
    assert nearly_all <= bounds.bad_set_probability("stated", pairs, p, kappa).value + 1e-9


def test_the_two_bad_sets_agree_only_in_the_middle():
    pairs, p = 101, 0.2
    middle = (pairs - 1) // 2
    exponents = [
        [bounds.bad_set_probability(form, pairs, p, kappa).exponent for form in ("stated", "derived")]
        for kappa in (middle, 30)
    ]
    assert exponents[0][0] == pytest.approx(exponents[0][1])
    assert exponents[1][0] < 5 * exponents[1][1]


def test_with_kappa_0_almost_every_sample_is_bad():
    assert bounds.any_positive_probability(2, 0.5) == pytest.approx(0.75)
    assert bounds.any_positive_probability(10**7, 1e-4) == 1.0
    assert bounds.any_positive_probability(10, 1.0) == 1.0
    assert bounds.any_positive_probability(10, 0.0) == 0.0


def test_the_smallest_kappa_is_the_first_that_suffices():
    pairs, p, q = 5_000, 0.02, 0.01
    kappa = bounds.smallest_kappa(pairs, p, q)
    assert kappa > p * pairs
    assert bounds.bad_set_probability("derived", pairs, p, kappa).value <= q
    assert bounds.bad_set_probability("derived", pairs, p, kappa - 1).value > q


def test_the_published_deviation_by_hand():
    # q = 0, δ = 2/e: ln(2/δ) = 1, M = 50: 3 · √(1/100)
    assert bounds.published_deviation(50, 0.0, 2 / exp(1)) == pytest.approx(0.3)
    assert bounds.published_deviation(50, 0.01, 0.05) == pytest.approx(3 * (0.01 + sqrt(log(2 / 0.03) / 100)))
    assert isinf(bounds.published_deviation(50, 0.025, 0.05)), "δ must be above 2q"


def test_the_deviation_solves_the_equation_it_comes_from():
    pairs, q, delta = 200, 0.01, 0.1
    epsilon = bounds.published_deviation(pairs, q, delta) / 3
    assert 2 * q + 2 * exp(-2 * pairs * (epsilon - q) ** 2) == pytest.approx(delta)


def test_the_derived_deviation_by_hand_and_in_its_limits():
    assert bounds.derived_deviation(50, 2 / exp(1), 1.0) == pytest.approx(0.3)
    assert bounds.derived_deviation(50, 2 / exp(1), 7.0) == pytest.approx(2.1)
    assert bounds.derived_deviation(10**12, 0.05, 1.0) < 1e-4


def test_cartesian_and_paired_samples_compared():
    every, single = bounds.cartesian_sample(400, 100), bounds.paired_sample(400)
    assert (every.pairs, every.independent) == (40_000, 100)
    assert (single.pairs, single.independent) == (400, 400)
    published_term = [bounds.deviation("stated", sample, 0.01, 10, 0.05, 1.0) for sample in (every, single)]
    assert published_term[1] == pytest.approx(10 * published_term[0], rel=1e-6), "√L = √100 between them"
    derived_term = [bounds.deviation("derived", sample, 0.01, 10, 0.05, 1.0) for sample in (every, single)]
    assert derived_term[0] == pytest.approx(2 * derived_term[1]), "100 items are fewer than 400 queries"


def test_many_pairs_of_few_queries_are_not_many_observations():
    few = bounds.deviation("derived", bounds.cartesian_sample(10, 10**6), 1e-3, 0, 0.05, 1.0)
    assert few == pytest.approx(bounds.derived_deviation(10, 0.05, 1.0))


def test_the_loss_ranges_by_hand():
    assert bounds.softplus(0.0) == pytest.approx(log(2))
    assert bounds.softplus(800.0) == 800.0
    assert bounds.softplus(-800.0) == 0.0
    assert bounds.loss_range(3.0, 1.0) == pytest.approx(3.0), "softplus(f) − softplus(−f) = f"
    assert bounds.loss_range(3.0, 4.0) == pytest.approx(4 * bounds.softplus(3.0) - bounds.softplus(-3.0))
    assert bounds.loss_range(0.0, 1.0) == 0.0


@pytest.mark.parametrize("bad", [{"p": 1.5}, {"p": -0.1}, {"kappa": 11}, {"kappa": -1}])
def test_impossible_arguments_are_errors(bad):
    with pytest.raises(ConfigError):
        bounds.bad_set_probability("stated", **{"pairs": 10, "p": 0.1, "kappa": 1, **bad})


def test_no_queries_and_no_delta_are_errors():
    with pytest.raises(ConfigError, match="queries"):
        bounds.cartesian_sample(0, 5)
    with pytest.raises(ConfigError, match="delta"):
        bounds.derived_deviation(5, 0.0, 1.0)
    assert bounds.published_deviation(5, 0.6, 1.0) == inf


def test_the_risk_of_a_model_that_scores_every_pair_0():
    assert bounds.uninformed_risk(0.0, 4.0) == pytest.approx(log(2))
    assert bounds.uninformed_risk(0.1, 11.0) == pytest.approx(2 * log(2)), "clicks cost eleven times as much"


def test_enough_pairs_bring_the_deviation_down():
    n = bounds.required_independent_pairs(0.05, 2.0, 0.5)
    assert bounds.derived_deviation(n, 0.05, 2.0) <= 0.5 < bounds.derived_deviation(n - 1, 0.05, 2.0)


def test_published_terms_by_hand():
    # ln(K + 1) = ln 4 with K = 3; d = 9
    assert bounds.stated_frozen_complexity(2.0, 0.5, 9, 3) == pytest.approx(3 * sqrt(log(4)))
    # B·W·√(L/M) = 2 · 3 · √(1/16) on top
    assert bounds.stated_trainable_complexity(2.0, 3.0, 0.5, 9, 3, 25, 16) == pytest.approx(
        1.5 * 3 * sqrt(log(4))
    )
    # B·W·√(L/N) = 2 · 3 · √(25/16)
    assert bounds.proof_trainable_complexity(2.0, 3.0, 0.5, 9, 3, 25, 16) == pytest.approx(
        7.5 * 3 * sqrt(log(4))
    )
    assert bounds.stated_plain_complexity(2.0, 3.0, 10, 25) == pytest.approx(12.0)


def test_derived_terms_by_hand():
    assert bounds.fixed_mixing_complexity(2.0, 3.0, 0.5, 36) == pytest.approx(0.5)
    # N = 8, L = 2, K + 1 = e²: 1/4 + √(4/8)
    k = exp(2) - 1
    assert bounds.free_mixing_complexity(1.0, 1.0, 1.0, k, 2, 8) == pytest.approx(0.25 + sqrt(0.5))
    assert bounds.free_vectors_complexity(2.0, 3.0, 9) == pytest.approx(2.0)


def test_terms_grow_with_k_and_slowly():
    for term in (
        lambda k: bounds.stated_frozen_complexity(1, 1, 64, k),
        lambda k: bounds.stated_trainable_complexity(1, 1, 1, 64, k, 100, 400),
        lambda k: bounds.proof_trainable_complexity(1, 1, 1, 64, k, 100, 400),
        lambda k: bounds.free_mixing_complexity(1, 1, 1, k, 100, 400),
    ):
        values = [term(k) for k in (1, 3, 10, 100)]
        assert values == sorted(values)
        assert len(set(values)) == 4
        assert values[-1] < 3 * values[0], "√ln: 100 neighbours cost less than three times one"


def test_trainable_classifiers_cost_the_root_of_the_items():
    few, many = (bounds.proof_trainable_complexity(1, 1, 1, 64, 3, items, 400) for items in (100, 400))
    assert many == pytest.approx(2 * few), "with the queries fixed"
    # as stated it grows only while the number of pairs is fixed: 400 items with 100 queries, 100 with 400
    stated = [
        bounds.stated_trainable_complexity(1, 1, 1, 64, 3, items, 40_000 // items) for items in (100, 400)
    ]
    assert stated[1] == pytest.approx(2 * stated[0])
    same = [bounds.stated_trainable_complexity(1, 1, 1, 64, 3, items, 400) for items in (100, 400)]
    assert same[0] == pytest.approx(same[1]), "and not at all with the queries fixed"


def test_statement_and_proof_of_the_corollary_differ_by_the_root_of_the_items():
    stated = bounds.stated_trainable_complexity(1, 2, 3, 64, 3, 144, 400)
    assert bounds.proof_trainable_complexity(1, 2, 3, 64, 3, 144, 400) == pytest.approx(12 * stated)


def test_by_the_published_terms_training_the_classifiers_would_be_better():
    frozen = bounds.stated_frozen_complexity(1, 1, 64, 3)
    assert bounds.stated_trainable_complexity(1, 1, 1, 64, 3, 100, 400) < frozen
    assert bounds.proof_trainable_complexity(1, 1, 1, 64, 3, 100, 400) < frozen, (
        "while items are fewer than queries"
    )


def test_frozen_classifiers_do_not_cost_more_with_more_items():
    fixed = [bounds.fixed_mixing_complexity(1, 1, 1, 400 * items) for items in (100, 400)]
    assert fixed[1] == pytest.approx(fixed[0] / 2)
    free = [bounds.free_mixing_complexity(1, 1, 1, 3, items, 400) for items in (100, 10_000)]
    assert free[1] < free[0]
    assert free[1] > sqrt(2 * log(4) / 400), "what the mixing costs stays"


def test_free_vectors_over_frozen_ones_is_the_root_of_the_items():
    frozen = bounds.fixed_mixing_complexity(1, 1, 1, 400 * 144)
    assert bounds.free_vectors_complexity(1, 1, 400) == pytest.approx(12 * frozen)


def test_everything_falls_with_more_queries_but_the_published_lemma():
    assert bounds.free_mixing_complexity(1, 1, 1, 3, 9, 10**10) < 1e-4
    assert bounds.fixed_mixing_complexity(1, 1, 1, 10**10) == pytest.approx(1e-5)
    assert bounds.free_vectors_complexity(1, 1, 10**10) == pytest.approx(1e-5)
