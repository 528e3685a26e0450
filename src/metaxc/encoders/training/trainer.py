"""The one trainer, for every recipe and every kind of encoder: batches, negatives, loss, validation, checkpoints.

A step embeds its queries, uses them to find hard negatives, embeds the items, and minimises the contrastive loss.
Where the graph of a batch is too large (`TrainingConfig.graph_tokens`), gradients are cached: everything is embedded
without a graph, the loss gives a gradient for each embedding, and each chunk is embedded again to backpropagate its
part. Memory then does not grow with the batch, at the cost of one more forward pass. Under `torchrun` the processes
share the chunks of each batch, and every process computes the loss of the whole batch.

Why not sentence-transformers' trainer and `CachedMultipleNegativesRankingLoss`: they have no mask for the other
clicked pairs of a batch and no checkpoint for batches and negatives that depend on earlier steps, and dropout comes
from the random state of each process. Here dropout is seeded per chunk, so that a resumed run, cached gradients and
any number of processes give the same gradients.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, distributed, nn

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Arrays
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.devices import current_device
from metaxc.encoders.training import TrainingConfig
from metaxc.encoders.training.batches import Batches
from metaxc.encoders.training.encoder_record import Checkpoint, copy_weights, load_weights
from metaxc.encoders.training.losses import compute_logq, contrastive_loss
from metaxc.encoders.training.negatives import Negatives
from metaxc.errors import MetaxcError
from metaxc.training_loop import run_training

Side = Literal["query", "item"]


class DualEncoder(Protocol):
    """What the trainer trains: an encoder of queries and items, which are given by their rows in one data set."""

    @property
    def module(self) -> nn.Module:
        """Everything that is learnt."""

    @property
    def log_scale(self) -> nn.Parameter:
        """The logarithm of the scale that multiplies cosine similarities to give logits; learnt."""

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        """Optimizers of everything that is learnt."""

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        """Positions in `rows` that are embedded together: what one pass through the model can hold."""

    def cost(self, side: Side, rows: Rows) -> int:
        """The number of tokens in a graph over these texts; 0 where the graph is small anyway."""

    def embed(self, side: Side, rows: Rows) -> Tensor:
        """(rows, dim) unit embeddings, with gradients where they are enabled."""


Validate = Callable[[DualEncoder], float]


@dataclass
class TrainingHistory:
    """The course of a training run.

    Args:
        losses: One value per step.
        validation: The step and the validation score of each validation.
    """

    losses: list[float] = field(default_factory=list)
    validation: list[tuple[int, float]] = field(default_factory=list)


def train(
    encoder: DualEncoder,
    clicks: csr_array,
    batches: Batches,
    config: TrainingConfig,
    *,
    negatives: Negatives | None = None,
    validate: Validate | None = None,
    checkpoint: Checkpoint | None = None,
    seed: int = 0,
    label: str = "train the encoder",
) -> TrainingHistory:
    """Train `encoder` in place; with validation it ends with the weights of the best score, which may be those that it
    started with (`TrainingConfig.keep_start`).

    Args:
        encoder: What to train.
        clicks: (queries, items); every query has at least one click.
        batches: Decides which queries share a step.
        config: How to train.
        negatives: Adds hard negatives to the batch's own items; none when None.
        validate: Returns the validation score of the encoder, higher is better; used for early stopping.
        checkpoint: Where the state is saved, and where a run that was killed resumes from.
        seed: Decides the choice among a query's clicks, and the dropout.
        label: Shown by the progress bar.
    """
    run = _Run(encoder, clicks, batches, negatives or Negatives(), config, validate, checkpoint, seed)
    first_step = run.resume()
    run.processes.check_same_step(first_step)
    run.validate_start()
    encoder.module.train()
    run_training(
        run.compute_loss,
        run.optimizers,
        config.steps,
        label=label,
        first_step=first_step,
        warmup=config.warmup,
        after_backward=run.finish_gradients,
        after_step=run.finish_step,
        progress=run.processes.is_first,
    )
    run.restore_best()
    encoder.module.eval()
    return run.history


@dataclass
class _Run:
    """The state of one training run."""

    encoder: DualEncoder
    clicks: csr_array
    batches: Batches
    negatives: Negatives
    config: TrainingConfig
    validate: Validate | None
    checkpoint: Checkpoint | None
    seed: int

    def __post_init__(self) -> None:
        self.optimizers = self.encoder.optimizers(self.config.learning_rate)
        self.processes = Processes()
        self.logq = compute_logq(self.clicks, self.config.logq_correction)
        self.history = TrainingHistory()
        self.best: Arrays = {}
        self.saved = time.monotonic()

    def compute_loss(self, step: int) -> Tensor:
        random = np.random.default_rng([self.seed, step])
        self.query_rows = self.batches.draw(step)
        clicked = draw_clicks(self.clicks, self.query_rows, random)
        cost = self.encoder.cost("query", self.query_rows) + self.encoder.cost("item", clicked)
        self.cached = cost > self.config.graph_tokens or self.processes.several
        queries = _EmbeddedSide(self, "query", self.query_rows, step)
        self.query_embeddings = queries.values.detach().cpu().numpy()
        hard = self.negatives.draw(step, self.query_rows, self.query_embeddings, self._embed_items)
        item_rows = np.concatenate([clicked, hard])
        items = _EmbeddedSide(self, "item", item_rows, step)
        self.sides = (queries, items)
        device = queries.values.device
        return contrastive_loss(
            queries.values,
            items.values,
            self.encoder.log_scale.exp(),
            torch.from_numpy(click_mask(self.clicks, self.query_rows, item_rows)).to(device),
            torch.from_numpy(self.logq[item_rows]).to(device),
        )

    def _embed_items(self) -> Floats:
        return embed_all(self.encoder, "item", self.clicks.shape[1])

    def finish_gradients(self) -> None:
        """Backpropagate cached gradients, and add up those of all processes."""
        if self.cached:
            for side in self.sides:
                side.backpropagate()
            self.processes.sum_gradients(self.encoder.module, self.encoder.log_scale)

    def finish_step(self, done: int, loss: float) -> bool:
        """Record the step, validate and save where it is time to; True stops training early."""
        self.history.losses.append(loss)
        self.batches.update(self.query_rows, self.query_embeddings)
        ends = done == self.config.stop_after
        if (
            self.validate is not None
            and self.config.validate_every
            and (done % self.config.validate_every == 0 or ends)
        ):
            self._validate(self.validate, done)
            if self._stops_early():
                return True
        if ends:
            return True
        if self.checkpoint is not None and time.monotonic() - self.saved >= self.config.checkpoint_seconds:
            self._save(self.checkpoint, done)
            self.saved = time.monotonic()
        return False

    def validate_start(self) -> None:
        """Validate the weights before the first step, where they may be kept: what the past teaches need not hold for
        held-out data."""
        if not self.config.keep_start or self.history.validation:
            return
        if self.validate is not None and self.config.validate_every:
            self._validate(self.validate, 0)

    def restore_best(self) -> None:
        """Set the weights to those of the best validation score, after a last validation where it is due."""
        if self.validate is None or not self.history.validation:
            return
        done = len(self.history.losses)
        if self.history.validation[-1][0] != done and not self._stops_early():
            self._validate(self.validate, done)
        load_weights(self.encoder.module, self.best)

    def _validate(self, validate: Validate, done: int) -> None:
        score = validate(self.encoder)
        if not self.history.validation or score > max(known for _, known in self.history.validation):
            self.best = copy_weights(self.encoder.module)
        self.history.validation.append((done, score))

    def _stops_early(self) -> bool:
        """Whether none of the last `patience` validations had a better score than those before."""
        scores = [score for _, score in self.history.validation]
        return bool(scores) and len(scores) - 1 - int(np.argmax(scores)) >= self.config.patience

    def _save(self, checkpoint: Checkpoint, done: int) -> None:
        if not self.processes.is_first:
            return
        parts = {"batches": self.batches.state(), "negatives": self.negatives.state()}
        progress = {"step": done, "losses": self.history.losses, "validation": self.history.validation}
        checkpoint.write(self.encoder.module, self.optimizers, parts, self.best, progress)

    def resume(self) -> int:
        """Load the checkpoint, if there is one for this run; return the number of steps that are done."""
        found = (
            None if self.checkpoint is None else self.checkpoint.read(self.encoder.module, self.optimizers)
        )
        if found is None:
            return 0
        progress, parts, self.best = found
        for name, part in (("batches", self.batches), ("negatives", self.negatives)):
            part.restore(parts.get(name, {}))
        validation = [(int(step), float(score)) for step, score in progress["validation"]]
        self.history = TrainingHistory(list(progress["losses"]), validation)
        return int(progress["step"])


class _EmbeddedSide:
    """The embeddings of a batch's queries or items, chunk by chunk: with their graph, or with cached gradients."""

    def __init__(self, run: _Run, side: Side, rows: Rows, step: int):
        self.encoder, self.side, self.rows, self.processes = run.encoder, side, rows, run.processes
        self.seeds = [run.seed, step, 0 if side == "query" else 1]
        self.chunks = run.encoder.chunks(side, rows)
        own = [self.chunks[number] for number in self.processes.own_chunks(len(self.chunks))]
        with torch.set_grad_enabled(not run.cached):
            parts = [self._embed(number) for number in self.processes.own_chunks(len(self.chunks))]
        if run.cached:
            self.values = self.processes.gather(parts, own, len(rows), run.encoder.log_scale)
            self.values.requires_grad_(True)
        else:
            places = np.argsort(np.concatenate(own), kind="stable")
            self.values = torch.cat(parts)[torch.from_numpy(places)]

    def backpropagate(self) -> None:
        """Embed again with a graph, and backpropagate each chunk's part of the cached gradient."""
        assert self.values.grad is not None
        for number in self.processes.own_chunks(len(self.chunks)):
            gradient = self.values.grad[torch.from_numpy(self.chunks[number])]
            self._embed(number).backward(gradient)  # type: ignore[no-untyped-call]

    def _embed(self, number: int) -> Tensor:
        seeds = np.random.SeedSequence([*self.seeds, number]).generate_state(1, np.uint64)
        torch.manual_seed(int(seeds[0] >> np.uint64(1)))
        return self.encoder.embed(self.side, self.rows[self.chunks[number]])


class Processes:
    """One process, or several that `torchrun` started, which share the chunks of each batch."""

    def __init__(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized():
            distributed.init_process_group("nccl" if current_device().type == "cuda" else "gloo")
        ready = distributed.is_available() and distributed.is_initialized()
        self.count = distributed.get_world_size() if ready else 1
        self.several = self.count > 1
        self.rank = distributed.get_rank() if self.several else 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and shows progress."""
        return self.rank == 0

    def check_same_step(self, step: int) -> None:
        """Raise where processes would begin with different steps: they would wait for each other without an end."""
        if not self.several:
            return
        ends = torch.tensor([step, -step], device=current_device())
        distributed.all_reduce(ends, distributed.ReduceOp.MAX)
        last, first = int(ends[0]), -int(ends[1])
        if first != last:
            raise MetaxcError(
                "The processes resume from different checkpoints",
                got=f"steps {first} to {last}, step {step} in process {self.rank}",
                expected="the same checkpoint for all processes",
                fix="put the output folder on a file system that all machines share, or remove OUT.checkpoint",
            )

    def own_chunks(self, chunks: int) -> range:
        """The numbers of the chunks that this process embeds."""
        return range(self.rank, chunks, self.count)

    def gather(self, parts: Sequence[Tensor], places: Sequence[Rows], rows: int, like: Tensor) -> Tensor:
        """(rows, dim) on the device of `like`: the chunks of all processes, each at its places."""
        dim = torch.tensor(parts[0].shape[1] if parts else 0, device=like.device)
        if self.several:
            distributed.all_reduce(dim, distributed.ReduceOp.MAX)
        values = torch.zeros(rows, int(dim), device=like.device)
        for part, place in zip(parts, places, strict=True):
            values[torch.from_numpy(place).to(like.device)] = part
        if self.several:
            distributed.all_reduce(values)
        return values

    def sum_gradients(self, module: nn.Module, shared: nn.Parameter) -> None:
        """Add up the gradients of all processes, except that of `shared`, which every process has computed in full."""
        if not self.several:
            return
        for parameter in module.parameters():
            if parameter is shared:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad)


def embed_all(encoder: DualEncoder, side: Side, rows: int | Rows) -> Floats:
    """(rows, dim) float32 embeddings with the current weights and without dropout; a number means all rows below it."""
    wanted = np.arange(rows) if isinstance(rows, int) else rows
    was_training = encoder.module.training
    encoder.module.eval()
    parts: list[tuple[Rows, Any]] = []
    with torch.inference_mode():
        for chunk in encoder.chunks(side, wanted):
            parts.append((chunk, encoder.embed(side, wanted[chunk]).cpu().numpy()))
    encoder.module.train(was_training)
    if not parts:
        return np.empty((0, 0), np.float32)
    out = np.empty((len(wanted), parts[0][1].shape[1]), np.float32)
    for chunk, values in parts:
        out[chunk] = values
    return out
