import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration, scoring
from metaxc.emmett.scoring import (
    LEAST_RESPONSE,
    ClassifierResponse,
    click_trust,
    item_scores,
    item_vectors,
    query_vectors,
    weigh_parts,
)

DIM = 5

calibrations = st.builds(
    Calibration,
    own=st.floats(0, 8),
    prior_clicks=st.floats(0, 300),
    novelty_prior=st.floats(0, 100),
    novel_scale=st.floats(0.3, 3),
    exposure=st.floats(-1, 1),
)
click_counts = st.lists(st.integers(0, 5_000), min_size=1, max_size=8)


def parts(count, seed=0):
    """(z, G, w): the embeddings, what the generator made, and the own classifiers of some items."""
    return np.random.default_rng(seed).normal(size=(3, count, DIM)).astype(np.float32)


def vector(clicks, calibration, seed=0):
    """The vector of one item, and its z, G and w."""
    z, g, w = parts(1, seed)
    return item_vectors(z, g, Classifiers(w, np.array([clicks])), calibration)[0], z[0], g[0], w[0]


def test_the_formula_by_hand():
    """n = 3: t = 3 / (3 + 9) = ¼, r = 1 / (3 + 1) = ¼, s = 1 + (3 − 1) · ¼ = 1.5."""
    calibration = Calibration(own=2.0, prior_clicks=9.0, novelty_prior=1.0, novel_scale=3.0)
    made = item_vectors(
        np.float32([[1, 0]]),
        np.float32([[0, 1]]),
        Classifiers(np.float32([[10, 20]]), np.array([3])),
        calibration,
    )
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, [[1.5 * 0.75 + 5, 1.5 * 0.25 + 10, 0.25]], rtol=1e-6)


@given(calibrations)
def test_without_clicks_it_is_the_scaled_meta_classifier(calibration):
    made, _, g, _ = vector(0, calibration)
    np.testing.assert_allclose(made[:-1], calibration.novel_scale * g, rtol=1e-4, atol=1e-5)
    assert made[-1] == 1
    z, g, _ = parts(2)
    no_classifiers = item_vectors(z, g, None, calibration)
    np.testing.assert_allclose(no_classifiers[:, :-1], calibration.novel_scale * g, rtol=1e-4, atol=1e-5)
    assert no_classifiers[:, -1].tolist() == [1, 1]


@given(calibrations)
def test_with_very_many_clicks_it_is_the_text_and_the_own_classifier(calibration):
    made, z, _, w = vector(10**9, calibration)
    np.testing.assert_allclose(made[:-1], z + calibration.own * w, rtol=1e-4, atol=1e-4)
    assert made[-1] == pytest.approx(0, abs=1e-6)


ROUNDING = 1e-6
"""Of weights in float32."""


@given(calibrations, click_counts)
def test_every_weight_moves_one_way_with_the_clicks(calibration, counts):
    """More clicks: more of the text and of the own classifier, less of the neighbours, less novel."""
    weights = weigh_parts(np.sort(counts), calibration)
    assert (np.diff(weights.own) >= -ROUNDING).all()
    assert (np.diff(weights.exposed) <= ROUNDING).all()
    assert ((weights.exposed >= 0) & (weights.exposed <= 1)).all()
    length = weights.text + weights.generated
    towards_one = np.diff(np.abs(length - 1))
    assert (towards_one <= 1e-5).all()
    np.testing.assert_allclose(weights.generated, length * weights.exposed, atol=1e-5)


def test_clicks_that_the_encoder_has_not_learnt_from_count_a_third_against_the_novelty():
    """Four learnt clicks and three others make an item as novel as five learnt ones; its own classifier has all."""
    calibration = Calibration(own=2.0, prior_clicks=6.0, novelty_prior=3.0)
    mixed = weigh_parts(np.array([7]), calibration, np.array([4]))
    learnt = weigh_parts(np.array([5]), calibration)
    assert mixed.exposed == learnt.exposed == pytest.approx(3 / 8)
    assert (mixed.text, mixed.generated) == (learnt.text, learnt.generated)
    assert mixed.own == pytest.approx(2.0 * 7 / 13)
    z, g, w = parts(1)
    classifiers = Classifiers(w, np.array([7]), learnt_clicks=np.array([4]))
    assert item_vectors(z, g, classifiers, calibration)[0, -1] == pytest.approx(3 / 8)
    assert item_vectors(z, g, classifiers.take([0]), calibration)[0, -1] == pytest.approx(3 / 8)


@given(calibrations.filter(lambda c: c.novelty_prior >= 0.5 and c.prior_clicks >= 0.5), st.integers(0, 5_000))
def test_no_click_makes_it_jump(calibration, clicks):
    """Over a hundredth of a click the vector moves by a hundredth of what it could move by at most."""
    z, g, w = parts(1)
    here, there = (
        item_vectors(z, g, Classifiers(w, np.array([clicks + step])), calibration) for step in (0.0, 0.01)
    )
    steepest = calibration.own / calibration.prior_clicks * np.linalg.norm(w)
    steepest += (
        3
        * max(1, calibration.novel_scale)
        * (np.linalg.norm(g) + np.linalg.norm(z) + 1)
        / (calibration.novelty_prior)
    )
    assert np.linalg.norm(there - here) <= 0.01 * steepest + 1e-4


@given(calibrations, st.integers(1, 10_000))
def test_without_novelty_prior_the_first_click_ends_the_neighbours_part(calibration, clicks):
    """The formula of older models."""
    calibration = calibration.model_copy(update={"novelty_prior": 0.0})
    made, z, _, w = vector(clicks, calibration)
    trust = clicks / (clicks + calibration.prior_clicks)
    np.testing.assert_allclose(made[:-1], z + calibration.own * trust * w, rtol=1e-4, atol=1e-5)
    assert made[-1] == 0
    novel, _, g, _ = vector(0, calibration)
    np.testing.assert_allclose(novel[:-1], calibration.novel_scale * g, rtol=1e-6)
    assert novel[-1] == 1


@settings(max_examples=50)
@given(calibrations, click_counts, st.floats(-2, 2), st.integers(0, 10))
def test_scores_of_the_parts_are_the_scores_of_the_vectors(calibration, counts, exposure, seed):
    z, g, w = parts(len(counts), seed)
    clicks = np.array(counts)
    queries = np.random.default_rng(seed + 100).normal(size=(3, DIM)).astype(np.float32)
    ranked = query_vectors(queries, exposure) @ item_vectors(z, g, Classifiers(w, clicks), calibration).T
    by_parts = item_scores(
        queries @ z.T, queries @ g.T, queries @ w.T, weigh_parts(clicks, calibration), exposure
    )
    np.testing.assert_allclose(by_parts, ranked, rtol=1e-3, atol=1e-3)


@given(calibrations, click_counts, st.floats(-2, 2))
def test_exposure_adds_itself_times_the_novelty(calibration, counts, exposure):
    z, g, w = parts(len(counts))
    vectors = item_vectors(z, g, Classifiers(w, np.array(counts)), calibration)
    queries = np.ones((1, DIM), np.float32)
    added = (query_vectors(queries, exposure) - query_vectors(queries, 0.0)) @ vectors.T
    novelty = 1 - click_trust(np.array(counts), calibration.novelty_prior)
    np.testing.assert_allclose(added[0], exposure * novelty, rtol=1e-5, atol=1e-6)


def test_trust_by_hand():
    assert click_trust(np.array([0, 1, 3, 9]), 3.0).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert click_trust(np.array([0, 1, 9]), 0.0).tolist() == [0.0, 1.0, 1.0]
    assert click_trust(np.array([1.5]), 1.5).tolist() == [0.5]


class TestFreshness:
    """The share of the exposure where it follows the time since the last click instead of the number of clicks."""

    calibration = Calibration(novelty_prior=1.0, freshness_days=10.0)

    def test_it_falls_by_the_days_since_the_last_click(self):
        ages = np.float32([0, 10, 20, 1e6])
        shares = weigh_parts(np.array([3, 10**7, 10**7, 3]), self.calibration, ages=ages).exposed
        np.testing.assert_allclose(shares, [1, np.exp(-1), np.exp(-2), 0], atol=1e-6)

    def test_time_runs_more_slowly_for_items_with_few_clicks(self):
        shares = weigh_parts(np.array([0, 1, 3, 9]), self.calibration, ages=np.float32([10] * 4)).exposed
        np.testing.assert_allclose(shares, np.exp([0, -1 / 4, -1 / 2, -3 / 4]), rtol=1e-6)

    def test_it_does_not_change_the_neighbours_part(self):
        by_age, by_clicks = (
            weigh_parts(np.array([1, 3]), one, ages=np.float32([50, 0]))
            for one in (self.calibration, Calibration(novelty_prior=1.0))
        )
        np.testing.assert_array_equal(by_age.generated, by_clicks.generated)
        np.testing.assert_allclose(by_clicks.exposed, [0.5, 0.25])

    def test_items_without_an_age_are_as_fresh_as_can_be(self):
        """New items, and those whose clicks came after the training."""
        made = item_vectors(*parts(2)[:2], None, self.calibration)
        clicked = item_vectors(*parts(2)[:2], Classifiers(parts(2)[2], np.array([2, 90])), self.calibration)
        np.testing.assert_array_equal([*made[:, -1], *clicked[:, -1]], 1)

    def test_the_vector_has_it_as_its_last_coordinate(self):
        aged = Classifiers(parts(2)[2], np.array([3, 90]), ages=np.float32([5, 0]))
        made = item_vectors(*parts(2)[:2], aged, self.calibration)
        np.testing.assert_allclose(made[:, -1], [np.exp(-0.25), 1], rtol=1e-6)

    def test_the_bonus_is_added_to_it(self):
        calibration = Calibration(freshness_days=10.0, exposure_bonus=(0, 0, 0, 0.25, 0))
        shares = weigh_parts(np.array([20, 20]), calibration, ages=np.float32([10, 0])).exposed
        np.testing.assert_allclose(shares, [np.exp(-20 / 23) + 0.25, 1], rtol=1e-6)

    @pytest.mark.parametrize("days", [0.0, -1.0, np.nan, np.inf])
    def test_days_that_are_no_positive_number_are_refused(self, days):
        with pytest.raises(ValidationError):
            Calibration(freshness_days=days)


class TestExposureBonus:
    BONUS = Calibration(novelty_prior=3.0, exposure_bonus=(0.3, 0.2, 0.0, -0.1, 0.0))

    def test_it_is_added_to_the_share_at_its_number_of_clicks_and_nowhere_else(self):
        clicks = np.array([0, 1.5, 3.5, 7, 20, 60, 200, 5_000])
        with_bonus, without = (
            weigh_parts(clicks, one) for one in (self.BONUS, Calibration(novelty_prior=3.0))
        )
        added = with_bonus.exposed - without.exposed
        np.testing.assert_allclose(added, [0, 0.3, 0.2, 0, -0.1, 0, 0, 0], atol=1e-6)
        for name in ("text", "generated", "own"):
            np.testing.assert_array_equal(getattr(with_bonus, name), getattr(without, name))

    def test_between_two_numbers_it_is_interpolated(self):
        clicks = np.expm1((np.log1p([1.5]) + np.log1p([3.5])) / 2)
        added = weigh_parts(clicks, self.BONUS).exposed - 3 / (3 + clicks)
        np.testing.assert_allclose(added, [0.25], atol=1e-6)

    @given(st.tuples(*[st.floats(-2, 2)] * 5), click_counts)
    def test_no_item_gets_more_than_one_without_clicks_and_none_less_than_nothing(self, bonus, counts):
        shares = weigh_parts(np.array([0, *counts]), Calibration(exposure_bonus=bonus)).exposed
        assert shares[0] == 1
        assert ((shares >= 0) & (shares <= 1)).all()

    def test_clicks_after_the_training_count_a_third_here_too(self):
        live = weigh_parts(np.array([6]), self.BONUS, np.array([0])).exposed
        np.testing.assert_allclose(live, weigh_parts(np.array([2]), self.BONUS).exposed, atol=1e-6)

    def test_a_bonus_that_is_no_number_is_refused(self):
        for wrong in (float("nan"), float("inf"), 1e9):
            with pytest.raises(ValidationError):
                Calibration(exposure_bonus=(wrong, 0, 0, 0, 0))


class TestClassifierResponse:
    CLASSIFIERS = Classifiers(np.eye(3, dtype=np.float32), np.array([5, 1, 3]))

    def test_it_is_the_best_score_relative_to_that_of_training_queries(self):
        training = np.float32([[0.5, 0, 0], [0, 0, 0.3]])
        response = ClassifierResponse.fit(self.CLASSIFIERS, training)
        assert response.unit == pytest.approx(0.4)
        found = response(np.float32([[0.8, 0, 0], [0, 0.2, 0.1], [-1, -1, -1]]))
        np.testing.assert_allclose(found, [2.0, 0.5, LEAST_RESPONSE], rtol=1e-6)

    def test_the_most_clicked_items_are_the_ones_that_respond(self, monkeypatch):
        monkeypatch.setattr(scoring, "HEADS", 2)
        response = ClassifierResponse.of(self.CLASSIFIERS, 1.0)
        assert response(np.eye(3, dtype=np.float32)).tolist() == [1, pytest.approx(LEAST_RESPONSE), 1]

    def test_without_a_unit_every_query_has_the_same_exposure(self):
        response = ClassifierResponse.of(self.CLASSIFIERS, None)
        assert response(np.float32([[0.8, 0, 0], [0, 0, 0]])).tolist() == [1, 1]

    def test_classifiers_that_respond_to_no_training_query_have_no_unit(self):
        assert ClassifierResponse.fit(self.CLASSIFIERS, np.zeros((4, 3), np.float32)).unit is None


def test_each_query_has_its_own_exposure():
    queries = np.float32([[1, 0], [0, 1]])
    assert query_vectors(queries, np.float32([0.1, 0.4]))[:, -1].tolist() == pytest.approx([0.1, 0.4])
    assert query_vectors(queries, 0.3)[:, -1].tolist() == pytest.approx([0.3, 0.3])
