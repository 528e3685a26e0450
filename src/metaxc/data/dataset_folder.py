"""A data set as a folder of text files.

    items.jsonl      {"id": "i1", "text": "red apple"}, perhaps with "first_seen"
    queries.jsonl    {"id": "q1", "text": "fruit"}
    clicks.tsv       query id, tab, item id, and perhaps tab, time; no header

With a fixed test part: queries.train.jsonl, queries.test.jsonl, clicks.train.tsv, clicks.test.tsv. Perhaps
novel.txt (one item id per line) and filters.test.tsv (query id, tab, item id: pairs that a ranking leaves
out). Each file may be gzipped (.gz); .parquet stands in for .jsonl (columns id, text, first_seen) and for
.tsv (columns query, item, time). A time is a number of seconds since 1970 or an ISO-8601 string.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data.contents import STEMS, file_names, read_contents
from metaxc.data.data_problems import Problem, id_problem, shown, text_problem
from metaxc.data.dataset import Dataset, Texts
from metaxc.data.lines import FARTHEST
from metaxc.errors import DataError


def read_folder(path: str | Path) -> Dataset:
    """The data set in a folder (its files: see the module), named after the folder.

    The first problem is a `DataError` with its file and line; `check_folder` lists all of them.

    Example:
        >>> read_folder("shop")  # doctest: +SKIP
        Dataset('shop': 12,000 items, train ClickLog(90,000 queries, 310,000 clicks))
    """
    folder = Path(path)

    def stop(problem: Problem) -> NoReturn:
        raise DataError(
            f"{folder / problem.file if problem.file else folder}"
            + (f", line {problem.line}" if problem.line is not None else "")
            + f": {problem.message}",
            got=problem.got,
            expected=problem.expected,
            fix=f"correct it; `metaxc data check {folder}` lists every problem of the folder",
        )

    found = read_contents(folder, stop)
    if found.items is None or found.train_queries is None or found.train_clicks is None:
        raise AssertionError("a missing file was not reported")
    items = len(found.items.texts)
    test = filters = None
    if found.test_queries is not None and found.test_clicks is not None:
        test = found.test_clicks.log(found.test_queries.texts, items)
        filters = None if found.filters is None else found.filters.matrix((len(test), items))
    return Dataset(
        items=found.items.texts,
        train=found.train_clicks.log(found.train_queries.texts, items),
        test=test,
        novel=found.novel,
        filters=filters,
        name=folder.resolve().name,
    )


def write_folder(dataset: Dataset, path: str | Path, *, compress: bool = False) -> None:
    """Write the data set so that `read_folder` gives back one with the same fingerprint.

    Every file is first written under a temporary name; only when all are complete do they take their places.

    Args:
        dataset: What to write; a data set that could not be read back is a `DataError`.
        path: The folder, made if absent. Files of an earlier data set that would not be overwritten, and so
            would be read together with the new ones, are an error.
        compress: Gzip every file but novel.txt.
    """
    folder = Path(path)
    files = _files(dataset, ".gz" if compress else "")
    folder.mkdir(parents=True, exist_ok=True)
    _check_left_over(folder, set(files))
    temporary = {folder / f".{name}.{os.getpid()}.tmp": folder / name for name in files}
    try:
        for partial, name in zip(temporary, files, strict=True):
            _write(partial, files[name], compressed=name.endswith(".gz"))
        for partial, final in temporary.items():
            os.replace(partial, final)
    finally:
        for partial in temporary:
            partial.unlink(missing_ok=True)


def _files(dataset: Dataset, ending: str) -> dict[str, Iterator[str]]:
    """The lines of each file, by its name."""
    items, test = dataset.items, dataset.test
    _check_texts(items, "item")
    files = {f"items.jsonl{ending}": _text_lines(items)}
    logs = {"": dataset.train} if test is None else {".train": dataset.train, ".test": test}
    for part, log in logs.items():
        _check_texts(log.queries, "query")
        if log.clicks.nnz == 0:
            raise DataError("A log without clicks cannot be written", got=log, expected="at least one click")
        _check_times(log.times, "clicks")
        files[f"queries{part}.jsonl{ending}"] = _text_lines(log.queries)
        files[f"clicks{part}.tsv{ending}"] = _click_lines(log.clicks, log.queries, items, log.times)
    if test is not None and dataset.filters is not None:
        filters = dataset.filters.sorted_indices()
        files[f"filters.test.tsv{ending}"] = _click_lines(filters, test.queries, items, None)
    if dataset.novel is not None:
        files["novel.txt"] = (f"{items.ids[row]}\n" for row in dataset.novel_rows)
    return files


def _check_texts(texts: Texts, what: str) -> None:
    if not len(texts):
        raise DataError(f"There is no {what} to write", expected=f"at least one {what}")
    for name, text in zip(texts.ids, texts.texts, strict=True):
        wrong = id_problem(name)
        if wrong is not None:
            raise DataError(
                f"{wrong}: this {what} cannot be written",
                got=shown(name),
                expected="an id on one line, without tabs",
                fix="give it another id",
            )
        wrong = text_problem(text)
        if wrong is not None:
            raise DataError(
                f"{wrong}: {what} {shown(name)} cannot be written",
                got=shown(text),
                expected="a text of at least one visible character",
                fix="give it a text, or leave it out together with its clicks",
            )
    _check_times(texts.first_seen, f"first_seen of the {what} texts")


def _check_times(times: NDArray[np.float64] | Rows | None, what: str) -> None:
    if times is not None and not bool(np.all(np.abs(times) < FARTHEST)):
        wrong = times[~(np.abs(times) < FARTHEST)][0]
        raise DataError(f"A time of the {what} cannot be written", got=wrong, expected="seconds since 1970")


def _check_left_over(folder: Path, written: set[str]) -> None:
    known = {name for stem in STEMS for name in file_names(stem)}
    left = sorted(entry.name for entry in folder.iterdir() if entry.name in known - written)
    if left:
        raise DataError(
            f"{folder} holds files of another data set",
            got=", ".join(left),
            expected="an empty folder, or one whose files are all overwritten",
            fix="choose another folder, or remove those files",
        )


def _text_lines(texts: Texts) -> Iterator[str]:
    for row, (name, text) in enumerate(zip(texts.ids, texts.texts, strict=True)):
        record: dict[str, str | int] = {"id": name, "text": text}
        if texts.first_seen is not None:
            record["first_seen"] = int(texts.first_seen[row])
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _click_lines(
    clicks: csr_array, queries: Texts, items: Texts, times: NDArray[np.float64] | None
) -> Iterator[str]:
    starts, columns = clicks.indptr.tolist(), clicks.indices.tolist()
    stamps = None if times is None else [_stamp(time) for time in times.tolist()]
    for row, query in enumerate(queries.ids):
        for at in range(starts[row], starts[row + 1]):
            time = "" if stamps is None else f"\t{stamps[at]}"
            yield f"{query}\t{items.ids[columns[at]]}{time}\n"


def _stamp(time: float) -> str:
    return str(int(time)) if time.is_integer() else repr(time)


def _write(path: Path, lines: Iterator[str], *, compressed: bool) -> None:
    with path.open("wb") as file:
        if not compressed:
            file.writelines(line.encode() for line in lines)
            return
        # No name and no time in the header: the same data gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            packed.writelines(line.encode() for line in lines)
