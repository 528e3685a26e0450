"""The table a reader sees first: every system, both settings, and whether the differences are real.

Many comparisons stand in one table, so p-values are corrected for their number (Holm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.evaluation.intervals import paired_bootstrap
from metaxc.evaluation.protocol import SETTINGS
from metaxc.research.report.systems import BARE, MODEL, Number, System

SHOWN = ("P@1", "P@5", "R@10", "R@100", "nDCG@10", "PSP@1")
LEVEL = 0.05
RESAMPLES = 10_000

_SETTING = {"zero_shot": "zero-shot", "generalized": "generalized"}


@dataclass(frozen=True)
class Comparison:
    """The model against another system on one metric.

    Args:
        gain: Model minus the other, points of percent.
        p: Of "no difference": paired bootstrap over queries, corrected for the number of comparisons.
    """

    gain: float
    p: float

    @property
    def verdict(self) -> str:
        """ "better", "worse" or "same": what the model is, as far as the queries can tell."""
        if self.p >= LEVEL or self.gain == 0:
            return "same"
        return "better" if self.gain > 0 else "worse"

    @property
    def p_words(self) -> str:
        return "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"


@dataclass(frozen=True)
class HeadlineRow:
    """One system: its numbers by metric, and the model's comparison with it (empty for the model itself)."""

    key: str
    name: str
    numbers: Mapping[str, Number]
    against: Mapping[str, Comparison]


@dataclass(frozen=True)
class Headline:
    """One setting's table."""

    setting: str
    queries: int
    items: int
    rows: Sequence[HeadlineRow]

    def row(self, key: str) -> HeadlineRow:
        return next(row for row in self.rows if row.key == key)


def headlines(systems: Sequence[System]) -> dict[str, Headline]:
    """The table of each setting; `systems` holds the model and whatever it is compared with."""
    model = next(system for system in systems if system.key == MODEL)
    others = [system for system in systems if system is not model]
    asked = [(s, system, m) for s in SETTINGS for system in others for m in SHOWN]
    p_values = holm([_p(model, system, setting, metric) for setting, system, metric in asked])
    p_of = {(s, system.key, m): p for (s, system, m), p in zip(asked, p_values, strict=True)}
    tables = {}
    for setting in SETTINGS:
        rows = []
        for system in systems:
            result = system.evaluation
            numbers = {m: Number(result[setting][m], *result.intervals[setting][m]) for m in SHOWN}
            against = {}
            if system is not model:
                against = {
                    m: Comparison(
                        model.evaluation[setting][m] - result[setting][m], p_of[setting, system.key, m]
                    )
                    for m in SHOWN
                }
            rows.append(HeadlineRow(system.key, system.name, numbers, against))
        counts = model.evaluation.counts[setting]
        tables[setting] = Headline(setting, counts["queries"], counts["items"], rows)
    return tables


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected so that the chance of *any* false difference among them stays at the level."""
    order = np.argsort(p_values, kind="stable")
    steps = np.arange(len(p_values), 0, -1) * np.asarray(p_values, dtype=np.float64)[order]
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in corrected]


def sentence(tables: Mapping[str, Headline]) -> str:
    """The result in plain words."""
    zero, every = tables["zero_shot"], tables["generalized"]
    ours, bare, better = _first_answers(zero)
    told = (
        f"On {_count(zero.items, 'item')} nobody has clicked, the first answer is right for {ours} of "
        f"{_count(zero.queries, 'query', 'queries')}, against {bare} with {zero.row(BARE).name}: {better}."
    )
    ours, bare, better = _first_answers(every)
    told += (
        f" Among all {_count(every.items, 'item')}, clicked or not, it is right for {ours} of "
        f"{_count(every.queries, 'query', 'queries')}, against {bare}: {better}."
    )
    worse = [
        f"{_SETTING[setting]} {metric} ({table.row(MODEL).numbers[metric].value:.1f} against "
        f"{table.row(BARE).numbers[metric].value:.1f})"
        for setting, table in tables.items()
        for metric, comparison in table.row(BARE).against.items()
        if comparison.verdict == "worse"
    ]
    return f"{told} It is worse in {', '.join(worse)}." if worse else told


def _first_answers(table: Headline) -> tuple[str, str, str]:
    bare = table.row(BARE)
    a, b = table.row(MODEL).numbers["P@1"].value, bare.numbers["P@1"].value
    digits = 0 if f"{a:.0f}" != f"{b:.0f}" else 1
    comparison = bare.against["P@1"]
    words = {
        "better": f"better, and chance does not explain it ({comparison.p_words})",
        "worse": f"worse, and chance does not explain it ({comparison.p_words})",
        "same": f"no difference that these queries can show ({comparison.p_words})",
    }
    return f"{a:.{digits}f} %", f"{b:.{digits}f} %", words[comparison.verdict]


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _p(model: System, other: System, setting: str, metric: str) -> float:
    a, b = (system.evaluation.per_query[setting][metric] for system in (model, other))
    return 1.0 if np.array_equal(a, b) else paired_bootstrap(a, b, RESAMPLES)
