"""Keys and vectors in slots 0 … count − 1, without holes.

A removed slot is filled with the last one at once. So nothing dead is ever stored, scanned or compacted, and after
any number of changes the table is as it would be when built afresh, but for its order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metaxc.arrays import Floats, Keys, Rows
from metaxc.errors import DataError

SMALLEST = 1024
"""Slots that are held at least; from there the room doubles, and halves when three quarters are empty."""


class Slots:
    """A growing table of vectors by key.

    Not thread-safe: the index that owns it locks.

    Args:
        dim: Length of a vector.
    """

    def __init__(self, dim: int):
        self.dim = dim
        self.count = 0
        self.keys: Keys = np.empty(SMALLEST, np.int64)
        self.vectors: Floats = np.empty((SMALLEST, dim), np.float32)
        self._slot_of: dict[int, int] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._slot_of

    def put(self, keys: Keys, vectors: Floats) -> Rows:
        """Store the vectors (n, dim) and return their slots (n,); a key that is there keeps its slot.

        New keys get the next free slots, in order.
        """
        slots = np.array([self._slot_of.get(key, -1) for key in keys.tolist()], np.int64)
        new = np.flatnonzero(slots < 0)
        slots[new] = np.arange(self.count, self.count + len(new))
        self._make_room(self.count + len(new))
        self.count += len(new)
        self.vectors[slots] = vectors
        self.keys[slots] = keys
        self._slot_of.update(zip(keys[new].tolist(), slots[new].tolist(), strict=True))
        return slots

    def drop(self, keys: Keys) -> tuple[Rows, Rows]:
        """Remove the keys; the last slots move into the holes.

        Returns:
            holes (h,) and the slots (h,) that moved into them; from `count` on all slots are free.
        """
        gone = np.sort(self.of(keys))
        left = self.count - len(gone)
        holes = gone[gone < left]
        moved = np.setdiff1d(np.arange(left, self.count), gone, assume_unique=True)
        for key in keys.tolist():
            del self._slot_of[key]
        self.vectors[holes] = self.vectors[moved]
        self.keys[holes] = self.keys[moved]
        self._slot_of.update(zip(self.keys[holes].tolist(), holes.tolist(), strict=True))
        self.count = left
        if left < len(self.keys) // 4 and len(self.keys) > SMALLEST:
            self._resize(max(SMALLEST, 2 * left))
        return holes, moved

    def of(self, keys: Keys) -> Rows:
        """Slots (n,) of the keys; an unknown one is a `DataError`."""
        slots = np.array([self._slot_of.get(key, -1) for key in keys.tolist()], np.int64)
        if len(slots) and slots.min() < 0:
            unknown = keys[slots < 0]
            raise DataError(
                "A key is not in the index",
                got=f"{unknown[0]}" + (f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""),
                expected=f"keys of the {self.count:,} vectors in the index",
                fix="add them first, or leave them out",
            )
        return slots

    def known(self, keys: Keys) -> Rows:
        """Slots of those of the keys that are there, each once, ascending."""
        if len(keys) < self.count // 16:  # cheaper one by one than a pass over all slots
            found = {self._slot_of[key] for key in keys.tolist() if key in self._slot_of}
            return np.sort(np.fromiter(found, np.int64, len(found)))
        return np.flatnonzero(np.isin(self.keys[: self.count], keys))

    def contents(self) -> tuple[Keys, Floats]:
        """Copies of all keys (count,) and vectors (count, dim), in slot order."""
        return self.keys[: self.count].copy(), self.vectors[: self.count].copy()

    def _make_room(self, count: int) -> None:
        if count > len(self.keys):
            self._resize(max(count, 2 * len(self.keys)))

    def _resize(self, room: int) -> None:
        keys, vectors = np.empty(room, np.int64), np.empty((room, self.dim), np.float32)
        keys[: self.count] = self.keys[: self.count]
        vectors[: self.count] = self.vectors[: self.count]
        self.keys, self.vectors = keys, vectors


def validate_keys(keys: ArrayLike) -> Keys:
    """Keys (n,) int64, each once and not negative; otherwise a `DataError`."""
    array = np.asarray(keys)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise DataError(
            "The keys cannot be used",
            got=f"{array.dtype} of shape {array.shape}",
            expected="whole numbers of shape (n,)",
            fix="give one key per vector",
        )
    array = array.astype(np.int64, copy=False)
    if len(array) and array.min() < 0:
        raise DataError("A key is negative", got=int(array.min()), expected="0 or more: −1 means no answer")
    if len(array) > 1 and len(np.unique(array)) < len(array):
        values, counts = np.unique(array, return_counts=True)
        raise DataError(
            "A key is given twice", got=int(values[counts > 1][0]), expected="each key once in a call"
        )
    return array


def validate_vectors(vectors: ArrayLike, dim: int, count: int | None = None) -> Floats:
    """Vectors (n, dim) float32, finite; otherwise a `DataError`. No copy is made where none is needed."""
    array = np.ascontiguousarray(vectors, np.float32)
    if array.ndim != 2 or array.shape[1] != dim or (count is not None and len(array) != count):
        raise DataError(
            "The vectors do not fit the index",
            got=f"shape {array.shape}",
            expected=f"shape ({'n' if count is None else count}, {dim})",
            fix="encode with the model that the index was made with",
        )
    # An infinite sum of squares would give scores that cannot be compared, so it counts as not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(np.vecdot(array, array))
    if not finite.all():
        raise DataError(
            "A vector is not finite",
            got=f"row {int(np.argmin(finite))}",
            expected="finite numbers, their squares too",
            fix="look at what made the vector",
        )
    return array


def validate_k(k: int) -> int:
    """How many answers, 1 or more; otherwise a `DataError`."""
    if k < 1:
        raise DataError("A search for no answer", got=f"k = {k}", expected="k of 1 or more")
    return int(k)
