"""What the study says about the paper's four conclusions, by a criterion fixed beforehand.

Each conclusion predicts which of two settings has the smaller gap and the smaller held-out risk. Both are compared
seed by seed; of the differences a 95 % interval is made (Student's t). A measure is *for* the conclusion when its
interval lies wholly on the predicted side, *against* when wholly on the other.

    supported       one measure at least is for it, none against
    not supported   one measure at least is against it
    no difference   neither

"A small K is enough" predicts that nothing is lost: it is supported when the held-out risk with the largest K is, at
the far end of the interval, less than 2 % below that with K = 3; not supported when it is lower by more at the near
end; otherwise no difference is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy import stats

from metaxc.research.theory.plan import Row, Setting

MARGIN = 0.02


@dataclass(frozen=True)
class Difference:
    """Of a measure between two settings, over seeds: mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True)
class Verdict:
    """On one conclusion.

    Args:
        conclusion: In words.
        compared: Which settings, the one predicted to be better first.
        gap: Difference of the gaps; negative is as predicted.
        risk: Difference of the held-out risks; negative is as predicted.
        recall: Difference of R@10 among held-out items, in points; positive is better.
        word: supported, not supported or no difference.
    """

    conclusion: str
    compared: str
    gap: Difference
    risk: Difference
    recall: Difference
    word: str


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The four, from the rows of a study."""
    base = rows[0].setting
    ks = {row.setting.neighbours for row in rows}
    few = min(row.setting.items for row in rows)
    largest = replace(base, neighbours=max(ks))
    return [
        _judged(
            rows, "One-vs-all training helps", base, replace(base, sample="paired"),
            f"all pairs against one click and one other pair per query, {base.items:,} items",
        ),
        _judged(
            rows, "Freezing the classifiers helps", base, replace(base, frozen=False), "frozen against trained along"
        ),
        _small_k(rows, base, largest),
        _judged(
            rows, "More observed items help", base, replace(base, items=few),
            f"{base.items:,} observed items against {few:,}",
        ),
    ]  # fmt: skip


def _judged(rows: Sequence[Row], conclusion: str, better: Setting, worse: Setting, compared: str) -> Verdict:
    gap, risk, recall = _differences(rows, better, worse)
    return Verdict(conclusion, compared, gap, risk, recall, word_of(gap, risk))


def word_of(*measures: Difference) -> str:
    """Of measures that are negative when the conclusion is right."""
    if any(one.low > 0 for one in measures):
        return "not supported"
    return "supported" if any(one.high < 0 for one in measures) else "no difference"


def _small_k(rows: Sequence[Row], base: Setting, largest: Setting) -> Verdict:
    gap, risk, recall = _differences(rows, base, largest)
    mean = float(np.mean([row.new_risk for row in rows if row.setting == base]))
    compared = f"K = {base.neighbours} against K = {largest.neighbours}"
    return Verdict("A small K is enough", compared, gap, risk, recall, enough(risk, MARGIN * mean))


def enough(risk: Difference, margin: float) -> str:
    """Whether nothing is lost, from the held-out risk with less minus that with more."""
    if risk.high < margin:
        return "supported"
    return "not supported" if risk.low > margin else "no difference"


def _differences(
    rows: Sequence[Row], first: Setting, second: Setting
) -> tuple[Difference, Difference, Difference]:
    measures: tuple[Callable[[Row], float], ...] = (
        lambda row: row.gap,
        lambda row: row.new_risk,
        lambda row: row.recall,
    )
    gap, risk, recall = (difference(rows, first, second, measure) for measure in measures)
    return gap, risk, recall


def difference(
    rows: Sequence[Row], first: Setting, second: Setting, measure: Callable[[Row], float]
) -> Difference:
    """First less second, seed by seed."""
    by_seed = {(row.setting, row.seed): measure(row) for row in rows}
    seeds = [seed for setting, seed in by_seed if setting == first and (second, seed) in by_seed]
    found = np.array([by_seed[first, seed] - by_seed[second, seed] for seed in seeds])
    mean = float(found.mean())
    if len(found) < 2:
        return Difference(mean, -np.inf, np.inf)
    half = float(stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / sqrt(len(found)))
    return Difference(mean, mean - half, mean + half)
