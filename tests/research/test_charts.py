"""Charts as SVG."""

import re
import sys

import pytest

from metaxc.errors import MetaxcError
from metaxc.research.charts import Dot, draw_dots, draw_exposures, import_altair
from metaxc.research.report.exposure_section import CurvePoint


def test_charts_use_the_pages_text_colour_and_are_labelled():
    svg = draw_dots([Dot("g", "s", 5, 4, 6), Dot("g", "t", 7, None, None)], "percent", "A & B")
    assert svg.startswith("<svg")
    assert 'aria-label="A &amp; B"' in svg
    assert "<title>A &amp; B</title>" in svg
    assert 'fill="currentColor"' in svg
    assert "#010203" not in svg


def labels(svg):
    """The exposures that are written beside points: the right-aligned texts that are no labels of the y axis."""
    return [
        text
        for text in re.findall(r">(−?[\d.]+)</text>", svg)
        if text in ("−0.1", "0", "0.0001", "0.2", "0.5")
    ]


def curve(*points, chosen=0.0):
    return [CurvePoint(e, overall, {"novel R@10": novel}, e == chosen) for e, overall, novel in points]


class TestExposures:
    def test_points_are_labelled_and_the_chosen_one_is_marked(self):
        svg = draw_exposures(
            curve((-0.1, 61.3, 11.7), (0.0, 61.1, 33.3), (0.2, 47.7, 57.7), (0.5, 33.3, 61.1))
        )
        assert labels(svg) == ["−0.1", "0.2", "0.5", "0"], "the chosen one is drawn last, over the others"
        assert svg.count('fill="#d9730d"') == 2, "the chosen point and the legend"
        assert svg.count('fill="#3d7fe0"') == 4, "the others and the legend"
        assert ">the model's own<" in svg
        assert ">overall accuracy: mean of P@1 and R@10, percent<" in svg
        assert ">novel R@10, percent<" in svg

    def test_the_label_of_the_chosen_point_has_precedence_where_labels_would_collide(self):
        near = curve((0.0, 61.1, 33.3), (0.0001, 61.1, 33.4), (0.5, 33.3, 61.1), chosen=0.0001)
        assert labels(draw_exposures(near)) == ["0.5", "0.0001"]

    def test_a_curve_without_extent(self):
        svg = draw_exposures(curve((-0.1, 100.0, 100.0), (0.0, 100.0, 100.0)))
        assert labels(svg) == ["0"]
        assert "NaN" not in svg


def test_a_missing_package_is_an_error_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MetaxcError, match=r"pip install 'metaxc\[research\]'"):
        import_altair()
