"""Everything that searches many vectors goes through the index: models, query expansion, evaluation and mining."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers
from metaxc.data import Texts
from metaxc.data.dataset import ClickLog, Dataset
from metaxc.emmett import Calibration, Emmett, ExpansionConfig, QueryExpansion
from metaxc.encoders import Vectors
from metaxc.encoders.training.negatives import IndexNegatives
from metaxc.evaluation import encoder_search, evaluate
from metaxc.generators import Combine
from metaxc.index import ArraySearch, array_search, ivf_codes, top_k

COUNT, DIM, QUERIES = 21_000, 64, 400


@pytest.fixture(scope="module")
def vectors():
    """Unit vectors around 300 centres; the last coordinate is 0, as that of items with many clicks."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((300, DIM)).astype(np.float32)
    rows = centres[random.integers(0, 300, COUNT)] + 0.7 * random.standard_normal((COUNT, DIM)).astype(
        np.float32
    )
    rows[:, -1] = 0
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def built(vectors):
    """What the index of the vectors is restored from, so that it is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_search, "INDEX_FROM", COUNT)
        return ArraySearch(vectors).arrays()


@pytest.fixture(autouse=True)
def with_index(monkeypatch):
    """The vectors here are many."""
    monkeypatch.setattr(array_search, "INDEX_FROM", COUNT)


@pytest.fixture
def no_building(monkeypatch):
    monkeypatch.setattr(ivf_codes.PQCodes, "train", None)


@pytest.fixture(scope="module")
def model(vectors, built):
    """A model with one observed item, whose item vectors are given."""
    items = Texts([f"i{row}" for row in range(COUNT)], [f"item {row}" for row in range(COUNT)])
    encoder = Vectors(["q"], vectors[:1, :-1], ["new"], vectors[7:8, :-1])
    known = Classifiers(vectors[:1, :-1], np.array([3]))
    return Emmett(
        encoder,
        known,
        vectors[:1, :-1],
        Combine(0.0, 0.1),
        items,
        np.array([0]),
        calibration=Calibration(novel_scale=1.0, exposure=0.0),
        vectors=vectors,
        index=built,
    )


def share_found(rows, correct):
    return np.mean(
        [len(np.intersect1d(*pair)) / correct.shape[1] for pair in zip(rows, correct, strict=True)]
    )


def test_a_model_searches_through_its_index(model, vectors, no_building):
    rows, scores = model.search_rows(vectors[:200, :-1], 10)
    assert 0.97 < share_found(rows, top_k(vectors[:200], vectors, 10)[0]) < 1  # not a comparison of all
    np.testing.assert_allclose(scores, np.einsum("nd,nkd->nk", vectors[:200], vectors[rows]), atol=1e-5)


def test_a_model_searches_among_some_of_its_items(model, vectors, no_building):
    among = np.arange(COUNT) % 3 == 0
    rows, _ = model.search_rows(vectors[:100, :-1], 10, among)
    assert among[rows].all()
    assert share_found(rows, top_k(vectors[:100], vectors, 10, among)[0]) > 0.97


def test_a_model_is_saved_with_its_index(model, vectors, no_building, tmp_path):
    model.save(tmp_path / "model")
    loaded = Emmett.load(tmp_path / "model")
    for found, correct in zip(
        loaded.search_rows(vectors[:50, :-1], 10), model.search_rows(vectors[:50, :-1], 10), strict=True
    ):
        np.testing.assert_array_equal(found, correct)
    assert loaded.fingerprint == model.fingerprint


def test_an_added_item_is_found_without_building_the_index_again(
    model, vectors, built, no_building, tmp_path
):
    model.save(tmp_path / "model")
    grown = Emmett.load(tmp_path / "model")
    grown.search_rows(vectors[:1, :-1])
    grown.add(["new"], ["new"])
    rows, scores = grown.search_rows(vectors[7:8, :-1], 2)
    assert sorted(rows[0].tolist()) == [7, COUNT]
    assert scores[0] == pytest.approx([1, 1], abs=1e-5)
    assert grown.vectors.shape == (COUNT + 1, DIM)


def test_the_index_of_query_expansion_is_saved(vectors, monkeypatch):
    clicks = csr_array(
        (np.ones(COUNT, np.float32), (np.arange(COUNT), np.arange(COUNT) % 5)), shape=(COUNT, 5)
    )
    config, items = ExpansionConfig(neighbours=5), np.eye(5, DIM, dtype=np.float32)
    expansion = QueryExpansion(vectors, clicks, items, config)
    saved = {**expansion.arrays(), **expansion.index_arrays()}
    found = expansion.nearest(vectors[:100], 5)[0]
    assert share_found(found, top_k(vectors[:100], expansion.queries, 5)[0]) > 0.97
    monkeypatch.setattr(ivf_codes.PQCodes, "train", None)
    restored = QueryExpansion.from_arrays(saved, items, config)
    np.testing.assert_array_equal(restored.nearest(vectors[:100], 5)[0], found)


def test_an_evaluation_says_how_much_the_index_finds(vectors):
    """Query i is item i and clicks it; the items with an even number are novel."""
    names = [f"t{row}" for row in range(COUNT)]
    queries = Texts(names[:QUERIES], names[:QUERIES])
    clicks = csr_array(
        (np.ones(QUERIES, np.float32), (np.arange(QUERIES), np.arange(QUERIES))), shape=(QUERIES, COUNT)
    )
    log = ClickLog(queries, clicks)
    data = Dataset(Texts(names, names), log, log, novel=np.arange(COUNT) % 2 == 0)
    encoder = Vectors(names[:QUERIES], vectors[:QUERIES], names, vectors)
    found = evaluate(encoder_search(encoder, data), data, intervals=False)
    assert found["generalized"]["P@1"] == 100
    for setting in ("zero_shot", "generalized"):
        recall = found.index_recall[setting]
        assert 95 < recall["R@10"] <= 100
        assert 90 < recall["R@100"] <= 100
    assert f"{found.index_recall['generalized']['R@10']:.1f} % of the first 10" in found.conventions
    assert found.to_dict()["index_recall"] == found.index_recall


def test_an_exact_evaluation_says_nothing_of_an_index(vectors, monkeypatch):
    monkeypatch.setattr(array_search, "INDEX_FROM", COUNT + 1)
    names = [f"t{row}" for row in range(COUNT)]
    clicks = csr_array((np.ones(2, np.float32), ([0, 1], [0, 1])), shape=(2, COUNT))
    log = ClickLog(Texts(names[:2], names[:2]), clicks)
    data = Dataset(Texts(names, names), log, log, novel=np.arange(COUNT) == 0)
    found = evaluate(
        encoder_search(Vectors(names[:2], vectors[:2], names, vectors), data), data, intervals=False
    )
    assert found.index_recall == {}
    assert "index_recall" not in found.to_dict()
    assert "index:" not in found.conventions


def test_mined_negatives_come_through_the_index_and_are_never_clicked(vectors):
    own = np.arange(QUERIES)
    clicks = csr_array((np.ones(QUERIES, np.float32), (own, own)), shape=(QUERIES, COUNT))
    negatives = IndexNegatives(vectors, clicks, per_query=20, depth=20)
    exact = top_k(vectors[:50], vectors, 21)[0]
    for row in range(50):
        drawn = negatives.draw(0, own[row : row + 1], vectors[row : row + 1], lambda: vectors)
        assert len(drawn) == 20
        assert row not in drawn
        assert np.isin(drawn, exact[row]).mean() > 0.8
