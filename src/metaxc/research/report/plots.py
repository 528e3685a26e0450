"""The report's plots: altair charts, drawn to SVG when the report is made, so that the page needs no script.

Drawn 360 px wide, the width of a phone, and enlarged on wider screens. Text takes the page's own colour (light
or dark); marks have colours that stand out on both, and shapes of their own.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from metaxc.errors import ConfigError
from metaxc.research.report.bench_section import BenchTable
from metaxc.research.report.gains import Bin
from metaxc.research.report.gather import Curve
from metaxc.research.report.slices import Slices
from metaxc.research.report.systems import Number

if TYPE_CHECKING:
    import altair

WIDTH = 360
LABEL = 19
TEXT = "#010203"
"""Stands for the page's text colour until the SVG is written."""

COLOURS = ("#3d7fe0", "#d9730d", "#828a94", "#1f9d6b", "#b05ad6", "#c94f5b")
SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down")


@dataclass(frozen=True)
class Dot:
    """One mark of a dot plot: a number of a system in a group; without an interval when low is None."""

    group: str
    system: str
    value: float
    low: float | None
    high: float | None


def need_altair() -> Any:
    """The altair module; without it or its renderer an error that says how to get them."""
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "A report's plots need altair and vl-convert-python",
            got=f"no module {error.name!r}",
            expected="the extra packages of metaxc's reports",
            fix="pip install 'metaxc[report]'",
        ) from error
    return altair


def slices_plot(slices: Slices, names: dict[str, str]) -> str:
    """R@10 of each system in each group. SVG."""
    dots = [
        Dot(group.name, names[key], number.value, number.low, number.high)
        for group in slices.groups
        for key, number in group.numbers.items()
    ]
    return dot_plot(dots, "R@10, percent", f"R@10 of {slices.title}")


def bench_plot(table: BenchTable, metric: str) -> str:
    """One metric of all rows of a comparison. SVG."""
    dots = []
    for row in table.rows:
        value = row.metrics[table.setting].get(metric)
        if value is not None:
            low, high = row.intervals.get(table.setting, {}).get(metric, (None, None))
            dots.append(Dot(row.row, metric, value, low, high))
    return dot_plot(dots, f"{metric}, percent", f"{metric} on {table.data}", legend=False)


def dot_plot(dots: Sequence[Dot], axis: str, label: str, legend: bool = True) -> str:
    """Dots with intervals, one line per group and system. SVG."""
    alt = need_altair()
    systems = list(dict.fromkeys(dot.system for dot in dots))
    groups = list(dict.fromkeys(dot.group for dot in dots))
    shown = {group: "\n".join(textwrap.wrap(group, LABEL)) for group in groups}
    values = [
        {
            "group": shown[dot.group],
            "system": dot.system,
            "value": dot.value,
            "low": dot.value if dot.low is None else dot.low,
            "high": dot.value if dot.high is None else dot.high,
        }
        for dot in dots
    ]
    key = None
    if legend:
        key = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=WIDTH, symbolSize=80)
    at = {"field": "system", "type": "nominal", "sort": systems}
    y = alt.Y(
        "group:N",
        sort=[shown[group] for group in groups],
        title=None,
        axis=alt.Axis(labelExpr="split(datum.label, '\\n')", ticks=False, domain=False, labelLimit=WIDTH),
    )
    colour = alt.Color(
        "system:N", scale=alt.Scale(domain=systems, range=_first(COLOURS, len(systems))), legend=key
    )
    shape = alt.Shape(
        "system:N", scale=alt.Scale(domain=systems, range=_first(SHAPES, len(systems))), legend=key
    )
    base = alt.Chart(alt.Data(values=values)).encode(y=y, yOffset=alt.YOffset(**at), color=colour)
    scale, ticks = alt.Scale(zero=False, nice=True, padding=8), alt.Axis(tickCount=5)
    rules = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title=axis, scale=scale, axis=ticks), x2=alt.X2("high:Q")
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("value:Q", title=axis, scale=scale, axis=ticks), shape=shape
    )
    lines = max(label.count("\n") + 1 for label in shown.values())
    height = len(groups) * max(16 * len(systems) + 14, 13 * lines + 8)
    return to_svg(alt.layer(rules, points), label, height)


def gain_plot(bins: Sequence[Bin]) -> str:
    """Mean gain by similarity of the nearest observed neighbour. SVG."""
    alt = need_altair()
    values = [{"similarity": b.middle, **_fields(b.gain)} for b in bins]
    base = alt.Chart(alt.Data(values=values))
    x = alt.X(
        "similarity:Q",
        title="similarity of the nearest observed neighbour",
        scale=alt.Scale(zero=False, padding=12),
        axis=alt.Axis(tickCount=5),
    )
    title = "gain in R@10, points"
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(strokeDash=[4, 3], color=TEXT, opacity=0.6)
    rules = base.mark_rule(strokeWidth=2, color=COLOURS[0]).encode(
        x=x, y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")
    )
    points = base.mark_point(filled=True, size=70, opacity=1, color=COLOURS[0]).encode(
        x=x, y=alt.Y("value:Q", title=title)
    )
    layers = alt.layer(zero.encode(y=alt.Y("zero:Q", title=title)), rules, points)
    return to_svg(layers, "Mean gain in R@10 by similarity of the nearest observed neighbour", 240)


def curve_plot(curve: Curve) -> str:
    """Loss by step. SVG."""
    alt = need_altair()
    values = [{"step": s, "loss": v} for s, v in zip(curve.step, curve.loss, strict=True)]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(color=COLOURS[0], strokeWidth=2, point=len(values) < 30)
        .encode(x=alt.X("step:Q", title="step"), y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)))
    )
    return to_svg(chart, f"Loss of the {curve.stage} by step", 200)


def to_svg(chart: altair.Chart | altair.LayerChart, label: str, height: int) -> str:
    """An SVG element for inline use: labelled, scalable, text in the page's colour, no ids that could clash."""
    alt = need_altair()
    axis = {
        "labelColor": TEXT, "titleColor": TEXT, "tickColor": TEXT, "domainColor": TEXT, "gridColor": TEXT,
        "gridOpacity": 0.15, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
    }  # fmt: skip
    drawn = (
        chart.properties(
            width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
        )
        .configure(background="transparent", font="sans-serif", aria=False, padding=4)
        .configure_view(stroke=None)
        .configure_axis(**axis)
        .configure_legend(labelColor=TEXT, labelFontSize=11, symbolStrokeWidth=0)
    )
    buffer = io.StringIO()
    drawn.save(buffer, format="svg")
    svg = buffer.getvalue().replace(TEXT, "currentColor")
    svg = svg[svg.index("<svg") :]
    mark = f"p{crc32((label + svg).encode()):x}-"
    svg = re.sub(r'\bid="', f'id="{mark}', svg)
    svg = re.sub(r"url\(#", f"url(#{mark}", svg)
    svg = re.sub(r' (?:xmlns:xlink|class|version)="[^"]*"', "", svg, count=3)
    said = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return re.sub(
        r"<svg([^>]*)>", rf'<svg\1 role="img" aria-label="{said}"><title>{said}</title>', svg, count=1
    )


def _fields(number: Number) -> dict[str, float]:
    return {"value": number.value, "low": number.low, "high": number.high}


def _first(values: Sequence[str], count: int) -> list[str]:
    return [values[at % len(values)] for at in range(count)]
