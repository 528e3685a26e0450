"""The query tower of an encoder trained alone, against item vectors that stay as they are.

The loss, the batches and the loop are those of the adapter (`metaxc.encoders.learning`). What differs: items are given
as vectors and learn nothing, and queries are scored as they are served, with their last coordinate, the exposure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Rows
from metaxc.encoders.adapted import Adapted, Tower, TwoTowers
from metaxc.encoders.training import AdapterConfig, TrainingConfig
from metaxc.encoders.training.batches import RandomBatches
from metaxc.encoders.training.trainer import Side, train


class QueryTexts:
    """Queries as a tower reads them: frozen embeddings and tokens, computed once for every tower.

    Args:
        encoder: Its base and its tokenizer read the texts.
        texts: The queries.
    """

    def __init__(self, encoder: Adapted, texts: Sequence[str]):
        self.base = None if encoder.base is None else encoder.base.encode_queries(texts)
        self.bags = encoder.tokenizer(texts)

    def __len__(self) -> int:
        return len(self.bags)

    def embed(self, encoder: Adapted) -> Floats:
        """(queries, dim) float32: what `encoder.encode_queries` returns for the texts."""
        return encoder.towers.query.embed(self.base, self.bags)


class FixedItems:
    """A query tower that learns and items that do not, for the trainer.

    Args:
        tower: What is trained.
        log_scale: Start value of the logarithm of the scale that multiplies scores to give logits; learnt.
        queries: The queries to train on.
        rows: (n,) the queries among them that the trainer's rows mean.
        items: (items, dim + 1) float32 vectors.
        exposure: The last coordinate of every query; as it is served it differs a little from query to query.
        query_layer: What queries go through before they are scored (`metaxc.classifiers.Classifiers.query_function`);
            None for nothing.
        token_dropout: Share of the tokens left out while training.
    """

    def __init__(
        self,
        tower: Tower,
        log_scale: float,
        queries: QueryTexts,
        rows: Rows,
        items: Floats,
        *,
        exposure: float = 0.0,
        query_layer: Callable[[Tensor], Tensor] | None = None,
        token_dropout: float = 0.0,
    ):
        # torch warns of arrays that cannot be written to, such as those of a memory-mapped file.
        self.items = torch.from_numpy(np.require(items, np.float32, "W"))
        self.queries, self.rows = queries, rows
        self.exposure, self.token_dropout = exposure, token_dropout
        self.query_layer = query_layer
        self._module = nn.Module()
        self._module.tower = tower
        self._module.log_scale = nn.Parameter(torch.tensor(log_scale))
        self.tower = tower

    @property
    def module(self) -> nn.Module:
        return self._module

    @property
    def log_scale(self) -> nn.Parameter:
        scale = self._module.log_scale
        assert isinstance(scale, nn.Parameter)
        return scale

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        others = [one for one in self._module.parameters() if one is not self.tower.table]
        return [
            torch.optim.SparseAdam([self.tower.table], lr=learning_rate),
            torch.optim.Adam(others, lr=learning_rate),
        ]

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        return [np.arange(len(rows))]

    def cost(self, side: Side, rows: Rows) -> int:
        return 0

    def embed(self, side: Side, rows: Rows) -> Tensor:
        if side == "item":
            return self.items[torch.from_numpy(rows)]
        asked, base = self.rows[rows], self.queries.base
        x = None if base is None else torch.from_numpy(np.array(base[asked]))
        tokens, offsets = self.queries.bags.batch(asked)
        kept = None
        if self.tower.training and self.token_dropout:
            kept = (torch.rand(len(tokens)) >= self.token_dropout).float()
        embedded: Tensor = self.tower(x, tokens, offsets, kept)
        if self.query_layer is not None:
            embedded = self.query_layer(embedded)
        return functional.pad(embedded, (0, 1), value=self.exposure)


def train_query_tower(
    encoder: Adapted,
    queries: QueryTexts,
    rows: Rows,
    items: Floats,
    clicks: csr_array,
    config: AdapterConfig,
    *,
    exposure: float = 0.0,
    query_layer: Callable[[Tensor], Tensor] | None = None,
    seed: int = 0,
) -> Adapted:
    """An encoder with another query tower, trained from the present one; the given encoder does not change.

    Args:
        encoder: The encoder to start from.
        queries: The queries.
        rows: (n,) the queries to train on.
        items: (items, dim + 1) float32 vectors, which stay as they are.
        clicks: (n, items); every row has a click.
        config: How to train; its extent, clusters and mined negatives are not used.
        exposure: The last coordinate of every query; as it is served it differs a little from query to query.
        query_layer: As in `FixedItems`.
        seed: Decides the order of the queries, the choice among a query's clicks, and the dropout.
    """
    towers = encoder.towers
    # The towers' scale was learnt for items of unit length, which these vectors do not have.
    length = float(np.linalg.norm(items[:, :-1], axis=1).mean())
    log_scale = towers.log_scale.item() - float(np.log(max(length, 1e-6)))
    learner = FixedItems(
        deepcopy(towers.query),
        log_scale,
        queries,
        rows,
        items,
        exposure=exposure,
        query_layer=query_layer,
        token_dropout=config.token_dropout,
    )
    trainer_config = TrainingConfig(
        steps=config.steps(len(rows)),
        learning_rate=config.learning_rate,
        logq_correction=config.logq_correction,
    )
    batches = RandomBatches(len(rows), config.batch, seed)
    history = train(learner, clicks, batches, trainer_config, seed=seed, label="train the query tower")
    return _with_query_tower(encoder, learner.tower, history.losses)


def blend_query_towers(before: Adapted, after: Adapted, extent: float) -> Adapted:
    """An encoder whose query tower is on the way from one to the other: 0 is `before` itself, 1 is `after`."""
    if extent in (0.0, 1.0):
        return after if extent else before
    tower, learnt = deepcopy(before.towers.query), after.towers.query.state_dict()
    with torch.no_grad():
        for name, weights in tower.state_dict().items():
            weights.lerp_(learnt[name], extent)
    return _with_query_tower(before, tower, after.towers.losses)


def _with_query_tower(encoder: Adapted, tower: Tower, losses: list[float]) -> Adapted:
    """An encoder of the same kind, with the same item tower and another query tower."""
    old = encoder.towers
    towers = TwoTowers(0, encoder.dim, base=encoder.base is not None)
    towers.query, towers.item, towers.log_scale = tower, old.item, old.log_scale
    towers.losses = losses
    return type(encoder)(encoder.base, towers, encoder.tokenizer)
