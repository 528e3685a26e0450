"""The one trainer: batches + negatives + loss + schedule, for every recipe and every kind of encoder.

A step embeds its queries, lets them choose negatives, embeds the items, and backs the loss up. Where the graph of a
batch is too large to hold (`TrainingConfig.graph_tokens`), gradients are cached: everything is embedded without a
graph, the loss gives a gradient per embedding, and each chunk is embedded again to carry its part back. Memory then
does not grow with the batch, for one more forward pass. Dropout is seeded per chunk, so both ways, and any number of
processes (`torchrun`), give the same gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor
from tqdm import tqdm

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.encoders.training.batches import Batches
from metaxc.encoders.training.checkpoint import Checkpoint, fill_weights, weights_of
from metaxc.encoders.training.losses import contrastive_loss
from metaxc.encoders.training.negatives import Negatives, NoNegatives
from metaxc.encoders.training.processes import Processes
from metaxc.encoders.training.sides import Side, Sides

Judge = Callable[[Sides], float]


class TrainingConfig(BaseModel):
    """How an encoder is trained, whatever the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(1_000, ge=1, description="of training")
    learning_rate: float = Field(5e-5, gt=0, description="Adam's, falling linearly to 0")
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the steps in which it rises from 0 first")
    popularity: float = Field(
        0.75, ge=0, le=1, description="how much of log(clicks) an item is excused for when it is a negative"
    )
    graph_tokens: int = Field(
        16_384,
        ge=0,
        description="batches with more tokens cache gradients, so that a graph does not fill a laptop's memory",
    )
    judge_every: int = Field(0, ge=0, description="steps between two judgements; 0 never judges")
    patience: int = Field(3, ge=1, description="judgements without a better one after which training stops")
    checkpoint_seconds: float = Field(
        60.0, ge=0, description="between two checkpoints: the most a kill loses"
    )

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        rising = int(self.warmup * self.steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (1 - (step - rising) / (self.steps - rising))


@dataclass
class Trained:
    """What a run leaves beside the weights.

    `losses` has one value per step; `judged` the step and the judge's percent of each judgement.
    """

    losses: list[float] = field(default_factory=list)
    judged: list[tuple[int, float]] = field(default_factory=list)


def train(
    sides: Sides,
    clicks: csr_array,
    batches: Batches,
    config: TrainingConfig,
    *,
    negatives: Negatives | None = None,
    judge: Judge | None = None,
    checkpoint: Checkpoint | None = None,
    seed: int = 0,
    label: str = "train the encoder",
) -> Trained:
    """Train `sides` in place; with a judge the weights it liked best stay.

    Args:
        sides: What to train.
        clicks: (queries, items); every query has at least one click.
        batches: Which queries share a step.
        config: How.
        negatives: Items shown beside the batch's own; none when None.
        judge: Judges the encoder, higher is better, for early stopping.
        checkpoint: Where to keep the state, and to go on from.
        seed: Of the choice among a query's clicks and the dropout.
        label: What the progress bar says.
    """
    run = _Run(sides, clicks, batches, negatives or NoNegatives(), config, seed)
    done = began = run.resume(checkpoint)
    saved = time.monotonic()
    sides.module.train()
    with tqdm(
        total=config.steps,
        initial=began,
        desc=label,
        unit="step",
        disable=None if run.processes.first else True,
        leave=False,
    ) as bar:
        for step in range(began, config.steps):
            run.trained.losses.append(run.step(step))
            bar.update()
            bar.set_postfix(loss=f"{run.trained.losses[-1]:.3f}", refresh=False)
            done = step + 1
            if judge is not None and config.judge_every and done % config.judge_every == 0:
                run.judge(judge, done)
                if run.tired():
                    break
            if checkpoint is not None and time.monotonic() - saved >= config.checkpoint_seconds:
                run.write(checkpoint, done)
                saved = time.monotonic()
    if judge is not None and run.trained.judged:
        if run.trained.judged[-1][0] != done and not run.tired():
            run.judge(judge, done)
        fill_weights(sides.module, run.best)
    sides.module.eval()
    return run.trained


class _Run:
    """The state of one training run."""

    def __init__(
        self,
        sides: Sides,
        clicks: csr_array,
        batches: Batches,
        negatives: Negatives,
        config: TrainingConfig,
        seed: int,
    ):
        self.sides, self.clicks, self.batches, self.negatives = sides, clicks, batches, negatives
        self.config, self.seed = config, seed
        self.optimizers = sides.optimizers(config.learning_rate)
        self.processes = Processes()
        counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
        self.popularity = (config.popularity * np.log(np.maximum(counts, 1))).astype(np.float32)
        self.trained = Trained()
        self.best: Arrays = {}

    def step(self, step: int) -> float:
        random = np.random.default_rng([self.seed, step])
        query_rows = self.batches.draw(step)
        clicked = draw_clicks(self.clicks, query_rows, random)
        cost = self.sides.cost("query", query_rows) + self.sides.cost("item", clicked)
        cached = cost > self.config.graph_tokens or self.processes.many
        queries = _Embedded(self, "query", query_rows, step, cached)
        seen = queries.values.detach().cpu().numpy()
        more = self.negatives.draw(step, query_rows, seen, self.all_items)
        item_rows = np.concatenate([clicked, more])
        items = _Embedded(self, "item", item_rows, step, cached)
        device = queries.values.device
        loss = contrastive_loss(
            queries.values,
            items.values,
            self.sides.log_scale.exp(),
            torch.from_numpy(click_mask(self.clicks, query_rows, item_rows)).to(device),
            torch.from_numpy(self.popularity[item_rows]).to(device),
        )
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.config.rate(step)
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if cached:
            for side in (queries, items):
                side.carry_back()
            self.processes.share_gradients(self.sides.module, self.sides.log_scale)
        for optimizer in self.optimizers:
            optimizer.step()
        self.batches.notice(query_rows, seen)
        return loss.item()

    def all_items(self) -> Floats:
        return embed_all(self.sides, "item", self.clicks.shape[1])

    def judge(self, judge: Judge, done: int) -> None:
        found = judge(self.sides)
        if not self.trained.judged or found > max(value for _, value in self.trained.judged):
            self.best = weights_of(self.sides.module)
        self.trained.judged.append((done, found))

    def tired(self) -> bool:
        """Whether the last `patience` judgements brought nothing better."""
        values = [value for _, value in self.trained.judged]
        return bool(values) and len(values) - 1 - int(np.argmax(values)) >= self.config.patience

    def write(self, checkpoint: Checkpoint, done: int) -> None:
        if not self.processes.first:
            return
        parts = {"batches": self.batches.state(), "negatives": self.negatives.state()}
        progress = {"step": done, "losses": self.trained.losses, "judged": self.trained.judged}
        checkpoint.write(self.sides.module, self.optimizers, parts, self.best, progress)

    def resume(self, checkpoint: Checkpoint | None) -> int:
        """The step to go on with."""
        found = None if checkpoint is None else checkpoint.read(self.sides.module, self.optimizers)
        if found is None:
            return 0
        progress, parts, self.best = found
        for name, part in (("batches", self.batches), ("negatives", self.negatives)):
            part.restore(parts.get(name, {}))
        judged = [(int(step), float(value)) for step, value in progress["judged"]]
        self.trained = Trained(list(progress["losses"]), judged)
        return int(progress["step"])


class _Embedded:
    """The embeddings of one side of a batch, made chunk by chunk: with their graph, or without and carried back."""

    def __init__(self, run: _Run, side: Side, rows: Rows, step: int, cached: bool):
        self.sides, self.side, self.rows = run.sides, side, rows
        self.seeds = [run.seed, step, 0 if side == "query" else 1]
        self.processes = run.processes
        self.chunks = run.sides.chunks(side, rows)
        with torch.set_grad_enabled(not cached):
            parts = [self._embed(number) for number in self.processes.mine(len(self.chunks))]
        mine = [self.chunks[number] for number in self.processes.mine(len(self.chunks))]
        if cached:
            self.values = self.processes.gather(parts, mine, len(rows), run.sides.log_scale)
            self.values.requires_grad_(True)
        else:
            places = np.argsort(np.concatenate(mine), kind="stable")
            self.values = torch.cat(parts)[torch.from_numpy(places)]

    def carry_back(self) -> None:
        """Embed again, and give each chunk its part of the gradient."""
        assert self.values.grad is not None
        for number in self.processes.mine(len(self.chunks)):
            gradient = self.values.grad[torch.from_numpy(self.chunks[number])]
            self._embed(number).backward(gradient)  # type: ignore[no-untyped-call]

    def _embed(self, number: int) -> Tensor:
        seeds = np.random.SeedSequence([*self.seeds, number]).generate_state(1, np.uint64)
        torch.manual_seed(int(seeds[0] >> np.uint64(1)))
        return self.sides.embed(self.side, self.rows[self.chunks[number]])


def embed_all(sides: Sides, side: Side, rows: int | Rows) -> Floats:
    """(rows, dim) float32 by the encoder as it is, without dropout."""
    wanted = np.arange(rows) if isinstance(rows, int) else rows
    learning = sides.module.training
    sides.module.eval()
    parts: list[tuple[Rows, Any]] = []
    with torch.inference_mode():
        for chunk in sides.chunks(side, wanted):
            parts.append((chunk, sides.embed(side, wanted[chunk]).cpu().numpy()))
    sides.module.train(learning)
    if not parts:
        return np.empty((0, 0), np.float32)
    out = np.empty((len(wanted), parts[0][1].shape[1]), np.float32)
    for chunk, values in parts:
        out[chunk] = values
    return out
