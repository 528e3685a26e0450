"""Folds of pseudo-novel items, with everything fitted without them, and the validation queries that compare settings.

A share of the *observed* items plays novel and a share of the queries plays test (`metaxc.data.folds`). Everything that
learns is fitted without them; a setting is as good as the ranking that it gives the held-out queries. One fold is not
enough: a few popular items decide its P@1, and which of them are pseudo-novel differs from fold to fold, so settings
are compared by their mean over several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import FEWEST_QUERIES, Fold
from metaxc.emmett import ExpansionConfig, QueryExpansion
from metaxc.generators import Episode, TorchGenerator, gather
from metaxc.index.topk import best_rows
from metaxc.metrics import hits, precision, recall, relevant_counts

MOST_QUERIES = 1_000
"""Validation queries of each fold."""

MOST_SCORES = 50_000_000
"""Scores of queries × items held at once (200 MB); with millions of items there are fewer validation queries."""

SLACK = 0.3
"""Points of quality; half the standard error of three folds of 1,000 validation queries."""


@dataclass(frozen=True)
class Quality:
    """P@1 and R@10 in percent; settings are compared by their mean."""

    precision: float
    recall: float

    @property
    def mean(self) -> float:
        """The mean of both."""
        return (self.precision + self.recall) / 2

    def is_close_to(self, other: Quality) -> bool:
        """Whether neither figure is more than `SLACK` below the other's."""
        return self.precision >= other.precision - SLACK and self.recall >= other.recall - SLACK

    def to_dict(self) -> dict[str, float]:
        """The figures by the metrics' names."""
        return {"P@1": self.precision, "R@10": self.recall}


def mean_quality(found: Sequence[Quality]) -> Quality:
    """The mean over several folds."""
    return Quality(
        float(np.mean([one.precision for one in found])), float(np.mean([one.recall for one in found]))
    )


def ranking_quality(scores: Tensor, relevant: csr_array) -> Quality:
    """How well (queries, items) scores rank; every query has a relevant item."""
    _, columns = best_rows(scores, 10)
    hit = hits(columns.numpy(), relevant)
    counts = relevant_counts(relevant)
    return Quality(100 * float(precision(hit, 1).mean()), 100 * float(recall(hit, counts, 10).mean()))


@dataclass(frozen=True)
class ValidationQueries:
    """Held-out queries and what they clicked.

    Args:
        queries: (queries, dim) embeddings.
        clicks: (queries, items); every query has a click.
    """

    queries: Floats
    clicks: csr_array

    @staticmethod
    def sample(queries: Floats, clicks: csr_array, seed: int) -> ValidationQueries:
        """Keep at most `MOST_QUERIES` of the queries that have a click."""
        rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
        most = max(FEWEST_QUERIES, min(MOST_QUERIES, MOST_SCORES // max(clicks.shape[1], 1)))
        if len(rows) > most:
            rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
        return ValidationQueries(np.array(queries[rows]), csr_array(clicks[rows]))

    def quality(self, vectors: Floats) -> Quality:
        """How well (items, dim) vectors rank."""
        return ranking_quality(torch.from_numpy(self.queries @ vectors.T), self.clicks)

    def with_columns(self, order: Rows) -> ValidationQueries:
        """The same queries over the items in another order."""
        clicks = csr_array(self.clicks[:, order])
        clicks.sort_indices()
        return ValidationQueries(self.queries, clicks)


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
    def build(fold: Fold, queries: Floats, clicks: csr_array, seed: int) -> TuningFold:
        """Apply a fold.

        Args:
            fold: Which items and queries are held out.
            queries: (queries, dim) embeddings of all training queries.
            clicks: (queries, observed).
            seed: Draws the validation queries.
        """
        held = np.flatnonzero(fold.held)
        queries = np.asarray(queries[held])
        return TuningFold(
            fold,
            *fold.training(clicks),
            ValidationQueries.sample(queries, csr_array(clicks[held][:, fold.novel]), seed),
            ValidationQueries.sample(queries, csr_array(clicks[held]), seed),
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
        classifiers: Classifiers of the remaining observed items.
        neighbour_classifiers: What of the neighbours informs an item: `classifiers`, or an ablation.
        observed_embeddings: (remaining observed, dim).
        novel_embeddings: (pseudo-novel, dim).
        queries: (queries, dim) all training queries by the fold's encoder.
        novel_clicks: (queries, pseudo-novel) their clicks.
        neighbours: (pseudo-novel, most K) rows of the nearest remaining observed items.
        similarities: (pseudo-novel, most K) their similarities.
        expansion: The fold's training queries; None where queries are not expanded.
    """

    data: TuningFold
    classifiers: Classifiers
    neighbour_classifiers: Classifiers
    observed_embeddings: Floats
    novel_embeddings: Floats
    queries: Floats
    novel_clicks: csr_array
    neighbours: Rows
    similarities: Floats
    expansion: QueryExpansion | None = None

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

    def generate(self, generator: TorchGenerator, neighbour_vectors: Floats, k: int) -> Floats:
        """(pseudo-novel, dim): what a generator makes of k neighbours, not scaled."""
        selected = gather(neighbour_vectors, self.neighbours[:, :k])
        return generator.generate(self.novel_embeddings, selected, self.similarities[:, :k])

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
            self.queries[self.data.training_rows],
            self.observed_embeddings,
            self.data.training_clicks,
            neighbour_vectors,
            neighbours,
            similarities,
        )


def zero_shot_quality(folds: Sequence[FittedFold], generated: Sequence[Floats]) -> Quality:
    """How well meta-classifiers (one (pseudo-novel, dim) array per fold) rank the pseudo-novel items."""
    pairs = zip(folds, generated, strict=True)
    return mean_quality([fold.data.zero_shot.quality(vectors) for fold, vectors in pairs])
