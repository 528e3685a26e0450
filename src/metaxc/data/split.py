"""Splits: which items count as novel and which queries are held out for testing, by ratio, by time or by a list.

All clicks of a novel item are hidden from training. A split has a hash of its ids, so that two results can be shown to
come from the same split. A text on both sides of a split is a leak, and the report lists leaks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.artifacts import json_digest, write_atomically
from metaxc.data.dataset import Dataset, Texts, check_novel
from metaxc.errors import DataError

LEAK_EXAMPLES = 5
"""Leaked texts that a report quotes."""

_NOVEL_STREAM, _TEST_STREAM = (
    0,
    1,
)  # separate random streams: the novel ratio does not change the test queries


@dataclass(frozen=True)
class SplitReport:
    """Contents and leaks of a split.

    Args:
        method: How the novel items and the test queries were chosen.
        seed: Seed of the random choices.
        novel_ids, test_ids: Sorted ids of the novel items and of the test queries.
        items_observed, items_novel, queries_train, queries_test: Counts.
        queries_test_novel: Test queries that clicked a novel item; zero-shot metrics are averages over these.
        novel_leaks: Novel items with the same text as an observed item.
        novel_leak_examples: The first of these texts.
        query_leaks: Test queries with the same text as a training query.
        query_leak_examples: The first of these texts.
    """

    method: str
    seed: int
    novel_ids: tuple[str, ...]
    test_ids: tuple[str, ...]
    items_observed: int
    items_novel: int
    queries_train: int
    queries_test: int
    queries_test_novel: int
    novel_leaks: int
    novel_leak_examples: tuple[str, ...]
    query_leaks: int
    query_leak_examples: tuple[str, ...]

    @property
    def hash(self) -> str:
        """SHA-256 of the method, the sorted novel ids and the sorted test query ids."""
        return json_digest([self.method, sorted(self.novel_ids), sorted(self.test_ids)])

    def to_dict(self) -> dict[str, object]:
        """Counts, leaks and hash for JSON; the ids are written by `save_split`."""
        ids = ("novel_ids", "test_ids")
        values = {name: value for name, value in asdict(self).items() if name not in ids}
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
        } | {"hash": self.hash}


def split(
    dataset: Dataset,
    *,
    novel: float = 0.1,
    test: float = 0.15,
    by: Literal["random", "time"] = "random",
    seed: int = 0,
    novel_ids: Iterable[str] | None = None,
) -> tuple[Dataset, SplitReport]:
    """Choose novel items and, if the data set has no test log, hold out test queries.

    Args:
        dataset: The data set; its test log is kept, its novel items (if any) are replaced.
        novel: Share of the items with at least one click, 0.1 as in the paper.
        test: Share of the queries with at least one click.
        by: "random", or "time": the newest items by `first_seen`, otherwise by their earliest click, and the queries
            with the latest clicks. If only `first_seen` is known, the test queries are random.
        seed: Seed of the random choices.
        novel_ids: Ids of the novel items; replaces `novel`.

    Returns:
        The split data set and a report.

    Example:
        >>> data = Dataset.of({"a": "x", "b": "y"}, {"q": "x", "r": "y"}, [("q", "a"), ("r", "b")])
        >>> _, report = split(data, novel_ids=["b"], test=0.5)
        >>> report.items_novel, report.queries_test
        (1, 1)
    """
    if by not in ("random", "time"):
        raise DataError("Unknown split method", got=repr(by), expected="'random' or 'time'")
    if novel_ids is not None:
        mask = _to_mask(dataset.items.rows(novel_ids, "novel item id"), len(dataset.items))
        novel_method = f"a list of {int(mask.sum())} items"
    else:
        mask, novel_method = _choose_novel(dataset, novel, by, seed)
    check_novel(mask, len(dataset.items))
    test_method = "the data set's own"
    if dataset.test is None:
        held_out, test_method = _choose_test(dataset, test, by, seed)
        rest = np.setdiff1d(np.arange(len(dataset.train)), held_out)
        train = dataset.train
        dataset = replace(dataset, train=train.take(rest), test=train.take(held_out), filters=None)
    dataset = dataset.with_novel(mask)
    # The method is part of the hash that models store, so its words must not change.
    return dataset, _build_report(dataset, f"novel items: {novel_method}; test queries: {test_method}", seed)


def save_split(report: SplitReport, path: Path | str) -> None:
    """Write ids, method, seed and hash of a split as JSON."""
    content = {
        "method": report.method,
        "seed": report.seed,
        "hash": report.hash,
        "novel_ids": list(report.novel_ids),
        "test_query_ids": list(report.test_ids),
    }
    write_atomically(Path(path), (json.dumps(content, indent=1) + "\n").encode())


def find_novel_leaks(items: Texts, novel: Mask) -> list[tuple[int, int]]:
    """(novel row, observed row) of each novel item with the same text as an observed item.

    Such an item is not really novel: its classifier could be found by looking the text up.
    """
    return _find_same_texts(items, np.flatnonzero(novel), items, np.flatnonzero(~novel))


def find_query_leaks(test: Texts, train: Texts) -> list[tuple[int, int]]:
    """(test row, train row) of each test query with the same text as a training query."""
    return _find_same_texts(test, np.arange(len(test)), train, np.arange(len(train)))


def _find_same_texts(texts: Texts, rows: Rows, others: Texts, other_rows: Rows) -> list[tuple[int, int]]:
    """Pairs of rows with the same text, ignoring case, white space and empty texts; only the first other row counts."""
    first: dict[str, int] = {}
    for row in other_rows.tolist():
        first.setdefault(_normalise(others.texts[row]), row)
    pairs = ((row, _normalise(texts.texts[row])) for row in rows.tolist())
    return [(row, first[text]) for row, text in pairs if text and text in first]


def _normalise(text: str) -> str:
    return " ".join(text.lower().split())


def _choose_novel(dataset: Dataset, ratio: float, by: str, seed: int) -> tuple[Mask, str]:
    logs = [log for log in (dataset.train, dataset.test) if log is not None]
    clicked = np.zeros(len(dataset.items), dtype=np.bool_)
    for log in logs:
        clicked[log.clicks.indices] = True
    if by == "random":
        rows = np.flatnonzero(clicked)
        count = _compute_count(ratio, len(rows), "novel", "items")
        chosen = np.random.default_rng([seed, _NOVEL_STREAM]).choice(rows, count, replace=False)
        return _to_mask(chosen, len(clicked)), f"random, {ratio} of the clicked items"
    if dataset.items.first_seen is not None:
        first_times = dataset.items.first_seen.astype(np.float64)
        method = f"newest by first_seen, {ratio} of the clicked items"
    else:
        first_times = np.full(len(clicked), np.inf)
        for log in logs:
            if log.times is not None:
                np.minimum.at(first_times, log.clicks.indices, log.times)
        clicked &= np.isfinite(first_times)  # a log without times does not tell the age of its items
        method = f"newest by first click, {ratio} of the clicked items"
        if not clicked.any():
            raise DataError(
                "A split by time needs times",
                got="items without first_seen and clicks without times",
                expected="first_seen in the items file, or times in the third column of the clicks file",
                fix='add one of them, or split with by="random"',
            )
    rows = np.flatnonzero(clicked)
    count = _compute_count(ratio, len(rows), "novel", "items")
    return _to_mask(_take_latest(rows, first_times[rows], count), len(clicked)), method


def _choose_test(dataset: Dataset, ratio: float, by: str, seed: int) -> tuple[Rows, str]:
    log = dataset.train
    rows = np.flatnonzero(np.diff(log.clicks.indptr) > 0)
    count = _compute_count(ratio, len(rows), "test", "queries")
    if by == "time" and log.times is not None:
        last = np.maximum.reduceat(log.times, log.clicks.indptr[rows])
        method = f"latest by last click, {ratio} of the queries with clicks"
        return np.sort(_take_latest(rows, last, count)), method
    chosen = np.random.default_rng([seed, _TEST_STREAM]).choice(rows, count, replace=False)
    return np.sort(chosen), f"random, {ratio} of the queries with clicks"


def _take_latest(rows: Rows, times: Doubles, count: int) -> Rows:
    """The `count` rows with the largest times; among equal times, the first rows."""
    return rows[np.argsort(-times, kind="stable")[:count]]


def _compute_count(ratio: float, available: int, name: str, what: str) -> int:
    count = round(ratio * available) if 0 < ratio < 1 else 0
    if not 0 < count < available:
        raise DataError(
            f"The {name} share leaves one side of the split without {what}",
            got=f"{name}={ratio} of {available:,} {what} with clicks",
            expected=f"a share between 0 and 1 that selects at least one of the {what}, but not all",
            fix=f"use another {name} share" + (", such as 0.1" if available >= 10 else ", or more data"),
        )
    return count


def _to_mask(rows: Rows, size: int) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask


def _build_report(dataset: Dataset, method: str, seed: int) -> SplitReport:
    items, train, test = dataset.items, dataset.train, dataset.test
    assert test is not None  # `split` has just created it
    novel = dataset.novel_mask
    novel_leaks = find_novel_leaks(items, novel)
    query_leaks = find_query_leaks(test.queries, train.queries)
    with_novel_click = np.diff(test.clicks[:, dataset.novel_rows].indptr) > 0
    return SplitReport(
        method=method,
        seed=seed,
        novel_ids=tuple(sorted(items.ids[row] for row in dataset.novel_rows)),
        test_ids=tuple(sorted(test.queries.ids)),
        items_observed=int((~novel).sum()),
        items_novel=int(novel.sum()),
        queries_train=len(train),
        queries_test=len(test),
        queries_test_novel=int(with_novel_click.sum()),
        novel_leaks=len(novel_leaks),
        novel_leak_examples=_quote(items, novel_leaks),
        query_leaks=len(query_leaks),
        query_leak_examples=_quote(test.queries, query_leaks),
    )


def _quote(texts: Texts, leaks: list[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(texts.texts[row] for row, _ in leaks[:LEAK_EXAMPLES])
