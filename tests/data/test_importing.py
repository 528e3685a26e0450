"""Products and search events become a data set: columns, guesses, bad rows, UBI logs, items as queries."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from metaxc.data import Dataset
from metaxc.data.import_columns import ImportColumns
from metaxc.data.importing import import_tables
from metaxc.errors import DataError

ITEMS = {"sku": ["a", "b", "c"], "title": ["Red apple.", "Sky", "Tea"], "description": ["Sweet", None, ""]}
EVENTS = {"query": ["fruit", " Fruit ", "drink"], "sku": ["a", "a", "c"]}


def test_columns_are_guessed_and_shown():
    imported = import_tables(ITEMS | {"brand": ["x", None, "y"]}, EVENTS | {"ts": [10, 20, 30]})
    data = imported.dataset
    assert data is not None
    assert data.items.ids == ["a", "b", "c"]
    assert data.items.texts == ["Red apple. Sweet", "Sky", "Tea"]
    assert data.items.tags == [("x",), (), ("y",)]
    assert data.train.queries.texts == ["fruit", "drink"]
    assert data.train.pair_counts.tolist() == [2, 1]
    assert data.train.times is not None
    assert data.train.times.tolist() == [10, 20, 30]
    assert imported.columns == [
        "items: id = sku (guessed)", "items: text = title + description (guessed)", "items: tags = brand (guessed)",
        "events: query = query (guessed)", "events: item = sku (guessed)", "events: time = ts (guessed)",
    ]  # fmt: skip


def test_columns_that_are_named():
    items = {"Key": [1, 2], "what": ["apple", "sky"], "since": ["2024-01-01", "2024-01-02"]}
    events = {"said": ["fruit"], "Product ID": [1.0], "many": ["3"], "at": [datetime(2024, 5, 1, tzinfo=UTC)]}
    data = Dataset.from_pandas(
        items, events, id="key", text="what", first_seen="since",
        query="said", item="product_id", time="at", count="many",
    )  # fmt: skip
    assert data.items.ids == ["1", "2"]
    assert data.items.first_seen is not None
    assert data.items.first_seen.tolist() == [1704067200, 1704153600]
    assert data.train.pair_counts.tolist() == [3]
    assert data.train.times is not None
    assert data.train.times.tolist() == [1714521600]


def test_columns_become_fields_with_the_types_that_the_source_has():
    items = ITEMS | {
        "price": [19.5, None, 3.0],
        "in_stock": [True, False, None],
        "sizes": [["s", "m"], [], None],
        "ean": ["1", "2", "3"],
        "since": [datetime(2024, 5, 1, tzinfo=UTC)] * 3,
    }
    data = Dataset.from_pandas(items, EVENTS, fields=["price", "In stock", "sizes", "ean", "since"])
    assert data.items.fields == [
        {"ean": "1", "in_stock": True, "price": 19.5, "since": 1714521600, "sizes": ["s", "m"]},
        {"ean": "2", "in_stock": False, "since": 1714521600},
        {"ean": "3", "price": 3, "since": 1714521600},
    ]
    assert Dataset.from_pandas(items, EVENTS).items.fields is None
    with pytest.raises(DataError, match="has no column 'prize'"):
        Dataset.from_pandas(items, EVENTS, fields="prize")


def test_columns_of_a_csv_file_are_typed_as_a_whole(tmp_path):
    lines = ["sku,title,price,in_stock,code", "a,Apple,19.9,true,07", "b,Sky,,false,8", "c,Tea,3,,9"]
    (tmp_path / "items.csv").write_text("\n".join(lines))
    data = Dataset.from_pandas(tmp_path / "items.csv", EVENTS, fields=["price", "in_stock", "code"])
    assert data.items.fields == [
        {"code": "07", "in_stock": True, "price": 19.9},
        {"code": "8", "in_stock": False},
        {"code": "9", "price": 3},
    ]


def test_a_wrong_name_gets_a_suggestion():
    with pytest.raises(DataError, match=r"has no column 'produkt_id'(.|\n)*did you mean product_id\?"):
        Dataset.from_pandas(ITEMS, {"query": ["x"], "product_id": ["a"], "when": [1]}, item="produkt_id")
    with pytest.raises(DataError, match=r"No column of events looks like the query(.|\n)*--query"):
        Dataset.from_pandas(ITEMS, {"x": ["x"], "sku": ["a"]})
    with pytest.raises(DataError, match="No column of items looks like the item's text"):
        Dataset.from_pandas({"sku": ["a"]}, EVENTS)


BAD_ITEMS = "sku,title\na,apple\nb,\nc,tea\na,again\n,nameless\n"
BAD_EVENTS = """\
query,sku,ts
fruit,a,1700000000000
fruit,z,1700000001
,a,1700000002
drink,b,1700000003
drink,c,soon
drink,c,1700000004
"""


def test_bad_rows_leave_nothing_unless_they_are_skipped(tmp_path: Path):
    (tmp_path / "items.csv").write_text(BAD_ITEMS)
    (tmp_path / "events.csv").write_text(BAD_EVENTS)
    files = (tmp_path / "items.csv", tmp_path / "events.csv")
    imported = import_tables(*files)
    assert imported.dataset is None
    assert imported.report.counts == {"error": 6, "warning": 1, "note": 0}
    with pytest.raises(
        DataError, match=r"6 rows cannot be used(.|\n)*items.csv, line 3: The text is empty(.|\n)*skip_bad"
    ):
        Dataset.from_csv(*files)
    imported = import_tables(*files, skip_bad=True)
    assert {(one.file, one.line): one.kind for one in imported.listed.left_out} == {
        ("items.csv", 3): "empty text",
        ("items.csv", 5): "duplicate id",
        ("items.csv", 6): "missing key",
        ("events.csv", 3): "unknown item id",
        ("events.csv", 4): "empty query",
        ("events.csv", 5): "item left out",
        ("events.csv", 6): "invalid time",
    }
    data = Dataset.from_csv(*files, skip_bad=True)
    assert data.name == "items"
    assert data.items.ids == ["a", "c"]
    assert data.train.clicks.toarray().tolist() == [[1, 0], [0, 1]]
    assert data.train.times is not None
    assert data.train.times.tolist() == [1700000000, 1700000004]


def test_rows_that_are_read_as_they_were_meant_are_no_errors(tmp_path: Path):
    (tmp_path / "items.csv").write_bytes(
        b"sku;title;first_seen\na;caf\xe9;\nsku;title;first_seen\nb;tea;2024-01-01\n"
    )
    events = {"query": ["x", "y"], "sku": ["a", "b"], "time": [1704153600, 1704240000]}
    imported = import_tables(tmp_path / "items.csv", events)
    assert imported.report.ok
    assert imported.report.counts["warning"] == 3
    assert imported.dataset is not None
    assert imported.dataset.items.texts == ["café", "tea"]
    assert imported.dataset.items.first_seen is not None
    assert imported.dataset.items.first_seen.tolist() == [1704153600, 1704067200]


def test_a_file_without_a_header_is_named_by_numbers(tmp_path: Path):
    (tmp_path / "items.csv").write_text("a,apple\nb,sky\n")
    (tmp_path / "events.tsv").write_text("fruit\ta\n")
    data = Dataset.from_csv(
        tmp_path / "items.csv", tmp_path / "events.tsv", id="1", text="2", query="1", item="2"
    )
    assert data.items.ids == ["a", "b"]
    assert data.train.queries.texts == ["fruit"]


def ubi_event(action: str, query: str | None, item: str | None, **more: str) -> dict[str, object]:
    attributes = {"object": {"object_id": item, "object_id_field": "sku"}, "position": {"ordinal": 1}}
    return {
        "action_name": action, "query_id": query, "client_id": "u", "timestamp": "2024-05-01T12:00:00Z",
        "event_attributes": attributes, **more,
    }  # fmt: skip


def test_a_ubi_log(tmp_path: Path):
    events = [
        ubi_event("click", "1", "a"), ubi_event("impression", "1", "b"), ubi_event("add_to_cart", "2", "c"),
        ubi_event("click", None, "c"), ubi_event("watch", "3", "a"),
    ]  # fmt: skip
    queries = [{"query_id": "1", "user_query": "fruit"}, {"query_id": "2", "user_query": "drink"}]
    for name, records in (("events", events), ("queries", queries)):
        (tmp_path / f"{name}.ndjson").write_text("".join(json.dumps(one) + "\n" for one in records))
    imported = import_tables(
        ITEMS, tmp_path / "events.ndjson", queries=tmp_path / "queries.ndjson", skip_bad=True
    )
    data = imported.dataset
    assert data is not None
    assert data.train.queries.texts == ["fruit", "drink"]
    assert data.train.clicks.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert imported.actions == {"click": 2, "impression": 1, "add_to_cart": 1, "watch": 1}
    assert [one.kind for one in imported.listed.left_out] == ["unknown query id"]
    only = import_tables(
        ITEMS, tmp_path / "events.ndjson", queries=tmp_path / "queries.ndjson", actions=["click"]
    ).dataset
    assert only is not None
    assert only.train.queries.texts == ["fruit"]
    with pytest.raises(DataError, match=r"have no query texts(.|\n)*--queries"):
        import_tables(ITEMS, tmp_path / "events.ndjson")
    with_texts = [ubi_event("click", "1", "a", user_query="fruit")]
    assert Dataset.from_pandas(ITEMS, with_texts).train.queries.texts == ["fruit"]


def test_items_as_queries_are_never_their_own_answers():
    events = {"seen": ["a", "a", "b", "Red apple"], "bought": ["a", "b", "c", "a"]}
    items = {"id": ["a", "b", "c"], "title": ["Red apple", "Sky", "Tea"]}
    columns = ImportColumns(query="seen", item="bought")
    imported = import_tables(items, events, columns=columns, exclude_self=True)
    data = imported.dataset
    assert data is not None
    assert data.exclude_self
    assert data.train.queries.texts == ["Red apple", "Sky"]
    assert data.train.clicks.toarray().tolist() == [[0, 1, 0], [0, 0, 1]]
    assert list(imported.listed.repaired) == [("events", "own item", "skipped")]


def test_a_wide_arrow_table_and_long_texts():
    table = pa.table({"id": ["a"], "text": ["x" * 30_000], "tags": [["red", "blue"]]})
    imported = import_tables(table, {"query": ["q"], "item_id": ["a"]})
    assert imported.dataset is not None
    assert len(imported.dataset.items.texts[0]) == 20_000
    assert imported.dataset.items.tags == [("blue", "red")]
    assert [one.kind for one in imported.report.problems] == ["long text"]


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="colour"):
        Dataset.from_pandas(ITEMS, EVENTS, colour="red")


def test_the_column_with_the_name_of_the_item_id_is_the_clicked_item():
    events = {"query": ["fruit"], "product_id": [17], "sku": ["a"]}
    assert Dataset.from_pandas(ITEMS, events).train.clicks.nnz == 1
