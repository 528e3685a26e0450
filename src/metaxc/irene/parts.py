"""The parts of a model as a recipe asks for them: the same code for a fold of pseudo-novel items and for all items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers, centroid, one_vs_all, ridge
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
from metaxc.irene.config import IreneConfig
from metaxc.memory import QueryMemory, Recall
from metaxc.selectors import NearestSelector
from metaxc.tuning import CombineChoice


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


def kinds_of(config: IreneConfig, folds: int) -> tuple[str, ...]:
    """The kinds of generator that are tried, the simplest first; with one fold alone no gate could be trained on items
    that its encoder has not seen, and judged on others."""
    if config.generator != "auto":
        return (config.generator,)
    return ("combine", "gated") if folds > 1 else ("combine",)


def learns(config: IreneConfig, kind: str) -> bool:
    """Whether a kind of generator has anything to learn."""
    return kind not in ("combine", "sum") or config.training.train_classifiers


def generator_of(
    config: IreneConfig, kind: str, combine: CombineChoice, episodes: Sequence[Episode]
) -> TrainedGenerator:
    """A generator of a kind, trained on the episodes from where the combine starts it."""
    torch.manual_seed(config.seed)
    dim = episodes[0].items.shape[1]
    makers: dict[str, Callable[[], TorchGenerator]] = {
        "combine": lambda: Combine(combine.strength, combine.temperature),
        "gated": lambda: Gated(combine.strength, combine.temperature),
        "sum": Sum,
        "weighted_sum": lambda: WeightedSum(combine.neighbours),
        "transformer": lambda: ResidualTransformer(dim, config.depth, combine.strength, combine.temperature),
        "post_norm": lambda: PostNormTransformer(dim, config.depth),
    }
    return train_generator(makers[kind](), episodes, config.training, seed=config.seed)


def neighbours_of(config: IreneConfig, kind: str, items: Floats, k: int) -> tuple[Rows, Floats]:
    """What a generator that learns from observed items is given, their neighbours among themselves: (observed, k)
    rows and similarities. Nothing, (0, k), where there is nothing to learn: the search takes longer than all else."""
    asked = items if learns(config, kind) else items[:0]
    itself = None if config.include_self else np.arange(len(asked))
    return NearestSelector(items).select(asked, k, exclude_self=itself)
