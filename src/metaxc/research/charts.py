"""All charts of the report and of the theory study: Altair charts, rendered to SVG, so that no page needs a script.

The report's charts are 360 px wide, the width of a phone, and scale up on wider screens. Their text takes the page's
text colour (light or dark). The study's charts are files of their own with a white background. Series differ in colour
and in shape.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from metaxc.evaluation.exposure import format_exposure
from metaxc.extras import import_extra

if TYPE_CHECKING:
    from metaxc.research.report.comparison import ConfidenceInterval
    from metaxc.research.report.exposure_section import CurvePoint
    from metaxc.research.report.gains import SimilarityBin
    from metaxc.research.report.mixed_ranking import MixedRow
    from metaxc.research.report.report_data import BenchTable, LearningCurve
    from metaxc.research.report.slices import Slices
    from metaxc.research.theory.study_results import SettingSummary

WIDTH = 360
LABEL_CHARACTERS = 19
LABEL_WIDTH, LABEL_HEIGHT = 0.15, 0.07
"""Of the label of a point, as shares of the plot."""

TEXT_COLOUR = "#010203"
"""Placeholder that becomes `currentColor` in the SVG: Vega accepts only real colours."""

COLOURS = ("#3d7fe0", "#d9730d", "#828a94", "#1f9d6b", "#b05ad6", "#c94f5b")
SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down")

STUDY_WIDTH, STUDY_HEIGHT = 340, 250
STUDY_KINDS = ("base", "K", "depth", "items", "classifiers", "sample")
STUDY_COLOURS = ("#222222", "#3d7fe0", "#d9730d", "#1f9d6b", "#b05ad6", "#c94f5b")
STUDY_SHAPES = ("circle", "diamond", "cross", "square", "triangle-up", "triangle-down")


@dataclass(frozen=True)
class Dot:
    """One mark of a dot plot: a system's value in a group, without an interval when `low` is None."""

    group: str
    system: str
    value: float
    low: float | None
    high: float | None


def import_altair() -> Any:
    """The altair module, after a check that its SVG renderer is installed too."""
    import_extra("vl_convert", "research")
    return import_extra("altair", "research")


def draw_slices(slices: Slices, names: dict[str, str]) -> str:
    """SVG: R@10 of each system in each group."""
    dots = [
        Dot(group.name, names[key], number.value, number.low, number.high)
        for group in slices.groups
        for key, number in group.numbers.items()
    ]
    return draw_dots(dots, "R@10, percent", f"R@10 of {slices.title}")


def draw_bench(table: BenchTable, metric: str) -> str:
    """SVG: one metric of all rows of a comparison."""
    dots = []
    for row in table.rows:
        value = row.metrics[table.setting].get(metric)
        if value is not None:
            low, high = row.intervals.get(table.setting, {}).get(metric, (None, None))
            dots.append(Dot(row.row, metric, value, low, high))
    return draw_dots(dots, f"{metric}, percent", f"{metric} on {table.data}", legend=False)


def draw_dots(dots: Sequence[Dot], axis: str, label: str, legend: bool = True) -> str:
    """SVG: dots with intervals, one line per group and system."""
    alt = import_altair()
    systems = list(dict.fromkeys(dot.system for dot in dots))
    groups = list(dict.fromkeys(dot.group for dot in dots))
    labels = {group: "\n".join(textwrap.wrap(group, LABEL_CHARACTERS)) for group in groups}
    values = [
        {
            "group": labels[dot.group],
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
    y = alt.Y(
        "group:N",
        sort=[labels[group] for group in groups],
        title=None,
        axis=alt.Axis(labelExpr="split(datum.label, '\\n')", ticks=False, domain=False, labelLimit=WIDTH),
    )
    offset = alt.YOffset(field="system", type="nominal", sort=systems)
    colours = alt.Scale(domain=systems, range=_cycle(COLOURS, len(systems)))
    shapes = alt.Scale(domain=systems, range=_cycle(SHAPES, len(systems)))
    colour = alt.Color("system:N", scale=colours, legend=key)
    shape = alt.Shape("system:N", scale=shapes, legend=key)
    base = alt.Chart(alt.Data(values=values)).encode(y=y, yOffset=offset, color=colour)
    scale, ticks = alt.Scale(zero=False, nice=True, padding=8), alt.Axis(tickCount=5)
    rules = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title=axis, scale=scale, axis=ticks), x2=alt.X2("high:Q")
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("value:Q", title=axis, scale=scale, axis=ticks), shape=shape
    )
    lines = max(label.count("\n") + 1 for label in labels.values())
    height = len(groups) * max(16 * len(systems) + 14, 13 * lines + 8)
    return _inline_svg(alt.layer(rules, points), label, height)


def draw_click_recall(rows: Sequence[MixedRow]) -> str:
    """SVG: recall at 10 of each system by training clicks of the item; slices without pairs are left out."""
    alt = import_altair()
    systems = [row.name for row in rows]
    values = [
        {
            "clicks": name.replace("-", "–"),
            "system": row.name,
            "value": one.value,
            "low": one.value if one.interval is None else one.interval[0],
            "high": one.value if one.interval is None else one.interval[1],
        }
        for row in rows
        for name, one in row.by_kind.by_clicks.items()
        if one.value is not None
    ]
    order = list(dict.fromkeys(value["clicks"] for value in values))
    legend = alt.Legend(title=None, orient="top", direction="vertical", labelLimit=WIDTH, symbolSize=80)
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "clicks:N",
            sort=order,
            title="training clicks of the item",
            scale=alt.Scale(paddingInner=0.35),
            axis=alt.Axis(labelAngle=0, grid=False),
        ),
        xOffset=alt.XOffset(field="system", type="nominal", sort=systems),
        color=alt.Color(
            "system:N",
            scale=alt.Scale(domain=systems, range=_cycle(COLOURS, len(systems))),
            legend=legend,
        ),
    )
    title = "recall at 10, percent"
    bars = base.mark_bar(opacity=0.85).encode(y=alt.Y("value:Q", title=title, axis=alt.Axis(tickCount=5)))
    rules = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"), color=alt.value(TEXT_COLOUR)
    )
    label = "Recall at 10 by training clicks of the item, with 95 % intervals"
    return _inline_svg(alt.layer(bars, rules), label, 240)


def draw_exposures(points: Sequence[CurvePoint]) -> str:
    """SVG: novel R@10 by overall accuracy, one point per exposure, the chosen one marked. Labels that would cover
    another one are left out."""
    alt = import_altair()
    kinds = ["the model's own", "other exposures"]
    shown = _label_apart([(p.overall, p.figures["novel R@10"]) for p in points], [p.chosen for p in points])
    values = [
        {
            "overall": point.overall,
            "novel": point.figures["novel R@10"],
            "order": place,
            "label": format_exposure(point.exposure).replace("-", "−") if place in shown else "",
            "kind": kinds[0] if point.chosen else kinds[1],
        }
        for place, point in sorted(enumerate(points), key=lambda one: one[1].chosen)  # the chosen one on top
    ]
    legend = alt.Legend(title=None, orient="top", labelLimit=WIDTH, symbolSize=80)
    wide, high = (alt.Scale(zero=False, nice=False, padding=padding) for padding in (48, 20))
    ticks = alt.Axis(tickCount=5)
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("overall:Q", title="overall accuracy: mean of P@1 and R@10, percent", scale=wide, axis=ticks),
        y=alt.Y("novel:Q", title="novel R@10, percent", scale=high, axis=ticks),
    )
    line = base.mark_line(color=COLOURS[2], strokeWidth=1.5).encode(order="order:Q")
    dots = base.mark_point(filled=True, opacity=1).encode(
        color=alt.Color(
            "kind:N", scale=alt.Scale(domain=kinds, range=[COLOURS[1], COLOURS[0]]), legend=legend
        ),
        shape=alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["diamond", "circle"]), legend=legend),
        size=alt.Size("kind:N", scale=alt.Scale(domain=kinds, range=[160, 50]), legend=None),
    )
    # The curve bends to the upper right, so below and to the left of a point there is room.
    labels = base.mark_text(align="right", dx=-6, dy=9, fontSize=11, color=TEXT_COLOUR).encode(text="label:N")
    return _inline_svg(alt.layer(line, dots, labels), "Novel R@10 by overall accuracy, by exposure", 260)


def _label_apart(places: Sequence[tuple[float, float]], first: Sequence[bool]) -> set[int]:
    """Positions of the points to label: those marked `first`, then all that are far enough from a labelled one."""
    spans = [max(side) - min(side) or 1.0 for side in zip(*places, strict=True)]

    def is_near(one: int, other: int) -> bool:
        x, y = (abs(places[one][axis] - places[other][axis]) / spans[axis] for axis in range(2))
        return x < LABEL_WIDTH and y < LABEL_HEIGHT

    shown: set[int] = set()
    for place in sorted(range(len(places)), key=lambda place: not first[place]):
        if not any(is_near(place, other) for other in shown):
            shown.add(place)
    return shown


def draw_gains(bins: Sequence[SimilarityBin]) -> str:
    """SVG: mean gain by similarity of the nearest observed neighbour."""
    alt = import_altair()
    values = [{"similarity": b.middle, **_fields(b.gain)} for b in bins]
    base = alt.Chart(alt.Data(values=values))
    x = alt.X(
        "similarity:Q",
        title="similarity of the nearest observed neighbour",
        scale=alt.Scale(zero=False, padding=12),
        axis=alt.Axis(tickCount=5),
    )
    title = "gain in R@10, points"
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(
        strokeDash=[4, 3], color=TEXT_COLOUR, opacity=0.6
    )
    rules = base.mark_rule(strokeWidth=2, color=COLOURS[0]).encode(
        x=x, y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")
    )
    points = base.mark_point(filled=True, size=70, opacity=1, color=COLOURS[0]).encode(
        x=x, y=alt.Y("value:Q", title=title)
    )
    layers = alt.layer(zero.encode(y=alt.Y("zero:Q", title=title)), rules, points)
    return _inline_svg(layers, "Mean gain in R@10 by similarity of the nearest observed neighbour", 240)


def draw_curve(curve: LearningCurve) -> str:
    """SVG: loss by step."""
    alt = import_altair()
    values = [{"step": s, "loss": v} for s, v in zip(curve.step, curve.loss, strict=True)]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(color=COLOURS[0], strokeWidth=2, point=len(values) < 30)
        .encode(x=alt.X("step:Q", title="step"), y=alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)))
    )
    return _inline_svg(chart, f"Loss of the {curve.stage} by step", 200)


def draw_study(summaries: Sequence[SettingSummary], data: str) -> dict[str, str]:
    """SVG by file name: the risks of every setting, and the gap against the terms of the bounds."""
    alt = import_altair()
    panels = [_draw_terms(summaries, form) for form in ("published", "derived")]
    terms = "Generalization gap against the published and the derived complexity term"
    risks = "Risk on the training pairs and on held-out pairs, by setting"
    return {
        f"theory-risks-{data}.svg": _svg_file(_draw_risks(summaries), risks),
        f"theory-terms-{data}.svg": _svg_file(alt.hconcat(*panels), terms),
    }


def _draw_risks(summaries: Sequence[SettingSummary]) -> Any:
    alt = import_altair()
    measures = ("training pairs", "held-out pairs")
    values = [
        {"setting": one.name, "risk": value, "measure": measure}
        for one in summaries
        for measure, value in zip(measures, (one.train_risk, one.new_risk), strict=True)
    ]
    y = alt.Y("setting:N", sort=[one.name for one in summaries], title=None)
    base = alt.Chart(alt.Data(values=values)).encode(y=y)
    x = alt.X("risk:Q", title="risk (ln 2 = 0.69: every pair scored 0)")
    line = base.mark_line(color="#bbbbbb").encode(x=x, detail="setting:N")
    colour = alt.Color(
        "measure:N",
        sort=list(measures),
        scale=alt.Scale(domain=list(measures), range=list(STUDY_COLOURS[1:3])),
        legend=alt.Legend(title=None, orient="top"),
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, color=colour)
    return alt.layer(line, points).properties(width=STUDY_WIDTH, height=26 * len(summaries))


def _draw_terms(summaries: Sequence[SettingSummary], form: str) -> Any:
    alt = import_altair()
    values = [
        {
            "term": getattr(one, form),
            "gap": one.gap,
            "low": one.gap - one.half,
            "high": one.gap + one.half,
            "name": one.name,
            "changed": one.kind,
        }
        for one in summaries
    ]
    title = "gap: held-out risk − training risk"
    x = alt.X("term:Q", title=f"complexity term, {form}", scale=alt.Scale(zero=False, padding=14))
    legend = alt.Legend(title="changed", orient="right")
    colours = alt.Scale(domain=list(STUDY_KINDS), range=list(STUDY_COLOURS))
    shapes = alt.Scale(domain=list(STUDY_KINDS), range=list(STUDY_SHAPES))
    colour = alt.Color("changed:N", scale=colours, legend=legend)
    shape = alt.Shape("changed:N", scale=shapes, legend=legend)
    base = alt.Chart(alt.Data(values=values))
    bars = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x, y=alt.Y("gap:Q", title=title), color=colour, shape=shape
    )
    return alt.layer(bars, points).properties(width=STUDY_WIDTH, height=STUDY_HEIGHT)


def _svg_file(chart: Any, label: str) -> str:
    """An SVG file that reads on light and dark pages alike, by its white background."""
    svg = _render(chart.configure(background="white", font="sans-serif"))
    start = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:start]}<title>{label}</title>{svg[start:]}\n"


def _inline_svg(chart: Any, label: str, height: int) -> str:
    """An SVG element for a page: labelled, scalable, text in the page's colour, ids that do not clash."""
    alt = import_altair()
    axis = {
        "labelColor": TEXT_COLOUR, "titleColor": TEXT_COLOUR, "tickColor": TEXT_COLOUR, "domainColor": TEXT_COLOUR,
        "gridColor": TEXT_COLOUR, "gridOpacity": 0.15, "labelFontSize": 11, "titleFontSize": 11,
        "titleFontWeight": "normal",
    }  # fmt: skip
    sized = chart.properties(
        width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )
    styled = (
        sized.configure(background="transparent", font="sans-serif", aria=False, padding=4)
        .configure_view(stroke=None)
        .configure_axis(**axis)
        .configure_legend(labelColor=TEXT_COLOUR, labelFontSize=11, symbolStrokeWidth=0)
    )
    svg = _render(styled).replace(TEXT_COLOUR, "currentColor")
    svg = svg[svg.index("<svg") :]
    prefix = f"p{crc32((label + svg).encode()):x}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    svg = re.sub(r' (?:xmlns:xlink|class|version)="[^"]*"', "", svg, count=3)
    escaped = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    start = rf'<svg\1 role="img" aria-label="{escaped}"><title>{escaped}</title>'
    return re.sub(r"<svg([^>]*)>", start, svg, count=1)


def _render(chart: Any) -> str:
    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    return buffer.getvalue()


def _fields(number: ConfidenceInterval) -> dict[str, float]:
    return {"value": number.value, "low": number.low, "high": number.high}


def _cycle(values: Sequence[str], count: int) -> list[str]:
    return [values[at % len(values)] for at in range(count)]
