"""Splits: which items count as novel and which clicks are held out for testing, by ratio, by time or by a list.

A random split holds out queries with all their clicks. A split by time cuts the events at one date: what was clicked
before it predicts what is clicked from then on, and a query that was asked on both sides is in both parts, each with
its own events.

All clicks of a novel item are hidden from training. A split has a hash of its ids, so that two results can be shown to
come from the same split. A text on both sides of a random split is a leak, and the report lists leaks.
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
from metaxc.data.dataset import ClickLog, Dataset, Texts, Time, check_novel
from metaxc.data.same_texts import find_same_texts, normalise_text, rows_by_text
from metaxc.data.text_files import TIME_FORMAT, format_time, parse_time
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
        query_leaks: Test queries with the same text as a training query; 0 for a split by time.
        query_leak_examples: The first of these texts.
        queries_in_both: For a split by time, the test queries with the same text as a training query. They are no
            leak: people ask again what they asked before.
        events_train, events_test: Numbers of click events.
        cut_at: The date of a split by time, seconds since 1970: events before it are for training.
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
    queries_in_both: int
    events_train: int
    events_test: int
    cut_at: float | None = None

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
    cut_at: Time | None = None,
) -> tuple[Dataset, SplitReport]:
    """Choose novel items and, if the data set has no test log, hold out clicks for testing.

    Args:
        dataset: The data set; its test log is kept, its novel items (if any) are replaced.
        novel: Share of the items with at least one click, 0.1 as in the paper.
        test: Share of the queries with at least one click; by time, the share of the events.
        by: "random", or "time": the newest items by `first_seen`, otherwise by their earliest event, and the latest
            events. If only `first_seen` is known, the test queries are random.
        seed: Seed of the random choices.
        novel_ids: Ids of the novel items; replaces `novel`.
        cut_at: For a split by time, the time of the first test event (seconds since 1970 or ISO 8601); replaces `test`.

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
    cut = _parse_cut(dataset, by, cut_at)
    test_method = "test queries: the data set's own"
    if dataset.test is None:
        train = dataset.train
        if by == "time" and train.times is not None:
            cut = _choose_cut(train, train.times, test) if cut is None else cut
            train, held_out = _cut_events(train, train.times >= cut)
            test_method = f"test events: from {format_time(cut)} on"
        else:
            rows = _choose_test_queries(train, test, seed)
            train, held_out = train.take(np.setdiff1d(np.arange(len(train)), rows)), train.take(rows)
            test_method = f"test queries: random, {test} of the queries with clicks"
        dataset = replace(dataset, train=train, test=held_out, filters=None)
    dataset = _forget_novel_queries(dataset.with_novel(mask))
    # The method is part of the hash that models store, so its words must not change.
    return dataset, _build_report(dataset, f"novel items: {novel_method}; {test_method}", seed, cut)


def _forget_novel_queries(dataset: Dataset) -> Dataset:
    """The data set without training queries that are novel items, where queries are items: what was bought with an item
    that nobody has bought yet is not known."""
    if not dataset.exclude_self:
        return dataset
    novel = rows_by_text([dataset.items.texts[row] for row in dataset.novel_rows])
    queries = dataset.train.queries.texts
    kept = [row for row, text in enumerate(queries) if normalise_text(text) not in novel]
    return replace(dataset, train=dataset.train.take(np.asarray(kept, np.int64)))


def save_split(report: SplitReport, path: Path | str) -> None:
    """Write ids, method, seed and hash of a split as JSON."""
    content = {
        "method": report.method,
        "seed": report.seed,
        "hash": report.hash,
        "novel_ids": list(report.novel_ids),
        "test_query_ids": list(report.test_ids),
    } | ({} if report.cut_at is None else {"cut_at": report.cut_at})
    write_atomically(Path(path), (json.dumps(content, indent=1) + "\n").encode())


def find_novel_leaks(items: Texts, novel: Mask) -> list[tuple[int, int]]:
    """(novel row, observed row) of each novel item with the same text as an observed item.

    Such an item is not really novel: its classifier could be found by looking the text up.
    """
    return find_same_texts(items, np.flatnonzero(novel), items, np.flatnonzero(~novel))


def find_query_leaks(test: Texts, train: Texts) -> list[tuple[int, int]]:
    """(test row, train row) of each test query with the same text as a training query."""
    return find_same_texts(test, np.arange(len(test)), train, np.arange(len(train)))


def is_cut_by_time(train: Doubles | None, test: Doubles | None) -> bool:
    """Whether all test events are later than all training events, given the times of both (None if unknown).

    The same query in both parts is then no leak.
    """
    if train is None or test is None or not len(train) or not len(test):
        return False
    return bool(train.max() < test.min())


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
            if log.item_times is not None:
                first_times = np.minimum(first_times, log.item_times)
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


def _choose_test_queries(log: ClickLog, ratio: float, seed: int) -> Rows:
    rows = np.flatnonzero(np.diff(log.clicks.indptr) > 0)
    count = _compute_count(ratio, len(rows), "test", "queries")
    return np.sort(np.random.default_rng([seed, _TEST_STREAM]).choice(rows, count, replace=False))


def _parse_cut(dataset: Dataset, by: str, cut_at: Time | None) -> float | None:
    """`cut_at` in seconds; None where none is given."""
    if cut_at is None:
        return None
    if by != "time" or dataset.test is not None or dataset.train.times is None:
        raise DataError(
            "A date to cut at does not apply here",
            got=f"cut_at={cut_at!r}, by={by!r}, {dataset!r}",
            expected='by="time", and an unsplit data set whose clicks have times',
            fix="leave cut_at out, or give times in the third column of the clicks file",
        )
    cut = parse_time(cut_at)
    if cut is None:
        raise DataError("The date to cut at cannot be read", got=repr(cut_at), expected=TIME_FORMAT)
    first, last = dataset.train.times.min(), dataset.train.times.max()
    if not first < cut <= last:
        raise DataError(
            "The date to cut at leaves one side of the split without events",
            got=format_time(cut),
            expected=f"a date after {format_time(first)} and not after {format_time(last)}",
        )
    return cut


def _choose_cut(log: ClickLog, times: Doubles, ratio: float) -> float:
    """The time from which on there are as nearly as possible `ratio` of the events; the later one of two."""
    wanted = _compute_count(ratio, log.event_count, "test", "events")
    moments, place = np.unique(times, return_inverse=True)
    if len(moments) < 2:
        raise DataError(
            "A split by time needs events at different times",
            got=f"{log.event_count:,} events, all at {format_time(moments[0])}",
            expected="at least two times",
            fix='split with by="random"',
        )
    events = np.zeros(len(moments), np.int64)
    np.add.at(events, place, log.groups.counts)
    from_then_on = events[::-1].cumsum()[
        :-1
    ]  # the latest first; the earliest would leave nothing for training
    return float(moments[::-1][np.argmin(np.abs(from_then_on - wanted))])


def _cut_events(log: ClickLog, later: Mask) -> tuple[ClickLog, ClickLog]:
    """The log without and with the events (a bool for each of `log.groups`) that are later, each with the queries of
    its events; queries without any event stay in the first."""
    never = np.diff(log.clicks.indptr) == 0
    train, test = log.take_events(~later), log.take_events(later)
    before, after = (np.diff(part.clicks.indptr) > 0 for part in (train, test))
    return train.take(np.flatnonzero(before | never)), test.take(np.flatnonzero(after))


def _take_latest(rows: Rows, times: Doubles, count: int) -> Rows:
    """The `count` rows with the largest times; among equal times, the first rows."""
    return rows[np.argsort(-times, kind="stable")[:count]]


def _compute_count(ratio: float, available: int, name: str, what: str) -> int:
    count = round(ratio * available) if 0 < ratio < 1 else 0
    if not 0 < count < available:
        raise DataError(
            f"The {name} share leaves one side of the split without {what}",
            got=f"{name}={ratio} of {available:,} {what}" + ("" if what == "events" else " with clicks"),
            expected=f"a share between 0 and 1 that selects at least one of the {what}, but not all",
            fix=f"use another {name} share" + (", such as 0.1" if available >= 10 else ", or more data"),
        )
    return count


def _to_mask(rows: Rows, size: int) -> Mask:
    mask = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask


def _build_report(dataset: Dataset, method: str, seed: int, cut: float | None) -> SplitReport:
    items, train, test = dataset.items, dataset.train, dataset.test
    assert test is not None  # `split` has just created it
    novel = dataset.novel_mask
    novel_leaks = find_novel_leaks(items, novel)
    in_both = find_query_leaks(test.queries, train.queries)
    query_leaks = [] if is_cut_by_time(train.times, test.times) else in_both
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
        queries_in_both=len(in_both) - len(query_leaks),
        events_train=train.event_count,
        events_test=test.event_count,
        cut_at=cut,
    )


def _quote(texts: Texts, leaks: list[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(texts.texts[row] for row, _ in leaks[:LEAK_EXAMPLES])
