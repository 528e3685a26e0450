"""Nearest-neighbour search by inner product: over arrays (`top_k`), or in an index that vectors enter and leave."""

from metaxc.index.array_search import ArraySearch
from metaxc.index.exact import ExactIndex
from metaxc.index.interface import (
    KINDS,
    SCAN_FROM,
    Index,
    build_index,
    choose_index,
    choose_kind,
    load_index,
)
from metaxc.index.ivf import IVFIndex
from metaxc.index.scan import ScanIndex
from metaxc.index.topk import best_rows, top_k

__all__ = [
    "KINDS",
    "SCAN_FROM",
    "ArraySearch",
    "ExactIndex",
    "IVFIndex",
    "Index",
    "ScanIndex",
    "best_rows",
    "build_index",
    "choose_index",
    "choose_kind",
    "load_index",
    "top_k",
]
