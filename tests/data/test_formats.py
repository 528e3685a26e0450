"""The Extreme Classification repository's layouts and BEIR folders: reading, round trips and errors."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.data.formats import FORMATS, detect_format, read_beir, read_xc, write_beir, write_xc
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


def test_xc_round_trip(tmp_path):
    data = small([[0, 1, 0], [0, 0, 0]])
    write_xc(data, tmp_path)
    back = read_xc(tmp_path)
    assert back.fingerprint == data.fingerprint
    assert back.train.queries.texts == ["fruit", "säure → 1"]
    assert detect_format(tmp_path) == "xc"


def test_xc_without_a_test_part(tmp_path):
    data = Dataset(small().items, small().train)
    FORMATS["xc"].write(data, tmp_path)
    assert FORMATS["xc"].read(tmp_path).test is None
    matrix = tmp_path / "matrix"
    matrix.mkdir()
    write_matrix_folder(matrix)
    (matrix / "tst_X_Y.txt").unlink()
    assert read_xc(matrix).test is None


def test_raw_texts_with_ids(tmp_path):
    write_matrix_folder(tmp_path)
    (tmp_path / "Y.txt").write_text("a->red apple\nb->green -> pear\nc->blue plum\n")
    data = read_xc(tmp_path)
    assert data.items.ids == ["a", "b", "c"]
    assert data.items.texts == ["red apple", "green -> pear", "blue plum"]
    assert detect_format(tmp_path) == "xc"


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


def test_repeated_ids_are_renamed_with_a_warning(tmp_path):
    records = [{"uid": uid, "title": uid} for uid in ("A", "A", "A#2", "A")]
    write_json(tmp_path / "lbl.json.gz", records)
    write_json(tmp_path / "trn.json.gz", [{"uid": "q", "title": "fruit", "target_ind": [3]}])
    with pytest.warns(UserWarning, match="2 repeated ids were renamed"):
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


def test_npz_matrices_are_read_without_their_zeros(tmp_path):
    write_matrix_folder(tmp_path)
    (tmp_path / "trn_X_Y.txt").unlink()
    stored = csr_array((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 2]), np.array([0, 2, 3])), shape=(2, 3))
    save_npz(tmp_path / "trn_X_Y.npz", stored)
    assert read_xc(tmp_path).train.clicks.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_latin_1_texts_need_the_encoding_option(tmp_path):
    write_matrix_folder(tmp_path)
    (tmp_path / "tst_X.txt").write_bytes("Bäume\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"tst_X.txt, line 1: The line is not valid UTF-8"):
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
        ("trn_X_Y.txt", "2 3\n0:1\n", "truncated"),
        ("trn_X_Y.txt", "2 3\n3:1\n\n", "does not exist"),
        ("trn_X_Y.txt", "2 3\nx:1\n\n", "item:value"),
        ("trn_X_Y.txt", "2 4\n\n\n", "does not match"),
        ("filter_labels_test.txt", "0\n", "two row numbers"),
        ("filter_labels_test.txt", "1 0\n", "does not exist"),
    ],
)
def test_errors_name_the_bad_file(tmp_path, name, content, message):
    write_matrix_folder(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_xc(tmp_path)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"uid": "q", "title": "x"}, "A field is missing"),
        ({"uid": "q", "title": "x", "target_ind": [2]}, "does not exist"),
    ],
)
def test_bad_xc_records_are_an_error(tmp_path, record, message):
    write_json(tmp_path / "lbl.json.gz", [{"uid": "A", "title": "apple"}])
    write_json(tmp_path / "trn.json.gz", [record])
    with pytest.raises(DataError, match=message):
        read_xc(tmp_path)


def test_missing_file_and_broken_npz_are_an_error(tmp_path):
    with pytest.raises(DataError, match=r"lbl\.raw\.txt"):
        read_xc(tmp_path)
    write_matrix_folder(tmp_path)
    (tmp_path / "trn_X_Y.txt").unlink()
    (tmp_path / "trn_X_Y.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match="cannot be read"):
        read_xc(tmp_path)


@pytest.fixture
def beir(tmp_path):
    corpus = [{"_id": "d1", "title": "Apple", "text": "is red"}, {"_id": "d2", "title": "", "text": "pear"}]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(4)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t2\nq0\td2\t1\nq0\td1\t0\n")
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td2\t1\n")
    return tmp_path


def test_beir_parts_are_the_queries_that_their_qrels_name(beir):
    data = read_beir(beir)
    assert data.items.texts == ["Apple is red", "pear"]
    assert (data.train.queries.ids, data.test.queries.ids) == (["q0", "q2"], ["q3"])
    assert data.train.clicks.toarray().tolist() == [[0, 1], [1, 0]]
    assert data.test.clicks.toarray().tolist() == [[0, 1]]
    assert detect_format(beir) == "beir"


def test_beir_round_trip(beir, tmp_path):
    data = read_beir(beir)
    FORMATS["beir"].write(data, tmp_path / "again")
    assert FORMATS["beir"].read(tmp_path / "again").fingerprint == data.fingerprint


def test_beir_dev_replaces_a_missing_train_part(beir):
    (beir / "qrels/train.tsv").rename(beir / "qrels/dev.tsv")
    assert read_beir(beir).train.queries.ids == ["q0", "q2"]
    (beir / "qrels/dev.tsv").unlink()
    with pytest.raises(DataError, match=r"qrels/train.tsv or qrels/dev.tsv"):
        read_beir(beir)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q0\td9\t1", "Unknown item id"),
        ("q9\td1\t1", "Unknown query id"),
        ("q0\td1", "line 1"),
        ("q0\td1\tx", "line 1"),
    ],
)
def test_errors_name_the_bad_qrels_file(beir, line, message):
    (beir / "qrels/test.tsv").write_text(line + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_beir(beir)
    assert "test.tsv" in str(caught.value)


@pytest.mark.parametrize("line", ["{", "[1]", '{"_id": "d3"}'])
def test_errors_name_the_bad_beir_record(beir, line):
    with (beir / "corpus.jsonl").open("a") as out:
        out.write(line + "\n")
    with pytest.raises(DataError, match=r"corpus.jsonl, line 3"):
        read_beir(beir)


def test_two_queries_with_the_same_id_are_an_error(tmp_path):
    one = Dataset.of({"i": "x"}, {"q": "a"}, [("q", "i")])
    other = Dataset.of({"i": "x"}, {"q": "b"}, [("q", "i")])
    with pytest.raises(DataError, match="Two queries have the same id"):
        write_beir(Dataset(one.items, one.train, other.train), tmp_path)


def test_unknown_folder_has_no_format(tmp_path):
    assert detect_format(tmp_path) is None
