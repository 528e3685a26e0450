"""Work by shards gives what one machine gives, and goes on where it was interrupted."""

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from metaxc.classifiers import ridge
from metaxc.errors import DataError, MetaxcError
from metaxc.index import top_k
from metaxc.scale import find_neighbours, fit_ridge, shards, work_here
from metaxc.selectors import NearestSelector


@pytest.fixture(scope="module")
def unit():
    random = np.random.default_rng(0)
    rows = random.standard_normal((230, 16)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def files(unit, tmp_path):
    """Items, queries and clicks: some items have none, some queries several."""
    clicks = csr_array((np.random.default_rng(1).random((150, 80)) < 0.02).astype(np.float32))
    clicks.data[::3] = 2.0
    np.save(tmp_path / "items.npy", unit[:80])
    np.save(tmp_path / "queries.npy", unit[80:])
    save_npz(tmp_path / "clicks.npz", clicks)
    return tmp_path, clicks


@pytest.mark.parametrize("parts", [1, 3, 7, 100])
def test_neighbours_of_items_are_those_of_one_search_without_the_item_itself(files, unit, parts):
    folder, _ = files
    rows, scores = find_neighbours(folder / "items.npy", 5, folder / "out", shards=parts)
    correct = NearestSelector(unit[:80]).select(unit[:80], 5, exclude_self=np.arange(80))
    np.testing.assert_array_equal(rows, correct[0])
    np.testing.assert_allclose(scores, correct[1], atol=1e-6)


def test_equal_items_come_in_the_order_of_their_rows(tmp_path):
    axes = np.eye(4, 16, dtype=np.float32)
    np.save(tmp_path / "items.npy", np.repeat(axes, 6, axis=0))
    np.save(tmp_path / "queries.npy", axes)
    rows, _ = find_neighbours(
        tmp_path / "items.npy", 6, tmp_path / "out", queries=tmp_path / "queries.npy", shards=5
    )
    assert rows.tolist() == np.arange(24).reshape(4, 6).tolist()


def test_queries_have_their_own_file_and_padding_where_items_are_few(files, unit):
    folder, _ = files
    np.save(folder / "few.npy", unit[:3])
    rows, scores = find_neighbours(
        folder / "few.npy", 5, folder / "out", queries=folder / "queries.npy", shards=2
    )
    np.testing.assert_array_equal(rows, top_k(unit[80:], unit[:3], 5)[0])
    assert (rows[:, 3:] == -1).all()
    assert np.isneginf(scores[:, 3:]).all()


@pytest.mark.parametrize("parts", [1, 4, 100])
def test_ridge_classifiers_are_those_of_one_machine(files, unit, parts):
    folder, clicks = files
    found = fit_ridge(
        folder / "queries.npy", folder / "clicks.npz", folder / "out", shards=parts, penalty=0.5
    )
    correct = ridge(unit[80:], clicks, penalty=0.5)
    np.testing.assert_allclose(found.weights, correct.weights, atol=1e-5)
    np.testing.assert_array_equal(found.clicks, correct.clicks)
    assert not found.weights[found.clicks == 0].any()


def test_queries_without_their_clicks_are_an_error(files):
    folder, _ = files
    with pytest.raises(DataError, match="differ in number"):
        fit_ridge(folder / "items.npy", folder / "clicks.npz", folder / "out")


def test_interrupted_work_is_resumed_and_only_with_the_same_inputs(files, unit, monkeypatch):
    folder, _ = files
    worked = []

    def interrupted(worker, tasks):
        yield worker(tasks[0])
        raise KeyboardInterrupt

    def counted(worker, tasks):
        worked.append(len(tasks))
        return work_here(worker, tasks)

    with pytest.raises(KeyboardInterrupt):
        find_neighbours(folder / "items.npy", 5, folder / "out", shards=4, engine=interrupted)
    found = find_neighbours(folder / "items.npy", 5, folder / "out", shards=4, engine=counted)
    assert worked == [3, 4]  # one shard was searched before; all are merged now
    again = find_neighbours(folder / "items.npy", 5, folder / "out", shards=4, engine=counted)
    assert worked == [3, 4]
    np.testing.assert_array_equal(again[0], found[0])
    np.save(folder / "items.npy", unit[:90])
    more, _ = find_neighbours(folder / "items.npy", 5, folder / "out", shards=4, engine=counted)
    assert worked == [3, 4, 4, 4]
    assert len(more) == 90


def test_an_engine_that_leaves_tasks_out_is_an_error(files):
    folder, _ = files
    with pytest.raises(MetaxcError, match="1 of 3 tasks"):
        find_neighbours(
            folder / "items.npy",
            5,
            folder / "out",
            shards=3,
            engine=lambda worker, tasks: work_here(worker, tasks[:1]),
        )


def test_a_half_written_file_is_never_taken_for_a_result(files, monkeypatch):
    folder, _ = files

    def broken(file, made, allow_pickle):
        file.write(b"half")
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(shards.np, "save", broken)
        with pytest.raises(OSError, match="full"):
            find_neighbours(folder / "items.npy", 5, folder / "out", shards=2)
    assert not list((folder / "out").glob("*.npy"))
    rows, _ = find_neighbours(folder / "items.npy", 5, folder / "out", shards=2)
    assert (rows >= 0).all()
