"""The exposure of novel items, in a world where each value's ranking is known."""

import numpy as np
import pytest

from metaxc.classifiers import Classifiers
from metaxc.data import ClickLog, Dataset, Texts, click_matrix
from metaxc.emmett import Calibration, Emmett
from metaxc.encoders import Vectors
from metaxc.evaluation import (
    PropensityComparison,
    compare_propensity,
    evaluate,
    evaluate_exposures,
    exposure_curve,
    model_search,
)
from metaxc.evaluation.exposure import format_exposure, overall_accuracy, points_around_chosen, why_no_curve
from metaxc.generators import Combine
from metaxc.metrics import inverse_propensities

OBSERVED = 12
WEIGHT = inverse_propensities(np.array([0, 20]), 20)
"""Of a hit on a novel item, and on the item that all 20 training queries clicked."""

RARE, POPULAR = 100 * WEIGHT / WEIGHT.sum()


class CountingVectors(Vectors):
    """Counts how often queries are encoded."""

    calls = 0

    def encode_queries(self, texts):
        self.calls += 1
        return super().encode_queries(texts)


def log(names, clicks):
    rows, items = (np.array(side, dtype=np.int64) for side in zip(*clicks, strict=True))
    return ClickLog(Texts(names, names), click_matrix(rows, items, (len(names), OBSERVED + 2)))


@pytest.fixture
def data():
    """Items 0 to 11 are observed, 12 and 13 novel. Query a wants the novel 12, b the popular 11."""
    names = [f"i{i}" for i in range(OBSERVED + 2)]
    train = log([f"t{i}" for i in range(20)], [(i, OBSERVED - 1) for i in range(20)])
    return Dataset(
        Texts(names, names),
        train,
        log(["a", "b"], [(0, OBSERVED), (1, OBSERVED - 1)]),
        np.arange(OBSERVED + 2) >= OBSERVED,
    )


@pytest.fixture
def model(data):
    """Query a scores item 0 with 1.0, items 1 to 10 with 0.9 and the novel 12 with 0.8, which is rank 12 without
    exposure, rank 2 between 0.1 and 0.2, and rank 1 above. Query b scores item 11 with 1.0 and the novel 13 with 0.5,
    which comes first above 0.5."""
    names = data.items.ids
    encoder = CountingVectors(["a", "b"], np.eye(2), names, np.ones((len(names), 2)))
    vectors = np.zeros((OBSERVED + 2, 3), np.float32)
    vectors[:11, 0] = 0.9
    vectors[0, 0] = 1.0
    vectors[11, 1] = 1.0
    vectors[12, 0], vectors[13, 1] = 0.8, 0.5
    vectors[12:, 2] = 1.0
    observed = np.full((OBSERVED, 2), 0.5**0.5, np.float32)
    return Emmett(
        encoder,
        Classifiers(observed, np.ones(OBSERVED, np.int64)),
        observed,
        Combine(0.5, 0.1),
        data.items,
        np.arange(OBSERVED),
        calibration=Calibration(exposure=0.0),
        vectors=vectors,
        about={"exposure_curve": curve(-0.1, 0.0, 0.15, 0.3, 0.4, 0.6)},
    )


def curve(*exposures, chosen=0.0):
    figures = {"P@1": 50.0, "R@10": 60.0, "novel R@10": 10.0}
    return [{"exposure": one, **figures, "chosen": one == chosen} for one in exposures]


def test_each_exposure_has_its_known_figures(model, data):
    found = evaluate_exposures(model, data, [0.0, 0.15, 0.3, 0.6])
    assert [one["exposure"] for one in found] == [0.0, 0.15, 0.3, 0.6]
    assert all(list(one) == ["exposure", "P@1", "R@10", "novel R@10", "PSP@1"] for one in found)
    # At 0 query a finds nothing; at 0.15 its item is second; at 0.3 first; at 0.6 query b has a novel item first.
    assert [one["P@1"] for one in found] == pytest.approx([50, 50, 100, 50])
    assert [one["R@10"] for one in found] == pytest.approx([50, 100, 100, 100])
    assert [one["novel R@10"] for one in found] == pytest.approx([0, 100, 100, 100])
    assert [one["PSP@1"] for one in found] == pytest.approx([POPULAR, POPULAR, 100, RARE])
    assert RARE > POPULAR + 20


def test_queries_are_encoded_once(model, data):
    evaluate_exposures(model, data, [0.0, 0.15, 0.3])
    assert model.encoder.calls == 1


@pytest.mark.parametrize("exposure", [None, 0.15, 0.6])
def test_the_same_as_the_evaluation_of_a_model_search(exposure, model, data):
    (ours,) = evaluate_exposures(model, data, [0.0 if exposure is None else exposure])
    whole = evaluate(model_search(model, data, exposure), data, intervals=False)
    assert ours["P@1"] == whole["generalized"]["P@1"]
    assert ours["PSP@1"] == whole["generalized"]["PSP@1"]
    assert ours["novel R@10"] == whole.by_kind.kinds["novel"]["R@10"].value


class TestPropensity:
    @pytest.fixture
    def perfect(self, data):
        """An encoder that has the right item first, PSP@1 100."""
        right = {"a": OBSERVED, "b": OBSERVED - 1}

        def search(texts, k, among):
            return np.array([[right[text]] + [-1] * (k - 1) for text in texts])

        return evaluate(search, data, settings=["generalized"], intervals=False)

    def compare(self, model, data, other, exposure=None):
        own = evaluate(model_search(model, data, exposure), data, settings=["generalized"], intervals=False)
        lines = []
        found = compare_propensity(
            model, data, own, other, "bare encoder", exposure=exposure, print_status=lines.append
        )
        return found, lines

    def test_the_nearest_exposure_that_restores_it_is_named(self, model, data, perfect):
        found, lines = self.compare(model, data, perfect)
        assert lines == ["PSP@1 is below the bare encoder: evaluating 6 exposures"]
        assert found.to_dict() == {
            "PSP@1": pytest.approx(POPULAR),
            "baseline": "bare encoder",
            "baseline PSP@1": pytest.approx(100),
            "relative_difference": pytest.approx(POPULAR - 100),
            "tolerance": 10.0,
            "below": True,
            "restored_by": 0.3,
            "exposures": evaluate_exposures(model, data, [-0.1, 0.0, 0.15, 0.3, 0.4, 0.6]),
        }
        assert found.describe() == (
            f"Generalized PSP@1 is {POPULAR:.1f} at exposure 0, {100 - POPULAR:.0f} % below the bare encoder (100.0). "
            "Exposure 0.3 restores it to 100.0 (at most 10 % below), and changes P@1 from 50.0 to 100.0, R@10 from "
            "50.0 to 100.0, novel R@10 from 0.0 to 100.0."
        )

    def test_nearest_to_the_exposure_that_was_evaluated(self, model, data, perfect):
        found, _ = self.compare(model, data, perfect, 0.6)
        assert found.used["exposure"] == 0.6
        assert found.used["PSP@1"] == pytest.approx(RARE)
        assert found.restored_by["exposure"] == 0.4

    def test_none_of_the_curve_restores_it(self, model, data, perfect):
        model.about["exposure_curve"] = curve(0.0, 0.15, 0.6)
        found, _ = self.compare(model, data, perfect)
        assert found.to_dict()["restored_by"] is None
        assert found.describe().endswith(
            "None of the 3 exposures of the model's curve restores it to within 10 %; "
            f"the best is {RARE:.1f} at 0.6."
        )

    def test_of_equal_exposures_the_nearest_is_called_the_best(self, model, data, perfect):
        model.about["exposure_curve"] = curve(-0.1, 0.0, 0.15)
        found, _ = self.compare(model, data, perfect)
        assert found.describe().endswith(f"the best is {POPULAR:.1f} at 0.")

    def test_without_a_curve_nothing_is_tried(self, model, data, perfect):
        model.about.clear()
        found, lines = self.compare(model, data, perfect)
        assert lines == []
        assert found.to_dict()["below"] is True
        assert found.to_dict()["exposures"] == []
        assert found.describe().endswith(
            "The model has no exposure curve: an older version of metaxc trained it. So no other exposure was tried."
        )

    def test_nothing_is_tried_where_it_is_not_below(self, model, data, perfect):
        found, lines = self.compare(model, data, perfect, 0.3)
        assert lines == []
        assert found.to_dict()["below"] is False
        assert found.tried == []
        assert found.restored_by is None
        assert (
            found.describe()
            == "Generalized PSP@1 is 100.0 at exposure 0.3, compared with 100.0 of the bare encoder."
        )

    @pytest.mark.parametrize(("model_psp", "below"), [(45.0, False), (44.9, True), (60.0, False)])
    def test_more_than_a_tenth_counts(self, model_psp, below):
        used = {"exposure": 0.0, "P@1": 1.0, "R@10": 1.0, "novel R@10": None, "PSP@1": model_psp}
        found = PropensityComparison("bare encoder", 50.0, used)
        assert found.below is below
        assert found.relative == pytest.approx(2 * model_psp - 100)
        restored = PropensityComparison("bare encoder", 50.0, {**used, "PSP@1": 10.0}, [used]).restored_by
        assert (restored is None) is below

    def test_an_encoder_that_finds_nothing_has_no_relative_difference(self):
        used = {"exposure": 0.0, "P@1": 0.0, "R@10": 0.0, "novel R@10": None, "PSP@1": 0.0}
        found = PropensityComparison("bare encoder", 0.0, used)
        assert (found.relative, found.below) == (None, False)
        assert found.describe().endswith("compared with 0.0 of the bare encoder.")


class TestCurve:
    def test_sorted_and_without_negative_zero(self):
        found = exposure_curve({"exposure_curve": curve(0.2, -0.0, -0.1)})
        assert [format_exposure(point["exposure"]) for point in found] == ["-0.1", "0", "0.2"]
        assert [str(point["exposure"]) for point in found] == ["-0.1", "0.0", "0.2"]

    @pytest.mark.parametrize("about", [{}, {"exposure_curve": None}, {"exposure_curve": []}])
    def test_no_curve(self, about):
        assert exposure_curve(about) == []

    def test_why_there_is_none(self):
        assert "an older version" in why_no_curve({})
        skipped = why_no_curve({"pseudo_novel": {"skipped": "too few data to choose by"}})
        assert "not chosen on pseudo-novel items (too few data to choose by)" in skipped

    @pytest.mark.parametrize(
        ("chosen", "shown"),
        [(3, [1, 2, 3, 4, 5]), (0, [0, 1, 2, 3, 4]), (7, [3, 4, 5, 6, 7]), (6, [3, 4, 5, 6, 7])],
    )
    def test_five_points_around_the_chosen_one(self, chosen, shown):
        found = points_around_chosen(curve(*range(8), chosen=chosen))
        assert [point["exposure"] for point in found] == shown

    def test_a_short_curve_is_shown_whole(self):
        assert len(points_around_chosen(curve(0, 1, chosen=1))) == 2

    def test_overall_accuracy_is_the_mean_of_both(self):
        assert overall_accuracy({"P@1": 50.0, "R@10": 60.0}) == 55
