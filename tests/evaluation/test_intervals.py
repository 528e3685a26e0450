import numpy as np
import pytest

from metaxc.errors import ConfigError, DataError
from metaxc.evaluation import intervals
from metaxc.evaluation.intervals import bootstrap, paired_bootstrap, paired_interval


def test_equal_values_have_an_interval_of_no_width():
    low, high = bootstrap(np.tile([3.0, 0.0], (20, 1)), 50)
    np.testing.assert_allclose(low, [3, 0])
    np.testing.assert_allclose(high, [3, 0])


def test_the_interval_of_a_mean_is_that_of_the_normal_law():
    values = np.random.default_rng(1).normal(5.0, 2.0, size=(2000, 1))
    low, high = bootstrap(values, 2000)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low[0] == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(2)
    covered = 0
    for world in range(200):
        low, high = bootstrap((generator.random((150, 1)) < 0.3).astype(float), 300, seed=world)
        covered += bool(low[0] <= 0.3 <= high[0])
    assert 180 <= covered <= 199


def test_a_seed_repeats_the_draw_and_another_changes_it():
    values = np.random.default_rng(3).random((30, 2))
    first, again, other = (np.array(bootstrap(values, 100, seed)) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_blocks_do_not_change_the_result(monkeypatch):
    values = np.random.default_rng(3).random((30, 2))
    whole = np.array(bootstrap(values, 100))
    monkeypatch.setattr(intervals, "BLOCK", 7 * 30)
    np.testing.assert_allclose(np.array(bootstrap(values, 100)), whole)


def test_a_ratio_is_drawn_with_its_denominator():
    possible = np.random.default_rng(6).random((40, 1)) + 0.1
    low, high = bootstrap(0.25 * possible, 100, possible=possible)
    np.testing.assert_allclose([low[0], high[0]], [0.25, 0.25])


def test_a_resample_in_which_nothing_is_possible_is_left_out():
    # One query of 20 is counted: a third of the resamples do not contain it.
    possible = np.zeros((20, 1))
    possible[0] = 1
    low, high = bootstrap(7.0 * possible, 100, possible=possible)
    np.testing.assert_allclose([low[0], high[0]], [7, 7])


def test_a_derived_statistic_is_computed_in_each_resample():
    values = np.random.default_rng(7).random((50, 2))
    low, high = bootstrap(values, 200, derive=lambda means: means[:, :1] - means[:, 1:])
    difference_low, difference_high = bootstrap(values[:, :1] - values[:, 1:], 200)
    np.testing.assert_allclose([low[2], high[2]], [difference_low[0], difference_high[0]])
    np.testing.assert_allclose(low[:2], bootstrap(values, 200)[0])


def test_a_paired_interval_ignores_what_both_systems_share():
    queries = np.random.default_rng(4).normal(50, 30, 400)
    noise = np.random.default_rng(5).normal(0, 1, 400)
    found = paired_interval(queries - 2 + noise, queries)
    half = 1.96 * noise.std() / 20
    assert found.difference == pytest.approx(-2 + noise.mean())
    assert (found.low, found.high) == pytest.approx(
        (found.difference - half, found.difference + half), abs=0.2 * half
    )
    assert found.below
    assert found.significant
    other = paired_interval(queries, queries - 2 + noise)
    assert not other.below
    assert other.significant
    same = paired_interval(queries + noise - noise.mean() - 0.01, queries)
    assert same.difference == pytest.approx(-0.01)
    assert (same.below, same.significant) == (False, False)


def test_the_same_system_twice_does_not_differ():
    values = np.random.default_rng(8).random(50)
    assert paired_bootstrap(values, values, 200) == 1.0


def test_a_constant_gain_is_as_sure_as_the_resamples_allow():
    values = np.random.default_rng(8).random(50)
    assert paired_bootstrap(values + 1.0, values, 199) == pytest.approx(1 / 200)


def test_the_test_is_two_sided():
    generator = np.random.default_rng(9)
    a, b = generator.random(80), generator.random(80)
    assert paired_bootstrap(a, b, 500) == paired_bootstrap(b, a, 500)


def test_the_p_value_is_that_of_the_normal_law():
    # A mean 1.5 standard errors from 0: p = 0.1336 two-sided.
    noise = np.random.default_rng(10).normal(size=1000)
    difference = (noise - noise.mean()) / noise.std() + 1.5 / np.sqrt(1000)
    assert paired_bootstrap(difference, np.zeros(1000), 4000) == pytest.approx(0.1336, abs=0.02)


def test_errors_say_what_was_expected():
    with pytest.raises(DataError, match="same queries"):
        paired_bootstrap(np.zeros(3), np.zeros(4))
    with pytest.raises(DataError, match="no values to resample"):
        bootstrap(np.zeros((0, 2)))
    with pytest.raises(DataError, match="no values to resample"):
        paired_bootstrap(np.zeros(0), np.zeros(0))
    with pytest.raises(DataError, match="differ in shape"):
        bootstrap(np.zeros((3, 2)), possible=np.ones((3, 1)))
    with pytest.raises(ConfigError, match="resamples"):
        bootstrap(np.zeros((3, 2)), 0)
