"""What can be evaluated: a trained model, or an encoder alone, as a search over a data set's items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.errors import DataError
from metaxc.evaluation.protocol import Search
from metaxc.index.topk import top_k

QueryEncoder = Callable[[Sequence[str]], Floats]
"""Query texts to (n, dim) float32."""


def model_search(model: Emmett, dataset: Dataset) -> Search:
    """Search by a trained model; items that the model does not know are represented as novel ones, by their texts."""
    return _vector_search(model.encode_queries, item_vectors(model, dataset), dataset)


def encoder_search(encoder: Encoder, dataset: Dataset) -> Search:
    """Search by an encoder alone: dense retrieval, the baseline."""
    return _vector_search(encoder.encode_queries, encoder.encode_items(dataset.items.texts), dataset)


def item_vectors(model: Emmett, dataset: Dataset) -> Floats:
    """(items, dim) float32: the vectors by which the model ranks the data set's items, in the data set's order."""
    rows = np.asarray([model.items.row_of.get(name, -1) for name in dataset.items.ids], dtype=np.int64)
    for place, row in enumerate(rows.tolist()):
        if row >= 0 and model.items.texts[row] != dataset.items.texts[place]:
            raise DataError(
                "An item has different texts in the data set and in the model",
                got=f"{dataset.items.ids[place]!r}: {dataset.items.texts[place]!r}",
                expected=repr(model.items.texts[row]),
                fix="evaluate on the data the model was trained on, or train again",
            )
    vectors = model.vectors[np.maximum(rows, 0)]
    unknown = np.flatnonzero(rows < 0).tolist()
    if len(unknown):
        vectors[unknown] = model.represent([dataset.items.texts[row] for row in unknown])
    return vectors


def encode_test_queries_once(encode: QueryEncoder, dataset: Dataset) -> QueryEncoder:
    """An encoder that encodes all test queries together, the first time one of them is needed.

    A search gets blocks and subsets of the test queries. Encoded as one list they are encoded once, and found in the
    embedding cache by every system that is evaluated. Other queries are encoded when they come.
    """
    texts = [] if dataset.test is None else list(dataset.test.queries.texts)
    row_of = {text: row for row, text in enumerate(texts)}
    encoded: list[Floats] = []

    def encode_queries(queries: Sequence[str]) -> Floats:
        if not queries or any(text not in row_of for text in queries):
            return encode(queries)
        if not encoded:
            encoded.append(encode(texts))
        return np.asarray(encoded[0][[row_of[text] for text in queries]], dtype=np.float32)

    return encode_queries


def _vector_search(encode: QueryEncoder, vectors: Floats, dataset: Dataset) -> Search:
    encode_queries = encode_test_queries_once(encode, dataset)

    def search(queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        return top_k(encode_queries(queries), vectors, k, among)[0]

    return search
