"""The report's page: one HTML file with everything inside, nothing fetched and every text escaped; its provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import metaxc
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.evaluation.exposure import TRIED_METRICS, format_exposure
from metaxc.research import charts
from metaxc.research.code_version import running_commit
from metaxc.research.report.comparison import (
    RESAMPLES,
    SETTING_NAMES,
    SHOWN_METRICS,
    SIGNIFICANCE_LEVEL,
    Comparison,
    ConfidenceInterval,
)
from metaxc.research.report.mixed_ranking import COLUMNS as MIXED_COLUMNS
from metaxc.research.report.mixed_ranking import MixedCell
from metaxc.research.report.report_data import Report

CURVE_COLUMNS = ("P@1", "R@10", "novel R@10", "observed R@10", "H", "novel share")
TEMPLATE = "report.html.j2"
REPORT_MARK = b": metaxc report</title>"
"""What every report has near its beginning."""

SHORT_NAMES = {"model": "metaxc", "adapted": "its encoder", "bare": "bare"}
RANKED = {"zero_shot": "novel items alone (zero-shot)", "generalized": "among all items (generalized)"}
MARKS = {"better": "▲", "worse": "▼", "same": "≈"}


@dataclass(frozen=True)
class Provenance:
    """Where a report comes from, in the order of printing.

    Args:
        facts: Name and value of what identifies the run.
        settings: Name and value of the model's configuration and of the constants chosen in training.
    """

    facts: Sequence[tuple[str, str]]
    settings: Sequence[tuple[str, str]]


def render_page(report: Report, provenance: Provenance) -> str:
    """The HTML page, with its charts."""
    names = dict(report.systems)
    plots = {
        "clicks": Markup(charts.draw_click_recall(report.mixed.rows)),
        "exposure": Markup(charts.draw_exposures(report.exposure.points)) if report.exposure.points else "",
        "gain": Markup(charts.draw_gains(report.gains.bins)),
        "slices": [Markup(charts.draw_slices(part, names)) for part in report.slices],
        "curves": [Markup(charts.draw_curve(curve)) for curve in report.curves],
        "bench": [Markup(charts.draw_bench(table, table.metrics[0])) for table in report.bench],
    }
    template = _environment().get_template(TEMPLATE)
    return template.render(
        report=report,
        provenance=provenance,
        plots=plots,
        shown=SHOWN_METRICS,
        mixed_columns=MIXED_COLUMNS,
        curve_columns=CURVE_COLUMNS,
        tried_columns=TRIED_METRICS,
        settings=SETTING_NAMES,
        ranked=RANKED,
        scores=collect_scores(report),
        training_time=format_duration(report.training_seconds),
        short=SHORT_NAMES,
        level=SIGNIFICANCE_LEVEL,
        resamples=RESAMPLES,
        comparisons=2 * len(SHOWN_METRICS) * (len(names) - 1),
    )


@dataclass(frozen=True)
class ScoreCell:
    """A figure of a system in the lead of the report."""

    key: str
    text: str


@dataclass(frozen=True)
class ScoreLine:
    """One figure in the lead of the report, of every system; the model last, as in the other tables of metaxc."""

    name: str
    what: str
    cells: Sequence[ScoreCell]


def collect_scores(report: Report) -> list[ScoreLine]:
    """The figures that say most: both settings by P@1 and R@10, and the novel and observed items of one ranking."""
    keys = list(report.systems)[::-1]
    lines = []
    for setting, name in (("zero_shot", "New items alone"), ("generalized", "All items")):
        for metric, what in (("P@1", "first result is right"), ("R@10", "found among the first ten")):
            table = report.headlines[setting]
            found = {key: table.row(key).numbers[metric].value for key in keys}
            lines.append(_score_line(f"{name}: {metric}", what, found))
    mixed = {row.key: row.by_kind.kinds for row in report.mixed.rows}
    for kind, what in (
        ("novel", "new items among the first ten of all items"),
        ("observed", "clicked items among the first ten of all items"),
    ):
        split = {key: mixed[key][kind]["R@10"].value for key in keys}
        lines.append(_score_line(f"In the mix: {kind} R@10", what, split))
    return lines


def _score_line(name: str, what: str, values: Mapping[str, float | None]) -> ScoreLine:
    cells = [ScoreCell(key, "–" if value is None else f"{value:.1f}") for key, value in values.items()]
    return ScoreLine(name, what, cells)


def format_duration(seconds: Mapping[str, float]) -> str:
    """The time of a whole training in words; empty if it is unknown."""
    total = seconds.get("fit", sum(seconds.values()))
    if not total:
        return ""
    return f"{total:.0f} seconds" if total < 120 else f"{total / 60:.1f} minutes"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("metaxc.research.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda number: f"{number:,}",
        percent=lambda number: f"{number:.1f}",
        signed=format_signed,
        interval=format_interval,
        verdict=format_verdict,
        rank=format_rank,
        milliseconds=format_milliseconds,
        exposure=lambda number: format_exposure(number).replace("-", "−"),
        similarity=lambda number: f"{number:.3f}",
    )
    environment.globals.update(
        sign_mark=lambda number: MARKS[{1: "better", -1: "worse", 0: "same"}[number.sign]]
    )
    return environment


def format_signed(number: float) -> str:
    """A number with its sign, the minus as a typographic minus."""
    return f"{number:+.1f}".replace("-", "−")


def format_interval(number: ConfidenceInterval) -> str:
    """The two ends of an interval."""
    return f"{number.low:.1f} to {number.high:.1f}".replace("-", "−")


def format_verdict(comparison: Comparison | MixedCell) -> str:
    """A comparison as a symbol and a word."""
    words = {"better": "model better", "worse": "model worse", "same": "no difference"}
    return f"{MARKS[comparison.verdict]} {words[comparison.verdict]}"


def format_rank(number: int) -> str:
    """A rank in words."""
    return f"rank {number}" if number else "not among the first 100"


def format_milliseconds(number: float) -> str:
    """Milliseconds with about three digits."""
    return f"{number:.3f}" if number < 0.1 else f"{number:.2f}" if number < 10 else f"{number:.1f}"


def collect_provenance(
    model: Emmett, dataset: Dataset, command: str, now: datetime | None = None
) -> Provenance:
    """What a reader needs to reproduce the numbers.

    Args:
        model, dataset: What was evaluated.
        command: The command as the user typed it.
        now: The date; the present when None.
    """
    commit = running_commit()
    facts = [
        ("command", command),
        ("date", (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("metaxc", f"{metaxc.__version__}" + (f", commit {commit}" if commit else "")),
        ("data set", f"{dataset.name}: {_describe_dataset(dataset)}"),
        ("data hash", dataset.fingerprint),
        ("model fingerprint", model.fingerprint),
        ("encoder fingerprint", model.encoder.fingerprint),
        (
            "model",
            f"{model.encoder.kind} encoder, {model.generator.kind} generator, K = {model.neighbours}, "
            f"{len(model.observed):,} observed items with a classifier",
        ),
    ]
    about = model.about
    parts = {name: about[name] for name in ("config", "constants", "pseudo_novel", "split") if name in about}
    settings = flatten(parts) or flatten({"calibration": model.calibration.model_dump()})
    return Provenance(facts, settings)


def flatten(value: Any, name: str = "") -> list[tuple[str, str]]:
    """(dotted name, value) of every leaf of nested mappings.

    Only the last part of a path is shown, because reports are passed on and the machine's folders are private; long
    lists are shown by their length.
    """
    if isinstance(value, Mapping):
        return [
            leaf
            for key, inner in value.items()
            for leaf in flatten(inner, f"{name}.{key}" if name else str(key))
        ]
    if isinstance(value, list | tuple):
        return [
            (name, ", ".join(map(_format_value, value)) if len(value) <= 8 else f"{len(value):,} entries")
        ]
    return [(name, _format_value(value))]


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return PurePath(text).name if PurePath(text).is_absolute() else text


def _describe_dataset(dataset: Dataset) -> str:
    test = 0 if dataset.test is None else len(dataset.test)
    return (
        f"{len(dataset.items):,} items, {len(dataset.novel_rows):,} of them novel; {len(dataset.train):,} training "
        f"queries with {dataset.train.clicks.nnz:,} clicks; {test:,} test queries"
    )
