"""`Dataset`: items, queries and clicks, as they pass between files, splits, models and metrics.

Users refer to items and queries by string ids; the library refers to them by row. Clicks are a sparse matrix of
queries × items. A data set has a training click log and optionally a test click log over the same items. Novel items
are a mask over the items: nothing that learns sees their clicks in the training log (`Dataset.observed_log`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.errors import DataError


@dataclass(frozen=True)
class Texts:
    """Ids and texts of items or queries, in row order.

    Args:
        ids: Unique string ids.
        texts: One text per id.
        first_seen: (n,) int64, seconds since 1970, if known; a split by time uses it.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    first_seen: Rows | None = None

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
        return Texts([self.ids[r] for r in rows], [self.texts[r] for r in rows], first_seen)


@dataclass(frozen=True)
class ClickLog:
    """Queries and their clicks.

    Args:
        queries: The queries.
        clicks: (queries, items) float32, 1 where a query clicked an item; sorted, without duplicates.
        times: (clicks.nnz,) float64, seconds since 1970, in the order of `clicks.data`, if known.
    """

    queries: Texts
    clicks: csr_array
    times: Doubles | None = None

    def __post_init__(self) -> None:
        if self.clicks.shape[0] != len(self.queries):
            raise DataError(
                "The numbers of click rows and queries differ",
                got=f"{self.clicks.shape[0]} click rows, {len(self.queries)} queries",
                expected="one row of clicks per query",
            )

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        return f"ClickLog({len(self):,} queries, {self.clicks.nnz:,} clicks)"

    def take(self, rows: Rows) -> ClickLog:
        """The queries at `rows` with their clicks."""
        times = None
        if self.times is not None:
            spans = [np.arange(self.clicks.indptr[r], self.clicks.indptr[r + 1]) for r in rows]
            times = self.times[np.concatenate(spans)] if spans else self.times[:0]
        return ClickLog(self.queries.take(rows), csr_array(self.clicks[rows]), times)


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
        clicks = csr_array(self.train.clicks[:, self.observed_rows])
        kept = np.flatnonzero(np.diff(clicks.indptr) > 0)
        return ClickLog(self.train.queries.take(kept), csr_array(clicks[kept]))

    def with_novel(self, novel: Mask | Iterable[str]) -> Dataset:
        """The same data with other novel items, given as an (items,) bool mask or as ids."""
        if isinstance(novel, np.ndarray) and novel.dtype == np.bool_:
            return replace(self, novel=novel)
        mask = np.zeros(len(self.items), dtype=bool)
        mask[self.items.rows((str(name) for name in novel), "item id")] = True
        return replace(self, novel=mask)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything except the name: same content, same fingerprint."""
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
        matrix(self.filters)
        digest.update(b"" if self.novel is None else np.packbits(self.novel).tobytes())
        return digest.hexdigest()

    @classmethod
    def of(
        cls,
        items: Mapping[str, str],
        queries: Mapping[str, str],
        clicks: Iterable[tuple[str, str]],
        *,
        name: str = "data",
    ) -> Dataset:
        """Build a data set from texts by id and clicked (query id, item id) pairs."""
        item_texts = Texts(list(items), list(items.values()))
        query_texts = Texts(list(queries), list(queries.values()))
        pairs = list(clicks)
        matrix = click_matrix(
            query_texts.rows((q for q, _ in pairs), "query id"),
            item_texts.rows((i for _, i in pairs), "item id"),
            (len(query_texts), len(item_texts)),
        )
        return cls(item_texts, ClickLog(query_texts, matrix), name=name)


def click_matrix(query_rows: Rows, item_rows: Rows, shape: tuple[int, int]) -> csr_array:
    """(queries, items) float32 with a 1 for each clicked pair; a repeated pair counts once."""
    ones = np.ones(len(query_rows), dtype=np.float32)
    clicks = csr_array((ones, (query_rows, item_rows)), shape=shape)
    clicks.sum_duplicates()
    clicks.sort_indices()
    clicks.data[:] = 1.0
    return clicks


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
