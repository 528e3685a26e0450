"""The Extreme Classification repository's files, in and out.

Two layouts are read, whichever is there:

- *json*: `trn.json.gz`, `tst.json.gz` with a line {"uid", "title", "content", "target_ind"} per query, and
  `lbl.json.gz` with a line per item; the targets are line numbers of the latter, from 0.
- *matrix*: `trn_X_Y.txt` and `tst_X_Y.txt` (a header "queries items", then a line of `item:value` per query)
  or the same as scipy `.npz`, with the texts in raw files, one per line, plain or as `id->text`. Without ids,
  train queries are called "q0"…, test queries "t0"…, items "i0"….

`filter_labels_test.txt` (lines `query item`, any number of them) becomes `Dataset.filters`. The filter file
of the train part is not read: it concerns the scoring of the train queries, which nothing here does.

An id that stands twice in one file is kept and told apart: the second "B01" becomes "B01#2", with a warning.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import coo_array, csr_array, load_npz

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.data.formats.line_files import (
    find,
    need,
    read_json_lines,
    read_lines,
    write_json_lines,
    write_lines,
)
from metaxc.errors import DataError

Layout = Literal["json", "matrix"]

_ARROW = "->"
_RAW = {
    "trn": ("raw_data/trn.raw.txt", "raw_data/train.raw.txt", "trn.raw.txt", "train.raw.txt", "trn_X.txt"),
    "tst": ("raw_data/tst.raw.txt", "raw_data/test.raw.txt", "tst.raw.txt", "test.raw.txt", "tst_X.txt"),
    "lbl": ("raw_data/lbl.raw.txt", "raw_data/label.raw.txt", "lbl.raw.txt", "label.raw.txt", "Y.txt"),
}
_CLICKS = {"trn": ("trn_X_Y.txt", "trn_X_Y.npz"), "tst": ("tst_X_Y.txt", "tst_X_Y.npz")}
_FILTER = "filter_labels_test.txt"


def read_xc(path: Path | str, *, content: bool = False, encoding: str = "utf-8") -> Dataset:
    """A data set from a folder of the repository, of either layout.

    Args:
        path: The folder. Without a `tst` part the data set has no test log.
        content: In the json layout, append each record's content to its title.
        encoding: Of the raw text files of the matrix layout; some older ones are latin-1.
    """
    folder = Path(path)
    if find(folder, "lbl.json") is not None:
        items, train, test = _read_json(folder, content)
    else:
        items, train, test = _read_matrix(folder, encoding)
    filters = None
    listed = find(folder, _FILTER)
    if listed is not None and test is not None:
        filters = _read_filter(listed, (len(test), len(items)))
    return Dataset(items, train, test, filters=filters, name=folder.resolve().name)


def write_xc(dataset: Dataset, path: Path | str, *, layout: Layout = "json") -> None:
    """Write a data set as a folder of the repository.

    Novel items and times have no place in the format and are left out. In the matrix layout the raw texts
    are written as `id->text`, with white space folded, since a text must stay on its line.
    """
    folder = Path(path)
    logs = {"trn": dataset.train} | ({"tst": dataset.test} if dataset.test is not None else {})
    if layout == "json":
        records = zip(dataset.items.ids, dataset.items.texts, strict=True)
        write_json_lines(folder / "lbl.json.gz", ({"uid": name, "title": text} for name, text in records))
        for part, log in logs.items():
            write_json_lines(folder / f"{part}.json.gz", _records(log))
    elif layout == "matrix":
        for part, texts in (("lbl", dataset.items), *((part, log.queries) for part, log in logs.items())):
            write_lines(folder / _RAW[part][0], _raw_lines(texts))
        for part, log in logs.items():
            write_lines(folder / _CLICKS[part][0], _matrix_lines(log.clicks))
    else:
        raise DataError("Unknown layout", got=repr(layout), expected='"json" or "matrix"')
    if dataset.filters is not None:
        pairs = zip(*dataset.filters.nonzero(), strict=True)
        write_lines(folder / _FILTER, (f"{query} {item}" for query, item in pairs))


def _read_json(folder: Path, content: bool) -> tuple[Texts, ClickLog, ClickLog | None]:
    items, _ = _read_records(need(folder, "lbl.json"), content, targets=False)

    def log(path: Path) -> ClickLog:
        queries, targets = _read_records(path, content, targets=True)
        counts = [len(found) for found in targets]
        query_rows = np.repeat(np.arange(len(queries)), counts)
        item_rows = np.fromiter((i for found in targets for i in found), np.int64, sum(counts))
        _check_rows(path, item_rows, len(items), "target_ind")
        return ClickLog(queries, click_matrix(query_rows, item_rows, (len(queries), len(items))))

    test = find(folder, "tst.json")
    return items, log(need(folder, "trn.json")), None if test is None else log(test)


def _read_records(path: Path, content: bool, *, targets: bool) -> tuple[Texts, list[list[int]]]:
    ids, texts, found = [], [], []
    for number, record in read_json_lines(path):
        wanted = ("uid", "title", "target_ind") if targets else ("uid", "title")
        if any(key not in record for key in wanted):
            raise DataError(
                f"{path}, line {number}, lacks a field", got=sorted(record), expected=", ".join(wanted)
            )
        rows = record.get("target_ind", [])
        if not isinstance(rows, list) or not all(type(row) is int for row in rows):
            raise DataError(
                f"{path}, line {number}: target_ind is not a list of row numbers",
                got=rows,
                expected="[0, 12, …]",
            )
        ids.append(str(record["uid"]))
        parts = [record["title"], record.get("content") if content else None]
        texts.append(" ".join(str(part) for part in parts if part))
        found.append(rows)
    return Texts(_unique(ids, path), texts), found


def _read_matrix(folder: Path, encoding: str) -> tuple[Texts, ClickLog, ClickLog | None]:
    items = _read_raw(need(folder, *_RAW["lbl"]), "i", encoding)

    def log(part: str, letter: str) -> ClickLog:
        path = need(folder, *_CLICKS[part])
        queries = _read_raw(need(folder, *_RAW[part]), letter, encoding)
        clicks = _read_npz(path) if path.suffix == ".npz" else _read_matrix_lines(path)
        if clicks.shape != (len(queries), len(items)):
            raise DataError(
                f"{path} does not fit the raw texts",
                got=f"{clicks.shape[0]} × {clicks.shape[1]}",
                expected=f"{len(queries)} × {len(items)} (queries × items)",
                fix="use texts and matrix of one download",
            )
        return ClickLog(queries, clicks)

    test = find(folder, *_CLICKS["tst"])
    return items, log("trn", "q"), None if test is None else log("tst", "t")


def _read_raw(path: Path, letter: str, encoding: str) -> Texts:
    lines = list(read_lines(path, encoding))
    if lines and all(_ARROW in line for line in lines):
        pairs = [line.split(_ARROW, 1) for line in lines]
        return Texts(_unique([name for name, _ in pairs], path), [text for _, text in pairs])
    return Texts([f"{letter}{row}" for row in range(len(lines))], lines)


def _read_matrix_lines(path: Path) -> csr_array:
    lines = read_lines(path)
    header = next(lines, "").split()
    if len(header) != 2 or not all(word.isdecimal() for word in header):
        raise DataError(
            f"{path} has no header", got=" ".join(header)[:80], expected='"queries items", e.g. "2 3"'
        )
    shape = (int(header[0]), int(header[1]))
    query_rows, item_rows, row = [], [], 0
    for row, line in enumerate(lines, 1):
        for word in line.split():
            item, _, value = word.partition(":")
            try:
                clicked = float(value) > 0
                item_row = int(item)
            except ValueError as error:
                raise DataError(
                    f"{path}, line {row + 1}", got=repr(word), expected="item:value, e.g. 12:1.0"
                ) from error
            if clicked:
                query_rows.append(row - 1)
                item_rows.append(item_row)
    if row != shape[0]:
        raise DataError(
            f"{path} is cut off or too long", got=f"{row} rows", expected=f"{shape[0]}, by its header"
        )
    columns = np.asarray(item_rows, np.int64)
    _check_rows(path, columns, shape[1], "item")
    return click_matrix(np.asarray(query_rows, np.int64), columns, shape)


def _read_npz(path: Path) -> csr_array:
    try:
        matrix = coo_array(load_npz(path))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read", got=error, expected="a sparse matrix of scipy.sparse.save_npz"
        ) from error
    kept = matrix.data > 0
    rows, columns = (np.asarray(axis[kept], np.int64) for axis in (matrix.row, matrix.col))
    return click_matrix(rows, columns, (int(matrix.shape[0]), int(matrix.shape[1])))


def _read_filter(path: Path, shape: tuple[int, int]) -> csr_array:
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if words and (len(words) != 2 or not all(word.isdecimal() for word in words)):
            raise DataError(
                f"{path}, line {number}", got=repr(line[:80]), expected='"query item", two row numbers'
            )
        if words:
            pairs.append((int(words[0]), int(words[1])))
    rows = np.asarray(pairs, np.int64).reshape(-1, 2)
    _check_rows(path, rows[:, 0], shape[0], "query")
    _check_rows(path, rows[:, 1], shape[1], "item")
    return click_matrix(rows[:, 0], rows[:, 1], shape)


def _check_rows(path: Path, rows: np.ndarray[Any, np.dtype[np.int64]], count: int, what: str) -> None:
    bad = rows[(rows < 0) | (rows >= count)]
    if len(bad):
        raise DataError(
            f"{path} speaks of rows that do not exist", got=f"{what} {bad[0]}", expected=f"0 to {count - 1}"
        )


def _unique(ids: Sequence[str], path: Path) -> list[str]:
    """The ids, those met before with "#2", "#3" … appended, and a warning that says so."""
    taken = set(ids)
    if len(taken) == len(ids):
        return list(ids)
    seen: dict[str, int] = {}
    result, renamed = [], []
    for name in ids:
        seen[name] = count = seen.get(name, 0) + 1
        if count > 1:
            while (fresh := f"{name}#{count}") in taken:
                count += 1
            seen[name] = count
            taken.add(fresh)
            renamed.append(f"{name} → {fresh}")
            name = fresh
        result.append(name)
    message = f"{path}: {len(renamed)} ids stand more than once and were renamed, first {renamed[0]}"
    warnings.warn(message, stacklevel=2)
    return result


def _clicked(clicks: csr_array) -> Iterator[list[int]]:
    for start, end in zip(clicks.indptr[:-1], clicks.indptr[1:], strict=True):
        yield [int(item) for item in clicks.indices[start:end]]


def _records(log: ClickLog) -> Iterator[dict[str, Any]]:
    for name, text, items in zip(log.queries.ids, log.queries.texts, _clicked(log.clicks), strict=True):
        yield {"uid": name, "title": text, "target_ind": items, "target_rel": [1.0] * len(items)}


def _matrix_lines(clicks: csr_array) -> Iterator[str]:
    yield f"{clicks.shape[0]} {clicks.shape[1]}"
    for items in _clicked(clicks):
        yield " ".join(f"{item}:1.0" for item in items)


def _raw_lines(texts: Texts) -> Iterator[str]:
    for name, text in zip(texts.ids, texts.texts, strict=True):
        if _ARROW in name or "\n" in name:
            raise DataError(
                "An id cannot be written in a raw text file",
                got=repr(name),
                expected=f"ids without {_ARROW!r} and line ends",
                fix='write with layout="json"',
            )
        yield f"{name}{_ARROW}{' '.join(text.split())}"
