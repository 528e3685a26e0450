"""How models, results and explanations look in a terminal and in a notebook."""

import pytest
from world_model import build_model

from metaxc.emmett import Hit
from metaxc.emmett.hits import Hits


@pytest.fixture(scope="module")
def model(world):
    return build_model(world)


def test_a_model_fits_on_one_line(model):
    text = repr(model)
    assert "\n" not in text
    assert len(text) < 120
    assert "200 items, 40 of them novel" in text
    assert "<td>200 items, 40 of them novel</td>" in model._repr_html_()


def test_hits_are_a_list_with_a_line_for_each(model):
    (found,) = model.search(["t0"], k=3)
    assert isinstance(found, list)
    assert found == [*found]
    lines = repr(found).splitlines()
    assert lines[0] == "Hits(3)"
    assert lines[1].split()[-2:] == [f"{found[0].id}:", found[0].text]
    assert found._repr_html_().count("<tr>") == 4


def test_texts_are_escaped_and_shortened():
    hits = Hits([Hit("<b>", "x" * 100 + "<script>", 0.5, True)])
    assert "<script>" not in hits._repr_html_()
    assert "&lt;b&gt;" in hits._repr_html_()
    assert len(repr(hits).splitlines()[1]) < 90
    assert repr(hits[0]).endswith("0.500, novel)")
    assert len(repr(hits[0])) < 90


def test_an_explanation_has_its_shares_and_a_line_for_each_neighbour(model):
    found = model.explain(id="i4")
    lines = repr(found).splitlines()
    assert lines[0].startswith("Explanation('i4': its own text ")
    assert len(lines) == 1 + len(found.neighbours)
    assert found.neighbours[0].id in lines[1]
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(found.neighbours)
    assert sum(found.shares.values()) == pytest.approx(100, abs=0.11)
