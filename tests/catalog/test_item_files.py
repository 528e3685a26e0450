"""Files and streams of items: every item once, whatever stops the run."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from metaxc.catalog import Catalog, NewItem, migrate
from metaxc.catalog.item_files import add_item_file
from metaxc.errors import DataError

ITEMS = [
    {"id": f"new {n}", "text": f"i{n}", "tags": [f"tag {n % 2}"], "fields": {"price": n}} for n in range(10)
]
NAMES = [one["id"] for one in ITEMS]


def as_lines(items=ITEMS):
    return "".join(json.dumps(one) + "\n" for one in items).encode()


def state(catalog):
    """What the catalog holds of the new items."""
    statement = "SELECT id, text, tags, fields, vector FROM items WHERE id LIKE 'new %' ORDER BY key"
    return [tuple(row) for row in catalog.store.fetch_all(statement)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_bytes(as_lines())
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("metaxc.catalog.file_positions.BLOCK", 3)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "ndjson", "parquet", "stream", "stream.gz"])
def test_every_kind_of_source_gives_the_same_items(catalog, tmp_path, kind, small_blocks):
    path = tmp_path / f"items.{kind}"
    content = gzip.compress(as_lines()) if kind.endswith("gz") else as_lines()
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ITEMS), path)
    else:
        path.write_bytes(content)
    result = add_item_file(catalog, io.BytesIO(content) if kind.startswith("stream") else path)
    assert (result.added, result.unchanged, result.done_before, len(result.problems)) == (10, 0, 0, 0)
    found = [(id, text, json.loads(tags), json.loads(fields)) for id, text, tags, fields, _ in state(catalog)]
    assert found == [(one["id"], one["text"], one["tags"], one["fields"]) for one in ITEMS]


def test_fields_in_parquet_may_be_strings_of_json(catalog, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = ['{"price": 5, "sizes": ["s"]}', None, "{", "[1]", '{"price": {}}']
    rows = [{"id": f"new {n}", "text": "i4", "fields": fields} for n, fields in enumerate(given)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "items.parquet")
    result = add_item_file(catalog, tmp_path / "items.parquet", skip_bad=True)
    assert (result.added, [problem.line for problem in result.problems]) == (2, [3, 4, 5])
    assert (catalog.get("new 0").fields, catalog.get("new 1").fields) == ({"price": 5, "sizes": ["s"]}, {})


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_items_of_a_file_may_have_vectors(catalog, tmp_path, world, kind):
    vectors = world.encoder.encode_items(["i4", "i9"])
    lines = [
        {"id": "a", "vector": vectors[0].tolist()},
        {"id": "b", "text": "x", "fields": {"price": 2}, "vector": vectors[1].tolist()},
    ]
    path = tmp_path / f"items.{kind}"
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist([{"text": None, "fields": None, **line} for line in lines]), path)
    else:
        path.write_bytes(as_lines(lines))
    assert add_item_file(catalog, path).added == 2
    assert (catalog.get("a").text, catalog.get("b").text) == ("a", "x")
    assert (catalog.get("a").fields, catalog.get("b").fields) == ({}, {"price": 2})
    assert np.allclose(catalog._row("b").embedding, vectors[1], atol=1e-6)


def test_a_stopped_run_resumes_and_gives_the_same_catalog(
    catalog, file, small_blocks, folder, model, tmp_path
):
    seen = []

    def stop(done, total):
        seen.append((done, total))
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_item_file(catalog, file, progress=stop)
    assert seen == [(0, 10), (3, 10), (6, 10)]
    assert [row[0] for row in state(catalog)] == NAMES[:6]
    catalog.close()
    with Catalog.open(folder, model) as opened, Catalog.create(tmp_path / "whole", model) as whole:
        result = add_item_file(opened, file)
        assert (result.added, result.unchanged, result.done_before) == (4, 0, 6)
        whole.delete(["i4", "i9"])  # as in the fixture
        add_item_file(whole, file)
        assert state(opened) == state(whole)
        opened.update("new 0", tags=["other"])
        again = add_item_file(opened, file)
        assert (again.added, again.done_before) == (0, 10), "a finished file is not read again"
        with pytest.raises(DataError, match="line 1: An item with this id exists with other content"):
            add_item_file(opened, file, again=True)


def test_a_killed_process_resumes_and_gives_the_same_catalog(
    catalog, file, folder, model, tmp_path, small_blocks
):
    """SIGKILL after the second block, in the middle of a run."""
    catalog.close()
    model.save(tmp_path / "model")
    program = """
import os, signal, sys
from pathlib import Path
from metaxc.catalog import Catalog, file_positions
from metaxc.catalog.item_files import add_item_file
from metaxc.emmett import Emmett
file_positions.BLOCK = 3
def kill(done, total):
    if done >= 6:
        os.kill(os.getpid(), signal.SIGKILL)
add_item_file(Catalog.open(sys.argv[1], Emmett.load(sys.argv[2])), Path(sys.argv[3]), progress=kill)
"""
    command = [sys.executable, "-c", program, str(folder), str(tmp_path / "model"), str(file)]
    ended = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert ended.returncode == -signal.SIGKILL
    with Catalog.open(folder, model) as opened, Catalog.create(tmp_path / "whole", model) as whole:
        assert [row[0] for row in state(opened)] == NAMES[:6]
        result = add_item_file(opened, file)
        assert (result.added, result.done_before) == (4, 6)
        whole.delete(["i4", "i9"])
        add_item_file(whole, file)
        assert state(opened) == state(whole)


def test_a_repeated_stream_adds_what_is_missing(catalog, small_blocks):
    def stop(done, total):
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_item_file(catalog, io.BytesIO(as_lines()), progress=stop)
    result = add_item_file(catalog, io.BytesIO(as_lines()))
    assert (result.added, result.unchanged) == (4, 6)
    assert [row[0] for row in state(catalog)] == NAMES


BAD = [
    ('{"id": "new 1"}', "has no 'text'"),
    ("no JSON", "not JSON"),
    ("[1]", "not a JSON object"),
    ('{"id": "new 1", "text": " "}', "item text is empty"),
    ('{"id": "new 1", "text": "i1", "colour": "red"}', "unknown field 'colour'"),
    ('{"id": "i0", "text": "other"}', "exists with other content"),
    ('{"id": "new 1", "text": "unheard of"}', "trained on your own vectors"),
    ('{"id": "new 1", "text": "i1", "vector": [1, 2]}', "wrong length"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_a_bad_line_is_named_and_nothing_is_added_or_it_is_left_out(catalog, file, line, message):
    file.write_bytes(as_lines(ITEMS[:1]) + b"\n" + line.encode() + b"\n" + as_lines(ITEMS[2:]))
    with pytest.raises(DataError, match=f"line 3: .*{message}(.|\n)*--skip-bad; nothing was written"):
        add_item_file(catalog, file)
    assert state(catalog) == []
    result = add_item_file(catalog, file, skip_bad=True)
    assert [problem.line for problem in result.problems] == [3]
    assert [row[0] for row in state(catalog)] == [NAMES[0], *NAMES[2:]]


def test_a_bad_line_of_a_stream_says_what_is_there(catalog, small_blocks):
    lines = as_lines(ITEMS[:5]) + b"no JSON\n" + as_lines(ITEMS[5:])
    with pytest.raises(DataError, match=r"line 6: (.|\n)*3 items, up to line 3, are in the catalog"):
        add_item_file(catalog, io.BytesIO(lines))
    assert [row[0] for row in state(catalog)] == NAMES[:3]
    result = add_item_file(catalog, io.BytesIO(lines), skip_bad=True)
    assert (result.added, result.unchanged, len(result.problems)) == (7, 3, 1)


def test_lines_that_contradict_each_other_say_what_is_written(catalog, file, small_blocks):
    """Each of the two could be added: only when the first is there does the second show itself to be wrong."""
    file.write_bytes(as_lines([*ITEMS[:5], {"id": "new 0", "text": "i7"}, *ITEMS[5:]]))
    with pytest.raises(DataError, match=r"line 6: (.|\n)*3 records, up to line 3, are written and stay"):
        add_item_file(catalog, file)
    assert [row[0] for row in state(catalog)] == NAMES[:3]
    result = add_item_file(catalog, file, skip_bad=True)
    assert (result.added, result.done_before, [one.line for one in result.problems]) == (7, 3, [6])
    assert catalog.get("new 0").text == "i0"


def test_lines_of_one_block_that_contradict_each_other_are_found_before_anything_is_written(catalog, file):
    file.write_bytes(as_lines([*ITEMS[:5], {"id": "new 0", "text": "i7"}, ITEMS[1], *ITEMS[5:]]))
    with pytest.raises(DataError, match=r"line 6: Two different items(.|\n)*nothing was written"):
        add_item_file(catalog, file)
    result = add_item_file(catalog, file, skip_bad=True)
    assert (result.added, result.unchanged, [one.line for one in result.problems]) == (10, 1, [6])


def test_a_migrated_catalog_remembers_its_files(catalog, file, folder, other_model):
    add_item_file(catalog, file)
    catalog.close()
    migrate(folder, other_model)
    with Catalog.open(folder, other_model) as migrated:
        migrated.delete(["new 3"])
        result = add_item_file(migrated, file)
        assert (result.added, result.done_before) == (0, 10)
        assert add_item_file(migrated, file, again=True).added == 1


def test_a_missing_file_is_an_error_even_where_bad_lines_are_left_out(catalog, tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        add_item_file(catalog, tmp_path / "nothing.jsonl", skip_bad=True)


def test_memory_does_not_grow_with_the_file(catalog, file, monkeypatch):
    """At most a block of items is alive at a time."""
    alive = []
    original = Catalog.add

    def add(self, items, *args, **options):
        alive.append(len(items))
        return original(self, items, *args, **options)

    monkeypatch.setattr(Catalog, "add", add)
    file.write_bytes(as_lines([{"id": f"new {n}", "text": "i1"} for n in range(600)]))
    add_item_file(catalog, file)
    assert alive == [256, 256, 88]
    assert NewItem("new 599", "i1") == NewItem("new 599", "i1", vector=[1.0]), "vectors are compared apart"
