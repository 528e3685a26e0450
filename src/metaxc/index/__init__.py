"""Nearest-neighbour search over vectors, by inner product."""

from metaxc.index.topk import best_rows, top_k

__all__ = ["best_rows", "top_k"]
