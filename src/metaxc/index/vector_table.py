"""Vectors by key in the rows of a dense array, the lock that protects them, and checks of keys and vectors."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

import numpy as np
from numpy.typing import ArrayLike

from metaxc.arrays import Floats, Keys, Mask, Rows
from metaxc.errors import DataError

MIN_CAPACITY = 1024
"""Smallest capacity in rows; it doubles when it is exceeded and halves when three quarters of the rows are free."""


MOST_KEYS_PER_ROW = 8
"""Keys up to this many times the number of rows are looked up in an array by key, 0.2 ms for 50,000 of 100,000 rows
against 0.8 ms by `np.isin`. Keys that are given out once and never again, with many removed, may be larger."""


class VectorTable:
    """A growing table of vectors by key, in rows 0 … count − 1 without gaps.

    When a row is removed, the last row moves into its place. So deleted vectors are never stored or scanned, the table
    needs no compaction, and after any changes it differs from a new one only in the order of its rows.

    Not thread-safe: the index that owns the table locks it.

    Args:
        dim: Length of a vector.
    """

    def __init__(self, dim: int):
        self.dim = dim
        self.count = 0
        self.keys: Keys = np.empty(MIN_CAPACITY, np.int64)
        self._rows = _GrowingRows(dim)
        self._rows.resize(MIN_CAPACITY)
        self._row_of: dict[int, int] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._row_of

    @property
    def vectors(self) -> Floats:
        """(capacity, dim): the vectors, in the first `count` rows. Not to be kept: the rows may move when it grows."""
        return self._rows.array

    def upsert(self, keys: Keys, vectors: Floats) -> Rows:
        """Store the vectors (n, dim) and return their rows (n,).

        A key that is already there keeps its row; new keys get the next free rows, in order.
        """
        rows = np.array([self._row_of.get(key, -1) for key in keys.tolist()], np.int64)
        new = np.flatnonzero(rows < 0)
        rows[new] = np.arange(self.count, self.count + len(new))
        count = self.count + len(new)
        if count > len(self.keys):
            self._resize(max(count, 2 * len(self.keys)))
        self.count = count
        self.vectors[rows] = vectors
        self.keys[rows] = keys
        self._row_of.update(zip(keys[new].tolist(), rows[new].tolist(), strict=True))
        return rows

    def adopt(self, keys: Keys, vectors: Floats) -> None:
        """Let an empty table have the vectors (n, dim) of the keys (n,), without a copy where they may be written."""
        self.keys = keys if keys.flags.writeable else keys.copy()
        self._rows.adopt(vectors if vectors.flags.writeable else vectors.copy())
        self.count = len(keys)
        self._row_of = dict(zip(keys.tolist(), range(len(keys)), strict=True))
        if self.count < MIN_CAPACITY:
            self._resize(MIN_CAPACITY)

    def remove(self, keys: Keys) -> tuple[Rows, Rows]:
        """Remove the keys and move the last rows into the gaps.

        Returns:
            The rows (g,) that were filled, and the rows (g,) that moved into them.
        """
        removed = np.sort(self.find(keys))
        count = self.count - len(removed)
        gaps = removed[removed < count]
        moved = np.setdiff1d(np.arange(count, self.count), removed, assume_unique=True)
        for key in keys.tolist():
            del self._row_of[key]
        self.vectors[gaps] = self.vectors[moved]
        self.keys[gaps] = self.keys[moved]
        self._row_of.update(zip(self.keys[gaps].tolist(), gaps.tolist(), strict=True))
        self.count = count
        if count < len(self.keys) // 4 and len(self.keys) > MIN_CAPACITY:
            self._resize(max(MIN_CAPACITY, 2 * count))
        return gaps, moved

    def find(self, keys: Keys) -> Rows:
        """Rows (n,) of the keys; an unknown key is a `DataError`."""
        rows = np.array([self._row_of.get(key, -1) for key in keys.tolist()], np.int64)
        if len(rows) and rows.min() < 0:
            unknown = keys[rows < 0]
            raise DataError(
                "A key is not in the index",
                got=f"{unknown[0]}" + (f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""),
                expected=f"keys of the {self.count:,} vectors in the index",
                fix="add the keys first, or omit them",
            )
        return rows

    def mask_known(self, keys: Keys) -> Mask:
        """(count,) bool: the rows of those keys, of any number, that are in the table."""
        if len(keys) < self.count // 64:  # looking up each key is then faster than looking at all rows
            mask = np.zeros(self.count, np.bool_)
            mask[[self._row_of[key] for key in keys.tolist() if key in self._row_of]] = True
            return mask
        own = self.keys[: self.count]
        size = int(max(own.max(initial=0), keys.max(initial=0))) + 1
        if size > MOST_KEYS_PER_ROW * max(self.count, MIN_CAPACITY) or keys.min(initial=0) < 0:
            return np.isin(own, keys)
        known = np.zeros(size, np.bool_)
        known[keys] = True
        return known[own]

    def find_known(self, keys: Keys) -> Rows:
        """Rows of those keys that are in the table, each once, ascending."""
        return np.flatnonzero(self.mask_known(keys))

    def copy_contents(self) -> tuple[Keys, Floats]:
        """Copies of all keys (count,) and vectors (count, dim), in row order."""
        return self.keys[: self.count].copy(), self.vectors[: self.count].copy()

    def _resize(self, capacity: int) -> None:
        keys, used = np.empty(capacity, np.int64), min(capacity, len(self.keys))
        keys[:used] = self.keys[:used]
        self._rows.resize(capacity)
        self.keys = keys


class _GrowingRows:
    """An array (capacity, dim) float32 that grows without a copy: the system moves its pages to other addresses.

    Copying a million vectors of 385 dimensions when one more is inserted took two seconds, in which no search could
    run. Memory that no row has been written to is not taken from the system.

    Args:
        dim: Length of a row.
    """

    def __init__(self, dim: int):
        self.array: Floats = np.empty((0, dim), np.float32)
        self._memory: mmap.mmap | None = None

    def adopt(self, array: Floats) -> None:
        """Have an array that was made elsewhere; it is copied once, when it first grows."""
        self.array, self._memory = array, None

    def resize(self, capacity: int) -> None:
        """Have this many rows, of which the first are those from before."""
        dim = self.array.shape[1]
        if self._memory is not None and self._resize_in_place(4 * capacity * dim):
            self.array = _rows_in(self._memory, dim)
            return
        before, used = self.array, min(capacity, len(self.array))
        self._memory = _allocate(4 * capacity * dim)
        self.array = _rows_in(self._memory, dim)
        self.array[:used] = before[:used]

    def _resize_in_place(self, size: int) -> bool:
        """Whether the memory has a new size; not where the system cannot do so, or somebody keeps a view of it."""
        memory, dim = self._memory, self.array.shape[1]
        assert memory is not None
        self.array = np.empty((0, dim), np.float32)  # memory that an array refers to cannot be moved
        try:
            memory.resize(size)
        except (BufferError, OSError, SystemError, ValueError):
            self.array = _rows_in(memory, dim)
            return False
        return True


def _allocate(size: int) -> mmap.mmap:
    """Memory of the process itself that can be resized."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy does for large arrays
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _rows_in(memory: mmap.mmap, dim: int) -> Floats:
    return np.frombuffer(memory, np.float32).reshape(-1, dim)


class ReadWriteLock:
    """A lock that any number of readers share and one writer holds alone.

    A waiting writer has priority over readers that arrive later, so that a stream of searches cannot block an insert.
    The lock is not re-entrant.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._readers = 0
        self._waiting_writers = 0
        self._is_writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._changed:
            while self._is_writing or self._waiting_writers:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._waiting_writers += 1
            try:
                while self._is_writing or self._readers:
                    self._changed.wait()
                self._is_writing = True
            finally:
                self._waiting_writers -= 1
                if not self._is_writing:  # interrupted while waiting: wake up the readers that waited for it
                    self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()


def validate_keys(keys: ArrayLike) -> Keys:
    """Keys (n,) int64, unique and not negative; otherwise a `DataError`."""
    array = np.asarray(keys)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise DataError(
            "The keys have the wrong type or shape",
            got=f"{array.dtype} of shape {array.shape}",
            expected="integers of shape (n,)",
            fix="give one integer key per vector",
        )
    array = array.astype(np.int64, copy=False)
    if len(array) and array.min() < 0:
        raise DataError(
            "A key is negative", got=int(array.min()), expected="0 or more, because −1 means no result"
        )
    if len(array) > 1 and len(np.unique(array)) < len(array):
        values, counts = np.unique(array, return_counts=True)
        raise DataError(
            "A key is given twice", got=int(values[counts > 1][0]), expected="each key once per call"
        )
    return array


def validate_vectors(vectors: ArrayLike, dim: int, count: int | None = None) -> Floats:
    """Vectors (n, dim) float32, finite; otherwise a `DataError`. They are copied only if necessary."""
    array = np.ascontiguousarray(vectors, np.float32)
    if array.ndim != 2 or array.shape[1] != dim or (count is not None and len(array) != count):
        raise DataError(
            "The vectors do not match the index",
            got=f"shape {array.shape}",
            expected=f"shape ({'n' if count is None else count}, {dim})",
            fix="encode with the model that the index was built with",
        )
    # An infinite sum of squares would give scores that cannot be compared, so such a vector is rejected too.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(np.vecdot(array, array))
    if not finite.all():
        raise DataError(
            "A vector is not finite",
            got=f"row {int(np.argmin(finite))}",
            expected="finite numbers with a finite sum of squares",
            fix="check the encoder that computed the vector",
        )
    return array


def validate_k(k: int) -> int:
    """The number of results, 1 or more; otherwise a `DataError`."""
    if k < 1:
        raise DataError("The number of results is too small", got=f"k = {k}", expected="k of 1 or more")
    return int(k)
