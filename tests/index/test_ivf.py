"""What is specific to the index for millions of vectors: its lists, its measured recall, and its files."""

import json
import threading

import numpy as np
import pytest
from index_worlds import brute_force, catalog_vectors, recall

from metaxc.artifacts import load_arrays, save_arrays, write_manifest
from metaxc.errors import DataError, ModelError
from metaxc.index import IVFIndex, ivf, load_index, search_plan
from metaxc.index.ivf_codes import IVFCodes
from metaxc.index.list_layout import ListLayout, take_lists
from metaxc.index.search_plan import SearchPlan, draw_queries, find_exactly, measure_plan

DIM = 24
COUNT = 4000


def with_novelty(vectors, seed):
    """Vectors with one more coordinate: items with 0, 1, 2, … clicks, more of them with few."""
    clicks = np.floor(np.random.default_rng(seed).lognormal(1.0, 1.2, len(vectors)))
    return np.concatenate([vectors, (3 / (clicks + 3))[:, None]], axis=1).astype(np.float32)


def queries_with(exposure, count=100):
    queries = catalog_vectors(count, DIM, seed=3)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return np.concatenate([queries, np.full((count, 1), exposure, np.float32)], axis=1)


@pytest.fixture(scope="module")
def world():
    """An index of 4,000 items as a catalog has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ivf, "MIN_VECTORS", 64)
        vectors = with_novelty(catalog_vectors(COUNT, DIM, seed=1), seed=5)
        index = IVFIndex(DIM + 1)
        index.add(np.arange(COUNT), vectors)
        yield index, vectors


@pytest.mark.parametrize("exposure", [-3.0, 0.0, 0.3, 1.0, 5.0, 100.0])
def test_recall_is_that_of_the_target_for_every_exposure(world, exposure):
    index, vectors = world
    queries = queries_with(exposure)
    found = index.search(queries, 10)[0]
    assert recall(found, brute_force(dict(enumerate(vectors)), queries, 10)) >= 0.93


def test_a_search_scans_a_part_of_the_codes(world):
    index, _ = world
    assert 0.95 <= index.plan.recall < 1
    assert index.plan.scanned(10, COUNT) < 0.6 * COUNT
    assert index.plan.depth(10) < 400
    assert "recall@10 0.9" in repr(index)


def test_a_higher_target_searches_further(world):
    index, vectors = world
    before = index.plan
    try:
        higher = index.tune(recall=0.99)
        queries = queries_with(0.3)
        found = index.search(queries, 10)[0]
    finally:
        index.plan = before
    assert higher.recall >= 0.99
    assert higher.scanned(10, COUNT) > before.scanned(10, COUNT)
    assert recall(found, brute_force(dict(enumerate(vectors)), queries, 10)) >= 0.98


def test_queries_that_are_given_decide_how_far_a_search_goes(world):
    """Queries equal to stored vectors find themselves in the first list."""
    index, vectors = world
    before = index.plan
    try:
        assert index.tune(np.repeat(vectors[:1], 50, axis=0)).shares[0] < before.shares[0]
    finally:
        index.plan, index._sample_queries = before, None


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.01])
def test_recall_out_of_range_is_an_error(wrong):
    with pytest.raises(DataError, match="out of range"):
        IVFIndex(4, recall=wrong)


def test_lists_changed_in_place_hold_the_codes_of_the_rows():
    random = np.random.default_rng(0)
    vectors = with_novelty(catalog_vectors(900, DIM, seed=1), seed=5)
    index = IVFIndex(DIM + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ivf, "MIN_VECTORS", 64)
        index.add(np.arange(500), vectors[:500])
    for turn in range(4):
        keys = index._table.keys[: len(index)].copy()
        index.remove(random.choice(keys, 120, replace=False))
        index.add(
            np.arange(1000 * turn + 500, 1000 * turn + 600), vectors[500 + 100 * turn : 600 + 100 * turn]
        )
        kept = index._table.keys[: len(index)][:50].copy()
        index.add(kept, vectors[random.integers(0, 900, 50)])
    codes, held = index._codes, index._table.vectors[: len(index)]
    assert isinstance(codes, IVFCodes)
    assert codes.sizes.sum() == len(codes) == len(index)
    np.testing.assert_array_equal(codes.lists_of(np.arange(len(codes))), codes.layout.assign(held))
    fresh = IVFCodes(codes, codes.layout)
    fresh.write(np.arange(len(held)), fresh.encode(held))
    queries = queries_with(0.3, 20)
    changed, new = (each.search_lists(queries, len(held), len(held)) for each in (codes, fresh))
    np.testing.assert_array_equal(changed[1], new[1])
    assert (np.sort(changed[0]) == np.arange(len(held))).all()


def test_a_novelty_is_divided_into_bands_and_other_coordinates_are_not():
    vectors = catalog_vectors(1000, DIM, seed=1)
    assert not ListLayout.train(vectors, 20, 0).is_banded
    layout = ListLayout.train(with_novelty(vectors, 5), 20, 0)
    assert layout.is_banded
    assert layout.bands[-1] == pytest.approx(1.0, abs=0.01)
    lists = layout.assign(with_novelty(vectors, 5))
    novel = with_novelty(vectors, 5)[:, -1] == 1
    assert not set(lists[novel] % len(layout.bands)) & set(lists[~novel] % len(layout.bands))


def test_lists_are_taken_until_they_hold_enough():
    sizes, scores = np.array([5, 0, 7, 3]), np.array([1.0, 9.0, 3.0, 2.0], np.float32)
    assert take_lists(scores, sizes, 7).tolist() == [2]
    assert take_lists(scores, sizes, 8).tolist() == [2, 3]
    assert take_lists(scores, sizes, 99).tolist() == [2, 3, 0]
    many = np.arange(2000, dtype=np.float32)
    assert take_lists(many, np.where(many > 1000, 1, 50), 1200).tolist() == list(range(1999, 995, -1))


def test_a_plan_grows_with_the_number_of_results():
    plan = SearchPlan(0.95, (0.01, 0.04), (50.0, 800.0))
    assert (plan.scanned(10, 10_000), plan.depth(10), plan.depth(1)) == (100, 50, 50)
    assert (plan.scanned(100, 1_000_000), plan.depth(100)) == (40_000, 800)
    assert plan.scanned(10**9, 1_000_000) == 1_000_000
    assert SearchPlan.from_array(plan.to_array()) == plan


def test_the_recall_is_measured_again_after_many_changes(monkeypatch):
    monkeypatch.setattr(ivf, "MIN_VECTORS", 64)
    index = IVFIndex(DIM)
    index.add(np.arange(600), catalog_vectors(600, DIM, seed=1))
    before = index._codes
    measured = []
    measure = IVFIndex._measure
    monkeypatch.setattr(IVFIndex, "_measure", lambda *given: measured.append(1) or measure(*given))
    index.add(np.arange(60), catalog_vectors(60, DIM, seed=2))
    index.wait()
    assert not measured
    index.remove(np.arange(60))
    index.wait()
    assert measured == [1]
    assert index._codes is before
    index.add(np.arange(600, 2600), catalog_vectors(2000, DIM, seed=2))
    index.wait()
    assert len(index._codes.layout) > len(before.layout)


@pytest.fixture
def small_index(monkeypatch):
    """An index of 600 vectors that uses lists."""
    monkeypatch.setattr(ivf, "MIN_VECTORS", 64)
    index = IVFIndex(DIM)
    index.add(np.arange(600), catalog_vectors(600, DIM, seed=1))
    return index


def test_a_writer_gets_in_between_the_pieces_of_a_measurement(small_index, monkeypatch):
    """The writer starts while the first piece holds the lock, and must have finished before the last one."""
    index = small_index
    writer = threading.Thread(target=index.add, args=(np.arange(5), catalog_vectors(5, DIM, seed=2)))
    waited, sizes, changed = [], [], []
    search, reading, measure = IVFCodes.search_lists, index._lock.reading, ivf.measure_plan

    def observed_search(self, queries, *given):
        if writer.ident is None:
            writer.start()
        waited.append(writer.is_alive())
        sizes.append(len(queries))
        return search(self, queries, *given)

    def reading_after_the_writer():
        if writer.ident is not None:
            writer.join(60)
        return reading()

    monkeypatch.setattr(IVFCodes, "search_lists", observed_search)
    monkeypatch.setattr(index._lock, "reading", reading_after_the_writer)
    monkeypatch.setattr(ivf, "measure_plan", lambda *given: changed.append(given[-1]) or measure(*given))
    index.tune()
    writer.join()
    assert waited[0]
    assert not waited[-1]
    assert max(sizes) == search_plan.MEASURE_CHUNK < search_plan.SAMPLE_QUERIES
    assert changed == [set(range(5))]


def test_rows_that_changed_during_a_measurement_are_ignored(small_index):
    codes, vectors = small_index._codes, small_index._table.vectors[:600]
    queries = draw_queries(vectors[:100], False, 0)
    correct = find_exactly(queries, lambda start: vectors[start : start + 250], 100)
    changed = set(range(0, 600, 2))
    expected = measure_plan(codes, queries, np.where(correct % 2, correct, -1), 0.9)
    stale = np.where(correct % 2, correct, (correct + 300) % 600)
    assert measure_plan(codes, queries, stale, 0.9, changed=changed) == expected
    assert measure_plan(codes, queries, stale, 0.9) != expected
    assert measure_plan(codes, queries, stale, 0.9, changed=set(range(600))) == SearchPlan(0.9)


def test_tuning_and_rebuilding_exclude_each_other(small_index, monkeypatch):
    held, measure = [], IVFIndex._measure
    monkeypatch.setattr(
        IVFIndex,
        "_measure",
        lambda self, *given: held.append(self._rebuild_lock.locked()) or measure(self, *given),
    )
    small_index.tune(recall=0.9)
    assert held == [True]
    assert not small_index._rebuild_lock.locked()


def test_a_new_plan_takes_effect_together_with_its_codes(small_index, monkeypatch):
    """What a search would use is compared after the new plan was measured and before its codes are used."""
    index = small_index
    before, seen, encode_changes = (
        (index._codes, index.plan, index._trained_count),
        [],
        IVFIndex._encode_changes,
    )
    monkeypatch.setattr(
        IVFIndex,
        "_encode_changes",
        lambda self, codes: (
            seen.append((self._codes, self.plan, self._trained_count)) or encode_changes(self, codes)
        ),
    )
    index.add(np.arange(600, 2600), catalog_vectors(2000, DIM, seed=2))
    index.wait()
    assert seen == [before]
    assert index._codes is not before[0]
    assert index.plan is not before[1]
    assert index._trained_count == 2600


def test_a_missed_recall_is_reported(monkeypatch, caplog):
    """Shortlists of one candidate per result cannot reach it, however many codes are scanned."""
    monkeypatch.setattr(ivf, "MIN_VECTORS", 64)
    index = IVFIndex(DIM, recall=0.99)
    assert index.measured_recall is None
    vectors = np.random.default_rng(0).standard_normal((600, DIM)).astype(np.float32)
    index.add(np.arange(600), vectors)
    assert index.measured_recall == index.plan.recall >= 0.99
    assert not caplog.records
    monkeypatch.setattr(search_plan, "DEEPEST", 1)
    index.tune()
    assert 0 < index.measured_recall < 0.99
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{index.measured_recall:.3f} measured, 0.990 asked for" in record.getMessage()


def test_an_index_from_vectors_and_codes_keeps_the_codes_and_measures_them(small_index):
    codes, vectors = small_index._codes, small_index._table.vectors[:600].copy()
    index = IVFIndex.from_vectors(np.arange(600), vectors, codes)
    assert index._codes is codes
    assert index._trained_count == 600
    assert index.plan == small_index.plan


def test_recall_after_churn_is_that_of_a_fresh_index(monkeypatch):
    """At a recall that is tuned, so that a code in the wrong list is missed."""
    monkeypatch.setattr(ivf, "MIN_VECTORS", 64)
    random = np.random.default_rng(0)
    count, fifth = 3000, 600
    keys, vectors = np.arange(count), with_novelty(catalog_vectors(count, DIM, seed=1), seed=5)
    index = IVFIndex(DIM + 1, recall=0.9)
    index.add(keys, vectors)
    for turn in range(5):
        places = random.choice(count, fifth, replace=False)
        index.remove(keys[places])
        index.wait()
        keys[places] = np.arange(fifth) + count + turn * fifth
        vectors[places] = with_novelty(catalog_vectors(fifth, DIM, seed=10 + turn), seed=20 + turn)
        index.add(keys[places], vectors[places])
        index.wait()
    fresh = IVFIndex(DIM + 1, recall=0.9)
    fresh.add(keys, vectors)
    queries = queries_with(0.3, 200)
    correct = brute_force(dict(zip(keys.tolist(), vectors, strict=True)), queries, 10)
    churned, anew = (recall(each.search(queries, 10)[0], correct) for each in (index, fresh))
    assert max(index.plan.scanned(10, count), fresh.plan.scanned(10, count)) < 0.6 * count
    assert anew < 1
    assert churned == pytest.approx(anew, abs=0.03)


@pytest.fixture
def folder(world, tmp_path):
    world[0].save(tmp_path / "index", {"mark": 1})
    return tmp_path / "index"


def test_a_loaded_index_has_its_plan_and_codes(world, folder):
    index, _ = world
    loaded, facts = load_index(folder)
    assert (loaded.kind, loaded.plan, facts) == ("ivf", index.plan, {"mark": 1})
    assert loaded._codes is not None
    queries = queries_with(0.3, 20)
    for one, other in zip(index.search(queries, 10), loaded.search(queries, 10), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["vectors.safetensors", "codes.safetensors", "index.json"])
def test_a_changed_byte_is_detected(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 0x10
    (folder / name).write_bytes(data)
    with pytest.raises(ModelError, match="was changed"):
        load_index(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", lambda rows: np.zeros_like(rows)),
        ("sizes", lambda sizes: sizes[::-1].copy() + 1),
        ("blocks", lambda blocks: blocks[:-1]),
        ("directions", lambda directions: directions[:, :-1]),
        ("plan", lambda plan: -plan),
    ],
)
def test_codes_of_another_index_are_an_error_despite_valid_checksums(folder, name, change):
    arrays = load_arrays(folder / "codes.safetensors")
    save_arrays(folder / "codes.safetensors", {**arrays, name: change(arrays[name])})
    write_manifest(folder, "index")
    with pytest.raises(ModelError, match="index"):
        load_index(folder)
    assert json.loads((folder / "index.json").read_text())["kind"] == "ivf"
