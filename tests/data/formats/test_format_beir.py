"""BEIR folders: which queries make which part, and round trips."""

import json

import pytest

from metaxc.data import Dataset
from metaxc.data.formats import FORMATS, detect, read_beir, write_beir
from metaxc.errors import DataError


@pytest.fixture
def folder(tmp_path):
    corpus = [{"_id": "d1", "title": "Apple", "text": "is red"}, {"_id": "d2", "title": "", "text": "pear"}]
    queries = [{"_id": f"q{n}", "text": f"query {n}"} for n in range(4)]
    for name, records in (("corpus", corpus), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq2\td1\t2\nq0\td2\t1\nq0\td1\t0\n")
    (tmp_path / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td2\t1\n")
    return tmp_path


def test_parts_are_the_queries_their_qrels_name(folder):
    data = read_beir(folder)
    assert data.items.texts == ["Apple is red", "pear"]
    assert (data.train.queries.ids, data.test.queries.ids) == (["q0", "q2"], ["q3"])
    assert data.train.clicks.toarray().tolist() == [[0, 1], [1, 0]]
    assert data.test.clicks.toarray().tolist() == [[0, 1]]
    assert detect(folder) == "beir"


def test_what_is_written_is_read_again(folder, tmp_path):
    data = read_beir(folder)
    FORMATS["beir"].write(data, tmp_path / "again")
    assert FORMATS["beir"].read(tmp_path / "again").fingerprint == data.fingerprint


def test_dev_serves_where_train_is_missing(folder):
    (folder / "qrels/train.tsv").rename(folder / "qrels/dev.tsv")
    assert read_beir(folder).train.queries.ids == ["q0", "q2"]
    (folder / "qrels/dev.tsv").unlink()
    with pytest.raises(DataError, match=r"qrels/train.tsv or qrels/dev.tsv"):
        read_beir(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q0\td9\t1", "Unknown item id"),
        ("q9\td1\t1", "Unknown query id"),
        ("q0\td1", "line 1"),
        ("q0\td1\tx", "line 1"),
    ],
)
def test_bad_qrels_are_named(folder, line, message):
    (folder / "qrels/test.tsv").write_text(line + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_beir(folder)
    assert "test.tsv" in str(caught.value)


@pytest.mark.parametrize("line", ["{", "[1]", '{"_id": "d3"}'])
def test_bad_records_are_named(folder, line):
    with (folder / "corpus.jsonl").open("a") as out:
        out.write(line + "\n")
    with pytest.raises(DataError, match=r"corpus.jsonl, line 3"):
        read_beir(folder)


def test_one_id_for_two_queries_is_refused(tmp_path):
    one = Dataset.of({"i": "x"}, {"q": "a"}, [("q", "i")])
    other = Dataset.of({"i": "x"}, {"q": "b"}, [("q", "i")])
    with pytest.raises(DataError, match="Two queries have one id"):
        write_beir(Dataset(one.items, one.train, other.train), tmp_path)


def test_an_unknown_folder_has_no_format(tmp_path):
    assert detect(tmp_path) is None
