import json

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration
from metaxc.tuning import (
    ENCODER_ALONE,
    FoldItems,
    MixedQuality,
    Relevance,
    Setting,
    Shortlist,
    calibration,
    choose_calibration,
)
from metaxc.tuning.calibration import (
    BONUSES,
    LADDERS,
    SLICE_COST,
    SLICE_PRICE,
    SLICE_WEIGHT,
    WORTH_NOISE,
    CalibrationChoice,
)

TOPICS = 30


def build(gaps, first=0, tenth=0, novel=0, top=0.9):
    """A fold with a topic for each gap: ten observed items that score 0.9, 0.85 … 0.45, and a novel item that
    scores 0.45 less the gap. Clicks are so many that nothing of the observed items moves; there are no
    classifiers and no neighbours.

    Args:
        gaps: (topics,) how far the novel item is below the tenth.
        first, tenth, novel: How many queries of a topic click the first, the tenth and the novel item; one number for
            all topics, or one for each.
        top: What the first item scores; the others follow.
    """
    topics = len(gaps)
    axes = np.eye(topics, dtype=np.float32)
    levels = np.linspace(top, top - 0.45, 10)
    embeddings = np.concatenate(
        [np.kron(axes, levels[:, None]), axes * (top - 0.45 - np.asarray(gaps))[:, None]]
    )
    count = len(embeddings)
    is_novel = np.arange(count) >= 10 * topics
    rows = []
    for topic in range(topics):
        clicked = (10 * topic, 10 * topic + 9, 10 * topics + topic)
        for item, times in zip(clicked, (first, tenth, novel), strict=True):
            rows += [(topic, item)] * int(np.broadcast_to(times, topics)[topic])
    asked, items = (np.array(part) for part in zip(*rows, strict=True))
    relevant = csr_array((np.ones(len(rows), np.float32), (np.arange(len(rows)), items)), (len(rows), count))
    clicks = np.where(is_novel, 0, 10**7)
    nothing = np.zeros((count, topics), np.float32)
    return Shortlist(
        axes[asked],
        FoldItems(embeddings.astype(np.float32), nothing, Classifiers(nothing, clicks)),
        Relevance(relevant, is_novel, clicks),
    )


def choose(*shortlists, **kwargs):
    alone = shortlists[0].quality(ENCODER_ALONE)
    return choose_calibration(shortlists, alone, **kwargs)


class TestNovelItems:
    """Whatever pushes the novel item among the first ten pushes the tenth out."""

    gaps = np.linspace(0.02, 0.3, TOPICS)

    def test_of_two_settings_that_tie_the_one_that_finds_novel_items_is_taken(self):
        """The tenth and the novel item are clicked alike: in the overall mean nothing is gained or lost."""
        tied = build(self.gaps, first=10, tenth=3, novel=3)
        hidden = tied.quality(Setting(Calibration(), 0.5))
        shown = tied.quality(Setting(Calibration(exposure=0.32), 0.5))
        assert hidden.mean == shown.mean
        assert (hidden.novel, shown.novel) == (0, 100)
        for cost in (0.0, 0.5):
            found = choose(tied, cost=cost)
            assert found.quality.novel > 90
            assert found.quality.mean == pytest.approx(found.best_mean)
        assert found.alone.novel == 0

    def test_they_are_found_also_where_the_first_steps_show_none(self):
        """The same tie, but the nearest novel item is 0.15 below the tenth: further than any one move lifts it."""
        tied = build(np.linspace(0.15, 0.3, TOPICS), first=10, tenth=3, novel=3)
        shown = tied.quality(Setting(Calibration(exposure=0.32), 0.5))
        assert (shown.novel, shown.mean) == (100, tied.quality(ENCODER_ALONE).mean)
        assert choose(tied).quality.novel > 90

    def test_a_small_loss_is_paid_for_them_and_a_cost_of_0_pays_nothing(self):
        """In four topics, those with the smallest gaps, the tenth item is clicked once more than the novel one."""
        dear = build(self.gaps, first=10, tenth=np.where(np.arange(TOPICS) < 4, 4, 3), novel=3)
        generous, strict = choose(dear), choose(dear, cost=0.0)
        assert 0.3 < strict.quality.mean - generous.quality.mean < 0.5
        assert generous.quality.novel > 90
        assert strict.quality.novel == 0
        assert strict.quality.mean == strict.best_mean == generous.best_mean

    def test_no_more_is_paid_than_the_cost(self):
        """Every topic loses a click: all of them would cost 2.9 points."""
        dear = build(self.gaps, first=10, tenth=4, novel=3)
        for cost in (0.5, 1.5):
            found = choose(dear, cost=cost)
            assert found.best_mean - found.quality.mean <= cost
            assert found.best_mean - found.quality.mean > cost - 0.2
            assert 0 < found.quality.novel < 100

    @pytest.mark.parametrize(
        ("cost", "alone", "expected"),
        [
            (0.5, 10.0, 10.0),  # within the cost
            (0.5, 20.0, 20.0),  # a point instead of half a point, and no more than that
            (0.5, 100.0, 40.0),  # out of reach: four times the cost is the most
            (0.0, 20.0, 0.0),  # nothing is to be given up
        ],
    )
    def test_more_is_paid_where_the_encoder_alone_finds_them_more_often(self, cost, alone, expected):
        """Each step of the exposure brings novel items five points of recall for a quarter of a point of accuracy."""

        def quality(setting):
            steps = max(place(setting)["exposure"], 0)
            return flat(80 - 0.25 * steps, novel=5.0 * steps)

        found = choose_calibration([Landscape(quality)], flat(80, novel=alone), cost=cost)
        assert found.quality.novel == expected

    @pytest.mark.parametrize(
        ("gain", "cost", "expected"),
        [(0.0, 0.5, 0.5), (2.5, 0.5, 1.25), (10.0, 0.5, 2.0), (10.0, 0.0, 0.0), (-10.0, 0.5, 0.5)],
    )
    def test_the_more_is_gained_over_the_encoder_the_more_is_paid(self, gain, cost, expected):
        """Each step of the exposure costs a quarter of a point."""

        def quality(setting):
            steps = max(place(setting)["exposure"], 0)
            return flat(80 - 0.25 * steps, novel=5.0 * steps)

        found = choose_calibration([Landscape(quality)], flat(80 - gain), cost=cost)
        assert found.best_mean - found.quality.mean == pytest.approx(expected)

    def test_the_mean_over_the_folds_decides(self):
        """What novel items cost in one fold is more than what is allowed, in the mean of both it is not."""
        free = build(self.gaps, first=10, tenth=3, novel=3)
        dear = build(self.gaps, first=10, tenth=np.where(np.arange(TOPICS) < 8, 4, 3), novel=3)
        assert choose(dear).quality.novel < 70
        assert choose(free, dear).quality.novel > 90

    def test_accuracy_alone_raises_them_where_they_are_clicked_most(self):
        """It takes an exposure far from where the search begins: 0.45 to the first place and a gap of up to 1.5."""
        found = choose(build(np.linspace(0.0, 1.5, TOPICS), first=3, novel=10, top=2.0), cost=0.0)
        assert found.quality.precision == pytest.approx(100 * 10 / 13)
        assert found.setting.calibration.exposure > 1.4


class TestGiven:
    tied = build(TestNovelItems.gaps, first=10, tenth=3, novel=3)

    @pytest.mark.parametrize("exposure", [0.0, 0.123, -0.4])
    def test_a_given_exposure_is_kept(self, exposure):
        found = choose(self.tied, exposure=exposure)
        assert found.setting.calibration.exposure == exposure
        curve = found.describe_curve()
        assert [point["exposure"] for point in curve if point["chosen"]] == [exposure]

    def test_a_given_strength_is_kept(self):
        assert choose(self.tied, strength=0.77).setting.strength == 0.77

    def test_the_curve_shows_what_each_exposure_gives(self):
        found = choose(self.tied)
        curve = found.describe_curve()
        exposures = [point["exposure"] for point in curve]
        assert exposures == sorted(exposures)
        assert len(set(exposures)) == len(exposures) > 8
        (chosen,) = (point for point in curve if point["chosen"])
        assert chosen["novel R@10"] == found.quality.novel > 90
        assert curve[0]["novel R@10"] < chosen["novel R@10"]
        calibration = found.setting.calibration.model_copy(update={"exposure": exposures[0]})
        expected = self.tied.quality(Setting(calibration, found.setting.strength))
        assert curve[0] == {"exposure": exposures[0], **expected.to_dict(), "chosen": False}
        json.dumps(curve)


class Landscape:
    """A shortlist whose quality is a function of the setting."""

    ages = None

    def __init__(self, quality):
        self.quality = quality


MANY = np.full(7, 10**12)  # pairs, so that a slice by clicks has no error


def flat(mean, novel=0.0, by_clicks=0.0):
    return MixedQuality(mean, mean, novel, 50.0, 0.0, np.full(7, by_clicks), MANY)


def place(setting):
    """Where on its ladder each constant is, in steps."""
    values = {**setting.calibration.model_dump(), "strength": setting.strength}
    values |= dict(zip(BONUSES, setting.calibration.exposure_bonus, strict=True))
    return {
        name: min(ladder, key=lambda step: abs(ladder[step] - values[name]))
        for name, ladder in LADDERS.items()
        if values[name] is not None
    }


class TestLadders:
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("exposure", 1.0),
            ("exposure", -1.0),
            ("novel_scale", 2.5),
            ("novel_scale", 0.4),
            ("own", 20.0),
            ("own", 0.1),
            ("prior_clicks", 5_000.0),
            ("prior_clicks", 0.1),
            ("novelty_prior", 500.0),
            ("novelty_prior", 0.02),
            ("strength", 15.0),
            ("strength", 0.0),
        ],
    )
    def test_a_best_value_far_from_the_start_is_reached(self, name, wanted):
        target = min(LADDERS[name], key=lambda step: abs(LADDERS[name][step] - wanted))
        assert min(LADDERS[name]) <= target <= max(LADDERS[name])
        landscape = Landscape(lambda setting: flat(90 - abs(place(setting)[name] - target)))
        found = choose_calibration([landscape], flat(0), cost=0.0)
        assert place(found.setting)[name] == target
        assert found.best_mean == 90

    def test_every_ladder_reaches_beyond_what_could_be_wanted(self):
        assert max(LADDERS["exposure"].values()) > 2 > -2 > min(LADDERS["exposure"].values())
        assert max(LADDERS["novel_scale"].values()) > 3
        assert min(LADDERS["novel_scale"].values()) < 1 / 3
        assert min(LADDERS["strength"].values()) == 0
        for ladder in LADDERS.values():
            values = [ladder[step] for step in sorted(ladder)]
            assert values == sorted(set(values))

    def test_two_constants_that_only_help_together_move_together(self):
        """Along the diagonal it rises, off it it falls: no constant alone may move."""

        def quality(setting):
            at = place(setting)
            along, across = at["novel_scale"] + at["exposure"], at["novel_scale"] - at["exposure"]
            return flat(50 + min(along, 12) - 10 * abs(across))

        found = choose_calibration([Landscape(quality)], flat(0), cost=0.0)
        assert found.best_mean == 62

    def test_a_thorough_search_finds_a_place_that_no_single_move_leads_to(self):
        """Novel items are found only where novelty ends very slowly and the own classifier counts at once."""

        def quality(setting):
            at = place(setting)
            away = abs(at["novelty_prior"] - 4) + abs(at["own"]) + abs(at["prior_clicks"] + 4)
            return flat(50, novel=60.0 if away <= 1 else 10.0)

        found = {
            thorough: choose_calibration([Landscape(quality)], flat(0), thorough=thorough).quality.novel
            for thorough in (True, False)
        }
        assert found == {True: 60, False: 10}

    def test_a_kick_leads_over_a_valley(self, monkeypatch):
        """A better place lies three to six steps of the exposure away, behind a valley: some kick leads there."""
        monkeypatch.setattr(calibration, "STARTS", ())
        monkeypatch.setattr(calibration, "JUMPS", (-1, 1))
        monkeypatch.setattr(calibration, "KICKS", 40)

        def quality(setting):
            step = place(setting)["exposure"]
            return flat(50, novel=20.0 if 3 <= step <= 6 else 10.0 - abs(step))

        assert choose_calibration([Landscape(quality)], flat(0)).quality.novel == 20
        monkeypatch.setattr(calibration, "KICKS", 0)
        assert choose_calibration([Landscape(quality)], flat(0)).quality.novel == 10

    def test_no_setting_is_measured_twice(self):
        measured = []

        def quality(setting):
            measured.append(setting)
            return flat(90 - abs(place(setting)["own"] - 5))

        found = choose_calibration([Landscape(quality)], flat(0))
        searched = measured[: -len(found.curve)]
        assert len(set(map(repr, searched))) == len(searched)

    def test_an_exposure_of_nothing_is_a_plain_zero(self):
        assert str(LADDERS["exposure"][0]) == "0.0"


def sliced(mean, novel, few):
    """A quality with items of 1 or 2 clicks apart."""
    return MixedQuality(mean, mean, novel, 50.0, 0.0, np.array([0, few, *[40.0] * 5]), MANY)


@pytest.mark.parametrize(("loss", "reached"), [(0.5, max(LADDERS["exposure"])), (2, 4)])
def test_items_with_a_few_clicks_do_not_pay_for_novel_ones(loss, reached):
    """From step 4 on a point of novel R@10 costs less or more of a slice by clicks than it is worth."""

    def quality(setting):
        step = place(setting)["exposure"]
        return sliced(50, 10.0 + step, 40 - max(0, step - 4) * loss / SLICE_WEIGHT)

    found = choose_calibration([Landscape(quality)], sliced(40, 0.0, 40), strength=1.0)
    assert place(found.setting)["exposure"] == reached


class TestPaidForItemsWithAFewClicks:
    """Each step up of `own` costs 0.1 points of accuracy; items with a few clicks are 30 points below the encoder."""

    def choose(self, gain, novel=lambda step: 10.0, cost=0.0):
        def quality(setting):
            step = place(setting)["own"]
            return sliced(50 - 0.1 * abs(step), novel(step), 10 + gain * step)

        return choose_calibration([Landscape(quality)], sliced(40, 0.0, 40), cost=cost)

    @staticmethod
    def worth(times):
        """Points of the slice that are worth so many times the accuracy that a step costs."""
        return 0.1 * times * SLICE_PRICE / SLICE_WEIGHT

    def test_further_accuracy_is_paid_for_them(self):
        found = self.choose(gain=self.worth(2))
        assert found.best_mean - found.quality.mean == pytest.approx(SLICE_COST)

    def test_but_not_for_little(self):
        assert self.choose(gain=self.worth(0.5)).quality.mean == 50

    def test_not_for_novel_items(self):
        found = self.choose(gain=self.worth(0.5), novel=lambda step: 10.0 + 5 * step)
        assert found.quality.mean == 50

    def test_not_at_the_expense_of_novel_items(self):
        found = self.choose(gain=self.worth(2), novel=lambda step: 30.0 - 3 * step)
        assert found.quality.mean == 50

    def test_the_exposure_is_shifted_to_them_where_that_costs_nothing(self):
        """Only a bonus for items with one or two clicks lifts their slice; three steps are enough."""

        def quality(setting):
            return sliced(50, 10.0, 37 + min(place(setting)[BONUSES[0]], 3))

        found = choose_calibration([Landscape(quality)], sliced(40, 0.0, 40))
        first, *others = found.setting.calibration.exposure_bonus
        assert found.quality.by_clicks[1] == 40
        assert first >= 0.3
        assert others == [0, 0, 0, 0]
        quick = choose_calibration([Landscape(quality)], sliced(40, 0.0, 40), thorough=False)
        assert quick.setting.calibration.exposure_bonus == (0, 0, 0, 0, 0)

    def test_novel_items_are_not_given_up_where_the_bonus_helps(self):
        """With more exposure novel items gain a point a step; from step 5 on a slice loses more than that, which one
        step of a bonus gives back. Step 4 is fair without it, but far from the best."""

        def quality(setting):
            steps = place(setting)
            lost = 13 if steps["exposure"] > 4 and steps[BONUSES[0]] < 1 else 0
            return sliced(50, 10.0 + steps["exposure"], 40 - lost)

        found = choose_calibration([Landscape(quality)], sliced(40, 0.0, 40), strength=1.0)
        assert found.quality.by_clicks[1] == 40
        assert place(found.setting)["exposure"] == max(LADDERS["exposure"])

    def test_and_not_where_they_are_found_as_often_as_by_the_encoder(self):
        def quality(setting):
            step = place(setting)["own"]
            return sliced(50 - 0.1 * abs(step), 10.0, 40 + 5 * step)

        assert choose_calibration([Landscape(quality)], sliced(40, 0.0, 40), cost=0.0).quality.mean == 50


class TestTwoSearchesAreComparedByTheObjective:
    """The search with one exposure for all queries against the search with an exposure that follows the query."""

    @staticmethod
    def choice(mean, novel, few):
        alone = sliced(40, 0.0, 40)
        return CalibrationChoice(Setting(Calibration(), 1.0), sliced(mean, novel, few), mean, alone, [])

    def test_novel_items_do_not_outweigh_items_with_a_few_clicks(self):
        lost = 2.0
        gained = SLICE_WEIGHT * lost
        fair = self.choice(50, 20, 40)
        assert self.choice(50, 20 + gained - 0.1, 40 - lost).worth < fair.worth
        assert self.choice(50, 20 + gained + 0.1, 40 - lost).worth > fair.worth

    def test_overall_accuracy_counts(self):
        assert self.choice(51, 20, 40).worth == pytest.approx(self.choice(50, 20, 40).worth + SLICE_PRICE)

    def test_a_difference_within_the_noise_decides_nothing(self):
        first, second = self.choice(50, 20, 40), self.choice(50, 20 + 0.9 * WORTH_NOISE, 40)
        assert not second.is_clearly_better_than(first)
        assert not first.is_clearly_better_than(second)
        assert self.choice(50, 20 + 1.1 * WORTH_NOISE, 40).is_clearly_better_than(first)


def test_a_kick_moves_three_constants_by_one_to_four_steps_up_or_down():
    names = ["own", "prior_clicks", "novel_scale", "exposure", "strength"]
    steps = dict.fromkeys(LADDERS, 0)
    random = np.random.default_rng(0)
    moves = []
    for _ in range(200):
        kicked = calibration._Search._kicked(steps, names, random)
        moved = {name: kicked[name] for name in names if kicked[name]}
        assert len(moved) == 3
        assert all(kicked[name] == 0 for name in LADDERS if name not in names)
        moves += moved.values()
    assert set(moves) == {-4, -3, -2, -1, 1, 2, 3, 4}
    few = calibration._Search._kicked(steps, ["own"], random)
    assert 1 <= abs(few["own"]) <= 4
    at_the_top = calibration._Search._kicked(
        {**steps, "own": max(LADDERS["own"])}, ["own"], np.random.default_rng(1)
    )
    assert at_the_top["own"] <= max(LADDERS["own"])
