"""The interface of every index, which kind of index to use for a number of vectors, and loading one from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from metaxc.arrays import Floats, Keys
from metaxc.artifacts import load_arrays, load_json, verify_folder
from metaxc.errors import DataError, MetaxcError, ModelError
from metaxc.extras import import_extra
from metaxc.index.exact import ABOUT_FILE, CODES_FILE, FOLDER_KIND, VECTORS_FILE, ExactIndex
from metaxc.index.ivf import IVFIndex
from metaxc.index.pq_codes import PQCodes
from metaxc.index.scan import MIN_VECTORS, ScanIndex
from metaxc.index.vector_table import validate_keys, validate_vectors

SCAN_FROM = MIN_VECTORS
"""Number of vectors from which `scan` is chosen: where it becomes faster than `exact` for a single query, 0.21 against
0.23 ms at 5,000 vectors of 384 dimensions on one thread; at 10,000 it is 0.22 against 1.4 ms (benchmarks/index.py)."""

SCAN_DIM = 64
"""Number of dimensions from which `scan` is chosen. A code of few dimensions is too coarse: recall@10 at 100,000
clustered vectors is 0.91, 0.967, 0.998, 1.000 with 16, 32, 64, 128 dimensions; and with few, `exact` is fast anyway."""

IVF_FROM = 500_000
"""Number of vectors from which `ivf` is chosen. Scanning all codes takes time in proportion to their number, `ivf`
about to its square root where the vectors form groups. Where they form none, it scans all codes too and is slower, and
neither finds nearly all: `ivf` is tuned on mixtures of stored vectors, and queries that are unlike these find less
(docs/scale.md has the figures)."""

IVF_RECALL = 0.99
"""Recall@10 that is asked of `ivf` where nobody asked for it."""

KINDS: dict[str, type[ExactIndex | ScanIndex]] = {
    kind.kind: kind for kind in (ExactIndex, ScanIndex, IVFIndex)
}
"""Every kind of index by its name."""


class Index(Protocol):
    """Vectors by key, searched by inner product; the vectors need not be normalised.

    Searches may run in several threads while another thread adds or removes vectors. Each change is atomic: a search
    sees the index before it or after it.
    """

    kind: ClassVar[str]
    dim: int

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add vectors (n, dim) with keys (n,), 0 or more; the vector of a key that is already there is replaced."""
        ...

    def remove(self, keys: Keys) -> None:
        """Remove the keys (n,); if a key is unknown, a `DataError` names it and nothing is removed."""
        ...

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """Find the k best keys of each query, best first, ties by key.

        Args:
            vectors: (n, dim) queries.
            k: Number of results, 1 or more; if there are fewer, the result is padded with key −1 and score −inf.
            allowed: Keys that may be returned, all if None; keys that are not in the index are ignored.

        Returns:
            keys (n, k) int64 and scores (n, k) float32.
        """
        ...

    def search_exactly(self, vectors: Floats, k: int) -> tuple[Keys, Floats]:
        """Like `search`, but by comparing every vector; approximate results are measured against it."""
        ...

    def save(self, folder: Path, metadata: dict[str, Any]) -> None:
        """Write the index atomically to a folder with checksums, with JSON metadata of the caller."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: int) -> bool: ...


def choose_index(count: int, dim: int, kind: str | None = None) -> tuple[Index, str]:
    """Make an empty index for `count` vectors of length `dim`.

    Args:
        count: Number of vectors.
        dim: Length of a vector.
        kind: "exact", "scan" or "ivf"; if None, `choose_kind` decides.

    Returns:
        An empty index, and the reason for its kind.
    """
    if kind is None:
        chosen, reason = choose_kind(count, dim)
        return (IVFIndex(dim, recall=IVF_RECALL) if chosen is IVFIndex else chosen(dim)), reason
    if kind not in KINDS:
        raise DataError(
            "There is no such kind of index",
            got=repr(kind),
            expected=" or ".join(KINDS),
            fix="name one of these, or give None to let the number of vectors decide",
        )
    return KINDS[kind](dim), f"{kind}: {count:,} vectors; this kind was asked for"


def choose_kind(count: int, dim: int) -> tuple[type[ExactIndex | ScanIndex], str]:
    """The class of the index for `count` vectors of length `dim`, and the reason for the choice."""
    if count < SCAN_FROM:
        return ExactIndex, (
            f"exact: {count:,} vectors; below {SCAN_FROM:,}, comparing all of them is fast enough"
        )
    if dim < SCAN_DIM:
        return ExactIndex, (
            f"exact: {count:,} vectors of {dim} dimensions; below {SCAN_DIM} dimensions, 4-bit codes are too coarse"
        )
    try:
        import_extra("faiss", "serve")
    except MetaxcError as error:
        return ExactIndex, (
            f"exact: {count:,} vectors; scanning 4-bit codes would be faster, but faiss is not installed ({error.fix})"
        )
    if count >= IVF_FROM:
        return IVFIndex, (
            f"ivf: {count:,} vectors; from {IVF_FROM:,} on, lists of 4-bit codes are scanned as far as a recall@10 of "
            f"{IVF_RECALL} takes on these vectors"
        )
    return ScanIndex, (
        f"scan: {count:,} vectors; from {SCAN_FROM:,} on, scanning 4-bit codes is faster than comparing all vectors"
    )


def build_index(keys: Keys, vectors: Floats, kind: str | None = None) -> tuple[Index, str]:
    """Build an index of vectors (n, dim) with keys (n,), of the kind that `choose_index` gives.

    Returns:
        The index, and the reason for its kind.
    """
    keys = validate_keys(keys)
    vectors = validate_vectors(vectors, vectors.shape[-1], len(keys))
    index, reason = choose_index(len(keys), vectors.shape[1], kind)
    index.add(keys, vectors)
    return index, reason


def load_index(folder: Path) -> tuple[Index, dict[str, Any]]:
    """Load an index and the metadata that was saved with it.

    All checksums are verified before anything is parsed, because faiss loads a file with flipped bytes and then returns
    wrong results or crashes the process. A missing, truncated or changed file is a `ModelError`.
    """
    verify_folder(folder, FOLDER_KIND)
    about = load_json(folder / ABOUT_FILE)
    arrays = load_arrays(folder / VECTORS_FILE)
    try:
        kind, dim, count, metadata = about["kind"], about["dim"], about["count"], about["facts"]
        keys = validate_keys(arrays["keys"])
        vectors = validate_vectors(arrays["vectors"], dim, count)
        if len(keys) != count or kind not in KINDS:
            raise ValueError(f"{len(keys):,} keys in an index of kind {kind!r}")
        code_arrays = load_arrays(folder / CODES_FILE) if about["coded"] else None
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise ModelError(
            "The files of the index folder do not match", got=str(error), fix="build the index again"
        ) from error
    if kind == ExactIndex.kind:
        return ExactIndex.from_vectors(keys, vectors), metadata
    if kind == IVFIndex.kind:
        return IVFIndex.restore(keys, vectors, code_arrays), metadata
    codes = None if code_arrays is None else PQCodes.from_arrays(code_arrays, dim, count)
    return ScanIndex.from_vectors(keys, vectors, codes), metadata
