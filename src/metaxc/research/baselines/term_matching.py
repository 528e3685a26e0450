"""Term matching without learning from clicks: TF-IDF and BM25.

TF-IDF (Spärck Jones, 1972): score(q, i) is the cosine of the two TF-IDF vectors, each term weighted by its rarity. The
vocabulary and the document frequencies come from the training queries and the observed items' texts. A word that occurs
only in novel items is not in the vocabulary: novel texts are scored, not learned from.

BM25 (Robertson and Zaragoza, 2009) by the package `bm25s`: its statistics are those of all items' texts, the corpus
that it searches. bm25s computes every (item, term) weight at indexing (Lucene's variant, k₁ = 1.5, b = 0.75, English
stop words removed); score(q, i) is the sum of the weights of the query's terms.

Both take seconds to fit and score by one sparse product. BM25 uses bm25s's weights in a product of our own, because
`bm25s.retrieve` ranks one query at a time and cannot restrict the ranking to some items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csc_array, csr_array
from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.errors import DataError
from metaxc.extras import import_extra


class TermVectorizer:
    """A fitted TF-IDF vocabulary (scikit-learn's defaults: words of two or more characters, unit rows).

    Args:
        dataset: Its training queries and observed items give the terms and their frequencies.
    """

    def __init__(self, dataset: Dataset):
        observed, query_rows, _ = training_clicks(dataset)
        texts = [dataset.train.queries.texts[row] for row in query_rows]
        texts += [dataset.items.texts[row] for row in observed]
        try:
            self._vectorizer = TfidfVectorizer(dtype=np.float32).fit(texts)
        except ValueError as error:
            raise DataError(
                "The training queries and observed items contain no words",
                got=str(error),
                expected="texts with words of two or more characters",
                fix="check that the texts are not empty",
            ) from error

    def __len__(self) -> int:
        return len(self._vectorizer.vocabulary_)

    def __call__(self, texts: Sequence[str]) -> csr_array:
        """(texts, terms) float32, unit rows; a text without known words is a zero row."""
        if not len(texts):
            return csr_array(np.empty((0, len(self)), np.float32))
        return csr_array(self._vectorizer.transform(texts))

    @property
    def vocabulary(self) -> dict[str, int]:
        """The column of each term."""
        return dict(self._vectorizer.vocabulary_)


@dataclass(frozen=True)
class FittedTfIdf:
    """The vocabulary, and the items as TF-IDF vectors.

    Args:
        terms: The vocabulary.
        items: (items, terms) float32, unit rows.
    """

    terms: TermVectorizer
    items: csr_array

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) cosine similarities."""
        scores: Floats = (self.terms(queries) @ self.items.T).toarray()
        return scores


class TfIdf:
    """Cosine similarity of TF-IDF vectors."""

    name: ClassVar[str] = "TF-IDF"

    def fit(self, dataset: Dataset) -> FittedTfIdf:
        """Learn the vocabulary, and represent all items."""
        terms = TermVectorizer(dataset)
        return FittedTfIdf(terms, terms(dataset.items.texts))


class FittedBM25:
    """A bm25s index of the items' texts.

    Args:
        index: A `bm25s.BM25` that has indexed the items.
        items: Number of items.
    """

    def __init__(self, index: Any, items: int):
        self.index = index
        self.vocabulary: dict[str, int] = index.vocab_dict
        stored = index.scores
        terms = len(stored["indptr"]) - 1
        self.weights = csc_array(
            (stored["data"], stored["indices"], stored["indptr"]), shape=(items, terms), dtype=np.float32
        )

    def scores(self, queries: Sequence[str]) -> Floats:
        """(queries, items) sums of the weights of each query's terms."""
        columns = [
            [self.vocabulary[term] for term in terms if term in self.vocabulary]
            for terms in tokenize(queries)
        ]
        starts = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
        flat = np.asarray([column for row in columns for column in row], dtype=np.int64)
        counts = csr_array(
            (np.ones(len(flat), np.float32), flat, starts), shape=(len(columns), self.weights.shape[1])
        )
        scores: Floats = (counts @ self.weights.T).toarray()
        return scores


class BM25:
    """Okapi BM25 over the items' texts."""

    name: ClassVar[str] = "BM25"

    def fit(self, dataset: Dataset) -> FittedBM25:
        """Index all items."""
        index = import_extra("bm25s", "research").BM25()
        index.index(tokenize(dataset.items.texts), show_progress=False)
        return FittedBM25(index, len(dataset.items))


def tokenize(texts: Sequence[str]) -> list[list[str]]:
    """The texts' terms by bm25s's tokenizer."""
    terms: list[list[str]] = import_extra("bm25s", "research").tokenize(
        list(texts), return_ids=False, show_progress=False
    )
    return terms
