"""The study's plots, as SVG files that read on light and dark pages alike: a white ground of their own."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from metaxc.extras import import_extra
from metaxc.research.theory.terms import Measured

WIDTH, HEIGHT = 340, 250
KINDS = ("base", "K", "depth", "items", "classifiers", "sample")
COLOURS = ("#222222", "#3d7fe0", "#d9730d", "#1f9d6b", "#b05ad6", "#c94f5b")
SHAPES = ("circle", "diamond", "cross", "square", "triangle-up", "triangle-down")


def plots(settings: Sequence[Measured], data: str) -> dict[str, str]:
    """SVG by file name: the risks of every setting, and the gap against the bounds' terms."""
    return {
        f"theory-risks-{data}.svg": _risks(settings),
        f"theory-terms-{data}.svg": _terms(settings),
    }


def _risks(settings: Sequence[Measured]) -> str:
    alt = import_extra("altair", "report")
    measures = ("pairs trained on", "held-out pairs")
    values = [
        {"setting": one.name, "risk": value, "measure": measure}
        for one in settings
        for measure, value in zip(measures, (one.train_risk, one.new_risk), strict=True)
    ]
    y = alt.Y("setting:N", sort=[one.name for one in settings], title=None)
    base = alt.Chart(alt.Data(values=values)).encode(y=y)
    x = alt.X("risk:Q", title="risk (ln 2 = 0.69: knows nothing)")
    line = base.mark_line(color="#bbbbbb").encode(x=x, detail="setting:N")
    colour = alt.Color(
        "measure:N",
        sort=list(measures),
        scale=alt.Scale(domain=list(measures), range=[COLOURS[1], COLOURS[2]]),
        legend=alt.Legend(title=None, orient="top"),
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, color=colour)
    chart = alt.layer(line, points).properties(width=WIDTH, height=26 * len(settings))
    return _svg(chart, "Risk on the pairs trained on and on held-out pairs, by setting")


def _terms(settings: Sequence[Measured]) -> str:
    alt = import_extra("altair", "report")
    panels = [_panel(settings, "published"), _panel(settings, "derived")]
    return _svg(
        alt.hconcat(*panels), "Generalization gap against the published and the derived complexity term"
    )


def _panel(settings: Sequence[Measured], form: str) -> Any:
    alt = import_extra("altair", "report")
    values = [
        {
            "term": getattr(one, form),
            "gap": one.gap,
            "low": one.gap - one.half,
            "high": one.gap + one.half,
            "name": one.name,
            "changed": one.kind,
        }
        for one in settings
    ]
    x = alt.X("term:Q", title=f"complexity term, {form}", scale=alt.Scale(zero=False, padding=14))
    y = alt.Y("gap:Q", title="gap: held-out risk − training risk")
    legend = alt.Legend(title="changed", orient="right")
    colour = alt.Color("changed:N", scale=alt.Scale(domain=list(KINDS), range=list(COLOURS)), legend=legend)
    shape = alt.Shape("changed:N", scale=alt.Scale(domain=list(KINDS), range=list(SHAPES)), legend=legend)
    base = alt.Chart(alt.Data(values=values))
    bars = base.mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("low:Q", title="gap: held-out risk − training risk"), y2="high:Q", color=colour
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, y=y, color=colour, shape=shape)
    return alt.layer(bars, points).properties(width=WIDTH, height=HEIGHT)


def _svg(chart: Any, label: str) -> str:
    buffer = io.StringIO()
    chart.configure(background="white", font="sans-serif").save(buffer, format="svg")
    svg = buffer.getvalue()
    start = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:start]}<title>{label}</title>{svg[start:]}\n"
