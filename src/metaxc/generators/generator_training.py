"""Training a generator on episodes: items that play novel.

Each item is represented by its neighbours' classifiers, never its own, and the loss is computed on its own clicks: by
*ranking* (each query's click against randomly drawn items) or by *cross_entropy* (the paper's: every pair of a batch by
itself, with items in clusters of near neighbours so that negatives are hard). No clicked pair of a batch is ever used
as a negative.

The classifiers are frozen. Training them too (`train_classifiers`) is an ablation: the paper's bound grows with what is
trained, and predicts that novel items suffer. Where it was measured it made no difference (docs/results.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Mask, Rows
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.devices import current_device, to_array, to_device
from metaxc.encoders.training.batches import clustered_order
from metaxc.errors import ConfigError
from metaxc.generators.generator import TorchGenerator, gather
from metaxc.training_loop import run_training

PREPARED = 1_000


class GeneratorTraining(BaseModel):
    """How a generator is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    loss: Literal["ranking", "cross_entropy"] = Field(
        "ranking",
        description="ranking: a query's click against other items; cross_entropy: every pair by itself (the paper)",
    )
    epochs: int = Field(
        4,
        ge=0,
        description="passes over the clicking queries (ranking) or the items; 0 leaves the start as it is",
    )
    most_steps: int = Field(150, ge=1, description="no more than this many steps, however many queries")
    depth: int = Field(1, ge=1, description="layers of a transformer generator (the paper's choice)")
    batch: int = Field(512, ge=2, description="queries (ranking) or items per step")
    candidates: int = Field(1024, ge=2, description="items that a click is ranked among")
    queries_per_item: int = Field(
        2, ge=1, description="for cross_entropy: clicked queries drawn per item and step"
    )
    cluster: int = Field(32, ge=1, description="for cross_entropy: near neighbours that share a batch")
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Adam's learning rate, decaying linearly to 0; that of the generator if not given",
    )
    positive_weight: float = Field(
        4.0, gt=0, description="C: weight of a click in the loss, relative to a pair that was not clicked"
    )
    scale: float = Field(20.0, gt=0, description="multiplies the scores to give logits; learnt from here")
    train_classifiers: bool = Field(False, description="train the neighbours' classifiers too; an ablation")


@dataclass(frozen=True)
class Episode:
    """Items that play novel, and everything that is known about them in one encoder's space.

    A generator sees an item's embedding and its neighbours' classifiers, and its loss is computed on the item's clicks.
    How far each of the two can be trusted depends on what the encoder knows: an encoder trained on an item's clicks has
    moved the item's embedding towards them, and a generator that learns on such items learns to trust the embedding
    more than a novel item's deserves. An episode is therefore complete in itself: encoder, classifiers and neighbours
    of one fit, and items which that fit has not seen (or has seen, for comparison). Episodes of several fits live in
    different spaces; a batch comes from one of them.

    Args:
        queries: (queries, dim) embeddings; may be memory-mapped.
        items: (items, dim) embeddings of the items that play novel.
        clicks: (queries, items); what the loss is computed on.
        classifiers: (observed, dim) the neighbours' classifiers, scaled by trust.
        neighbours: (items, K) rows of `classifiers`, −1 where padded; an item is not among its own.
        scores: (items, K) similarities by the same selector as in serving, −inf where padded.
    """

    queries: Floats
    items: Floats
    clicks: csr_array
    classifiers: Floats
    neighbours: Rows
    scores: Floats

    def without(self, queries: Mask) -> Episode:
        """The episode without the clicks of the queries where `queries`, (queries,) bool, is True."""
        kept = np.repeat(~queries, np.diff(self.clicks.indptr))
        row = np.repeat(np.arange(len(queries)), np.diff(self.clicks.indptr))[kept]
        clicks = csr_array(
            (self.clicks.data[kept], (row, self.clicks.indices[kept])), shape=self.clicks.shape
        )
        return replace(self, clicks=clicks)


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
    sources = [(_Ranked if config.loss == "ranking" else _Clustered)(episode, config) for episode in episodes]
    generator.to(device)
    generator.prepare(*(part.to(device) for part in _some_of_each(episodes, random)))
    steps = min(sum(source.batches for source in sources) * config.epochs, config.most_steps)
    head = _Head(config.scale).to(device)
    trained = [source.weights for source in sources if config.train_classifiers]
    learnt = [*generator.parameters(), *head.parameters(), *trained]
    rate = config.learning_rate or generator.learning_rate
    generator.train()
    batches = _batches(sources, random)

    def compute_loss(step: int) -> Tensor:
        source, rows = next(batches)
        return source.loss(generator, head, rows, random)

    optimizer = torch.optim.Adam(learnt, lr=rate)
    losses = run_training(compute_loss, [optimizer], steps, label="train the generator")
    kept = to_array(sources[-1].weights) if config.train_classifiers else episodes[-1].classifiers
    return TrainedGenerator(generator.cpu().eval(), kept, losses)


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
    """Turns inner products into logits."""

    def __init__(self, scale: float):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.bias = nn.Parameter(torch.tensor(-scale / 2))

    def forward(self, queries: Tensor, made: Tensor) -> Tensor:
        logits: Tensor = self.log_scale.exp() * (queries @ made.T) + self.bias
        return logits


class _Source(ABC):
    """Draws batches from an episode; subclasses define what a batch is and its loss."""

    batches: int

    def __init__(self, episode: Episode, config: GeneratorTraining):
        self.episode, self.config, self.device = episode, config, current_device()
        self.weights = nn.Parameter(
            to_device(episode.classifiers.copy(), self.device), requires_grad=config.train_classifiers
        )

    @abstractmethod
    def epoch(self, random: np.random.Generator) -> list[Rows]:
        """The rows of each batch of one pass."""

    @abstractmethod
    def loss(self, generator: TorchGenerator, head: _Head, rows: Rows, random: np.random.Generator) -> Tensor:
        """The loss of one batch."""

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


class _Ranked(_Source):
    """A batch is a set of queries, each with one of its clicks, ranked among items drawn at random. Queries count
    alike, as in the metrics; an item counts by its clicks."""

    def __init__(self, episode: Episode, config: GeneratorTraining):
        super().__init__(episode, config)
        self.asking = np.flatnonzero(np.diff(episode.clicks.indptr) > 0)
        self.batch = min(config.batch, len(self.asking))
        self.batches = len(self.asking) // self.batch if self.batch else 0

    def epoch(self, random: np.random.Generator) -> list[Rows]:
        order = random.permutation(self.asking)
        return [order[number * self.batch :][: self.batch] for number in range(self.batches)]

    def loss(self, generator: TorchGenerator, head: _Head, rows: Rows, random: np.random.Generator) -> Tensor:
        clicked = draw_clicks(self.episode.clicks, rows, random)
        count = len(self.episode.items)
        drawn = random.permutation(count)[: self.config.candidates]
        items = np.unique(np.concatenate([clicked, drawn])).astype(np.int64)
        logits = head(self.queries(rows), self.made(generator, items))
        target = to_device(np.searchsorted(items, clicked), self.device)
        clicked_too = to_device(click_mask(self.episode.clicks, rows, items), self.device)
        return ranking_loss(logits, target, clicked_too)


class _Clustered(_Source):
    """A batch is a set of items in clusters of near neighbours, so that its negatives are hard, and a few queries of
    each."""

    def __init__(self, episode: Episode, config: GeneratorTraining):
        super().__init__(episode, config)
        self.by_item = csr_array(episode.clicks.T.tocsr())
        self.by_item.sort_indices()
        self.clicked = np.flatnonzero(np.diff(self.by_item.indptr) > 0)
        self.batch = min(config.batch, len(self.clicked))
        self.batches = len(self.clicked) // self.batch if self.batch else 0

    def epoch(self, random: np.random.Generator) -> list[Rows]:
        items = self.episode.items[self.clicked]
        order = self.clicked[clustered_order(items, self.config.cluster, random)]
        return [order[number * self.batch :][: self.batch] for number in range(self.batches)]

    def loss(self, generator: TorchGenerator, head: _Head, rows: Rows, random: np.random.Generator) -> Tensor:
        drawn = [draw_clicks(self.by_item, rows, random) for _ in range(self.config.queries_per_item)]
        asking = np.unique(np.concatenate(drawn))
        logits = head(self.queries(asking), self.made(generator, rows))
        clicked = to_device(click_mask(self.episode.clicks, asking, rows), self.device)
        return weighted_cross_entropy(logits, clicked, self.config.positive_weight)


def _batches(sources: Sequence[_Source], random: np.random.Generator) -> Iterator[tuple[_Source, Rows]]:
    """Batches without end; in each pass every batch of every episode once, the episodes in random turns."""
    while True:
        batches = [source.epoch(random) for source in sources]
        turns = np.repeat(np.arange(len(sources)), [len(own) for own in batches])
        for number in random.permutation(turns):
            yield sources[number], batches[number].pop(0)


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
