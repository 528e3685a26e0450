"""The index that scans 4-bit codes and compares only the vectors of a shortlist.

The codes find the shortlist (`metaxc.index.pq_codes`) and exact inner products rank it, so scores are always exact;
only which keys are found is approximate. Adding, updating and removing vectors change the codes in place. No deleted
code is left to scan, so recall after any number of changes is that of a new index.

The codes are trained on a sample of the vectors. When vectors that were added later fit them badly, new codes are
trained and filled in a background thread and then replace the old ones; searches and changes continue meanwhile.
"""

from __future__ import annotations

from threading import Lock, Thread
from typing import ClassVar

import numpy as np

from metaxc.arrays import Floats, Keys, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.extras import import_extra
from metaxc.index.exact import TableIndex, empty_results, rank_candidates, search_table
from metaxc.index.pq_codes import PQCodes
from metaxc.index.vector_table import validate_k, validate_keys, validate_vectors

SHORTLIST = 400
"""Candidates per query that are ranked exactly; ten per result if more than 40 results are requested. At 100,000 × 384,
recall@10 with 50, 200, 400: 0.94, 0.994, 0.999 on text embeddings with varied norms, 0.85, 0.98, 0.997 on random
gaussian vectors, the worst case; a query takes 0.39, 0.49, 0.58 ms (one thread)."""

TRAINING_SAMPLE = 8192
"""Vectors in the sample that the codes are trained on, 0.8 s; 20,000 take longer and do not improve recall. They are
drawn in proportion to their squared length, because long vectors are found most often: with norms spread by a lognormal
of σ = 0.6 over text embeddings, recall@10 is 1.000 with a shortlist of 100, against 0.90 for a uniform sample."""

FIT_SAMPLE = 2048
"""Vectors in the uniform sample on which the error of the codes is measured."""

MIN_VECTORS = 5_000
"""Number of vectors from which codes are used; below it all vectors are compared. Measured with 384 dimensions on one
thread, median of a single query: exact 0.14, 0.23, 1.0, 1.4 ms and codes 0.17, 0.21, 0.20, 0.22 ms at 3,000, 5,000,
7,000, 10,000 vectors."""

MAX_EXACT_ALLOWED = 4000
"""If a filter leaves at most this many vectors, or fewer than the shortlist would have, all of them are compared: 4,000
of 384 dimensions take 1.5 ms, a shortlist of 5,000 takes 1.8 ms, one of 400 takes 0.7 ms (100,000 vectors, one
thread)."""

SHORTLIST_DIVISOR = 4
"""If the shortlist were larger than a quarter of the vectors, all of them are compared."""

FILTERED_PER_RESULT = 15
"""Candidates per result that pass a filter; with 10, recall@10 at 100,000 is 0.992 where a tenth of them pass."""

FILTER_MARGIN = 1.5
"""With a filter that keeps a share s of the vectors, the k best of them are about the k / s best of all, so the
shortlist is that of k / s results, and larger by this factor because the share among the best may be smaller."""

MAX_DOMINANCE = 6.0
"""If one coordinate of a query is more than this many times as long as all others together, all vectors are compared:
the scan adds up 8-bit numbers on one scale, on which the others would be rounded away. Such is a query with a very
large exposure. With the novelty as last coordinate, 20,000 and 50,000 clustered vectors of 64 to 384 dimensions,
recall@10 is 0.997 or more for exposures of −6 to 6 times the query's length; without this limit it is 0.75 at −20."""

CHUNK = 1024
"""Vectors that a rebuild encodes each time it holds the lock, and queries that are scanned at a time."""


class ScanIndex(TableIndex):
    """Approximate search by 4-bit codes, with exact scores. See `metaxc.index.interface.Index` for the methods.

    Needs faiss, from the extra `serve`.

    Args:
        dim: Length of a vector.
        seed: Seed of the training of the codes.
    """

    kind: ClassVar[str] = "scan"

    def __init__(self, dim: int, seed: int = 0):
        super().__init__(dim)
        self._faiss = import_extra("faiss", "serve")
        self.seed = seed
        self._codes: PQCodes | None = None
        self._changed_rows: set[int] | None = None  # during work in the background: rows that changed since
        self._rebuild_thread: Thread | None = None
        self._rebuild_lock = Lock()

    def __repr__(self) -> str:
        codes = "no codes yet" if self._codes is None else "4-bit codes"
        return f"ScanIndex({len(self):,} vectors of {self.dim} dimensions, {codes})"

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add or replace vectors. The first vectors of an index are encoded before the call returns."""
        keys = validate_keys(keys)
        vectors = validate_vectors(vectors, self.dim, len(keys))
        codes = self._codes
        encoded = None if codes is None else codes.encode(vectors)
        with self._lock.writing():
            first = self._table.count == 0
            rows = self._table.upsert(keys, vectors)
            if self._codes is not None:
                if self._codes is not codes or encoded is None:  # a rebuild has replaced the codes
                    encoded = self._codes.encode(vectors)
                self._codes.write(rows, encoded)
                self._codes.count_added(encoded)
            self._record_changes(rows, len(keys))
        self._rebuild_if_needed(in_background=not first)

    def remove(self, keys: Keys) -> None:
        """Remove vectors; an unknown key is a `DataError`."""
        keys = validate_keys(keys)
        with self._lock.writing():
            gaps, moved = self._table.remove(keys)
            if self._codes is not None:
                self._codes.copy_rows(moved, gaps)
                self._codes.truncate(self._table.count)
            self._record_changes(gaps, len(keys))

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """Find the k best keys of each query; a filter does not reduce the number of results."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            table, codes = self._table, self._codes
            is_allowed = None if allowed is None else table.mask_known(np.asarray(allowed, np.int64))
            needed = shortlist = max(SHORTLIST, 10 * k)
            few_allowed = False
            if is_allowed is not None:
                count = int(np.count_nonzero(is_allowed))
                share = max(1, count) / max(1, table.count)
                needed = int(max(SHORTLIST * share, FILTERED_PER_RESULT * k))
                shortlist = int(FILTER_MARGIN * needed / share)
                few_allowed = count <= max(MAX_EXACT_ALLOWED, shortlist)
            if codes is None or few_allowed or shortlist * SHORTLIST_DIVISOR > table.count:
                allowed_rows = None if is_allowed is None else np.flatnonzero(is_allowed)
                return search_table(table, queries, k, allowed_rows)
            return self._scan(codes, queries, k, needed, shortlist, is_allowed)

    @classmethod
    def from_vectors(cls, keys: Keys, vectors: Floats, codes: PQCodes | None = None) -> ScanIndex:
        """Build an index of keys and vectors that have been validated; without codes, they are trained now."""
        index = cls(vectors.shape[1])
        index._table.upsert(keys, vectors)
        index._codes = codes
        index._rebuild_if_needed(in_background=False)
        return index

    def wait(self) -> None:
        """Wait until no rebuild is running."""
        thread = self._rebuild_thread
        if thread is not None:
            thread.join()

    def code_arrays(self) -> Arrays | None:
        return None if self._codes is None else self._codes.to_arrays()

    def _scan(
        self,
        codes: PQCodes,
        queries: Floats,
        k: int,
        needed: int,
        shortlist: int,
        is_allowed: Mask | None,
    ) -> tuple[Keys, Floats]:
        """Rank a shortlist per query; compare all vectors if fewer than `needed` candidates in it are allowed."""
        table = self._table
        keys, scores = empty_results(len(queries), k)
        outliers = codes.outliers
        if is_allowed is not None:
            outliers = outliers[is_allowed[outliers]]
        uncertain: list[int] = []
        dominated = find_dominated(queries)
        for start in range(0, len(queries), CHUNK):
            found = codes.search(queries[start : start + CHUNK], shortlist)
            for query, (rows, approximate) in enumerate(zip(*found, strict=True), start):
                is_full, cutoff = rows[-1] >= 0, approximate[-1]
                if is_allowed is not None:
                    kept = is_allowed[rows]
                    rows, approximate = rows[kept], approximate[kept]
                if not is_full or len(rows) < needed or dominated[query]:
                    uncertain.append(query)
                    continue
                if len(outliers):
                    kept = ~codes.is_outlier[rows]
                    rows = np.concatenate([rows[kept], outliers])
                    infinite = np.full(len(outliers), np.inf, np.float32)
                    approximate = np.concatenate([approximate[kept], infinite])
                order, scores[query] = rank_candidates(table, queries[query], rows, k)
                keys[query] = table.keys[rows[order]]
                if (
                    approximate[order[-1]] <= cutoff
                ):  # vectors with the same code may be missing from the shortlist
                    uncertain.append(query)
        if uncertain:
            allowed_rows = None if is_allowed is None else np.flatnonzero(is_allowed)
            keys[uncertain], scores[uncertain] = search_table(table, queries[uncertain], k, allowed_rows)
        return keys, scores

    def _rebuild_if_needed(self, in_background: bool) -> None:
        if not self._needs_work() or not self._rebuild_lock.acquire(blocking=False):
            return
        if not in_background:
            self._rebuild()
            return
        # Not a daemon thread: a process that exits waits a second for it instead of stopping it inside faiss.
        self._rebuild_thread = Thread(target=self._rebuild_in_background, name="index-rebuild")
        self._rebuild_thread.start()

    def _record_changes(self, rows: Rows, count: int) -> None:
        """Note that rows have new vectors, after `count` vectors were added or removed; called by the writer."""
        if self._changed_rows is not None:
            self._changed_rows.update(rows.tolist())

    def _needs_work(self) -> bool:
        """Whether there should be codes and are none, or the codes no longer fit the vectors."""
        codes = self._codes
        return self._table.count >= MIN_VECTORS and (codes is None or codes.needs_retraining())

    def _rebuild_in_background(self) -> None:
        self._faiss.omp_set_num_threads(1)  # affects this thread only: the other cores serve searches
        self._rebuild()

    def _rebuild(self) -> None:
        """Train new codes on a sample, fill them next to the old ones, and replace those."""
        try:
            with self._lock.writing():
                self._changed_rows = set()
            codes = self._train_codes()
            while self._encode_next_chunk(codes):
                pass
            self._prepare_codes(codes)
            with self._lock.writing():
                self._encode_changes(codes)
                self._use_codes(codes)
        finally:
            self._changed_rows = None
            self._rebuild_lock.release()

    def _train_codes(self) -> PQCodes:
        """New codes without rows, trained on a sample of the vectors."""
        with self._lock.reading():
            sample, fit_sample = self._draw_samples()
        return PQCodes.train(sample, fit_sample, self.seed)

    def _prepare_codes(self, codes: PQCodes) -> None:
        """Do what is needed between filling new codes and searching them, without holding the lock."""

    def _use_codes(self, codes: PQCodes) -> None:
        """Search new codes from now on; called by the writer."""
        self._codes = codes

    def _draw_samples(self) -> tuple[Floats, Floats]:
        """Vectors to train codes on, and vectors to measure their error on."""
        vectors = self._table.vectors[: self._table.count]
        random = np.random.default_rng(self.seed)
        bounds = np.cumsum(np.vecdot(vectors, vectors) + np.float32(1e-12), dtype=np.float64)
        drawn = np.searchsorted(bounds, random.random(min(TRAINING_SAMPLE, len(vectors))) * bounds[-1])
        fit_rows = random.permutation(len(vectors))[:FIT_SAMPLE]
        return vectors[np.minimum(drawn, len(vectors) - 1)], vectors[fit_rows]

    def _encode_next_chunk(self, codes: PQCodes) -> bool:
        """Encode the next vectors; False if there are none left."""
        start = len(codes)
        with self._lock.reading():
            chunk = self._table.vectors[start : min(start + CHUNK, self._table.count)].copy()
        if len(chunk):
            codes.write(np.arange(start, start + len(chunk)), codes.encode(chunk))
        return len(chunk) > 0

    def _encode_changes(self, codes: PQCodes) -> None:
        """Encode the vectors that changed while the codes were filled."""
        count = self._table.count
        codes.truncate(count)
        changed = sorted(row for row in self._changed_rows or () if row < len(codes))
        rows: Rows = np.array([*changed, *range(len(codes), count)], np.int64)
        codes.write(rows, codes.encode(self._table.vectors[rows]))


def find_dominated(queries: Floats) -> Mask:
    """(n,) bool: the queries (n, dim) of which one coordinate outweighs all others `MAX_DOMINANCE` times."""
    squares = queries.astype(np.float64) ** 2
    largest = squares.max(axis=1, initial=0.0)
    dominated: Mask = largest > MAX_DOMINANCE**2 * (squares.sum(axis=1) - largest)
    return dominated
