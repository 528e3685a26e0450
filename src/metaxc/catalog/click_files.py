"""Clicks of any number from a file, each recorded once (`metaxc.catalog.file_positions`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaxc.catalog.file_positions import CLICK_FILES, FileProblems, FileWriter, Progress
from metaxc.catalog.records import NewClick
from metaxc.catalog.vector_rules import validate_embedding
from metaxc.data.data_problems import Reporter, file_error
from metaxc.data.input_rules import validate_query
from metaxc.data.parquet_files import is_parquet, read_parquet
from metaxc.data.text_files import RawClick, parse_clicks, parse_id, read_clicks
from metaxc.data.text_lines import read_json_lines
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.catalog import Catalog

MOST_EVENTS = 1_000
"""Events of one line. A catalog keeps each click with its embedding; larger counts belong into training data."""

JSON_LINES = (".jsonl", ".ndjson")
ROWS_AT_ONCE = 1_024
"""Rows of a Parquet file in memory: vectors are large."""


@dataclass(frozen=True)
class ClickFileResult:
    """What was done with a file of clicks.

    Args:
        recorded: Clicks that this run has recorded.
        recorded_before: Clicks that earlier runs had recorded.
        problems: Lines that were left out, or read differently, and why.
    """

    recorded: int
    recorded_before: int
    problems: FileProblems


def record_click_file(
    catalog: Catalog,
    path: Path,
    *,
    skip_bad: bool = False,
    again: bool = False,
    progress: Progress = lambda done, total: None,
) -> ClickFileResult:
    """Record the clicks of a file. All lines are read and checked before the first click is recorded.

    Args:
        catalog: The catalog.
        path: A file of tab-separated query text, item id and, if wanted, time and count; JSON lines with "query",
            "item" and, if wanted, "time", "count" and "vector", the query's embedding (`.jsonl`, `.ndjson`); or Parquet
            with these columns. Plain or `.gz`. A click without a time happens now.
        skip_bad: Whether lines that cannot be used, such as clicks on unknown items, are left out; otherwise the first
            of them is a `DataError` and nothing is recorded.
        again: Whether a file that was recorded before is recorded once more, from its beginning.
        progress: Called with the number of clicks done and their total.
    """
    problems = FileProblems()
    writer = FileWriter(
        CLICK_FILES,
        _read_file,
        lambda file, line, click, report: _is_usable(file, line, click, catalog, report),
        lambda clicks, position: catalog.clicks(clicks, file_position=position),
    )
    recorded, before = writer.run(
        catalog, path, problems if skip_bad else None, again=again, progress=progress
    )
    return ClickFileResult(recorded, before, problems)


def _read_file(path: Path, report: Reporter) -> Iterator[tuple[int, NewClick]]:
    vectors: dict[int, Any] = {}
    if path.name.removesuffix(".gz").endswith(JSON_LINES):
        rows = parse_clicks(path, _json_clicks(path, vectors, report), report)
    elif is_parquet(path):
        rows = parse_clicks(path, _parquet_clicks(path, vectors, report), report)
    else:
        rows = read_clicks(path, report)
    for line, query, item, time, count in rows:
        vector = vectors.pop(line, None)
        vectors.clear()  # of lines that were left out
        if count > MOST_EVENTS:
            expected = f"at most {MOST_EVENTS:,} clicks on a line"
            report(file_error(path, line, "count too large", "The count is too large", count, expected))
            continue
        for _ in range(count):
            yield line, NewClick(item, query, time, vector)


def _json_clicks(path: Path, vectors: dict[int, Any], report: Reporter) -> Iterator[RawClick]:
    expected = '{"query": …, "item": …}, with "time", "count" and "vector" if wanted'
    for line, record in read_json_lines(path, report, expected=expected, may_be_empty=False):
        query, item = record.get("query"), record.get("item")
        if isinstance(query, str) and isinstance(item, str):
            vectors[line] = record.get("vector")
            yield line, query, item, record.get("time"), record.get("count", 1)
        else:
            message = "The line has no query or no item"
            report(file_error(path, line, "missing key", message, record, expected))


def _parquet_clicks(path: Path, vectors: dict[int, Any], report: Reporter) -> Iterator[RawClick]:
    optional = {"time": None, "count": 1, "vector": None}
    rows = read_parquet(path, ("query", "item"), optional, report, rows_at_once=ROWS_AT_ONCE)
    for line, query, item, time, count, vector in rows:
        query_id = parse_id(path, line, query, report, "query")
        item_id = parse_id(path, line, item, report, "item")
        if query_id is not None and item_id is not None:
            vectors[line] = vector
            yield line, query_id, item_id, time, count


def _is_usable(path: Path, line: int, click: NewClick, catalog: Catalog, report: Reporter) -> bool:
    def refuse(kind: str, message: str, got: object, expected: object) -> bool:
        report(file_error(path, line, kind, message, got, str(expected)))
        return False

    try:
        validate_query(click.query)
    except DataError as wrong:
        return refuse("invalid query", wrong.what, click.query, wrong.expected)
    if click.item not in catalog:
        message = "The catalog has no item with this id"
        return refuse("unknown item id", message, click.item, "the id of an item")
    if click.vector is None:
        if catalog.can_encode_query(click.query):
            return True
        message = "The model was trained on your own vectors and has none for this query"
        return refuse("no vector", message, click.query, 'the query\'s vector: "vector": […]')
    try:
        validate_embedding(click.vector, catalog.store.dim, "query's vector")
    except DataError as wrong:
        return refuse("invalid vector", wrong.what, str(wrong.got), wrong.expected)
    return True
