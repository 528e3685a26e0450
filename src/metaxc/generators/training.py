"""Training a generator: observed items play novel ones.

Each observed item is represented from its neighbours' classifiers, never its own, and judged by its own
clicks. A batch is a set of *items* with a few of their queries each, so the cost grows with the items and
not with the clicks. The items of a batch come in clusters of near neighbours, drawn anew each epoch, so
its negatives are hard; every true pair of the batch counts as a positive, always.

The classifiers are frozen. Training them too (`train_classifiers`) is there as an ablation: the paper's bound grows
with what is trained, and says that novel items suffer. Where it was measured it made no difference (docs/results.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from metaxc.data.clicks import clicked_pairs, one_click_each
from metaxc.encoders.training.batches import clustered_order
from metaxc.generators.base import TorchGenerator

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class GeneratorTraining(BaseModel):
    """How a generator is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(4, ge=0, description="passes over the observed items; 0 leaves the start as it is")
    batch: int = Field(512, ge=2, description="items per step")
    queries_per_item: int = Field(2, ge=1, description="clicked queries drawn per item and step")
    cluster: int = Field(32, ge=1, description="near neighbours that share a batch")
    learning_rate: float = Field(5e-4, gt=0, description="Adam's, falling linearly to 0")
    positive_weight: float = Field(4.0, gt=0, description="C: what a missed click costs against a false one")
    scale: float = Field(20.0, gt=0, description="of the logits at the start; learnt")
    train_classifiers: bool = Field(False, description="update the neighbours' classifiers too; an ablation")


class TrainedGenerator(NamedTuple):
    """A trained generator, the (observed, dim) classifiers it is to be given (those it was trained on, or what
    training made of them), and the loss of every step."""

    generator: TorchGenerator
    classifiers: Floats
    losses: list[float]


def train_generator(
    generator: TorchGenerator,
    queries: Floats,
    embeddings: Floats,
    clicks: csr_array,
    classifiers: Floats,
    neighbours: Rows,
    scores: Floats,
    config: GeneratorTraining,
    *,
    seed: int = 0,
) -> TrainedGenerator:
    """Train `generator` in place, and return it with the classifiers it works on.

    Args:
        generator: What to train; the combine and the sum have nothing to learn and come back as they are.
        queries: (queries, dim).
        embeddings: (observed, dim) the items' embeddings.
        clicks: (queries, observed).
        classifiers: (observed, dim); never changed in place.
        neighbours: (observed, K) rows, the item itself excluded.
        scores: (observed, K) similarities, by the same selector as in serving.
        config: How.
        seed: Of clusters, order and choice of queries.
    """
    learns = bool(list(generator.parameters())) or config.train_classifiers
    if not learns or config.epochs == 0:
        return TrainedGenerator(generator.eval(), classifiers, [])
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)  # dropout draws from the global generator
    by_item = csr_array(clicks.T.tocsr())
    by_item.sort_indices()
    clicked_items = np.flatnonzero(np.diff(by_item.indptr) > 0)
    batch = min(config.batch, len(clicked_items))
    per_epoch = max(1, len(clicked_items) // batch)
    steps = per_epoch * config.epochs
    log_scale = nn.Parameter(torch.tensor(config.scale).log())
    bias = nn.Parameter(torch.tensor(-config.scale / 2))
    weights = nn.Parameter(torch.from_numpy(classifiers.copy()), requires_grad=config.train_classifiers)
    learnt = [*generator.parameters(), log_scale, bias, *([weights] if config.train_classifiers else [])]
    optimizer = torch.optim.Adam(learnt, lr=config.learning_rate)
    generator.train()
    losses = []
    with tqdm(total=steps, desc="train the generator", unit="step", disable=None, leave=False) as bar:
        for step in range(steps):
            if step % per_epoch == 0:
                order = clicked_items[clustered_order(embeddings[clicked_items], config.cluster, random)]
            rows = order[(step % per_epoch) * batch :][:batch]
            drawn = [one_click_each(by_item, rows, random) for _ in range(config.queries_per_item)]
            query_rows = np.unique(np.concatenate(drawn))
            made = generator(
                torch.from_numpy(embeddings[rows]),
                _gathered(weights, torch.from_numpy(neighbours[rows])),
                torch.from_numpy(scores[rows]),
            )
            logits = log_scale.exp() * (torch.from_numpy(np.array(queries[query_rows])) @ made.T) + bias
            loss = weighted_cross_entropy(
                logits, torch.from_numpy(clicked_pairs(clicks, query_rows, rows)), config.positive_weight
            )
            optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - step / steps)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(loss.item())
            bar.update()
    kept = weights.detach().numpy() if config.train_classifiers else classifiers
    return TrainedGenerator(generator.eval(), kept, losses)


def _gathered(classifiers: Tensor, rows: Tensor) -> Tensor:
    """`metaxc.generators.base.gather`, through which gradients flow."""
    return classifiers[rows.clamp(min=0)] * (rows >= 0).unsqueeze(2)


def weighted_cross_entropy(logits: Tensor, clicked: Tensor, positive_weight: float) -> Tensor:
    """Binary cross-entropy summed over items and averaged over queries, clicks weighted by C.

    Args:
        logits: (queries, items).
        clicked: (queries, items) bool; every true pair is a positive.
        positive_weight: C.
    """
    weight = torch.tensor(positive_weight)
    total = functional.binary_cross_entropy_with_logits(
        logits, clicked.float(), pos_weight=weight, reduction="sum"
    )
    return total / len(logits)
