"""The kinds of arrays that pass between functions; shapes stand in each docstring."""

from __future__ import annotations

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
