"""The results of the theory study: means with the terms of the bounds, verdicts, and the result file.

Each of the paper's four conclusions predicts which of two settings has the smaller gap and the smaller held-out risk.
Both are compared seed by seed, with a 95 % interval of the differences (Student's t). The criterion was fixed before
the run:

    supported       the interval of at least one measure lies entirely on the predicted side, none entirely on the other
    not supported   the interval of at least one measure lies entirely on the other side
    no difference   otherwise

"A small K is enough" predicts that nothing is lost. It is supported when the upper end of the interval of "held-out
risk with K = 3 minus that with the largest K" is less than 2 % of the risk, not supported when the lower end is more
than that, and otherwise no difference is shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from metaxc.arrays import Doubles
from metaxc.artifacts import write_atomically
from metaxc.errors import DataError
from metaxc.research.theory import bounds
from metaxc.research.theory.study import Setting, Study, StudyRow

MARGIN = 0.02
"""A small K is enough when it loses less than this share of the held-out risk."""


@dataclass(frozen=True)
class SettingSummary:
    """The means of a setting over its seeds.

    Args:
        name: What differs from the base setting, in words.
        kind: Which field differs.
        setting: The setting itself.
        train_risk: Risk on the training pairs.
        new_risk: Risk on held-out pairs.
        gap: Held-out risk minus training risk.
        half: Half the width of the gap's 95 % interval.
        recall: R@10 among held-out items, percent.
        published: The published complexity term.
        derived: The derived complexity term.
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
        """The summary as JSON; the interval of a single seed is null."""
        return {**asdict(self), "half": None if isnan(self.half) else self.half}


def published_term(row: StudyRow, study: Study) -> float:
    """The lemma's term for frozen classifiers, the corollary's (as proved, √(L / N)) for trained ones."""
    setting, norms = row.setting, row.norms
    if setting.frozen:
        return bounds.stated_frozen_complexity(norms["B"], norms["M"], study.dim, setting.neighbours)
    return bounds.proof_trainable_complexity(
        norms["B"], norms["W"], norms["M"], study.dim, setting.neighbours, setting.items, study.queries
    )


def derived_term(row: StudyRow, study: Study) -> float:
    """Over n = min(N, L) pairs that share nothing: B · V · ‖M‖_F / √n for frozen classifiers, and B · V · ‖M‖₂ for
    trained ones, where every item has a vector of its own."""
    setting, norms = row.setting, row.norms
    if setting.frozen:
        pairs = min(study.queries, setting.items)
        return bounds.fixed_mixing_complexity(norms["B"], norms["MF·V"], 1.0, pairs)
    return bounds.free_vectors_complexity(norms["B"], norms["M·V"], 1)


def summarise_settings(rows: Sequence[StudyRow], study: Study) -> list[SettingSummary]:
    """The means of every setting, the base setting first."""
    base = rows[0].setting
    summaries = []
    for setting in dict.fromkeys(row.setting for row in rows):
        same = [row for row in rows if row.setting == setting]

        def mean(measure: Callable[[StudyRow], float], same: Sequence[StudyRow] = same) -> float:
            return float(np.mean([measure(row) for row in same]))

        gaps = np.array([row.gap for row in same])
        kind, name = describe_setting(setting, base)
        summaries.append(
            SettingSummary(
                name,
                kind,
                setting,
                mean(lambda row: row.train_risk),
                mean(lambda row: row.new_risk),
                mean(lambda row: row.gap),
                _half_width(gaps) if len(gaps) > 1 else float("nan"),
                mean(lambda row: row.recall),
                mean(lambda row: published_term(row, study)),
                mean(lambda row: derived_term(row, study)),
            )
        )
    return summaries


def describe_setting(setting: Setting, base: Setting) -> tuple[str, str]:
    """Which field of a setting differs from the base setting, and the setting in words."""
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


def rank_correlation(summaries: Sequence[SettingSummary], form: str) -> float:
    """Rank correlation of the gap with the `published` or `derived` term, over the settings trained one-vs-all."""
    chosen = [summary for summary in summaries if summary.setting.sample == "one-vs-all"]
    terms, gaps = [getattr(summary, form) for summary in chosen], [summary.gap for summary in chosen]
    return float(stats.spearmanr(terms, gaps).statistic)


@dataclass(frozen=True)
class Difference:
    """The difference of a measure between two settings over seeds: its mean and 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one conclusion.

    Args:
        conclusion: The conclusion in words.
        compared: The two settings, the one predicted to be better first.
        gap: Difference of the gaps; negative as predicted.
        risk: Difference of the held-out risks; negative as predicted.
        recall: Difference of R@10 among held-out items, in points; positive is better.
        word: supported, not supported or no difference.
    """

    conclusion: str
    compared: str
    gap: Difference
    risk: Difference
    recall: Difference
    word: str


def reach_verdicts(rows: Sequence[StudyRow]) -> list[Verdict]:
    """The verdicts on the paper's four conclusions."""
    base = rows[0].setting
    largest = replace(base, neighbours=max(row.setting.neighbours for row in rows))
    fewest = replace(base, items=min(row.setting.items for row in rows))
    margin = MARGIN * float(np.mean([row.new_risk for row in rows if row.setting == base]))

    def verdict(
        conclusion: str,
        compared: str,
        other: Setting,
        decide: Callable[[Difference, Difference], str] = decide_improvement,
    ) -> Verdict:
        gap = difference(rows, base, other, lambda row: row.gap)
        risk = difference(rows, base, other, lambda row: row.new_risk)
        recall = difference(rows, base, other, lambda row: row.recall)
        return Verdict(conclusion, compared, gap, risk, recall, decide(gap, risk))

    return [
        verdict(
            "One-vs-all training helps",
            f"all pairs against one click and one other pair per query, {base.items:,} items",
            replace(base, sample="paired"),
        ),
        verdict(
            "Freezing the classifiers helps",
            "frozen classifiers against trained ones",
            replace(base, frozen=False),
        ),
        verdict(
            "A small K is enough",
            f"K = {base.neighbours} against K = {largest.neighbours}",
            largest,
            lambda gap, risk: decide_no_loss(risk, margin),
        ),
        verdict(
            "More observed items help",
            f"{base.items:,} observed items against {fewest.items:,}",
            fewest,
        ),
    ]


def decide_improvement(*measures: Difference) -> str:
    """The verdict from differences that are negative when the conclusion is right."""
    if any(measure.low > 0 for measure in measures):
        return "not supported"
    return "supported" if any(measure.high < 0 for measure in measures) else "no difference"


def decide_no_loss(risk: Difference, margin: float) -> str:
    """The verdict on "nothing is lost", from the held-out risk with less minus that with more."""
    if risk.high < margin:
        return "supported"
    return "not supported" if risk.low > margin else "no difference"


def difference(
    rows: Sequence[StudyRow], first: Setting, second: Setting, measure: Callable[[StudyRow], float]
) -> Difference:
    """First minus second, over the seeds that both have."""
    by_seed = {(row.setting, row.seed): measure(row) for row in rows}
    seeds = [seed for setting, seed in by_seed if setting == first and (second, seed) in by_seed]
    values = np.array([by_seed[first, seed] - by_seed[second, seed] for seed in seeds])
    mean = float(values.mean())
    half = _half_width(values) if len(values) > 1 else np.inf
    return Difference(mean, mean - half, mean + half)


def _half_width(values: Doubles) -> float:
    """Half the width of the 95 % interval of a mean (Student's t)."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / sqrt(len(values)))


def write_study(
    file: Path,
    about: dict[str, Any],
    study: Study,
    rows: Sequence[StudyRow],
    origin: dict[str, Any] | None = None,
) -> None:
    """Write the rows so far; the verdicts are added once every setting has two seeds.

    Args:
        file: The JSON file.
        about: The data set, its fingerprint and the encoder's.
        study: The parameters of the study.
        rows: The rows so far.
        origin: The commit and the command, where they are known.
    """
    summaries = summarise_settings(rows, study)
    result = {**about, **(origin or {}), "study": asdict(study), "rows": [row.to_dict() for row in rows]}
    result["settings"] = [summary.to_dict() for summary in summaries]
    if len(rows) >= 2 * len(study.settings()):
        result["rank correlation of the gap"] = {
            form: round(rank_correlation(summaries, form), 3) for form in ("published", "derived")
        }
        result["verdicts"] = [asdict(verdict) for verdict in reach_verdicts(rows)]
    write_atomically(file, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def read_study(file: Path, about: dict[str, Any], study: Study) -> list[StudyRow]:
    """The rows of an earlier run, which may have had fewer or more seeds; empty when there is no file."""
    if not file.exists():
        return []
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        older = {"generator": "transformer"}  # files from before there was a choice
        same = {**older, **result["study"], "seeds": study.seeds} == json.loads(json.dumps(asdict(study)))
        same = same and all(result[name] == value for name, value in about.items())
        rows = [StudyRow.from_dict(row) for row in result["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("The result file cannot be read", got=f"{file}: {error}", fix="remove it") from error
    if not same:
        raise DataError(
            "The result file belongs to another study",
            got=str(file),
            expected="the same data set, encoder and settings",
            fix="choose another --out, or remove the file",
        )
    return [row for row in rows if row.seed < study.seeds]
