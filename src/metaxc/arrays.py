"""The kinds of arrays that pass between functions, whose shapes stand in each docstring; and what mapped ones hold."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
"""Embeddings, classifiers, scores."""

Doubles = NDArray[np.float64]
"""Values that are averaged or inverted."""

Rows = NDArray[np.int64]
"""Positions in another array; −1 pads."""

Keys = NDArray[np.int64]
"""Names of vectors in an index."""

Mask = NDArray[np.bool_]
"""True for the rows that are meant."""


def release_pages(array: NDArray[Any]) -> None:
    """Give the memory of a read-only memory-mapped array back; it is read from its file again when it is needed.

    What was read of a mapped file counts as memory of the process until the system takes it away.
    """
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED") and not array.flags.writeable:
        mapped.madvise(mmap.MADV_DONTNEED)
