"""DEXA as an Emmett: a learnt vector per cluster of items, added to the embedding of each of its items.

    novel:     u = z + a_c            the selector finds the cluster c, the bank holds the a, the generator sums
    observed:  u = z + a_c + own · t(w)

The encoder is frozen and the a are learnt on the clicks, contrastively with in-batch negatives, from 0: an untrained
DEXA is the bare encoder. z + a_c is not normalised, in training as in serving; so a cluster may also learn how likely
its items are at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import nn
from tqdm import tqdm

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers, ridge
from metaxc.data import Dataset
from metaxc.data.clicks import click_mask, draw_clicks
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.encoders.training.losses import contrastive_loss
from metaxc.generators import Sum
from metaxc.research.baselines.baseline import Dense, embed_training_data
from metaxc.research.baselines.served import served
from metaxc.selectors import ClusterSelector, cluster
from metaxc.tuning import TuningFold, tune_own_classifiers


class DexaConfig(BaseModel):
    """How the cluster vectors are learnt. Cap, scale and popularity are those of `AdapterConfig`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    items_per_cluster: int = Field(16, ge=1, description="in the mean, when no number of clusters is given")
    epochs: int = Field(5, ge=0, description="passes over the queries, one clicked item per query and pass")
    most_steps: int = Field(800, ge=1, description="no more than this many steps, however many queries")
    batch: int = Field(512, ge=2, description="pairs per step; half the adapter's, for a quarter of the time")
    learning_rate: float = Field(2e-3, gt=0, description="Adam's, falling linearly to 0")
    popularity: float = Field(
        0.75, ge=0, le=1, description="how much of log(clicks) an item is excused for when it is a negative"
    )
    scale: float = Field(12.0, gt=0, description="of the logits at the start; learnt")


class DEXA:
    """Embeddings plus a learnt vector per cluster.

    Args:
        encoder: Used as it is.
        clusters: How many; from `config.items_per_cluster` when None.
        config: How their vectors are learnt.
        classifiers: As in `metaxc.research.baselines.served.NGAME`.
        seed: Of clusters, training and fold.
    """

    name: ClassVar[str] = "DEXA"

    def __init__(
        self,
        encoder: Encoder,
        clusters: int | None = None,
        *,
        config: DexaConfig | None = None,
        classifiers: Callable[[Floats, csr_array], Classifiers] = ridge,
        seed: int = 0,
    ):
        self.encoder, self.clusters, self.config = encoder, clusters, config or DexaConfig()
        self.classifiers, self.seed = classifiers, seed

    def __repr__(self) -> str:
        return f"DEXA({self.encoder!r}, clusters={self.clusters or 'by size'})"

    def fit(self, dataset: Dataset) -> Dense:
        return served(self.fit_emmett(dataset), dataset)

    def fit_emmett(self, dataset: Dataset) -> Emmett:
        """The model; its meta-classifiers are embedding + cluster vector."""
        observed, clicks, queries, everything = embed_training_data(self.encoder, dataset)
        items = np.ascontiguousarray(everything[observed])
        calibration = None
        fold = TuningFold.draw(queries, clicks, self.seed)
        if fold is not None:  # all is learnt anew without the fold's pseudo-novel items
            selector, bank = self._learn(
                queries[fold.training_rows], items[fold.fold.observed], fold.training_clicks
            )
            classifiers = self.classifiers(queries[fold.training_rows], fold.training_clicks)
            calibration = tune_own_classifiers(
                fold, items + bank[selector.select(items, 1)[0][:, 0]], classifiers
            )
        selector, bank = self._learn(queries, items, clicks)
        return Emmett(
            self.encoder,
            self.classifiers(queries, clicks),
            items + bank[selector.select(items, 1)[0][:, 0]],
            Sum(),
            dataset.items,
            observed,
            neighbours=1,
            calibration=calibration,
            about={"method": self.name, "data": {"name": dataset.name, "fingerprint": dataset.fingerprint}},
            selector=selector,
            neighbour_vectors=bank,
            item_embeddings=everything,
        )

    def _learn(self, queries: Floats, items: Floats, clicks: csr_array) -> tuple[ClusterSelector, Floats]:
        wanted = self.clusters or max(1, len(items) // self.config.items_per_cluster)
        centroids, assigned = cluster(items, min(wanted, len(items)), self.seed)
        vectors = cluster_vectors(queries, items, clicks, assigned, self.config, seed=self.seed)
        return ClusterSelector(centroids), vectors


def cluster_vectors(
    queries: Floats, items: Floats, clicks: csr_array, assigned: Rows, config: DexaConfig, *, seed: int = 0
) -> Floats:
    """(clusters, dim) float32: the vectors which, added to the items' embeddings, rank the clicked items best.

    Args:
        queries: (queries, dim).
        items: (items, dim).
        clicks: (queries, items); every query has a click.
        assigned: (items,) the cluster of each item.
        config: How.
        seed: Of the order and the choice among a query's clicks.
    """
    random = np.random.default_rng(seed)
    counts = np.bincount(clicks.indices, minlength=clicks.shape[1])
    popularity = config.popularity * torch.from_numpy(np.log(np.maximum(counts, 1)).astype(np.float32))
    vectors = nn.Parameter(torch.zeros(int(assigned.max()) + 1, items.shape[1]))
    log_scale = nn.Parameter(torch.tensor(config.scale).log())
    optimizer = torch.optim.Adam([vectors, log_scale], lr=config.learning_rate)
    batch = min(config.batch, clicks.shape[0])
    per_epoch = max(1, clicks.shape[0] // batch)
    steps = min(per_epoch * config.epochs, config.most_steps)
    with tqdm(total=steps, desc="learn cluster vectors", unit="step", disable=None, leave=False) as bar:
        for step in range(steps):
            if step % per_epoch == 0:
                order = random.permutation(clicks.shape[0])
            query_rows = order[(step % per_epoch) * batch :][:batch]
            item_rows = draw_clicks(clicks, query_rows, random)
            loss = contrastive_loss(
                torch.from_numpy(queries[query_rows]),
                torch.from_numpy(items[item_rows]) + vectors[torch.from_numpy(assigned[item_rows])],
                log_scale.exp(),
                torch.from_numpy(click_mask(clicks, query_rows, item_rows)),
                popularity[item_rows],
            )
            optimizer.param_groups[0]["lr"] = config.learning_rate * (1 - step / steps)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            bar.update()
    return vectors.detach().numpy()
