"""Checking a folder: every problem is listed, and no file content raises an exception."""

import gzip
import json
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxc.data.check import LONG_TEXT, MAX_LISTED, CheckReport, check_folder
from metaxc.data.data_problems import Problem
from metaxc.data.text_lines import MAX_LINE


def lines(**texts: str) -> str:
    return "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items())


def fill(folder: Path, **files: str | bytes) -> Path:
    content: dict[str, str | bytes] = {
        "items.jsonl": lines(a="apple", b="sky", c="tea"),
        "queries.train.jsonl": lines(q="fruit", r="drink"),
        "clicks.train.tsv": "q\ta\nr\tc\n",
        "queries.test.jsonl": lines(t="air"),
        "clicks.test.tsv": "t\tb\n",
        "novel.txt": "b\n",
    }
    content |= {name.replace("_", "."): text for name, text in files.items()}
    for name, text in content.items():
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def found(report: CheckReport) -> list[tuple[str, str, str, int | None]]:
    return [(p.severity, p.kind, p.file, p.line) for p in report.problems]


def test_good_folder(tmp_path: Path) -> None:
    report = check_folder(fill(tmp_path))
    assert report.ok
    assert report.problems == []
    assert report.sizes == {
        "items": 3, "train queries": 2, "train clicks": 2, "train events": 2,
        "test queries": 1, "test clicks": 1, "test events": 1,
    }  # fmt: skip
    assert report.time_ranges == {}


def test_every_bad_line_of_a_file_is_listed(tmp_path: Path) -> None:
    bad = b"\n".join([
        b'{"id": "a", "text": "apple"}', b'{"id": "b", "text": ""}', b"{", b'{"id": "c", "text": 7}',
        b'{"id": "a", "text": "x"}', b'{"id": "d"}', b'{"id": "e", "text": "\xfe"}', b'{"text": "x"}',
        b'{"id": "f", "text": "fig"}', b"",
    ])  # fmt: skip
    report = check_folder(fill(tmp_path, items_jsonl=bad, clicks_train_tsv="q\ta\nr\tc\nr\tf\nr\td\n"))
    assert found(report) == [
        ("error", "empty text", "items.jsonl", 2),
        ("error", "invalid JSON", "items.jsonl", 3),
        ("error", "text not a string", "items.jsonl", 4),
        ("error", "duplicate id", "items.jsonl", 5),
        ("error", "missing key", "items.jsonl", 6),
        ("error", "invalid UTF-8", "items.jsonl", 7),
        ("error", "missing key", "items.jsonl", 8),
        ("note", "item without clicks", "items.jsonl", 7),
    ]
    assert not report.ok
    assert report.counts["error"] == 7


def test_bad_clicks(tmp_path: Path) -> None:
    report = check_folder(fill(tmp_path, clicks_train_tsv="q\ta\nq\tz\nx\ta\nq\nq\ta\nr\tc\nq\ta\n"))
    assert found(report) == [
        ("error", "unknown item id", "clicks.train.tsv", 2),
        ("error", "unknown query id", "clicks.train.tsv", 3),
        ("error", "wrong number of columns", "clicks.train.tsv", 4),
        ("note", "repeated lines", "clicks.train.tsv", None),
    ]
    assert report.problems[-1].message.startswith("2 lines have the same query and item as an earlier line")
    assert (report.sizes["train clicks"], report.sizes["train events"]) == (2, 4)


def test_events_and_their_times(tmp_path: Path) -> None:
    clicks = "q\ta\t2024-05-01\t3\nq\ta\t2024-04-30\t1\nr\tc\t2024-05-01T12:00:00.5\t1\n"
    report = check_folder(fill(tmp_path, clicks_train_tsv=clicks))
    assert report.problems == []
    assert (report.sizes["train clicks"], report.sizes["train events"]) == (2, 5)
    assert report.time_ranges == {"train": ("2024-04-30T00:00:00Z", "2024-05-01T12:00:00.500000Z")}
    again = check_folder(fill(tmp_path, clicks_train_tsv=clicks + "r\tc\t2024-05-01T12:00:00.5\t1\n"))
    assert found(again) == [("note", "repeated lines", "clicks.train.tsv", None)]
    assert json.loads(json.dumps(again.to_dict()))["time_ranges"]["train"][0] == "2024-04-30T00:00:00Z"


def test_wrong_counts_are_listed(tmp_path: Path) -> None:
    report = check_folder(fill(tmp_path, clicks_train_tsv="q\ta\t\t2\nr\tc\t\t0\nr\tc\t\t1.5\nr\tc\t\t1\n"))
    assert found(report) == [
        ("error", "invalid count", "clicks.train.tsv", 2),
        ("error", "invalid count", "clicks.train.tsv", 3),
    ]
    assert [p.message for p in report.problems] == ["The count is below 1", "The count is not a whole number"]


def test_a_query_on_both_sides_of_a_cut_by_time_is_no_leak(tmp_path: Path) -> None:
    files = {"clicks_train_tsv": "q\ta\t1\nr\tc\t2\n", "queries_test_jsonl": lines(q="fruit")}
    report = check_folder(fill(tmp_path, **files, clicks_test_tsv="q\tb\t3\n"))
    assert found(report) == [("note", "query in both parts", "queries.test.jsonl", None)]
    assert report.problems[0].message == "1 of 1 test queries were asked before the cut too"
    report = check_folder(fill(tmp_path, **files, clicks_test_tsv="q\tb\t2\n"))
    assert found(report) == [("warning", "test query in train", "queries.test.jsonl", 1)]


def test_missing_and_empty_files_together(tmp_path: Path) -> None:
    fill(tmp_path, queries_test_jsonl="")
    (tmp_path / "items.jsonl").unlink()
    report = check_folder(tmp_path)
    assert ("error", "missing file", "items.jsonl", None) in found(report)
    assert ("error", "empty file", "queries.test.jsonl", None) in found(report)
    assert not any(p.kind == "unknown item id" for p in report.problems)  # nothing is known without items


def test_no_folder(tmp_path: Path) -> None:
    report = check_folder(tmp_path / "nowhere")
    assert [(p.kind, p.severity) for p in report.problems] == [("missing folder", "error")]


@pytest.mark.parametrize(
    ("novel", "expected"),
    [
        ("a\nb\nc\n", "All items are novel"),
        ("", "None of the items is novel"),
        ("b\nz\n", "The item id is unknown"),
    ],
)
def test_novel_list(tmp_path: Path, novel: str, expected: str) -> None:
    report = check_folder(fill(tmp_path, novel_txt=novel))
    assert [(p.file, p.message) for p in report.problems if p.severity == "error"] == [
        ("novel.txt", expected)
    ]


def test_leaks_are_warnings(tmp_path: Path) -> None:
    folder = fill(tmp_path, items_jsonl=lines(a="Apple  pie", b="apple\tPIE ", c="tea"))
    (folder / "queries.test.jsonl").write_text(lines(t="DRINK"))
    report = check_folder(folder)
    assert report.ok
    assert found(report) == [
        ("warning", "novel text observed", "items.jsonl", 2),
        ("warning", "test query in train", "queries.test.jsonl", 1),
    ]
    assert report.problems[0].message.endswith("on line 1")
    assert report.problems[1].message.endswith("queries.train.jsonl, line 2")


def test_notes(tmp_path: Path) -> None:
    items = lines(a="apple", b="sky", c="tea", d="x" * (LONG_TEXT + 1), e="x" * LONG_TEXT)
    report = check_folder(fill(tmp_path, items_jsonl=items, clicks_train_tsv="q\ta\nq\tc\nq\te\n"))
    assert report.ok
    assert found(report) == [
        ("note", "long text", "items.jsonl", 4),
        ("note", "query without clicks", "queries.train.jsonl", 2),
        ("note", "item without clicks", "items.jsonl", 4),
    ]


def test_many_problems_of_a_kind_are_counted_but_not_all_listed(tmp_path: Path) -> None:
    clicks = "q\ta\nr\tc\n" + "q\tz\n" * 50
    report = check_folder(fill(tmp_path, clicks_train_tsv=clicks))
    assert [p.line for p in report.problems if p.severity == "error"] == list(range(3, 3 + MAX_LISTED))
    assert report.totals["clicks.train.tsv: unknown item id"] == 50
    assert report.counts["error"] == 50


def test_report_is_json(tmp_path: Path) -> None:
    content = json.loads(json.dumps(check_folder(fill(tmp_path, clicks_test_tsv="t\tz\n")).to_dict()))
    assert content["ok"] is False
    assert content["counts"] == {"error": 1, "warning": 0, "note": 2}
    assert content["problems"][0] == {
        "severity": "error", "kind": "unknown item id", "file": "clicks.test.tsv", "line": 1,
        "message": "The item id is unknown", "got": "'z'", "expected": "an id of items.jsonl",
        "remedy": "left out",
    }  # fmt: skip


def test_problem_reads_as_one_line() -> None:
    problem = Problem("error", "unknown item id", "clicks.tsv", 3, "The item id is unknown", "'z'", "an id")
    assert str(problem) == "clicks.tsv, line 3: The item id is unknown (got 'z'; expected an id)"


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        ({"id": "a\0b", "text": "x"}, "invalid id", "The id contains invalid Unicode"),
        ({"id": "a\x1b[31m", "text": "x"}, "invalid id", "The id contains control characters"),
        ({"id": "..", "text": "x"}, "invalid id", "The id cannot be part of a URL"),
        ({"id": "a/../b", "text": "x"}, "invalid id", "The id cannot be part of a URL"),
        ({"id": "x" * 500_000, "text": "x"}, "invalid id", "The id is too long"),
        ({"id": "d", "text": "x\0"}, "invalid text", "The text contains invalid Unicode"),
        ({"id": "d", "text": "\u200b"}, "empty text", "The text is empty"),
        ({"id": "d", "text": "x" * 20_001}, "invalid text", "The text is too long"),
    ],
)
def test_what_the_service_would_refuse_is_an_error(
    tmp_path: Path, record: dict[str, str], kind: str, message: str
) -> None:
    items = lines(a="apple", b="sky", c="tea") + json.dumps(record)
    report = check_folder(fill(tmp_path, items_jsonl=items))
    assert [(p.kind, p.line, p.message) for p in report.problems if p.severity == "error"] == [
        (kind, 4, message)
    ]
    assert len(report.problems[0].got or "") <= 80


@pytest.mark.parametrize("name", ["a/b.java", "/usr/share/x", "..a", "a%2Fb", "a?b#c"])
def test_file_paths_and_url_characters_may_be_ids(tmp_path: Path, name: str) -> None:
    assert check_folder(fill(tmp_path, items_jsonl=lines(a="apple", b="sky", c="tea", **{name: "text"}))).ok


@pytest.mark.parametrize("name", ["items.jsonl", "clicks.train.tsv", "novel.txt", "queries.test.jsonl"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_line_that_is_too_long_ends_the_reading_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, packed: bool
) -> None:
    monkeypatch.setattr("metaxc.data.text_lines.MAX_LINE", 100)
    folder = fill(tmp_path)
    content = (folder / name).read_bytes() + b"z" * 101 + b"\nmore\n"
    (folder / name).unlink()
    place = folder / (f"{name}.gz" if packed else name)
    place.write_bytes(gzip.compress(content) if packed else content)
    errors = [problem for problem in check_folder(folder).problems if problem.severity == "error"]
    line = len(content.splitlines()) - 1
    assert [(one.file, one.message) for one in errors] == [
        (place.name, f"The file cannot be read: line {line} has more than 100 bytes")
    ]


def test_a_huge_line_in_a_small_file_takes_no_memory(tmp_path: Path) -> None:
    packed = zlib.compressobj(wbits=31)
    with (fill(tmp_path) / "items.jsonl.gz").open("wb") as file:
        for _ in range(64):
            file.write(packed.compress(bytes(1 << 20)))
        file.write(packed.flush())
    (tmp_path / "items.jsonl").unlink()
    tracemalloc.start()
    try:
        report = check_folder(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 6 * MAX_LINE
    finally:
        tracemalloc.stop()
    assert "line 1 has more than" in report.problems[0].message


def test_a_small_parquet_file_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaxc.data.parquet_files.MAX_LINE", 1000)
    (fill(tmp_path) / "items.jsonl").unlink()
    ids, file = ["a", "b", "c"], tmp_path / "items.parquet"
    pq.write_table(pa.table({"id": ids, "text": ["x" * 50_000, "sky", "tea"]}), file, compression="zstd")
    message = "The file cannot be read: column 'text' has 50,"
    assert check_folder(tmp_path).problems[0].message.startswith(message)
    pq.write_table(pa.table({"id": ids, "text": ["x" * 30_000] * 3}), file)  # one value, three times
    assert check_folder(tmp_path).totals == {"items.parquet: invalid text": 3}


scraps = [
    b'{"id": 1, "text": "x"}\n',
    b'{"id": [], "text": {}}\n',
    b'{"id": "1", "text": "\\ud800", "first_seen": "x"}\n',
    b"[" * 5000 + b"\n",
    b"9" * 5000 + b"\n",
    b"a\tb\tc\td\n",
    b"q\t1\t1e999\n",
]
anything = st.lists(st.one_of(st.binary(max_size=20), st.sampled_from(scraps)), max_size=6).map(b"".join)
names = st.sampled_from([
    "items.jsonl", "queries.train.jsonl", "clicks.train.tsv", "novel.txt", "clicks.tsv", "filters.test.tsv",
    "items.parquet", "queries.jsonl.gz",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(files=st.dictionaries(names, anything, max_size=4))
def test_no_file_content_raises(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    folder = fill(tmp_path_factory.mktemp("data"))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    report = check_folder(folder)
    assert sum(report.counts.values()) == sum(report.totals.values())
    json.dumps(report.to_dict())
