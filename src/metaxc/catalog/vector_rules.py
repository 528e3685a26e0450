"""The rules for vectors that callers give in place of texts, or beside them.

An *embedding* has `dim` numbers and is in the space of the model's encoder. Its direction is what counts: it is made a
unit vector, as encoders return them. A *final* query vector has one more number, the exposure; it is what
`CatalogReader.encode` returns and is searched with as it is. Another length, numbers that are not finite, and a vector
without a direction are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.encoders import unit_rows
from metaxc.errors import DataError

SAME_VECTOR = 1e-4
"""Largest difference of a number between two unit vectors that count as the same: a vector may have been sent as text
with a few digits, or computed by another machine."""


def read_numbers(vector: Any, what: str) -> Floats:
    """(n,) float32 from a list, a tuple or an array of numbers."""
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
            array = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"The {what} is not a list of numbers", got=repr(vector)[:80], expected="[0.1, -0.2, …]"
        ) from error
    if array.ndim != 1 or isinstance(vector, str | bytes):
        raise DataError(
            f"The {what} is not a list of numbers",
            got=f"an array of shape {array.shape}",
            expected="[0.1, -0.2, …]",
        )
    if not np.isfinite(array).all():
        raise DataError(
            f"The {what} contains NaN, infinity or a number that float32 cannot hold",
            got=f"number {int(np.flatnonzero(~np.isfinite(array))[0]) + 1} of {len(array)}",
            expected="finite numbers",
            fix="compute the vector again, or leave it out",
        )
    return array


def validate_embedding(vector: Any, dim: int, what: str = "vector") -> Floats:
    """(dim,) float32 unit vector of an embedding that a caller gives."""
    array = read_numbers(vector, what)
    if len(array) != dim:
        raise wrong_length(len(array), what, f"{dim} numbers, as the model's encoder gives them")
    try:
        return unit_rows(array[None])[0]  # type: ignore[no-any-return]
    except DataError as error:
        raise DataError(
            f"The {what} has no direction",
            got="all of its numbers are 0" if not array.any() else "its length is not a float32 number",
            expected="a unit vector, or one that can be scaled to be one",
            fix="compute the vector again, or leave it out",
        ) from error


def same_vector(one: Floats, other: Floats) -> bool:
    """Whether two (dim,) unit vectors are the same but for rounding."""
    return bool(np.abs(one - other).max(initial=0.0) <= SAME_VECTOR)


def shorten_numbers(vector: Floats) -> list[float]:
    """The numbers of a vector for JSON, each with as few digits as float32 needs: half as long as those of float64."""
    return [float(str(number)) for number in np.asarray(vector, dtype=np.float32)]


def wrong_length(found: int, what: str, expected: str) -> DataError:
    """The error for a vector with another number of numbers than expected."""
    return DataError(
        f"The {what} has the wrong length",
        got=f"{found} numbers",
        expected=expected,
        fix="use vectors of the encoder that the model was trained with",
    )
