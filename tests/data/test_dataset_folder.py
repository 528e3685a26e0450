"""Reading and writing a data set folder: known answers, one bad input each, and the round trip."""

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metaxc.data import dataset_folder
from metaxc.data.column_names import looks_like_header
from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.data.dataset_folder import read_folder, write_folder
from metaxc.data.input_rules import validate_id, validate_text
from metaxc.errors import DataError

ITEMS = (
    '{"id": "a", "text": "red apple"}\n{"id": "b", "text": "blue sky"}\n{"id": "c", "text": "green tea"}\n'
)
QUERIES = '{"id": "q", "text": "fruit"}\n{"id": "r", "text": "drink"}\n'
CLICKS = "q\ta\nr\tc\nq\tc\n"


def fill(folder: Path, **files: str | bytes) -> Path:
    """A small good folder, with some files replaced: `items_jsonl` stands for items.jsonl."""
    content: dict[str, str | bytes] = {"items.jsonl": ITEMS, "queries.jsonl": QUERIES, "clicks.tsv": CLICKS}
    content |= {name.replace("_", "."): text for name, text in files.items()}
    for name, text in content.items():
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def failure(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_folder(folder)
    return str(caught.value)


def in_parts(folder: Path) -> Path:
    fill(folder, queries_train_jsonl=QUERIES, clicks_train_tsv=CLICKS)
    (folder / "queries.jsonl").unlink()
    (folder / "clicks.tsv").unlink()
    (folder / "queries.test.jsonl").write_text('{"id": "t", "text": "sky"}\n')
    (folder / "clicks.test.tsv").write_text("t\tb\n")
    return folder


def test_plain_folder(tmp_path: Path) -> None:
    data = read_folder(fill(tmp_path))
    assert data.name == tmp_path.name
    assert list(data.items.ids) == ["a", "b", "c"]
    assert list(data.items.texts) == ["red apple", "blue sky", "green tea"]
    assert list(data.train.queries.texts) == ["fruit", "drink"]
    assert data.train.clicks.toarray().tolist() == [[1, 0, 1], [0, 0, 1]]
    assert data.test is None
    assert data.novel is None
    assert data.filters is None
    assert data.train.times is None


def test_test_part_novel_items_and_filters(tmp_path: Path) -> None:
    folder = in_parts(tmp_path)
    (folder / "novel.txt").write_text("b\n")
    (folder / "filters.test.tsv").write_text("t\ta\n")
    data = read_folder(folder)
    assert data.test is not None
    assert data.filters is not None
    assert data.test.clicks.toarray().tolist() == [[0, 1, 0]]
    assert data.filters.toarray().tolist() == [[1, 0, 0]]
    assert data.novel_mask.tolist() == [False, True, False]


def test_gzip_and_parquet_read_like_plain_files(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.mkdir()
    packed.mkdir()
    fill(plain)
    (packed / "items.jsonl.gz").write_bytes(gzip.compress(ITEMS.encode()))
    pq.write_table(pa.table({"id": ["q", "r"], "text": ["fruit", "drink"]}), packed / "queries.parquet")
    pq.write_table(pa.table({"query": ["q", "r", "q"], "item": ["a", "c", "c"]}), packed / "clicks.parquet")
    assert read_folder(packed).fingerprint == read_folder(plain).fingerprint


def test_parquet_times_are_seconds(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    (folder / "items.jsonl").unlink()
    moments = pa.array([0, 1_500_000_000, 86_400_000_000_000], pa.timestamp("ns"))
    table = pa.table({"id": [1, 2, 3], "text": ["x", "y", "z"], "first_seen": moments})
    pq.write_table(table, folder / "items.parquet")
    (folder / "clicks.tsv").write_text("q\t1\nr\t3\n")
    data = read_folder(folder)
    assert list(data.items.ids) == ["1", "2", "3"]
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [0, 1, 86_400]


def test_times_as_numbers_and_iso_strings(tmp_path: Path) -> None:
    records = [("a", 5), ("b", "1970-01-02"), ("c", "1970-01-01T01:00:00+01:00")]
    items = "".join(
        json.dumps({"id": name, "text": "x", "first_seen": time}) + "\n" for name, time in records
    )
    clicks = "r\tc\t2024-05-01T12:00:00\nq\tc\t7.5\nq\ta\t1970-01-01T00:01:00Z\nq\tc\t3\n"
    data = read_folder(fill(tmp_path, items_jsonl=items, clicks_tsv=clicks))
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [5, 86_400, 0]
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
    assert data.train.times is not None
    assert data.train.times.tolist() == [60.0, 3.0, 7.5, noon]  # (q, a), (q, c) twice, (r, c)
    assert data.train.pair_counts.tolist() == [1, 2, 1]


def test_repeated_lines_and_counts_add_up(tmp_path: Path) -> None:
    data = read_folder(fill(tmp_path, clicks_tsv="q\ta\nr\tc\nq\ta\n"))
    assert data.train.clicks.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert data.train.pair_counts.tolist() == [2, 1]
    data = read_folder(fill(tmp_path, clicks_tsv="q\ta\t\t5\nr\tc\t\t1\nq\ta\t\t2\n"))
    assert data.train.pair_counts.tolist() == [7, 1]
    assert data.train.times is None
    data = read_folder(fill(tmp_path, clicks_tsv="q\ta\t9\t5\nr\tc\t8\t1\nq\ta\t7\t2\n"))
    assert data.train.times is not None
    assert data.train.times.tolist() == [7, 9, 8]
    assert data.train.time_counts is not None
    assert data.train.time_counts.tolist() == [2, 5, 1]


def test_a_thousand_million_events_take_one_line(tmp_path: Path) -> None:
    data = read_folder(fill(tmp_path, clicks_tsv="q\ta\t9\t1000000000\n" * 2))
    assert data.train.event_count == 2_000_000_000
    assert data.train.times is not None
    assert len(data.train.times) == 1
    with pytest.raises(DataError, match="A count of a click cannot be written"):
        write_folder(data, tmp_path / "out")


def test_parquet_counts(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    (folder / "clicks.tsv").unlink()
    columns = {"query": ["q", "r", "q"], "item": ["a", "c", "a"], "count": [3, 1, 2]}
    pq.write_table(pa.table(columns), folder / "clicks.parquet")
    assert read_folder(folder).train.pair_counts.tolist() == [5, 1]
    pq.write_table(pa.table(columns | {"time": [1.0, 2.0, 3.0]}), folder / "clicks.parquet")
    log = read_folder(folder).train
    assert log.times is not None
    assert log.times.tolist() == [1, 3, 2]
    pq.write_table(pa.table(columns | {"count": [3, None, 2]}), folder / "clicks.parquet")
    assert "clicks.parquet, line 2: The count is not a whole number" in failure(folder)
    pq.write_table(pa.table(columns | {"time": [1.0, None, 3.0]}), folder / "clicks.parquet")
    assert "clicks.parquet, line 2: The line has no time" in failure(folder)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("0", "The count is below 1\n  got: '0'\n  expected: a whole number from 1 to 1,000,000,000"),
        ("-3", "The count is below 1"),
        ("2.5", "The count is not a whole number"),
        ("many", "The count is not a whole number"),
        ("", "The count is not a whole number"),
        ("nan", "The count is not a whole number"),
        ("9" * 400, "The count is not a whole number"),
        ("1000000001", "The count is too large"),
    ],
)
def test_wrong_counts(tmp_path: Path, count: str, expected: str) -> None:
    message = failure(fill(tmp_path, clicks_tsv=f"q\ta\t\t1\nr\tc\t\t{count}\n"))
    assert f"clicks.tsv, line 2: {expected}" in message


def test_number_ids_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    items = '\ufeff{"id": 1, "text": "x"}\r\n\r\n{"id": 2, "text": "y"}\r\n'
    data = read_folder(fill(tmp_path, items_jsonl=items, clicks_tsv="\ufeffq\t1\r\nr\t2\r\n"))
    assert list(data.items.ids) == ["1", "2"]
    assert data.train.clicks.toarray().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("name", ["items.jsonl", "queries.jsonl", "clicks.tsv"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    fill(tmp_path)
    (tmp_path / name).write_bytes(b"")
    message = failure(tmp_path)
    assert f"{name}: The file is empty" in message
    assert f"metaxc data check {tmp_path}" in message


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"clicks_tsv": "q\ta\nq\tz\n"}, "clicks.tsv, line 2: The item id is unknown\n  got: 'z'"),
        ({"clicks_tsv": "z\ta\n"}, "clicks.tsv, line 1: The query id is unknown\n  got: 'z'"),
        ({"clicks_tsv": "q\ta\nq a\n"}, "clicks.tsv, line 2: The line has 1 column"),
        ({"clicks_tsv": "q\ta\nq\tc\t5\n"}, "clicks.tsv, line 2: The line has 3 columns"),
        ({"clicks_tsv": "q\ta\t5\t1\nq\tc\t\t1\n"}, "line 2: The line has no time, and others have one"),
        ({"clicks_tsv": "q\ta\t\n"}, "clicks.tsv, line 1: The time is not valid"),
        ({"clicks_tsv": "q\ta\tsoon\n"}, "clicks.tsv, line 1: The time is not valid"),
        ({"clicks_tsv": "q\ta\tnan\n"}, "clicks.tsv, line 1: The time is not valid"),
        ({"novel_txt": "b\nz\n"}, "novel.txt, line 2: The item id is unknown\n  got: 'z'"),
        ({"novel_txt": "a\nb\nc\n"}, "novel.txt: All items are novel\n  got: 3 of 3"),
        ({"novel_txt": ""}, "novel.txt: None of the items is novel\n  got: 0 of 3"),
        ({"queries_train_jsonl": QUERIES}, "an unsplit click log as well as train and test parts"),
        ({"items_jsonl_gz": gzip.compress(ITEMS.encode())}, "There are 2 files of items"),
        ({"filters_test_tsv": "q\ta\n"}, "a filter file for the test part, but no test part"),
    ],
)
def test_errors_name_the_file_and_the_line(
    tmp_path: Path, files: dict[str, str | bytes], expected: str
) -> None:
    message = failure(fill(tmp_path, **files))
    assert expected in message
    assert f"`metaxc data check {tmp_path}` lists every problem in the folder" in message


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"id": "a", "text": "x"}', "The id is already used on line 1"),
        (b'{"id": "d", "text": ""}', "The text is empty"),
        (b'{"id": "d", "text": " \\n"}', "The text is empty"),
        (b'{"id": "d", "text": "\xff"}', "The line is not valid UTF-8: byte 22"),
        (b'{"id": "d"}', 'The line has no "text"'),
        (b'{"text": "d"}', 'The line has no "id"'),
        (b'{"id": "d", "text": 5}', "The text is not a string"),
        (b'{"id": 1.5, "text": "x"}', "The id is not a string"),
        (b'{"id": "d\\te", "text": "x"}', "The id contains control characters"),
        (b'{"id": "d", "text": "\\ud800"}', "The text contains invalid Unicode"),
        (b"apple", "The line is not JSON"),
        (b"[1]", "The line is not a JSON object"),
    ],
)
def test_errors_name_the_line_of_an_item(tmp_path: Path, line: bytes, expected: str) -> None:
    message = failure(fill(tmp_path, items_jsonl=ITEMS.encode() + line + b"\n"))
    assert f"items.jsonl, line 4: {expected}" in message


def test_damaged_gzip(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "items.jsonl").unlink()
    (tmp_path / "items.jsonl.gz").write_bytes(gzip.compress(ITEMS.encode())[:-9])
    assert "items.jsonl.gz: The file cannot be read" in failure(tmp_path)


def test_parquet_without_its_columns(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "items.jsonl").unlink()
    pq.write_table(pa.table({"id": ["a"], "title": ["x"]}), tmp_path / "items.parquet")
    message = failure(tmp_path)
    assert "items.parquet: The file has no column 'text'\n  got: ['id', 'title']" in message


def test_parquet_text_that_is_not_utf8(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "items.jsonl").unlink()
    raw = pa.array([b"good", b"\xff\xfe"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    pq.write_table(pa.table({"id": ["a", "c"], "text": texts}), tmp_path / "items.parquet")
    assert "items.parquet, line 2: The text is not a string\n  got: b'\\xff\\xfe'" in failure(tmp_path)


def test_missing_file_lists_what_was_found(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "items.jsonl").unlink()
    message = failure(tmp_path)
    assert "items.jsonl: The file is missing" in message
    assert "clicks.tsv, queries.jsonl" in message
    assert "items.jsonl or items.jsonl.gz or items.parquet" in message


def test_incomplete_test_part_is_a_missing_file(tmp_path: Path) -> None:
    in_parts(tmp_path)
    (tmp_path / "clicks.test.tsv").unlink()
    assert "clicks.test.tsv: The file is missing" in failure(tmp_path)


def test_no_folder(tmp_path: Path) -> None:
    assert "The folder does not exist" in failure(tmp_path / "nowhere")


def full_dataset() -> Dataset:
    items = Texts(["a", "b", "c"], ["x", "tab\there", "line\nthere"], np.array([3, 1, 2]))
    clicks = click_matrix(np.array([0, 0, 1]), np.array([0, 2, 1]), (2, 3))
    train = ClickLog(Texts(["q", "r"], ["u", "v"]), clicks, np.array([1.5, 2.0, -3.0]))
    test = ClickLog(Texts(["q"], ["w"]), click_matrix(np.array([0]), np.array([1]), (1, 3)))
    filters = click_matrix(np.array([0]), np.array([2]), (1, 3))
    return Dataset(items, train, test, np.array([False, True, False]), filters, "full")


def test_round_trip_keeps_everything(tmp_path: Path) -> None:
    data = full_dataset()
    write_folder(data, tmp_path / "full")
    back = read_folder(tmp_path / "full")
    assert back.fingerprint == data.fingerprint
    assert repr(back) == repr(data)
    assert back.items.first_seen is not None
    assert back.items.first_seen.tolist() == [3, 1, 2]
    assert back.train.times is not None
    assert back.train.times.tolist() == [1.5, 2.0, -3.0]
    assert back.filters is not None
    assert back.filters.toarray().tolist() == [[0, 0, 1]]


def test_same_data_gives_same_bytes_and_no_other_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_folder(full_dataset(), tmp_path / name)
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert sorted(one) == [
        "clicks.test.tsv", "clicks.train.tsv", "filters.test.tsv", "items.jsonl", "novel.txt",
        "queries.test.jsonl", "queries.train.jsonl",
    ]  # fmt: skip


def test_failed_write_replaces_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = full_dataset()
    write_folder(data, tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*given: object) -> Iterator[str]:
        yield "half a file"
        raise OSError("Disk full")

    monkeypatch.setattr(dataset_folder, "_click_lines", fail)
    items = Texts(data.items.ids, ["new", "new", "new"], data.items.first_seen)
    with pytest.raises(OSError, match="Disk full"):
        write_folder(replace(data, items=items), tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_writing_next_to_another_data_set_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(DataError, match="contains files of another data set"):
        write_folder(full_dataset(), tmp_path)
    assert (tmp_path / "items.jsonl").read_text() == ITEMS


@pytest.mark.parametrize(
    "name", ["a\tb", "a\nb", "a\rb", "", "\ufeffa", "\ud800", "a\0b", "..", "a/../b", "x" * 501]
)
def test_ids_that_break_the_rules_are_an_error(tmp_path: Path, name: str) -> None:
    data = Dataset.of({name: "x"}, {"q": "y"}, [("q", name)])
    with pytest.raises(DataError, match=r"The id .*: item .* cannot be written"):
        write_folder(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_data_that_could_not_be_read_back_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="The text is empty: item 'a' cannot be written"):
        write_folder(Dataset.of({"a": " "}, {"q": "y"}, [("q", "a")]), tmp_path)
    with pytest.raises(DataError, match="A click log without clicks"):
        write_folder(Dataset.of({"a": "x"}, {"q": "y"}, []), tmp_path)
    assert list(tmp_path.iterdir()) == []


def obeys(rule: Callable[[str], str], text: str) -> bool:
    try:
        return rule(text) == text
    except DataError:
        return False


unusual_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    partial(obeys, validate_text)
)
unusual_id = unusual_text.filter(partial(obeys, validate_id))


@settings(max_examples=50, deadline=None)
@given(
    items=st.dictionaries(unusual_id, unusual_text, min_size=1, max_size=4),
    queries=st.dictionaries(unusual_id, unusual_text, min_size=1, max_size=4),
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1),
)
def test_round_trip_of_unusual_texts(
    items: dict[str, str], queries: dict[str, str], pairs: list[tuple[int, int]]
) -> None:
    names, asked = list(items), list(queries)
    clicks = [(asked[q % len(asked)], names[i % len(names)]) for q, i in pairs]
    assume(
        not any(looks_like_header(pair) for pair in clicks)
    )  # such a first line is refused: most likely a mistake
    data = Dataset.of(items, queries, clicks)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(data, folder)
        back = read_folder(folder)
    assert dict(zip(back.items.ids, back.items.texts, strict=True)) == items
    assert back.fingerprint == data.fingerprint


@settings(max_examples=50, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(-1e10, 1e10), st.integers(1, 3)), min_size=1
    ),
    timed=st.booleans(),
    counted=st.booleans(),
)
def test_round_trip_of_events(events: list[tuple[int, int, float, int]], timed: bool, counted: bool) -> None:
    data = Dataset.of(
        {name: name for name in "abc"},
        {name: name for name in "xyz"},
        [("xyz"[query], "abc"[item]) for query, item, _, _ in events],
        times=[time for _, _, time, _ in events] if timed else None,
        counts=[count for _, _, _, count in events] if counted else None,
    )
    with tempfile.TemporaryDirectory() as folder:
        write_folder(data, folder)
        back = read_folder(folder)
    assert back.fingerprint == data.fingerprint
    assert back.train.event_count == sum(count if counted else 1 for *_, count in events)
    for name in ("times", "counts", "time_counts"):
        np.testing.assert_array_equal(getattr(back.train, name), getattr(data.train, name))


def test_a_first_seen_on_some_lines_only_names_the_lines_without(tmp_path: Path) -> None:
    message = failure(fill(tmp_path, items_jsonl=ITEMS + '{"id": "d", "text": "x", "first_seen": 1}\n'))
    assert "items.jsonl, line 1: The line has no valid first_seen, and others have one" in message


def test_tags_and_self_exclusion_survive_the_folder(tmp_path: Path) -> None:
    data = Dataset.of({"a": "apple", "b": "pear"}, {"q": "Apple", "r": "x"}, [("q", "b"), ("r", "a")])
    items = Texts(data.items.ids, data.items.texts, None, [("fruit", "red"), ()])
    data = replace(data, items=items, exclude_self=True)
    write_folder(data, tmp_path / "out")
    again = read_folder(tmp_path / "out")
    assert again.items.tags == [("fruit", "red"), ()]
    assert again.exclude_self
    assert again.fingerprint == data.fingerprint != replace(data, exclude_self=False).fingerprint
    assert '"tags"' not in (tmp_path / "out" / "items.jsonl").read_text().splitlines()[1]
    tested = replace(data, test=data.train)
    assert tested.filters is not None
    assert tested.filters.toarray().tolist() == [[1, 0], [0, 0]]  # "Apple" is the text of item a


FIELDS = {"brand": "x", "in_stock": True, "price": 19.9, "sizes": ["s", "m"]}


def test_fields_survive_the_folder_and_count_in_the_fingerprint(tmp_path: Path) -> None:
    data = Dataset.of({"a": "apple", "b": "pear"}, {"q": "fruit"}, [("q", "b")])
    with_fields = replace(data, items=replace(data.items, fields=[FIELDS, {}]))
    write_folder(with_fields, tmp_path / "out")
    again = read_folder(tmp_path / "out")
    assert again.items.fields == [FIELDS, {}]
    assert again.items.take(np.array([1, 0])).fields == [{}, FIELDS]
    assert again.fingerprint == with_fields.fingerprint != data.fingerprint
    assert '"fields"' not in (tmp_path / "out" / "items.jsonl").read_text().splitlines()[1]
    with pytest.raises(DataError, match="ids and fields differ"):
        replace(data.items, fields=[FIELDS])


def test_fields_of_a_parquet_file_are_json(tmp_path: Path) -> None:
    data = Dataset.of({"a": "apple", "b": "pear"}, {"q": "fruit"}, [("q", "b")])
    write_folder(data, tmp_path)
    (tmp_path / "items.jsonl").unlink()
    fields = [json.dumps(FIELDS), None]
    pq.write_table(
        pa.table({"id": ["a", "b"], "text": ["x", "y"], "fields": fields}), tmp_path / "items.parquet"
    )
    assert read_folder(tmp_path).items.fields == [FIELDS, {}]


@pytest.mark.parametrize("fields", ['"red"', "[1]", '{"a": {"b": 1}}', '"{"'])
def test_invalid_fields_are_named_with_their_line(tmp_path: Path, fields: str) -> None:
    message = failure(fill(tmp_path, items_jsonl=f'{{"id": "a", "text": "apple", "fields": {fields}}}\n'))
    assert "items.jsonl, line 1" in message


@pytest.mark.parametrize("content", ["{", "[]", '{"exclude_self": 1}', '{"other": true}', "{}"])
def test_invalid_settings_of_a_folder(tmp_path: Path, content: str) -> None:
    assert "dataset.json: The file cannot be used" in failure(fill(tmp_path, dataset_json=content))
