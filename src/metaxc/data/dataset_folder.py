"""A data set as a folder of files.

    items.jsonl      {"id": "i1", "text": "red apple"}, optionally with "first_seen"
    queries.jsonl    {"id": "q1", "text": "fruit"}
    clicks.tsv       query id, item id and optionally a time and a count, separated by tabs; no header

With a fixed test part: queries.train.jsonl, queries.test.jsonl, clicks.train.tsv, clicks.test.tsv. Optional files are
novel.txt (one item id per line) and filters.test.tsv (query id, tab, item id: pairs that are removed from a ranking).
Each file may be compressed with gzip (.gz). A .parquet file may replace a .jsonl file (columns id, text, first_seen) or
a .tsv file (columns query, item, time, count). A time is a number of seconds since 1970 or an ISO-8601 string. A line
of clicks is one event, or as many events at the same time as its count; beside a count the time may be empty.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.artifacts import atomic_file
from metaxc.data.data_problems import (
    Problem,
    Reporter,
    file_error,
    raise_first,
    shorten,
)
from metaxc.data.dataset import ClickLog, Dataset, Texts, check_novel, click_matrix
from metaxc.data.input_rules import validate_id, validate_text
from metaxc.data.text_files import (
    MAX_COUNT,
    MAX_SECONDS,
    json_lines,
    read_clicks,
    read_lines,
    read_texts,
    write_lines,
)
from metaxc.errors import DataError

_EXTENSIONS = {
    "items": (".jsonl", ".jsonl.gz", ".parquet"),
    "queries": (".jsonl", ".jsonl.gz", ".parquet"),
    "clicks": (".tsv", ".tsv.gz", ".parquet"),
    "filters": (".tsv", ".tsv.gz", ".parquet"),
    "novel": (".txt", ".txt.gz"),
}
_UNSPLIT = ("queries", "clicks")
_SPLIT = ("queries.train", "clicks.train", "queries.test", "clicks.test")
_STEMS = ("items", *_UNSPLIT, *_SPLIT, "novel", "filters.test")


@dataclass(frozen=True)
class TextFile:
    """The texts of a file and the line number of each: (n,) int64, from 1."""

    path: Path
    texts: Texts
    lines: Rows


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


@dataclass(frozen=True)
class FolderContents:
    """What could be read from a folder; None for a file that does not exist."""

    items: TextFile | None
    train_queries: TextFile | None
    train_clicks: ClickFile | None
    test_queries: TextFile | None
    test_clicks: ClickFile | None
    novel: Mask | None
    filters: ClickFile | None


def read_folder(path: str | Path) -> Dataset:
    """Read a data set from a folder (see the module for its files) and name it after the folder.

    The first problem is raised as a `DataError` with its file and line; `check_folder` lists all problems.

    Example:
        >>> read_folder("shop")  # doctest: +SKIP
        Dataset('shop': 12,000 items, train ClickLog(90,000 queries, 310,000 clicks))
    """
    folder = Path(path)
    fix = f"correct the file; `metaxc data check {folder}` lists every problem in the folder"
    found = read_contents(folder, raise_first(folder, fix))
    if found.items is None or found.train_queries is None or found.train_clicks is None:
        raise AssertionError("a missing file was not reported")
    items = len(found.items.texts)
    test = filters = None
    if found.test_queries is not None and found.test_clicks is not None:
        test = found.test_clicks.to_log(found.test_queries.texts, items)
        filters = None if found.filters is None else found.filters.to_matrix((len(test), items))
    return Dataset(
        items=found.items.texts,
        train=found.train_clicks.to_log(found.train_queries.texts, items),
        test=test,
        novel=found.novel,
        filters=filters,
        name=folder.resolve().name,
    )


def read_contents(folder: Path, report: Reporter) -> FolderContents:
    """Read all files of the folder; every line that cannot be read is passed to `report`."""
    paths = _find_files(folder, report)
    items = _read_text_file(paths.get("items"), report)
    is_split = any(stem in paths for stem in _SPLIT)
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
    )


def _find_files(folder: Path, report: Reporter) -> dict[str, Path]:
    """Path of each file by its stem ("items", "queries.train", …); reports missing and ambiguous files."""
    if not folder.is_dir():
        message = "The path is not a folder" if folder.exists() else "The folder does not exist"
        report(Problem("error", "missing folder", "", None, message, str(folder), "a data set folder"))
        return {}
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    paths: dict[str, Path] = {}
    for stem in _STEMS:
        found = [name for name in names if name in _file_names(stem)]
        if len(found) > 1:
            message = f"There are {len(found)} files of {stem}"
            report(file_error(folder / found[0], None, "ambiguous files", message, found, "one of them"))
        if found:
            paths[stem] = folder / found[0]
    unsplit, split = ([stem for stem in stems if stem in paths] for stems in (_UNSPLIT, _SPLIT))
    if unsplit and split:
        both = [paths[unsplit[0]].name, paths[split[0]].name]
        message = "The folder has an unsplit click log as well as train and test parts"
        report(file_error(paths[unsplit[0]], None, "ambiguous files", message, both, "only one of the two"))
    for stem in ("items", *(_SPLIT if split else _UNSPLIT)):
        if stem not in paths:
            _report_missing(folder, stem, names, report)
    if "filters.test" in paths and not split:
        message = "There is a filter file for the test part, but no test part"
        report(file_error(paths["filters.test"], None, "missing file", message, names, ", ".join(_SPLIT)))
    return paths


def _file_names(stem: str) -> tuple[str, ...]:
    """The names that a file may have: items.jsonl, items.jsonl.gz, items.parquet."""
    return tuple(stem + extension for extension in _EXTENSIONS[stem.split(".")[0]])


def _report_missing(folder: Path, stem: str, names: list[str], report: Reporter) -> None:
    found = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "an empty folder"
    possible = _file_names(stem)
    got, expected = f"in {folder}: {found}", " or ".join(possible)
    report(Problem("error", "missing file", possible[0], None, "The file is missing", got, expected))


def _read_text_file(path: Path | None, report: Reporter) -> TextFile | None:
    if path is None:
        return None
    row_of: dict[str, int] = {}
    texts: list[str] = []
    lines, first_seen = array("q"), array("q")
    for line, name, text, seen in read_texts(path, report):
        if name in row_of:
            message = f"The id is already used on line {lines[row_of[name]]}"
            report(file_error(path, line, "duplicate id", message, name, "unique ids"))
            continue
        row_of[name] = len(texts)
        texts.append(text)
        lines.append(line)
        if seen is not None:
            first_seen.append(seen)
    times = _to_rows(first_seen) if texts and len(first_seen) == len(texts) else None
    return TextFile(path, Texts(list(row_of), texts, times), _to_rows(lines))


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
    query_rows, item_rows, lines, counts = (array("q") for _ in range(4))
    times = array("d")
    for line, query, item, time, count in read_clicks(path, report, may_be_empty=may_be_empty):
        query_row, item_row = query_row_of.get(query), item_row_of.get(item)
        if query_row is None or item_row is None:
            if query_row is None and queries:
                _report_unknown(path, line, "query", query, queries, report)
            if item_row is None and items:
                _report_unknown(path, line, "item", item, items, report)
            continue
        query_rows.append(query_row)
        item_rows.append(item_row)
        lines.append(line)
        counts.append(count)
        if time is not None:
            times.append(time)
    known_times = np.asarray(times, np.float64) if times else None
    rows = (_to_rows(query_rows), _to_rows(item_rows), _to_rows(lines))
    return ClickFile(path, *rows, known_times, _to_rows(counts))


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
        report(Problem("error", "novel items", path.name, None, wrong.what, got, expected))
        return None
    return novel


def _to_rows(values: Iterable[int]) -> Rows:
    return np.asarray(values, dtype=np.int64)


def write_folder(dataset: Dataset, path: str | Path) -> None:
    """Write the data set so that `read_folder` returns one with the same texts, events and fingerprint.

    Each file is written under a temporary name, and no file is replaced before all of them are complete.

    Args:
        dataset: The data set; one that could not be read back is a `DataError`.
        path: The folder, created if it does not exist. If it contains files of another data set that would not be
            overwritten, and would then be read together with the new files, a `DataError` is raised.
    """
    folder = Path(path)
    files = _file_lines(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    _check_other_files(folder, set(files))
    with ExitStack() as complete:
        for name, lines in files.items():
            write_lines(complete.enter_context(atomic_file(folder / name)), lines)


def _file_lines(dataset: Dataset) -> dict[str, Iterator[str]]:
    """The lines of each file, by file name."""
    items, test = dataset.items, dataset.test
    _check_texts(items, "item")
    files = {"items.jsonl": _text_lines(items)}
    logs = {"": dataset.train} if test is None else {".train": dataset.train, ".test": test}
    for part, log in logs.items():
        _check_texts(log.queries, "query")
        if log.clicks.nnz == 0:
            raise DataError(
                "A click log without clicks cannot be written", got=log, expected="at least one click"
            )
        _check_below(log.times, MAX_SECONDS, "click time", "seconds since 1970")
        _check_below(log.groups.counts, MAX_COUNT + 1, "count of a click", f"at most {MAX_COUNT:,}")
        files[f"queries{part}.jsonl"] = _text_lines(log.queries)
        files[f"clicks{part}.tsv"] = _click_lines(log, items)
    if test is not None and dataset.filters is not None:
        filters = ClickLog(test.queries, dataset.filters.sorted_indices())
        files["filters.test.tsv"] = _click_lines(filters, items)
    if dataset.novel is not None:
        files["novel.txt"] = (items.ids[row] for row in dataset.novel_rows)
    return files


def _check_texts(texts: Texts, what: str) -> None:
    if not len(texts):
        raise DataError(f"There is no {what} to write", expected=f"at least one {what}")
    for name, text in zip(texts.ids, texts.texts, strict=True):
        try:
            validate_id(name)
            validate_text(text)
        except DataError as wrong:
            raise DataError(
                f"{wrong.what}: {what} {shorten(name)} cannot be written",
                got=shorten(text) if wrong.what.startswith("The text") else shorten(name),
                expected=wrong.expected,
                fix=wrong.fix or "correct it, or remove it and its clicks",
            ) from wrong
    _check_below(texts.first_seen, MAX_SECONDS, f"first_seen of the {what} texts", "seconds since 1970")


def _check_below(values: Doubles | Rows | None, limit: float, what: str, expected: str) -> None:
    if values is not None and not (within := np.abs(values) < limit).all():
        raise DataError(f"A {what} cannot be written", got=values[~within][0], expected=expected)


def _check_other_files(folder: Path, written: set[str]) -> None:
    known = {name for stem in _STEMS for name in _file_names(stem)}
    other = sorted(entry.name for entry in folder.iterdir() if entry.name in known - written)
    if other:
        raise DataError(
            f"{folder} contains files of another data set",
            got=", ".join(other),
            expected="an empty folder, or one whose files are all overwritten",
            fix="choose another folder, or remove these files",
        )


def _text_lines(texts: Texts) -> Iterator[str]:
    records: Iterator[dict[str, str | int]] = (
        {"id": name, "text": text} for name, text in zip(texts.ids, texts.texts, strict=True)
    )
    if texts.first_seen is not None:
        times = map(int, texts.first_seen)
        records = (record | {"first_seen": time} for record, time in zip(records, times, strict=True))
    return json_lines(records)


def _click_lines(log: ClickLog, items: Texts) -> Iterator[str]:
    """One line per pair and time; the columns of times and counts only where there are any."""
    groups = log.groups
    rows = np.repeat(np.arange(len(log)), np.diff(log.clicks.indptr))[groups.pairs].tolist()
    columns = log.clicks.indices[groups.pairs].tolist()
    times = [""] * len(rows) if log.times is None else [_format_time(time) for time in log.times.tolist()]
    counts = None if (groups.counts == 1).all() else groups.counts.tolist()
    for at, (row, column) in enumerate(zip(rows, columns, strict=True)):
        fields = [log.queries.ids[row], items.ids[column]]
        if counts is not None:
            fields += [times[at], str(counts[at])]
        elif log.times is not None:
            fields.append(times[at])
        yield "\t".join(fields)


def _format_time(time: float) -> str:
    return str(int(time)) if time.is_integer() else repr(time)
