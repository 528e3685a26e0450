"""Nearest-neighbour search over vectors, by inner product: once over arrays, or in an index made for churn."""

from metaxc.index.base import Index
from metaxc.index.choice import SCAN_FROM, index_for, made_index
from metaxc.index.exact import ExactIndex
from metaxc.index.files import load_index
from metaxc.index.scan import ScanIndex
from metaxc.index.topk import best_rows, top_k

__all__ = [
    "SCAN_FROM",
    "ExactIndex",
    "Index",
    "ScanIndex",
    "best_rows",
    "index_for",
    "load_index",
    "made_index",
    "top_k",
]
