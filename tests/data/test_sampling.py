"""A part of a data set: which items, queries and clicks are left."""

import numpy as np
import pytest

from metaxc.data import Dataset
from metaxc.data.sampling import sample_dataset
from metaxc.errors import DataError


@pytest.fixture
def dataset(world):
    return world.dataset


def clicked_pairs(log, items):
    return {
        (log.queries.ids[query], items.ids[item]) for query, item in zip(*log.clicks.nonzero(), strict=True)
    }


def test_what_is_left_is_as_it_was(dataset):
    part = sample_dataset(dataset, 120, 300, 80)
    assert (len(part.items), len(part.train), len(part.test)) == (120, 300, 80)
    assert len(part.novel) == 120
    for name, novel in zip(part.items.ids, part.novel, strict=True):
        assert dataset.novel[dataset.items.row_of[name]] == novel
    for log, whole in ((part.train, dataset.train), (part.test, dataset.test)):
        kept = set(log.queries.ids)
        expected = {
            (query, item)
            for query, item in clicked_pairs(whole, dataset.items)
            if query in kept and item in part.items.row_of
        }
        assert clicked_pairs(log, part.items) == expected
        assert (np.diff(log.clicks.indptr) > 0).all()


def test_a_part_as_large_as_the_whole_is_the_whole(dataset):
    assert sample_dataset(dataset, 10**6, 10**6, 10**6).fingerprint == dataset.fingerprint


def test_the_seed_decides(dataset):
    parts = [sample_dataset(dataset, 50, 90, 40, seed).fingerprint for seed in (1, 1, 2)]
    assert parts[0] == parts[1] != parts[2]


def test_times_counts_and_filters_go_along():
    whole = Dataset.of(
        {"a": "one", "b": "two", "c": "three"},
        {"q1": "two", "q2": "x", "q3": "y"},
        [("q1", "a"), ("q2", "b"), ("q3", "c"), ("q3", "c")],
        times=[10, 20, 30, 40],
        first_seen={"a": 1, "b": 2, "c": 3},
    )
    whole = Dataset(whole.items, whole.train, whole.train, exclude_self=True)
    part = sample_dataset(whole, 2, 3, 3, seed=0)
    assert part.items.first_seen.tolist() == [
        whole.items.first_seen[whole.items.row_of[name]] for name in part.items.ids
    ]
    for query, last in zip(part.train.queries.ids, part.train.last_times, strict=True):
        assert last == {"q1": 10, "q2": 20, "q3": 40}[query]
    assert part.filters.shape == part.test.clicks.shape


def test_nothing_is_no_part(dataset):
    with pytest.raises(DataError, match="needs items and queries"):
        sample_dataset(dataset, 0, 10, 10)
