"""The vectors that belong to an exported data set, for models that are trained on your own vectors."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.schema import decode_vector, decode_vectors
from metaxc.data.dataset import Dataset
from metaxc.data.same_texts import normalise_text
from metaxc.encoders.vectors import read_vectors
from metaxc.errors import DataError


def collect_vectors(
    connection: sqlite3.Connection, dataset: Dataset, training: Dataset | None, folder: Path | None
) -> tuple[Floats, Floats] | None:
    """(items, dim) and (queries, dim) float32 vectors of an exported data set, in the order of its texts; None where
    the training data have no vectors.

    The vector of a query is that of its newest click, or else that of the training data.

    Args:
        connection: Sees the state of the catalog that was exported.
        dataset: The exported data set, its items in the order of their keys.
        training: The training data, whose queries are among those of the data set.
        folder: The folder of the training data.
    """
    [dim] = connection.execute("SELECT length(embedding) / 4 FROM items LIMIT 1").fetchone()
    by_text: dict[str, Floats] = {}
    if training is not None and folder is not None:
        try:
            vectors = read_vectors(folder, training)
        except DataError:
            return None
        texts = training.train.queries.texts
        by_text = {
            normalise_text(text): vector
            for text, vector in zip(texts, vectors.encode_queries(texts), strict=True)
        }
    for query, embedding in connection.execute("SELECT query, embedding FROM clicks ORDER BY number"):
        by_text[normalise_text(query)] = decode_vector(embedding)
    items = decode_vectors(
        (row[0] for row in connection.execute("SELECT embedding FROM items ORDER BY key")), dim
    )
    queries = [by_text[normalise_text(text)] for text in dataset.train.queries.texts]
    return items, np.stack(queries)
