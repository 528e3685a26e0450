"""What is specific to the scan index: its codes, its rebuild, and that it does scan."""

from threading import Event

import faiss
import numpy as np
import pytest
from index_worlds import brute_force, catalog_vectors, recall

from metaxc.index import ScanIndex, scan
from metaxc.index.exact import rank_candidates, search_table
from metaxc.index.pq_codes import SINGLE_THREAD_MAX, PQCodes, QuantisationFit

DIM = 24


def search_new_index(codes: PQCodes, vectors, queries, k):
    """Scores that faiss itself finds with the same code book and all vectors added in order."""
    fresh = faiss.deserialize_index(codes.to_arrays()["codes"])
    fresh.reset()
    fresh.add(vectors)
    return fresh.search(queries, k)[0]


def test_codes_changed_in_place_equal_those_of_faiss():
    random = np.random.default_rng(0)
    vectors = catalog_vectors(700, DIM, seed=1)
    queries = catalog_vectors(20, DIM, seed=2)
    codes = PQCodes.train(vectors[:300], vectors[:300])
    codes.write(np.arange(500), codes.encode(vectors[:500]))
    held = vectors[:500].copy()
    for _ in range(5):
        rows = random.choice(len(held), 100, replace=False)
        held[rows] = vectors[random.integers(0, 700, 100)]
        codes.write(rows, codes.encode(held[rows]))
        left = len(held) - int(random.integers(1, 80))
        sources, targets = np.arange(left, len(held)), random.choice(left, len(held) - left, replace=False)
        held[targets] = held[sources]
        codes.copy_rows(sources, targets)
        codes.truncate(left)
        held = np.concatenate([held[:left], vectors[500:533]])
        codes.write(np.arange(left, len(held)), codes.encode(vectors[500:533]))
        assert len(codes) == len(held)
        np.testing.assert_array_equal(
            codes.search(queries, 30)[1], search_new_index(codes, held, queries, 30)
        )


def test_same_sample_gives_same_codes():
    sample = catalog_vectors(500, DIM, seed=1)
    one, other = (PQCodes.train(sample, sample, seed=3).to_arrays()["codes"] for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert (PQCodes.train(sample, sample, seed=4).to_arrays()["codes"] != one).any()


def test_scan_compares_only_the_shortlist(small_scan, monkeypatch):
    """With a shortlist of 60 out of 2,000, few vectors are compared, and nearly all results are still found."""
    compared = []
    monkeypatch.setattr(
        scan,
        "rank_candidates",
        lambda *given: compared.append(len(given[2])) or rank_candidates(*given),
    )
    vectors = catalog_vectors(2000, DIM, seed=1)
    index = ScanIndex(DIM)
    index.add(np.arange(2000), vectors)
    queries = catalog_vectors(100, DIM, seed=3)
    found = index.search(queries, 5)[0]
    assert compared == [60] * 100
    assert recall(found, brute_force(dict(enumerate(vectors)), queries, 5)) > 0.99


def test_filter_enlarges_the_shortlist(small_scan, monkeypatch):
    asked = []
    search = PQCodes.search
    monkeypatch.setattr(
        PQCodes, "search", lambda codes, queries, k: asked.append(k) or search(codes, queries, k)
    )
    index = ScanIndex(DIM)
    index.add(np.arange(2000), catalog_vectors(2000, DIM, seed=1))
    query = catalog_vectors(1, DIM, seed=3)
    index.search(query, 5, np.arange(0, 2000, 2))
    index.search(query, 5, np.arange(20))
    # 15 for each of 5 results, · 2 · 1.5; the few allowed vectors are compared without a scan
    assert asked == [225]


def with_novelty(vectors, seed):
    """Vectors with one more coordinate: items with 0, 1, 2, … clicks, more of them with few."""
    clicks = np.floor(np.random.default_rng(seed).lognormal(1.0, 1.2, len(vectors)))
    return np.concatenate([vectors, (3 / (clicks + 3))[:, None]], axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def novelty_world():
    """An index of 12,000 items as a catalog has them, and 100 queries of length 1."""
    vectors = with_novelty(catalog_vectors(12_000, 64, seed=1), seed=5)
    index = ScanIndex(vectors.shape[1])
    index.add(np.arange(len(vectors)), vectors)
    queries = catalog_vectors(100, 64, seed=3)
    return index, vectors, queries / np.linalg.norm(queries, axis=1, keepdims=True)


@pytest.mark.parametrize("exposure", [-100.0, -20.0, -0.5, 0.0, 0.3, 1.0, 6.0, 100.0])
def test_recall_holds_for_every_exposure(novelty_world, exposure):
    index, vectors, queries = novelty_world
    queries = np.concatenate([queries, np.full((len(queries), 1), exposure, np.float32)], axis=1)
    found = index.search(queries, 10)[0]
    assert recall(found, brute_force(dict(enumerate(vectors)), queries, 10)) >= 0.99


def test_a_usual_exposure_is_scanned_and_a_huge_one_compared(novelty_world, monkeypatch):
    index, _, queries = novelty_world
    compared = []
    monkeypatch.setattr(
        scan,
        "search_table",
        lambda table, given, *rest: compared.append(len(given)) or search_table(table, given, *rest),
    )
    for exposure in (0.3, 5.0, 7.0):
        index.search(np.concatenate([queries[:9], np.full((9, 1), exposure, np.float32)], axis=1), 10)
    assert compared == [9]


def test_codes_that_no_longer_fit_are_rebuilt(small_scan):
    index = ScanIndex(DIM)
    index.add(np.arange(600), catalog_vectors(600, DIM, seed=1))
    before = index._codes
    index.add(np.arange(600, 1200), catalog_vectors(600, DIM, seed=2))
    index.wait()
    assert index._codes is before
    # 30 times as long, as if another model had computed them.
    index.add(np.arange(1200, 2400), 30 * catalog_vectors(1200, DIM, seed=3))
    index.wait()
    assert index._codes is not before
    assert len(index._codes) == 2400
    assert not index._codes.needs_retraining()


def test_long_vectors_have_accurate_codes_because_they_are_found_most(small_scan):
    """One in fifty is ten times as long as the rest, and nearly all results are among them."""
    vectors = catalog_vectors(3000, DIM, seed=1)
    vectors[::50] *= 10
    index = ScanIndex(DIM)
    index.add(np.arange(3000), vectors)
    queries = catalog_vectors(200, DIM, seed=3)
    right = brute_force(dict(enumerate(vectors)), queries, 10)
    assert np.mean(right % 50 == 0) > 0.9
    assert recall(index.search(queries, 10)[0], right) > 0.99


def test_outliers_are_found_at_once_whatever_their_codes(small_scan):
    index = ScanIndex(DIM)
    vectors = catalog_vectors(700, DIM, seed=1)
    index.add(np.arange(600), vectors[:600])
    before = index._codes
    world = dict(enumerate(vectors[:600]))
    for key in range(600, 630):
        world[key] = 20 * vectors[key]
        index.add(np.array([key]), world[key][None])
    index.remove(np.arange(0, 600, 7))
    world = {key: vector for key, vector in world.items() if key in index}
    queries = catalog_vectors(50, DIM, seed=4)
    allowed = set(range(100, 620))
    assert index._codes is before
    assert len(before.outliers) == 30
    assert np.isin(np.arange(600, 630), index._table.keys[before.outliers]).all()
    np.testing.assert_array_equal(index.search(queries, 5)[0], brute_force(world, queries, 5))
    np.testing.assert_array_equal(
        index.search(queries, 5, np.array(sorted(allowed)))[0], brute_force(world, queries, 5, allowed)
    )
    index.add(np.arange(600, 630), vectors[600:630])
    assert len(before.outliers) < 5


def test_equal_vectors_beyond_the_shortlist_are_ordered_by_key(small_scan):
    """All have the same code, so the scan cannot decide which of them belong to the shortlist."""
    vectors = catalog_vectors(600, DIM, seed=1)
    index = ScanIndex(DIM)
    index.add(np.arange(1000, 1600), vectors)
    longest = vectors[[np.linalg.norm(vectors, axis=1).argmax()]]
    index.add(np.random.default_rng(0).permutation(200), np.repeat(longest, 200, axis=0))
    assert len(index._codes.outliers) == 0
    assert index.search(longest, 10)[0].tolist() == [list(range(10))]
    even = np.arange(0, 1600, 2)
    assert index.search(longest, 10, even)[0].tolist() == [list(range(0, 20, 2))]


def test_retraining_needs_enough_added_vectors():
    def needs_retraining(added, added_error, count):
        fit = QuantisationFit(trained_error=0.1, added=added, added_error=added_error, added_length=100.0)
        return fit.needs_retraining(count)

    assert not needs_retraining(511, 99.0, 1000)
    assert needs_retraining(512, 16.0, 1000)
    assert not needs_retraining(512, 14.0, 1000)
    assert not needs_retraining(512, 16.0, 10_000)


@pytest.mark.parametrize("grown", [True, False])
@pytest.mark.parametrize("when", ["before the training", "before the swap"])
def test_searches_and_changes_continue_during_a_rebuild(small_scan, monkeypatch, grown, when):
    started, go = Event(), Event()
    train, encode = PQCodes.train, ScanIndex._encode_next_chunk

    def pause_if(now):
        if now:
            started.set()
            assert go.wait(30)

    def paused_train(sample, fit_sample, seed):
        pause_if(when == "before the training")
        return train(sample, fit_sample, seed)

    def paused_encode(index, codes):
        more = encode(index, codes)
        pause_if(not more and when == "before the swap")
        return more

    vectors = catalog_vectors(900, DIM, seed=1)
    query = catalog_vectors(1, DIM, seed=3)
    index = ScanIndex(DIM)
    index.add(np.arange(50), vectors[:50])
    monkeypatch.setattr(PQCodes, "train", paused_train)
    monkeypatch.setattr(ScanIndex, "_encode_next_chunk", paused_encode)
    index.add(np.arange(50, 700), vectors[50:700])
    assert started.wait(30)
    world = dict(enumerate(vectors[:700]))
    assert index.search(query, 5)[0].tolist() == brute_force(world, query, 5).tolist()
    index.remove(np.arange(0, 600, 3) if grown else np.arange(620))
    world = {key: vector for key, vector in world.items() if key in index}
    index.add(np.arange(700, 710), 9 * vectors[700:710])
    index.add(np.array([699]), 9 * query)
    if grown:
        index.add(np.arange(710, 900), vectors[710:900])
        world.update(zip(range(710, 900), vectors[710:900], strict=True))
    world.update(zip(range(700, 710), 9 * vectors[700:710], strict=True))
    world[699] = 9 * query[0]
    assert index.search(query, 1)[0].tolist() == [[699]]
    go.set()
    index.wait()
    assert len(index._codes) == len(index) == len(world)
    queries = catalog_vectors(50, DIM, seed=4)
    np.testing.assert_array_equal(index.search(queries, 5)[0], brute_force(world, queries, 5))
    held = index._table.vectors[: len(index)]
    np.testing.assert_array_equal(
        index._codes.search(queries, 40)[1], search_new_index(index._codes, held, queries, 40)
    )


def test_failed_rebuild_leaves_the_index_unchanged(small_scan, monkeypatch):
    index = ScanIndex(DIM)
    index.add(np.arange(10), catalog_vectors(10, DIM, seed=1))
    vectors = catalog_vectors(200, DIM, seed=1)
    with monkeypatch.context() as broken:

        def fails(sample, typical, seed):
            raise MemoryError

        broken.setattr(PQCodes, "train", fails)
        index._rebuild_lock.acquire()
        with pytest.raises(MemoryError):
            index._rebuild()
    index.add(np.arange(200), vectors)
    index.wait()
    assert len(index._codes) == 200


def test_codes_do_not_depend_on_the_number_of_threads():
    vectors = np.random.default_rng(0).normal(size=(SINGLE_THREAD_MAX + 1, 64)).astype(np.float32)
    codes, before = PQCodes.train(vectors, vectors), faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        many, few = codes.encode(vectors), codes.encode(vectors[:SINGLE_THREAD_MAX])
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)
    np.testing.assert_array_equal(few.codes, many.codes[:SINGLE_THREAD_MAX])
    np.testing.assert_allclose(few.errors, many.errors[:SINGLE_THREAD_MAX], rtol=1e-5)
