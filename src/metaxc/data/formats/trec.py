"""TREC runs and qrels, the files that evaluation tools agree on.

A run has a line `query Q0 item rank score tag` per answer, qrels a line `query 0 item grade` per judged pair.
Fields are separated by blanks, so an id must not contain one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from metaxc.data.dataset import ClickLog, Texts
from metaxc.data.formats.line_files import read_lines, write_lines
from metaxc.errors import DataError

Run = dict[str, list[tuple[str, float]]]
Qrels = dict[str, dict[str, int]]


def write_run(
    path: Path | str,
    query_ids: Sequence[str],
    item_ids_per_query: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float]],
    tag: str = "metaxc",
) -> None:
    """Write a ranking, best item first.

    Args:
        path: The file; .gz compresses it.
        query_ids: One id per query.
        item_ids_per_query: The items of each query, best first.
        scores: Their scores, never rising: tools rank by score, not by the rank written beside it.
        tag: Name of the run.
    """
    counts = [len(query_ids), len(item_ids_per_query), len(scores)]
    if len(set(counts)) > 1:
        raise DataError(
            "Queries, answers and scores differ in number",
            got=f"{counts[0]} queries, {counts[1]} lists of items, {counts[2]} of scores",
            expected="one list of each per query",
        )

    def lines() -> Iterator[str]:
        for query, items, values in zip(query_ids, item_ids_per_query, scores, strict=True):
            _check_ranking(query, items, [float(value) for value in values])
            for rank, (item, value) in enumerate(zip(items, values, strict=True), 1):
                yield f"{_field(query)} Q0 {_field(item)} {rank} {float(value)!r} {_field(tag)}"

    # Written in one go, so that a bad query leaves no half of a file behind.
    write_lines(Path(path), list(lines()))


def read_run(path: Path | str) -> Run:
    """Items and scores of each query, in the order of their ranks."""
    ranked: dict[str, list[tuple[int, str, float]]] = {}
    for number, words in _fields(Path(path), 6, "query Q0 item rank score tag"):
        try:
            rank, score = int(words[3]), float(words[4])
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}",
                got=" ".join(words),
                expected="a whole rank and a score in columns 4 and 5",
            ) from error
        ranked.setdefault(words[0], []).append((rank, words[2], score))
    return {
        query: [(item, score) for _, item, score in sorted(answers, key=lambda answer: answer[0])]
        for query, answers in ranked.items()
    }


def write_qrels(path: Path | str, qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Write the grade of each judged item of each query."""
    write_lines(
        Path(path),
        [
            f"{_field(query)} 0 {_field(item)} {int(grade)}"
            for query, judged in qrels.items()
            for item, grade in judged.items()
        ],
    )


def read_qrels(path: Path | str) -> Qrels:
    """The grade of each judged item of each query."""
    qrels: Qrels = {}
    for number, words in _fields(Path(path), 4, "query 0 item grade"):
        try:
            qrels.setdefault(words[0], {})[words[2]] = int(words[3])
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}", got=words[3], expected="a whole grade in column 4"
            ) from error
    return qrels


def qrels_of(log: ClickLog, items: Texts) -> Qrels:
    """The clicks of a log as qrels, grade 1 each."""
    spans = zip(log.queries.ids, log.clicks.indptr[:-1], log.clicks.indptr[1:], strict=True)
    return {query: {items.ids[i]: 1 for i in log.clicks.indices[start:end]} for query, start, end in spans}


def _check_ranking(query: str, items: Sequence[str], scores: Sequence[float]) -> None:
    if len(items) != len(scores):
        raise DataError(
            f"Items and scores of query {query!r} differ in number",
            got=f"{len(items)} items, {len(scores)} scores",
            expected="one score per item",
        )
    if len(set(items)) != len(items):
        raise DataError(
            f"Query {query!r} ranks an item twice", got=list(items)[:10], expected="each item once"
        )
    if not all(map(math.isfinite, scores)) or any(a < b for a, b in pairwise(scores)):
        raise DataError(
            f"The scores of query {query!r} are no ranking",
            got=list(scores)[:10],
            expected="finite scores, the best first",
            fix="sort the items by falling score",
        )


def _field(text: str) -> str:
    if not text or len(text.split()) != 1 or text != text.strip():
        raise DataError(
            "An id or tag cannot be written to a TREC file",
            got=repr(text),
            expected="at least one character and no white space",
            fix="replace the blanks, e.g. by _",
        )
    return text


def _fields(path: Path, count: int, expected: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if words and len(words) != count:
            raise DataError(
                f"{path}, line {number}", got=repr(line[:80]), expected=f"{count} fields: {expected}"
            )
        if words:
            yield number, words
