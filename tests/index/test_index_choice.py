import sys

import numpy as np
from index_worlds import catalog_vectors

from metaxc.index import ExactIndex, ScanIndex, build_index, choose_index
from metaxc.index.index_choice import SCAN_DIM, SCAN_FROM


def test_few_vectors_are_looked_at_one_and_all():
    index, reason = choose_index(SCAN_FROM - 1, 8)
    assert isinstance(index, ExactIndex)
    assert (len(index), index.dim) == (0, 8)
    assert reason.startswith(f"exact: {SCAN_FROM - 1:,} vectors")


def test_many_vectors_are_scanned():
    index, reason = choose_index(SCAN_FROM, 64)
    assert isinstance(index, ScanIndex)
    assert (len(index), index.dim) == (0, 64)
    assert reason.startswith(f"scan: {SCAN_FROM:,} vectors")


def test_short_vectors_are_looked_at_one_and_all():
    index, reason = choose_index(100_000, SCAN_DIM - 1)
    assert isinstance(index, ExactIndex)
    assert "below 64 dimensions" in reason


def test_without_faiss_all_are_looked_at_and_the_reason_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    index, reason = choose_index(SCAN_FROM, 64)
    assert isinstance(index, ExactIndex)
    assert "faiss is not installed (pip install 'metaxc[serve]')" in reason


def test_a_made_index_holds_the_vectors():
    vectors = catalog_vectors(SCAN_FROM, 64, seed=0)
    index, reason = build_index(np.arange(SCAN_FROM), vectors)
    assert reason.startswith("scan: ")
    assert "4-bit" in repr(index)
    np.testing.assert_array_equal(index.vectors_of(np.array([3, 1])), vectors[[3, 1]])
    few, reason = build_index(np.array([4, 2]), vectors[:2])
    assert reason.startswith("exact: ")
    np.testing.assert_array_equal(few.vectors_of(np.array([2, 4])), vectors[[1, 0]])
