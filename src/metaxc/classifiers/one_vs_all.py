"""Trained one-vs-all classifiers: binary cross-entropy of every item against every query, as in the paper.

Up to `ALL_ITEMS` items, each step scores its queries against all of them. Above that it scores the clicked items of the
batch and hard negatives mined for its queries: the items that the classifiers ranked highest at the beginning of the
epoch, some random items, and the items clicked by the rest of the batch.
"""

from __future__ import annotations

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Rows
from metaxc.classifiers.classifiers import Classifiers, check_training, normalize_rows, ridge
from metaxc.devices import current_device, to_array, to_device
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
from metaxc.training_loop import run_training, shuffled_batches

ALL_ITEMS = 50_000
"""512 queries × 50,000 items are 100 MiB of logits: the most that a step on a laptop should hold."""


class OneVsAllConfig(BaseModel):
    """How one-vs-all classifiers are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(4, ge=1, description="passes over the queries")
    batch: int = Field(512, ge=1, description="queries per step")
    learning_rate: float = Field(2e-3, gt=0, description="Adam's learning rate, decaying linearly to 0")
    scale: float = Field(
        20.0, gt=0, description="multiplies the cosine similarities to give logits; learnt from here"
    )
    query_layer: bool = Field(True, description="train one residual layer over the query embeddings too")
    mined: int = Field(20, ge=1, description="hard negatives per query, where not all items are scored")
    all_items: int = Field(ALL_ITEMS, ge=0, description="score all items up to this many")


def one_vs_all(
    queries: Floats,
    clicks: csr_array,
    config: OneVsAllConfig | None = None,
    *,
    start: Classifiers | None = None,
    seed: int = 0,
) -> Classifiers:
    """Classifiers trained by binary cross-entropy, warm-started from `start` (ridge when None).

    Args:
        queries: (queries, dim) float32.
        clicks: (queries, observed) weights; each click counts by its weight in the loss.
        config: How they are trained.
        start: The classifiers to start from.
        seed: Draws the order and the random negatives.
    """
    check_training(queries, clicks)
    config = config or OneVsAllConfig()
    random = np.random.default_rng(seed)
    start = start or ridge(queries, clicks)
    items = clicks.shape[1]
    dense = items <= config.all_items
    device = current_device()
    weights = nn.Embedding(items, queries.shape[1], sparse=not dense, device=device)
    weights.weight.data.copy_(torch.from_numpy(start.weights))
    layer = nn.Parameter(torch.zeros(queries.shape[1], queries.shape[1], device=device))
    # The bias starts at the log-odds of a click, so that the first steps do not spend themselves on it.
    share = max(clicks.nnz / (clicks.shape[0] * items), 1e-9)
    bias = nn.Parameter(torch.tensor(float(np.log(share)) - 2.0, device=device))
    log_scale = nn.Parameter(torch.tensor(config.scale, device=device).log())
    rest = [bias, log_scale, *([layer] if config.query_layer else [])]
    optimizers = [
        torch.optim.Adam(rest, lr=config.learning_rate),
        torch.optim.Adam(weights.parameters(), lr=config.learning_rate)
        if dense
        else torch.optim.SparseAdam(list(weights.parameters()), lr=config.learning_rate),
    ]
    per_epoch = -(-len(queries) // config.batch)
    batches = shuffled_batches(len(queries), config.batch, random, keep_last=True)
    mined: Rows | None = None

    def compute_loss(step: int) -> Tensor:
        nonlocal mined
        rows = next(batches)
        if not dense and step % per_epoch == 0:
            mined = _mine(queries, weights, layer, config)
        x = to_device(np.array(queries[rows]), device)
        x = functional.normalize(x + x @ layer, dim=1) if config.query_layer else x
        columns = None if mined is None else _candidates(clicks, rows, mined, random)
        w = weights.weight if columns is None else weights(to_device(columns, device))
        logits = log_scale.exp() * (x @ w.T) + bias
        clicked, weight = _targets(clicks, rows, columns, device)
        return functional.binary_cross_entropy_with_logits(logits, clicked, weight, reduction="sum") / len(
            rows
        )

    run_training(compute_loss, optimizers, per_epoch * config.epochs, label="train classifiers")
    trained = normalize_rows(to_array(weights.weight))
    return Classifiers(trained, start.clicks, to_array(layer) if config.query_layer else None)


def _targets(
    clicks: csr_array, rows: Rows, columns: Rows | None, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """(rows, columns) float32, 1 for a click; and the weight of each pair in the loss: that of the click, 1 for a pair
    that was not clicked, None where all are 1."""
    part = clicks[rows]
    if columns is not None:
        part = part[:, columns]
    weights = to_device(part.toarray(), device)
    if (part.data == 1).all():
        return weights, None
    return (weights > 0).float(), torch.where(weights > 0, weights, 1.0)


def _candidates(clicks: csr_array, rows: Rows, mined: Rows, random: np.random.Generator) -> Rows:
    """The distinct items a batch is scored against: its clicks, its mined negatives, as many at random."""
    some = random.integers(0, clicks.shape[1], size=len(rows))
    return np.unique(np.concatenate([clicks[rows].indices, mined[rows].ravel(), some])).astype(np.int64)


def _mine(queries: Floats, weights: nn.Embedding, layer: torch.Tensor, config: OneVsAllConfig) -> Rows:
    current = to_array(weights.weight)
    x = np.asarray(queries)
    if config.query_layer:
        x = normalize_rows(x + x @ to_array(layer))
    search = ArraySearch(current, most_scanned=MOST_SCANNED)
    return search.search(x, min(config.mined, len(current)))[0]
