"""All numbers of a report, as plain dataclasses, and the comparison rows that a benchmark left in JSON-lines files.

Each line of such a file is an object: {"table": "main", "row": "BM25", "data": "icd10cm", "metrics": {"zero_shot":
{"P@1": 12.3}}, "intervals": {"zero_shot": {"P@1": [11.0, 13.6]}}, "seconds": {"fit": 1.2}}. Lines need not come from
`metaxc bench`, so fewer keys are required than `metaxc.research.bench.results` writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder, Pretrained
from metaxc.errors import DataError
from metaxc.evaluation.by_kind import KINDS
from metaxc.evaluation.overlap import Overlap, check_overlap
from metaxc.evaluation.protocol import SETTINGS
from metaxc.evaluation.searches import Search, encoder_search, model_search
from metaxc.research.latency import ModelLatency, measure_latency
from metaxc.research.report.comparison import (
    ADAPTED,
    BARE,
    MODEL,
    SHOWN_METRICS,
    Headline,
    compare_systems,
    evaluate_system,
    summarise,
)
from metaxc.research.report.exposure_section import ExposureSection, describe_exposure
from metaxc.research.report.gains import ItemGains, compute_gains
from metaxc.research.report.mixed_ranking import MixedRanking, compare_mixed_ranking
from metaxc.research.report.slices import Slices, compute_slices

CURVE_POINTS = 200


class BenchRow(BaseModel):
    """One system on one data set, as a benchmark recorded it; other keys of the line are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str = Field(description="the comparison that the row belongs to")
    row: str = Field(description="the system's name")
    data: str = Field(description="the data set's name")
    metrics: dict[str, dict[str, float]] = Field(description="percent, by setting and metric")
    intervals: dict[str, dict[str, tuple[float, float]]] = Field(
        default_factory=dict, description="low and high of 95 % intervals, by setting and metric"
    )
    seconds: dict[str, float] = Field(default_factory=dict, description="seconds, by stage")

    @field_validator("metrics", "intervals", mode="before")
    @classmethod
    def _flatten_kinds(cls, settings: Any) -> Any:
        """{"novel": {"R@10": …}} becomes "novel R@10"; "by_clicks" and figures without a value are left out."""
        if not isinstance(settings, Mapping) or not all(isinstance(v, Mapping) for v in settings.values()):
            return settings
        flat: dict[str, dict[str, Any]] = {}
        for setting, values in settings.items():
            figures = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
            for kind in KINDS:
                nested = values.get(kind)
                for name, value in nested.items() if isinstance(nested, Mapping) else ():
                    figures[f"{kind} {name}"] = value
            flat[setting] = {name: value for name, value in figures.items() if value is not None}
        return flat


@dataclass(frozen=True)
class BenchTable:
    """The rows of one comparison on one data set in one setting, in the order of the files."""

    table: str
    data: str
    setting: str
    metrics: Sequence[str]
    rows: Sequence[BenchRow]

    @property
    def stages(self) -> list[str]:
        """The stages that any of the rows has a time for."""
        return list(dict.fromkeys(name for row in self.rows for name in row.seconds))

    def best(self, metric: str) -> float | None:
        """The largest value of a metric."""
        values = [row.metrics[self.setting].get(metric) for row in self.rows]
        return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class LearningCurve:
    """The loss of a training stage by step, reduced to at most 200 points."""

    stage: str
    step: Sequence[float]
    loss: Sequence[float]


@dataclass(frozen=True)
class Report:
    """Everything on the page except its provenance (`Provenance`).

    Args:
        data: The data set's name.
        systems: Name by key ("model", "adapted", "bare"), in the order of the rows.
        summary: The result in a few sentences.
        headlines: The table of each setting.
        mixed: Novel and observed items in the generalized ranking.
        exposure: What the exposure of novel items costs and brings.
        gains: Gains and losses of single novel items.
        slices: R@10 by kind of item and of query.
        curves: Learning curves, where the model has them.
        latency: Milliseconds per stage.
        training_seconds: Training time by stage, where the model has it.
        bench: Comparison tables from result files.
        uses_neighbours: Whether the neighbours' classifiers have a weight in the shown items' meta-classifiers.
        warnings: What a reader must know before relying on the numbers.
        conventions: What the numbers mean.
    """

    data: str
    systems: Mapping[str, str]
    summary: str
    headlines: Mapping[str, Headline]
    mixed: MixedRanking
    exposure: ExposureSection
    gains: ItemGains
    slices: Sequence[Slices]
    curves: Sequence[LearningCurve]
    latency: ModelLatency
    training_seconds: Mapping[str, float]
    bench: Sequence[BenchTable]
    uses_neighbours: bool
    warnings: Sequence[str]
    conventions: str


def build_report(
    model: Emmett,
    bare: Encoder,
    dataset: Dataset,
    *,
    bench: Sequence[BenchRow] = (),
    allow_overlap: bool = False,
    print_status: Callable[[str], None] = lambda line: None,
) -> Report:
    """Evaluate a model and measure its latency.

    Args:
        model: The trained model.
        bare: The encoder to compare with: the pretrained one, without any training on clicks.
        dataset: A data set with novel items and a test log.
        bench: Rows of other systems to show.
        allow_overlap: Also where the model was trained on the test part, with a warning on the page; otherwise that is
            an `OverlapError`.
        print_status: Called with a line before each long step.
    """
    overlap = check_overlap(model, dataset, allow_overlap=allow_overlap)
    searches: list[tuple[str, str, Callable[[], Search]]] = [
        (MODEL, "metaxc, this model", lambda: model_search(model, dataset, allow_overlap=True))
    ]
    if model.encoder.fingerprint != bare.fingerprint:
        name = f"its {model.encoder.kind} encoder alone"
        searches.append((ADAPTED, name, lambda: encoder_search(model.encoder, dataset)))
    searches.append((BARE, _describe_encoder(bare), lambda: encoder_search(bare, dataset)))
    systems = []
    for key, name, build_search in searches:
        print_status(f"evaluating {name}")
        systems.append(evaluate_system(key, name, build_search(), dataset))
    print_status("comparing the systems")
    headlines = compare_systems(systems)
    exposure = describe_exposure(model, systems[0], systems[-1], dataset, print_status)
    gains = compute_gains(model, systems[0], systems[-1], dataset)
    slices = compute_slices(systems, dataset)
    print_status("measuring latency")
    queries = dataset.test.queries.texts if dataset.test else []
    novel_texts = [dataset.items.texts[row] for row in dataset.novel_rows]
    return Report(
        dataset.name,
        {system.key: system.name for system in systems},
        summarise(headlines),
        headlines,
        compare_mixed_ranking(systems),
        exposure,
        gains,
        slices,
        learning_curves(model.about),
        measure_latency(model, queries, novel_texts),
        {str(stage): float(seconds) for stage, seconds in (model.about.get("seconds") or {}).items()},
        build_bench_tables(bench),
        any(n.weight for item in (*gains.gained, *gains.lost) for n in item.neighbours),
        find_warnings(model, dataset, overlap),
        systems[0].evaluation.conventions,
    )


def learning_curves(about: Mapping[str, Any]) -> list[LearningCurve]:
    """The learning curves under `about["curves"]`: {stage: {"loss": […], "step": […]}}.

    Steps count from 1 where none are given; losses that are not finite are left out.
    """
    curves = []
    for stage, recorded in (about.get("curves") or {}).items():
        loss = recorded.get("loss") or []
        step = recorded.get("step") or range(1, len(loss) + 1)
        points = [(float(s), float(v)) for s, v in zip(step, loss, strict=False) if math.isfinite(v)]
        if points:
            count = min(len(points), CURVE_POINTS)
            chosen = np.unique(np.linspace(0, len(points) - 1, count).astype(int)).tolist()
            steps, losses = zip(*(points[at] for at in chosen), strict=True)
            curves.append(LearningCurve(stage, list(steps), list(losses)))
    return curves


def find_warnings(model: Emmett, dataset: Dataset, overlap: Overlap) -> list[str]:
    """Reasons why the numbers may not mean what they seem to."""
    warnings = []
    trained_on = (model.about.get("data") or {}).get("fingerprint")
    if trained_on not in (None, dataset.fingerprint):
        warnings.append("The model was trained on different data than it is evaluated on here.")
    if not overlap.is_fair:
        warnings.append(f"{overlap.describe()}: the figures are too high and not comparable with others.")
    elif overlap.repeated_clicks or not overlap.is_recorded:
        warnings.append(f"{overlap.describe()}.")
    return warnings


def _describe_encoder(bare: Encoder) -> str:
    if isinstance(bare, Pretrained):
        return f"the bare encoder ({bare.source.rstrip('/').rsplit('/', 1)[-1]})"
    return "the given vectors" if bare.kind == "vectors" else f"the {bare.kind} encoder"


def read_bench_rows(paths: Sequence[Path]) -> list[BenchRow]:
    """All rows of JSON-lines files; an invalid line is an error that names it."""
    rows = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                "A result file cannot be read",
                got=f"{path}: {error}",
                expected="a JSON-lines file in UTF-8",
                fix="check the path given with --bench",
            ) from error
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
                    fix="correct or remove the line",
                ) from error
    return rows


def build_bench_tables(rows: Sequence[BenchRow]) -> list[BenchTable]:
    """Tables by comparison, data set and setting; a later row of the same name replaces an earlier one."""
    tables = []
    for table, data in dict.fromkeys((row.table, row.data) for row in rows):
        latest = {row.row: row for row in rows if (row.table, row.data) == (table, data)}
        for setting in SETTINGS:
            measured = [row for row in latest.values() if row.metrics.get(setting)]
            names = {name for row in measured for name in row.metrics[setting]}
            metrics = [name for name in (*SHOWN_METRICS, "novel R@10", "H") if name in names]
            if metrics:
                tables.append(BenchTable(table, data, setting, metrics, measured))
    return tables
