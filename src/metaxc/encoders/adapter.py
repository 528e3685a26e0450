"""Training the two towers on clicks: a minute or two on two cores where fine-tuning takes hours."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.encoders.tokens import TokenBags
from metaxc.encoders.towers import Tower, TwoTowers
from metaxc.encoders.training.batches import Batches, ClusteredBatches, RandomBatches
from metaxc.encoders.training.negatives import IndexNegatives
from metaxc.encoders.training.sides import TowerSides
from metaxc.encoders.training.trainer import TrainingConfig, embed_all, train

EMBED_BLOCK = 4_096


class AdapterConfig(BaseModel):
    """How the towers are trained; why so, in docs/decisions.md. The cap on steps is set for time, not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(5, ge=1, description="passes over the queries, one clicked item per query and pass")
    most_steps: int = Field(800, ge=1, description="no more than this many steps, however many queries")
    batch: int = Field(1024, ge=2, description="pairs per step; every other item of the batch is a negative")
    learning_rate: float = Field(2e-3, gt=0, description="Adam's, falling linearly to 0")
    popularity: float = Field(
        0.75, ge=0, le=1, description="how much of log(clicks) an item is excused for when it is a negative"
    )
    scale: float = Field(12.0, gt=0, description="of the logits at the start; learnt")
    token_dropout: float = Field(0.1, ge=0, lt=1, description="share of tokens left out while training")
    clustered: bool = Field(False, description="near queries share a batch, as in NGAME")
    mined: bool = Field(
        False, description="hard negatives from an index refreshed while training, as in ANCE"
    )


def train_towers(
    queries: Floats | None,
    items: Floats | None,
    query_bags: TokenBags,
    item_bags: TokenBags,
    clicks: csr_array,
    config: AdapterConfig,
    *,
    towers: TwoTowers,
    seed: int = 0,
    label: str = "adapt the encoder",
) -> TwoTowers:
    """Train `towers` in place on the clicks given, and return them.

    Args:
        queries: (queries, dim) frozen embeddings, None for static towers.
        items: (items, dim) frozen embeddings, None for static towers.
        query_bags: Tokens of the queries.
        item_bags: Tokens of the items.
        clicks: (queries, items); every query has at least one click.
        config: How.
        towers: What to train.
        seed: Of the order, the choice among a query's clicks, and the dropout.
        label: What the progress bar says.
    """
    sides = TowerSides(towers, queries, items, query_bags, item_bags, config.token_dropout)
    number = clicks.shape[0]
    per_epoch = max(1, number // min(config.batch, number))
    steps = min(per_epoch * config.epochs, config.most_steps)
    batches: Batches = RandomBatches(number, config.batch, seed)
    if config.clustered:
        batches = ClusteredBatches(
            embed_all(sides, "query", number), config.batch, steps, refresh=max(1, steps // 10), seed=seed
        )
    negatives = None
    if config.mined:
        negatives = IndexNegatives(
            embed_all(sides, "item", clicks.shape[1]), clicks, refresh=max(1, steps // 10), seed=seed
        )
    how = TrainingConfig(steps=steps, learning_rate=config.learning_rate, popularity=config.popularity)
    towers.losses += train(sides, clicks, batches, how, negatives=negatives, seed=seed, label=label).losses
    return towers


def embed_with(tower: Tower, base: Floats | None, bags: TokenBags) -> Floats:
    """(texts, dim) unit float32: a trained tower over all its texts, in blocks."""
    out = np.empty((len(bags), tower.table.shape[1]), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(bags), EMBED_BLOCK):
            rows = np.arange(start, min(start + EMBED_BLOCK, len(bags)))
            x = None if base is None else torch.from_numpy(np.array(base[rows]))
            out[rows] = tower(x, *bags.batch(rows)).numpy()
    return out
