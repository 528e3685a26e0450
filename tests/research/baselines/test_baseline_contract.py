"""What every baseline must do, on data with a known answer."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc import Irene, IreneConfig, MetaxcError, evaluate
from metaxc.data import ClickLog, Dataset
from metaxc.research.baselines import BASELINES, Retrained, scorer_search
from metaxc.research.baselines.baseline import Baseline

CHANCE = 100 / 24
"""P@1 in percent of a guess: one novel item of 24 is right."""

LEARNERS = {"ESZSL", "Neighbour kernel", "ZestXML", "SemSup-XC", "Retrained"}
"""Those that can learn which query word means which item word, and so answer every query."""

KINDS = [*BASELINES, "Retrained"]


def build(kind: str, encoder) -> Baseline:
    if kind == "Retrained":
        return Retrained(Irene(IreneConfig(folds=0), encoder=encoder))
    return BASELINES[kind].build(encoder)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def fitted(kind, market, hashed):
    return build(kind, hashed).fit(market)


class TestContract:
    def test_scores_are_one_finite_float_per_query_and_item(self, fitted, market):
        queries = market.test.queries.texts[:7]
        scores = fitted.scores(queries)
        assert scores.shape == (7, len(market.items))
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()

    def test_a_query_has_the_same_scores_alone_and_among_others(self, fitted, market):
        queries = market.test.queries.texts
        np.testing.assert_allclose(
            fitted.scores([queries[5]])[0], fitted.scores(queries)[5], rtol=1e-4, atol=1e-5
        )

    def test_no_queries_give_no_scores(self, fitted, market):
        assert fitted.scores([]).shape == (0, len(market.items))

    def test_fitting_twice_gives_the_same_scores(self, kind, fitted, market, hashed):
        queries = market.test.queries.texts
        np.testing.assert_array_equal(fitted.scores(queries), build(kind, hashed).fit(market).scores(queries))

    def test_clicks_on_novel_items_are_not_used(self, kind, fitted, market, hashed):
        queries = market.test.queries.texts
        without = build(kind, hashed).fit(_with_novel_clicks_moved(market))
        np.testing.assert_array_equal(fitted.scores(queries), without.scores(queries))

    def test_is_far_better_than_chance(self, kind, fitted, market):
        found = evaluate(scorer_search(fitted, len(market.items)), market, intervals=False)
        least = 90 if kind in LEARNERS else 7 * CHANCE
        assert found["zero_shot"]["P@1"] > least
        assert found["generalized"]["P@1"] > least

    def test_has_the_name_it_is_registered_by(self, kind, hashed):
        assert build(kind, hashed).name == kind


def _with_novel_clicks_moved(dataset: Dataset) -> Dataset:
    """Each novel item's training clicks given to the next query row, some of them deleted."""
    clicks = dataset.train.clicks.toarray()
    novel = np.roll(clicks[:, dataset.novel_rows], 31, axis=0)
    novel[::2] = 0
    clicks[:, dataset.novel_rows] = novel
    assert (csr_array(clicks) != dataset.train.clicks).nnz > 100
    return replace(dataset, train=ClickLog(dataset.train.queries, csr_array(clicks)))


def test_the_registry_can_be_imported_without_the_optional_packages():
    code = (
        "import sys; sys.modules['bm25s'] = None; from metaxc.research.baselines import BASELINES; "
        "print(len(BASELINES))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "9"


def test_a_missing_package_is_an_error_with_the_install_command(monkeypatch, market):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MetaxcError, match=r"pip install 'metaxc\[research\]'"):
        BASELINES["BM25"].build().fit(market)


def test_a_search_returns_only_allowed_items(market, hashed):
    fitted = BASELINES["Siamese"].build(hashed).fit(market)
    found = scorer_search(fitted, len(market.items))(market.test.queries.texts[:4], 30, market.novel_mask)
    assert found.shape == (4, 30)
    assert market.novel_mask[found[:, :24]].all()
    assert (found[:, 24:] == -1).all()
