"""The behaviour that every kind of index must have."""

from threading import Event, Thread

import numpy as np
import pytest
from index_worlds import KINDS, brute_force, catalog_vectors, recall, stored_vectors

from metaxc.errors import DataError
from metaxc.index import ScanIndex, load_index

DIM = 24


@pytest.mark.usefixtures("small_scan", "small_ivf")
@pytest.mark.parametrize("kind", KINDS)
class TestEveryIndex:
    def filled(self, kind, count=600, dim=DIM):
        index = kind(dim)
        vectors = catalog_vectors(count, dim, seed=1)
        keys = np.random.default_rng(2).permutation(10 * count)[:count]
        index.add(keys, vectors)
        return index, dict(zip(keys.tolist(), vectors, strict=True))

    def test_it_finds_the_largest_inner_products(self, kind):
        index, world = self.filled(kind)
        queries = catalog_vectors(50, DIM, seed=3)
        keys, scores = index.search(queries, 5)
        assert (keys.shape, keys.dtype, scores.dtype) == ((50, 5), np.int64, np.float32)
        np.testing.assert_array_equal(keys, brute_force(world, queries, 5))
        expected = [[world[key] @ query for key in row] for row, query in zip(keys, queries, strict=True)]
        np.testing.assert_allclose(scores, expected, rtol=1e-5)

    def test_exact_search_is_exact(self, kind):
        index, world = self.filled(kind)
        queries = catalog_vectors(50, DIM, seed=3)
        keys, scores = index.search_exactly(queries, 5)
        np.testing.assert_array_equal(keys, brute_force(world, queries, 5))
        np.testing.assert_array_equal(scores, index.search(queries, 5)[1])

    def test_longer_vectors_score_higher(self, kind):
        index, _ = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        index.add(np.array([99_999]), 50 * query)
        assert index.search(query, 1)[0].tolist() == [[99_999]]
        assert 99_999 not in index.search(-query, 20)[0]

    def test_a_query_scores_the_same_alone_and_in_a_batch(self, kind):
        index, _ = self.filled(kind)
        queries = catalog_vectors(20, DIM, seed=3)
        keys, scores = index.search(queries, 5)
        for row in range(len(queries)):
            alone, alone_scores = index.search(queries[row : row + 1], 5)
            np.testing.assert_array_equal(alone[0], keys[row])
            np.testing.assert_array_equal(alone_scores[0], scores[row])

    def test_an_odd_number_of_dimensions(self, kind):
        index, world = self.filled(kind, dim=17)
        queries = catalog_vectors(20, 17, seed=3)
        np.testing.assert_array_equal(index.search(queries, 3)[0], brute_force(world, queries, 3))

    def test_an_update_replaces_the_vector(self, kind):
        index, world = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        best, second = index.search(query, 2)[0][0]
        index.add(np.array([best]), -world[best][None])
        assert len(index) == 600
        assert index.search(query, 1)[0].tolist() == [[second]]
        np.testing.assert_array_equal(stored_vectors(index, [best]), -world[best][None])

    def test_removed_keys_are_not_found(self, kind):
        index, world = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        expected = brute_force(world, query, 600)[0]
        for start in range(0, 600, 60):
            keys = index.search(query, 60)[0][0]
            assert recall(keys[None, :10], expected[None, start : start + 10]) == 1.0
            index.remove(expected[start : start + 60])
            assert expected[start] not in index
            assert not set(index.search(query, 60)[0][0].tolist()) & set(expected[: start + 60].tolist())
        assert len(index) == 0
        index.add(expected[:100], np.stack([world[key] for key in expected[:100]]))
        assert index.search(query, 3)[0].tolist() == [expected[:3].tolist()]

    def test_unknown_key_is_an_error_and_changes_nothing(self, kind):
        index, world = self.filled(kind)
        known = next(iter(world))
        with pytest.raises(DataError, match="123456"):
            index.remove(np.array([known, 123_456]))
        assert known in index
        assert len(index) == 600

    def test_equal_vectors_are_ordered_by_key(self, kind):
        index, _ = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        keys = np.random.default_rng(0).permutation(np.arange(20_000, 20_200))
        index.add(keys, np.repeat(9 * query, 200, axis=0))
        index.remove(np.array([20_000, 20_003]))
        expected = [20_001, 20_002, *range(20_004, 20_012)]
        assert index.search(query, 10)[0].tolist() == [expected]
        assert index.search(np.repeat(query, 3, axis=0), 10)[0].tolist() == [expected] * 3
        assert len(set(index.search(query, 198)[1][0].tolist())) == 1

    def test_zero_query_ties_with_all_vectors(self, kind):
        index, world = self.filled(kind)
        keys, scores = index.search(np.zeros((2, DIM), np.float32), 10)
        assert keys.tolist() == [sorted(world)[:10]] * 2
        assert not scores.any()

    def test_missing_results_are_padded(self, kind):
        index = kind(DIM)
        keys, scores = index.search(catalog_vectors(2, DIM, 0), 3)
        assert keys.tolist() == [[-1] * 3] * 2
        assert np.isneginf(scores).all()
        index.add(np.array([7]), catalog_vectors(1, DIM, 0))
        keys, scores = index.search(catalog_vectors(1, DIM, 0), 3)
        assert keys.tolist() == [[7, -1, -1]]
        assert np.isfinite(scores).tolist() == [[True, False, False]]

    @pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.95])
    def test_filter_does_not_reduce_the_number_of_results(self, kind, share):
        index, world = self.filled(kind)
        random = np.random.default_rng(4)
        allowed = np.array([key for key in world if random.random() < share] + [777_777])
        queries = catalog_vectors(20, DIM, seed=3)
        keys, _ = index.search(queries, 5, allowed)
        np.testing.assert_array_equal(keys, brute_force(world, queries, 5, set(allowed.tolist())))

    def test_filter_far_from_the_query_gives_all_results(self, kind):
        index, world = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        worst = brute_force(world, query, 600)[0, -150:]
        assert index.search(query, 5, worst)[0].tolist() == [worst[:5].tolist()]
        assert index.search(np.repeat(query, 2, 0), 5, worst)[0].tolist() == [worst[:5].tolist()] * 2

    def test_filter_that_excludes_everything(self, kind):
        index, _ = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        assert index.search(query, 2, np.empty(0, np.int64))[0].tolist() == [[-1, -1]]
        assert index.search(query, 2, np.array([777_777]))[0].tolist() == [[-1, -1]]

    def test_invalid_input_is_an_error(self, kind):
        index, world = self.filled(kind)
        good, key = catalog_vectors(1, DIM, 0), np.array([5])
        for bad in (np.nan, np.inf, 1e30):
            broken = good.copy()
            broken[0, 3] = bad
            with pytest.raises(DataError, match="not finite"):
                index.add(key, broken)
            with pytest.raises(DataError, match="not finite"):
                index.search(broken, 3)
        for wrong in (good[:, 1:], good[0], catalog_vectors(2, DIM, 0)):
            with pytest.raises(DataError, match="do not match"):
                index.add(key, wrong)
        with pytest.raises(DataError, match=r"\(n, 24\)"):
            index.search(good[:, 1:], 3)
        with pytest.raises(DataError, match="negative"):
            index.add(np.array([-1]), good)
        with pytest.raises(DataError, match="twice"):
            index.add(np.array([5, 5]), catalog_vectors(2, DIM, 0))
        with pytest.raises(DataError, match="twice"):
            index.remove(np.array([next(iter(world))] * 2))
        with pytest.raises(DataError, match="integers"):
            index.add(np.array([5.0]), good)
        with pytest.raises(DataError, match="k of 1 or more"):
            index.search(good, 0)
        assert len(index) == 600
        assert 5 not in index or 5 in world

    def test_loaded_index_gives_the_same_results_and_can_change(self, kind, tmp_path):
        index, _ = self.filled(kind)
        index.remove(index.search(catalog_vectors(1, DIM, 8), 50)[0][0])
        index.save(tmp_path / "index", {"mark": 17, "model": "ä"})
        loaded, facts = load_index(tmp_path / "index")
        assert (loaded.kind, loaded.dim, len(loaded), facts) == (
            kind.kind,
            DIM,
            550,
            {"mark": 17, "model": "ä"},
        )
        queries = catalog_vectors(20, DIM, seed=3)
        for new in (index, loaded):
            new.add(np.array([9_000_000]), 9 * queries[:1])
        for one, other in zip(index.search(queries, 9), loaded.search(queries, 9), strict=True):
            np.testing.assert_array_equal(one, other)
        assert loaded.search(queries[:1], 1)[0].tolist() == [[9_000_000]]

    def test_empty_index_is_saved_and_loaded(self, kind, tmp_path):
        kind(DIM).save(tmp_path / "index", {})
        loaded, facts = load_index(tmp_path / "index")
        assert (len(loaded), loaded.dim, facts) == (0, DIM, {})

    def test_changes_are_atomic_for_searches(self, kind):
        """One thread swaps one set of ten keys for another; a search must see exactly one of the two."""
        index, _ = self.filled(kind)
        query = catalog_vectors(1, DIM, seed=3)
        sets = [np.arange(50_000, 50_010), np.arange(60_000, 60_010)]
        weights = [np.repeat(query * size, 10, axis=0) for size in (90, 100)]
        index.add(sets[0], weights[0])
        seen, done, problems = [], Event(), []

        def searches():
            try:
                while not done.is_set():
                    seen.append(tuple(index.search(query, 10)[0][0].tolist()))
            except Exception as problem:
                problems.append(problem)

        threads = [Thread(target=searches) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            index.add(sets[1], weights[1])
            index.remove(sets[1])
        done.set()
        for thread in threads:
            thread.join()
        assert not problems
        assert seen
        assert set(seen) <= {tuple(keys.tolist()) for keys in sets}

    def test_recall_after_changes_is_that_of_a_new_index(self, kind):
        """Five rounds in which 20 % are deleted and as many inserted: as good as built afresh."""
        index, world = self.filled(kind, 3000)
        random = np.random.default_rng(5)
        for turn in range(5):
            gone = random.choice(sorted(world), 600, replace=False)
            index.remove(gone)
            for key in gone.tolist():
                del world[key]
            keys = np.arange(100_000 + 600 * turn, 100_600 + 600 * turn)
            new = catalog_vectors(600, DIM, seed=10 + turn)
            index.add(keys, new)
            world.update(zip(keys.tolist(), new, strict=True))
        fresh = kind(DIM)
        fresh.add(np.array(list(world)), np.stack(list(world.values())))
        queries = catalog_vectors(300, DIM, seed=3)
        right = brute_force(world, queries, 10)
        churned = recall(index.search(queries, 10)[0], right)
        assert churned >= recall(fresh.search(queries, 10)[0], right) - 0.005
        assert churned > 0.98
        assert not isinstance(index, ScanIndex) or "4-bit" in repr(index)
