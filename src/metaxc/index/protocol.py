"""What every index can do: vectors by key, in and out at any time, the best k by inner product."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from metaxc.arrays import Floats, Keys


class Index(Protocol):
    """Vectors by key, searched by inner product; the vectors need not be normalised.

    Searches may run in several threads while another adds or removes: a search sees the index before or after a
    change, never half of it. Each call is done whole or not at all.
    """

    kind: ClassVar[str]
    dim: int

    def add(self, keys: Keys, vectors: Floats) -> None:
        """Add vectors (n, dim) under keys (n,) of 0 or more; a key that is there gets the new vector."""
        ...

    def remove(self, keys: Keys) -> None:
        """Remove the keys (n,); one that is not there is a `DataError` that names it, and nothing is removed."""
        ...

    def search(self, vectors: Floats, k: int, allowed: Keys | None = None) -> tuple[Keys, Floats]:
        """The k best keys of each query, best first, ties by key.

        Args:
            vectors: (n, dim) queries.
            k: How many, 1 or more; where there are fewer the answer is padded with key −1, score −inf.
            allowed: Keys that may be answered, all when None; those that are not in the index are ignored.

        Returns:
            keys (n, k) int64 and scores (n, k) float32.
        """
        ...

    def search_exactly(self, vectors: Floats, k: int) -> tuple[Keys, Floats]:
        """Like `search`, by a look at every vector: what an approximate answer is held against."""
        ...

    def vectors_of(self, keys: Keys) -> Floats:
        """The vectors (n, dim) of the keys, copied; an unknown key is a `DataError`."""
        ...

    def save(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the index as a whole folder with checksums; `facts` are the caller's, of JSON."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: int) -> bool: ...
