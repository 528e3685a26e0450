"""Nearest-neighbour search over vectors, by inner product: once over arrays, or in an index made for churn."""

from metaxc.index.exact import ExactIndex
from metaxc.index.files import load_index
from metaxc.index.index_choice import SCAN_FROM, build_index, choose_index
from metaxc.index.protocol import Index
from metaxc.index.scan import ScanIndex
from metaxc.index.topk import best_rows, top_k

__all__ = [
    "SCAN_FROM",
    "ExactIndex",
    "Index",
    "ScanIndex",
    "best_rows",
    "build_index",
    "choose_index",
    "load_index",
    "top_k",
]
