"""What is evaluated: searches that rank the items of a data set by the vectors of a model or an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Adapted, Encoder, Pretrained
from metaxc.errors import DataError
from metaxc.evaluation.overlap import check_overlap
from metaxc.index import ArraySearch

Search = Callable[[Sequence[str], int, Mask | None], Rows]
"""search(query texts, k, among) -> (queries, k) int64, rows of `dataset.items` best first, −1 for no result;
`among` is a mask of the items that may be ranked, None for all."""

QueryEncoder = Callable[[Sequence[str]], Floats]
"""Query texts to (n, dim) float32."""

DEPTH = 100
"""Items that are ranked for each query."""

INDEX_SAMPLE = 500
"""Queries on which a search through an index is compared with an exact one."""

BARE_ENCODER = "bare encoder"
FINE_TUNED_ENCODER = "fine-tuned encoder alone"
"""The name of a pretrained encoder by itself in tables."""


def model_search(
    model: Emmett, dataset: Dataset, exposure: float | None = None, *, allow_overlap: bool = False
) -> Search:
    """Search by a trained model; items that the model does not know are represented as novel ones, by their texts.

    Args:
        model: The model.
        dataset: Has the items.
        exposure: What is added to the score of an item without clicks; None for the value chosen in training.
        allow_overlap: Also where the model was trained on the test part, which is otherwise an `OverlapError`.
    """
    if dataset.test is not None and dataset.novel is not None:
        check_overlap(model, dataset, allow_overlap=allow_overlap)
    encode = partial(model.encode_queries, exposure=exposure)
    return VectorSearch(encode, item_vectors(model, dataset), dataset)


def encoder_search(encoder: Encoder, dataset: Dataset) -> Search:
    """Search by an encoder alone: dense retrieval, the baseline."""
    return VectorSearch(encoder.encode_queries, encoder.encode_items(dataset.items.texts), dataset)


def encoder_baselines(encoder: Encoder) -> dict[str, Encoder]:
    """What a model must always be compared with, by name: its encoder alone, and the base of an adapted one, which is
    the pretrained encoder, or one that was fine-tuned on the clicks.

    Args:
        encoder: The encoder of a model.
    """
    if isinstance(encoder, Adapted) and encoder.base is not None:
        return {"adapted encoder alone": encoder, _base_name(encoder.base): encoder.base}
    if isinstance(encoder, Pretrained):
        return {_base_name(encoder): encoder}
    return {f"{encoder.kind} encoder alone": encoder}


def _base_name(base: Pretrained) -> str:
    return FINE_TUNED_ENCODER if base.is_trained_here else BARE_ENCODER


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


class VectorSearch:
    """Ranks the items of a data set by inner product, with many items through an index.

    Args:
        encode: Encodes queries.
        vectors: (items, dim) the items.
        dataset: Its test queries are encoded together.
    """

    def __init__(self, encode: QueryEncoder, vectors: Floats, dataset: Dataset):
        self.encode, self.items = encode_test_queries_once(encode, dataset), ArraySearch(vectors)

    @property
    def is_indexed(self) -> bool:
        """Whether items are found through an index."""
        return self.items.is_indexed

    def __call__(self, queries: Sequence[str], k: int, among: Mask | None) -> Rows:
        """See `Search`."""
        return self.items.search(self.encode(queries), k, None if among is None else ~among)[0]

    def measure_recall(self, queries: Sequence[str], among: Mask | None) -> dict[str, float]:
        """Percent of the first 10 and 100 items of an exact search that are found, on a sample of the queries."""
        sample = queries[:: max(1, len(queries) // INDEX_SAMPLE)][:INDEX_SAMPLE]
        found = self(sample, DEPTH, among)
        exact = self.items.compare_all(self.encode(sample), DEPTH, None if among is None else ~among)[0]
        return {
            f"R@{k}": 100.0
            * float(np.mean([np.isin(exact[row, :k], found[row, :k]).mean() for row in range(len(sample))]))
            for k in (10, DEPTH)
        }
