"""Novel and observed items in one ranking: what the generalized mean over queries does not show.

The figures are those of `metaxc.evaluation.by_kind`; the model is compared with the other systems on the same queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaxc.evaluation.by_kind import KINDS, ByKind
from metaxc.evaluation.intervals import PairedDifference
from metaxc.evaluation.paired import paired_intervals, paired_values
from metaxc.research.report.comparison import MODEL, ConfidenceInterval, System

OVERALL = "generalized"
COMPARED = [
    (OVERALL, "P@1"),
    (OVERALL, "R@10"),
    *((kind, name) for kind in KINDS for name in ("R@10", "P@1")),
]
"""Columns that are means over queries, so that two systems can be compared in them."""

COLUMNS = [
    *(metric if part == OVERALL else f"{part} {metric}" for part, metric in COMPARED),
    "H",
    "novel in top 10",
]
"""Names of the cells of a row."""


@dataclass(frozen=True)
class MixedCell:
    """One figure of a system.

    Args:
        number: Percent with its interval; None where no query wants an item of the kind.
        against: The model minus this system on the same queries; None for the model itself, and for figures that are
            not means over queries.
    """

    number: ConfidenceInterval | None
    against: PairedDifference | None = None

    @property
    def verdict(self) -> str:
        """ "better" or "worse" where the model differs beyond the interval, else "same"."""
        if self.against is None:
            return "same"
        return "worse" if self.against.below else "better" if self.against.low > 0 else "same"


@dataclass(frozen=True)
class MixedRow:
    """One system: the cells of `COMPARED`, then H and the share of novel items among the first ten results; and the
    recall of its items by training clicks."""

    key: str
    name: str
    cells: Sequence[MixedCell]
    by_kind: ByKind


@dataclass(frozen=True)
class MixedRanking:
    """The section's numbers.

    Args:
        queries: Number of queries with a relevant item of each kind.
        rows: The systems, the model first.
    """

    queries: Mapping[str, int]
    rows: Sequence[MixedRow]


def compare_mixed_ranking(systems: Sequence[System]) -> MixedRanking:
    """The figures of all systems; `systems` holds the model and everything that it is compared with."""
    own = paired_values(next(system for system in systems if system.key == MODEL).evaluation)
    rows = []
    for system in systems:
        result, by_kind = system.evaluation, system.evaluation.by_kind
        if by_kind is None:
            continue
        against = {} if system.key == MODEL else paired_intervals(own, paired_values(result))
        cells = []
        for part, metric in COMPARED:
            if part == OVERALL:
                value, interval = result[part][metric], result.intervals[part][metric]
                number = _number(value, interval)
            else:
                number = _number(*by_kind.kinds[part][metric])
            cells.append(MixedCell(number, against.get(part, {}).get(metric)))
        cells += [MixedCell(_number(*figure)) for figure in (by_kind.harmonic_mean, by_kind.novel_share)]
        rows.append(MixedRow(system.key, system.name, cells, by_kind))
    return MixedRanking({kind: len(found) for kind, found in rows[0].by_kind.queries.items()}, rows)


def _number(value: float | None, interval: tuple[float, float] | None) -> ConfidenceInterval | None:
    return None if value is None or interval is None else ConfidenceInterval(value, *interval)
