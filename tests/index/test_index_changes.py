"""Any sequence of changes, compared with a plain dict of vectors and brute force."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from index_worlds import KINDS, brute_force, catalog_vectors, stored_vectors

from metaxc.index import ScanIndex, ivf, load_index, scan

DIM = 9


class IndexChanges(RuleBasedStateMachine):
    """Vectors are drawn by seed; equal vectors are frequent, because there are few seeds."""

    kind = KINDS[0]
    folder = None

    def __init__(self):
        super().__init__()
        self.index = self.kind(DIM)
        self.world = {}

    @rule(first=st.integers(0, 150), count=st.integers(1, 100), seed=st.integers(0, 5))
    def add(self, first, count, seed):
        keys, vectors = np.arange(first, first + count), catalog_vectors(count, DIM, seed)
        self.index.add(keys, vectors)
        self.world.update(zip(keys.tolist(), vectors, strict=True))

    @rule(seed=st.integers(0, 5), share=st.sampled_from([0.02, 0.3, 0.9]))
    def remove(self, seed, share):
        random = np.random.default_rng(seed)
        keys = [key for key in self.world if random.random() < share]
        self.index.remove(np.array(keys, np.int64))
        for key in keys:
            del self.world[key]

    @rule(seed=st.integers(10, 15), queries=st.integers(1, 3), k=st.sampled_from([1, 3, 300]))
    def search(self, seed, queries, k):
        self.check(catalog_vectors(queries, DIM, seed), k, None)

    @rule(seed=st.integers(10, 15), low=st.integers(0, 200), count=st.integers(0, 200))
    def search_some(self, seed, low, count):
        self.check(catalog_vectors(2, DIM, seed), 3, np.arange(low, low + count))

    @rule()
    def save_and_load(self):
        self.index.save(self.folder, {"count": len(self.world)})
        self.index, facts = load_index(self.folder)
        assert facts == {"count": len(self.world)}

    def check(self, queries, k, allowed):
        keys, scores = self.index.search(queries, k, allowed)
        may = None if allowed is None else set(allowed.tolist())
        np.testing.assert_array_equal(keys, brute_force(self.world, queries, k, may))
        for row, query in enumerate(queries):
            found = keys[row][keys[row] >= 0].tolist()
            expected = [self.world[key] @ query for key in found]
            np.testing.assert_allclose(scores[row, : len(found)], expected, rtol=1e-4, atol=1e-6)

    @invariant()
    def it_contains_what_was_added(self):
        assert len(self.index) == len(self.world)
        assert (17 in self.index) == (17 in self.world)
        some = np.array(sorted(self.world)[:5], np.int64)
        if len(some):
            np.testing.assert_array_equal(
                stored_vectors(self.index, some), np.stack([self.world[key] for key in some.tolist()])
            )

    def teardown(self):
        if isinstance(self.index, ScanIndex):
            self.index.wait()


@pytest.mark.parametrize("of_kind", KINDS)
def test_results_equal_brute_force_after_any_changes(of_kind, tmp_path):
    class ChangesOfKind(IndexChanges):
        kind = of_kind
        folder = tmp_path / "index"

    with (
        patch.multiple(scan, MIN_VECTORS=64, SHORTLIST=80, MAX_EXACT_ALLOWED=10, SHORTLIST_DIVISOR=1),
        patch.multiple(ivf, MIN_VECTORS=64, MAX_EXACT_ALLOWED=10, SHORTLIST_DIVISOR=1),
    ):
        run_state_machine_as_test(
            ChangesOfKind,
            settings=settings(max_examples=40, stateful_step_count=20, deadline=None, derandomize=True),
        )
