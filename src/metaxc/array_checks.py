"""Checks of arrays that were read from a file: they are there, have the right shape and type, and are finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.errors import ModelError

AGAIN = "train the model again, or copy the folder again"
BLOCK = 1 << 22


def all_finite(array: NDArray[Any]) -> bool:
    """Whether an array has neither NaN nor infinity; looked at in blocks, so that it may be memory-mapped."""
    if array.dtype.kind not in "fc":
        return True
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[start : start + BLOCK]).all()) for start in range(0, len(flat), BLOCK))


def take_array(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    file: Path,
    shape: Sequence[int | None],
    types: Sequence[str] = ("float32",),
) -> NDArray[Any]:
    """The array of this name; a `ModelError` if it is missing or has another shape or type.

    Args:
        arrays: What a file contains.
        name: Which array.
        file: The file, for the error.
        shape: The size of each axis; None for any size.
        types: The names of the allowed types.
    """
    array = arrays.get(name)
    if array is None:
        raise ModelError(
            "A tensor file is incomplete", got=f"{file.name} without {name!r}", expected=name, fix=AGAIN
        )
    fits = len(array.shape) == len(shape) and all(
        size in (None, found) for size, found in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.name not in types:
        sizes = ", ".join("any" if size is None else f"{size:,}" for size in shape)
        raise ModelError(
            "An array of a tensor file has the wrong shape or type",
            got=f"{file.name}: {name!r}, {array.shape} {array.dtype.name}",
            expected=f"({sizes}) {' or '.join(types)}",
            fix=AGAIN,
        )
    return array


def check_rows(rows: NDArray[Any], count: int, what: str) -> None:
    """Raise a `ModelError` unless all row numbers are from 0 to `count` − 1."""
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        raise ModelError(
            f"The {what} refer to rows that do not exist",
            got=f"rows {rows.min():,} to {rows.max():,}",
            expected=f"0 to {count - 1:,}",
            fix=AGAIN,
        )
