"""Rows that a benchmark left in JSON-lines files, for comparison tables.

Each line is an object: {"table": "main", "row": "BM25", "data": "icd10cm", "metrics": {"zero_shot": {"P@1": 12.3}},
"intervals": {"zero_shot": {"P@1": [11.0, 13.6]}}, "seconds": {"fit": 1.2}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metaxc.errors import DataError
from metaxc.evaluation.protocol import SETTINGS
from metaxc.research.report.headline import SHOWN


class BenchRow(BaseModel):
    """One system on one data set, as a benchmark recorded it; other keys of the line are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str = Field(description="which comparison it belongs to")
    row: str = Field(description="the system's name")
    data: str = Field(description="the data set's name")
    metrics: dict[str, dict[str, float]] = Field(description="percent, by setting and metric")
    intervals: dict[str, dict[str, tuple[float, float]]] = Field(
        default_factory=dict, description="low and high of 95 % intervals, by setting and metric"
    )
    seconds: dict[str, float] = Field(default_factory=dict, description="by what was timed")


@dataclass(frozen=True)
class BenchTable:
    """The rows of one comparison on one data set in one setting, in the order of the files."""

    table: str
    data: str
    setting: str
    metrics: Sequence[str]
    rows: Sequence[BenchRow]

    @property
    def timed(self) -> list[str]:
        """What was timed in any of the rows."""
        return list(dict.fromkeys(name for row in self.rows for name in row.seconds))

    def best(self, metric: str) -> float | None:
        """The largest value of a metric."""
        found = [row.metrics[self.setting].get(metric) for row in self.rows]
        return max((value for value in found if value is not None), default=None)


def read_bench(paths: Sequence[Path]) -> list[BenchRow]:
    """All rows of JSON-lines files; a line that is none is an error that names it."""
    rows = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError("A result file cannot be read", got=f"{path}: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(BenchRow.model_validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                raise DataError(
                    "A line of a result file is not a benchmark row",
                    got=f"{path}, line {number}: {where + ': ' if where else ''}{first['msg']}",
                    expected='{"table": …, "row": …, "data": …, "metrics": {"zero_shot": {"P@1": …}}}',
                ) from error
    return rows


def bench_tables(rows: Sequence[BenchRow]) -> list[BenchTable]:
    """Tables by comparison, data set and setting; a row recorded again replaces what stood there."""
    places = dict.fromkeys((row.table, row.data) for row in rows)
    tables = []
    for table, data in places:
        latest = {row.row: row for row in rows if (row.table, row.data) == (table, data)}
        for setting in SETTINGS:
            having = [row for row in latest.values() if row.metrics.get(setting)]
            named = dict.fromkeys(name for row in having for name in row.metrics[setting])
            metrics = [name for name in SHOWN if name in named]
            if metrics:
                tables.append(BenchTable(table, data, setting, metrics, having))
    return tables
