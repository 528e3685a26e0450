"""A bad line costs that line: what is repaired, what is left out, and the list of both."""

import json
from pathlib import Path

import pytest

from metaxc.data import check_folder, read_folder, write_folder
from metaxc.data.repair import LIST_FILE, repair_folder
from metaxc.errors import DataError

ITEMS = b"""\
{"id": "a", "text": "apple", "first_seen": 1700000000000}
{"id": "b", "text": "", "first_seen": 1700000001}
{"id": "c", "text": "cr\xe8me", "tags": ["food"]}
{"id": "a", "text": "apple again", "first_seen": 5}
{"id": "d", "text": "date", "first_seen": 1600000000}
not json
{"id": "e", "text": "elder", "tags": "berry"}
"""
QUERIES = b'{"id": "q", "text": "fruit"}\n{"id": "r", "text": " "}\n{"id": "s", "text": "sweet"}\n'
CLICKS = b"""\
query_id\titem_id\ttimestamp
q\ta\t1700000100000
q\tb\t1700000200
q\tz\t1700000300
q\tc\t1700000400.5
r\ta\t1700000500
s\td
s\td\t2023-11-14
s\tc\tyesterday
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir()
    for name, content in (("items.jsonl", ITEMS), ("queries.jsonl", QUERIES), ("clicks.tsv", CLICKS)):
        (place / name).write_bytes(content)
    return place


def test_every_mistake_costs_its_line_alone(folder: Path) -> None:
    data, listed, report = repair_folder(folder)
    assert not report.ok
    assert data.items.ids == ["a", "c", "d", "e"]
    assert data.items.texts == ["apple", "crème", "date", "elder"]
    assert data.items.tags == [(), ("food",), (), ()]
    # Milliseconds are seconds; c has its first click, e has neither and counts as the oldest.
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [1700000000, 1700000400, 1600000000, 1600000000]
    assert data.train.queries.texts == ["fruit", "sweet"]
    assert data.train.clicks.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
    assert data.train.times is not None
    assert data.train.times.tolist() == [1700000100.0, 1700000400.5, 1699920000.0]
    left_out = {(one.file, one.line): one.kind for one in listed.left_out}
    assert left_out == {
        ("items.jsonl", 2): "empty text",
        ("items.jsonl", 4): "duplicate id",
        ("items.jsonl", 6): "invalid JSON",
        ("queries.jsonl", 2): "empty text",
        ("clicks.tsv", 3): "item left out",
        ("clicks.tsv", 4): "unknown item id",
        ("clicks.tsv", 6): "query left out",
        ("clicks.tsv", 7): "wrong number of columns",
        ("clicks.tsv", 9): "invalid time",
    }
    repaired = {(file, kind): count for (file, kind, _), (_, count) in listed.repaired.items()}
    assert repaired == {
        ("items.jsonl", "time in milliseconds"): 1,
        ("items.jsonl", "invalid UTF-8"): 1,
        ("items.jsonl", "invalid tags"): 1,
        ("items.jsonl", "first_seen on some lines"): 2,
        ("clicks.tsv", "header row"): 1,
        ("clicks.tsv", "time in milliseconds"): 1,
    }


def test_the_copy_has_no_error_and_the_list_says_why(folder: Path, tmp_path: Path) -> None:
    data, listed, _ = repair_folder(folder)
    clean = tmp_path / "clean"
    write_folder(data, clean)
    listed.write(clean / LIST_FILE)
    assert check_folder(clean).ok
    assert read_folder(clean).fingerprint == data.fingerprint
    rows = [line.split("\t") for line in (clean / LIST_FILE).read_text().splitlines()]
    assert rows[0] == ["file", "line", "action", "reason", "value"]
    assert {len(row) for row in rows} == {5}
    assert ["clicks.tsv", "4", "left out", "unknown item id: The item id is unknown", "'z'"] in rows
    assert ["clicks.tsv", "2", "converted from milliseconds to seconds"] in [row[:3] for row in rows]
    assert str(listed) == "9 lines left out, 7 lines repaired"


def test_a_good_folder_stays_what_it_is(tmp_path: Path) -> None:
    place = tmp_path / "good"
    place.mkdir()
    (place / "items.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": "b", "text": "y"}\n')
    (place / "queries.jsonl").write_text('{"id": "q", "text": "x"}\n')
    (place / "clicks.tsv").write_text("q\ta\n")
    (place / "novel.txt").write_text("b\n")
    data, listed, report = repair_folder(place)
    assert report.ok
    assert not listed
    assert data.fingerprint == read_folder(place).fingerprint


def test_what_no_line_can_repair_is_an_error(folder: Path) -> None:
    (folder / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"cannot be repaired: queries\.jsonl: The file is missing"):
        repair_folder(folder)
    (folder / "queries.jsonl").write_text(json.dumps({"id": "other", "text": "x"}) + "\n")
    with pytest.raises(DataError, match="No click is left"):
        repair_folder(folder)


def test_test_parts_novel_items_and_filters_are_repaired_too(tmp_path: Path) -> None:
    files = {
        "items.jsonl": '{"id": "a", "text": "x"}\n{"id": "b", "text": ""}\n{"id": "c", "text": "z"}\n',
        "queries.train.jsonl": '{"id": "q", "text": "x"}\n',
        "clicks.train.tsv": "q\ta\n",
        "queries.test.jsonl": '{"id": "t", "text": ""}\n{"id": "u", "text": "v"}\n',
        "clicks.test.tsv": "t\ta\nu\tc\nu\tb\n",
        "filters.test.tsv": "u\tb\nu\ta\n",
        "novel.txt": "b\nc\nzz\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    data, listed, _ = repair_folder(tmp_path)
    assert data.test is not None
    assert data.test.queries.ids == ["u"]
    assert data.test.clicks.toarray().tolist() == [[0, 1]]
    assert data.filters is not None
    assert data.filters.toarray().tolist() == [[1, 0]]
    assert data.novel_mask.tolist() == [False, True]
    assert ("novel.txt", 3) in {(one.file, one.line) for one in listed.left_out}
