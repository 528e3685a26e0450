"""Click events as arrays: how often each (query, item) pair was clicked, and when.

A pair may have a billion events, so equal ones are never repeated: the events of a pair at the same time are one
*group* with a count. Where times are not known, all events of a pair are one group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from metaxc.arrays import Doubles, Rows
from metaxc.errors import DataError


class EventGroups(NamedTuple):
    """Events by pair and, where it is known, by time.

    Args:
        pairs: (groups,) int64, ascending: the pair of each group, as a place in `ClickLog.clicks.data`.
        times: (groups,) float64, seconds since 1970, ascending within a pair; None if unknown.
        counts: (groups,) int64, the number of events in each group, at least 1.
    """

    pairs: Rows
    times: Doubles | None
    counts: Rows

    @property
    def starts(self) -> Rows:
        """(pairs,) int64, the first group of each pair."""
        return np.flatnonzero(np.diff(self.pairs, prepend=-1))


def group_events(pairs: Rows, times: Doubles | None = None, counts: Rows | None = None) -> EventGroups:
    """Sort events by pair and time, and merge those that are equal.

    Args:
        pairs: (n,) int64, the pair of each event, in any order.
        times: (n,) float64, the time of each event, if known.
        counts: (n,) int64, the number of events that each entry stands for; None for one each.
    """
    order = np.lexsort((pairs,) if times is None else (times, pairs))
    pairs = pairs[order]
    counts = np.ones(len(pairs), np.int64) if counts is None else counts[order]
    is_first = np.diff(pairs, prepend=-1) != 0
    if times is not None:
        times = times[order]
        is_first[1:] |= np.diff(times) != 0
    starts = np.flatnonzero(is_first)
    merged = np.add.reduceat(counts, starts) if len(starts) else counts
    return EventGroups(pairs[starts], None if times is None else times[starts], merged)


def expand_groups(
    pairs: int, times: Doubles | None, counts: Rows | None, time_counts: Rows | None
) -> EventGroups:
    """The groups that the arrays of a `ClickLog` describe; arrays that contradict each other are a `DataError`.

    Args:
        pairs: The number of pairs.
        times, counts, time_counts: As in `ClickLog`.
    """
    pair_counts = np.ones(pairs, np.int64) if counts is None else np.asarray(counts, np.int64)
    if len(pair_counts) != pairs:
        _fail(
            "The numbers of clicks and counts differ",
            f"{pairs} clicks, {len(pair_counts)} counts",
            "one per click",
        )
    if times is None:
        if time_counts is not None:
            _fail(
                "There are counts per time without times",
                f"{len(time_counts)} counts",
                "times, or no time_counts",
            )
        groups = EventGroups(np.arange(pairs), None, pair_counts)
    else:
        at_time = np.ones(len(times), np.int64) if time_counts is None else np.asarray(time_counts, np.int64)
        if len(at_time) != len(times):
            _fail(
                "The numbers of times and time counts differ",
                f"{len(times)} times, {len(at_time)} counts",
                "equal",
            )
        ends, group_ends = np.cumsum(pair_counts), np.cumsum(at_time)
        if not np.isin(ends, group_ends).all() or at_time.sum() != pair_counts.sum():
            _fail(
                "The times do not match the clicks",
                f"{at_time.sum():,} events with a time, {pair_counts.sum():,} events of {pairs:,} clicks",
                "a time for each event, click after click",
            )
        groups = EventGroups(np.searchsorted(ends, group_ends), times, at_time)
        falling = (np.diff(times) < 0) & (np.diff(groups.pairs) == 0)
        if not np.isfinite(times).all() or falling.any():
            _fail(
                "The times of a click are not ascending numbers",
                "NaN, infinity or a step back",
                "ascending times",
            )
    if len(groups.counts) and groups.counts.min() < 1:
        _fail("A count is too small", int(groups.counts.min()), "at least one event")
    return groups


def _fail(what: str, got: object, expected: str) -> None:
    raise DataError(
        what, got=got, expected=expected, fix="ClickLog.of_events builds a valid log from events in any order"
    )
