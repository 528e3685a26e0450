from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.tuning import MixedQuality, Quality, Relevance, ranking_quality
from metaxc.tuning.qualities import SLACK, SLICE_PRIOR, mean_mixed_quality, mean_quality

# Items 0 to 3 are observed with 1, 5, 12 and 200 clicks, items 4 and 5 are novel.
NOVEL = np.array([False, False, False, False, True, True])
CLICKS = np.array([1, 5, 12, 200, 0, 0])
RELEVANT = csr_array(
    np.float32(
        [
            [1, 0, 0, 0, 1, 0],  # finds the novel one first, the observed one not at all
            [0, 0, 0, 1, 0, 0],  # found in the second place
            [0, 0, 0, 0, 1, 1],  # one of two found
        ]
    )
)
RANKED = np.array([[4, 1, 2], [2, 3, -1], [3, 5, 0]])


def mixed(**figures):
    """A quality of zeros but for these figures."""
    names = ("precision", "recall", "novel", "observed", "novel_share")
    values = {name: float(figures.pop(name, 0.0)) for name in names}
    by_clicks = np.array(figures.pop("by_clicks", [np.nan] * 7), dtype=np.float64)
    pairs = np.array(figures.pop("pairs", [10**12] * 7))
    assert not figures
    return MixedQuality(**values, by_clicks=by_clicks, pairs=pairs)


def test_a_mixed_ranking_by_hand():
    found = Relevance(RELEVANT, NOVEL, CLICKS).quality(RANKED)
    assert found.precision == pytest.approx(100 / 3)
    assert found.recall == pytest.approx(100 * (0.5 + 1 + 0.5) / 3)
    assert found.novel == pytest.approx(100 * (1 + 0.5) / 2)  # two queries clicked a novel item
    assert found.observed == pytest.approx(100 * (0 + 1) / 2)
    assert found.harmonic_mean == pytest.approx(2 * 75 * 50 / 125)
    assert found.novel_share == pytest.approx(100 * 2 / 8)  # padding is no result
    # Slices 0, 1-2, 3-4, 5-9, 10-29, 30-99, 100+: pairs (q0, 4), (q2, 4), (q2, 5); (q0, 0); -; -; -; -; (q1, 3).
    np.testing.assert_allclose(found.by_clicks, [200 / 3, 0, np.nan, np.nan, np.nan, np.nan, 100])
    np.testing.assert_array_equal(found.pairs, [3, 1, 0, 0, 0, 0, 1])


def test_weighted_clicks_fall_into_the_slice_of_their_whole_number():
    clicks = CLICKS + np.array([1.9, 4.5, 0, 0, 0, 0])  # 2.9 and 9.5
    found = Relevance(RELEVANT, NOVEL, clicks).quality(RANKED)
    np.testing.assert_array_equal(
        found.by_clicks, Relevance(RELEVANT, NOVEL, CLICKS).quality(RANKED).by_clicks
    )


def test_nobody_asks_for_a_novel_item():
    found = Relevance(csr_array(RELEVANT[1:2]), NOVEL, CLICKS).quality(RANKED[1:2])
    assert (found.novel, found.observed, found.harmonic_mean) == (0.0, 100.0, 0.0)


def test_a_shortfall_is_the_sum_of_what_is_missing_in_each_slice():
    """What is found more often in one slice does not make up for another; unknown slices count nothing."""
    alone = mixed(by_clicks=[50, 40, 30, np.nan, 10, 10, 10])
    other = mixed(by_clicks=[90, 38, 30, 0, np.nan, 7, 10])
    assert other.shortfall(alone) == pytest.approx(5.0, abs=1e-3)
    assert alone.shortfall(other) == pytest.approx(40.0, abs=1e-3)
    assert alone.shortfall(alone) == 0


def test_a_slice_counts_by_its_number_of_pairs():
    """At the prior it counts half; of one pair next to nothing is known."""
    alone = mixed(by_clicks=[50, 100, *[np.nan] * 5], pairs=[int(SLICE_PRIOR), 1, 0, 0, 0, 0, 0])
    assert mixed(by_clicks=[42, 100, *[np.nan] * 5]).shortfall(alone) == pytest.approx(4)
    assert mixed(by_clicks=[50, 0, *[np.nan] * 5]).shortfall(alone) == pytest.approx(100 / (1 + SLICE_PRIOR))


def test_the_mean_over_folds_takes_slices_where_they_are_known():
    first = mixed(
        precision=10,
        recall=20,
        novel=30,
        observed=40,
        novel_share=5,
        by_clicks=[10, np.nan, np.nan, 1, 1, 1, 1],
    )
    second = mixed(
        precision=20,
        recall=40,
        novel=50,
        observed=0,
        novel_share=15,
        by_clicks=[30, 8, np.nan, 1, 1, 1, 1],
    )
    found = mean_mixed_quality([first, second])
    assert (found.precision, found.recall, found.mean) == (15, 30, 22.5)
    assert (found.novel, found.observed, found.novel_share) == (40, 20, 10)
    assert found.harmonic_mean == pytest.approx(2 * 40 * 20 / 60)  # of the means, not the mean of both
    np.testing.assert_array_equal(found.by_clicks, [20, 8, np.nan, 1, 1, 1, 1])
    np.testing.assert_array_equal(found.pairs, [2 * 10**12] * 7)


def test_figures_by_name():
    found = mixed(precision=1, recall=2, novel=3, observed=6, novel_share=7).to_dict()
    assert found == {
        "P@1": 1,
        "R@10": 2,
        "novel R@10": 3,
        "observed R@10": 6,
        "H": pytest.approx(4),
        "novel share": 7,
    }


def test_a_ranking_by_hand():
    ranked = np.array([[0, 1, 2], [2, 1, 0]])
    clicks = csr_array(np.array([[1, 1, 0], [1, 0, 0]], np.float32))
    found = ranking_quality(ranked, clicks)
    assert (found.precision, found.recall, found.mean) == (50.0, 100.0, 75.0)
    assert mean_quality([found, Quality(0.0, 0.0)]) == Quality(25.0, 50.0)


def test_the_standard_error_is_that_of_the_less_certain_figure():
    assert Quality(50, 90).standard_error(2_500) == pytest.approx(1.0)
    assert Quality(100, 90).standard_error(900) == pytest.approx(1.0)


def test_close_is_neither_figure_below_by_more_than_the_slack():
    assert Quality(50 - SLACK / 2, 90).is_close_to(Quality(50, 50))
    assert not Quality(50 - 2 * SLACK, 90).is_close_to(Quality(50, 50))
    assert not Quality(90, 50 - 2 * SLACK).is_close_to(Quality(50, 50))


class TestUnfamiliarQueries:
    UNFAMILIAR = np.array([True, False, True])

    def test_their_slices_are_counted_apart(self):
        found = Relevance(RELEVANT, NOVEL, CLICKS, self.UNFAMILIAR).quality(RANKED)
        # Without the second query: pairs (q0, 4), (q2, 4), (q2, 5), of which two are found, and (q0, 0), which is not.
        np.testing.assert_allclose(found.unfamiliar, [200 / 3, 0, *[np.nan] * 5])
        np.testing.assert_array_equal(found.unfamiliar_pairs, [3, 1, 0, 0, 0, 0, 0])
        assert Relevance(RELEVANT, NOVEL, CLICKS).quality(RANKED).unfamiliar is None

    def test_a_slice_falls_short_by_all_queries_or_by_these_whichever_is_more(self):
        many = np.full(7, 10**12)

        def quality(everyone, strangers):
            slices = mixed(by_clicks=everyone)
            return replace(slices, unfamiliar=np.array(strangers, float), unfamiliar_pairs=many)

        alone = quality([40] * 7, [30] * 7)
        assert quality([40] * 7, [30] * 7).shortfall(alone) == pytest.approx(0, abs=1e-3)
        assert quality([40] * 7, [30, 25, *[30] * 5]).shortfall(alone) == pytest.approx(5, abs=1e-3)
        found = quality([40, 38, 32, *[40] * 4], [30, 25, 29, *[30] * 4])
        assert found.shortfall(alone) == pytest.approx(5 + 8, abs=1e-3)
        assert mixed(by_clicks=[40, 38, *[40] * 5]).shortfall(alone) == pytest.approx(2, abs=1e-3)

    def test_the_mean_over_folds_leaves_out_what_is_unknown(self):
        one, other = (
            replace(mixed(), unfamiliar=np.array([share, *[np.nan] * 6]), unfamiliar_pairs=np.full(7, count))
            for share, count in ((20.0, 3), (np.nan, 4))
        )
        found = mean_mixed_quality([one, other])
        assert found.unfamiliar[0] == 20
        assert found.unfamiliar_pairs[0] == 7
