"""Numbers to one HTML file: everything inside, nothing fetched, every text escaped."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from metaxc.research.report import plots
from metaxc.research.report.gather import Report
from metaxc.research.report.headline import LEVEL, RESAMPLES, SHOWN, Comparison
from metaxc.research.report.provenance import Provenance
from metaxc.research.report.systems import Number

TEMPLATE = "report.html.j2"
SETTINGS = {"zero_shot": "zero-shot", "generalized": "generalized"}
SHORT = {"model": "model", "adapted": "its encoder", "bare": "bare"}
MARKS = {"better": "▲", "worse": "▼", "same": "≈"}


def render(report: Report, provenance: Provenance) -> str:
    """The page. Plots are drawn here, once."""
    names = dict(report.systems)
    drawn = {
        "gain": Markup(plots.gain_plot(report.gains.bins)),
        "slices": [Markup(plots.slices_plot(part, names)) for part in report.slices],
        "curves": [Markup(plots.curve_plot(curve)) for curve in report.curves],
        "bench": [Markup(plots.bench_plot(table, table.metrics[0])) for table in report.bench],
    }
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            report=report,
            provenance=provenance,
            plots=drawn,
            shown=SHOWN,
            settings=SETTINGS,
            short=SHORT,
            level=LEVEL,
            resamples=RESAMPLES,
            comparisons=2 * len(SHOWN) * (len(names) - 1),
        )
    )


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("metaxc.research.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=lambda number: f"{number:,}",
        percent=lambda number: f"{number:.1f}",
        signed=signed,
        interval=interval,
        verdict=verdict,
        place=place,
        milliseconds=milliseconds,
        similarity=lambda number: f"{number:.3f}",
    )
    made.globals.update(sign_mark=lambda number: MARKS[{1: "better", -1: "worse", 0: "same"}[number.sign]])
    return made


def signed(number: float) -> str:
    """With its sign, and a minus that is one."""
    return f"{number:+.1f}".replace("-", "−")


def interval(number: Number) -> str:
    return f"{number.low:.1f} to {number.high:.1f}".replace("-", "−")


def verdict(comparison: Comparison) -> str:
    """A comparison in a symbol and a word."""
    words = {"better": "model better", "worse": "model worse", "same": "no difference"}
    return f"{MARKS[comparison.verdict]} {words[comparison.verdict]}"


def place(number: int) -> str:
    return f"place {number}" if number else "not in the first 100"


def milliseconds(number: float) -> str:
    return f"{number:.3f}" if number < 0.1 else f"{number:.2f}" if number < 10 else f"{number:.1f}"
