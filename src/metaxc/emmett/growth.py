"""Room for observed items that come later: one more costs the same whatever the number that is there.

Arrays are kept with room to spare and handed out as views of their beginning. Who has a view goes on to see the same
rows; of an item that is told again, with more clicks or another text, its newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats
from metaxc.classifiers import Classifiers
from metaxc.selectors import Voters

SPARE = 1.5
"""Room is made for half as many again as there are."""


class Base:
    """Observed items that inform others.

    Args:
        ids, texts: (n,) theirs.
        embeddings: (n, dim) theirs.
        classifiers: Theirs.
        neighbour_prior: By which they are trusted.
    """

    def __init__(
        self,
        ids: Sequence[str],
        texts: Sequence[str],
        embeddings: Floats,
        classifiers: Classifiers,
        neighbour_prior: float,
    ):
        self.ids, self.texts = list(ids), list(texts)
        self.query_layer, self.neighbour_prior = classifiers.query_layer, neighbour_prior
        self.count = len(self.ids)
        self.place_of = {name: place for place, name in enumerate(self.ids)}
        trusted = classifiers.trusted(neighbour_prior)
        own: list[NDArray[Any]] = [embeddings, classifiers.weights, trusted, classifiers.clicks]
        self._arrays = [array.copy() for array in own]  # rows may be written
        self._sums = [array.sum(axis=0, dtype=np.float64) for array in (embeddings, trusted)]

    def put(
        self, ids: Sequence[str], texts: Sequence[str], embeddings: Floats, classifiers: Classifiers
    ) -> None:
        """Take items in, behind those that are there; one of an id that is there takes its place."""
        trusted = classifiers.trusted(self.neighbour_prior)
        more: list[NDArray[Any]] = [embeddings, classifiers.weights, trusted, classifiers.clicks]
        for name, text, *rows in zip(ids, texts, *more, strict=True):
            place = self.place_of.setdefault(name, len(self.place_of))
            if place == self.count:
                self.ids.append(name)
                self.texts.append(text)
                self.count += 1
                if self.count > len(self._arrays[0]):
                    self._arrays = [self._with_room(array) for array in self._arrays]
            else:
                self.texts[place] = text
                self._sums = [
                    total - array[place] for total, array in zip(self._sums, self._arrays[::2], strict=True)
                ]
            for array, row in zip(self._arrays, rows, strict=True):
                array[place] = row
            self._sums = [total + row for total, row in zip(self._sums, rows[::2], strict=True)]

    def _with_room(self, array: NDArray[Any]) -> NDArray[Any]:
        roomy = np.empty((int(SPARE * self.count) + 1, *array.shape[1:]), dtype=array.dtype)
        roomy[: len(array)] = array
        return roomy

    @property
    def embeddings(self) -> Floats:
        """(n, dim)."""
        return self._arrays[0][: self.count]

    @property
    def informing(self) -> Floats:
        """(n, dim) classifiers, scaled by trust."""
        return self._arrays[2][: self.count]

    @property
    def classifiers(self) -> Classifiers:
        """Of all items."""
        return Classifiers(self._arrays[1][: self.count], self._arrays[3][: self.count], self.query_layer)

    @property
    def voters(self) -> Voters:
        """How revealed queries vote for them."""
        means = [(total / self.count).astype(np.float32) for total in self._sums]
        return Voters.of_means(self.informing, *means)
