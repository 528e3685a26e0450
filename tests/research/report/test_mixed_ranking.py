"""Novel and observed items in one ranking."""

from dataclasses import replace

import numpy as np
import pytest
from fixed_searches import oracle, order
from scipy.sparse import csr_array

from metaxc.data import ClickLog, Texts
from metaxc.evaluation import PairedDifference
from metaxc.research.charts import draw_click_recall
from metaxc.research.report.comparison import ConfidenceInterval, evaluate_system
from metaxc.research.report.mixed_ranking import COLUMNS, MixedCell, compare_mixed_ranking


def cell(row, name):
    return row.cells[COLUMNS.index(name)]


@pytest.fixture
def systems(tiny):
    """The model ranks the observed items alone, the bare encoder the novel ones alone; all queries many times."""
    names = [f"q{i}" for i in range(90)]
    clicks = csr_array(tiny.test.clicks[np.tile(np.arange(3), 30)])
    data = replace(tiny, test=ClickLog(Texts(names, names), clicks))
    return [
        evaluate_system("model", "M", order(0, 1, 2, 3), data),
        evaluate_system("bare", "B", order(4, 5), data),
        evaluate_system("adapted", "A", oracle(data), data),
    ]


def test_each_system_has_its_figures_and_the_models_difference(systems):
    found = compare_mixed_ranking(systems)
    model, bare, right = found.rows
    assert COLUMNS == [
        "P@1", "R@10", "novel R@10", "novel P@1", "observed R@10", "observed P@1", "H", "novel in top 10"
    ]  # fmt: skip
    # Of the queries a (clicked 0 and 4), b (5) and c (1 and 3), two have a novel and two an observed relevant item.
    assert found.queries == {"novel": 60, "observed": 60}
    assert cell(model, "R@10").number.value == pytest.approx(50)
    assert cell(model, "novel R@10").number == ConfidenceInterval(0, 0, 0)
    assert cell(model, "observed R@10").number == ConfidenceInterval(100, 100, 100)
    assert cell(model, "H").number.value == 0
    assert cell(model, "novel in top 10").number.value == 0
    assert cell(bare, "novel in top 10").number.value == 100
    assert cell(right, "H").number.value == 100
    assert all(one.against is None for one in model.cells)
    assert cell(bare, "novel R@10").against.difference == pytest.approx(-100)
    assert cell(bare, "novel R@10").verdict == "worse"
    assert cell(bare, "observed R@10").verdict == "better"
    assert cell(bare, "R@10").verdict == "same"
    assert cell(right, "observed R@10").verdict == "same"
    assert cell(right, "H").against is None


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(-2.0, 1.0, "same"), (-3.0, -1.0, "worse"), (0.5, 2.0, "better")]
)
def test_only_a_difference_beyond_its_interval_is_one(low, high, verdict):
    assert MixedCell(None, PairedDifference((low + high) / 2, low, high, 0.5, False)).verdict == verdict


def test_a_kind_that_no_query_wants_has_no_number(systems):
    by_kind = systems[0].evaluation.by_kind
    none = dict.fromkeys(by_kind.kinds["novel"], (None, None))
    changed = replace(by_kind, kinds={**by_kind.kinds, "novel": none}, harmonic_mean=(None, None))
    model = replace(systems[0], evaluation=replace(systems[0].evaluation, by_kind=changed))
    row = compare_mixed_ranking([model, *systems[1:]]).rows[0]
    assert cell(row, "novel R@10").number is None
    assert cell(row, "H").number is None


def test_recall_by_clicks_shows_the_slices_that_have_pairs(report):
    svg = draw_click_recall(report.mixed.rows)
    assert ">10–29<" in svg
    assert ">1–2<" not in svg
    assert ">metaxc, this model<" in svg
    assert 'fill="#3d7fe0"' in svg
