"""The index for millions of vectors: it scans the 4-bit codes of the lists near a query, not all codes.

Everything that `scan` guarantees holds here too (`metaxc.index.scan`): exact scores, changes in place without deleted
codes, new codes trained in the background. Only which keys are found is approximate, and how far a search goes is
measured on the vectors of the index so that the recall is that of a target (`metaxc.index.search_plan`).

Graphs (HNSW) were the alternative. faiss cannot remove a vector from one, and their recall falls when vectors are
replaced, so they need segments that are built again; `benchmarks/index_millions.py` compares both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from metaxc.arrays import Floats, Keys, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.errors import DataError, ModelError
from metaxc.index.exact import empty_results, rank_candidates, search_table
from metaxc.index.ivf_codes import IVFCodes, train_ivf_codes
from metaxc.index.list_layout import SAMPLE_PER_DIRECTION, count_directions
from metaxc.index.pq_codes import PQCodes
from metaxc.index.scan import ScanIndex, find_dominated
from metaxc.index.search_plan import (
    MAX_EXPOSURE,
    RESULT_COUNTS,
    SAMPLE_QUERIES,
    SearchPlan,
    draw_queries,
    find_exactly,
    measure_plan,
)
from metaxc.index.vector_table import validate_k, validate_vectors

log = logging.getLogger(__name__)

RECALL = 0.95
"""Recall@10 that a search reaches if nothing else is asked for."""

MIN_VECTORS = 20_000
"""Number of vectors from which lists are used; below it all vectors are compared. A starting point, not measured."""

MAX_EXACT_ALLOWED = 4000
"""If a filter leaves at most this many vectors, all of them are compared, as in `scan`."""

SHORTLIST_DIVISOR = 4
"""If the shortlist were larger than a quarter of the vectors that are allowed, all of them are compared."""

CODE_ERRORS = 2.0
"""Where the plan was not measured, with a filter or a strong exposure, a shortlist is long enough if the last result is
better than the last candidate by this many standard deviations of the error of the codes. A filter that keeps only
vectors far from the query ranks among many that are nearly alike; a strong exposure multiplies the error of the codes
in the last coordinate. A starting point. It does not replace the bands of the last coordinate: at 24 dimensions and an
exposure of 5 query lengths, recall@10 was 0.715 with this check and no bands (see `SPECIAL_VARIANCE` in
`metaxc.index.list_layout`)."""

DEEPER = 4
"""Factor by which a shortlist that is too short grows, until all vectors that are allowed are compared."""

RETUNE_SHARE = 0.2
"""Share of the vectors that may change before the recall is measured again. A starting point, not measured."""

REBUILD_GROWTH = 4
"""New lists are made when there are more than this many times as many vectors as the lists were made for, or fewer than
that part of them. A starting point, not measured."""

QUERY_CHUNK = 256
"""Queries that are searched at a time; their scores for 12,000 lists take 12 MiB."""

READ_CHUNK = 4096
"""Vectors that a measurement copies each time it holds the lock. A starting point, not measured."""


@dataclass(frozen=True)
class _Next:
    """What takes effect together with new codes.

    Args:
        plan: The plan that was measured on them.
        trained_count: Number of vectors that their lists were made for.
        changed: Changes before they were trained.
    """

    plan: SearchPlan
    trained_count: int
    changed: int


class IVFIndex(ScanIndex):
    """Approximate search in inverted lists of 4-bit codes, with exact scores. See `metaxc.index.interface.Index`.

    Needs faiss, from the extra `serve`.

    Args:
        dim: Length of a vector.
        seed: Seed of the training and of the sample queries.
        recall: Recall@10 to reach, more than 0 and at most 1; with 1 all codes are scanned.
        most_scanned: Codes that a search scans at the most, whatever that costs in recall; None for no limit.

    Example:
        >>> index = IVFIndex(2, recall=0.99)
        >>> index.add(np.array([7, 8]), np.array([[1, 0], [0, 1]], np.float32))
        >>> index.search(np.array([[0.1, 0.9]], np.float32), 1)[0]
        array([[8]])
    """

    kind: ClassVar[str] = "ivf"

    def __init__(self, dim: int, seed: int = 0, recall: float = RECALL, most_scanned: int | None = None):
        super().__init__(dim, seed)
        self.most_scanned = most_scanned
        self.plan = SearchPlan(_validate_recall(recall))
        self._trained_count = 0
        self._changed = 0  # vectors that were added or removed since the recall was measured
        self._next: _Next | None = None
        self._sample_queries: Floats | None = None

    def __repr__(self) -> str:
        lists = "no lists yet"
        if isinstance(self._codes, IVFCodes):
            measured = self.measured_recall
            recall = "not measured" if measured is None else f"{measured:.3f} measured"
            lists = f"4-bit codes in {len(self._codes.layout):,} lists, recall@10 {recall}"
        return f"IVFIndex({len(self):,} vectors of {self.dim} dimensions, {lists})"

    @property
    def measured_recall(self) -> float | None:
        """Recall@10 on the sample queries when it was last measured; None before that, and without lists.

        The plan was fitted to the same queries, so other queries of their kind may find a little less.
        """
        return self.plan.recall if self.plan.recall > 0 and isinstance(self._codes, IVFCodes) else None

    def remove(self, keys: Keys) -> None:
        """Remove vectors; an unknown key is a `DataError`."""
        super().remove(keys)
        self._rebuild_if_needed(in_background=True)

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """Find the k best keys of each query; a filter does not reduce the number of results."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            table, codes, plan = self._table, self._codes, self.plan
            is_allowed = None if allowed is None else table.mask_known(np.asarray(allowed, np.int64))
            count = table.count if is_allowed is None else int(np.count_nonzero(is_allowed))
            few = is_allowed is not None and count <= MAX_EXACT_ALLOWED
            depth = plan.depth(k)
            if not isinstance(codes, IVFCodes) or few or depth * SHORTLIST_DIVISOR > count:
                allowed_rows = None if is_allowed is None else np.flatnonzero(is_allowed)
                return search_table(table, queries, k, allowed_rows)
            # With a filter that keeps a share of the vectors, the k best of them are about the k / share best of all.
            share = count / table.count
            scanned = int(share * plan.scanned(k / share, table.count))
            scanned = max(min(scanned, self.most_scanned or scanned), 2 * depth)
            return self._search_lists(codes, queries, k, depth, scanned, is_allowed)

    def tune(self, queries: Floats | None = None, recall: float | None = None) -> SearchPlan:
        """Measure how far searches must go for the recall, and search that far from now on.

        Args:
            queries: (n, dim) queries of the kind that the index will get, a few hundred; they are kept for later
                measurements. If None, those given earlier, or else mixtures of stored vectors.
            recall: Recall@10 to reach from now on; the one that the index was made with if None.

        Returns:
            The new plan; its `recall` is the one that was measured. If that is less than what was asked for, a warning
            is logged.
        """
        given = None if queries is None else validate_vectors(queries, self.dim).copy()
        target = None if recall is None else _validate_recall(recall)
        with self._rebuild_lock:  # no rebuild may replace the codes, or the plan, while they are measured
            if given is not None:
                self._sample_queries = given
            plan, codes = self.plan, self._codes
            if target is not None:
                plan = replace(plan, target=target)
            if isinstance(codes, IVFCodes):
                plan = self._measure_used(codes, plan.target)
            else:
                with self._lock.writing():
                    self.plan = plan
        self._rebuild_if_needed(in_background=True)  # changes could not start one meanwhile
        return plan

    @classmethod
    def from_vectors(cls, keys: Keys, vectors: Floats, codes: PQCodes | None = None) -> IVFIndex:
        """Build an index of keys and vectors that have been validated; without codes, they are trained now."""
        index = cls(vectors.shape[1])
        index._table.upsert(keys, vectors)
        index._codes, index._trained_count = codes, len(keys)
        index._rebuild_if_needed(in_background=False)
        if codes is not None and index._codes is codes:
            index.tune()
        return index

    @classmethod
    def restore(
        cls,
        keys: Keys,
        vectors: Floats,
        arrays: Arrays | None,
        recall: float = RECALL,
        most_scanned: int | None = None,
    ) -> IVFIndex:
        """Build an index from what was saved: its vectors, validated, and its code arrays. Without these, codes are
        trained now, for this recall."""
        codes, plan, trained = None, None, len(keys)
        if arrays is not None:
            codes = IVFCodes.from_arrays(arrays, vectors.shape[1], len(keys))
            try:
                plan, trained = SearchPlan.from_array(arrays["plan"]), int(arrays["trained"][0])
            except (KeyError, IndexError, ValueError) as error:
                raise ModelError(
                    "The search plan of the index cannot be read", got=str(error), fix="build the index again"
                ) from error
        recall = recall if plan is None else plan.target
        index = cls(vectors.shape[1], recall=recall, most_scanned=most_scanned)
        index._table.adopt(keys, vectors)
        index._codes, index._trained_count = codes, trained
        index.plan = plan or index.plan
        index._warn_if_missed()
        index._rebuild_if_needed(in_background=False)
        return index

    def code_arrays(self) -> Arrays | None:
        arrays = super().code_arrays()
        if arrays is None:
            return None
        return {**arrays, "plan": self.plan.to_array(), "trained": np.array([self._trained_count])}

    def _search_lists(
        self, codes: IVFCodes, queries: Floats, k: int, depth: int, scanned: int, is_allowed: Mask | None
    ) -> tuple[Keys, Floats]:
        """Rank a shortlist per query; compare all vectors where lists cannot give the answer."""
        table = self._table
        keys, scores = empty_results(len(queries), k)
        outliers = codes.outliers
        if is_allowed is not None:
            outliers = outliers[is_allowed[outliers]]
        uncertain = find_dominated(queries) | ~queries.any(axis=1)  # all vectors tie for a query of zeros
        is_checked = find_strong(queries) if is_allowed is None else np.ones(len(queries), np.bool_)
        too_short = np.zeros(len(queries), np.bool_)
        for start in range(0, len(queries), QUERY_CHUNK):
            found = codes.search_lists(queries[start : start + QUERY_CHUNK], depth, scanned, is_allowed)
            for query, (rows, approximate) in enumerate(zip(*found, strict=True), start):
                if rows[-1] < 0 or uncertain[query]:
                    uncertain[query] = True
                    continue
                if is_checked[query] and self._is_too_short(queries[query], rows, approximate, k):
                    too_short[query] = True
                    continue
                cutoff = approximate[-1]
                if len(outliers):
                    kept = ~codes.is_outlier[rows]
                    rows = np.concatenate([rows[kept], outliers])
                    infinite = np.full(len(outliers), np.inf, np.float32)
                    approximate = np.concatenate([approximate[kept], infinite])
                order, found_scores = rank_candidates(table, queries[query], rows, k)
                if approximate[order[-1]] <= cutoff:
                    # Equal vectors have the same list and code, so those beyond the shortlist are in this list.
                    equal = codes.rows_of_list(int(rows[order[-1]]))
                    rows = np.union1d(rows, equal if is_allowed is None else equal[is_allowed[equal]])
                    order, found_scores = rank_candidates(table, queries[query], rows, k)
                keys[query], scores[query] = table.keys[rows[order]], found_scores
        if too_short.any():
            count = table.count if is_allowed is None else int(np.count_nonzero(is_allowed))
            if DEEPER * depth * SHORTLIST_DIVISOR <= count:
                keys[too_short], scores[too_short] = self._search_lists(
                    codes, queries[too_short], k, DEEPER * depth, DEEPER * scanned, is_allowed
                )
            else:
                uncertain |= too_short
        if uncertain.any():
            allowed_rows = None if is_allowed is None else np.flatnonzero(is_allowed)
            keys[uncertain], scores[uncertain] = search_table(table, queries[uncertain], k, allowed_rows)
        return keys, scores

    def _is_too_short(self, query: Floats, rows: Rows, approximate: Floats, k: int) -> bool:
        """Whether vectors beyond a shortlist could easily be among the k best, going by the errors within it."""
        exact = np.vecdot(self._table.vectors[rows], query)
        last = np.partition(exact, len(exact) - k)[len(exact) - k]
        return bool(last < approximate[-1] + CODE_ERRORS * (exact - approximate).std())

    def _is_outgrown(self) -> bool:
        count, trained = self._table.count, max(1, self._trained_count)
        if count < MIN_VECTORS:
            return False
        codes = self._codes
        grown = count > REBUILD_GROWTH * trained or count * REBUILD_GROWTH < trained
        return codes is None or codes.needs_retraining() or grown

    def _needs_work(self) -> bool:
        retune = self._codes is not None and self._changed > RETUNE_SHARE * max(1, self._table.count)
        return self._is_outgrown() or retune

    def _rebuild(self) -> None:
        """Train new codes if they are needed; otherwise only measure the recall again."""
        codes = self._codes
        if self._is_outgrown() or not isinstance(codes, IVFCodes):
            super()._rebuild()
            return
        try:
            self._measure_used(codes, self.plan.target)
        finally:
            self._rebuild_lock.release()

    def _train_codes(self) -> PQCodes:
        with self._lock.reading():
            sample, fit_sample = self._draw_samples()
            count = self._table.count
            directions = count_directions(count)
            layout_sample = self._draw_uniformly(directions * SAMPLE_PER_DIRECTION)
            changed = self._changed
        self._next = _Next(self.plan, count, changed)
        return train_ivf_codes(sample, fit_sample, layout_sample, directions, self.seed)

    def _prepare_codes(self, codes: PQCodes) -> None:
        if isinstance(codes, IVFCodes) and self._next is not None:
            # Only this thread knows the new codes, so they need no lock.
            self._next = replace(self._next, plan=self._measure(codes, self.plan.target, nullcontext))

    def _use_codes(self, codes: PQCodes) -> None:
        super()._use_codes(codes)
        if self._next is not None:
            self.plan, self._trained_count = self._next.plan, self._next.trained_count
            self._changed -= self._next.changed
            self._next = None
            self._warn_if_missed()

    def _record_changes(self, rows: Rows, count: int) -> None:
        super()._record_changes(rows, count)
        self._changed += count

    def _measure_used(self, codes: IVFCodes, target: float) -> SearchPlan:
        """Measure the codes that are searched and use the new plan; needs the rebuild lock, not the other one."""
        try:
            with self._lock.writing():
                self._changed_rows, self._changed = set(), 0
            plan = self._measure(codes, target, self._lock.reading)
            with self._lock.writing():
                self.plan = plan
                self._warn_if_missed()
        finally:
            self._changed_rows = None
        return plan

    def _warn_if_missed(self) -> None:
        recall = self.measured_recall
        if recall is not None and recall < self.plan.target:
            log.warning(
                "The ivf index misses its recall@10: %.3f measured, %.3f asked for; "
                "use the index scan or exact for these vectors, or ask for less",
                recall,
                self.plan.target,
            )

    def _measure(
        self, codes: IVFCodes, target: float, reading: Callable[[], AbstractContextManager[None]]
    ) -> SearchPlan:
        """The plan for codes; `reading` gives the lock that reading them needs."""
        queries = self._sample_queries
        if queries is None:
            with self._lock.reading():
                drawn = self._draw_uniformly(2 * SAMPLE_QUERIES)
            queries = draw_queries(drawn, codes.layout.is_banded, self.seed)
        correct = find_exactly(queries, self._read_block, RESULT_COUNTS[-1])
        changed = frozenset() if self._changed_rows is None else self._changed_rows
        return measure_plan(codes, queries, correct, target, reading, changed)

    def _read_block(self, start: int) -> Floats:
        with self._lock.reading():
            return self._table.vectors[start : min(start + READ_CHUNK, self._table.count)].copy()

    def _draw_uniformly(self, size: int) -> Floats:
        random = np.random.default_rng(self.seed + 1)
        rows: Rows = random.permutation(self._table.count)[:size]
        return self._table.vectors[np.sort(rows)]


def find_strong(queries: Floats) -> Mask:
    """(n,) bool: the queries (n, dim) whose last coordinate is larger than that of the sample queries of a plan."""
    lengths = np.linalg.norm(queries[:, :-1], axis=1)
    strong: Mask = np.abs(queries[:, -1]) > MAX_EXPOSURE * lengths
    return strong


def _validate_recall(recall: float) -> float:
    if not 0 < recall <= 1:
        raise DataError(
            "The recall to reach is out of range",
            got=recall,
            expected="more than 0 and at most 1",
            fix="give 0.95 or 0.99",
        )
    return float(recall)
