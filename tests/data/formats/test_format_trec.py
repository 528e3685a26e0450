"""TREC runs and qrels: the lines themselves, round trips, and what is refused."""

import pytest

from metaxc.data import Dataset
from metaxc.data.formats import qrels_of, read_qrels, read_run, write_qrels, write_run
from metaxc.errors import DataError


def test_a_run_has_the_six_columns(tmp_path):
    write_run(tmp_path / "run", ["q1", "q2"], [["a", "b"], []], [[2.5, 0.1], []], tag="mine")
    assert (tmp_path / "run").read_text() == "q1 Q0 a 1 2.5 mine\nq1 Q0 b 2 0.1 mine\n"
    assert read_run(tmp_path / "run") == {"q1": [("a", 2.5), ("b", 0.1)]}


def test_a_run_is_read_in_the_order_of_its_ranks(tmp_path):
    (tmp_path / "run").write_text("q Q0 b 2 0.5 x\n\nq Q0 c 10 0.1 x\nq Q0 a 1 0.9 x\n")
    assert read_run(tmp_path / "run") == {"q": [("a", 0.9), ("b", 0.5), ("c", 0.1)]}


def test_qrels_round_trip(tmp_path):
    data = Dataset.of(
        {"i1": "x", "i2": "y"}, {"q1": "a", "q2": "b"}, [("q1", "i2"), ("q1", "i1"), ("q2", "i2")]
    )
    qrels = qrels_of(data.train, data.items)
    assert qrels == {"q1": {"i1": 1, "i2": 1}, "q2": {"i2": 1}}
    write_qrels(tmp_path / "qrels.gz", qrels)
    assert read_qrels(tmp_path / "qrels.gz") == qrels


@pytest.mark.parametrize(
    ("items", "scores", "message"),
    [
        ([["a", "b"]], [[1.0]], "differ in number"),
        ([["a"]], [], "differ in number"),
        ([["a", "a"]], [[2.0, 1.0]], "twice"),
        ([["a", "b"]], [[1.0, 2.0]], "no ranking"),
        ([["a"]], [[float("nan")]], "no ranking"),
        ([["a b"]], [[1.0]], "white space"),
        ([[""]], [[1.0]], "white space"),
    ],
)
def test_what_is_no_run_is_not_written(tmp_path, items, scores, message):
    with pytest.raises(DataError, match=message):
        write_run(tmp_path / "run", ["q"], items, scores)
    assert not (tmp_path / "run").exists()


def test_bad_lines_are_named(tmp_path):
    (tmp_path / "bad").write_text("q Q0 a 1 0.9 x\nq Q0 a one 0.9 x\n")
    with pytest.raises(DataError, match="line 2"):
        read_run(tmp_path / "bad")
    with pytest.raises(DataError, match="4 fields"):
        read_qrels(tmp_path / "bad")
    (tmp_path / "bad").write_text("q 0 a much\n")
    with pytest.raises(DataError, match="whole grade"):
        read_qrels(tmp_path / "bad")
