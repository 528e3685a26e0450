"""Charts as SVG."""

import sys

import pytest

from metaxc.errors import MetaxcError
from metaxc.research.charts import Dot, draw_dots, import_altair


def test_charts_use_the_pages_text_colour_and_are_labelled():
    svg = draw_dots([Dot("g", "s", 5, 4, 6), Dot("g", "t", 7, None, None)], "percent", "A & B")
    assert svg.startswith("<svg")
    assert 'aria-label="A &amp; B"' in svg
    assert "<title>A &amp; B</title>" in svg
    assert 'fill="currentColor"' in svg
    assert "#010203" not in svg


def test_a_missing_package_is_an_error_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MetaxcError, match=r"pip install 'metaxc\[research\]'"):
        import_altair()
