"""What the trainer trains: something with a query side and an item side, given rows, not texts.

`TransformerSides` is a sentence-transformers model, the same for both sides (Siamese); `TowerSides` are the token-bag
towers on frozen embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Rows
from metaxc.encoders.length_batches import batches_by_length, padded
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.encoders.towers import TwoTowers
from metaxc.errors import ModelError

Side = Literal["query", "item"]

CPU_TOKENS, GPU_TOKENS = 1_024, 32_768
"""Tokens of one pass: what a CPU's caches hold, larger ones are slower there; a GPU wants much at once."""


class Sides(Protocol):
    """A trainable encoder over the texts of one data set."""

    @property
    def module(self) -> nn.Module:
        """All that is learnt."""

    @property
    def log_scale(self) -> nn.Parameter:
        """The scale at which cosines become logits, as a logarithm; learnt."""

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        """Over all that is learnt."""

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        """Places in `rows` that are embedded together: what one pass through the model can hold."""

    def cost(self, side: Side, rows: Rows) -> int:
        """Tokens that a graph over these texts holds; 0 where that is not worth counting."""

    def embed(self, side: Side, rows: Rows) -> Tensor:
        """(rows, dim) unit embeddings, with gradients where they are enabled."""


class TransformerSides(nn.Module):
    """A sentence-transformers model that is fine-tuned, one for queries and items.

    Args:
        model: A `SentenceTransformer` whose first module is a transformer.
        tokenizer: Its own, with special tokens, cutting texts to the length to train with.
        queries: Texts of the queries.
        items: Texts of the items.
        scale: Of the logits at the start.
        chunk_tokens: Tokens of one pass with gradients; as the device likes it when None.
        low_precision: Whether matrix products are computed in bfloat16; weights stay float32.
        weight_decay: AdamW's.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: BagTokenizer,
        queries: Sequence[str],
        items: Sequence[str],
        *,
        scale: float = 20.0,
        chunk_tokens: int | None = None,
        low_precision: bool = False,
        weight_decay: float = 0.01,
    ):
        super().__init__()
        if type(model[0]).__name__ != "Transformer":
            raise ModelError(
                "Only transformers can be trained",
                got=type(model[0]).__name__,
                expected="a sentence-transformers folder whose first module is a Transformer",
            )
        self.model = model
        self._log_scale = nn.Parameter(torch.tensor(float(scale)).log())
        self.chunk_tokens, self.low_precision, self.weight_decay = chunk_tokens, low_precision, weight_decay
        self.bags = {"query": tokenizer(queries), "item": tokenizer(items)}
        self.padding = int(getattr(model.tokenizer, "pad_token_id", 0) or 0)

    @property
    def module(self) -> nn.Module:
        return self

    @property
    def log_scale(self) -> nn.Parameter:
        return self._log_scale

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        weights = list(self.model.parameters())
        matrices = [p for p in weights if p.ndim > 1]
        vectors = [p for p in weights if p.ndim <= 1]
        return [
            torch.optim.AdamW(matrices, lr=learning_rate, weight_decay=self.weight_decay),
            torch.optim.Adam(vectors, lr=learning_rate),
            torch.optim.Adam([self._log_scale], lr=learning_rate),
        ]

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        usual = CPU_TOKENS if self._log_scale.device.type == "cpu" else GPU_TOKENS
        return list(batches_by_length(self._lengths(side, rows), self.chunk_tokens or usual))

    def cost(self, side: Side, rows: Rows) -> int:
        return int(self._lengths(side, rows).sum())

    def embed(self, side: Side, rows: Rows) -> Tensor:
        device = self._log_scale.device
        ids, mask = padded(self.bags[side], rows)
        ids[mask == 0] = self.padding
        features = {
            "input_ids": torch.from_numpy(ids).to(device),
            "attention_mask": torch.from_numpy(mask).to(device),
        }
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.low_precision):
            found = self.model(features)["sentence_embedding"]
        unit: Tensor = functional.normalize(found.float(), dim=1)
        return unit

    def _lengths(self, side: Side, rows: Rows) -> Rows:
        starts = self.bags[side].starts
        return starts[rows + 1] - starts[rows]


class TowerSides:
    """Two token-bag towers on frozen embeddings, or alone.

    Args:
        towers: What is trained.
        queries: (queries, dim) frozen embeddings, None for static towers.
        items: (items, dim) frozen embeddings, None for static towers.
        query_bags: Tokens of the queries.
        item_bags: Tokens of the items.
        token_dropout: Share of tokens left out while training.
    """

    def __init__(
        self,
        towers: TwoTowers,
        queries: Floats | None,
        items: Floats | None,
        query_bags: TokenBags,
        item_bags: TokenBags,
        token_dropout: float = 0.0,
    ):
        self.towers, self.token_dropout = towers, token_dropout
        self._of = {
            "query": (towers.query, queries, query_bags),
            "item": (towers.item, items, item_bags),
        }

    @property
    def module(self) -> nn.Module:
        return self.towers

    @property
    def log_scale(self) -> nn.Parameter:
        return self.towers.log_scale

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        tables = [self.towers.query.table, self.towers.item.table]
        rest = [p for p in self.towers.parameters() if all(p is not table for table in tables)]
        return [
            torch.optim.SparseAdam(tables, lr=learning_rate),
            torch.optim.Adam(rest, lr=learning_rate),
        ]

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        return [np.arange(len(rows))]

    def cost(self, side: Side, rows: Rows) -> int:
        return 0

    def embed(self, side: Side, rows: Rows) -> Tensor:
        tower, base, bags = self._of[side]
        x = None if base is None else torch.from_numpy(np.array(base[rows]))
        tokens, offsets = bags.batch(rows)
        kept = None
        if self.towers.training and self.token_dropout:
            kept = (torch.rand(len(tokens)) >= self.token_dropout).float()
        embedded: Tensor = tower(x, tokens, offsets, kept)
        return embedded
