"""Training the two towers on clicks: a minute or two on two cores where fine-tuning takes hours."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor
from tqdm import tqdm

from metaxc.encoders.tokens import TokenBags
from metaxc.encoders.towers import Tower, TwoTowers, contrastive_loss

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

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
    random = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
    popularity = config.popularity * torch.from_numpy(np.log(np.maximum(counts, 1)).astype(np.float32))
    batch = min(config.batch, clicks.shape[0])
    steps_per_epoch = max(1, clicks.shape[0] // batch)
    steps = min(steps_per_epoch * config.epochs, config.most_steps)
    tables = [towers.query.table, towers.item.table]
    rest = [p for p in towers.parameters() if all(p is not table for table in tables)]
    optimizers = [
        torch.optim.SparseAdam(tables, lr=config.learning_rate),
        torch.optim.Adam(rest, lr=config.learning_rate),
    ]

    def embed(tower: Tower, base: Floats | None, bags: TokenBags, rows: Rows) -> Tensor:
        x = None if base is None else torch.from_numpy(base[rows])
        tokens, offsets = bags.batch(rows)
        kept = (torch.rand(len(tokens), generator=generator) >= config.token_dropout).float()
        embedded: Tensor = tower(x, tokens, offsets, kept)
        return embedded

    towers.train()
    with tqdm(total=steps, desc=label, unit="step", disable=None, leave=False) as bar:
        for step in range(steps):
            if step % steps_per_epoch == 0:
                order = random.permutation(clicks.shape[0])
            place = (step % steps_per_epoch) * batch
            query_rows = order[place : place + batch]
            item_rows = one_click_each(clicks, query_rows, random)
            loss = contrastive_loss(
                embed(towers.query, queries, query_bags, query_rows),
                embed(towers.item, items, item_bags, item_rows),
                towers.log_scale.exp(),
                clicked_pairs(clicks, query_rows, item_rows),
                popularity[item_rows],
            )
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - step / steps)
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            towers.losses.append(loss.item())
            bar.update()
    return towers.eval()


def embed_with(tower: Tower, base: Floats | None, bags: TokenBags) -> Floats:
    """(texts, dim) unit float32: a trained tower over all its texts, in blocks."""
    out = np.empty((len(bags), tower.table.shape[1]), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(bags), EMBED_BLOCK):
            rows = np.arange(start, min(start + EMBED_BLOCK, len(bags)))
            x = None if base is None else torch.from_numpy(np.array(base[rows]))
            out[rows] = tower(x, *bags.batch(rows)).numpy()
    return out


def one_click_each(clicks: csr_array, rows: Rows, random: np.random.Generator) -> Rows:
    """One clicked item of each query at `rows`, at random."""
    starts, ends = clicks.indptr[rows], clicks.indptr[rows + 1]
    places = starts + (random.random(len(rows)) * (ends - starts)).astype(np.int64)
    return clicks.indices[places].astype(np.int64)


def clicked_pairs(clicks: csr_array, query_rows: Rows, item_rows: Rows) -> Tensor:
    """(queries, items) bool: which query of a batch clicked which item of it."""
    distinct, column_of = np.unique(item_rows, return_inverse=True)
    part = clicks[query_rows]
    column = np.searchsorted(distinct, part.indices).clip(max=len(distinct) - 1)
    hit = distinct[column] == part.indices
    row = np.repeat(np.arange(len(query_rows)), np.diff(part.indptr))
    mask = np.zeros((len(query_rows), len(distinct)), dtype=bool)
    mask[row[hit], column[hit]] = True
    return torch.from_numpy(mask[:, column_of])
