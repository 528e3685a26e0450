"""Training a generator on episodes: items that play novel.

Each item is represented by its neighbours' classifiers, never its own, and the loss is computed on its own clicks: by
*ranking* (each query's click against other items) or by *cross_entropy* (the paper's: every pair of a batch by itself,
with near queries in the same batch so that negatives are hard). The items of a batch are one click of each of its
queries, random items and, where asked for, the nearest items of those clicked. No clicked pair of a batch is ever used
as a negative.

With early stopping, some items and queries are held out: the items play novel, their queries play test, and the weights
that rank them best are kept. The start is one of the candidates, so a trained generator is not worse there.

The classifiers are frozen. Training them too (`train_classifiers`) is an ablation: the paper's bound grows with what is
trained, and predicts that novel items suffer. `metaxc bench ablations` has a row for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from metaxc.arrays import Floats, Rows
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.devices import current_device, to_array, to_device
from metaxc.encoders.training.batches import ClusteredBatches, sketch
from metaxc.errors import ConfigError
from metaxc.generators.episode import Episode
from metaxc.generators.generator import TorchGenerator, gather
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
)

PREPARED = 1_000

NEAREST = 10
"""Nearest items of an item, of which its hard negatives are drawn."""

STARTING_SCALE = 20.0
"""What cosine similarities are multiplied with to give logits at the start, where the head matches the generator."""

DEPTH = 10
"""Results per held-out query that count."""


class TransformerConfig(BaseModel):
    """What a transformer generator is, beyond its depth."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden: int | None = Field(
        None, ge=1, description="feed-forward units; 2,048 for post_norm and twice the dimensions otherwise"
    )
    neighbour_features: bool = Field(
        False,
        description="tell it of each neighbour's similarity and clicks, which layer norms would hide from it",
    )
    zero_start: bool = Field(
        False,
        description="for post_norm: start at the mean of the inputs, by attention and feed-forward layers that add "
        "nothing yet; the others always start at the combine",
    )


class GeneratorTraining(BaseModel):
    """How a generator is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: Literal["ranking", "cross_entropy"] = Field(
        "ranking",
        description="ranking: a query's click against other items; cross_entropy: every pair by itself (the paper)",
    )
    epochs: int = Field(
        4, ge=0, description="passes over the queries with a click; 0 leaves the start as it is"
    )
    most_steps: int = Field(150, ge=1, description="no more than this many steps, however many queries")
    depth: int = Field(1, ge=1, description="layers of a transformer generator (the paper's choice)")
    batch: int = Field(512, ge=2, description="queries per step")
    candidates: int = Field(1024, ge=0, description="random items that a click is scored among")
    near: int = Field(
        0, ge=0, le=NEAREST, description="for each clicked item, so many of its nearest items are scored too"
    )
    cluster: int = Field(
        32, ge=1, description="for cross_entropy: near queries that share a batch at the end of training"
    )
    learning_rate: float | None = Field(
        None, gt=0, description="learning rate, decaying linearly to 0; that of the generator if not given"
    )
    positive_weight: float = Field(
        4.0, gt=0, description="C: weight of a click in the loss, relative to a pair that was not clicked"
    )
    scale: float | None = Field(
        20.0,
        gt=0,
        description="multiplies the scores to give logits; learnt from here. If null, scale and bias start at what "
        "suits the lengths of the queries and of the generator's start",
    )
    train_classifiers: bool = Field(False, description="train the neighbours' classifiers too; an ablation")
    transformer: TransformerConfig = Field(
        default_factory=TransformerConfig, description="what a transformer generator is"
    )
    adamw: AdamWConfig | None = Field(None, description="train by AdamW; by Adam if not given")
    early_stopping: EarlyStopping | None = Field(
        None, description="validate on held-out items and keep the best weights; if not given, keep the last"
    )


class TrainedGenerator(NamedTuple):
    """A trained generator, the (observed, dim) classifiers of the last episode (trained ones with
    `train_classifiers`), and the loss of every step."""

    generator: TorchGenerator
    classifiers: Floats
    losses: list[float]


def train_generator(
    generator: TorchGenerator, episodes: Sequence[Episode], config: GeneratorTraining, *, seed: int = 0
) -> TrainedGenerator:
    """Train `generator` in place, and return it with the classifiers it works on.

    Args:
        generator: What to train; the combine and the sum have nothing to learn and come back as they are.
        episodes: What to learn from, at least one; a batch comes from one of them.
        config: How it is trained.
        seed: Draws the order, the queries and the negatives.
    """
    if config.train_classifiers and len(episodes) > 1:
        raise ConfigError(
            "Classifiers of several episodes cannot be trained",
            got=f"{len(episodes)} episodes",
            expected="one, whose classifiers the model keeps",
            fix="set meta_training to observed, or leave train_classifiers out",
        )
    learns = bool(list(generator.parameters())) or config.train_classifiers
    if not learns or config.epochs == 0:
        return TrainedGenerator(generator.eval(), episodes[-1].classifiers, [])
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)  # dropout draws from the global generator
    device = current_device()
    held_out: list[Episode] = []
    if config.early_stopping is not None:
        parts = [episode.hold_out(config.early_stopping, seed) for episode in episodes]
        episodes, held_out = [first for first, _ in parts], [second for _, second in parts if second]
    sources = [_Source(episode, config, seed) for episode in episodes]
    generator.to(device)
    generator.prepare(*(part.to(device) for part in _some_of_each(episodes, random)))
    per_pass = sum(source.batches for source in sources)
    steps = plan_steps(per_pass, config.epochs, config.most_steps, config.early_stopping)
    if not per_pass:
        return TrainedGenerator(generator.cpu().eval(), episodes[-1].classifiers, [])
    for source in sources:
        source.steps = -(-steps * source.batches // per_pass)
    head = _Head(config.scale) if config.scale is not None else _match_head(generator, sources[0], seed)
    head.to(device)
    trained = [source.weights for source in sources if config.train_classifiers]
    learnt = [*generator.parameters(), *head.parameters(), *trained]
    rate = config.learning_rate or generator.learning_rate
    best = None
    if config.early_stopping is not None and held_out:
        weights = [source.weights for source in sources]

        def measure() -> float:
            classifiers = [to_array(one) for one in weights] if config.train_classifiers else None
            return _validate(generator, held_out, classifiers)

        best = BestWeights(learnt, measure, steps, config.early_stopping)
    generator.train()
    batches = _batches(sources, random)

    def compute_loss(step: int) -> Tensor:
        source, rows = next(batches)
        return source.loss(generator, head, rows, random)

    def clip() -> None:
        if config.adamw is not None:
            clip_grad_norm_(learnt, config.adamw.largest_gradient)

    optimizer = (
        torch.optim.Adam(learnt, lr=rate) if config.adamw is None else make_adamw(learnt, rate, config.adamw)
    )
    losses = run_training(
        compute_loss,
        [optimizer],
        steps,
        label="train the generator",
        warmup=0.0 if config.adamw is None else config.adamw.warmup,
        after_backward=clip,
        after_step=lambda done, loss: best is not None and best.after_step(done, loss),
    )
    if best is not None:
        best.restore()
    kept = to_array(sources[-1].weights) if config.train_classifiers else episodes[-1].classifiers
    return TrainedGenerator(generator.cpu().eval(), kept, losses)


def _validate(
    generator: TorchGenerator, held_out: Sequence[Episode], classifiers: Sequence[Floats] | None
) -> float:
    """How well held-out queries find held-out items, which play novel, among themselves: the mean of P@1 and R@10."""
    found = []
    training, device = generator.training, next(generator.parameters(), torch.zeros(0)).device
    generator.cpu()
    for number, episode in enumerate(held_out):
        known = episode.classifiers if classifiers is None else classifiers[number]
        made = generator.generate(episode.items, gather(known, episode.neighbours), episode.scores)
        rows = np.flatnonzero(np.diff(episode.clicks.indptr) > 0)
        ranked, _ = top_k(np.array(episode.queries[rows]), made, min(DEPTH, len(made)))
        found.append(sum(mean_precision_and_recall(ranked, csr_array(episode.clicks[rows]), DEPTH)) / 2)
    generator.to(device).train(training)
    return float(np.mean(found))


def _some_of_each(episodes: Sequence[Episode], random: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, selected classifiers and scores of at most `PREPARED` items of each episode."""
    parts: list[tuple[Floats, Floats, Floats]] = []
    for episode in episodes:
        rows = random.permutation(len(episode.items))[:PREPARED]
        selected = gather(episode.classifiers, episode.neighbours[rows])
        parts.append((episode.items[rows], selected, episode.scores[rows]))
    embeddings, selected, scores = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return torch.from_numpy(embeddings), torch.from_numpy(selected), torch.from_numpy(scores)


class _Head(nn.Module):
    """Turns inner products into logits by a scale and a bias, which change no ranking."""

    def __init__(self, scale: float, bias: float | None = None):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.bias = nn.Parameter(torch.tensor(-scale / 2 if bias is None else bias))

    def forward(self, queries: Tensor, made: Tensor) -> Tensor:
        logits: Tensor = self.log_scale.exp() * (queries @ made.T) + self.bias
        return logits


def _match_head(generator: TorchGenerator, source: _Source, seed: int) -> _Head:
    """A head whose scale turns cosine similarities of queries and the generator's start into logits of
    `STARTING_SCALE`, and whose bias gives the mean pair of a batch the log-odds of a click, weighted by C."""
    random = np.random.default_rng([seed, 3])
    rows = random.permutation(source.asking)[: source.batch]
    items = source.candidates(draw_clicks(source.episode.clicks, rows, random), random)
    generator.eval()
    with torch.inference_mode():
        queries, made = source.queries(rows), source.made(generator, items)
        scores = queries @ made.T
    lengths = float((queries.norm(dim=1).mean() * made.norm(dim=1).mean()).item())
    scale = STARTING_SCALE / max(lengths, 1e-6)
    share = float(click_mask(source.episode.clicks, rows, items).mean())
    odds = source.config.positive_weight * max(share, 1e-9) / max(1 - share, 1e-9)
    return _Head(scale, float(np.log(odds)) - scale * float(scores.mean().item()))


class _Source:
    """Draws batches from an episode: queries, each with one of its clicks, scored against the items of the batch.
    Queries count alike, as in the metrics; an item counts by its clicks."""

    def __init__(self, episode: Episode, config: GeneratorTraining, seed: int):
        self.episode, self.config, self.seed, self.device = episode, config, seed, current_device()
        self.weights = nn.Parameter(
            to_device(episode.classifiers.copy(), self.device), requires_grad=config.train_classifiers
        )
        self.asking = np.flatnonzero(np.diff(episode.clicks.indptr) > 0)
        self.batch = min(config.batch, len(self.asking))
        self.batches = len(self.asking) // self.batch if self.batch else 0
        self.steps = 1  # of this source in a run of full length
        self.drawn = count()

    @cached_property
    def clustered(self) -> ClusteredBatches:
        """Batches of near queries; clusters grow during training."""
        near = sketch(self.episode.queries[self.asking], self.seed)
        refresh = max(100, self.steps // 10)
        return ClusteredBatches(
            near, self.batch, self.steps, cluster=self.config.cluster, refresh=refresh, seed=self.seed
        )

    @cached_property
    def nearest(self) -> Rows:
        """(items, at most `NEAREST`) the nearest items of each item, −1 where padded or itself."""
        items = self.episode.items
        rows = ArraySearch(items, most_scanned=MOST_SCANNED).search(items, min(NEAREST + 1, len(items)))[0]
        return np.where(rows == np.arange(len(items))[:, None], -1, rows)

    def epoch(self, random: np.random.Generator) -> Iterator[Rows]:
        """The queries of each batch of one pass, each batch drawn when it is asked for."""
        if self.config.loss == "cross_entropy":
            return (self.asking[self.clustered.draw(next(self.drawn))] for _ in range(self.batches))
        order = random.permutation(self.asking)
        return (order[number * self.batch :][: self.batch] for number in range(self.batches))

    def candidates(self, clicked: Rows, random: np.random.Generator) -> Rows:
        """The distinct items of a batch: those clicked, some of their nearest, and some at random."""
        parts = [clicked, random.permutation(len(self.episode.items))[: self.config.candidates]]
        if self.config.near:
            nearest = self.nearest[clicked]
            places = random.integers(0, nearest.shape[1], size=(len(clicked), self.config.near))
            near = np.take_along_axis(nearest, places, axis=1).ravel()
            parts.append(near[near >= 0])
        return np.unique(np.concatenate(parts)).astype(np.int64)

    def loss(self, generator: TorchGenerator, head: _Head, rows: Rows, random: np.random.Generator) -> Tensor:
        """The loss of one batch."""
        clicked = draw_clicks(self.episode.clicks, rows, random)
        items = self.candidates(clicked, random)
        logits = head(self.queries(rows), self.made(generator, items))
        positive = to_device(click_mask(self.episode.clicks, rows, items), self.device)
        if self.config.loss == "cross_entropy":
            return weighted_cross_entropy(logits, positive, self.config.positive_weight)
        target = to_device(np.searchsorted(items, clicked), self.device)
        return ranking_loss(logits, target, positive)

    def made(self, generator: TorchGenerator, items: Rows) -> Tensor:
        """(items, dim) meta-classifiers, through which gradients flow."""
        near = to_device(self.episode.neighbours[items], self.device)
        made: Tensor = generator(
            to_device(self.episode.items[items], self.device),
            self.weights[near.clamp(min=0)] * (near >= 0).unsqueeze(2),
            to_device(self.episode.scores[items], self.device),
        )
        return made

    def queries(self, rows: Rows) -> Tensor:
        return to_device(np.array(self.episode.queries[rows]), self.device)


def _batches(sources: Sequence[_Source], random: np.random.Generator) -> Iterator[tuple[_Source, Rows]]:
    """Batches without end; in each pass every batch of every episode once, the episodes in random turns."""
    while True:
        batches = [source.epoch(random) for source in sources]
        turns = np.repeat(np.arange(len(sources)), [source.batches for source in sources])
        for number in random.permutation(turns):
            yield sources[number], next(batches[number])


def ranking_loss(logits: Tensor, target: Tensor, clicked: Tensor) -> Tensor:
    """Softmax of each query's one click against the items that it did not click.

    Args:
        logits: (queries, items).
        target: (queries,) the column of the click that is to win.
        clicked: (queries, items) bool; other clicks of the query are left out as negatives.
    """
    others = clicked.scatter(1, target.unsqueeze(1), False)
    return functional.cross_entropy(logits.masked_fill(others, float("-inf")), target)


def weighted_cross_entropy(logits: Tensor, clicked: Tensor, positive_weight: float) -> Tensor:
    """Binary cross-entropy summed over items and averaged over queries, clicks weighted by C.

    Args:
        logits: (queries, items).
        clicked: (queries, items) bool; every true pair is a positive.
        positive_weight: C.
    """
    weight = torch.tensor(positive_weight, device=logits.device)
    total = functional.binary_cross_entropy_with_logits(
        logits, clicked.float(), pos_weight=weight, reduction="sum"
    )
    return total / len(logits)
