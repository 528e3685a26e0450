"""The bounds' terms for every row of a study, to lay beside the measured gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from metaxc.research.theory import rademacher
from metaxc.research.theory.plan import Row, Setting, Study


@dataclass(frozen=True)
class Measured:
    """A setting in the mean over its seeds, with the half width of a 95 % interval of its gap.

    Args:
        name: What differs from the base.
        kind: Which of the settings' fields differs.
        setting: Itself.
        train_risk: On the pairs trained on.
        new_risk: On held-out pairs.
        gap: The second less the first.
        half: Of the gap's interval.
        recall: R@10 among held-out items, percent.
        published: The published complexity term.
        derived: The derived one.
    """

    name: str
    kind: str
    setting: Setting
    train_risk: float
    new_risk: float
    gap: float
    half: float
    recall: float
    published: float
    derived: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def published(row: Row, study: Study) -> float:
    """The lemma's term where classifiers are frozen, the corollary's (as proved, √(L / N)) where not."""
    setting, norms = row.setting, row.norms
    if setting.frozen:
        return rademacher.frozen_stated(norms["B"], norms["M"], study.dim, setting.neighbours)
    return rademacher.trainable_proof(
        norms["B"], norms["W"], norms["M"], study.dim, setting.neighbours, setting.items, study.queries
    )


def derived(row: Row, study: Study) -> float:
    """Over n = min(N, L) pairs that share nothing: B · V · ‖M‖_F / √n where classifiers are frozen; B · V · ‖M‖₂, for
    every item by itself, where not."""
    setting, norms = row.setting, row.norms
    if setting.frozen:
        return rademacher.fixed_mixing(norms["B"], norms["MF·V"], 1.0, min(study.queries, setting.items))
    return rademacher.free_vectors(norms["B"], norms["M·V"], 1)


def measured(rows: Sequence[Row], study: Study) -> list[Measured]:
    """Every setting once, the base first."""
    base = rows[0].setting
    found = []
    for setting in dict.fromkeys(row.setting for row in rows):
        those = [row for row in rows if row.setting == setting]
        kind, name = named(setting, base)
        gaps = [row.gap for row in those]
        half = float("nan")
        if len(gaps) > 1:
            half = float(stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / sqrt(len(gaps)))

        def mean(of: Callable[[Row], float], those: Sequence[Row] = those) -> float:
            return float(np.mean([of(row) for row in those]))

        found.append(
            Measured(
                name,
                kind,
                setting,
                mean(lambda row: row.train_risk),
                mean(lambda row: row.new_risk),
                mean(lambda row: row.gap),
                half,
                mean(lambda row: row.recall),
                mean(lambda row: published(row, study)),
                mean(lambda row: derived(row, study)),
            )
        )
    return found


def named(setting: Setting, base: Setting) -> tuple[str, str]:
    """Which field of a setting differs from the base, and the setting in words."""
    if setting.neighbours != base.neighbours:
        return "K", f"K = {setting.neighbours}"
    if setting.depth != base.depth:
        return "depth", f"depth {setting.depth}"
    if setting.items != base.items:
        return "items", f"{setting.items:,} items"
    if not setting.frozen:
        return "classifiers", "trained classifiers"
    if setting.sample != base.sample:
        drawn = setting.sample == "paired, drawn"
        return "sample", "one random pair per query" if drawn else "one click, one other pair"
    return "base", f"base: K = {base.neighbours}, {base.items:,} items"


def agreement(settings: Sequence[Measured], form: str) -> float:
    """Rank correlation of the gap with the `published` or `derived` term, over settings trained one-vs-all."""
    those = [one for one in settings if one.setting.sample == "one-vs-all"]
    return float(stats.spearmanr([getattr(one, form) for one in those], [one.gap for one in those]).statistic)
