"""The research code's arrays: the order of the items, omitted queries, and damaged files."""

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.data.assets import FILES, read_assets, write_assets
from metaxc.errors import DataError

NOVEL = np.array([False, True, False])


def small() -> Dataset:
    items = Texts(["a", "b", "c"], ["apple", "banana", "cherry"])
    train = ClickLog(Texts(["q1", "q2"], ["x", "y"]), csr_array(np.float32([[1, 1, 1], [0, 1, 0]])))
    test = ClickLog(Texts(["t1", "t2"], ["v", "w"]), csr_array(np.float32([[1, 0, 0], [0, 1, 1]])))
    return Dataset(items, train, test, novel=NOVEL)


def parts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "train_queries": rng.normal(size=(2, 4)).astype(np.float32),
        "test_queries": rng.normal(size=(2, 4)).astype(np.float32),
        "items": rng.normal(size=(3, 4)).astype(np.float32),
        "classifiers": rng.normal(size=(2, 4)).astype(np.float32),
        "observed_neighbours": np.array([[1], [0]]),
        "observed_neighbour_scores": np.float32([[9.5], [0.0]]),
        "novel_neighbours": np.array([[1, -1]]),
    }


def test_round_trip_orders_observed_items_before_novel_ones(tmp_path):
    given = parts()
    write_assets(tmp_path, small(), **given)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(FILES.values())
    assets = read_assets(tmp_path)
    assert isinstance(assets.all_items, np.memmap)
    np.testing.assert_array_equal(assets.all_items, given["items"][[0, 2, 1]])
    np.testing.assert_array_equal(assets.observed_items, given["items"][[0, 2]])
    np.testing.assert_array_equal(
        assets.train_queries, given["train_queries"][[0]]
    )  # y clicked no observed item
    np.testing.assert_array_equal(assets.zero_queries, given["test_queries"][[1]])
    assert assets.zero_clicks.toarray().tolist() == [[1]]
    assert assets.test_clicks.toarray().tolist() == [[1, 0, 0], [0, 1, 1]]
    assert repr(assets) == "Assets(2 observed + 1 novel items, 1 + 2 queries, dim 4)"


def test_assets_become_a_data_set_without_texts(tmp_path):
    write_assets(tmp_path, small(), **parts())
    data = read_assets(tmp_path).to_dataset()
    assert data.items.ids == data.items.texts == ["o0", "o1", "n0"]
    assert (data.train.queries.ids, data.test.queries.ids) == (["q0"], ["t0", "t1"])
    assert data.novel.tolist() == [False, False, True]
    assert data.train.clicks.toarray().tolist() == [[1, 1, 0]]
    assert data.test.clicks.toarray().tolist() == [[1, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("classifiers", np.zeros((3, 4), np.float32), "wrong shape"),
        ("novel_items", np.zeros((1, 5), np.float32), "wrong shape"),
        ("all_items", np.full((3, 4), np.nan, np.float32), "NaN or infinity"),
        ("observed_neighbours", np.array([[2], [0]]), "out of range"),
        ("observed_neighbours", np.array([[1.0], [0.0]]), "wrong type"),
        ("observed_neighbour_scores", np.float32([[11], [0]]), "out of range"),
        ("novel_neighbours", np.array([0]), "wrong shape"),
    ],
)
def test_errors_name_the_damaged_file(tmp_path, field, value, message):
    write_assets(tmp_path, small(), **parts())
    np.save(tmp_path / FILES[field], value)
    with pytest.raises(DataError, match=message) as caught:
        read_assets(tmp_path)
    assert FILES[field] in str(caught.value)


def test_clicks_of_another_shape_are_an_error(tmp_path):
    write_assets(tmp_path, small(), **parts())
    save_npz(tmp_path / "Y.tst_full.npz", csr_array(np.ones((2, 2))))
    with pytest.raises(DataError, match=r"Y.tst_full.npz has the wrong shape"):
        read_assets(tmp_path)


def test_pickled_objects_and_missing_files_are_an_error(tmp_path):
    write_assets(tmp_path, small(), **parts())
    np.save(tmp_path / "Y_trn_unnorm.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"Y_trn_unnorm.npy cannot be read"):
        read_assets(tmp_path)
    (tmp_path / "Y_zero_unnorm.npy").unlink()
    with pytest.raises(DataError, match=r"no Y_zero_unnorm.npy"):
        read_assets(tmp_path)


def test_vectors_must_match_the_data_set(tmp_path):
    given = parts() | {"items": np.zeros((2, 4), np.float32)}
    with pytest.raises(DataError, match="items vectors does not match"):
        write_assets(tmp_path, small(), **given)
