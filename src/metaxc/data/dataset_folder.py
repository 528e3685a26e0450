"""A data set as a folder of files.

    items.jsonl      {"id": "i1", "text": "red apple"}, optionally with "first_seen", a list of "tags" and
                     "fields": {"price": 19.9, "in_stock": true, "brand": "x", "sizes": ["s", "m"]}
    queries.jsonl    {"id": "q1", "text": "fruit"}
    clicks.tsv       query id, item id and optionally a time and a count, separated by tabs; no header

With a fixed test part: queries.train.jsonl, queries.test.jsonl, clicks.train.tsv, clicks.test.tsv. Optional files:

    novel.txt          one item id per line
    filters.test.tsv   query id, tab, item id: pairs that are removed from a ranking before it is evaluated
    dataset.json       {"exclude_self": true} where queries are items themselves: none is an answer to its own text

Each file but the last may be compressed with gzip (.gz). A .parquet file may replace a .jsonl file (columns id, text,
first_seen, tags, fields, the last one as JSON) or a .tsv file (columns query, item, time, count). A time is a number of
seconds since 1970 or an ISO-8601 string. A line of clicks is one event, or as many events at the same time as its
count; beside a count the time may be empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Doubles, Rows
from metaxc.artifacts import atomic_file
from metaxc.data.data_problems import raise_first, shorten
from metaxc.data.dataset import ClickLog, Dataset, Texts
from metaxc.data.folder_contents import EXCLUDE_SELF, STEMS, file_names, read_contents
from metaxc.data.input_rules import validate_id, validate_text
from metaxc.data.text_files import MAX_COUNT, MAX_SECONDS
from metaxc.data.text_lines import json_lines, write_lines
from metaxc.errors import DataError


def read_folder(path: str | Path) -> Dataset:
    """Read a data set from a folder (see the module for its files) and name it after the folder.

    The first problem is raised as a `DataError` with its file and line; `check_folder` lists all problems.

    Example:
        >>> read_folder("shop")  # doctest: +SKIP
        Dataset('shop': 12,000 items, train ClickLog(90,000 queries, 310,000 clicks))
    """
    folder = Path(path)
    fix = (
        f"correct the file; `metaxc data check {folder}` lists every problem in the folder, and with --fix CLEAN it "
        "writes a folder without them"
    )
    return read_contents(folder, raise_first(folder, fix)).to_dataset(folder.resolve().name)


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
    if dataset.exclude_self:
        files["dataset.json"] = iter([json.dumps({EXCLUDE_SELF: True})])
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
    known = {name for stem in STEMS for name in file_names(stem)}
    other = sorted(entry.name for entry in folder.iterdir() if entry.name in known - written)
    if other:
        raise DataError(
            f"{folder} contains files of another data set",
            got=", ".join(other),
            expected="an empty folder, or one whose files are all overwritten",
            fix="choose another folder, or remove these files",
        )


def _text_lines(texts: Texts) -> Iterator[str]:
    records: Iterator[dict[str, Any]] = (
        {"id": name, "text": text} for name, text in zip(texts.ids, texts.texts, strict=True)
    )
    if texts.first_seen is not None:
        times = map(int, texts.first_seen)
        records = (record | {"first_seen": time} for record, time in zip(records, times, strict=True))
    if texts.tags is not None:
        pairs = zip(records, texts.tags, strict=True)
        records = (record | ({"tags": list(tags)} if tags else {}) for record, tags in pairs)
    if texts.fields is not None:
        with_fields = zip(records, texts.fields, strict=True)
        records = (record | ({"fields": fields} if fields else {}) for record, fields in with_fields)
    return json_lines(records)


def _click_lines(log: ClickLog, items: Texts) -> Iterator[str]:
    """One line per pair and time; the columns of times and counts only where there are any."""
    groups = log.groups
    rows = log.pair_rows[groups.pairs].tolist()
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
