"""The figures by which a new generation is accepted or refused."""

import numpy as np
import pytest
from world_model import build_model

from metaxc.catalog import Catalog, NewItem
from metaxc.catalog.generation_checks import (
    compare_generations,
    compute_recalls,
    novel_recall,
    sample_queries,
)
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.classifiers import Classifiers


@pytest.fixture
def built(catalog, other_model):
    """A catalog and a new generation of it that is not in use."""
    switch = ModelSwitch(catalog, other_model)
    switch.build()
    yield catalog, switch
    switch.abandon()


def test_recall_is_the_share_of_the_exact_answers():
    found, exact = np.array([[1, 2, 3], [4, 5, -1]]), np.array([[1, 2, 9], [4, 5, -1]])
    assert compute_recalls(found, exact) == pytest.approx([2 / 3, 1])


def test_an_exact_index_has_full_recall_and_the_same_vectors_change_nothing(built):
    catalog, _ = built
    found = compare_generations(catalog, catalog, 30)
    assert (found.queries, found.recall, found.changed) == (30, 1.0, 0.0)


def test_another_models_answers_are_counted_as_changed(built):
    catalog, switch = built
    found = compare_generations(catalog, switch.catalog, 40)
    queries = [query.text for query in sample_queries(catalog, 40)]
    same = [
        len({hit.id for hit in old} & {hit.id for hit in new}) / 10
        for old, new in zip(catalog.search(queries, 10), switch.catalog.search(queries, 10), strict=True)
    ]
    assert found.changed == pytest.approx(1 - np.mean(same))
    assert found.novel_clicks == 0
    assert found.novel_recall_before is None


def test_the_sample_begins_with_known_queries_and_ends_with_clicked_ones(catalog):
    catalog.click("i0", "q3")
    known = [f"t{number}" for number in range(0, 160, 4)]
    texts = [query.text for query in sample_queries(catalog, 4)]
    assert texts == [known[0], known[10], known[20], known[30]]
    sample = sample_queries(catalog, 50)
    assert [query.text for query in sample] == [*known, "q3"]
    assert [query.table for query in sample] == [*["queries"] * 40, "clicks"]


def test_recent_clicks_on_items_that_no_model_knows_are_replayed_as_if_they_were_novel(
    world, catalog, other_model, tmp_path
):
    """Queries of group 0 click `right`, which is one of that group, and `wrong`, which is of another."""
    catalog.add([NewItem("right", "i4"), NewItem("wrong", "i39")])
    right, wrong, _ = catalog.clicks([("right", "q0"), ("wrong", "q0"), ("i0", "q1")])
    assert novel_recall(catalog, [("right", right.number)]) == 1.0
    replayed = [("right", right.number), ("wrong", wrong.number), ("missing", right.number), ("right", 10**6)]
    assert novel_recall(catalog, replayed) == 0.5
    switch = ModelSwitch(catalog, other_model)
    switch.build()
    found = compare_generations(catalog, switch.catalog)
    assert (found.novel_clicks, found.novel_recall_before, found.novel_recall_after) == (2, 0.5, 0.5)
    switch.abandon()


def test_a_model_that_misplaces_new_items_has_a_lower_novel_recall(world, tmp_path, model):
    """Its classifiers point away from the queries of their items."""
    fitted = build_model(world).classifiers
    wrong = build_model(world, Classifiers(-fitted.weights, fitted.clicks), neighbours=4)
    with Catalog.create(tmp_path / "one", model) as catalog:
        catalog.add([NewItem("right", "i4")])
        catalog.click("right", "q0")
        switch = ModelSwitch(catalog, wrong)
        switch.build()
        found = compare_generations(catalog, switch.catalog)
        assert (found.novel_recall_before, found.novel_recall_after) == (1.0, 0.0)
        assert (found.queries, found.changed) == (1, pytest.approx(0.9))  # `right` itself has its own click
        switch.abandon()
