"""The index that looks at every vector: a matrix product, nothing to train, nothing to approximate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.index.files import write_index
from metaxc.index.lock import SharedLock
from metaxc.index.ranking import best
from metaxc.index.slots import Slots, validate_k, validate_keys, validate_vectors


class ExactIndex:
    """Exact search over all vectors. See `metaxc.index.protocol.Index` for the methods.

    Args:
        dim: Length of a vector.
    """

    kind: ClassVar[str] = "exact"

    def __init__(self, dim: int):
        self.dim = dim
        self._slots = Slots(dim)
        self._lock = SharedLock()

    def __len__(self) -> int:
        return self._slots.count

    def __contains__(self, key: int) -> bool:
        return key in self._slots

    def __repr__(self) -> str:
        return f"ExactIndex({len(self):,} vectors of {self.dim} dimensions)"

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add or replace."""
        keys = validate_keys(keys)
        vectors = validate_vectors(vectors, self.dim, len(keys))
        with self._lock.writing():
            self._slots.put(keys, vectors)

    def remove(self, keys: Keys) -> None:
        """Remove; unknown keys are refused."""
        keys = validate_keys(keys)
        with self._lock.writing():
            self._slots.drop(keys)

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """The k best keys of each query."""
        queries, k = validate_vectors(vectors, self.dim), validate_k(k)
        with self._lock.reading():
            among = None if allowed is None else self._slots.known(np.asarray(allowed, np.int64))
            return best(self._slots, queries, k, among)

    def search_exactly(self, vectors: Floats, k: int) -> tuple[Keys, Floats]:
        """The same as `search`."""
        return self.search(vectors, k)

    def vectors_of(self, keys: Keys) -> Floats:
        """Vectors by key."""
        with self._lock.reading():
            return self._slots.vectors[self._slots.of(np.asarray(keys, np.int64))]

    def save(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the folder; the index may change meanwhile, the folder holds it as it was at the call."""
        with self._lock.reading():
            keys, vectors = self._slots.contents()
        write_index(folder, self.kind, keys, vectors, facts)

    @classmethod
    def of(cls, keys: Keys, vectors: Floats) -> ExactIndex:
        """An index of vectors that were checked before."""
        index = cls(vectors.shape[1])
        index._slots.put(keys, vectors)
        return index
