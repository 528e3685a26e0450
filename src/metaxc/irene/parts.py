"""The parts of a model as a recipe asks for them: the same code for a fold of pseudo-novel items and for all items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.classifiers import Classifiers, centroid, one_vs_all, ridge
from metaxc.generators import (
    Combine,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
    train_generator,
)
from metaxc.generators.training import TrainedGenerator
from metaxc.irene.config import IreneConfig
from metaxc.memory import QueryMemory, Recall
from metaxc.selectors import NearestSelector
from metaxc.tuning import CombineChoice

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


def memory_of(
    config: IreneConfig, queries: Floats, clicks: csr_array, embeddings: Floats, recall: Recall | None = None
) -> QueryMemory | None:
    """The training queries to borrow from, None where none are to be remembered."""
    if not config.memory:
        return None
    memory = QueryMemory.sample(queries, clicks, embeddings, config.memory, config.seed)
    return memory if recall is None else memory.using(recall)


def classifiers_of(config: IreneConfig, queries: Floats, clicks: csr_array) -> Classifiers:
    """Classifiers of the observed items."""
    if config.classifiers == "centroid":
        return centroid(queries, clicks)
    if config.classifiers == "one_vs_all":
        return one_vs_all(queries, clicks, config.one_vs_all, seed=config.seed)
    return ridge(queries, clicks)


def has_bank(config: IreneConfig) -> bool:
    """Whether novel items are informed by something else than the observed items' own classifiers."""
    return config.informing != "classifiers" or config.training.train_classifiers


def informing_of(
    config: IreneConfig, classifiers: Classifiers, seen: Floats, queries: Floats, clicks: csr_array
) -> Classifiers:
    """What the neighbours lend to an item, in the place of their classifiers where so configured."""
    if config.informing == "embeddings":
        return replace(classifiers, weights=np.asarray(seen, dtype=np.float32))
    if config.informing == "centroids":
        return replace(classifiers, weights=centroid(queries, clicks).weights)
    return classifiers


def generator_of(
    config: IreneConfig,
    combine: CombineChoice,
    queries: Floats,
    items: Floats,
    clicks: csr_array,
    classifiers: Floats,
    near: Rows,
    scores: Floats,
) -> TrainedGenerator:
    """A generator trained on the observed items; arguments as of `train_generator`."""
    torch.manual_seed(config.seed)
    dim = items.shape[1]
    makers: dict[str, Callable[[], TorchGenerator]] = {
        "combine": lambda: Combine(combine.strength, combine.temperature),
        "sum": Sum,
        "weighted_sum": lambda: WeightedSum(combine.neighbours),
        "transformer": lambda: ResidualTransformer(dim, config.depth, combine.strength, combine.temperature),
        "post_norm": lambda: PostNormTransformer(dim, config.depth),
    }
    return train_generator(
        makers[config.generator](),
        queries,
        items,
        clicks,
        classifiers,
        near,
        scores,
        config.training,
        seed=config.seed,
    )


def neighbours_of(config: IreneConfig, items: Floats, k: int) -> tuple[Rows, Floats]:
    """What a generator is trained on, the observed items' neighbours among themselves: (observed, k) rows and
    similarities. Nothing, (0, k), where the generator has nothing to learn: the search takes longer than all else."""
    learns = config.generator not in ("combine", "sum") or config.training.train_classifiers
    asked = items if learns else items[:0]
    itself = None if config.include_self else np.arange(len(asked))
    return NearestSelector(items).select(asked, k, exclude_self=itself)
