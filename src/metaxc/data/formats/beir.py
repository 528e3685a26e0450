"""BEIR folders, in and out: `corpus.jsonl` (items), `queries.jsonl`, `qrels/train.tsv`, `qrels/test.tsv`.

A judged pair with a score above 0 is a click. The queries of a part are those that its qrels file names, in
the order of `queries.jsonl`; others are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

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

_HEADER = "query-id\tcorpus-id\tscore"


def read_beir(path: Path | str) -> Dataset:
    """A data set from a BEIR folder.

    Args:
        path: The folder. Where `qrels/train.tsv` is missing, `qrels/dev.tsv` is learnt from instead; without
            `qrels/test.tsv` the data set has no test log.
    """
    folder = Path(path)
    items = _read_texts(need(folder, "corpus.jsonl"))
    queries = _read_texts(need(folder, "queries.jsonl"))
    train = find(folder, "qrels/train.tsv", "qrels/dev.tsv")
    test = find(folder, "qrels/test.tsv")
    if train is None:
        raise DataError(
            f"Nothing to learn from in {folder}",
            got="qrels/test.tsv alone" if test else "no qrels",
            expected="qrels/train.tsv or qrels/dev.tsv",
            fix="this collection is for evaluation only; take one with a train part, such as nfcorpus",
        )
    log = _read_log(train, queries, items)
    return Dataset(
        items, log, None if test is None else _read_log(test, queries, items), name=folder.resolve().name
    )


def write_beir(dataset: Dataset, path: Path | str) -> None:
    """Write a data set as a BEIR folder.

    Novel items, filters, times and queries without a click have no place in the format and are left out.
    """
    folder = Path(path)
    logs = {"train": dataset.train} | ({"test": dataset.test} if dataset.test is not None else {})
    texts: dict[str, str] = {}
    for log in logs.values():
        for name, text in zip(log.queries.ids, log.queries.texts, strict=True):
            if texts.setdefault(name, text) != text:
                raise DataError(
                    "Two queries have one id",
                    got=f"{name!r}: {texts[name]!r} and {text!r}",
                    expected="ids that are unique over the train and the test part",
                    fix="rename the queries of one part",
                )
    items = zip(dataset.items.ids, dataset.items.texts, strict=True)
    write_json_lines(
        folder / "corpus.jsonl", ({"_id": name, "title": "", "text": text} for name, text in items)
    )
    write_json_lines(folder / "queries.jsonl", ({"_id": name, "text": text} for name, text in texts.items()))
    for part, log in logs.items():
        write_lines(folder / "qrels" / f"{part}.tsv", _qrels_lines(log, dataset.items))


def _read_texts(path: Path) -> Texts:
    ids, texts = [], []
    for number, record in read_json_lines(path):
        if "_id" not in record or "text" not in record:
            raise DataError(f"{path}, line {number}, lacks a field", got=sorted(record), expected="_id, text")
        ids.append(str(record["_id"]))
        texts.append(" ".join(str(part) for part in (record.get("title"), record["text"]) if part))
    return Texts(ids, texts)


def _read_log(path: Path, queries: Texts, items: Texts) -> ClickLog:
    clicked: dict[str, list[str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t")
        if not line or (number == 1 and fields[0] == "query-id"):
            continue
        try:
            query, item, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError) as error:
            raise DataError(
                f"{path}, line {number}",
                got=repr(line[:80]),
                expected="query-id, corpus-id, score, with tabs between",
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


def _qrels_lines(log: ClickLog, items: Texts) -> Iterator[str]:
    yield _HEADER
    for query, item in zip(*log.clicks.nonzero(), strict=True):
        yield f"{log.queries.ids[int(query)]}\t{items.ids[int(item)]}\t1"
