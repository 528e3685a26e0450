"""`ClickLog`: queries, what they clicked, how often and when; and `Texts`, the ids and texts of items or queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.click_events import EventGroups, expand_groups, group_events
from metaxc.data.item_fields import Fields
from metaxc.errors import DataError


@dataclass(frozen=True)
class Texts:
    """Ids and texts of items or queries, in row order.

    Args:
        ids: Unique string ids.
        texts: One text per id.
        first_seen: (n,) int64, seconds since 1970, if known; a split by time uses it.
        tags: The tags of each, by which a catalog filters; None where nothing has any.
        fields: The fields of each (`metaxc.data.item_fields`), alike.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    first_seen: Rows | None = None
    tags: Sequence[tuple[str, ...]] | None = None
    fields: Sequence[Fields] | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise DataError(
                "The numbers of ids and texts differ",
                got=f"{len(self.ids)} ids, {len(self.texts)} texts",
                expected="one text per id",
            )
        if self.first_seen is not None and len(self.first_seen) != len(self.ids):
            raise DataError(
                "The numbers of ids and first_seen times differ",
                got=f"{len(self.ids)} ids, {len(self.first_seen)} times",
                expected="one time per id",
            )
        if self.tags is not None and len(self.tags) != len(self.ids):
            raise DataError(
                "The numbers of ids and tags differ",
                got=f"{len(self.ids)} ids, {len(self.tags)} lists of tags",
                expected="one list of tags per id",
            )
        if self.fields is not None and len(self.fields) != len(self.ids):
            raise DataError(
                "The numbers of ids and fields differ",
                got=f"{len(self.ids)} ids, the fields of {len(self.fields)}",
                expected="fields for each id, which may be empty",
            )
        if len(self.row_of) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise DataError("An id is used twice", got=repr(twice), expected="unique ids", fix="rename one")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Texts({len(self):,})"

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.ids)}

    def rows(self, ids: Iterable[str], what: str = "id") -> Rows:
        """Rows of the ids; an unknown id is a `DataError` that names it."""
        found = []
        for name in ids:
            row = self.row_of.get(name)
            if row is None:
                raise DataError(f"Unknown {what}", got=repr(name), expected=f"one of {len(self):,} ids")
            found.append(row)
        return np.asarray(found, dtype=np.int64)

    def take(self, rows: Rows) -> Texts:
        """The ids and texts at `rows`, in that order."""
        first_seen = None if self.first_seen is None else self.first_seen[rows]
        tags = None if self.tags is None else [self.tags[r] for r in rows]
        fields = None if self.fields is None else [self.fields[r] for r in rows]
        return Texts([self.ids[r] for r in rows], [self.texts[r] for r in rows], first_seen, tags, fields)

    def extended(self, new: Texts) -> Texts:
        """These texts and then others, with their tags and fields; times at which they were first seen are left out."""
        tags: list[tuple[str, ...]] = []
        fields: list[Fields] = []
        for one in (self, new):
            tags += one.tags or [()] * len(one)
            fields += one.fields or [{} for _ in one.ids]
        return Texts(
            [*self.ids, *new.ids],
            [*self.texts, *new.texts],
            tags=tags if any(tags) else None,
            fields=fields if any(fields) else None,
        )


@dataclass(frozen=True)
class ClickLog:
    """Queries, what they clicked, how often, and when.

    Args:
        queries: The queries.
        clicks: (queries, items) float32, 1 where a query clicked an item; sorted, without duplicates.
        times: Times of the events, float64, seconds since 1970, if known: those of the first pair in the order of
            `clicks.data`, then those of the next; ascending within a pair.
        counts: (clicks.nnz,) int64, events of each pair in the order of `clicks.data`; None for one each.
        time_counts: (len(times),) int64, events at each time; None for one each.

    Example:
        >>> queries = Texts(["q"], ["fruit"])
        >>> log = ClickLog.of_events(queries, 2, [0, 0, 0], [1, 0, 1], times=[30, 20, 10])
        >>> log.pair_counts.tolist(), log.last_times.tolist()
        ([1, 2], [20.0, 30.0])
    """

    queries: Texts
    clicks: csr_array
    times: Doubles | None = None
    counts: Rows | None = None
    time_counts: Rows | None = None

    def __post_init__(self) -> None:
        if self.clicks.shape[0] != len(self.queries):
            raise DataError(
                "The numbers of click rows and queries differ",
                got=f"{self.clicks.shape[0]} click rows, {len(self.queries)} queries",
                expected="one row of clicks per query",
            )
        if self.times is not None or self.counts is not None or self.time_counts is not None:
            self.groups  # noqa: B018 (checks the arrays)

    @classmethod
    def of_events(
        cls,
        queries: Texts,
        items: int,
        query_rows: ArrayLike,
        item_rows: ArrayLike,
        times: ArrayLike | None = None,
        counts: ArrayLike | None = None,
    ) -> ClickLog:
        """Build a log from events in any order; repeated pairs add up.

        Args:
            queries: The queries.
            items: Number of items.
            query_rows, item_rows: (n,) int64, who clicked what.
            times: (n,) float64, seconds since 1970, if known.
            counts: (n,) int64, how many events at that time each entry stands for; None for one each.
        """
        rows, columns = np.asarray(query_rows, np.int64), np.asarray(item_rows, np.int64)
        clicks = click_matrix(rows, columns, (len(queries), items))
        groups = group_events(
            np.unique(rows * items + columns, return_inverse=True)[1].reshape(-1),
            None if times is None else np.asarray(times, np.float64),
            None if counts is None else np.asarray(counts, np.int64),
        )
        pair_counts = np.add.reduceat(groups.counts, groups.starts) if len(rows) else groups.counts
        time_counts = None if groups.times is None else none_if_ones(groups.counts)
        return cls(queries, clicks, groups.times, none_if_ones(pair_counts), time_counts)

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        events = "" if self.counts is None else f", {self.event_count:,} events"
        return f"ClickLog({len(self):,} queries, {self.clicks.nnz:,} clicks{events})"

    @cached_property
    def groups(self) -> EventGroups:
        """All events, by pair and time."""
        return expand_groups(self.clicks.nnz, self.times, self.counts, self.time_counts)

    @property
    def pair_counts(self) -> Rows:
        """(clicks.nnz,) int64: the number of events of each pair."""
        return np.ones(self.clicks.nnz, np.int64) if self.counts is None else self.counts

    @property
    def event_count(self) -> int:
        """The number of click events."""
        return int(self.pair_counts.sum())

    @property
    def first_times(self) -> Doubles | None:
        """(clicks.nnz,) float64: the earliest time of each pair; None if times are unknown."""
        return None if self.times is None else self.times[self.groups.starts]

    @property
    def last_times(self) -> Doubles | None:
        """(clicks.nnz,) float64: the latest time of each pair; None if times are unknown."""
        return (
            None if self.times is None else self.times[np.append(self.groups.starts, len(self.times))[1:] - 1]
        )

    @property
    def query_times(self) -> Doubles | None:
        """(queries,) float64: the latest event of each query, −inf where there is none; None if times are unknown."""
        return self._extreme_times(np.maximum, -np.inf, self.last_times, self.pair_rows, len(self))

    @property
    def item_times(self) -> Doubles | None:
        """(items,) float64: the *first* event of each item, inf where there is none; None if times are unknown."""
        return self._extreme_times(
            np.minimum, np.inf, self.first_times, self.clicks.indices, self.clicks.shape[1]
        )

    @staticmethod
    def _extreme_times(
        extreme: np.ufunc, start: float, times: Doubles | None, owner: NDArray[np.integer], size: int
    ) -> Doubles | None:
        if times is None:
            return None
        found = np.full(size, start)
        extreme.at(found, owner, times)
        return found

    @property
    def pair_rows(self) -> Rows:
        """(clicks.nnz,) int64: the query of each pair."""
        return np.repeat(np.arange(len(self)), np.diff(self.clicks.indptr))

    def take(self, rows: Rows) -> ClickLog:
        """The queries at `rows` with their clicks."""
        return self._take_pairs(
            self.queries.take(rows), csr_array(self.clicks[rows]), lambda pairs: pairs[rows]
        )

    def take_items(self, columns: Rows) -> ClickLog:
        """All queries with their clicks on the items at `columns`, one column for each of them."""
        return self._take_pairs(
            self.queries, csr_array(self.clicks[:, columns]), lambda pairs: pairs[:, columns]
        )

    def take_events(self, kept: Mask) -> ClickLog:
        """All queries with those of their events that `kept`, a bool for each of `groups`, is True for."""
        pairs = self.groups.pairs[kept]
        return ClickLog.of_events(
            self.queries,
            self.clicks.shape[1],
            self.pair_rows[pairs],
            self.clicks.indices[pairs],
            None if self.times is None else self.times[kept],
            self.groups.counts[kept],
        )

    def _take_pairs(
        self, queries: Texts, clicks: csr_array, index: Callable[[csr_array], csr_array]
    ) -> ClickLog:
        """The log of `clicks`, a part of the clicks that `index` takes from any matrix of the same shape."""
        if self.times is None and self.counts is None:
            return ClickLog(queries, clicks)
        # The places of all pairs, from 1 because sparse matrices may drop zeros, show which pairs `index` takes.
        places = np.arange(1, self.clicks.nnz + 1)
        pairs = (
            index(csr_array((places, self.clicks.indices, self.clicks.indptr), self.clicks.shape)).data - 1
        )
        counts = None if self.counts is None else none_if_ones(self.counts[pairs])
        if self.times is None:
            return ClickLog(queries, clicks, None, counts)
        starts = self.groups.starts
        lengths = np.diff(starts, append=len(self.times))[pairs]
        before = np.cumsum(lengths) - lengths
        taken = np.repeat(starts[pairs] - before, lengths) + np.arange(lengths.sum())
        at_time = None if self.time_counts is None else none_if_ones(self.time_counts[taken])
        return ClickLog(queries, clicks, self.times[taken], counts, at_time)


def click_matrix(query_rows: Rows, item_rows: Rows, shape: tuple[int, int]) -> csr_array:
    """(queries, items) float32 with a 1 for each clicked pair, however often it was clicked."""
    ones = np.ones(len(query_rows), dtype=np.float32)
    clicks = csr_array((ones, (query_rows, item_rows)), shape=shape)
    clicks.sum_duplicates()
    clicks.sort_indices()
    clicks.data[:] = 1.0
    return clicks


def none_if_ones(counts: Rows) -> Rows | None:
    """The counts; None, which stands for one each, where all are 1."""
    return None if (counts == 1).all() else counts
