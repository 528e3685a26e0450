import numpy as np
import pytest

from metaxc.index import ArraySearch, array_search, ivf_codes, top_k
from metaxc.selectors import NearestSelector, load_selector, save_selector

COUNT, DIM = 24_000, 64


@pytest.fixture(scope="module")
def vectors():
    """Unit vectors around 400 centres."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((400, DIM)).astype(np.float32)
    rows = centres[random.integers(0, 400, COUNT)] + 0.7 * random.standard_normal((COUNT, DIM)).astype(
        np.float32
    )
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def arrays(vectors):
    """What the index of the vectors is restored from, so that it is built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_search, "INDEX_FROM", COUNT)
        return ArraySearch(vectors).arrays()


@pytest.fixture
def indexed(monkeypatch, vectors, arrays):
    """A search through an index; building another one is an error."""
    monkeypatch.setattr(array_search, "INDEX_FROM", COUNT)
    monkeypatch.setattr(ivf_codes.PQCodes, "train", None)
    return ArraySearch(vectors, arrays)


def share_found(rows, correct):
    return np.mean(
        [len(np.intersect1d(*pair)) / correct.shape[1] for pair in zip(rows, correct, strict=True)]
    )


def test_few_vectors_are_all_compared(vectors):
    search = ArraySearch(vectors[:1000])
    assert not search.is_indexed
    assert search.arrays() == {}
    excluded = np.arange(1000) < 500
    for found, correct in zip(
        search.search(vectors[:50], 5, excluded),
        top_k(vectors[:50], vectors[:1000], 5, ~excluded),
        strict=True,
    ):
        np.testing.assert_array_equal(found, correct)


def test_an_index_finds_nearly_all_with_exact_scores(indexed, vectors):
    assert indexed.is_indexed
    rows, scores = indexed.search(vectors[:500], 10)
    assert (
        0.97 < share_found(rows, top_k(vectors[:500], vectors, 10)[0]) < 1
    )  # an index, not a comparison of all
    np.testing.assert_allclose(scores, np.einsum("nd,nkd->nk", vectors[:500], vectors[rows]), atol=1e-5)


def test_without_faiss_all_are_compared(indexed, monkeypatch, vectors):
    monkeypatch.setattr(array_search, "has_extra", lambda module: False)
    assert not indexed.is_indexed
    np.testing.assert_array_equal(indexed.search(vectors[:50], 10)[0], top_k(vectors[:50], vectors, 10)[0])


@pytest.mark.parametrize("share", [0.01, 0.9])
def test_excluded_rows_are_never_found_and_the_others_fill_up(indexed, vectors, share):
    excluded = np.random.default_rng(1).random(COUNT) < share
    rows, scores = indexed.search(vectors[:100], 10, excluded)
    assert not excluded[rows].any()
    assert (rows >= 0).all()
    assert (np.diff(scores, axis=1) <= 0).all()
    assert share_found(rows, top_k(vectors[:100], vectors, 10, ~excluded)[0]) > 0.95


def test_no_query_builds_no_index(indexed):
    indexed._arrays = None  # an index would have to be built now
    rows, scores = indexed.search(np.empty((0, DIM), np.float32), 3)
    assert rows.shape == scores.shape == (0, 3)


def test_a_selector_leaves_the_item_itself_out(indexed, vectors, arrays):
    rows, _ = NearestSelector(vectors, arrays).select(vectors[:100], 3, exclude_self=np.arange(100))
    found = indexed.search(vectors[:100], 4)[0]
    assert (found[:, 0] == np.arange(100)).all()
    np.testing.assert_array_equal(rows, found[:, 1:])


def test_a_selector_is_saved_with_its_index(indexed, vectors, arrays, tmp_path):
    save_selector(tmp_path / "selector.safetensors", NearestSelector(vectors, arrays), {})
    loaded, _ = load_selector(tmp_path / "selector.safetensors", "nearest", None, vectors)
    np.testing.assert_array_equal(loaded.select(vectors[:50], 5)[0], indexed.search(vectors[:50], 5)[0])


def test_a_limit_on_scanned_codes_costs_recall_and_is_measured(indexed, vectors, arrays):
    limited = ArraySearch(vectors, arrays, most_scanned=1)
    whole, part = indexed.measure_recall(), limited.measure_recall()
    assert whole > 0.98
    assert 0.9 < part < whole - 0.005
    assert ArraySearch(vectors[:1000]).measure_recall() is None
