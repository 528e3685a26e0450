"""Texts as TF-IDF terms, over the words of the training queries and of the observed items' texts.

A word that stands in novel items' texts alone is not in the vocabulary: those texts are scored, not learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.errors import DataError
from metaxc.extras import import_extra


class Terms:
    """A fitted TF-IDF vocabulary (scikit-learn's defaults: words of two or more characters, unit rows).

    Args:
        dataset: Whose training queries and observed items give the words and their frequencies.
    """

    def __init__(self, dataset: Dataset):
        observed, query_rows, _ = training_clicks(dataset)
        vectorizer = import_extra("sklearn.feature_extraction.text", "bench").TfidfVectorizer(
            dtype=np.float32
        )
        texts = [dataset.train.queries.texts[row] for row in query_rows]
        texts += [dataset.items.texts[row] for row in observed]
        try:
            self._vectorizer: Any = vectorizer.fit(texts)
        except ValueError as error:
            raise DataError(
                "The training queries and observed items have no words",
                got=str(error),
                expected="texts with words of two or more characters",
            ) from error

    def __len__(self) -> int:
        return len(self._vectorizer.vocabulary_)

    def __call__(self, texts: Sequence[str]) -> csr_array:
        """(texts, terms) float32, unit rows; a text of unknown words is a zero row."""
        if not len(texts):
            return csr_array(np.empty((0, len(self)), np.float32))
        return csr_array(self._vectorizer.transform(texts))

    @property
    def vocabulary(self) -> dict[str, int]:
        """Column of each term."""
        return dict(self._vectorizer.vocabulary_)
