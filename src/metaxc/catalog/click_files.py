"""Clicks of any number from a file, recorded block by block: a run that was stopped resumes where it was.

Each block is one transaction, all of it or nothing. The same transaction notes up to which line the file is recorded,
so that no click is lost or counted twice, wherever a run was killed. A file is known by the SHA-256 of its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from metaxc.artifacts import file_digest
from metaxc.catalog.records import NewClick
from metaxc.catalog.schema import read_metadata
from metaxc.data.data_problems import Problem, Reporter, file_error, raise_first
from metaxc.data.input_rules import validate_query
from metaxc.data.text_files import RawClick, parse_clicks, read_clicks
from metaxc.data.text_lines import read_json_lines
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.catalog import Catalog

BLOCK = 256
"""Clicks per transaction: what a stopped run may have to encode again, and what one sync is shared by."""

MOST_EVENTS = 1_000
"""Events of one line. A catalog keeps each click with its embedding; larger counts belong into training data."""

FILES_KEPT = 100
"""Files whose positions a catalog remembers, the newest."""

CLICK_FILES = "click files"
"""The entry of the catalog's metadata that has these positions."""

JSON_LINES = (".jsonl", ".ndjson")


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
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class _FileClick:
    line: int
    click: NewClick


def record_click_file(
    catalog: Catalog,
    path: Path,
    *,
    skip_bad: bool = False,
    again: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ClickFileResult:
    """Record the clicks of a file. All lines are read and checked before the first click is recorded.

    Args:
        catalog: The catalog.
        path: A file of tab-separated query text, item id and, if wanted, time and count; JSON lines with "query",
            "item" and, if wanted, "time" and "count" (`.jsonl`, `.ndjson`); or Parquet with these columns. Plain or
            `.gz`. A click without a time happens now.
        skip_bad: Whether lines that cannot be used, such as clicks on unknown items, are left out; otherwise the first
            of them is a `DataError` and nothing is recorded.
        again: Whether a file that was recorded before is recorded once more, from its beginning.
        progress: Called with the number of clicks done and their total.
    """
    problems: list[Problem] = []
    fix = "correct the line, or leave such lines out: --skip-bad; nothing was recorded"
    report: Reporter = problems.append if skip_bad else raise_first(path.parent, fix)
    clicks = [click for click in _read_file(path, report) if _is_usable(click, catalog, path, report)]
    if any(problem.line is None for problem in problems):
        raise DataError("The file of clicks cannot be read", got=problems[-1])
    digest = file_digest(path)
    done = 0 if again else read_positions(catalog).get(digest, 0)
    left = [click for click in clicks if click.line > done]
    before, recorded = len(clicks) - len(left), 0
    progress(before, len(clicks))
    for block in _blocks(left):
        catalog.clicks([one.click for one in block], file_position=(digest, block[-1].line))
        recorded += len(block)
        progress(before + recorded, len(clicks))
    return ClickFileResult(recorded, before, tuple(problems))


def read_positions(catalog: Catalog) -> dict[str, int]:
    """The last recorded line of each file that the catalog remembers, by the SHA-256 of the file."""
    with catalog.store.read_snapshot() as connection:
        stored: dict[str, int] = json.loads(read_metadata(connection).get(CLICK_FILES, "{}"))
        return stored


def note_position(metadata: dict[str, str], digest: str, line: int) -> None:
    """Note in a transaction's metadata that a file is recorded up to a line."""
    positions = json.loads(metadata.get(CLICK_FILES, "{}"))
    positions.pop(digest, None)
    newest = list(positions.items())[-(FILES_KEPT - 1) :]
    metadata[CLICK_FILES] = json.dumps(dict([*newest, (digest, line)]))


def _read_file(path: Path, report: Reporter) -> Iterator[_FileClick]:
    names = path.name.removesuffix(".gz")
    rows = (
        parse_clicks(path, _json_clicks(path, report), report)
        if names.endswith(JSON_LINES)
        else read_clicks(path, report)
    )
    for line, query, item, time, count in rows:
        if count > MOST_EVENTS:
            expected = f"at most {MOST_EVENTS:,} clicks on a line"
            report(file_error(path, line, "count too large", "The count is too large", count, expected))
            continue
        for _ in range(count):
            yield _FileClick(line, NewClick(item, query, time))


def _json_clicks(path: Path, report: Reporter) -> Iterator[RawClick]:
    expected = '{"query": …, "item": …}, with "time" and "count" if wanted'
    for line, record in read_json_lines(path, report, expected=expected, may_be_empty=False):
        query, item = record.get("query"), record.get("item")
        if isinstance(query, str) and isinstance(item, str):
            yield line, query, item, record.get("time"), record.get("count", 1)
        else:
            message = "The line has no query or no item"
            report(file_error(path, line, "missing key", message, record, expected))


def _is_usable(one: _FileClick, catalog: Catalog, path: Path, report: Reporter) -> bool:
    try:
        validate_query(one.click.query)
    except DataError as wrong:
        report(file_error(path, one.line, "invalid query", wrong.what, one.click.query, str(wrong.expected)))
        return False
    if one.click.item not in catalog:
        message = "The catalog has no item with this id"
        report(file_error(path, one.line, "unknown item id", message, one.click.item, "the id of an item"))
        return False
    return True


def _blocks(clicks: Sequence[_FileClick]) -> Iterator[list[_FileClick]]:
    """The clicks in blocks of about `BLOCK`; those of one line are never parted."""
    block: list[_FileClick] = []
    for _, line in groupby(clicks, key=lambda one: one.line):
        block += line
        if len(block) >= BLOCK:
            yield block
            block = []
    if block:
        yield block
