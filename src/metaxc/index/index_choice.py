"""Which index is fit for how many vectors, and why, in words."""

from __future__ import annotations

from metaxc.arrays import Floats, Keys
from metaxc.errors import MetaxcError
from metaxc.extras import import_extra
from metaxc.index.exact import ExactIndex
from metaxc.index.protocol import Index
from metaxc.index.scan import FEWEST, ScanIndex
from metaxc.index.slots import validate_keys, validate_vectors

SCAN_FROM = FEWEST
"""Vectors from which on `scan` is chosen: where it becomes faster than `exact` for a single query, 0.21 against 0.23 ms
at 5,000 vectors of 384 dimensions on one thread; at 10,000 it is 0.22 against 1.4 ms. See benchmarks/index.py."""

SCAN_DIM = 64
"""Dimensions from which on `scan` is chosen. A code of few dimensions says too little: recall@10 at 100,000 clustered
vectors is 0.91, 0.967, 0.998, 1.000 with 16, 32, 64, 128 dimensions; and with few of them `exact` is quick anyway."""


def choose_index(count: int, dim: int) -> tuple[Index, str]:
    """An empty index fit for `count` vectors of length `dim`, and the reason in words."""
    if count < SCAN_FROM:
        return ExactIndex(dim), (
            f"exact: {count:,} vectors, and below {SCAN_FROM:,} looking at all of them is quick enough"
        )
    if dim < SCAN_DIM:
        return ExactIndex(dim), (
            f"exact: {count:,} vectors of {dim} dimensions, and below {SCAN_DIM} dimensions 4-bit codes miss too much"
        )
    try:
        import_extra("faiss", "serve")
    except MetaxcError as error:
        return ExactIndex(dim), (
            f"exact: {count:,} vectors would be scanned faster as 4-bit codes, but faiss is not installed "
            f"({error.fix})"
        )
    return ScanIndex(dim), (
        f"scan: {count:,} vectors, and from {SCAN_FROM:,} on scanning 4-bit codes is faster than looking at all of them"
    )


def build_index(keys: Keys, vectors: Floats) -> tuple[Index, str]:
    """An index of vectors (n, dim) under keys (n,), of the kind fit for so many, and the reason in words."""
    keys = validate_keys(keys)
    vectors = validate_vectors(vectors, vectors.shape[-1], len(keys))
    index, reason = choose_index(len(keys), vectors.shape[1])
    index.add(keys, vectors)
    return index, reason
