"""`Dataset`: items, queries and clicks, as they pass between files, splits, models and metrics.

Users refer to items and queries by string ids; the library refers to them by row. Clicks are a sparse matrix of
queries × items; how often and when each pair was clicked stands beside it. A data set has a training click log and
optionally a test click log over the same items. Novel items are a mask over the items: nothing that learns sees their
clicks in the training log (`Dataset.observed_log`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.click_log import ClickLog, Texts, click_matrix, none_if_ones
from metaxc.data.item_fields import dump_fields
from metaxc.data.same_texts import own_text_pairs, rows_by_text
from metaxc.data.text_files import TIME_FORMAT, convert_smaller_unit, parse_time
from metaxc.errors import DataError

__all__ = ["ClickLog", "Dataset", "Texts", "Time", "check_novel", "click_matrix"]

Time = float | str | date
"""Seconds since 1970, an ISO-8601 string, or a date or datetime; UTC where there is no time zone."""

EXCLUDE_SELF = b"exclude_self"


@dataclass(frozen=True)
class Dataset:
    """Items, a training click log, optionally a test click log, and which items are novel.

    Args:
        items: All items, observed and novel.
        train: The log that models learn from (through `observed_log`).
        test: The log that models are evaluated on.
        novel: (items,) bool, True for items that count as never clicked; None before a split.
        filters: (test queries, items) float32, pairs that are removed from a ranking before it is evaluated
            (the XC repository's filter files: items whose text is the query itself).
        name: Name of the data set in reports.
        exclude_self: Whether queries are items themselves (bought or read together): an item is then no answer to its
            own text. The pairs of test queries and items with the same text are added to `filters`, and a model that
            learns from the data leaves an item out where its own text is searched.

    Example:
        >>> Dataset.of({"i1": "red apple"}, {"q1": "fruit"}, [("q1", "i1")])
        Dataset('data': 1 items, train ClickLog(1 queries, 1 clicks))
    """

    items: Texts
    train: ClickLog
    test: ClickLog | None = None
    novel: Mask | None = None
    filters: csr_array | None = None
    name: str = "data"
    exclude_self: bool = False

    def __post_init__(self) -> None:
        for part, log in (("train", self.train), ("test", self.test)):
            if log is not None and log.clicks.shape[1] != len(self.items):
                raise DataError(
                    f"The numbers of items and of click columns in the {part} part differ",
                    got=f"{log.clicks.shape[1]} click columns, {len(self.items)} items",
                    expected="one column of clicks per item",
                )
        if self.novel is not None:
            check_novel(self.novel, len(self.items))
        if self.exclude_self and self.test is not None:
            own = own_text_pairs(self.test.queries.texts, rows_by_text(self.items.texts), len(self.items))
            filters = own if self.filters is None else csr_array(own.maximum(self.filters))
            object.__setattr__(self, "filters", filters)

    def __repr__(self) -> str:
        novel = "" if self.novel is None else f", {int(self.novel.sum()):,} of them novel"
        test = "" if self.test is None else f", test {self.test!r}"
        return f"Dataset({self.name!r}: {len(self.items):,} items{novel}, train {self.train!r}{test})"

    @property
    def novel_mask(self) -> Mask:
        """(items,) bool; a `DataError` if the data set has not been split."""
        if self.novel is None:
            raise DataError(
                "The data set has no novel items yet",
                expected="a novel.txt, or a split",
                fix="call metaxc.data.split(dataset), or use the option --novel 0.1",
            )
        return self.novel

    @property
    def observed_rows(self) -> Rows:
        """Rows of the observed items, ascending."""
        return np.flatnonzero(~self.novel_mask)

    @property
    def novel_rows(self) -> Rows:
        """Rows of the novel items, ascending."""
        return np.flatnonzero(self.novel_mask)

    def observed_log(self) -> ClickLog:
        """The part of the training log that a model may learn from.

        It has one column per observed item, in the order of `observed_rows`, and only queries that clicked one of them.
        """
        log = self.train.take_items(self.observed_rows)
        return log.take(np.flatnonzero(np.diff(log.clicks.indptr) > 0))

    def with_novel(self, novel: Mask | Iterable[str]) -> Dataset:
        """The same data with other novel items, given as an (items,) bool mask or as ids."""
        if isinstance(novel, np.ndarray) and novel.dtype == np.bool_:
            return replace(self, novel=novel)
        mask = np.zeros(len(self.items), dtype=bool)
        mask[self.items.rows((str(name) for name in novel), "item id")] = True
        return replace(self, novel=mask)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of texts, clicks, novel items, counts, tags and fields: models trained on the same one are the same.

        Counts are part of it only where one is not 1: a log in which every pair was clicked once is the same log with
        and without them.
        """
        digest = hashlib.sha256()

        def texts(part: Texts) -> None:
            for name, text in zip(part.ids, part.texts, strict=True):
                digest.update(f"{name}\t{text}\n".encode("utf-8", "surrogatepass"))

        def matrix(clicks: csr_array | None) -> None:
            if clicks is not None:
                digest.update(np.asarray(clicks.indptr, np.int64).tobytes())
                digest.update(np.asarray(clicks.indices, np.int64).tobytes())

        texts(self.items)
        for log in (self.train, self.test):
            digest.update(b"|")
            if log is not None:
                texts(log.queries)
                matrix(log.clicks)
                if none_if_ones(log.pair_counts) is not None:
                    digest.update(b"counts" + log.pair_counts.astype(np.int64).tobytes())
        matrix(self.filters)
        digest.update(b"" if self.novel is None else np.packbits(self.novel).tobytes())
        if self.items.tags is not None:
            digest.update(b"tags" + json.dumps([list(one) for one in self.items.tags]).encode())
        if self.items.fields is not None:
            digest.update(b"fields" + json.dumps([dump_fields(one) for one in self.items.fields]).encode())
        digest.update(EXCLUDE_SELF if self.exclude_self else b"")
        return digest.hexdigest()

    @classmethod
    def of(
        cls,
        items: Mapping[str, str],
        queries: Mapping[str, str],
        clicks: Iterable[tuple[str, str]],
        *,
        times: Sequence[Time] | None = None,
        counts: Sequence[int] | None = None,
        first_seen: Mapping[str, Time] | None = None,
        name: str = "data",
    ) -> Dataset:
        """Build a data set from texts by id and click events.

        Args:
            items: Texts of the items by id.
            queries: Texts of the queries by id.
            clicks: The (query id, item id) of each event; events of the same pair add up.
            times: When each event was: seconds since 1970, or an ISO-8601 string.
            counts: How many events each of them stands for, all at the same time.
            first_seen: When each item appeared, by item id.
            name: Name of the data set in reports.
        """
        pairs = list(clicks)
        for what, given in (("times", times), ("counts", counts)):
            if given is not None and len(given) != len(pairs):
                raise DataError(
                    f"The numbers of clicks and {what} differ",
                    got=f"{len(pairs)} clicks, {len(given)} {what}",
                    expected=f"one of the {what} per click",
                )
        seen = None
        if first_seen is not None:
            missing = next((key for key in items if key not in first_seen), None)
            if missing is not None:
                raise DataError(
                    "An item has no first_seen", got=repr(missing), expected="a time for every item"
                )
            seen = np.floor(_parse_times([first_seen[key] for key in items])).astype(np.int64)
        item_texts = Texts(list(items), list(items.values()), seen)
        query_texts = Texts(list(queries), list(queries.values()))
        log = ClickLog.of_events(
            query_texts,
            len(item_texts),
            query_texts.rows((q for q, _ in pairs), "query id"),
            item_texts.rows((i for _, i in pairs), "item id"),
            None if times is None else _parse_times(times),
            counts,
        )
        return cls(item_texts, log, name=name)

    @classmethod
    def from_pandas(cls, items: object, events: object, **options: Any) -> Dataset:
        """Build a data set from a data frame of items and one of search events.

        Data frames of pandas and polars, Arrow tables, any other object that offers the Arrow or the dataframe
        interchange protocol, dictionaries of columns and lists of dictionaries are accepted.

        Args:
            items: A row per item.
            events: A row per click: a query's text and an item's id, optionally a time and a count.
            options: Names of columns, which are guessed where they are not given: `id`, `text` and `tags` (a name or
                several), `fields` (alike, never guessed) and `first_seen` of items; `query`, `item`, `time` and `count`
                of events. `queries`, `actions`, `exclude_self`, `skip_bad`, `progress` and `name` as for
                `metaxc.data.importing.import_tables`.

        Example:
            >>> items = {"sku": ["a", "b"], "title": ["red apple", "blue sky"]}
            >>> Dataset.from_pandas(items, {"query": ["fruit", "Fruit"], "sku": ["a", "a"]})
            Dataset('data': 2 items, train ClickLog(1 queries, 1 clicks, 2 events))
        """
        from metaxc.data.import_columns import name_columns
        from metaxc.data.importing import import_dataset

        return import_dataset(items, events, **name_columns(options))

    @classmethod
    def from_csv(cls, items: str | Path, events: str | Path, **options: Any) -> Dataset:
        """Build a data set from a file of items and one of search events: CSV, TSV, JSON lines or Parquet, by their
        names. The options are those of `from_pandas`."""
        return cls.from_pandas(items, events, **({"name": Path(items).stem} | options))


def _parse_times(times: Sequence[Time]) -> Doubles:
    seconds = [parse_time(time) for time in times]
    wrong = [given for given, found in zip(times, seconds, strict=True) if found is None]
    if wrong:
        unit = convert_smaller_unit(wrong[0])
        fix = None if unit is None else f"this seems to be in {unit[1]}: convert it to seconds"
        raise DataError("A time cannot be read", got=repr(wrong[0]), expected=TIME_FORMAT, fix=fix)
    return np.asarray(seconds, np.float64)


def check_novel(novel: Mask, items: int) -> None:
    """Check that at least one item is novel and at least one is observed."""
    if novel.shape != (items,):
        raise DataError("The novel mask does not have one entry per item", got=novel.shape, expected=(items,))
    count = int(novel.sum())
    if count == 0 or count == items:
        raise DataError(
            "None of the items is novel" if count == 0 else "All items are novel",
            got=f"{count:,} of {items:,}",
            expected="at least one novel and one observed item",
            fix="use another list or ratio (the paper uses 0.1)",
        )
