"""Baselines that are Emmett models: NGAME, DEXA, and the model trained again with some clicks on novel items.

*NGAME* as it is served: an observed item is its embedding plus its own classifier, a novel one only its
embedding. In the framework's terms, a generator that ignores the neighbours.

*DEXA*: a learned vector per cluster of items, added to the embedding of each of its items.

    novel:     u = z + a_c            the selector finds the cluster c, the generator adds its vector
    observed:  u = z + a_c + own · t(w)

The cluster vectors are learned on the clicks, contrastively with in-batch negatives, from 0: an untrained DEXA is the
bare encoder. z + a_c is not normalised, neither in training nor in serving, so a cluster can also learn how likely its
items are overall.

Both use any given encoder unchanged, so a comparison is about how items are represented, not about how encoders are
trained. The weight of an observed item's classifier is tuned on pseudo-novel items, like ours.

*Retrained*: the same configuration trained from scratch on a log in which the revealed clicks are visible and the items
that they are on are observed; items without a revealed click stay novel. It is the upper bound of what clicks on new
items can contribute, at the cost of a whole training run whenever some arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor, nn

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers, ridge
from metaxc.data import ClickLog, Dataset
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.emmett import Calibration, Emmett
from metaxc.encoders import Encoder
from metaxc.encoders.training.losses import contrastive_loss
from metaxc.errors import DataError
from metaxc.evaluation.overlap import check_overlap
from metaxc.evaluation.searches import Search, encode_test_queries_once, model_search
from metaxc.generators import Combine, Sum
from metaxc.irene import Irene
from metaxc.research.baselines.baseline import VectorScorer, embed_training_data
from metaxc.selectors import ClusterSelector, cluster
from metaxc.training_loop import run_training, shuffled_batches
from metaxc.tuning import TuningFold, tune_own_classifiers

FitClassifiers = Callable[[Floats, csr_array], Classifiers]
"""(queries, dim) embeddings and (queries, observed) clicks to classifiers."""


class NGAME:
    """Own classifiers for observed items, bare embeddings for novel ones.

    Args:
        encoder: Any encoder; it stays unchanged.
        classifiers: Fits the observed items' classifiers: ridge, or `metaxc.classifiers.one_vs_all`, which is how the
            method trains them.
        seed: Seed of the fold that the weight of the classifiers is tuned on.
    """

    name: ClassVar[str] = "NGAME"

    def __init__(self, encoder: Encoder, *, classifiers: FitClassifiers = ridge, seed: int = 0):
        self.encoder, self.classifiers, self.seed = encoder, classifiers, seed

    def __repr__(self) -> str:
        return f"NGAME({self.encoder!r})"

    def fit(self, dataset: Dataset) -> VectorScorer:
        """The fitted model as a scorer."""
        return emmett_scorer(self.fit_emmett(dataset), dataset)

    def fit_emmett(self, dataset: Dataset) -> Emmett:
        """The fitted model; its meta-classifiers are the embeddings themselves."""
        observed, clicks, queries, everything = embed_training_data(self.encoder, dataset)
        items = np.ascontiguousarray(everything[observed])
        calibration = Calibration(novelty_prior=0.0)  # no neighbours for an item with clicks
        fold = TuningFold.draw(queries, clicks, self.seed)
        if fold is not None:
            classifiers = self.classifiers(queries[fold.training_rows], fold.training_clicks)
            calibration = tune_own_classifiers(fold, items, classifiers)
        return Emmett(
            self.encoder,
            self.classifiers(queries, clicks),
            items,
            Combine(strength=0.0),
            dataset.items,
            observed,
            neighbours=1,
            calibration=calibration,
            about={"method": self.name, "data": {"name": dataset.name, "fingerprint": dataset.fingerprint}},
            item_embeddings=everything,
        )


class DexaConfig(BaseModel):
    """How the cluster vectors are trained. The defaults of step limit, scale and logQ correction are those of
    `AdapterConfig`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    items_per_cluster: int = Field(16, ge=1, description="on average, when no number of clusters is given")
    epochs: int = Field(5, ge=0, description="passes over the queries, one clicked item per query and pass")
    max_steps: int = Field(800, ge=1, description="upper limit of the training steps for large data sets")
    batch: int = Field(512, ge=2, description="pairs per step; half the adapter's, for a quarter of the time")
    learning_rate: float = Field(2e-3, gt=0, description="Adam's rate at the start; it falls linearly to 0")
    logq_correction: float = Field(
        0.75,
        ge=0,
        le=1,
        description="logQ correction: subtract this × log(clicks) from the item's logit when it is a negative",
    )
    scale: float = Field(
        12.0,
        gt=0,
        description="multiplies the similarities to give logits; initial value of a trained parameter",
    )


class DEXA:
    """Embeddings plus a learned vector per cluster.

    Args:
        encoder: Any encoder; it stays unchanged.
        clusters: Number of clusters; from `config.items_per_cluster` when None.
        config: How the cluster vectors are trained.
        classifiers: Fits the observed items' classifiers, as in `NGAME`.
        seed: Seed of clusters, training and fold.
    """

    name: ClassVar[str] = "DEXA"

    def __init__(
        self,
        encoder: Encoder,
        clusters: int | None = None,
        *,
        config: DexaConfig | None = None,
        classifiers: FitClassifiers = ridge,
        seed: int = 0,
    ):
        self.encoder, self.clusters, self.config = encoder, clusters, config or DexaConfig()
        self.classifiers, self.seed = classifiers, seed

    def __repr__(self) -> str:
        return f"DEXA({self.encoder!r}, clusters={self.clusters or 'by size'})"

    def fit(self, dataset: Dataset) -> VectorScorer:
        """The fitted model as a scorer."""
        return emmett_scorer(self.fit_emmett(dataset), dataset)

    def fit_emmett(self, dataset: Dataset) -> Emmett:
        """The fitted model; its meta-classifiers are embedding + cluster vector."""
        observed, clicks, queries, everything = embed_training_data(self.encoder, dataset)
        items = np.ascontiguousarray(everything[observed])
        calibration = Calibration(novelty_prior=0.0)  # no neighbours for an item with clicks
        fold = TuningFold.draw(queries, clicks, self.seed)
        if fold is not None:  # clusters and vectors are trained without the fold's pseudo-novel items
            training = (queries[fold.training_rows], fold.training_clicks)
            selector, vectors = self._fit_clusters(items[fold.fold.observed], *training)
            shifted = items + vectors[selector.select(items, 1)[0][:, 0]]
            calibration = tune_own_classifiers(fold, shifted, self.classifiers(*training))
        selector, vectors = self._fit_clusters(items, queries, clicks)
        return Emmett(
            self.encoder,
            self.classifiers(queries, clicks),
            items + vectors[selector.select(items, 1)[0][:, 0]],
            Sum(),
            dataset.items,
            observed,
            neighbours=1,
            calibration=calibration,
            about={"method": self.name, "data": {"name": dataset.name, "fingerprint": dataset.fingerprint}},
            selector=selector,
            neighbour_vectors=vectors,
            item_embeddings=everything,
        )

    def _fit_clusters(
        self, items: Floats, queries: Floats, clicks: csr_array
    ) -> tuple[ClusterSelector, Floats]:
        count = self.clusters or max(1, len(items) // self.config.items_per_cluster)
        centroids, assigned = cluster(items, min(count, len(items)), self.seed)
        vectors = train_cluster_vectors(queries, items, clicks, assigned, self.config, seed=self.seed)
        return ClusterSelector(centroids), vectors


def train_cluster_vectors(
    queries: Floats, items: Floats, clicks: csr_array, assigned: Rows, config: DexaConfig, *, seed: int = 0
) -> Floats:
    """(clusters, dim) float32: the vectors which, added to the items' embeddings, rank the clicked items best.

    Args:
        queries: (queries, dim).
        items: (items, dim).
        clicks: (queries, items); every query has a click.
        assigned: (items,) the cluster of each item.
        config: How they are trained.
        seed: Seed of the order and of the choice among a query's clicks.
    """
    random = np.random.default_rng(seed)
    counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
    correction = config.logq_correction * torch.from_numpy(np.log(np.maximum(counts, 1)).astype(np.float32))
    vectors = nn.Parameter(torch.zeros(int(assigned.max()) + 1, items.shape[1]))
    log_scale = nn.Parameter(torch.tensor(config.scale).log())
    batch = min(config.batch, clicks.shape[0])
    batches = shuffled_batches(clicks.shape[0], batch, random, keep_last=False)

    def compute_loss(step: int) -> Tensor:
        query_rows = next(batches)
        item_rows = draw_clicks(clicks, query_rows, random)
        return contrastive_loss(
            torch.from_numpy(queries[query_rows]),
            torch.from_numpy(items[item_rows]) + vectors[torch.from_numpy(assigned[item_rows])],
            log_scale.exp(),
            torch.from_numpy(click_mask(clicks, query_rows, item_rows)),
            correction[item_rows],
        )

    steps = min(max(1, clicks.shape[0] // batch) * config.epochs, config.max_steps)
    optimizer = torch.optim.Adam([vectors, log_scale], lr=config.learning_rate)
    run_training(compute_loss, [optimizer], steps, label="train cluster vectors")
    return vectors.detach().numpy()


def emmett_scorer(model: Emmett, dataset: Dataset) -> VectorScorer:
    """A model as a fitted baseline."""
    return VectorScorer(encode_test_queries_once(model.encode_queries, dataset), model.vectors)


class Retrained:
    """The model trained again with some clicks on novel items.

    Args:
        recipe: The configured training.
        revealed: (training queries, items) clicks on novel items to train on; None for none.
    """

    name: ClassVar[str] = "Retrained"

    def __init__(self, recipe: Irene, revealed: csr_array | None = None):
        self.recipe, self.revealed = recipe, revealed

    def fit(self, dataset: Dataset) -> VectorScorer:
        """The retrained model as a scorer."""
        return emmett_scorer(self.fit_emmett(dataset), dataset)

    def fit_emmett(self, dataset: Dataset) -> Emmett:
        """Train on the data set with the revealed clicks; an `OverlapError` if it has test clicks among them."""
        visible = dataset if self.revealed is None else reveal_clicks(dataset, self.revealed)
        model = self.recipe.fit(visible)
        check_overlap(model, visible)
        return model

    def search(self, dataset: Dataset) -> Search:
        """The retrained model's search, which is that of any model: query layer, query expansion, exposure, index."""
        # The revealed items are observed for the model and novel for the data set, which is the purpose here.
        return model_search(self.fit_emmett(dataset), dataset, allow_overlap=True)


def reveal_clicks(dataset: Dataset, revealed: csr_array) -> Dataset:
    """The data set in which exactly the revealed clicks on novel items are visible, and these items are observed."""
    clicks, novel = dataset.train.clicks, dataset.novel_mask
    if revealed.shape != clicks.shape:
        raise DataError(
            "The revealed clicks do not match the training log",
            got=f"shape {revealed.shape}",
            expected=f"shape {clicks.shape} (training queries, items)",
        )
    query_rows, item_rows = revealed.nonzero()
    is_revealed = np.bincount(item_rows, minlength=len(novel)) > 0
    if is_revealed[~novel].any():
        raise DataError(
            "A revealed click is on an observed item",
            got=f"item {dataset.items.ids[int(np.flatnonzero(is_revealed & ~novel)[0])]!r}",
            expected="clicks on novel items",
        )
    train_rows, train_items = clicks.nonzero()
    visible = ~novel[train_items]
    together = ClickLog.of_events(
        dataset.train.queries,
        len(novel),
        np.concatenate([train_rows[visible], query_rows]),
        np.concatenate([train_items[visible], item_rows]),
        counts=np.concatenate([dataset.train.pair_counts[visible], np.ones(len(query_rows), np.int64)]),
    )
    derived = replace(dataset, train=together, novel=None)
    # Not through `replace`: it rejects a mask without novel items, which here means that all have revealed clicks.
    object.__setattr__(derived, "novel", novel & ~is_revealed)
    return derived
