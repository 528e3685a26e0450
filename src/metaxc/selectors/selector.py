"""What every selector is: an item in, the rows of the bank that inform it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from metaxc.arrays import Floats, Rows


class Selector(Protocol):
    """Chooses what informs an item: rows of a bank of vectors, by default the observed items' classifiers."""

    @property
    def embeddings(self) -> Floats:
        """(m, dim) float32: the item embedding that each row of the bank stands at."""

    def select(
        self,
        embeddings: Floats,
        k: int,
        exclude_self: Rows | None = None,
        texts: Sequence[str] | None = None,
    ) -> tuple[Rows, Floats]:
        """Rows of the bank and their similarity, both (n, k), best first.

        Args:
            embeddings: (n, dim) item embeddings.
            k: How many; a row of −1 with score −inf pads where fewer exist.
            exclude_self: (n,) the row that each item is itself, −1 for none. An observed item in
                training must never see its own classifier.
            texts: (n,) the items' texts where they are known; only selectors that read use them.
        """
