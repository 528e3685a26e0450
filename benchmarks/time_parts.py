"""A click log cut by time into what a model was trained on, what came later, and what is asked still later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from metaxc import read_folder
from metaxc.arrays import Rows
from metaxc.data import ClickLog, Dataset, Texts
from metaxc.data.input_rules import validate_id

TRAINED, LATER = 0.7, 0.85
"""Shares of the click events at which time is cut."""


@dataclass(frozen=True)
class TimeParts:
    """One history, seen at two dates.

    Args:
        before: Items that existed at the first date, and the clicks until then.
        after: All items; the clicks until the second date as training part, those from then on as test part. Items
            without a click until the second date are novel.
        later: The clicks between the dates, over the items of `after`.
    """

    before: Dataset
    after: Dataset
    later: ClickLog


def read_parts(folder: Path, most_items: int | None = None, seed: int = 0) -> TimeParts:
    """Cut the clicks of a data set folder by time.

    Args:
        folder: The data set; its clicks must have times. Its own split is not used.
        most_items: Takes a random sample of at most so many items, with the queries that clicked one.
        seed: Draws that sample.
    """
    dataset = read_folder(folder)
    log = join_logs(dataset)
    items = dataset.items
    if most_items is not None and len(items) > most_items:
        rows = np.sort(np.random.default_rng(seed).choice(len(items), most_items, replace=False))
        items, log = items.take(rows), log.take_items(rows)
    times = log.times
    if times is None:
        raise SystemExit(f"{folder}: the clicks have no times, so nothing came later")
    first, second = np.quantile(times, [TRAINED, LATER])
    appeared = first_appearance(items, log)
    train, test = log.take_events(times < second), log.take_events(times >= second)
    later = log.take_events((times >= first) & (times < second))
    there = np.flatnonzero(appeared < first)
    early = with_clicks(log.take_events(times < first).take_items(there))
    return TimeParts(
        replace(
            dataset,
            items=items.take(there),
            train=early,
            test=None,
            novel=without_clicks(early),
            filters=None,
        ),
        replace(
            dataset,
            items=items,
            train=with_clicks(train),
            test=with_clicks(test),
            novel=without_clicks(train),
            filters=None,
        ),
        with_clicks(later),
    )


def join_logs(dataset: Dataset) -> ClickLog:
    """The training and the test part of a data set as one log; a query with the same text is one query."""
    logs = [dataset.train] if dataset.test is None else [dataset.train, dataset.test]
    row_of: dict[str, int] = {}
    queries, clicked, times = [], [], []
    for log in logs:
        rows = np.array([row_of.setdefault(text, len(row_of)) for text in log.queries.texts])
        pairs = np.repeat(log.groups.pairs, log.groups.counts)
        queries.append(rows[log.pair_rows[pairs]])
        clicked.append(log.clicks.indices[pairs])
        times.append([] if log.times is None else np.repeat(log.times, log.groups.counts))
    texts = list(row_of)
    names = Texts([validate_id(f"q{row}") for row in range(len(texts))], texts)
    return ClickLog.of_events(
        names,
        len(dataset.items),
        np.concatenate(queries),
        np.concatenate(clicked),
        np.concatenate(times) if all(len(one) for one in times) else None,
    )


def first_appearance(items: Texts, log: ClickLog) -> np.ndarray:
    """(items,) when each item was first seen or clicked, whichever was earlier."""
    clicked = log.item_times
    assert clicked is not None
    return clicked if items.first_seen is None else np.minimum(clicked, items.first_seen.astype(np.float64))


def with_clicks(log: ClickLog) -> ClickLog:
    """The queries of a log that clicked something."""
    return log.take(np.flatnonzero(np.diff(log.clicks.indptr) > 0))


def without_clicks(log: ClickLog) -> np.ndarray:
    """(items,) bool: the items that nobody clicked. Where there is none, the last one, for a data set needs one."""
    novel = np.bincount(log.clicks.indices, minlength=log.clicks.shape[1]) == 0
    if not novel.any():
        novel[-1] = True
    return novel


def events(log: ClickLog) -> tuple[Rows, Rows, np.ndarray]:
    """Query row, item row and time of each event, the earliest first."""
    assert log.times is not None
    pairs = np.repeat(log.groups.pairs, log.groups.counts)
    times = np.repeat(log.times, log.groups.counts)
    order = np.argsort(times, kind="stable")
    return log.pair_rows[pairs][order], log.clicks.indices[pairs][order].astype(np.int64), times[order]
