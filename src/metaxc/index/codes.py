"""Vectors as 4-bit codes that faiss scans with SIMD: two dimensions per code, a quarter of a byte per dimension.

Of the codes that faiss scans linearly, product quantisation was taken. On 100,000 × 384 un-normalised vectors, one
thread, recall@10 after an exact re-rank of the best 200 and time per query:

    vectors                        PQ192x4             RaBitQ
    clustered, norms varying       1.000 in 0.47 ms    1.000 in 0.90 ms
    text embeddings, norms varied  0.992 in 0.46 ms    1.000 in 0.90 ms
    random gaussian                0.983 in 0.48 ms    0.650 in 0.91 ms

RaBitQ is the better one where the vectors are far from random, but it breaks where they are not; product
quantisation is twice as fast, which pays for a longer shortlist.

faiss can neither replace a code nor remove one cheaply (`remove_ids` shifts all that follow, 0.2 s at 100,000, and
leaves bits behind that a later `add` is mixed with). But it gives a packer for single codes, so here codes are put
into their slots one by one, 3 µs each, and nothing but the packer knows how they are laid out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats, Rows
from metaxc.errors import ModelError
from metaxc.extras import import_extra

Bytes = NDArray[np.uint8]

ROUNDS = 8
"""Of k-means. 25, faiss's own default, takes three times as long for the same recall@10 (within 0.002)."""

ROUNDING = 1e-4
"""By so much, relatively, an error may exceed the worst one because it was computed in another batch."""

WORN = 1.5
"""Codes are worn when what was added since they were trained is coded with this many times the error."""

JUDGED_FROM = 512
"""Vectors that must have been added before the codes are judged by them."""

FEW = 64
"""Vectors that are coded on the calling thread alone: to wait for other threads takes longer than the work where the
cores are busy. 16 and 64 vectors on two busy cores, 90th percentile: 3.0 and 20 ms with two threads, 0.13 and 4.9 with
one."""

MOST_ODD = 400
"""Codes are worn, too, when more vectors than this are odd: a whole shortlist of its own."""


@dataclass(frozen=True)
class Encoded:
    """Codes (n, bytes) of vectors, the squared errors (n,) of the codes and the squared lengths (n,) of the vectors."""

    codes: Bytes
    errors: Floats
    lengths: Floats


@dataclass
class Wear:
    """How well the codes fit, in squared errors.

    Args:
        worst: Largest error of a vector that the codes were trained on. One coded worse than that is odd.
        trained: Error of vectors that were there when the codes were trained, relative to their squared lengths.
        added: How many were added since.
        error: Sum of their errors.
        length: Sum of their squared lengths.
    """

    worst: float = 0.0
    trained: float = 0.0
    added: int = 0
    error: float = 0.0
    length: float = 0.0

    def worn(self, count: int) -> bool:
        """Whether the codes of an index of `count` vectors should be trained anew."""
        enough = self.added >= max(JUDGED_FROM, count // 10)
        return enough and self.error > WORN * max(self.trained, 1e-6) * self.length


class Codes:
    """4-bit codes in slots 0 … len − 1. Not thread-safe: the index that owns it locks.

    A code says little of a vector unlike all that it was trained on: one ten times as long is cut down to the length
    of the others, and would not be found though its score is the largest. Such vectors are *odd*; `odd` names them, to
    be looked at whatever their codes say.

    Args:
        dim: Length of a vector; an odd one is padded with a zero.
        faiss_index: An `IndexPQFastScan`, trained.
        wear: How well it fits so far.
        is_odd: (count,) which slots are odd; none when None.
    """

    def __init__(
        self, dim: int, faiss_index: Any, wear: Wear | None = None, is_odd: NDArray[np.bool_] | None = None
    ):
        self.dim = dim
        self.wear = wear or Wear()
        self.is_odd = np.zeros(faiss_index.ntotal, np.bool_) if is_odd is None else is_odd
        self.odd: Rows = np.flatnonzero(self.is_odd)
        self._faiss = import_extra("faiss", "serve")
        self._index = faiss_index
        self._packer = faiss_index.get_CodePacker()

    @classmethod
    def trained(cls, sample: Floats, typical: Floats, seed: int = 0) -> Codes:
        """Codes trained on a sample (n, dim), their error measured on `typical` vectors (m, dim).

        The same sample and seed give the same codes.
        """
        faiss = import_extra("faiss", "serve")
        dim = sample.shape[1]
        index = faiss.IndexPQFastScan(dim + dim % 2, (dim + 1) // 2, 4, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.niter, index.pq.cp.seed = ROUNDS, seed
        index.pq.cp.min_points_per_centroid = 1  # no warning for a small index
        index.train(_even(sample))
        codes = cls(dim, index)
        judged = codes.encoded(typical)
        codes.wear.worst = float(codes.encoded(sample).errors.max(initial=0.0))
        codes.wear.trained = _sum(judged.errors) / max(_sum(judged.lengths), 1e-30)
        return codes

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def encoded(self, vectors: Floats) -> Encoded:
        """Codes of vectors (n, dim), to be `put`; needs no lock."""
        even = _even(vectors)
        with self._on_one_thread() if len(even) <= FEW else nullcontext():
            codes = np.asarray(self._index.sa_encode(even))
            wrong = even - np.asarray(self._index.sa_decode(codes))
        return Encoded(codes, np.vecdot(wrong, wrong), np.vecdot(even, even))

    def noted(self, encoded: Encoded) -> None:
        """Count the vectors among those by which the codes are judged."""
        self.wear.added += len(encoded.codes)
        self.wear.error += _sum(encoded.errors)
        self.wear.length += _sum(encoded.lengths)

    def worn(self) -> bool:
        """Whether the codes should be trained anew."""
        return self.wear.worn(len(self)) or len(self.odd) > MOST_ODD

    def put(self, slots: Rows, encoded: Encoded) -> None:
        """Write codes into slots (n,); those past the end must follow it without a gap."""
        self._put(slots, encoded.codes, encoded.errors > self.wear.worst * (1 + ROUNDING))

    def move(self, sources: Rows, targets: Rows) -> None:
        """Copy codes from slots to slots."""
        if len(sources):
            blocks, fit = self._blocks(), self._packer.nvec
            found = [
                self._packer.unpack_1(blocks[slot // fit : slot // fit + 1], slot % fit)
                for slot in sources.tolist()
            ]
            self._put(targets, np.stack(found), self.is_odd[sources])

    def truncate(self, count: int) -> None:
        """Keep the first `count` slots."""
        self._resize(min(count, len(self)))
        self._find_odd()

    def search(self, queries: Floats, k: int) -> tuple[Rows, Floats]:
        """Slots (n, k) of the k largest approximate inner products, and these (n, k), best first.

        Pads with slot −1. A single query (1, dim) runs on the calling thread alone.
        """
        scores, slots = self._index.search(_even(queries), k)
        return slots, scores

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to save."""
        return {
            "codes": self._faiss.serialize_index(self._index),
            "wear": np.array(list(asdict(self.wear).values()), np.float64),
            "odd": self.odd,
        }

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]], dim: int, count: int) -> Codes:
        """Codes from what `arrays` gave; their checksum must have been verified. A misfit is a `ModelError`."""
        faiss = import_extra("faiss", "serve")
        try:
            index = faiss.deserialize_index(arrays["codes"])
            worst, trained, added, error, length = arrays["wear"].tolist()
            is_odd = np.zeros(count, np.bool_)
            is_odd[arrays["odd"]] = True
        except (KeyError, IndexError, ValueError, RuntimeError) as problem:
            raise ModelError("The codes of the index cannot be read", got=str(problem)) from problem
        if not isinstance(index, faiss.IndexPQFastScan) or (index.d, index.ntotal) != (dim + dim % 2, count):
            raise ModelError(
                "The codes do not belong to the vectors of the index",
                got=f"{type(index).__name__}, {index.ntotal:,} codes of {index.d} dimensions",
                expected=f"IndexPQFastScan, {count:,} codes of {dim + dim % 2} dimensions",
                fix="build the index again",
            )
        return cls(dim, index, Wear(worst, trained, int(added), error, length), is_odd)

    def _put(self, slots: Rows, codes: Bytes, odd: NDArray[np.bool_]) -> None:
        if len(slots):
            self._resize(max(len(self), int(slots.max()) + 1))
            blocks, fit = self._blocks(), self._packer.nvec
            for slot, code in zip(slots.tolist(), codes, strict=True):
                self._packer.pack_1(code, slot % fit, blocks[slot // fit : slot // fit + 1])
            if odd.any() or self.is_odd[slots].any():
                self.is_odd[slots] = odd
                self._find_odd()

    @contextmanager
    def _on_one_thread(self) -> Iterator[None]:
        threads = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(1)  # of the calling thread only
        try:
            yield
        finally:
            self._faiss.omp_set_num_threads(threads)

    def _find_odd(self) -> None:
        self.odd = np.flatnonzero(self.is_odd[: len(self)])

    def _resize(self, count: int) -> None:
        blocks = -(-count // self._packer.nvec)
        self._index.codes.resize(blocks * self._packer.block_size)
        self._index.ntotal, self._index.ntotal2 = count, blocks * self._packer.nvec
        self.is_odd[count:] = False
        if count > len(self.is_odd):
            self.is_odd = np.pad(self.is_odd, (0, max(count, 2 * len(self.is_odd)) - len(self.is_odd)))

    def _blocks(self) -> NDArray[np.uint8]:
        """The packed codes (blocks, bytes) themselves, until the next resize."""
        table = self._index.codes
        view = self._faiss.rev_swig_ptr(table.get(), table.size())
        return np.asarray(view.reshape(-1, self._packer.block_size))


def _sum(squares: Floats) -> float:
    return float(squares.sum(dtype=np.float64))


def _even(vectors: Floats) -> Floats:
    """Two dimensions share a code: an odd number of them gets a zero more."""
    if vectors.shape[1] % 2:
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    return np.ascontiguousarray(vectors, np.float32)
