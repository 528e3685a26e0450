"""An encoder as training sees it: what it may learn from, and all texts embedded by the result.

`Encoding.learn` is called twice by a training run, once on a fold without the pseudo-novel items (to choose
constants by) and once on all observed items. What does not depend on the clicks, the frozen embeddings and
the tokens, is computed once.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.data import Dataset
from metaxc.encoders.adapted import Adapted, Static, static_towers
from metaxc.encoders.adapter import AdapterConfig, embed_with, train_towers
from metaxc.encoders.base import Encoder
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.towers import TwoTowers

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class Encoding(Protocol):
    """Learns an encoder from a part of the clicks, and embeds everything with it."""

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        """An encoder that has seen these training queries, items and clicks (query_rows × item_rows) only."""

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        """(query_rows, dim) training queries and (items, dim) all items by an encoder from `learn`."""


class FixedEncoding:
    """An encoder that learns nothing: pretrained, or the user's own.

    Args:
        encoder: The encoder.
        dataset: Whose training queries and items are embedded.
    """

    def __init__(self, encoder: Encoder, dataset: Dataset):
        self.encoder = encoder
        self.queries = encoder.encode_queries(dataset.train.queries.texts)
        self.items = encoder.encode_items(dataset.items.texts)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        return self.encoder

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        return self.queries[query_rows], np.asarray(self.items)


class TowerEncoding:
    """Token-bag towers on a frozen encoder, or alone (`static`).

    Args:
        base: The frozen encoder, or where the static towers take their tokens and first vectors from.
        dataset: Whose training queries and items are embedded.
        config: How the towers are trained.
        static: Whether the towers stand alone.
    """

    def __init__(self, base: Pretrained, dataset: Dataset, config: AdapterConfig, *, static: bool = False):
        self.base, self.config, self.static = base, config, static
        self.tokenizer = BagTokenizer(base.tokenizer_file)
        self.queries = None if static else base.encode_queries(dataset.train.queries.texts)
        self.items = None if static else base.encode_items(dataset.items.texts)
        self.query_bags = self.tokenizer(dataset.train.queries.texts)
        self.item_bags = self.tokenizer(dataset.items.texts)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        torch.manual_seed(seed)
        if self.static:
            towers = static_towers(self.base, self.tokenizer.vocabulary, self.config.scale)
        else:
            towers = TwoTowers(self.tokenizer.vocabulary, self.base.dim, scale=self.config.scale)
        train_towers(
            None if self.queries is None else self.queries[query_rows],
            None if self.items is None else self.items[item_rows],
            self.query_bags.take(query_rows),
            self.item_bags.take(item_rows),
            clicks,
            self.config,
            towers=towers,
            seed=seed,
        )
        if self.static:
            return Static(None, towers, self.tokenizer)
        return Adapted(self.base, towers, self.tokenizer)

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        assert isinstance(encoder, Adapted)
        queries = None if self.queries is None else self.queries[query_rows]
        return (
            embed_with(encoder.towers.query, queries, self.query_bags.take(query_rows)),
            embed_with(encoder.towers.item, self.items, self.item_bags),
        )
