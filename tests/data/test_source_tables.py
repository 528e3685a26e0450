"""Tables of every kind give the same rows, and a bad row costs that row."""

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metaxc.data.data_problems import Problem
from metaxc.data.source_tables import open_table
from metaxc.errors import DataError


def read(source, *columns, header=True):
    problems: list[Problem] = []
    table = open_table(source, "table", header=header)
    return list(table.read(columns or table.columns, problems.append)), problems


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_csv_with_quotes_line_breaks_and_a_byte_order_mark(tmp_path):
    content = '\ufeffsku,title,n\n1,"a, ""b""\nc",3\n2,naïve,4\n'.encode()
    rows, problems = read(write(tmp_path / "a.csv", content))
    assert rows == [(2, "1", 'a, "b"\nc', "3"), (3, "2", "naïve", "4")]
    assert problems == []
    assert read(write(tmp_path / "a.csv.gz", gzip.compress(content)))[0] == rows
    assert read(tmp_path / "a.csv", "title")[0] == [(2, 'a, "b"\nc'), (3, "naïve")]


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.txt", "|"), ("a.csv", "\t")]
)
def test_other_delimiters(tmp_path, name, delimiter):
    lines = [("sku", "title"), ("1", "red, apple"), ("2", "sky")]
    content = "".join(delimiter.join(line) + "\r\n" for line in lines).encode()
    assert read(write(tmp_path / name, content))[0] == [(2, "1", "red, apple"), (3, "2", "sky")]


def test_a_bad_row_of_a_csv_file_costs_that_row(tmp_path):
    content = b"sku,title\n1,caf\xe9\n2\n\n3,x,y\nsku,title\n4,sky\n"
    rows, problems = read(write(tmp_path / "a.csv", content), "sku", "title")
    assert [row for row in rows if any(row[1:])] == [(2, "1", "café"), (7, "4", "sky")]
    assert sorted((one.kind, one.line) for one in problems) == [
        ("header row", 6), ("invalid UTF-8", 2), ("wrong number of columns", 3), ("wrong number of columns", 5),
    ]  # fmt: skip


def test_a_csv_file_without_a_header(tmp_path):
    path = write(tmp_path / "a.csv", b"1,apple\n2,sky\n")
    assert read(path, "2", header=False)[0] == [(1, "apple"), (2, "sky")]


def test_json_lines_with_nested_objects(tmp_path):
    records = [{"id": 1, "a": {"b": {"c": "x"}}}, {"id": 2, "a": None}, {"_source": {"id": 3}}]
    content = "\n".join(map(json.dumps, records)) + "\nbad\n"
    rows, problems = read(write(tmp_path / "a.jsonl", content.encode()), "id", "a.b.c")
    assert rows == [(1, 1, "x"), (2, 2, None), (3, 3, None)]
    assert [(one.kind, one.line) for one in problems] == [("invalid JSON", 4)]
    assert open_table(tmp_path / "a.jsonl", "").columns == ["id", "a.b.c", "a"]


def test_parquet_with_nested_objects_and_times(tmp_path):
    when = datetime(2024, 5, 1, 12, tzinfo=UTC)
    pq.write_table(
        pa.table({"id": [1, None], "a": [{"b": "x"}, None], "t": [when, when]}), tmp_path / "a.parquet"
    )
    table = open_table(tmp_path / "a.parquet", "")
    assert table.columns == ["id", "a.b", "t"]
    assert table.rows == 2
    assert read(tmp_path / "a.parquet")[0] == [(1, 1, "x", when), (2, None, None, when)]


class Stream:
    """What pandas and polars offer: the Arrow PyCapsule protocol and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Interchange:
    """What older data frames offer: the dataframe interchange protocol."""

    def __init__(self, table):
        self.table = table

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.table.__dataframe__(nan_as_null, allow_copy)


TABLE = pa.table({"id": [1, 2], "title": ["x", None]})


@pytest.mark.parametrize(
    "source",
    [
        TABLE,
        Stream(TABLE),
        Interchange(TABLE),
        {"id": [1, 2], "title": ["x", None]},
        [{"id": 1, "title": "x"}, {"id": 2}],
    ],
    ids=["arrow", "stream", "interchange", "columns", "records"],
)
def test_tables_in_memory(source):
    assert read(source, "id", "title")[0] == [(1, 1, "x"), (2, 2, None)]


def test_pandas_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "title": ["x", None]}, index=[7, 9])
    assert read(frame, "id", "title")[0] == [(1, 1, "x"), (2, 2, None)]
    mixed = frame.assign(other=[1, "x"])  # Arrow has no such column
    assert read(mixed, "id", "other")[0] == [(1, 1, 1), (2, 2, "x")]


def test_polars_frames():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [1, 2], "day": [date(2024, 5, 1)] * 2})
    assert read(frame)[0] == [(1, 1, date(2024, 5, 1)), (2, 2, date(2024, 5, 1))]


def test_what_is_no_table(tmp_path):
    with pytest.raises(DataError, match="This is no table"):
        open_table(5, "items")
    with pytest.raises(DataError, match="does not exist"):
        open_table(tmp_path / "none.csv", "items")
    with pytest.raises(DataError, match="kind of file is not known"):
        open_table(write(tmp_path / "a.xlsx", b"x"), "items")
    with pytest.raises(DataError, match="has no header"):
        open_table(write(tmp_path / "a.csv", b""), "items")
    with pytest.raises(DataError, match="has no record"):
        open_table(write(tmp_path / "a.jsonl", b""), "items")
    with pytest.raises(DataError, match="cannot be read"):
        open_table(write(tmp_path / "a.parquet", b"PAR1"), "items")


def test_a_truncated_file_is_reported(tmp_path):
    packed = gzip.compress(b"sku,title\n" + b"1,apple\n" * 100_000)
    _, problems = read(write(tmp_path / "a.csv.gz", packed[: len(packed) // 2]))
    assert [(one.kind, one.line, one.remedy) for one in problems] == [("unreadable file", None, None)]
