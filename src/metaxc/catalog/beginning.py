"""How a catalog begins: with the items of its model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.records import State
from metaxc.catalog.rows import ItemRow, blob
from metaxc.catalog.schema import ITEMS, QUERIES
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder


def embed_items(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n, dim) float32, also of no text at all."""
    return encoder.encode_items(texts) if len(texts) else np.empty((0, encoder.dim), np.float32)


def embed_queries(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """(n, dim) float32, also of no text at all."""
    return encoder.encode_queries(texts) if len(texts) else np.empty((0, encoder.dim), np.float32)


def take_in(store: Store, model: Emmett, queries: Sequence[str]) -> None:
    """The model's items, with the vectors that they have, and known queries, in one transaction."""
    embeddings = np.empty((len(model.items), model.encoder.dim), np.float32)
    embeddings[model.observed] = model.embeddings
    novel = np.flatnonzero(model.novel)
    embeddings[novel] = embed_items(model.encoder, [model.items.texts[row] for row in novel.tolist()])
    known = list(dict.fromkeys(query for query in queries if query.strip()))
    now = time.time()
    with store.writing() as change:
        for row, (name, text) in enumerate(zip(model.items.ids, model.items.texts, strict=True)):
            trained = not model.novel[row]
            state: State = "observed" if trained else "novel"
            born = ItemRow.born(
                row + 1, name, text, (), now, change.sequence, embeddings[row], model.vectors[row]
            )
            change.put(ITEMS, replace(born, state=state, trained=trained).values())
        for number, (query, embedding) in enumerate(
            zip(known, embed_queries(model.encoder, known), strict=True), 1
        ):
            change.put(QUERIES, (number, query, blob(embedding)))
