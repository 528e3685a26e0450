import numpy as np
import pytest

from metaxc.encoders.training.batches import ClusteredBatches, RandomBatches, build_clusters


def islands(groups=6, each=8, seed=0):
    """Embeddings in far apart groups; row r is of group r // each."""
    random = np.random.default_rng(seed)
    centres = np.eye(groups, 16, dtype=np.float32)
    return (np.repeat(centres, each, axis=0) + 0.01 * random.normal(size=(groups * each, 16))).astype(
        np.float32
    )


def test_an_epoch_of_random_batches_has_every_query_once():
    batches = RandomBatches(12, 4, seed=3)
    epochs = [np.concatenate([batches.draw(3 * epoch + step) for step in range(3)]) for epoch in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    again = RandomBatches(12, 4, seed=3)
    np.testing.assert_array_equal(again.draw(4), epochs[1][4:8])


def test_a_batch_larger_than_the_log_has_all_queries():
    assert sorted(RandomBatches(5, 100).draw(0)) == list(range(5))


def test_clusters_grow_from_single_queries_to_their_size():
    batches = ClusteredBatches(islands(), 16, steps=400, cluster=8)
    sizes = [batches.size(step) for step in range(400)]
    assert sizes[0] == 1
    assert sizes[-1] == 8
    assert sizes == sorted(sizes)
    assert set(sizes) == {1, 2, 4, 8}


def test_late_batches_have_near_queries_and_early_ones_do_not():
    batches = ClusteredBatches(islands(), 8, steps=60, cluster=8, refresh=1)
    groups = [len(set(batches.draw(step) // 8)) for step in range(60)]
    assert np.mean(groups[:15]) > np.mean(groups[45:]) + 1


def test_an_epoch_of_clustered_batches_has_every_query_once():
    batches = ClusteredBatches(islands(), 16, steps=6, cluster=8, refresh=2)
    for _ in range(2):
        assert sorted(np.concatenate([batches.draw(step) for step in range(3)])) == list(range(48))


def test_clusters_follow_the_embeddings_of_the_steps():
    batches = ClusteredBatches(islands(seed=1), 8, steps=1, cluster=8, refresh=1)
    moved = np.random.default_rng(2).permutation(48)
    batches.update(moved, islands())  # query moved[r] now stands in group r // 8
    now = np.argsort(moved) // 8
    drawn = [batches.draw(step) for step in range(1, 31)]
    assert (
        np.mean([len(set(now[rows])) for rows in drawn])
        < np.mean([len(set(rows // 8)) for rows in drawn]) - 1
    )


def test_restored_batches_continue_as_the_originals_would():
    first = ClusteredBatches(islands(), 8, steps=20, cluster=4, refresh=3, seed=1)
    for step in range(5):
        rows = first.draw(step)
        first.update(rows, -first.embeddings[rows])
    state = {name: array.copy() for name, array in first.state().items()}
    expected = [first.draw(step) for step in range(5, 9)]
    second = ClusteredBatches(islands(seed=9), 8, steps=20, cluster=4, refresh=3, seed=1)
    second.restore(state)
    np.testing.assert_array_equal([second.draw(step) for step in range(5, 9)], expected)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_clusters_have_every_row_once_and_are_small(size):
    found = build_clusters(islands(), size, np.random.default_rng(0))
    assert sorted(np.concatenate(found)) == list(range(48))
    assert max(len(group) for group in found) <= size
