"""What every encoder is: texts in, unit vectors of one space out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats
from metaxc.errors import DataError


@runtime_checkable
class Encoder(Protocol):
    """Texts to embeddings: unit float32 rows, queries and items in one space.

    The two sides may be the same function (Siamese) or two (two towers).
    """

    kind: ClassVar[str]

    @property
    def dim(self) -> int:
        """Size of an embedding."""

    @property
    def fingerprint(self) -> str:
        """Names the encoder: same fingerprint, same embeddings."""

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """(queries, dim) float32, unit rows."""

    def encode_items(self, texts: Sequence[str]) -> Floats:
        """(items, dim) float32, unit rows."""

    def save(self, folder: Path) -> None:
        """Write what `metaxc.encoders.load_encoder` needs."""


def unit_rows(vectors: NDArray[np.floating], dim: int | None = None, what: str = "vectors") -> Floats:
    """(n, dim) float32 with unit rows; a wrong shape, NaN or a zero row is a `DataError`."""
    array = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or (dim is not None and array.shape[1] != dim):
        raise DataError(
            f"The {what} have the wrong shape",
            got=array.shape,
            expected=f"(n, {dim if dim is not None else 'dim'})",
            fix="use vectors of the encoder that the model was trained with",
        )
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise DataError(
            f"The {what} hold NaN or infinity",
            got=f"{len(bad)} rows, the first is row {bad[0]}",
            expected="numbers",
        )
    norms = np.linalg.norm(array, axis=1, keepdims=True)
    if len(array) and not norms.all():
        raise DataError(f"The {what} hold a zero vector", got=f"row {int(np.flatnonzero(norms == 0)[0])}")
    # Unit rows stay as they are to the last bit, so that what was saved is what is loaded.
    norms[np.abs(norms - 1) < 1e-5] = 1
    return array / norms  # type: ignore[no-any-return]
