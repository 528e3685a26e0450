"""TF-IDF: words in common, each weighted by its rarity (Spärck Jones, 1972).

Learns the vocabulary and its document frequencies from the training queries and the observed items' texts, nothing
from clicks. score(q, i) = cosine of the two TF-IDF vectors. Seconds to fit; scores by one sparse product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.baselines.terms import Terms
from metaxc.data import Dataset

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class FittedTfIdf:
    """Terms, and the items by terms.

    Args:
        terms: The vocabulary.
        items: (items, terms) float32, unit rows.
    """

    terms: Terms
    items: csr_array

    def scores(self, queries: Sequence[str]) -> Floats:
        found: Floats = (self.terms(queries) @ self.items.T).toarray()
        return found


class TfIdf:
    """Cosine of TF-IDF vectors."""

    name: ClassVar[str] = "TF-IDF"

    def fit(self, dataset: Dataset) -> FittedTfIdf:
        terms = Terms(dataset)
        return FittedTfIdf(terms, terms(dataset.items.texts))
