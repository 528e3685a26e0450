"""How many codes to scan and how many candidates to rank exactly, measured on the vectors of an index.

How much of an index a query must look at for a given recall depends on the vectors: little where they form clear
groups, nearly all of it where they are random. So it is measured: sample queries are answered exactly, and the lists
and shortlist positions of the correct results tell how far a search must go to find enough of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Doubles, Floats, Mask, Rows
from metaxc.index.ivf_codes import IVFCodes
from metaxc.index.topk import top_k

RESULT_COUNTS = (10, 100)
"""Numbers of results that are measured; other numbers follow by a power law through the two."""

SAMPLE_QUERIES = 256
"""Queries of a measurement, each of which is compared with all vectors. Their 2,560 results give a recall@10 of 0.95
with a standard error of 0.004 if misses are independent, more if they come together. A starting point."""

MARGIN = 0.3
"""Share of the permitted misses that is kept in reserve, because a plan is fitted to the queries that it is measured
on: a plan for a recall of 0.95 has 0.965 on them. A starting point, not measured."""

SCAN_SHARE = 0.6
"""Share of the permitted misses that may be in lists that are not scanned; the others may miss the shortlist. A
starting point, not measured."""

MEASURE_CHUNK = 8
"""Queries that a measurement searches each time it holds the lock. A starting point, not measured."""

DEEPEST = 100
"""Candidates per result in the longest shortlist that is measured."""

MIN_DEPTH = 4
"""Fewest candidates per result, whatever the measurement says."""

NOISE = 0.5
"""A sample query is a stored vector plus this share of another one. A query is not one of the items: its results are
spread over more lists than those of a stored vector, and a plan for stored vectors would stop too early."""

MAX_EXPOSURE = 1.0
"""Largest exposure of a sample query in lengths of the query. Larger ones need longer
shortlists, because the codes round the last coordinate; the index checks those (`CODE_ERRORS`)."""


@dataclass(frozen=True)
class SearchPlan:
    """How far a search goes.

    Args:
        target: Recall that was asked for, in 0 … 1.
        shares: Share of the codes to scan for each of `RESULT_COUNTS`.
        depths: Candidates to rank exactly for each of `RESULT_COUNTS`.
        recall: Measured recall for 10 results; 0 if nothing was measured.
    """

    target: float
    shares: tuple[float, float] = (1.0, 1.0)
    depths: tuple[float, float] = (400.0, 1000.0)
    recall: float = 0.0

    def scanned(self, k: float, count: int) -> int:
        """Codes to scan for k results in an index of `count` vectors."""
        share = min(1.0, _power_law(self.shares, k))
        return int(min(count, np.ceil(max(share * count, 2 * self.depth(k)))))

    def depth(self, k: float) -> int:
        """Candidates to rank exactly for k results."""
        return int(np.ceil(max(MIN_DEPTH * k, _power_law(self.depths, k))))

    def to_array(self) -> Doubles:
        """All numbers of the plan, for `from_array`."""
        return np.array([self.target, *self.shares, *self.depths, self.recall], np.float64)

    @classmethod
    def from_array(cls, numbers: Doubles) -> SearchPlan:
        """Restore a plan; a `ValueError` if the numbers are not one."""
        target, share, larger_share, depth, larger_depth, recall = numbers.tolist()
        if not (
            0 < target <= 1 and 0 < share <= 1 and 0 < larger_share <= 1 and min(depth, larger_depth) >= 1
        ):
            raise ValueError(f"numbers that are no search plan: {numbers.tolist()}")
        return cls(target, (share, larger_share), (depth, larger_depth), recall)


def draw_queries(vectors: Floats, is_banded: bool, seed: int) -> Floats:
    """Sample queries (n, dim) that resemble those that the vectors (m, dim) will get.

    Args:
        vectors: A sample of the stored vectors, twice as many as there will be queries.
        is_banded: Whether the last coordinate is multiplied with a value that each query chooses.
        seed: Draws that value.
    """
    half = len(vectors) // 2
    width = vectors.shape[1] - int(is_banded)
    lengths = np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
    units = vectors[:, :width] / np.maximum(lengths, np.float32(1e-30))
    queries = units[:half] + np.float32(NOISE) * units[half : 2 * half]
    if is_banded:
        random = np.random.default_rng(seed)
        exposures = random.uniform(-MAX_EXPOSURE, MAX_EXPOSURE, (half, 1))
        queries = np.concatenate(
            [queries, exposures * np.linalg.norm(queries, axis=1, keepdims=True)], axis=1
        )
    return np.asarray(queries, np.float32)


def find_exactly(queries: Floats, read_block: Callable[[int], Floats], k: int) -> Rows:
    """The rows (n, k) of the largest inner products, from blocks of vectors.

    Args:
        queries: (n, dim) float32.
        read_block: Gives the vectors from a row on, none at the end; called for one block after the other.
        k: Number of results, −1 pads.
    """
    rows, scores = np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), -np.inf, np.float32)
    start = 0
    while len(block := read_block(start)):
        found, found_scores = top_k(queries, block, k)
        rows = np.concatenate([rows, np.where(found >= 0, found + start, -1)], axis=1)
        scores = np.concatenate([scores, found_scores], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        start += len(block)
    return rows


def measure_plan(
    codes: IVFCodes,
    queries: Floats,
    correct: Rows,
    target: float,
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
    changed: Container[int] = frozenset(),
) -> SearchPlan:
    """Find the smallest plan whose recall on sample queries is that of the target, with a margin.

    Args:
        codes: The codes of the index.
        queries: (n, dim) sample queries.
        correct: (n, 100) rows of their correct results; −1 and rows without a code are ignored.
        target: Recall in 0 … 1; 1 scans all codes.
        reading: Gives the lock to hold while the codes are read. It is held for `MEASURE_CHUNK` queries at a time, so
            that those who want to change the codes do not wait for the whole measurement.
        changed: Rows whose vectors have changed since `correct` was found, which are ignored; may grow meanwhile.
    """
    measurement = _Measurement(codes, queries, correct, reading, changed)
    if not len(codes) or not measurement.current(correct).any():
        return SearchPlan(target)
    misses = (1 - target) * (1 - MARGIN)
    before = measurement.count_codes_before()
    plans = []
    for k in RESULT_COUNTS:
        needed = before[:, :k]
        count, share = max(1, len(codes)), 1.0
        if target < 1 and (needed >= 0).any():
            share = float(np.quantile(needed[needed >= 0], 1 - SCAN_SHARE * misses)) / count
        while True:
            share = min(1.0, max(share, 1 / count))
            depth, recall = measurement.find_depth(k, share, 1 - misses)
            if recall >= 1 - misses or share == 1.0:
                break
            share *= 1.3
        plans.append((share, float(depth), recall))
    few, many = plans
    depths = (few[1], max(few[1], many[1]))
    if target >= 1:
        unmeasured = SearchPlan(target).depths
        depths = (max(depths[0], unmeasured[0]), max(depths[1], unmeasured[1]))
    return SearchPlan(target, (few[0], max(few[0], many[0])), depths, few[2])


@dataclass(frozen=True)
class _Measurement:
    """Searches for sample queries in pieces, with a lock held for each of them. See `measure_plan` for the fields."""

    codes: IVFCodes
    queries: Floats
    correct: Rows
    reading: Callable[[], AbstractContextManager[None]]
    changed: Container[int]

    def current(self, rows: Rows) -> Mask:
        """Which rows still have a code, and the vector that they had."""
        count = len(self.codes)
        known = [0 <= row < count and row not in self.changed for row in rows.ravel().tolist()]
        return np.array(known, np.bool_).reshape(rows.shape)

    def pieces(self) -> Iterator[slice]:
        """Parts of the queries, one after the other, while the lock is held."""
        for start in range(0, len(self.queries), MEASURE_CHUNK):
            with self.reading():
                yield slice(start, start + MEASURE_CHUNK)

    def count_codes_before(self) -> Doubles:
        """(n, 100): codes that are scanned until the list of each correct row has been scanned; −1 if ignored."""
        codes, needed = self.codes, np.full(self.correct.shape, -1.0)
        for piece in self.pieces():
            rows = self.correct[piece]
            current = self.current(rows)
            for line, scores in enumerate(codes.layout.score_lists(self.queries[piece])):
                order = np.argsort(-scores, kind="stable")
                total = np.empty(len(order))
                total[order] = np.cumsum(codes.sizes[order])
                kept = current[line]
                needed[piece][line, kept] = total[codes.lists_of(rows[line, kept])]
        return needed

    def find_depth(self, k: int, share: float, recall: float) -> tuple[int, float]:
        """The shortest shortlist for k results that has a recall, or the longest that is measured, and its recall."""
        codes, deepest = self.codes, max(1, min(DEEPEST * k, len(self.codes)))
        places = np.full((len(self.queries), k), -1)
        for piece in self.pieces():
            wanted = self.correct[piece, :k]
            current = self.current(wanted)
            # Not more codes than a search would scan: the shortlist is padded if they are fewer than its length.
            scanned = int(np.ceil(share * len(codes)))
            shortlists, _ = codes.search_lists(self.queries[piece], deepest, scanned)
            for line, shortlist in enumerate(shortlists):
                rows = wanted[line, current[line]]
                order = np.argsort(shortlist)
                at = np.minimum(np.searchsorted(shortlist, rows, sorter=order), deepest - 1)
                places[piece][line, current[line]] = np.where(
                    shortlist[order[at]] == rows, order[at], deepest
                )
        found = np.sort(places[places >= 0])
        if not len(found):
            return deepest, 0.0
        last = found[min(len(found) - 1, int(np.ceil(recall * len(found))) - 1)]
        depth = int(min(last + 1, deepest))
        return depth, float(np.mean(found < depth))


def _power_law(values: tuple[float, float], k: float) -> float:
    """The value for k results where the two values are those of `RESULT_COUNTS`; not below the first."""
    few, many = RESULT_COUNTS
    power = np.log(values[1] / values[0]) / np.log(many / few)
    return float(values[0] * (max(k, few) / few) ** power)
