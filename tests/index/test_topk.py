import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metaxc.index import topk
from metaxc.index.topk import best_rows, top_k


def slow_top_k(scores, k):
    """Best first, ties by row."""
    return [sorted(range(len(line)), key=lambda row: (-line[row], row))[:k] for line in scores]


@given(
    arrays(np.float32, (7, 3), elements=st.integers(-2, 2).map(float)),
    arrays(np.float32, (23, 3), elements=st.integers(-2, 2).map(float)),
    st.integers(1, 23),
)
def test_equals_a_full_sort_with_ties_by_row(queries, vectors, k):
    rows, scores = top_k(queries, vectors, k)
    exact = queries @ vectors.T
    assert rows.tolist() == slow_top_k(exact, k)
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, rows, axis=1))


@pytest.mark.parametrize("block", [1, 4, 10])
def test_blocks_do_not_change_the_answer(monkeypatch, block):
    random = np.random.default_rng(0)
    queries = random.integers(-2, 3, (9, 4)).astype(np.float32)
    vectors = random.integers(-2, 3, (40, 4)).astype(np.float32)
    whole, _ = top_k(queries, vectors, 6)
    monkeypatch.setattr(topk, "VECTOR_BLOCK", block)
    monkeypatch.setattr(topk, "QUERY_BLOCK", block)
    assert top_k(queries, vectors, 6)[0].tolist() == whole.tolist()


@pytest.mark.parametrize("columns", [64 * 50, 64 * 50 + 13])
def test_many_columns_are_looked_at_in_groups_without_changing_the_answer(columns):
    """Few different scores, so that groups and rows tie; and many, so that they do not."""
    random = np.random.default_rng(0)
    for scores in (random.integers(0, 9, (20, columns)), random.standard_normal((20, columns))):
        scores = scores.astype(np.float32)
        best, rows = best_rows(torch.from_numpy(scores), 10)
        assert rows.tolist() == slow_top_k(scores, 10)
        np.testing.assert_array_equal(best, np.take_along_axis(scores, rows.numpy(), axis=1))


def test_only_allowed_rows_and_padding():
    vectors = np.eye(4, dtype=np.float32)
    allowed = np.array([False, True, False, True])
    rows, scores = top_k(np.array([[3, 2, 1, 0]], np.float32), vectors, 3, allowed)
    assert rows.tolist() == [[1, 3, -1]]
    assert scores[0, :2].tolist() == [2.0, 0.0]
    assert scores[0, 2] == -np.inf


def test_un_normalised_vectors_rank_by_inner_product():
    rows, _ = top_k(np.array([[1, 0]], np.float32), np.array([[1, 0], [5, 5]], np.float32), 2)
    assert rows.tolist() == [[1, 0]]


def test_best_rows_never_returns_more_than_there_are():
    scores, columns = best_rows(torch.tensor([[1.0, 2.0]]), 5)
    assert columns.tolist() == [[1, 0]]
    assert scores.tolist() == [[2.0, 1.0]]


def test_a_read_only_matrix_is_searched_without_a_copy_or_a_warning(tmp_path, monkeypatch, recwarn):
    """A memory-mapped matrix may be larger than the memory."""
    np.save(tmp_path / "vectors.npy", np.eye(4, 3, dtype=np.float32))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    searched = []
    best = topk._best_of_block
    monkeypatch.setattr(
        topk, "_best_of_block", lambda block, matrix, k: searched.append(matrix) or best(block, matrix, k)
    )
    queries = np.array([[1, 2, 3]], np.float32)
    queries.flags.writeable = False
    assert top_k(queries, vectors, 2)[0].tolist() == [[2, 1]]
    assert searched[0].data_ptr() == vectors.ctypes.data
    assert not vectors.flags.writeable
    assert not recwarn.list
