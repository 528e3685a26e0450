"""What a folder of data set files holds, read as far as it can be read.

`read_folder` and `check_folder` both stand on this: the one stops at the first problem, the
other keeps a list.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.data.data_problems import Problem, Reporter, error
from metaxc.data.dataset import ClickLog, Texts, check_novel, click_matrix
from metaxc.data.lines import read_lines, read_pairs, read_texts
from metaxc.errors import DataError

ENDINGS = {
    "items": (".jsonl", ".jsonl.gz", ".parquet"),
    "queries": (".jsonl", ".jsonl.gz", ".parquet"),
    "clicks": (".tsv", ".tsv.gz", ".parquet"),
    "filters": (".tsv", ".tsv.gz", ".parquet"),
    "novel": (".txt", ".txt.gz"),
}
WHOLE = ("queries", "clicks")
PARTS = ("queries.train", "clicks.train", "queries.test", "clicks.test")
STEMS = ("items", *WHOLE, *PARTS, "novel", "filters.test")


@dataclass(frozen=True)
class TextFile:
    """Texts as a file gave them, and the line of each: (n,) int64, from 1."""

    path: Path
    texts: Texts
    lines: Rows


@dataclass(frozen=True)
class ClickFile:
    """Clicks as a file gave them, in its order, duplicates and all.

    Args:
        path: The file.
        queries, items: (n,) int64 rows.
        lines: (n,) int64, from 1.
        times: (n,) float64, seconds since 1970, when known.
    """

    path: Path
    queries: Rows
    items: Rows
    lines: Rows
    times: NDArray[np.float64] | None

    def matrix(self, shape: tuple[int, int]) -> csr_array:
        """(queries, items) float32; a pair given twice counts once."""
        return click_matrix(self.queries, self.items, shape)

    def log(self, queries: Texts, items: int) -> ClickLog:
        """The click log; the time of a click given twice is the earlier one."""
        clicks = self.matrix((len(queries), items))
        if self.times is None:
            return ClickLog(queries, clicks)
        order = np.lexsort((self.times, self.items, self.queries))
        pair = self.queries[order] * items + self.items[order]
        first = np.flatnonzero(np.diff(pair, prepend=-1) != 0)
        return ClickLog(queries, clicks, self.times[order][first])


@dataclass(frozen=True)
class Contents:
    """What a folder holds, as far as it could be read; None where a file is absent or missing."""

    items: TextFile | None
    train_queries: TextFile | None
    train_clicks: ClickFile | None
    test_queries: TextFile | None
    test_clicks: ClickFile | None
    novel: Mask | None
    filters: ClickFile | None


def read_contents(folder: Path, report: Reporter) -> Contents:
    """Everything that can be read of the folder; every line that cannot be is told to `report`."""
    paths = find_files(folder, report)
    items = _texts(paths.get("items"), report)
    parts = any(stem in paths for stem in PARTS)
    train_queries = _texts(paths.get("queries.train" if parts else "queries"), report)
    test_queries = _texts(paths.get("queries.test"), report)
    return Contents(
        items=items,
        train_queries=train_queries,
        train_clicks=_clicks(paths.get("clicks.train" if parts else "clicks"), train_queries, items, report),
        test_queries=test_queries,
        test_clicks=_clicks(paths.get("clicks.test"), test_queries, items, report),
        novel=_novel(paths.get("novel"), items, report),
        filters=_clicks(paths.get("filters.test"), test_queries, items, report, may_be_empty=True),
    )


def find_files(folder: Path, report: Reporter) -> dict[str, Path]:
    """Path of each file by its stem ("items", "queries.train", …); reports missing and ambiguous ones."""
    if not folder.is_dir():
        message = "There is no such folder" if not folder.exists() else "This is not a folder"
        report(Problem("error", "missing folder", "", None, message, str(folder), "a data set folder"))
        return {}
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    paths: dict[str, Path] = {}
    for stem in STEMS:
        found = [name for name in names if name in file_names(stem)]
        if len(found) > 1:
            message = f"{stem} stands in {len(found)} files"
            report(error(folder / found[0], None, "ambiguous files", message, found, "one of them"))
        if found:
            paths[stem] = folder / found[0]
    whole, parts = ([stem for stem in stems if stem in paths] for stems in (WHOLE, PARTS))
    if whole and parts:
        both = [paths[whole[0]].name, paths[parts[0]].name]
        message = "The folder has one whole log and one in train and test parts"
        report(error(paths[whole[0]], None, "ambiguous files", message, both, "one or the other"))
    for stem in ("items", *(PARTS if parts else WHOLE)):
        if stem not in paths:
            _missing(folder, stem, names, report)
    if "filters.test" in paths and not parts:
        message = "There is a filter for the test part, but no test part"
        report(error(paths["filters.test"], None, "missing file", message, names, ", ".join(PARTS)))
    return paths


def file_names(stem: str) -> tuple[str, ...]:
    """The names a file may have, plain first: items.jsonl, items.jsonl.gz, items.parquet."""
    return tuple(stem + ending for ending in ENDINGS[stem.split(".")[0]])


def _missing(folder: Path, stem: str, names: list[str], report: Reporter) -> None:
    found = ", ".join(names[:20]) + (", …" if len(names) > 20 else "") if names else "an empty folder"
    expected = " or ".join(file_names(stem))
    name = file_names(stem)[0]
    report(
        Problem("error", "missing file", name, None, "The file is missing", f"in {folder}: {found}", expected)
    )


def _texts(path: Path | None, report: Reporter) -> TextFile | None:
    if path is None:
        return None
    row_of: dict[str, int] = {}
    texts: list[str] = []
    lines, first_seen = array("q"), array("q")
    for line, name, text, seen in read_texts(path, report):
        if name in row_of:
            message = f"The id stands twice, first on line {lines[row_of[name]]}"
            report(error(path, line, "duplicate id", message, name, "unique ids"))
            continue
        row_of[name] = len(texts)
        texts.append(text)
        lines.append(line)
        if seen is not None:
            first_seen.append(seen)
    times = _rows(first_seen) if texts and len(first_seen) == len(texts) else None
    return TextFile(path, Texts(list(row_of), texts, times), _rows(lines))


def _clicks(
    path: Path | None,
    queries: TextFile | None,
    items: TextFile | None,
    report: Reporter,
    *,
    may_be_empty: bool = False,
) -> ClickFile | None:
    if path is None:
        return None
    query_of = queries.texts.row_of if queries else {}
    item_of = items.texts.row_of if items else {}
    query_rows, item_rows, lines, times = array("q"), array("q"), array("q"), array("d")
    for line, query, item, time in read_pairs(path, report, may_be_empty=may_be_empty):
        query_row, item_row = query_of.get(query), item_of.get(item)
        if query_row is None or item_row is None:
            if query_row is None and queries:
                _unknown(path, line, "query", query, queries, report)
            if item_row is None and items:
                _unknown(path, line, "item", item, items, report)
            continue
        query_rows.append(query_row)
        item_rows.append(item_row)
        lines.append(line)
        if time is not None:
            times.append(time)
    known_times = np.asarray(times, np.float64) if times else None
    return ClickFile(path, _rows(query_rows), _rows(item_rows), _rows(lines), known_times)


def _unknown(path: Path, line: int, what: str, name: str, known: TextFile, report: Reporter) -> None:
    expected = f"an id of {known.path.name}"
    report(error(path, line, f"unknown {what} id", f"The {what} id is unknown", name, expected))


def _novel(path: Path | None, items: TextFile | None, report: Reporter) -> Mask | None:
    if path is None or items is None:
        return None
    novel = np.zeros(len(items.texts), dtype=np.bool_)
    for line, name in read_lines(path, report, may_be_empty=True):
        row = items.texts.row_of.get(name)
        if row is None:
            _unknown(path, line, "item", name, items, report)
        else:
            novel[row] = True
    try:
        check_novel(novel, len(items.texts))
    except DataError as wrong:
        report(
            Problem("error", "novel items", path.name, None, wrong.what, str(wrong.got), str(wrong.expected))
        )
        return None
    return novel


def _rows(values: Iterable[int]) -> Rows:
    return np.asarray(values, dtype=np.int64)
