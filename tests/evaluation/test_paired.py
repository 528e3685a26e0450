"""Two systems on the same queries."""

import numpy as np
import pytest

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.evaluation import evaluate, paired_intervals, paired_values

QUERIES = 60


@pytest.fixture
def world():
    """Queries 0 to 29 clicked the novel item 1, the others the observed item 0."""
    names = [f"q{i}" for i in range(QUERIES)]
    clicked = np.where(np.arange(QUERIES) < 30, 1, 0)
    log = ClickLog(Texts(names, names), click_matrix(np.arange(QUERIES), clicked, (QUERIES, 2)))
    return Dataset(Texts(["i0", "i1"], ["i0", "i1"]), log, log, np.array([False, True]))


def always(item):
    def search(texts, k, among):
        return np.full((len(texts), 1), 1 if among is not None else item)

    return search


def test_a_loss_on_novel_items_shows_where_the_mean_hides_it(world):
    observed, novel = (paired_values(evaluate(always(item), world)) for item in (0, 1))
    found = paired_intervals(observed, novel)
    assert found.keys() == {"zero_shot", "generalized", "novel", "observed"}
    assert found["novel"]["R@10"][:3] == pytest.approx((-100, -100, -100))
    assert found["novel"]["R@10"].below
    assert found["observed"]["R@10"].difference == pytest.approx(100)
    assert not found["observed"]["R@10"].below
    assert found["generalized"]["P@1"].difference == 0
    assert not found["generalized"]["P@1"].below
    np.testing.assert_array_equal(observed["novel"]["queries"], np.arange(30))


def test_settings_with_other_queries_are_not_compared(world):
    a = paired_values(evaluate(always(0), world))
    b = {**a, "generalized": {**a["generalized"], "queries": a["generalized"]["queries"][::-1]}}
    assert paired_intervals(a, b).keys() == {"zero_shot", "novel", "observed"}
    assert paired_intervals(a, {}) == {}
