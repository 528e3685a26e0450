"""What a model has learnt from, as hashes: enough to notice that a test part is not new to it, and nothing to read.

A record has 8 bytes for each training query and for each clicked pair of a query and an item. Which items were clicked
is in the model anyway: its observed items. Queries are compared by their texts, without differences of case and white
space, because ids change when a log is exported again; items are compared by their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.array_checks import take_array
from metaxc.arrays import Doubles, Mask, Rows
from metaxc.artifacts import Arrays, load_arrays, save_arrays
from metaxc.data import Dataset, Texts
from metaxc.data.clicks import training_clicks
from metaxc.data.same_texts import normalise_text

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class TrainingRecord:
    """The training queries and clicks of a model.

    Args:
        queries: (queries,) int64, hashes of the training queries' texts, ascending, each once.
        clicks: (pairs,) int64, hashes of the clicked pairs, alike.
        until: The time of the latest training event, seconds since 1970; None where times are unknown.
    """

    queries: Rows
    clicks: Rows
    until: float | None = None

    def __repr__(self) -> str:
        return f"TrainingRecord({len(self.queries):,} queries, {len(self.clicks):,} clicks)"

    @classmethod
    def of(cls, dataset: Dataset) -> TrainingRecord:
        """The record of a training on a data set: of the clicks on observed items."""
        observed, query_rows, clicks = training_clicks(dataset)
        queries = hash_queries(dataset.train.queries, query_rows)
        pairs = hash_pairs(queries, hash_texts([dataset.items.ids[row] for row in observed.tolist()]), clicks)
        times = dataset.train.times
        until = None if times is None or not len(times) else float(times.max())
        return cls(_sorted(queries), _sorted(pairs), until)

    def join(self, other: TrainingRecord) -> TrainingRecord:
        """The record of a training on the data of both."""
        known = [one for one in (self.until, other.until) if one is not None]
        return TrainingRecord(
            np.union1d(self.queries, other.queries),
            np.union1d(self.clicks, other.clicks),
            max(known) if known else None,
        )

    def knows_queries(self, hashes: Hashes) -> Mask:
        """(n,) bool: which of these queries were trained on."""
        return _is_among(hashes, self.queries)

    def knows_clicks(self, hashes: Hashes) -> Mask:
        """(n,) bool: which of these pairs were trained on."""
        return _is_among(hashes, self.clicks)

    def save(self, path: Path) -> None:
        """Write the record as one safetensors file."""
        until: Doubles = np.asarray([] if self.until is None else [self.until], np.float64)
        arrays: Arrays = {"queries": self.queries, "clicks": self.clicks, "until": until}
        save_arrays(path, arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingRecord | None:
        """Read what `save` wrote; None where there is no such file, as in models of earlier versions."""
        if not path.is_file():
            return None
        arrays = load_arrays(path)
        queries, clicks = (
            take_array(arrays, name, path, (None,), ("int64",)) for name in ("queries", "clicks")
        )
        until = take_array(arrays, "until", path, (None,), ("float64",))
        return cls(queries, clicks, float(until[0]) if len(until) else None)


def hash_texts(texts: Sequence[str]) -> Hashes:
    """(n,) uint64: a hash of each text."""
    digests = b"".join(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def hash_queries(queries: Texts, rows: Rows) -> Hashes:
    """(rows,) uint64: hashes of the texts of these queries, as they are compared."""
    return hash_texts([normalise_text(queries.texts[row]) for row in rows.tolist()])


def hash_pairs(queries: Hashes, items: Hashes, clicks: csr_array) -> Hashes:
    """(clicks.nnz,) uint64: a hash of each clicked pair, in the order of the matrix's data.

    Args:
        queries: (queries,) hashes of the rows.
        items: (items,) hashes of the columns.
        clicks: (queries, items).
    """
    rows = np.repeat(np.arange(clicks.shape[0]), np.diff(clicks.indptr))
    # The finaliser of the splitmix64 generator mixes all bits; without it, a pair and its reverse would be the same.
    mixed = queries[rows] * np.uint64(0x9E3779B97F4A7C15) + items[clicks.indices]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _sorted(hashes: Hashes) -> Rows:
    return np.unique(hashes.view(np.int64))


def _is_among(hashes: Hashes, known: Rows) -> Mask:
    if not len(known):
        return np.zeros(len(hashes), dtype=bool)
    wanted = hashes.view(np.int64)
    place = np.searchsorted(known, wanted).clip(max=len(known) - 1)
    return np.asarray(known[place] == wanted, dtype=bool)
