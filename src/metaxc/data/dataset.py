"""The one currency between files, splits, models and metrics: `Dataset`.

Outside the library an item or a query is known by its string id; inside, by its row. Clicks are a sparse
matrix of queries × items. A data set has one click log to train on and, where one was set apart, one to test
on; both speak of the same items. Novel items are a mask over the items: their clicks in the training log
are never shown to anything that learns (`Dataset.observed_log`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Mask, Rows
from metaxc.errors import DataError


@dataclass(frozen=True)
class Texts:
    """Ids and texts, of items or of queries, in row order.

    Args:
        ids: Unique string ids.
        texts: One text per id.
        first_seen: (n,) int64, seconds since 1970, when known; lets a split be made by time.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    first_seen: Rows | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            raise DataError(
                "Ids and texts differ in number",
                got=f"{len(self.ids)} ids, {len(self.texts)} texts",
                expected="one text per id",
            )
        if self.first_seen is not None and len(self.first_seen) != len(self.ids):
            raise DataError(
                "Ids and first_seen differ in number",
                got=f"{len(self.ids)} ids, {len(self.first_seen)} times",
                expected="one time per id",
            )
        if len(self.row_of) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise DataError("An id stands twice", got=repr(twice), expected="unique ids", fix="rename one")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Texts({len(self):,})"

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.ids)}

    def rows(self, ids: Iterable[str], what: str = "id") -> Rows:
        """Rows of the ids given; an unknown one is an error that names it."""
        found = []
        for name in ids:
            row = self.row_of.get(name)
            if row is None:
                raise DataError(f"Unknown {what}", got=repr(name), expected=f"one of {len(self):,} ids")
            found.append(row)
        return np.asarray(found, dtype=np.int64)

    def take(self, rows: Rows) -> Texts:
        """The part at `rows`, in that order."""
        first_seen = None if self.first_seen is None else self.first_seen[rows]
        return Texts([self.ids[r] for r in rows], [self.texts[r] for r in rows], first_seen)


@dataclass(frozen=True)
class ClickLog:
    """Queries and what they clicked.

    Args:
        queries: The queries.
        clicks: (queries, items) float32, 1 where a query clicked an item; sorted, without duplicates.
        times: (clicks.nnz,) float64, seconds since 1970, in the order of `clicks.data`, when known.
    """

    queries: Texts
    clicks: csr_array
    times: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if self.clicks.shape[0] != len(self.queries):
            raise DataError(
                "Clicks and queries differ in number",
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
    """Items, a click log to train on, perhaps one to test on, and which items are novel.

    Args:
        items: All items, observed and novel.
        train: The log that models learn from (through `observed_log`).
        test: The log that models are judged by.
        novel: (items,) bool, True where an item counts as never clicked; None before a split.
        filters: (test queries, items) float32, pairs that a ranking leaves out before it is judged
            (the XC repository's filter files: an item whose text is the query itself).
        name: What reports call this data set.
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
                    f"Clicks of the {part} part and items differ in number",
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
        """(items,) bool; an unsplit data set is an error here."""
        if self.novel is None:
            raise DataError(
                "The data set has no novel items yet",
                expected="a novel.txt, or a split",
                fix="call metaxc.data.split(dataset), or pass --novel 0.1",
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
        """The training log as a learner may see it: columns of observed items only (in `observed_rows`
        order), queries with at least one click left."""
        clicks = csr_array(self.train.clicks[:, self.observed_rows])
        kept = np.flatnonzero(np.diff(clicks.indptr) > 0)
        return ClickLog(self.train.queries.take(kept), csr_array(clicks[kept]))

    def with_novel(self, novel: Mask | Iterable[str]) -> Dataset:
        """The same data with these novel items, given as an (items,) bool mask or by their ids."""
        if isinstance(novel, np.ndarray) and novel.dtype == np.bool_:
            return replace(self, novel=novel)
        mask = np.zeros(len(self.items), dtype=bool)
        mask[self.items.rows((str(name) for name in novel), "item id")] = True
        return replace(self, novel=mask)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything in it but its name: same content, same fingerprint."""
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
        """A data set from plain Python: texts by id, and clicked (query id, item id) pairs.

        Example:
            >>> Dataset.of({"i1": "red apple"}, {"q1": "fruit"}, [("q1", "i1")])
            Dataset('data': 1 items, train ClickLog(1 queries, 1 clicks))
        """
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
    """(queries, items) float32 with a 1 per clicked pair; a pair given twice counts once."""
    ones = np.ones(len(query_rows), dtype=np.float32)
    clicks = csr_array((ones, (query_rows, item_rows)), shape=shape)
    clicks.sum_duplicates()
    clicks.sort_indices()
    clicks.data[:] = 1.0
    return clicks


def check_novel(novel: Mask, items: int) -> None:
    """A novel set must leave something to learn from and something to be novel."""
    if novel.shape != (items,):
        raise DataError("The novel mask does not fit the items", got=novel.shape, expected=(items,))
    count = int(novel.sum())
    if count == 0 or count == items:
        raise DataError(
            "The novel items are " + ("none of the items" if count == 0 else "all of the items"),
            got=f"{count:,} of {items:,}",
            expected="at least one novel and one observed item",
            fix="give another list or ratio (the paper uses 0.1)",
        )
