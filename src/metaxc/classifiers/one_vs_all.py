"""Trained one-vs-all classifiers: binary cross-entropy of every item against every query, as in the paper.

Up to `OneVsAllConfig.all_items` items, each step scores its queries against all of them. Above that it scores the
clicked items of the batch, random items, and hard negatives: the items that the classifiers ranked highest for its
queries at the beginning of the epoch (`mined`), or the items clicked by near queries, which then share a batch
(`cluster`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count as count_up
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from metaxc.arrays import Floats, Rows
from metaxc.classifiers.classifiers import Classifiers, check_training, normalize_rows, ridge
from metaxc.classifiers.query_layers import QueryTransformer, apply_linear
from metaxc.data.clicks import clicks_per_item
from metaxc.devices import current_device, to_array, to_device
from metaxc.encoders.training.batches import ClusteredBatches, sketch
from metaxc.index.array_search import MOST_SCANNED, ArraySearch
from metaxc.index.topk import top_k
from metaxc.metrics import mean_precision_and_recall
from metaxc.training_loop import (
    AdamWConfig,
    BestWeights,
    EarlyStopping,
    make_adamw,
    plan_steps,
    run_training,
    shuffled_batches,
)

ALL_ITEMS = 50_000
"""512 queries × 50,000 items are 100 MiB of logits: the most that a step on a laptop should hold."""

FEWEST_HELD_OUT = 20
"""Held-out queries below which nothing can be validated."""

DEPTH = 10
"""Results per held-out query that count."""


class OneVsAllConfig(BaseModel):
    """How one-vs-all classifiers are trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(4, ge=1, description="passes over the queries")
    most_steps: int | None = Field(
        None, ge=1, description="no more than this many steps, however many queries; None for no limit"
    )
    batch: int = Field(512, ge=1, description="queries per step")
    learning_rate: float = Field(2e-3, gt=0, description="learning rate, decaying linearly to 0")
    scale: float = Field(20.0, gt=0, description="multiplies the scores to give logits; learnt from here")
    query_layer: Literal["none", "linear", "transformer"] = Field(
        "linear",
        description="trained over the query embeddings too: a residual linear layer, or one transformer layer (the "
        "paper)",
    )
    keep_length: bool = Field(
        False,
        description="classifiers keep the length that training gave them (the paper) and start at zero; otherwise they "
        "start at ridge classifiers and end at unit length",
    )
    mined: int = Field(20, ge=0, description="hard negatives per query, where not all items are scored")
    sampled: int | None = Field(
        None,
        ge=0,
        description="random items of a step, where not all items are scored; as many as queries if not given",
    )
    all_items: int = Field(ALL_ITEMS, ge=0, description="score all items up to this many")
    cluster: int = Field(
        1, ge=1, description="near queries that share a batch at the end of training; 1 for random batches"
    )
    adamw: AdamWConfig | None = Field(None, description="train by AdamW; by Adam if not given")
    early_stopping: EarlyStopping | None = Field(
        None,
        description="validate on held-out queries and keep the best weights; if not given, keep the last",
    )


def one_vs_all(
    queries: Floats,
    clicks: csr_array,
    config: OneVsAllConfig | None = None,
    *,
    start: Classifiers | None = None,
    seed: int = 0,
) -> Classifiers:
    """Classifiers trained by binary cross-entropy, starting at `start`.

    Args:
        queries: (queries, dim) float32.
        clicks: (queries, observed) weights; each click counts by its weight in the loss.
        config: How they are trained.
        start: The classifiers to start from; None for what the configuration says.
        seed: Draws the order, the random negatives and the held-out queries.
    """
    check_training(queries, clicks)
    config = config or OneVsAllConfig()
    if start is None and config.keep_length:
        start = Classifiers(
            np.zeros((clicks.shape[1], queries.shape[1]), np.float32), clicks_per_item(clicks)
        )
    start = start or ridge(queries, clicks)
    return _Training(queries, clicks, config, start, seed).run()


class _Training:
    """What is trained, and how it is scored, validated and taken along."""

    def __init__(
        self, queries: Floats, clicks: csr_array, config: OneVsAllConfig, start: Classifiers, seed: int
    ):
        self.queries, self.clicks, self.config, self.start, self.seed = queries, clicks, config, start, seed
        self.random = np.random.default_rng(seed)
        self.device = current_device()
        items, dim = clicks.shape[1], queries.shape[1]
        self.dense = items <= config.all_items
        self.weights = nn.Embedding(items, dim, sparse=not self.dense, device=self.device)
        self.weights.weight.data.copy_(torch.from_numpy(start.weights))
        self.linear = nn.Parameter(torch.zeros(dim, dim, device=self.device))
        self.transformer: QueryTransformer | None = None
        if config.query_layer == "transformer":
            torch.manual_seed(seed)  # the hidden layer and the dropout draw from the global generator
            self.transformer = QueryTransformer(dim).to(self.device)
        self.bias = nn.Parameter(torch.tensor(self._starting_bias(), device=self.device))
        self.log_scale = nn.Parameter(torch.tensor(config.scale, device=self.device).log())
        held = np.empty(0, np.int64)
        if config.early_stopping is not None:
            held = _hold_out(clicks, config.early_stopping, seed)
        self.held = held
        self.rows = np.setdiff1d(np.arange(len(queries)), held)
        self.mined: Rows | None = None
        self.columns: Rows | None = None

    def _starting_bias(self) -> float:
        """The log-odds of a click, so that the first steps do not spend themselves on it; a little less where the
        classifiers start at ridge classifiers, which give most pairs a positive score."""
        queries, items = self.clicks.shape
        if not self.config.keep_length:
            return float(np.log(max(self.clicks.nnz / (queries * items), 1e-9))) - 2.0
        per_query = self.clicks.nnz / max(queries, 1)
        scored = items if self.dense else min(items, self.config.batch * per_query + self._sampled)
        share = min(max(per_query / max(scored, 1), 1e-9), 0.5)
        return float(np.log(share / (1 - share)))

    @property
    def _sampled(self) -> int:
        return self.config.batch if self.config.sampled is None else self.config.sampled

    @property
    def _layer(self) -> list[nn.Parameter]:
        """The parameters of the query layer."""
        if self.transformer is not None:
            return list(self.transformer.parameters())
        return [self.linear] if self.config.query_layer == "linear" else []

    def run(self) -> Classifiers:
        """Train, and return the classifiers."""
        config = self.config
        per_epoch = -(-len(self.rows) // config.batch)
        steps = plan_steps(per_epoch, config.epochs, config.most_steps, config.early_stopping)
        batches = self._batches(steps)
        best = None
        learnt = [self.bias, self.log_scale, *self._layer, self.weights.weight]
        if config.early_stopping is not None and len(self.held):
            best = BestWeights(learnt, self._validate, steps, config.early_stopping)
        optimizers = self._optimizers()

        def compute_loss(step: int) -> Tensor:
            if config.mined and not self.dense and step % per_epoch == 0:
                self.mined = _mine(self._transform_all, self.weights, config.mined)
            return self._loss(next(batches))

        def after_step(done: int, loss: float) -> bool:
            self._decay_sparse(optimizers)
            return best is not None and best.after_step(done, loss)

        run_training(
            compute_loss,
            optimizers,
            steps,
            label="train classifiers",
            warmup=0.0 if config.adamw is None else config.adamw.warmup,
            after_backward=self._clip,
            after_step=after_step,
        )
        if best is not None:
            best.restore()
        return self._classifiers()

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        rate, adamw = self.config.learning_rate, self.config.adamw
        rest = [self.bias, self.log_scale, *self._layer]
        weights = list(self.weights.parameters())
        if not self.dense:
            return [
                torch.optim.Adam(rest, lr=rate) if adamw is None else make_adamw(rest, rate, adamw),
                torch.optim.SparseAdam(weights, lr=rate),
            ]
        if adamw is not None:
            return [make_adamw([*rest, *weights], rate, adamw)]
        return [torch.optim.Adam(rest, lr=rate), torch.optim.Adam(weights, lr=rate)]

    def _clip(self) -> None:
        if self.config.adamw is not None:
            most = self.config.adamw.largest_gradient
            clip_grad_norm_([self.bias, self.log_scale, *self._layer], most)

    def _decay_sparse(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """Decay the classifiers that the step has touched: torch has no AdamW for a few rows of many."""
        adamw = self.config.adamw
        if adamw is not None and not self.dense and self.columns is not None:
            rate = optimizers[1].param_groups[0]["lr"]
            with torch.no_grad():
                self.weights.weight[to_device(self.columns, self.device)] *= 1 - rate * adamw.weight_decay

    def _batches(self, steps: int) -> Iterator[Rows]:
        batch, count = self.config.batch, len(self.rows)
        if self.config.cluster == 1:
            shuffled = shuffled_batches(count, batch, self.random, keep_last=True)
            return (self.rows[rows] for rows in shuffled)
        near = sketch(self.queries if count == len(self.queries) else self.queries[self.rows], self.seed)
        refresh = max(100, steps // 10)
        clustered = ClusteredBatches(
            near, batch, steps, cluster=self.config.cluster, refresh=refresh, seed=self.seed
        )
        return (self.rows[clustered.draw(step)] for step in count_up())

    def _loss(self, rows: Rows) -> Tensor:
        x = self._transform(to_device(np.array(self.queries[rows]), self.device))
        self.columns = None
        if not self.dense:
            self.columns = _candidates(self.clicks, rows, self.mined, self.config.sampled, self.random)
        w = (
            self.weights.weight
            if self.columns is None
            else self.weights(to_device(self.columns, self.device))
        )
        logits = self.log_scale.exp() * (x @ w.T) + self.bias
        clicked, weight = _targets(self.clicks, rows, self.columns, self.device)
        total = functional.binary_cross_entropy_with_logits(logits, clicked, weight, reduction="sum")
        return total / len(rows)

    def _transform(self, x: Tensor) -> Tensor:
        """Queries as the classifiers see them."""
        if self.transformer is not None:
            transformed: Tensor = self.transformer(x)
            return transformed
        return apply_linear(x, self.linear) if self.config.query_layer == "linear" else x

    def _transform_all(self) -> Floats:
        if self.transformer is not None:
            self.transformer.cpu()
            found = self.transformer.transform(self.queries)
            self.transformer.to(self.device).train()
            return found
        x = np.asarray(self.queries)
        return normalize_rows(x + x @ to_array(self.linear)) if self.config.query_layer == "linear" else x

    def _validate(self) -> float:
        """How well the held-out queries find what they clicked among all items: the mean of P@1 and R@10."""
        if self.transformer is not None:
            self.transformer.eval()
        with torch.inference_mode():
            x = self._transform(to_device(np.array(self.queries[self.held]), self.device))
        if self.transformer is not None:
            self.transformer.train()
        weights = to_array(self.weights.weight)
        ranked, _ = top_k(to_array(x), weights, min(DEPTH, len(weights)))
        return sum(mean_precision_and_recall(ranked, csr_array(self.clicks[self.held]), DEPTH)) / 2

    def _classifiers(self) -> Classifiers:
        weights = to_array(self.weights.weight)
        if self.config.keep_length:  # with the scale, so that the scores are the logits but for the bias
            weights = weights * np.float32(self.log_scale.exp().item())
        else:
            weights = normalize_rows(weights)
        layer: Floats | QueryTransformer | None = None
        if self.transformer is not None:
            layer = self.transformer.frozen()
        elif self.config.query_layer == "linear":
            layer = to_array(self.linear)
        return Classifiers(weights, self.start.clicks, layer)


def _hold_out(clicks: csr_array, config: EarlyStopping, seed: int) -> Rows:
    """Rows of the queries that validate, none where they are too few. Every item keeps a query to learn from."""
    queries, items = clicks.shape
    count = min(int(config.share * queries), config.most_held_out)
    held = np.sort(np.random.default_rng([seed, 1]).permutation(queries)[:count])
    left = np.bincount(clicks.indices, minlength=items)
    left -= np.bincount(clicks[held].indices, minlength=items)
    lonely = csr_array(clicks[held]) @ (left == 0).astype(np.float32)
    kept: Rows = held[(lonely == 0) & (np.diff(clicks.indptr)[held] > 0)]
    return kept if len(kept) >= FEWEST_HELD_OUT else kept[:0]


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


def _candidates(
    clicks: csr_array, rows: Rows, mined: Rows | None, sampled: int | None, random: np.random.Generator
) -> Rows:
    """The distinct items a batch is scored against: its clicks, its mined negatives, and some at random."""
    some = random.integers(0, clicks.shape[1], size=len(rows) if sampled is None else sampled)
    hard = np.empty(0, np.int64) if mined is None else mined[rows].ravel()
    return np.unique(np.concatenate([clicks[rows].indices, hard, some])).astype(np.int64)


def _mine(transform: Callable[[], Floats], weights: nn.Embedding, count: int) -> Rows:
    """(queries, count) the items that the classifiers rank highest for the queries that `transform` returns."""
    current = to_array(weights.weight)
    return ArraySearch(current, most_scanned=MOST_SCANNED).search(transform(), min(count, len(current)))[0]
