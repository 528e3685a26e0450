"""How items with many, few and no clicks rank together: the search for the constants of the item vector.

The objective: the best mean of overall P@1 and R@10; then, of all settings within a given cost of it, the one under
which novel items are found best among all others. Most of that is free: many settings tie in the mean, and among these
novel items may vanish or be found (docs/decisions.md). The more the model gains over its encoder alone, the more of it
may be spent (`GAIN_SHARE`). Where novel items would still be found less often than by the encoder alone, more is given
up, just enough that they are not. What novel items gain must not be taken from items with
a few clicks: where a slice of items by clicks is found less often than by the encoder alone, that counts against a
setting more than what novel items gain, and where it remains so, a little more accuracy is paid for these items alone.

Every constant moves on a long ladder of values, up or down while that helps, so that no choice ends at the edge of a
grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import copysign
from typing import Any

import numpy as np

from metaxc.emmett import Calibration
from metaxc.emmett.scoring import BONUS_CLICKS
from metaxc.tuning.qualities import MixedQuality, mean_mixed_quality
from metaxc.tuning.shortlists import LEAST_AGE, Setting, Shortlist

COST = 0.5
"""Points of overall accuracy (mean of P@1 and R@10) that may be given up so that novel items are found."""

GAIN_SHARE = 0.6
"""How much larger the cost may be for each point of overall accuracy that the best setting gains over the encoder
alone: half a point becomes half a point and three tenths of the gain, of which seven tenths stay. Where much is gained
half a point buys few novel items; where little is, hardly more is spent (docs/decisions.md)."""

MOST_TIMES = 4.0
"""How many times the cost may be spent at most: two points of half a point. On small data a model may gain twenty
points over its encoder, and a third of that is more overall accuracy than anybody would give."""

NOVEL_FLOOR = 3.0
"""Times the cost that may be given up in addition so that novel items are found as often as by the encoder alone."""

SLICE_WEIGHT = 3.0
"""Points of novel R@10 that are given up for one point that a slice of items by clicks is below the encoder alone. With
a weight of 1 slices were below it on folds that the constants were not chosen on (docs/decisions.md)."""

SLICE_COST = 1.0
"""Further points of overall accuracy that may be given up for slices that are below the encoder alone."""

SLICE_PRICE = 8.0
"""Points of novel R@10 that one of these further points is worth."""

WORTH_NOISE = 1.0
"""Points of novel R@10 by which one search must be worth more than another to count as better. The standard error
of novel R@10 on three folds is 0.7 to 1.1 points (books, icd10cm, wordnet, debian_related)."""

JUMPS = (-8, -3, -1, 1, 3, 8)
"""Steps on a ladder that are tried at once: large ones cross a plateau on which novel items stay hidden, small ones
refine what was found."""

Steps = dict[str, int]
"""The place of each constant on its ladder."""

STARTS: tuple[Steps, ...] = tuple(
    {"novelty_prior": novelty, **own} for novelty in (0, 4) for own in ({}, {"own": 0, "prior_clicks": -4})
)
"""Steps from which the search for novel items starts too: novelty that ends slowly (3 clicks) and very slowly (27),
each with the own classifier as it is and with one that counts from the first clicks on (prior 3.3). The mean hardly
depends on these, so the first climb may have led them anywhere."""

MOST_ROUNDS = 8

KICKS = 6
"""How often a thorough search leaves the place that it has reached, by random steps of several constants, and climbs
again. On the folds of icd10cm six were enough, and twelve more brought nothing."""

CURVE_STEPS = range(-6, 9)


BONUSES = tuple(f"bonus at {clicks:g} clicks" for clicks in BONUS_CLICKS[1:-1])
"""The places of `Calibration.exposure_bonus`. They are 0 until items with a few clicks are found less often than by the
encoder alone: then they shift the exposure between items with many and with few clicks."""


FRESHNESS = "freshness_days"
"""Chosen where the folds know when items were clicked."""

FRESH_EXPOSURE = 0.2
"""Where the search starts if exposure follows freshness: without an exposure, freshness changes nothing."""


def _ladder(start: float, factor: float, least: int = -12, most: int = 12) -> dict[int, float]:
    return {step: start * factor**step for step in range(least, most + 1)}


LADDERS: dict[str, dict[int, float]] = {
    "own": _ladder(1.5, 1.3),
    "prior_clicks": _ladder(30.0, 3**0.5),
    "novelty_prior": _ladder(3.0, 3**0.5, least=0),
    "novel_scale": _ladder(1.0, 1.1),
    "exposure": {step: copysign(0.04 * (1.35 ** abs(step) - 1), step) for step in range(-16, 17)},
    "strength": {-9: 0.0, **_ladder(1.0, 1.4, -8, 9)},
    FRESHNESS: _ladder(365.0, 2**0.5, -48, 16),
    **{name: {step: step / 10 for step in range(-10, 11)} for name in BONUSES},
}
"""The values of each constant, by step; they reach from negligible to overwhelming. Only the novelty has a bound: with
a prior of at least 3 an item keeps three quarters of it at its first click and half of it at its third, so that novel
items do not take the places of those with a few clicks (docs/decisions.md)."""

PAIRS = (
    ("own", "prior_clicks"),
    ("novel_scale", "exposure"),
    ("novelty_prior", "exposure"),
    ("strength", "novel_scale"),
    ("strength", "exposure"),
    (FRESHNESS, "exposure"),
)
"""Constants that can replace each other in part, so that moving one alone does not help."""


Value = Callable[[MixedQuality], tuple[float, ...]]
"""What a search climbs by; the first figure counts most."""


@dataclass(frozen=True)
class CalibrationChoice:
    """The chosen setting, how well it ranks the folds, and what other exposures would give.

    Args:
        setting: The constants.
        quality: In the mean over the folds.
        best_mean: The best overall mean of P@1 and R@10, which `cost` is counted from.
        alone: The quality of the encoder alone.
        curve: The quality by exposure, everything else as chosen.
    """

    setting: Setting
    quality: MixedQuality
    best_mean: float
    alone: MixedQuality
    curve: list[tuple[float, MixedQuality]]

    @property
    def worth(self) -> float:
        """What two searches are compared by: novel R@10, what slices lack and overall accuracy, at the same exchange
        rates as within a search."""
        lacking = self.quality.shortfall(self.alone)
        return self.quality.novel - SLICE_WEIGHT * lacking + SLICE_PRICE * self.quality.mean

    def is_clearly_better_than(self, other: CalibrationChoice) -> bool:
        """Whether it is worth more than another search by more than noise."""
        return self.worth > other.worth + WORTH_NOISE

    def describe_curve(self) -> list[dict[str, Any]]:
        """The curve as plain Python for JSON."""
        chosen = self.setting.calibration.exposure
        return [
            {"exposure": exposure, **found.to_dict(), "chosen": exposure == chosen}
            for exposure, found in self.curve
        ]


def choose_calibration(
    shortlists: Sequence[Shortlist],
    alone: MixedQuality,
    *,
    start: Setting | None = None,
    strength: float | None = None,
    exposure: float | None = None,
    cost: float = COST,
    gain_share: float | None = None,
    thorough: bool = True,
) -> CalibrationChoice:
    """Choose the constants by the objective above, in the mean over the folds.

    Args:
        shortlists: One per fold.
        alone: The quality of the encoder alone.
        start: Where the search begins; the defaults when None.
        strength: The strength of the neighbours, where it is given and not to be chosen.
        exposure: The exposure, where it is given and not to be chosen.
        cost: Points of overall accuracy that may be given up for novel items.
        gain_share: How much larger that may be for each point that is gained over the encoder alone; `GAIN_SHARE` when
            None.
        thorough: Search from several starts, to take the result; otherwise from one, to compare generators or encoders.
    """
    fixed = {
        name: value for name, value in (("strength", strength), ("exposure", exposure)) if value is not None
    }
    search = _Search(shortlists, fixed)
    first = start or Setting(Calibration(), 0.5)
    if search.knows_ages and first.calibration.freshness_days is None:
        usual = float(np.mean([np.median(one.ages) for one in shortlists if one.ages is not None]))
        fresh = {"freshness_days": max(usual, LEAST_AGE), "exposure": FRESH_EXPOSURE}
        first = Setting(first.calibration.model_copy(update=fresh), first.strength)
    best = search.climb(_nearest_steps(first), lambda found: (found.mean,))
    most = search.quality(best).mean
    share = GAIN_SHARE if gain_share is None else gain_share
    enough = most - cost * min(1 + share * max(most - alone.mean, 0.0), MOST_TIMES)

    def novel_first(found: MixedQuality) -> tuple[float, ...]:
        if found.mean < enough:
            return 0.0, found.mean, 0.0
        return 1.0, found.novel, found.harmonic_mean, found.mean

    chosen = search.climb(best, novel_first)
    if thorough:
        chosen = search.climb_on([best | steps for steps in STARTS], novel_first)
    if search.quality(chosen).novel < alone.novel:
        least = enough - NOVEL_FLOOR * cost

        def as_often_as_alone(found: MixedQuality) -> tuple[float, ...]:
            if found.mean < least:
                return 0.0, found.mean, 0.0
            return 1.0, min(found.novel, alone.novel), found.mean

        chosen = search.climb(search.best_known(as_often_as_alone), as_often_as_alone)
    most_novel, spent = search.quality(chosen).novel, min(enough, search.quality(chosen).mean)

    def few_clicks_too(weight: float) -> Value:
        def value(found: MixedQuality) -> tuple[float, ...]:
            overspent = max(spent - found.mean, 0.0)
            if overspent > SLICE_COST:
                return 0.0, found.mean, 0.0
            value = min(found.novel, most_novel) - weight * found.shortfall(alone)
            return 1.0, value - SLICE_PRICE * overspent, found.harmonic_mean

        return value

    if search.quality(chosen).shortfall(alone):
        names = (*search.names, *BONUSES) if thorough else search.names
        for weight in (
            1.0,
            SLICE_WEIGHT,
        ):  # by and by: at once, the search gives up more of novel R@10 than needed
            value = few_clicks_too(weight)
            starts = search.climb(search.best_known(value), value), chosen
            reached = [search.climb(start, value, names=names) for start in starts]
            chosen = max(reached, key=lambda steps: value(search.quality(steps)))
    return CalibrationChoice(
        search.setting(chosen),
        search.quality(chosen),
        search.quality(best).mean,
        alone,
        search.exposure_curve(chosen),
    )


def _nearest_steps(setting: Setting) -> Steps:
    values = {**setting.calibration.model_dump(), "strength": setting.strength}
    values |= dict(zip(BONUSES, setting.calibration.exposure_bonus, strict=True))
    values[FRESHNESS] = values[FRESHNESS] or LADDERS[FRESHNESS][0]
    return {
        name: min(ladder, key=lambda step: abs(ladder[step] - values[name]))
        for name, ladder in LADDERS.items()
    }


class _Search:
    """Compares settings on shortlists, each once."""

    def __init__(self, shortlists: Sequence[Shortlist], fixed: dict[str, float]):
        self.shortlists, self.fixed = shortlists, fixed
        self.knows_ages = all(one.ages is not None for one in shortlists)
        left_out = {*fixed, *BONUSES, *(() if self.knows_ages else (FRESHNESS,))}
        self.names = [name for name in LADDERS if name not in left_out]
        self.keys = [*self.names, *BONUSES]
        self.known: dict[tuple[int, ...], MixedQuality] = {}

    def setting(self, steps: Steps) -> Setting:
        values = {name: LADDERS[name][step] for name, step in steps.items()} | self.fixed
        strength = values.pop("strength")
        if not self.knows_ages:
            values.pop(FRESHNESS, None)
        bonus = tuple(values.pop(name) for name in BONUSES)
        return Setting(Calibration.model_validate({**values, "exposure_bonus": bonus}), strength)

    def quality(self, steps: Steps) -> MixedQuality:
        key = tuple(steps[name] for name in self.keys)
        if key not in self.known:
            self.known[key] = self._measure(self.setting(steps))
        return self.known[key]

    def _measure(self, setting: Setting) -> MixedQuality:
        return mean_mixed_quality([one.quality(setting) for one in self.shortlists])

    def best_known(self, value: Value) -> Steps:
        """The best of all steps that were ever compared."""
        key, _ = max(self.known.items(), key=lambda known: value(known[1]))
        return dict(zip(self.keys, key, strict=True))

    def climb_on(self, starts: Sequence[Steps], value: Value, names: Sequence[str] | None = None) -> Steps:
        """Iterated local search: the best place that is reached from what is known, from `starts`, and after kicks."""
        names = self.names if names is None else names
        for start in starts:
            self.climb(start, value, rounds=2, names=names)
        best = self.climb(self.best_known(value), value, names=names)
        rng = np.random.default_rng(0)
        for _ in range(KICKS):
            reached = self.climb(self._kicked(best, names, rng), value, rounds=1, names=names)
            if value(self.quality(reached)) > value(self.quality(best)):
                best = self.climb(reached, value, names=names)
        return best

    @staticmethod
    def _kicked(steps: Steps, names: Sequence[str], rng: np.random.Generator) -> Steps:
        """Three of the constants, one to four steps away."""
        kicked = dict(steps)
        for name in rng.choice(names, min(3, len(names)), replace=False):
            jump = int(rng.integers(1, 5)) * (1 if rng.random() < 0.5 else -1)
            kicked[name] = min(max(steps[name] + jump, min(LADDERS[name])), max(LADDERS[name]))
        return kicked

    def climb(
        self, steps: Steps, value: Value, rounds: int = MOST_ROUNDS, names: Sequence[str] | None = None
    ) -> Steps:
        """The steps at which no move is better; one constant at a time, of all or of `names`, then pairs of them."""
        best, reached = steps, value(self.quality(steps))
        for _ in range(rounds):
            before = reached
            for moves in (*self._single_moves(self.names if names is None else names), *self._pair_moves()):
                for move in moves:
                    candidate = self._moved(best, move)
                    if candidate is not None and (found := value(self.quality(candidate))) > reached:
                        best, reached = candidate, found
            if reached == before:
                break
        return best

    @staticmethod
    def _single_moves(names: Sequence[str]) -> Iterator[list[Steps]]:
        for name in names:
            yield [{name: jump} for jump in JUMPS]

    def _pair_moves(self) -> Iterator[list[Steps]]:
        for first, second in PAIRS:
            if first in self.names and second in self.names:
                yield [{first: one, second: two} for one, two in product((-1, 1), repeat=2)]

    @staticmethod
    def _moved(steps: Steps, move: Steps) -> Steps | None:
        moved = steps | {name: steps[name] + jump for name, jump in move.items()}
        return moved if all(moved[name] in LADDERS[name] for name in move) else None

    def exposure_curve(self, steps: Steps) -> list[tuple[float, MixedQuality]]:
        """The quality by exposure around the chosen one, which is among them."""
        chosen = self.setting(steps)
        ladder = LADDERS["exposure"]
        nearest = min(ladder, key=lambda step: abs(ladder[step] - chosen.calibration.exposure))
        others = [nearest + jump for jump in CURVE_STEPS if jump]
        exposures = [chosen.calibration.exposure, *(ladder[step] for step in others if step in ladder)]
        points = []
        for exposure in sorted(exposures):
            calibration = chosen.calibration.model_copy(update={"exposure": exposure})
            points.append((exposure, self._measure(Setting(calibration, chosen.strength))))
        return points
