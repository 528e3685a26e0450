"""Converters between a `Dataset` and public text formats: the Extreme Classification repository ("xc") and BEIR.

**xc** folders have one of two layouts. Both are read; the first is written.

- *json*: `trn.json.gz` and `tst.json.gz` have a line {"uid", "title", "content", "target_ind"} per query, and
  `lbl.json.gz` has a line per item; the targets are line numbers of `lbl.json.gz`, from 0.
- *matrix*: `trn_X_Y.txt` and `tst_X_Y.txt` (a header "queries items", then a line of `item:value` pairs per query), or
  the same as scipy `.npz`. The texts are in raw files, one per line, plain or as `id->text`. Without ids, training
  queries are named "q0", "q1", …, test queries "t0", … and items "i0", ….

`filter_labels_test.txt` (lines `query item`) becomes `Dataset.filters`. The filter file of the training part is not
read, because training queries are never ranked.

**beir** folders have `corpus.jsonl` (items), `queries.jsonl`, `qrels/train.tsv` and `qrels/test.tsv`. A pair with a
score above 0 is a click. The queries of a part are those that its qrels file names, in the order of `queries.jsonl`.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, load_npz

from metaxc.arrays import Rows
from metaxc.data.data_problems import Reporter, raise_first
from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.data.input_rules import MOST_TEXT
from metaxc.data.text_lines import json_lines, read_json_lines, read_lines, write_lines
from metaxc.errors import DataError

_ARROW = "->"
_RAW = {
    "trn": ("raw_data/trn.raw.txt", "raw_data/train.raw.txt", "trn.raw.txt", "train.raw.txt", "trn_X.txt"),
    "tst": ("raw_data/tst.raw.txt", "raw_data/test.raw.txt", "tst.raw.txt", "test.raw.txt", "tst_X.txt"),
    "lbl": ("raw_data/lbl.raw.txt", "raw_data/label.raw.txt", "lbl.raw.txt", "label.raw.txt", "Y.txt"),
}
_CLICKS = {"trn": ("trn_X_Y.txt", "trn_X_Y.npz"), "tst": ("tst_X_Y.txt", "tst_X_Y.npz")}
_FILTER = "filter_labels_test.txt"


class Format(NamedTuple):
    """Functions that read and write a format, and files by which a folder of it is recognised."""

    read: Callable[..., Dataset]
    write: Callable[[Dataset, Path | str], None]
    marker_files: tuple[str, ...]


def detect_format(path: Path | str) -> str | None:
    """Name of a folder's format, recognised by a file that only this format has; None if there is none."""
    return next(
        (name for name, known in FORMATS.items() if _find_file(Path(path), *known.marker_files)), None
    )


def read_xc(path: Path | str, *, content: bool = False, encoding: str = "utf-8") -> Dataset:
    """Read a folder of the Extreme Classification repository, in either layout.

    An id that occurs again in a file is renamed: the second "B01" becomes "B01#2", with a warning.

    Args:
        path: The folder. Without a `tst` part the data set has no test log.
        content: In the json layout, append the content of each record to its title.
        encoding: Encoding of the raw text files of the matrix layout; some older ones are latin-1.
    """
    folder = Path(path)
    if _find_file(folder, "lbl.json") is not None:
        items, train, test = _read_xc_json(folder, content)
    else:
        items, train, test = _read_xc_matrix(folder, encoding)
    filters = None
    filter_file = _find_file(folder, _FILTER)
    if filter_file is not None and test is not None:
        filters = _read_filter(filter_file, (len(test), len(items)))
    return Dataset(items, train, test, filters=filters, name=folder.resolve().name)


def write_xc(dataset: Dataset, path: Path | str) -> None:
    """Write a folder of the Extreme Classification repository in the json layout.

    The format has no place for novel items, counts, times and tags; they are omitted.
    """
    folder = Path(path)
    items = zip(dataset.items.ids, dataset.items.texts, strict=True)
    write_lines(folder / "lbl.json.gz", json_lines({"uid": name, "title": text} for name, text in items))
    logs = {"trn": dataset.train} | ({"tst": dataset.test} if dataset.test is not None else {})
    for part, log in logs.items():
        write_lines(folder / f"{part}.json.gz", json_lines(_xc_records(log)))
    if dataset.filters is not None:
        pairs = zip(*dataset.filters.nonzero(), strict=True)
        write_lines(folder / _FILTER, (f"{query} {item}" for query, item in pairs))


def _xc_records(log: ClickLog) -> Iterator[dict[str, Any]]:
    clicks = log.clicks
    spans = zip(clicks.indptr[:-1], clicks.indptr[1:], strict=True)
    for name, text, (start, end) in zip(log.queries.ids, log.queries.texts, spans, strict=True):
        items = clicks.indices[start:end].tolist()
        yield {"uid": name, "title": text, "target_ind": items, "target_rel": [1.0] * len(items)}


def _read_xc_json(folder: Path, content: bool) -> tuple[Texts, ClickLog, ClickLog | None]:
    items, _ = _read_xc_records(_require_file(folder, "lbl.json"), content, targets=False)

    def read_log(path: Path) -> ClickLog:
        queries, targets = _read_xc_records(path, content, targets=True)
        counts = [len(rows) for rows in targets]
        query_rows = np.repeat(np.arange(len(queries)), counts)
        item_rows = np.fromiter((row for rows in targets for row in rows), np.int64, sum(counts))
        _check_rows(path, item_rows, len(items), "target_ind")
        return ClickLog(queries, click_matrix(query_rows, item_rows, (len(queries), len(items))))

    test = _find_file(folder, "tst.json")
    return items, read_log(_require_file(folder, "trn.json")), None if test is None else read_log(test)


def _read_xc_records(path: Path, content: bool, *, targets: bool) -> tuple[Texts, list[list[int]]]:
    ids, texts, found = [], [], []
    keys = ("uid", "title", "target_ind") if targets else ("uid", "title")
    for number, record in read_json_lines(path, _raise_at(path)):
        if any(key not in record for key in keys):
            raise DataError(
                f"{path}, line {number}: A field is missing", got=sorted(record), expected=", ".join(keys)
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
    return Texts(_make_unique(ids, path), _cut(texts, path)), found


def _read_xc_matrix(folder: Path, encoding: str) -> tuple[Texts, ClickLog, ClickLog | None]:
    items = _read_raw_texts(_require_file(folder, *_RAW["lbl"]), "i", encoding)

    def read_log(part: str, letter: str) -> ClickLog:
        path = _require_file(folder, *_CLICKS[part])
        queries = _read_raw_texts(_require_file(folder, *_RAW[part]), letter, encoding)
        clicks = _read_npz(path) if path.suffix == ".npz" else _read_matrix_lines(path)
        if clicks.shape != (len(queries), len(items)):
            raise DataError(
                f"The shape of {path} does not match the raw texts",
                got=f"{clicks.shape[0]} × {clicks.shape[1]}",
                expected=f"{len(queries)} × {len(items)} (queries × items)",
                fix="use texts and a matrix from the same download",
            )
        return ClickLog(queries, clicks)

    test = _find_file(folder, *_CLICKS["tst"])
    return items, read_log("trn", "q"), None if test is None else read_log("tst", "t")


def _read_raw_texts(path: Path, letter: str, encoding: str) -> Texts:
    lines = [line for _, line in read_lines(path, _raise_at(path), encoding=encoding)]
    if lines and all(_ARROW in line for line in lines):
        pairs = [line.split(_ARROW, 1) for line in lines]
        return Texts(_make_unique([name for name, _ in pairs], path), _cut([text for _, text in pairs], path))
    return Texts([f"{letter}{row}" for row in range(len(lines))], _cut(lines, path))


def _read_matrix_lines(path: Path) -> csr_array:
    lines = read_lines(path, _raise_at(path))
    header = next(lines, (1, ""))[1].split()
    if len(header) != 2 or not all(word.isdecimal() for word in header):
        raise DataError(
            f"{path} has no header", got=" ".join(header)[:80], expected='"queries items", e.g. "2 3"'
        )
    shape = (int(header[0]), int(header[1]))
    query_rows, item_rows, row = [], [], 0
    for row, (number, line) in enumerate(lines, 1):
        for word in line.split():
            item, _, value = word.partition(":")
            try:
                clicked = float(value) > 0
                item_row = int(item)
            except ValueError as error:
                raise DataError(
                    f"{path}, line {number}: The entry cannot be read",
                    got=repr(word),
                    expected="item:value, e.g. 12:1.0",
                ) from error
            if clicked:
                query_rows.append(row - 1)
                item_rows.append(item_row)
    if row != shape[0]:
        raise DataError(
            f"{path} is truncated or too long", got=f"{row} rows", expected=f"{shape[0]}, as in its header"
        )
    columns = np.asarray(item_rows, np.int64)
    _check_rows(path, columns, shape[1], "item")
    return click_matrix(np.asarray(query_rows, np.int64), columns, shape)


def _read_npz(path: Path) -> csr_array:
    try:
        matrix = coo_array(load_npz(path))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read", got=error, expected="a sparse matrix written by scipy.sparse.save_npz"
        ) from error
    clicked = matrix.data > 0
    rows, columns = (np.asarray(axis[clicked], np.int64) for axis in (matrix.row, matrix.col))
    return click_matrix(rows, columns, (int(matrix.shape[0]), int(matrix.shape[1])))


def _read_filter(path: Path, shape: tuple[int, int]) -> csr_array:
    pairs = []
    for number, line in read_lines(path, _raise_at(path)):
        words = line.split()
        if words and (len(words) != 2 or not all(word.isdecimal() for word in words)):
            raise DataError(
                f"{path}, line {number}: The pair cannot be read",
                got=repr(line[:80]),
                expected='"query item", two row numbers',
            )
        if words:
            pairs.append((int(words[0]), int(words[1])))
    rows = np.asarray(pairs, np.int64).reshape(-1, 2)
    _check_rows(path, rows[:, 0], shape[0], "query")
    _check_rows(path, rows[:, 1], shape[1], "item")
    return click_matrix(rows[:, 0], rows[:, 1], shape)


def _check_rows(path: Path, rows: Rows, count: int, what: str) -> None:
    bad = rows[(rows < 0) | (rows >= count)]
    if len(bad):
        raise DataError(
            f"{path} refers to a row that does not exist",
            got=f"{what} {bad[0]}",
            expected=f"0 to {count - 1}",
        )


def _make_unique(ids: Sequence[str], path: Path) -> list[str]:
    """The ids, with "#2", "#3", … appended to repeated ones, and a warning about them."""
    used = set(ids)
    if len(used) == len(ids):
        return list(ids)
    seen: dict[str, int] = {}
    result, renamed = [], []
    for name in ids:
        seen[name] = count = seen.get(name, 0) + 1
        if count > 1:
            while (new := f"{name}#{count}") in used:
                count += 1
            seen[name] = count
            used.add(new)
            renamed.append(f"{name} → {new}")
            name = new
        result.append(name)
    message = f"{path}: {len(renamed)} repeated ids were renamed, the first one {renamed[0]}"
    warnings.warn(message, stacklevel=2)
    return result


def _cut(texts: list[str], path: Path) -> list[str]:
    """The texts, cut to `MOST_TEXT` characters, with a warning where that is needed."""
    long = sum(len(text) > MOST_TEXT for text in texts)
    if long:
        warnings.warn(f"{path}: {long} texts were cut to {MOST_TEXT:,} characters", stacklevel=2)
    return [text[:MOST_TEXT] for text in texts] if long else texts


def read_beir(path: Path | str) -> Dataset:
    """Read a BEIR folder.

    Args:
        path: The folder. If there is no `qrels/train.tsv`, `qrels/dev.tsv` is the training part; without
            `qrels/test.tsv` the data set has no test log.
    """
    folder = Path(path)
    items = _read_beir_texts(_require_file(folder, "corpus.jsonl"))
    queries = _read_beir_texts(_require_file(folder, "queries.jsonl"))
    train = _find_file(folder, "qrels/train.tsv", "qrels/dev.tsv")
    test = _find_file(folder, "qrels/test.tsv")
    if train is None:
        raise DataError(
            f"There are no training clicks in {folder}",
            got="only qrels/test.tsv" if test else "no qrels",
            expected="qrels/train.tsv or qrels/dev.tsv",
            fix="this collection is for evaluation only; use one with a training part, such as nfcorpus",
        )
    train_log = _read_qrels(train, queries, items)
    test_log = None if test is None else _read_qrels(test, queries, items)
    return Dataset(items, train_log, test_log, name=folder.resolve().name)


def write_beir(dataset: Dataset, path: Path | str) -> None:
    """Write a BEIR folder.

    The format has no place for novel items, filters, times and queries without a click; they are omitted.
    """
    folder = Path(path)
    logs = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    texts: dict[str, str] = {}
    for log in logs.values():
        for name, text in zip(log.queries.ids, log.queries.texts, strict=True):
            if texts.setdefault(name, text) != text:
                raise DataError(
                    "Two queries have the same id",
                    got=f"{name!r}: {texts[name]!r} and {text!r}",
                    expected="ids that are unique across the training and the test part",
                    fix="rename the queries of one part",
                )
    items = zip(dataset.items.ids, dataset.items.texts, strict=True)
    records = ({"_id": name, "title": "", "text": text} for name, text in items)
    write_lines(folder / "corpus.jsonl", json_lines(records))
    write_lines(
        folder / "queries.jsonl", json_lines({"_id": name, "text": text} for name, text in texts.items())
    )
    for part, log in logs.items():
        write_lines(folder / "qrels" / f"{part}.tsv", _qrels_lines(log, dataset.items))


def _qrels_lines(log: ClickLog, items: Texts) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore"
    for query, item in zip(*log.clicks.nonzero(), strict=True):
        yield f"{log.queries.ids[int(query)]}\t{items.ids[int(item)]}\t1"


def _read_beir_texts(path: Path) -> Texts:
    ids, texts = [], []
    for number, record in read_json_lines(path, _raise_at(path)):
        if "_id" not in record or "text" not in record:
            raise DataError(
                f"{path}, line {number}: A field is missing", got=sorted(record), expected="_id, text"
            )
        ids.append(str(record["_id"]))
        texts.append(" ".join(str(part) for part in (record.get("title"), record["text"]) if part))
    return Texts(ids, _cut(texts, path))


def _read_qrels(path: Path, queries: Texts, items: Texts) -> ClickLog:
    clicked: dict[str, list[str]] = {}
    for number, line in read_lines(path, _raise_at(path)):
        fields = line.split("\t")
        if not line or (number == 1 and fields[0] == "query-id"):
            continue
        try:
            query, item, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError) as error:
            raise DataError(
                f"{path}, line {number}: The columns cannot be read",
                got=repr(line[:80]),
                expected="query-id, corpus-id and score, separated by tabs",
            ) from error
        found = clicked.setdefault(query, [])
        if score > 0:
            found.append(item)
    part = queries.take(np.sort(queries.rows(clicked, f"query id in {path}")))
    pairs = [(query, item) for query, found in clicked.items() for item in found]
    matrix = click_matrix(
        part.rows(query for query, _ in pairs),
        items.rows((item for _, item in pairs), f"item id in {path}"),
        (len(part), len(items)),
    )
    return ClickLog(part, matrix)


def _find_file(folder: Path, *names: str) -> Path | None:
    """The first of the names that is a file in `folder`, plain or with .gz."""
    candidates = (folder / (name + extension) for name in names for extension in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _require_file(folder: Path, *names: str) -> Path:
    found = _find_file(folder, *names)
    if found is None:
        present = sorted(path.name for path in folder.iterdir())[:20] if folder.is_dir() else []
        raise DataError(
            f"A file is missing in {folder}",
            got=", ".join(present) if folder.is_dir() else "the folder does not exist",
            expected=" or ".join(names) + ", plain or with .gz",
            fix="check the path, or download the missing part of the data set",
        )
    return found


def _raise_at(path: Path) -> Reporter:
    return raise_first(path.parent, "correct the file, or download it again")


FORMATS = {
    "xc": Format(read_xc, write_xc, ("lbl.json", "trn_X_Y.txt", "trn_X_Y.npz")),
    "beir": Format(read_beir, write_beir, ("corpus.jsonl",)),
}
"""The formats by name."""
