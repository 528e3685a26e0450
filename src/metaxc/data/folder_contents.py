"""What the files of a data set folder contain, read as far as they can be read; `dataset_folder` lists the files."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.data_problems import Problem, Reporter, file_error
from metaxc.data.dataset import ClickLog, Dataset, Texts, check_novel, click_matrix
from metaxc.data.item_fields import Fields, any_fields
from metaxc.data.text_files import TextRecord, read_clicks, read_texts
from metaxc.data.text_lines import read_lines
from metaxc.errors import DataError

EXTENSIONS = {
    "items": (".jsonl", ".jsonl.gz", ".parquet"),
    "queries": (".jsonl", ".jsonl.gz", ".parquet"),
    "clicks": (".tsv", ".tsv.gz", ".parquet"),
    "filters": (".tsv", ".tsv.gz", ".parquet"),
    "novel": (".txt", ".txt.gz"),
    "dataset": (".json",),
}
UNSPLIT = ("queries", "clicks")
SPLIT = ("queries.train", "clicks.train", "queries.test", "clicks.test")
STEMS = ("items", *UNSPLIT, *SPLIT, "novel", "filters.test", "dataset")
EXCLUDE_SELF = "exclude_self"
"""The key of dataset.json."""


@dataclass(frozen=True)
class TextFile:
    """The texts of a file.

    Args:
        path: The file.
        texts: The texts; "" where a text could not be used.
        lines: (n,) int64 line number of each, from 1.
        first_seen: When each was first seen, None where that is not given; `texts` has times only where all are given.
    """

    path: Path
    texts: Texts
    lines: Rows
    first_seen: list[int | None]


@dataclass(frozen=True)
class ClickFile:
    """The clicks of a file in their order, repeated ones included.

    Args:
        path: The file.
        queries, items: (n,) int64 rows.
        lines: (n,) int64 line numbers, from 1.
        times: (n,) float64, seconds since 1970, if known.
        counts: (n,) int64, number of events.
    """

    path: Path
    queries: Rows
    items: Rows
    lines: Rows
    times: Doubles | None
    counts: Rows

    def to_matrix(self, shape: tuple[int, int]) -> csr_array:
        """(queries, items) float32, 1 for each pair."""
        return click_matrix(self.queries, self.items, shape)

    def to_log(self, queries: Texts, items: int) -> ClickLog:
        """The click log."""
        return ClickLog.of_events(queries, items, self.queries, self.items, self.times, self.counts)

    def take(self, kept: Mask) -> ClickFile:
        """The clicks where `kept` is True."""
        times = None if self.times is None else self.times[kept]
        return ClickFile(
            self.path, self.queries[kept], self.items[kept], self.lines[kept], times, self.counts[kept]
        )


@dataclass(frozen=True)
class FolderContents:
    """What could be read from a folder; None for a file that does not exist."""

    items: TextFile | None
    train_queries: TextFile | None
    train_clicks: ClickFile | None
    test_queries: TextFile | None = None
    test_clicks: ClickFile | None = None
    novel: Mask | None = None
    filters: ClickFile | None = None
    exclude_self: bool = False

    def to_dataset(self, name: str) -> Dataset:
        """The data set, of contents without any problem."""
        if self.items is None or self.train_queries is None or self.train_clicks is None:
            raise AssertionError("a missing file was not reported")
        items = len(self.items.texts)
        test = filters = None
        if self.test_queries is not None and self.test_clicks is not None:
            test = self.test_clicks.to_log(self.test_queries.texts, items)
            filters = None if self.filters is None else self.filters.to_matrix((len(test), items))
        return Dataset(
            items=self.items.texts,
            train=self.train_clicks.to_log(self.train_queries.texts, items),
            test=test,
            novel=self.novel,
            filters=filters,
            name=name,
            exclude_self=self.exclude_self,
        )


def read_contents(folder: Path, report: Reporter) -> FolderContents:
    """Read all files of the folder; every line that cannot be read is passed to `report`."""
    paths = _find_files(folder, report)
    items = _read_text_file(paths.get("items"), report)
    is_split = any(stem in paths for stem in SPLIT)
    train_queries = _read_text_file(paths.get("queries.train" if is_split else "queries"), report)
    test_queries = _read_text_file(paths.get("queries.test"), report)
    train_clicks = paths.get("clicks.train" if is_split else "clicks")
    return FolderContents(
        items=items,
        train_queries=train_queries,
        train_clicks=_read_click_file(train_clicks, train_queries, items, report),
        test_queries=test_queries,
        test_clicks=_read_click_file(paths.get("clicks.test"), test_queries, items, report),
        novel=_read_novel_file(paths.get("novel"), items, report),
        filters=_read_click_file(paths.get("filters.test"), test_queries, items, report, may_be_empty=True),
        exclude_self=_read_settings(paths.get("dataset"), report),
    )


def _find_files(folder: Path, report: Reporter) -> dict[str, Path]:
    """Path of each file by its stem ("items", "queries.train", …); reports missing and ambiguous files."""
    if not folder.is_dir():
        message = "The path is not a folder" if folder.exists() else "The folder does not exist"
        report(Problem("error", "missing folder", "", None, message, str(folder), "a data set folder"))
        return {}
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    paths: dict[str, Path] = {}
    for stem in STEMS:
        found = [name for name in names if name in file_names(stem)]
        if len(found) > 1:
            message = f"There are {len(found)} files of {stem}"
            report(file_error(folder / found[0], None, "ambiguous files", message, found, "one of them"))
        if found:
            paths[stem] = folder / found[0]
    unsplit, split = ([stem for stem in stems if stem in paths] for stems in (UNSPLIT, SPLIT))
    if unsplit and split:
        both = [paths[unsplit[0]].name, paths[split[0]].name]
        message = "The folder has an unsplit click log as well as train and test parts"
        report(file_error(paths[unsplit[0]], None, "ambiguous files", message, both, "only one of the two"))
    for stem in ("items", *(SPLIT if split else UNSPLIT)):
        if stem not in paths:
            _report_missing(folder, stem, names, report)
    if "filters.test" in paths and not split:
        message = "There is a filter file for the test part, but no test part"
        report(file_error(paths["filters.test"], None, "missing file", message, names, ", ".join(SPLIT)))
    return paths


def file_names(stem: str) -> tuple[str, ...]:
    """The names that a file may have: items.jsonl, items.jsonl.gz, items.parquet."""
    return tuple(stem + extension for extension in EXTENSIONS[stem.split(".")[0]])


def _report_missing(folder: Path, stem: str, names: list[str], report: Reporter) -> None:
    found = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "an empty folder"
    possible = file_names(stem)
    got, expected = f"in {folder}: {found}", " or ".join(possible)
    report(Problem("error", "missing file", possible[0], None, "The file is missing", got, expected))


def _read_text_file(path: Path | None, report: Reporter) -> TextFile | None:
    return None if path is None else collect_texts(path, read_texts(path, report), report)


def collect_texts(path: Path, records: Iterable[TextRecord], report: Reporter) -> TextFile:
    """The texts of a file by id; an id that is used again is reported, and so is a first_seen on some lines only.

    Args:
        path: Names the file in problems.
        records: From `read_texts` or `parse_texts`.
        report: Receives each problem.
    """
    row_of: dict[str, int] = {}
    texts: list[str] = []
    tags: list[tuple[str, ...]] = []
    fields: list[Fields] = []
    lines = array("q")
    first_seen: list[int | None] = []
    for record in records:
        if record.id in row_of:
            message = f"The id is already used on line {lines[row_of[record.id]]}"
            report(file_error(path, record.line, "duplicate id", message, record.id, "unique ids"))
            continue
        row_of[record.id] = len(texts)
        texts.append(record.text)
        tags.append(record.tags)
        fields.append(record.fields)
        lines.append(record.line)
        first_seen.append(record.first_seen)
    missing = [row for row, time in enumerate(first_seen) if time is None]
    if missing and len(missing) < len(texts):
        for row in missing:
            message = "The line has no valid first_seen, and others have one"
            expected = "a first_seen on every line, or on none"
            remedy = "first_seen set to its first click, or else to the earliest of the file"
            report(file_error(path, lines[row], "first_seen on some lines", message, None, expected, remedy))
    times = None if missing or not texts else np.asarray(first_seen, np.int64)
    found = Texts(list(row_of), texts, times, tags if any(tags) else None, any_fields(fields))
    return TextFile(path, found, _to_rows(lines), first_seen)


def _read_click_file(
    path: Path | None,
    queries: TextFile | None,
    items: TextFile | None,
    report: Reporter,
    *,
    may_be_empty: bool = False,
) -> ClickFile | None:
    if path is None:
        return None
    query_row_of = queries.texts.row_of if queries else {}
    item_row_of = items.texts.row_of if items else {}
    found = ClickCollector(path, report)
    for line, query, item, time, count in read_clicks(path, report, may_be_empty=may_be_empty):
        query_row, item_row = query_row_of.get(query), item_row_of.get(item)
        if query_row is None or item_row is None:
            if query_row is None and queries:
                _report_unknown(path, line, "query", query, queries, report)
            if item_row is None and items:
                _report_unknown(path, line, "item", item, items, report)
            continue
        found.add(line, query_row, item_row, time, count)
    return found.finish()


class ClickCollector:
    """Collects the clicks of a file; lines without a time where others have one are reported and left out.

    Args:
        path: Names the file in problems.
        report: Receives each problem.
    """

    def __init__(self, path: Path, report: Reporter):
        self.path, self.report = path, report
        self._queries, self._items, self._lines, self._counts = (array("q") for _ in range(4))
        self._times = array("d")

    def add(self, line: int, query: int, item: int, time: float | None, count: int) -> None:
        """Add the click of a line, by the rows of its query and its item."""
        self._queries.append(query)
        self._items.append(item)
        self._lines.append(line)
        self._counts.append(count)
        self._times.append(np.nan if time is None else time)

    def finish(self) -> ClickFile:
        """The clicks that were added."""
        times = np.asarray(self._times, np.float64)
        untimed = np.isnan(times)
        rows = [_to_rows(values) for values in (self._queries, self._items, self._lines, self._counts)]
        queries, items, lines, counts = rows
        if untimed.all():
            return ClickFile(self.path, queries, items, lines, None, counts)
        for line in lines[untimed].tolist():
            message, expected = (
                "The line has no time, and others have one",
                "a time on every line, or on none",
            )
            self.report(file_error(self.path, line, "time on some lines", message, None, expected))
        return ClickFile(self.path, queries, items, lines, times, counts).take(~untimed)


def _report_unknown(path: Path, line: int, what: str, name: str, known: TextFile, report: Reporter) -> None:
    expected = f"an id of {known.path.name}"
    report(file_error(path, line, f"unknown {what} id", f"The {what} id is unknown", name, expected))


def _read_novel_file(path: Path | None, items: TextFile | None, report: Reporter) -> Mask | None:
    if path is None or items is None:
        return None
    novel = np.zeros(len(items.texts), dtype=np.bool_)
    for line, name in read_lines(path, report):
        if not name:
            continue
        row = items.texts.row_of.get(name)
        if row is None:
            _report_unknown(path, line, "item", name, items, report)
        else:
            novel[row] = True
    try:
        check_novel(novel, len(items.texts))
    except DataError as wrong:
        got, expected = str(wrong.got), str(wrong.expected)
        remedy = f"written without {path.name}"
        report(Problem("error", "novel items", path.name, None, wrong.what, got, expected, remedy))
        return None
    return novel


def _to_rows(values: Iterable[int]) -> Rows:
    return np.asarray(values, dtype=np.int64)


def _read_settings(path: Path | None, report: Reporter) -> bool:
    """Whether items are excluded from the answers to their own texts: what dataset.json says."""
    if path is None:
        return False
    try:
        content = json.loads(path.read_bytes())
        if set(content) - {EXCLUDE_SELF} or not isinstance(content[EXCLUDE_SELF], bool):
            raise ValueError(str(content))
    except (OSError, ValueError, TypeError, KeyError) as problem:
        expected = f'{{"{EXCLUDE_SELF}": true}}'
        report(file_error(path, None, "invalid settings", "The file cannot be used", str(problem), expected))
        return False
    return bool(content[EXCLUDE_SELF])
