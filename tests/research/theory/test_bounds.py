"""Theorem 1 against hand-worked values and limits."""

from math import exp, inf, isinf, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metaxc.errors import ConfigError
from metaxc.research.theory import bounds


def test_q_by_hand():
    # M = 10, p = 0.1, κ = 2: 1 − 0.1 − 0.2 = 0.7, −2 · 10 · 0.49 = −9.8
    assert bounds.bad_set("stated", 10, 0.1, 2).value == pytest.approx(exp(-9.8))
    assert bounds.bad_set("proof", 10, 0.1, 2).value == pytest.approx(2 * exp(-9.8))
    # more than 2 of 10 positives: 0.3 − 0.1 = 0.2, −2 · 10 · 0.04 = −0.8
    assert bounds.bad_set("derived", 10, 0.1, 2).value == pytest.approx(exp(-0.8))


def test_q_goes_to_zero_as_pairs_grow():
    for form in ("stated", "proof"):
        values = [bounds.bad_set(form, pairs, 0.01, 0).value for pairs in (1, 3, 10, 30, 100)]
        assert values == sorted(values, reverse=True)
        assert values[-1] < 1e-80
    shares = [bounds.bad_set("derived", pairs, 0.01, pairs // 10).value for pairs in (100, 1_000, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1e-60


def test_q_as_a_good_set_leaves_it_says_nothing_while_kappa_is_below_the_expected_clicks():
    assert bounds.bad_set("derived", 1_000, 0.05, 40).value == 1.0
    assert bounds.bad_set("stated", 1_000, 0.05, 40).value < 1e-300, "the same sample, as the paper counts"


@given(pairs=st.integers(2, 400), p=st.floats(0.001, 0.5), share=st.floats(0, 1))
def test_hoeffding_bounds_the_true_tails(pairs, p, share):
    kappa = int(share * pairs)
    more_than_kappa = stats.binom.sf(kappa, pairs, p)
    assert more_than_kappa <= bounds.bad_set("derived", pairs, p, kappa).value + 1e-9
    nearly_all = stats.binom.sf(pairs - kappa - 1, pairs, p)
    assert nearly_all <= bounds.bad_set("stated", pairs, p, kappa).value + 1e-9


def test_the_two_bad_sets_agree_only_in_the_middle():
    pairs, p = 101, 0.2
    middle = (pairs - 1) // 2
    exponents = [
        [bounds.bad_set(form, pairs, p, kappa).exponent for form in ("stated", "derived")]
        for kappa in (middle, 30)
    ]
    assert exponents[0][0] == pytest.approx(exponents[0][1])
    assert exponents[1][0] < 5 * exponents[1][1]


def test_without_room_for_any_click_almost_every_sample_is_bad():
    assert bounds.any_positive(2, 0.5) == pytest.approx(0.75)
    assert bounds.any_positive(10**7, 1e-4) == 1.0
    assert bounds.any_positive(10, 1.0) == 1.0
    assert bounds.any_positive(10, 0.0) == 0.0


def test_the_kappa_needed_is_the_first_that_suffices():
    pairs, p, q = 5_000, 0.02, 0.01
    kappa = bounds.kappa_needed(pairs, p, q)
    assert kappa > p * pairs
    assert bounds.bad_set("derived", pairs, p, kappa).value <= q
    assert bounds.bad_set("derived", pairs, p, kappa - 1).value > q


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


def test_samples_side_by_side():
    every, single = bounds.cartesian(400, 100), bounds.paired(400)
    assert (every.pairs, every.independent) == (40_000, 100)
    assert (single.pairs, single.independent) == (400, 400)
    published = [bounds.deviation("stated", sample, 0.01, 10, 0.05, 1.0) for sample in (every, single)]
    assert published[1] == pytest.approx(10 * published[0], rel=1e-6), "√L = √100 between them"
    derived = [bounds.deviation("derived", sample, 0.01, 10, 0.05, 1.0) for sample in (every, single)]
    assert derived[0] == pytest.approx(2 * derived[1]), "100 items are fewer than 400 queries"


def test_many_pairs_of_few_queries_are_not_many_observations():
    few = bounds.deviation("derived", bounds.cartesian(10, 10**6), 1e-3, 0, 0.05, 1.0)
    assert few == pytest.approx(bounds.derived_deviation(10, 0.05, 1.0))


def test_the_loss_ranges_by_hand():
    assert bounds.softplus(0.0) == pytest.approx(log(2))
    assert bounds.softplus(800.0) == 800.0
    assert bounds.softplus(-800.0) == 0.0
    assert bounds.loss_range(3.0, 1.0) == pytest.approx(3.0), "softplus(f) − softplus(−f) = f"
    assert bounds.loss_range(3.0, 4.0) == pytest.approx(4 * bounds.softplus(3.0) - bounds.softplus(-3.0))
    assert bounds.loss_range(0.0, 1.0) == 0.0


@pytest.mark.parametrize("bad", [{"p": 1.5}, {"p": -0.1}, {"kappa": 11}, {"kappa": -1}])
def test_what_cannot_be_is_an_error(bad):
    with pytest.raises(ConfigError):
        bounds.bad_set("stated", **{"pairs": 10, "p": 0.1, "kappa": 1, **bad})


def test_no_queries_and_no_delta_are_errors():
    with pytest.raises(ConfigError, match="queries"):
        bounds.cartesian(0, 5)
    with pytest.raises(ConfigError, match="delta"):
        bounds.derived_deviation(5, 0.0, 1.0)
    assert bounds.published_deviation(5, 0.6, 1.0) == inf


def test_what_a_model_pays_that_knows_nothing():
    assert bounds.ignorance(0.0, 4.0) == pytest.approx(log(2))
    assert bounds.ignorance(0.1, 11.0) == pytest.approx(2 * log(2)), "clicks cost eleven times as much"


def test_enough_pairs_bring_the_deviation_down():
    n = bounds.independent_needed(0.05, 2.0, 0.5)
    assert bounds.derived_deviation(n, 0.05, 2.0) <= 0.5 < bounds.derived_deviation(n - 1, 0.05, 2.0)
