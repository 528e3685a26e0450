"""How a configuration makes the parts of a model: the same code for a fold of pseudo-novel items and for all items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers, OneVsAllConfig, centroid, one_vs_all, ridge
from metaxc.emmett import Calibration, QueryExpansion
from metaxc.emmett.scoring import MOST
from metaxc.generators import (
    Combine,
    Episode,
    Gated,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
    train_generator,
)
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.generators.transformer import POST_NORM_HIDDEN
from metaxc.irene.config import IreneConfig
from metaxc.selectors import NearestSelector
from metaxc.tuning import CombineChoice


class ConfiguredParts:
    """Implements `metaxc.tuning.ModelParts` for a configuration."""

    def __init__(self, config: IreneConfig):
        self.config = config
        self.seed, self.neighbours = config.seed, config.neighbours
        self.exposure, self.exposure_cost = config.exposure, config.exposure_cost

    @property
    def keeps_neighbour_vectors(self) -> bool:
        """Whether novel items are informed by something else than the observed items' own classifiers."""
        return (
            self.config.meta_training.neighbour_input in ("embeddings", "centroids")
            or self.config.training.train_classifiers
        )

    @property
    def calibration(self) -> Calibration | None:
        """The calibration, when it is given and not to be chosen: that of a model that ranks observed items by the
        generator, whose clicks then neither end their novelty nor add anything to it."""
        if self.config.observed_items == "classifier":
            return None
        return Calibration(own=0.0, novelty_prior=MOST)

    @property
    def reads_clicks(self) -> bool:
        """Whether the generator is told of the neighbours' clicks, which it sees by the trust in their classifiers."""
        return self.config.training.transformer.neighbour_features

    def generator_kinds(self, folds: int) -> tuple[str, ...]:
        """The kinds of generator to compare, the simplest first; with one fold alone no gate could be trained on items
        that its encoder has not seen and validated on others."""
        if self.config.generator != "auto":
            return (self.config.generator,)
        return ("combine", "gated") if folds > 1 else ("combine",)

    def learns(self, kind: str) -> bool:
        """Whether a kind of generator has anything to learn."""
        return kind not in ("combine", "sum") or self.config.training.train_classifiers

    def trains_out_of_fold(self, kind: str, folds: int) -> bool:
        """Whether a generator is trained on the folds' pseudo-novel items; one fold alone could not be validated."""
        return self.config.meta_training.items == "out_of_fold" and self.learns(kind) and folds > 1

    def fit_classifiers(self, queries: Floats, clicks: csr_array) -> Classifiers:
        """Classifiers of observed items."""
        kind = self.config.classifiers
        if kind == "centroid":
            return centroid(queries, clicks)
        if kind == "ridge":
            return ridge(queries, clicks)
        how = kind if isinstance(kind, OneVsAllConfig) else OneVsAllConfig()
        return one_vs_all(queries, clicks, how, seed=self.seed)

    def neighbour_classifiers(
        self, classifiers: Classifiers, embeddings: Floats, queries: Floats, clicks: csr_array
    ) -> Classifiers:
        """What of its neighbours informs an item: their classifiers, or an ablation."""
        if self.config.meta_training.neighbour_input == "embeddings":
            return replace(classifiers, weights=np.asarray(embeddings, dtype=np.float32))
        if self.config.meta_training.neighbour_input == "centroids":
            return replace(classifiers, weights=centroid(queries, clicks).weights)
        return classifiers

    def train_generator(
        self, kind: str, combine: CombineChoice, episodes: Sequence[Episode]
    ) -> TrainedGenerator:
        """A generator trained on the episodes, starting at the combine."""
        torch.manual_seed(self.seed)
        dim, depth = episodes[0].items.shape[1], self.config.training.depth
        start = (combine.strength, combine.temperature)
        how = self.config.training.transformer
        inputs = {
            "features": int(how.neighbour_features),
            "alone": int(self.config.meta_training.neighbour_input == "none"),
        }
        makers: dict[str, Callable[[], TorchGenerator]] = {
            "combine": lambda: Combine(*start),
            "gated": lambda: Gated(*start),
            "sum": Sum,
            "weighted_sum": lambda: WeightedSum(combine.neighbours),
            "transformer": lambda: ResidualTransformer(dim, depth, *start, hidden=how.hidden or 0, **inputs),
            "post_norm": lambda: PostNormTransformer(
                dim, depth, how.hidden or POST_NORM_HIDDEN, zero_start=how.zero_start, **inputs
            ),
        }
        return train_generator(makers[kind](), episodes, self.config.training, seed=self.seed)

    def training_neighbours(self, kind: str, embeddings: Floats, k: int) -> tuple[Rows, Floats]:
        """The neighbours of observed items among themselves, for a generator that learns from these: (observed, k) rows
        and similarities. Where there is nothing to learn there are none, (0, k): this search takes longer than all
        else."""
        queries = embeddings if self.learns(kind) else embeddings[:0]
        itself = None if self.config.meta_training.include_self else np.arange(len(queries))
        return NearestSelector(embeddings).select(queries, k, exclude_self=itself)

    def query_expansion(
        self, queries: Floats, clicks: csr_array, embeddings: Floats
    ) -> QueryExpansion | None:
        """The training queries that expand a query; None for no expansion."""
        if not self.config.expansion_queries:
            return None
        most = self.config.expansion_queries
        return QueryExpansion.sample(queries, clicks, embeddings, most, self.seed)
