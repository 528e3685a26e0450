"""Folds of pseudo-novel items, with everything fitted without them, and the validation queries that compare settings.

A share of the *observed* items plays novel and a share of the queries plays test (`metaxc.data.folds`): the newest and
the latest where there are times. Everything that learns is fitted without them; a setting is as good as the ranking
that it gives the held-out queries. One fold is not enough: a few popular items decide its P@1, and which of them are
pseudo-novel differs from fold to fold, so settings are compared by their mean over several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import torch
from numpy.lib.format import open_memmap
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Floats, Mask, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import ClassifierResponse
from metaxc.generators import Episode, TorchGenerator, gather
from metaxc.index.topk import best_rows, top_k
from metaxc.tuning.qualities import DEPTH, Quality, Relevance, mean_quality, ranking_quality
from metaxc.tuning.shortlists import FoldItems, Shortlist, queries_at_once

MOST_QUERIES = 2_000
"""Validation queries of each fold, however many items there are. With three folds the recall of a slice of items by
clicks, typically 1,000 to 3,000 query-item pairs, has a standard error of about one point."""

UNFAMILIAR = 1 / 3
"""The share of the validation queries that counts as unfamiliar: those least like any query that was learnt from. Where
folds are random it cannot be known how familiar future queries are, so that what is promised must hold for these too;
windows of time show it (docs/decisions.md)."""

MOST_TRAINING_QUERIES = 200_000
"""Training queries that validation queries are compared with, at most."""

BLOCK = 4_096
"""Items generated at once: 4,096 × 20 neighbours × 384 float32 are 126 MB."""


@dataclass(frozen=True)
class ValidationQueries:
    """Held-out queries and what they clicked.

    Args:
        queries: (queries, dim) embeddings.
        clicks: (queries, items); every query has a click.
        excluded: (queries, items) pairs that are left out of rankings; None for none.
        unfamiliar: (queries,) bool, the queries that are least like the training queries; None if unknown.
    """

    queries: Floats
    clicks: csr_array
    excluded: csr_array | None = None
    unfamiliar: Mask | None = None

    @staticmethod
    def sample(
        queries: Floats, clicks: csr_array, seed: int, excluded: csr_array | None = None
    ) -> ValidationQueries:
        """Keep at most `MOST_QUERIES` of the queries that have a click."""
        rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
        if len(rows) > MOST_QUERIES:
            rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_QUERIES, replace=False))
        hidden = None if excluded is None else csr_array(excluded[rows])
        return ValidationQueries(np.array(queries[rows]), csr_array(clicks[rows]), hidden)

    def quality(self, vectors: Floats) -> Quality:
        """How well (items, dim) vectors rank."""
        size = queries_at_once(len(vectors))
        ranked = [
            best_rows(self.part(start, start + size).scores(vectors), DEPTH)[1].numpy()
            for start in range(0, len(self.queries), size)
        ]
        return ranking_quality(np.concatenate(ranked), self.clicks)

    def scores(self, vectors: Floats) -> Tensor:
        """(queries, items) scores of (items, dim) vectors, −inf for the excluded pairs."""
        scores = self.queries @ vectors.T
        if self.excluded is not None:
            scores[self.excluded.nonzero()] = -np.inf
        return torch.from_numpy(scores)

    def part(self, start: int, stop: int) -> ValidationQueries:
        """Some of the queries that follow each other."""
        one = slice(start, stop)
        hidden = None if self.excluded is None else csr_array(self.excluded[one])
        unfamiliar = None if self.unfamiliar is None else self.unfamiliar[one]
        return ValidationQueries(self.queries[one], csr_array(self.clicks[one]), hidden, unfamiliar)

    def with_columns(self, order: Rows) -> ValidationQueries:
        """The same queries over the items in another order, or over some of them."""
        clicks = csr_array(self.clicks[:, order])
        clicks.sort_indices()
        hidden = None if self.excluded is None else csr_array(self.excluded[:, order])
        return replace(self, clicks=clicks, excluded=hidden)

    def compared_with(self, training: Floats) -> ValidationQueries:
        """The same queries, with those marked that are least like the (n, dim) training queries."""
        if not len(training) or not len(self.queries):
            return self
        nearest = top_k(self.queries, training, 1)[1][:, 0]
        return replace(self, unfamiliar=nearest <= np.quantile(nearest, UNFAMILIAR))


@dataclass(frozen=True)
class TuningFold:
    """A fold applied to data: what may be learnt from, and what validates.

    Args:
        fold: Which items and queries are held out.
        training_rows: Rows of the queries that remain to learn from.
        training_clicks: (training rows, remaining observed) their clicks.
        zero_shot: Validation queries over the pseudo-novel items.
        generalized: Validation queries over all observed items.
    """

    fold: Fold
    training_rows: Rows
    training_clicks: csr_array
    zero_shot: ValidationQueries
    generalized: ValidationQueries

    @staticmethod
    def build(
        fold: Fold, queries: Floats, clicks: csr_array, seed: int, excluded: csr_array | None = None
    ) -> TuningFold:
        """Apply a fold.

        Args:
            fold: Which items and queries are held out.
            queries: (queries, dim) embeddings of all training queries.
            clicks: (queries, observed).
            seed: Draws the validation queries.
            excluded: (queries, observed) pairs that are left out of rankings; None for none.
        """
        held, judged = fold.validation(clicks)
        rows, learnt = fold.training(clicks)
        known = np.asarray(queries[rows[:: max(1, len(rows) // MOST_TRAINING_QUERIES)]])
        queries = np.asarray(queries[held])
        hidden = None if excluded is None else csr_array(excluded[held])
        hidden_novel = None if hidden is None else csr_array(hidden[:, fold.novel])
        generalized = ValidationQueries.sample(queries, judged, seed, hidden)
        return TuningFold(
            fold,
            rows,
            learnt,
            ValidationQueries.sample(queries, csr_array(judged[:, fold.novel]), seed, hidden_novel),
            generalized if fold.follows_time else generalized.compared_with(known),
        )

    @staticmethod
    def draw(queries: Floats, clicks: csr_array, seed: int) -> TuningFold | None:
        """A random fold; None where there are too few data to choose anything by."""
        fold = Fold.draw(clicks, seed)
        return None if fold is None else TuningFold.build(fold, queries, clicks, seed)

    @property
    def item_order(self) -> Rows:
        """The columns of the remaining observed items, then those of the pseudo-novel ones."""
        return np.concatenate([self.fold.observed, self.fold.novel])

    def quality(self, vectors: Floats) -> float:
        """How well (observed, dim) vectors rank, zero-shot and generalized in the mean, percent."""
        zero_shot = self.zero_shot.quality(vectors[self.fold.novel])
        return (zero_shot.mean + self.generalized.quality(vectors).mean) / 2


@dataclass(frozen=True)
class FittedFold:
    """A fold after everything but the generator was fitted without its pseudo-novel items and held-out queries.

    Args:
        data: The fold applied to the clicks.
        own_classifiers: Classifiers of all items in the order of `embeddings`; zeros where an item plays novel.
        neighbour_classifiers: What of the neighbours informs an item: `classifiers`, or an ablation.
        embeddings: (items, dim) the remaining observed items, then the pseudo-novel ones, as `TuningFold.item_order`.
        queries: (queries, dim) all training queries by the fold's encoder; none where no generator learns from them.
        novel_clicks: (queries, pseudo-novel) their clicks.
        neighbours: (pseudo-novel, most K) rows of the nearest remaining observed items.
        similarities: (pseudo-novel, most K) their similarities.
        observed_neighbours: (remaining observed, most K) rows of the items nearest to each, itself excluded.
        observed_similarities: (remaining observed, most K) their similarities.
        response: How strongly the classifiers respond to a query, which the exposure is proportional to.
        expansion: The fold's training queries; None where queries are not expanded.
        folder: Where its large arrays are, mapped into memory; None where they are in memory.
    """

    data: TuningFold
    own_classifiers: Classifiers
    neighbour_classifiers: Classifiers
    embeddings: Floats
    queries: Floats
    novel_clicks: csr_array
    neighbours: Rows
    similarities: Floats
    observed_neighbours: Rows
    observed_similarities: Floats
    response: ClassifierResponse
    expansion: QueryExpansion | None = None
    folder: Path | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that `on_disk` writes, and of what the generator adds to them."""
        return 3 * self.embeddings.nbytes + self.queries.nbytes

    def on_disk(self, folder: Path) -> FittedFold:
        """The same fold with its large arrays in files, mapped into memory: of several folds only the one that is
        worked on takes memory that others need.

        Args:
            folder: An empty folder, which must stay as long as the fold.
        """

        def moved(name: str, array: Floats) -> Floats:
            np.save(folder / f"{name}.npy", array)
            # Copied on write, as torch wants arrays that it could write to; nothing is written.
            mapped: Floats = np.load(folder / f"{name}.npy", mmap_mode="c")
            return mapped

        own = replace(self.own_classifiers, weights=moved("own", self.own_classifiers.weights))
        informing = self.neighbour_classifiers
        shared = np.shares_memory(informing.weights, self.own_classifiers.weights)
        weights = own.weights[: len(informing)] if shared else moved("informing", informing.weights)
        return replace(
            self,
            own_classifiers=own,
            neighbour_classifiers=replace(informing, weights=weights),
            embeddings=moved("embeddings", self.embeddings),
            queries=moved("queries", self.queries) if len(self.queries) else self.queries,
            folder=folder,
        )

    @property
    def observed(self) -> int:
        """The number of remaining observed items."""
        return len(self.observed_neighbours)

    @property
    def classifiers(self) -> Classifiers:
        """Classifiers of the remaining observed items."""
        return self.own_classifiers.take(slice(self.observed))

    @property
    def observed_embeddings(self) -> Floats:
        """(remaining observed, dim)."""
        return self.embeddings[: self.observed]

    @property
    def novel_embeddings(self) -> Floats:
        """(pseudo-novel, dim)."""
        return self.embeddings[self.observed :]

    def expanded(self, config: ExpansionConfig) -> FittedFold:
        """The fold with expanded validation queries."""
        if self.expansion is None:
            return self
        expansion = self.expansion.with_config(config)
        zero_shot, generalized = (
            replace(one, queries=expansion.expand(one.queries))
            for one in (self.data.zero_shot, self.data.generalized)
        )
        return replace(self, data=replace(self.data, zero_shot=zero_shot, generalized=generalized))

    def items(self, generator: TorchGenerator, neighbour_vectors: Floats, k: int) -> FoldItems:
        """The fold's items in the order of `TuningFold.item_order`, with what a generator makes of k neighbours."""
        embeddings = self.embeddings
        rows = np.concatenate([self.observed_neighbours[:, :k], self.neighbours[:, :k]])
        similarities = np.concatenate([self.observed_similarities[:, :k], self.similarities[:, :k]])
        direction = self._empty_direction()
        for start in range(0, len(embeddings), BLOCK):
            at = slice(start, start + BLOCK)
            selected = gather(neighbour_vectors, rows[at])
            direction[at] = generator.generate(embeddings[at], selected, similarities[at]) - embeddings[at]
        return FoldItems(embeddings, direction, self.own_classifiers)

    def _empty_direction(self) -> Floats:
        """(items, dim) not filled; a file of its own where the fold is on disk."""
        if self.folder is None:
            return np.empty(self.embeddings.shape, np.float32)
        with NamedTemporaryFile(dir=self.folder, suffix=".npy", delete=False) as file:
            return open_memmap(file.name, mode="w+", dtype=np.float32, shape=self.embeddings.shape)

    def shortlist(self, items: FoldItems) -> Shortlist:
        """The items that could rank first for each generalized validation query."""
        validation = self.data.generalized.with_columns(self.data.item_order)
        return Shortlist(
            validation.queries,
            items,
            self.relevance(items),
            excluded=validation.excluded,
            response=self.response(validation.queries),
        )

    def relevance(self, items: FoldItems) -> Relevance:
        """What the generalized validation queries clicked, over items in the order of `items`."""
        validation = self.data.generalized.with_columns(self.data.item_order)
        novel = np.arange(len(items.embeddings)) >= len(self.observed_embeddings)
        return Relevance(validation.clicks, novel, items.classifiers.clicks, validation.unfamiliar)

    def novel_episode(self, neighbour_vectors: Floats, k: int) -> Episode:
        """The pseudo-novel items to train a generator on: the encoder has seen none of their clicks."""
        return Episode(
            self.queries,
            self.novel_embeddings,
            self.novel_clicks,
            neighbour_vectors,
            self.neighbours[:, :k],
            self.similarities[:, :k],
        )

    def observed_episode(self, neighbour_vectors: Floats, neighbours: Rows, similarities: Floats) -> Episode:
        """The items that the fold's encoder was trained on, with their neighbours; for comparison."""
        return Episode(
            self.queries[self.data.training_rows] if len(self.queries) else self.queries,
            self.observed_embeddings,
            self.data.training_clicks,
            neighbour_vectors,
            neighbours,
            similarities,
        )


def zero_shot_quality(folds: Sequence[FittedFold], items: Sequence[FoldItems], strength: float) -> Quality:
    """How well the pseudo-novel items of each fold rank among themselves at this strength."""
    return mean_quality(
        [
            fold.data.zero_shot.quality(one.generated(strength, slice(fold.observed, None)))
            for fold, one in zip(folds, items, strict=True)
        ]
    )
