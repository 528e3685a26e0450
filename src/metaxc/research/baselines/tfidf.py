"""TF-IDF: words in common, each weighted by its rarity (Spärck Jones, 1972).

Learns the vocabulary and its document frequencies from the training queries and the observed items' texts, nothing
from clicks. score(q, i) = cosine of the two TF-IDF vectors. Seconds to fit; scores by one sparse product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.research.baselines.terms import Terms


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
