"""What can be evaluated: a trained model, or a bare encoder, as a search over a data set's items.

The test queries are encoded once, whatever the settings ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from metaxc.arrays import Floats
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.errors import DataError
from metaxc.evaluation.protocol import Search
from metaxc.index.topk import top_k


def model_search(model: Emmett, dataset: Dataset) -> Search:
    """Search by a trained model; items it does not know come in as novel ones, by their texts."""
    return _search(model.encode_queries, vectors_for(model, dataset), dataset)


def encoder_search(encoder: Encoder, dataset: Dataset) -> Search:
    """Search by an encoder alone: dense retrieval, the baseline."""
    return _search(encoder.encode_queries, encoder.encode_items(dataset.items.texts), dataset)


def vectors_for(model: Emmett, dataset: Dataset) -> Floats:
    """(items, dim) float32: the data set's items as the model ranks them, in the data set's order."""
    rows = np.asarray([model.items.row_of.get(name, -1) for name in dataset.items.ids], dtype=np.int64)
    for place, row in enumerate(rows.tolist()):
        if row >= 0 and model.items.texts[row] != dataset.items.texts[place]:
            raise DataError(
                "An item of the data set has another text than in the model",
                got=f"{dataset.items.ids[place]!r}: {dataset.items.texts[place]!r}",
                expected=repr(model.items.texts[row]),
                fix="evaluate on the data the model was trained on, or train again",
            )
    vectors = model.vectors[np.maximum(rows, 0)]
    unknown = np.flatnonzero(rows < 0).tolist()
    if len(unknown):
        vectors[unknown] = model.represent([dataset.items.texts[row] for row in unknown])
    return vectors


def _search(encode: Callable[[Sequence[str]], Floats], vectors: Floats, dataset: Dataset) -> Search:
    texts = [] if dataset.test is None else list(dataset.test.queries.texts)
    place_of = {text: place for place, text in enumerate(texts)}
    queries = encode(texts) if texts else np.empty((0, vectors.shape[1]), np.float32)

    def search(wanted: Sequence[str], k: int, among: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        return top_k(queries[[place_of[text] for text in wanted]], vectors, k, among)[0]

    return search
