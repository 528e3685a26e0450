"""Files of clicks: every line once, whatever stops the run."""

import gzip
import json

import pytest

from metaxc.catalog import Catalog, NewClick, NewItem, NotFoundError, migrate
from metaxc.catalog.click_files import record_click_file
from metaxc.catalog.file_positions import CLICK_FILES, FILES_KEPT
from metaxc.catalog.records import Click
from metaxc.errors import DataError

LINES = [("q0", "i0", 1_700_000_000 + place, 1) for place in range(7)] + [("q20", "i7", 1_700_000_100.5, 3)]
RECORDED = [(item, query, float(at)) for query, item, at, count in LINES for _ in range(count)]


def recorded(catalog):
    rows = catalog.store.fetch_all(
        "SELECT items.id, query, at FROM clicks JOIN items USING (key) ORDER BY number"
    )
    return [tuple(row) for row in rows]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "clicks.tsv"
    path.write_text("".join(f"{query}\t{item}\t{at}\t{count}\n" for query, item, at, count in LINES))
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("metaxc.catalog.file_positions.BLOCK", 3)


@pytest.mark.parametrize("kind", ["tsv", "tsv.gz", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same_clicks(catalog, tmp_path, kind):
    path = tmp_path / f"clicks.{kind}"
    if kind == "jsonl":
        names = ("query", "item", "time", "count")
        path.write_text("\n".join(json.dumps(dict(zip(names, line, strict=True))) for line in LINES))
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = zip(*LINES, strict=True)
        pq.write_table(pa.table(dict(zip(("query", "item", "time", "count"), columns, strict=True))), path)
    else:
        text = "".join(f"{query}\t{item}\t{at}\t{count}\n" for query, item, at, count in LINES).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)
    result = record_click_file(catalog, path)
    assert (result.recorded, result.recorded_before, len(result.problems)) == (10, 0, 0)
    assert recorded(catalog) == RECORDED
    assert catalog.get("i7").clicks == 3


def test_clicks_of_a_file_count_like_single_ones(catalog, file, model, tmp_path):
    with Catalog.create(tmp_path / "other", model) as other:
        other.delete(["i4", "i9"])  # as in the fixture
        for each in (catalog, other):
            each.add([NewItem("new", "i4")])
        file.write_text("q0\tnew\nq1\tnew\nq20\tnew\n")
        record_click_file(catalog, file)
        for query in ("q0", "q1", "q20"):
            other.click("new", query)
        found, expected = (each.explain("new") for each in (catalog, other))
        assert found.item.state == expected.item.state == "observed"
        assert [one.id for one in found.explanation.neighbours] == [
            one.id for one in expected.explanation.neighbours
        ]
        assert catalog.search(["t0"], 5)[0][0].score == pytest.approx(other.search(["t0"], 5)[0][0].score)


def test_a_stopped_run_resumes_and_records_every_line_once(
    catalog, file, small_blocks, folder, model, monkeypatch
):
    seen = []

    def stop(done, total):
        seen.append((done, total))
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_click_file(catalog, file, progress=stop)
    assert seen == [(0, 10), (3, 10), (6, 10)]
    assert recorded(catalog) == RECORDED[:6]
    catalog.close()
    with Catalog.open(folder, model) as opened:
        result = record_click_file(opened, file)
        assert (result.recorded, result.recorded_before) == (4, 6)
        assert recorded(opened) == RECORDED
        assert record_click_file(opened, file).recorded == 0
        assert record_click_file(opened, file, again=True).recorded == 10
        assert recorded(opened) == RECORDED * 2


def test_a_block_that_fails_leaves_its_position(catalog, file, small_blocks, monkeypatch):
    """Clicks and position are in one transaction: neither is there without the other."""
    monkeypatch.setattr("metaxc.catalog.catalog.Click", _fail_at_fifth([]))
    with pytest.raises(OSError, match="fifth"):
        record_click_file(catalog, file)
    assert recorded(catalog) == RECORDED[:3]
    assert list(CLICK_FILES.read(catalog).values()) == [3]


def _fail_at_fifth(calls):
    def make(*fields):
        calls.append(fields)
        if len(calls) == 5:
            raise OSError("fifth")
        return Click(*fields)

    return make


def test_a_bad_line_is_named_and_nothing_is_recorded_or_it_is_left_out(catalog, file):
    file.write_text("q0\ti0\nq0\tnobody\n\nq0\ti7\n \ti0\n")
    with pytest.raises(DataError, match=r"line 2: The catalog has no item with this id") as error:
        record_click_file(catalog, file)
    assert "--skip-bad" in str(error.value)
    assert recorded(catalog) == []
    result = record_click_file(catalog, file, skip_bad=True)
    assert [click[0] for click in recorded(catalog)] == ["i0", "i7"]
    assert [problem.line for problem in result.problems] == [2, 5]


def test_a_line_whose_item_comes_later_is_not_recorded_by_a_second_run(catalog, file):
    """The position is a line: what was left out before it stays left out."""
    file.write_text("q0\tlater\nq0\ti0\n")
    record_click_file(catalog, file, skip_bad=True)
    catalog.add([NewItem("later", "i4")])
    assert record_click_file(catalog, file, skip_bad=True).recorded == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("q0\ti0\tyesterday\n", "time"),
        ("q0\ti0\t5\t1001\n", "count is too large"),
        ("q0\n", "1 column"),
        ("", "empty"),
    ],
)
def test_what_is_no_click_is_an_error(catalog, file, content, message):
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        record_click_file(catalog, file)


def test_a_missing_file_is_an_error_even_where_bad_lines_are_left_out(catalog, tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        record_click_file(catalog, tmp_path / "nothing.tsv", skip_bad=True)


def test_a_migrated_catalog_remembers_its_files(catalog, file, folder, other_model):
    record_click_file(catalog, file)
    catalog.close()
    migrate(folder, other_model)
    with Catalog.open(folder, other_model) as migrated:
        assert record_click_file(migrated, file).recorded == 0
        assert recorded(migrated) == RECORDED


def test_the_newest_files_are_remembered():
    metadata = {}
    for place in range(FILES_KEPT + 5):
        CLICK_FILES.note(metadata, f"file {place}", place)
    positions = json.loads(metadata["click files"])
    assert list(positions) == [f"file {place}" for place in range(5, FILES_KEPT + 5)]


def test_clicks_may_have_times_and_are_all_or_none(catalog):
    clicks = catalog.clicks([NewClick("i0", "q0", 5.5), ("i0", "q1"), {"item": "i7", "query": "q0", "at": 7}])
    assert [click.at for click in clicks][::2] == [5.5, 7.0]
    assert clicks[1].at > 1_700_000_000
    with pytest.raises(NotFoundError):
        catalog.clicks([("i0", "q0"), ("nobody", "q0")])
    with pytest.raises(DataError, match="time of a click"):
        catalog.clicks([NewClick("i0", "q0", float("nan"))])
    with pytest.raises(DataError, match="Not a click"):
        catalog.clicks([{"item": "i0", "text": "q0"}])
    assert len(recorded(catalog)) == 3


def test_parts_of_an_item_are_changed(catalog):
    item = catalog.update("i0", add_tags=["red", "new"])
    assert item.tags == ("new", "red")
    assert catalog.update("i0", remove_tags=["red", "absent"]).tags == ("new",)
    changed = catalog.update("i0", text="i1", tags=["a", "b"], add_tags=["c"], remove_tags=["a"])
    assert (changed.text, changed.tags) == ("i1", ("b", "c"))
    assert catalog.get("i0").tags == ("b", "c")


def test_missing_items_may_be_ignored_when_several_are_deleted(catalog):
    with pytest.raises(NotFoundError):
        catalog.delete(["i0", "nobody"])
    assert "i0" in catalog
    assert catalog.delete(["i0", "nobody", "i0"], ignore_missing=True) == 1
    assert catalog.delete(["i0", "nobody"], ignore_missing=True) == 0
