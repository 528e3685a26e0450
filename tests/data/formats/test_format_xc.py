"""The Extreme Classification repository's layouts: what is read, and that what is written is read again."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.data.formats import FORMATS, detect, read_xc, write_xc
from metaxc.errors import DataError


def small(filters: list[list[float]] | None = None) -> Dataset:
    items = Texts(["i1", "i2", "i3"], ["red apple", "green pear", "blue plum"])
    train = ClickLog(
        Texts(["q1", "q2"], ["fruit", "säure → 1"]), csr_array(np.float32([[1, 0, 1], [0, 0, 0]]))
    )
    test = ClickLog(Texts(["t1", "t2"], ["tree", "pie"]), csr_array(np.float32([[0, 1, 0], [1, 1, 0]])))
    mask = None if filters is None else csr_array(np.float32(filters))
    return Dataset(items, train, test, filters=mask)


def write_json(path: Path, records: list[dict]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def write_matrix_folder(folder: Path) -> None:
    (folder / "trn_X_Y.txt").write_text("2 3\n0:1.0 2:1\n\n")
    (folder / "tst_X_Y.txt").write_text("1 3\n1:1\n")
    (folder / "trn_X.txt").write_text("fruit\nacid\n")
    (folder / "tst_X.txt").write_text("tree\n")
    (folder / "Y.txt").write_text("red apple\ngreen pear\nblue plum\n")


@pytest.mark.parametrize("layout", ["json", "matrix"])
def test_what_is_written_is_read_again(tmp_path, layout):
    data = small([[0, 1, 0], [0, 0, 0]])
    write_xc(data, tmp_path, layout=layout)
    back = read_xc(tmp_path)
    assert back.fingerprint == data.fingerprint
    assert back.train.queries.texts == ["fruit", "säure → 1"]
    assert detect(tmp_path) == "xc"


@pytest.mark.parametrize("layout", ["json", "matrix"])
def test_a_data_set_without_a_test_part_stays_so(tmp_path, layout):
    data = Dataset(small().items, small().train)
    FORMATS["xc"].write(data, tmp_path, layout=layout)
    assert FORMATS["xc"].read(tmp_path).test is None


def test_an_unknown_layout_is_refused(tmp_path):
    with pytest.raises(DataError, match="Unknown layout"):
        write_xc(small(), tmp_path, layout="yaml")


def test_json_records_give_ids_texts_and_clicks(tmp_path):
    write_json(tmp_path / "lbl.json.gz", [{"uid": "A", "title": "apple"}, {"uid": "B", "title": "pear"}])
    write_json(
        tmp_path / "trn.json.gz",
        [{"uid": "q", "title": "fruit", "content": "sweet", "target_ind": [1, 0, 1]}],
    )
    plain, full = read_xc(tmp_path), read_xc(tmp_path, content=True)
    assert (plain.train.queries.texts, full.train.queries.texts) == (["fruit"], ["fruit sweet"])
    assert plain.items.ids == ["A", "B"]
    assert plain.train.clicks.toarray().tolist() == [[1, 1]]


def test_an_id_that_stands_twice_is_told_apart_with_a_warning(tmp_path):
    records = [{"uid": uid, "title": uid} for uid in ("A", "A", "A#2", "A")]
    write_json(tmp_path / "lbl.json.gz", records)
    write_json(tmp_path / "trn.json.gz", [{"uid": "q", "title": "fruit", "target_ind": [3]}])
    with pytest.warns(UserWarning, match="2 ids stand more than once"):
        data = read_xc(tmp_path)
    assert data.items.ids == ["A", "A#3", "A#2", "A#4"]
    assert data.train.clicks.toarray().tolist() == [[0, 0, 0, 1]]


def test_raw_texts_without_ids_are_numbered(tmp_path):
    write_matrix_folder(tmp_path)
    data = read_xc(tmp_path)
    assert (data.train.queries.ids, data.test.queries.ids) == (["q0", "q1"], ["t0"])
    assert data.items.texts == ["red apple", "green pear", "blue plum"]
    assert data.train.clicks.toarray().tolist() == [[1, 0, 1], [0, 0, 0]]
    assert data.filters is None


def test_npz_matrices_are_read_and_zeros_are_no_clicks(tmp_path):
    write_matrix_folder(tmp_path)
    (tmp_path / "trn_X_Y.txt").unlink()
    stored = csr_array((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 2]), np.array([0, 2, 3])), shape=(2, 3))
    save_npz(tmp_path / "trn_X_Y.npz", stored)
    assert read_xc(tmp_path).train.clicks.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_latin_1_texts_need_their_encoding(tmp_path):
    write_matrix_folder(tmp_path)
    (tmp_path / "tst_X.txt").write_bytes("Bäume\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"tst_X.txt, line 1, is not utf-8"):
        read_xc(tmp_path)
    assert read_xc(tmp_path, encoding="latin-1").test.queries.texts == ["Bäume"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("", [0, 0, 0]), ("0 1\n", [0, 1, 0]), ("0 2", [0, 0, 1]), ("0 0\n0 2\n", [1, 0, 1])],
)
def test_filter_files_of_any_length(tmp_path, lines, expected):
    write_matrix_folder(tmp_path)
    (tmp_path / "filter_labels_test.txt").write_text(lines)
    (tmp_path / "filter_labels_train.txt").write_text("1 1\n")
    assert read_xc(tmp_path).filters.toarray().tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("trn_X_Y.txt", "0:1 2:1\n", "no header"),
        ("trn_X_Y.txt", "2 3\n0:1\n", "cut off"),
        ("trn_X_Y.txt", "2 3\n3:1\n\n", "do not exist"),
        ("trn_X_Y.txt", "2 3\nx:1\n\n", "item:value"),
        ("trn_X_Y.txt", "2 4\n\n\n", "does not fit"),
        ("filter_labels_test.txt", "0\n", "two row numbers"),
        ("filter_labels_test.txt", "1 0\n", "do not exist"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    write_matrix_folder(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_xc(tmp_path)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"uid": "q", "title": "x"}, "lacks a field"),
        ({"uid": "q", "title": "x", "target_ind": [2]}, "do not exist"),
    ],
)
def test_bad_records_are_named(tmp_path, record, message):
    write_json(tmp_path / "lbl.json.gz", [{"uid": "A", "title": "apple"}])
    write_json(tmp_path / "trn.json.gz", [record])
    with pytest.raises(DataError, match=message):
        read_xc(tmp_path)


def test_a_missing_file_and_a_broken_npz_are_data_errors(tmp_path):
    with pytest.raises(DataError, match=r"lbl\.raw\.txt"):
        read_xc(tmp_path)
    write_matrix_folder(tmp_path)
    (tmp_path / "trn_X_Y.txt").unlink()
    (tmp_path / "trn_X_Y.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match="cannot be read"):
        read_xc(tmp_path)


def test_an_id_that_the_raw_form_cannot_hold_is_refused(tmp_path):
    data = Dataset.of({"a->b": "x", "c": "y"}, {"q": "z"}, [("q", "c")])
    with pytest.raises(DataError, match='layout="json"'):
        write_xc(data, tmp_path, layout="matrix")
