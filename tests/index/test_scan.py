"""What is the scan's own: its codes, its rebuild, and that it does scan."""

from threading import Event

import faiss
import numpy as np
import pytest
from index_worlds import brute_force, catalog_vectors, recall

from metaxc.index import ScanIndex, scan
from metaxc.index.codes import FEW, Codes, Wear
from metaxc.index.ranking import ranked

DIM = 24


def scanned_afresh(codes: Codes, vectors, queries, k):
    """What faiss itself finds with the same code book and all vectors added in order."""
    fresh = faiss.deserialize_index(codes.arrays()["codes"])
    fresh.reset()
    fresh.add(vectors)
    return fresh.search(queries, k)[0]


def test_codes_changed_in_place_are_those_faiss_would_have_made():
    random = np.random.default_rng(0)
    vectors = catalog_vectors(700, DIM, seed=1)
    queries = catalog_vectors(20, DIM, seed=2)
    codes = Codes.trained(vectors[:300], vectors[:300])
    codes.put(np.arange(500), codes.encoded(vectors[:500]))
    held = vectors[:500].copy()
    for _ in range(5):
        rows = random.choice(len(held), 100, replace=False)
        held[rows] = vectors[random.integers(0, 700, 100)]
        codes.put(rows, codes.encoded(held[rows]))
        left = len(held) - int(random.integers(1, 80))
        sources, targets = np.arange(left, len(held)), random.choice(left, len(held) - left, replace=False)
        held[targets] = held[sources]
        codes.move(sources, targets)
        codes.truncate(left)
        held = np.concatenate([held[:left], vectors[500:533]])
        codes.put(np.arange(left, len(held)), codes.encoded(vectors[500:533]))
        assert len(codes) == len(held)
        np.testing.assert_array_equal(codes.search(queries, 30)[1], scanned_afresh(codes, held, queries, 30))


def test_the_same_sample_gives_the_same_codes():
    sample = catalog_vectors(500, DIM, seed=1)
    one, other = (Codes.trained(sample, sample, seed=3).arrays()["codes"] for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert (Codes.trained(sample, sample, seed=4).arrays()["codes"] != one).any()


def test_a_scan_looks_at_the_shortlist_only(small_scan, monkeypatch):
    """With a shortlist of 60 among 2,000 hardly any vector is looked at, and still nearly all are found."""
    looked = []
    monkeypatch.setattr(
        scan,
        "ranked",
        lambda *given: looked.append(len(given[2])) or ranked(*given),
    )
    vectors = catalog_vectors(2000, DIM, seed=1)
    index = ScanIndex(DIM)
    index.add(np.arange(2000), vectors)
    queries = catalog_vectors(100, DIM, seed=3)
    found = index.search(queries, 5)[0]
    assert looked == [60] * 100
    assert recall(found, brute_force(dict(enumerate(vectors)), queries, 5)) > 0.99


def test_a_filter_enlarges_the_shortlist(small_scan, monkeypatch):
    asked = []
    search = Codes.search
    monkeypatch.setattr(
        Codes, "search", lambda codes, queries, k: asked.append(k) or search(codes, queries, k)
    )
    index = ScanIndex(DIM)
    index.add(np.arange(2000), catalog_vectors(2000, DIM, seed=1))
    query = catalog_vectors(1, DIM, seed=3)
    index.search(query, 5, np.arange(0, 2000, 2))
    index.search(query, 5, np.arange(20))
    assert asked == [180]  # 60 · 2 · 1.5; the few are looked at one and all


def test_codes_that_no_longer_fit_are_rebuilt(small_scan):
    index = ScanIndex(DIM)
    index.add(np.arange(600), catalog_vectors(600, DIM, seed=1))
    before = index._codes
    index.add(np.arange(600, 1200), catalog_vectors(600, DIM, seed=2))
    index.wait()
    assert index._codes is before
    # 30 times as long: as if another model had made them.
    index.add(np.arange(1200, 2400), 30 * catalog_vectors(1200, DIM, seed=3))
    index.wait()
    assert index._codes is not before
    assert len(index._codes) == 2400
    assert not index._codes.worn()


def test_long_vectors_are_coded_well_because_they_are_answered_most(small_scan):
    """One in fifty is ten times as long as the rest: nearly all answers are among them."""
    vectors = catalog_vectors(3000, DIM, seed=1)
    vectors[::50] *= 10
    index = ScanIndex(DIM)
    index.add(np.arange(3000), vectors)
    queries = catalog_vectors(200, DIM, seed=3)
    right = brute_force(dict(enumerate(vectors)), queries, 10)
    assert np.mean(right % 50 == 0) > 0.9
    assert recall(index.search(queries, 10)[0], right) > 0.99


def test_a_vector_unlike_all_others_is_found_at_once_and_its_codes_are_not_trusted(small_scan):
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
    assert len(before.odd) == 30
    assert np.isin(np.arange(600, 630), index._slots.keys[before.odd]).all()
    np.testing.assert_array_equal(index.search(queries, 5)[0], brute_force(world, queries, 5))
    np.testing.assert_array_equal(
        index.search(queries, 5, np.array(sorted(allowed)))[0], brute_force(world, queries, 5, allowed)
    )
    index.add(np.arange(600, 630), vectors[600:630])
    assert len(before.odd) < 5


def test_twins_beyond_the_shortlist_come_in_the_order_of_their_keys(small_scan):
    """All have the code of a vector that the codes were trained on, so the scan cannot tell which ones to keep."""
    vectors = catalog_vectors(600, DIM, seed=1)
    index = ScanIndex(DIM)
    index.add(np.arange(1000, 1600), vectors)
    longest = vectors[[np.linalg.norm(vectors, axis=1).argmax()]]
    index.add(np.random.default_rng(0).permutation(200), np.repeat(longest, 200, axis=0))
    assert len(index._codes.odd) == 0
    assert index.search(longest, 10)[0].tolist() == [list(range(10))]
    even = np.arange(0, 1600, 2)
    assert index.search(longest, 10, even)[0].tolist() == [list(range(0, 20, 2))]


def test_wear_is_judged_by_enough_vectors():
    assert not Wear(trained=0.1, added=511, error=99.0, length=100.0).worn(1000)
    assert Wear(trained=0.1, added=512, error=16.0, length=100.0).worn(1000)
    assert not Wear(trained=0.1, added=512, error=14.0, length=100.0).worn(1000)
    assert not Wear(trained=0.1, added=512, error=16.0, length=100.0).worn(10_000)


@pytest.mark.parametrize("grown", [True, False])
@pytest.mark.parametrize("when", ["before the training", "before the swap"])
def test_searches_and_changes_go_on_while_codes_are_rebuilt(small_scan, monkeypatch, grown, when):
    started, go = Event(), Event()
    train, fill = Codes.trained, ScanIndex._filled

    def held_up(now):
        if now:
            started.set()
            assert go.wait(30)

    def trained(sample, typical, seed):
        held_up(when == "before the training")
        return train(sample, typical, seed)

    def filled(index, codes):
        more = fill(index, codes)
        held_up(not more and when == "before the swap")
        return more

    vectors = catalog_vectors(900, DIM, seed=1)
    query = catalog_vectors(1, DIM, seed=3)
    index = ScanIndex(DIM)
    index.add(np.arange(50), vectors[:50])
    monkeypatch.setattr(Codes, "trained", trained)
    monkeypatch.setattr(ScanIndex, "_filled", filled)
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
    held = index._slots.vectors[: len(index)]
    np.testing.assert_array_equal(
        index._codes.search(queries, 40)[1], scanned_afresh(index._codes, held, queries, 40)
    )


def test_a_rebuild_that_fails_leaves_the_index_as_it_was(small_scan, monkeypatch):
    index = ScanIndex(DIM)
    index.add(np.arange(10), catalog_vectors(10, DIM, seed=1))
    vectors = catalog_vectors(200, DIM, seed=1)
    with monkeypatch.context() as broken:

        def fails(sample, typical, seed):
            raise MemoryError

        broken.setattr(Codes, "trained", fails)
        index._one_rebuild.acquire()
        with pytest.raises(MemoryError):
            index._rebuilt()
    index.add(np.arange(200), vectors)
    index.wait()
    assert len(index._codes) == 200


def test_few_vectors_are_coded_on_one_thread_as_many_are_on_all():
    vectors = np.random.default_rng(0).normal(size=(FEW + 1, 64)).astype(np.float32)
    codes, before = Codes.trained(vectors, vectors), faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        many, few = codes.encoded(vectors), codes.encoded(vectors[:FEW])
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(before)
    np.testing.assert_array_equal(few.codes, many.codes[:FEW])
    np.testing.assert_allclose(few.errors, many.errors[:FEW], rtol=1e-5)
