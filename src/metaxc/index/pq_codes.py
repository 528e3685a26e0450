"""Product quantisation: vectors as 4-bit codes that faiss scans with SIMD, two dimensions per code.

Product quantisation was chosen among the codes that faiss scans linearly. On 100,000 × 384 un-normalised vectors, one
thread, recall@10 after exact re-ranking of the best 200 and time per query:

    vectors                        PQ192x4             RaBitQ
    clustered, norms varying       1.000 in 0.47 ms    1.000 in 0.90 ms
    text embeddings, norms varied  0.992 in 0.46 ms    1.000 in 0.90 ms
    random gaussian                0.983 in 0.48 ms    0.650 in 0.91 ms

RaBitQ is better if the vectors are far from random, but fails if they are not; product quantisation is twice as fast,
which pays for a longer shortlist.

faiss can neither replace a code nor remove one cheaply (`remove_ids` shifts all following codes, 0.2 s at 100,000, and
leaves bits behind that a later `add` is mixed with). It does provide a packer for single codes. So codes are written to
their rows one by one, 3 µs each, and only the packer depends on the memory layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.errors import ModelError
from metaxc.extras import import_extra

Bytes = NDArray[np.uint8]

KMEANS_ITERATIONS = 8
"""25, the default of faiss, takes three times as long for the same recall@10 (within 0.002)."""

ERROR_TOLERANCE = 1e-4
"""Relative amount by which an error may exceed the largest training error because it was computed in another batch."""

RETRAIN_ERROR_RATIO = 1.5
"""The codes are retrained when the vectors added since training have this many times the error of the earlier ones."""

MIN_ADDED = 512
"""Vectors that must have been added before their error is compared."""

SINGLE_THREAD_MAX = 64
"""Up to this many vectors are encoded on the calling thread alone: on busy cores, waiting for other threads takes
longer than the work. 16 and 64 vectors on two busy cores, 90th percentile: 3.0 and 20 ms with two threads, 0.13 and
4.9 ms with one."""

MAX_OUTLIERS = 400
"""The codes are also retrained when there are more outliers than this, as many as a whole shortlist."""


@dataclass(frozen=True)
class EncodedVectors:
    """Codes (n, bytes) of vectors, squared quantisation errors (n,) and squared lengths (n,) of the vectors."""

    codes: Bytes
    errors: Floats
    lengths: Floats


@dataclass
class QuantisationFit:
    """How well the codes fit the vectors, in squared errors.

    Args:
        max_error: Largest error of a vector that the codes were trained on; a vector with a larger one is an outlier.
        trained_error: Error of vectors that were present at training, relative to their squared lengths.
        added: Number of vectors added since training.
        added_error: Sum of their errors.
        added_length: Sum of their squared lengths.
    """

    max_error: float = 0.0
    trained_error: float = 0.0
    added: int = 0
    added_error: float = 0.0
    added_length: float = 0.0

    def needs_retraining(self, count: int) -> bool:
        """Whether the codes of an index of `count` vectors should be trained again."""
        enough = self.added >= max(MIN_ADDED, count // 10)
        limit = RETRAIN_ERROR_RATIO * max(self.trained_error, 1e-6) * self.added_length
        return enough and self.added_error > limit


class PQCodes:
    """4-bit codes in rows 0 … len − 1. Not thread-safe: the index that owns them locks them.

    A code represents a vector badly if the vector is unlike all that the codes were trained on: one ten times as long
    is truncated to the length of the others, and would not be found although its score is the largest. Such vectors
    are *outliers*; a search must always include the rows in `outliers`.

    Args:
        dim: Length of a vector; an odd length is padded with a zero.
        faiss_index: A trained `IndexPQFastScan`.
        fit: How well the codes fit so far.
        is_outlier: (count,) bool, which rows are outliers; none if None.
    """

    def __init__(
        self,
        dim: int,
        faiss_index: Any,
        fit: QuantisationFit | None = None,
        is_outlier: Mask | None = None,
    ):
        self.dim = dim
        self.fit = fit or QuantisationFit()
        self.is_outlier = np.zeros(faiss_index.ntotal, np.bool_) if is_outlier is None else is_outlier
        self.outliers: Rows = np.flatnonzero(self.is_outlier)
        self._faiss = import_extra("faiss", "serve")
        self._index = faiss_index
        self._packer = faiss_index.get_CodePacker()

    @classmethod
    def train(cls, sample: Floats, fit_sample: Floats, seed: int = 0) -> PQCodes:
        """Train codes on a sample (n, dim) and measure their error on another one (m, dim).

        The same sample and seed give the same codes.
        """
        faiss = import_extra("faiss", "serve")
        dim = sample.shape[1]
        index = faiss.IndexPQFastScan(dim + dim % 2, (dim + 1) // 2, 4, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.niter, index.pq.cp.seed = KMEANS_ITERATIONS, seed
        index.pq.cp.min_points_per_centroid = 1  # no warning for a small index
        index.train(pad_to_even(sample))
        codes = cls(dim, index)
        measured = codes.encode(fit_sample)
        codes.fit.max_error = float(codes.encode(sample).errors.max(initial=0.0))
        codes.fit.trained_error = _sum(measured.errors) / max(_sum(measured.lengths), 1e-30)
        return codes

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def codec(self) -> Any:
        """The `IndexPQFastScan` of faiss that encodes vectors."""
        return self._index

    def encode(self, vectors: Floats) -> EncodedVectors:
        """Encode vectors (n, dim) for `write`; needs no lock."""
        padded = pad_to_even(vectors)
        with self._on_one_thread() if len(padded) <= SINGLE_THREAD_MAX else nullcontext():
            codes = np.asarray(self._index.sa_encode(padded))
            error = padded - np.asarray(self._index.sa_decode(codes))
        return EncodedVectors(codes, np.vecdot(error, error), np.vecdot(padded, padded))

    def count_added(self, encoded: EncodedVectors) -> None:
        """Include added vectors in the measured fit."""
        self.fit.added += len(encoded.codes)
        self.fit.added_error += _sum(encoded.errors)
        self.fit.added_length += _sum(encoded.lengths)

    def needs_retraining(self) -> bool:
        """Whether the codes should be trained again."""
        return self.fit.needs_retraining(len(self)) or len(self.outliers) > MAX_OUTLIERS

    def write(self, rows: Rows, encoded: EncodedVectors) -> None:
        """Write codes to rows (n,); rows beyond the end must follow it without a gap."""
        self._write(rows, encoded.codes, self._exceeds_training_error(encoded))

    def copy_rows(self, sources: Rows, targets: Rows) -> None:
        """Copy codes from rows to other rows."""
        if len(sources):
            blocks, size = self._blocks(), self._packer.nvec
            found = [
                self._packer.unpack_1(blocks[row // size : row // size + 1], row % size)
                for row in sources.tolist()
            ]
            self._write(targets, np.stack(found), self.is_outlier[sources])

    def truncate(self, count: int) -> None:
        """Keep the first `count` rows."""
        self._resize(min(count, len(self)))
        self._find_outliers()

    def search(self, queries: Floats, k: int) -> tuple[Rows, Floats]:
        """Find the k largest approximate inner products of each query.

        A single query (1, dim) runs on the calling thread alone.

        Returns:
            rows (n, k), padded with −1, and approximate scores (n, k), best first.
        """
        scores, rows = self._index.search(pad_to_even(queries), k)
        return rows, scores

    def to_arrays(self) -> Arrays:
        """The arrays that `from_arrays` restores the codes from."""
        return {
            "codes": self._faiss.serialize_index(self._index),
            "wear": np.array(list(asdict(self.fit).values()), np.float64),
            "odd": self.outliers,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, dim: int, count: int) -> PQCodes:
        """Restore codes whose checksum has been verified; codes of other vectors are a `ModelError`."""
        faiss = import_extra("faiss", "serve")
        try:
            index = faiss.deserialize_index(arrays["codes"])
            max_error, trained_error, added, added_error, added_length = arrays["wear"].tolist()
            is_outlier = np.zeros(count, np.bool_)
            is_outlier[arrays["odd"]] = True
        except (KeyError, IndexError, ValueError, RuntimeError) as problem:
            raise ModelError(
                "The codes of the index cannot be read", got=str(problem), fix="build the index again"
            ) from problem
        if not isinstance(index, faiss.IndexPQFastScan) or (index.d, index.ntotal) != (dim + dim % 2, count):
            raise ModelError(
                "The codes do not belong to the vectors of the index",
                got=f"{type(index).__name__}, {index.ntotal:,} codes of {index.d} dimensions",
                expected=f"IndexPQFastScan, {count:,} codes of {dim + dim % 2} dimensions",
                fix="build the index again",
            )
        fit = QuantisationFit(max_error, trained_error, int(added), added_error, added_length)
        return cls(dim, index, fit, is_outlier)

    def _write(self, rows: Rows, codes: Bytes, is_outlier: Mask) -> None:
        if len(rows):
            self._resize(max(len(self), int(rows.max()) + 1))
            blocks, size = self._blocks(), self._packer.nvec
            for row, code in zip(rows.tolist(), codes, strict=True):
                self._packer.pack_1(code, row % size, blocks[row // size : row // size + 1])
            if is_outlier.any() or self.is_outlier[rows].any():
                self.is_outlier[rows] = is_outlier
                self._find_outliers()

    def _exceeds_training_error(self, encoded: EncodedVectors) -> Mask:
        return encoded.errors > self.fit.max_error * (1 + ERROR_TOLERANCE)

    @contextmanager
    def _on_one_thread(self) -> Iterator[None]:
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)  # affects the calling thread only
        try:
            yield
        finally:
            self._faiss.omp_set_num_threads(threads)

    def _find_outliers(self) -> None:
        self.outliers = np.flatnonzero(self.is_outlier[: len(self)])

    def _resize(self, count: int) -> None:
        blocks = -(-count // self._packer.nvec)
        self._index.codes.resize(blocks * self._packer.block_size)
        self._index.ntotal, self._index.ntotal2 = count, blocks * self._packer.nvec
        self.is_outlier[count:] = False
        capacity = len(self.is_outlier)
        if count > capacity:
            self.is_outlier = np.pad(self.is_outlier, (0, max(count, 2 * capacity) - capacity))

    def _blocks(self) -> Bytes:
        """A view (blocks, bytes) of the packed codes, valid until the next resize."""
        table = self._index.codes
        view = self._faiss.rev_swig_ptr(table.get(), table.size())
        return np.asarray(view.reshape(-1, self._packer.block_size))


def _sum(squares: Floats) -> float:
    return float(squares.sum(dtype=np.float64))


def pad_to_even(vectors: Floats) -> Floats:
    """The vectors with a zero appended if their length is odd, because two dimensions share a code."""
    if vectors.shape[1] % 2:
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    return np.ascontiguousarray(vectors, np.float32)
