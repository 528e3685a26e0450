"""Items of any number from a file or a stream, each added once (`metaxc.catalog.file_positions`).

A stream, such as standard input, cannot be read twice. Each of its blocks is checked before it is added, and a run that
was stopped is repeated with the same stream: items that the catalog has with the same content are left as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from metaxc.catalog import file_positions
from metaxc.catalog.catalog_errors import ConflictError
from metaxc.catalog.file_positions import ITEM_FILES, FileProblems, FileWriter, Progress, in_blocks
from metaxc.catalog.item_rules import validate_item, validate_items
from metaxc.catalog.records import NewItem
from metaxc.data.data_problems import Problem, Reporter, file_error, raise_first
from metaxc.data.parquet_files import is_parquet, read_parquet
from metaxc.data.text_lines import read_json_lines
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.catalog import Catalog

EXPECTED = '{"id": …, "text": …}, with "tags": […], "fields": {…} and "vector": […] if wanted'
STDIN = Path("standard input")
ROWS_AT_ONCE = 1_024
"""Rows of a Parquet file in memory: vectors are large."""


@dataclass(frozen=True)
class ItemFileResult:
    """What was done with a file of items.

    Args:
        added: Items that this run has added.
        unchanged: Items that the catalog had with the same content.
        done_before: Items that earlier runs with this file had read.
        problems: Lines that were left out, and why.
    """

    added: int
    unchanged: int
    done_before: int
    problems: FileProblems


def add_item_file(
    catalog: Catalog,
    source: Path | IO[bytes],
    *,
    skip_bad: bool = False,
    again: bool = False,
    progress: Progress = lambda done, total: None,
) -> ItemFileResult:
    """Add the items of a file or a stream, about 256 at a time, each block completely or not at all.

    Args:
        catalog: The catalog.
        source: JSON lines of "id", "text" and, if wanted, "tags", "fields" and "vector" (plain or `.gz`), a Parquet
            file with these columns (fields may be strings of JSON), or an open stream of JSON lines. All lines of a
            file are checked before the first item is added.
        skip_bad: Whether lines that cannot be used are left out; otherwise the first of them is a `DataError`.
        again: Whether a file that was added before is read once more from its beginning.
        progress: Called with the number of items done and their total; the total of a stream is the number done.
    """
    problems = FileProblems()
    added = unchanged = 0

    def write(items: list[NewItem], position: tuple[str, int] | None) -> None:
        nonlocal added, unchanged
        result = catalog.add(items, file_position=position)
        added, unchanged = added + result.added, unchanged + result.unchanged

    check = _ItemCheck(catalog)
    if isinstance(source, Path):
        writer = FileWriter(ITEM_FILES, read_items, check, write)
        _, before = writer.run(
            catalog, source, problems if skip_bad else None, again=again, progress=progress
        )
        return ItemFileResult(added, unchanged, before, problems)
    done = last = 0

    def stop(problem: Problem) -> None:
        so_far = f"{done:,} items, up to line {last:,}, are in the catalog and stay"
        fix = f"correct the line, or leave such lines out: --skip-bad; then send all of it again: {so_far}"
        raise_first(Path(), fix)(problem)

    report: Reporter = problems if skip_bad else stop
    records = (pair for pair in read_items(STDIN, report, source) if check(STDIN, *pair, report))
    for block in in_blocks(records):
        write([item for _, item in block], None)
        done, last = done + len(block), block[-1][0]
        progress(done, done)
    return ItemFileResult(added, unchanged, 0, problems)


def read_items(
    path: Path, report: Reporter, stream: IO[bytes] | None = None
) -> Iterator[tuple[int, NewItem]]:
    """Line and item of each line that has an id, and a text or a vector.

    Args:
        path: JSON lines, plain or `.gz`, or Parquet.
        report: Receives each problem.
        stream: The open file, if it is not to be opened; `path` names it in problems.
    """
    if stream is None and is_parquet(path):
        optional = {"text": None, "tags": None, "fields": None, "vector": None}
        for line, *values in read_parquet(path, ("id",), optional, report, rows_at_once=ROWS_AT_ONCE):
            record = dict(zip(("id", *optional), values, strict=True))
            if isinstance(record["fields"], str):
                with suppress(
                    ValueError, RecursionError
                ):  # what is not JSON is reported as fields that are no object
                    record["fields"] = json.loads(record["fields"])
            yield from _parse(path, line, record, report)
        return
    for line, record in read_json_lines(path, report, expected=EXPECTED, may_be_empty=False, stream=stream):
        yield from _parse(path, line, record, report)


def _parse(
    path: Path, line: int, record: dict[str, object], report: Reporter
) -> Iterator[tuple[int, NewItem]]:
    try:
        item = NewItem.of({name: value for name, value in record.items() if value is not None})
    except (DataError, TypeError) as wrong:
        message = wrong.what if isinstance(wrong, DataError) else "The line is not an item"
        report(file_error(path, line, "not an item", message, record, EXPECTED))
        return
    yield line, item


class _ItemCheck:
    """Checks items against the catalog, and against those before them that may be in the same block."""

    def __init__(self, catalog: Catalog):
        self.catalog = catalog
        self._recent: dict[str, NewItem] = {}
        self._line = 0

    def __call__(self, path: Path, line: int, item: NewItem, report: Reporter) -> bool:
        """Whether an item can be added; why not is reported."""
        if line <= self._line:  # the file is read a second time
            self._recent.clear()
        self._line = line
        try:
            self._check(item)
        except ConflictError as wrong:
            expected = "another id, or the content that it has: update the item to change it"
            report(file_error(path, line, "other content", wrong.what, item.id, expected))
            return False
        except DataError as wrong:
            report(file_error(path, line, "invalid item", wrong.what, str(wrong.got), str(wrong.expected)))
            return False
        return True

    def _check(self, item: NewItem) -> None:
        valid = validate_item(item, self.catalog.store.dim)
        exists = self.catalog.exists(valid)
        if not exists and valid.vector is None and not self.catalog.can_encode_item(valid.text):
            raise DataError(
                "The model was trained on your own vectors and has none for this item",
                got=item.text,
                expected='the item\'s vector: "vector": […]',
            )
        validate_items([self._recent.get(valid.id, valid), valid], self.catalog.store.dim)
        self._recent.setdefault(valid.id, valid)
        if len(self._recent) > file_positions.BLOCK:
            del self._recent[next(iter(self._recent))]
