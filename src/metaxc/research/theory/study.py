"""The design of the theory study: which settings are trained, on which pairs, and what each training run yields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Mask, Rows

SampleKind = Literal["one-vs-all", "paired", "paired, drawn"]
GeneratorKind = Literal["transformer", "post_norm"]

QUERIES, ITEMS, PAIRS = 512, 256, 256
"""Per step. As many items pass through the generator either way; all pairs then cost little more than single ones."""


@dataclass(frozen=True)
class Setting:
    """The settings of one training run.

    Args:
        neighbours: K.
        depth: Number of transformer layers.
        items: L, the number of observed items.
        frozen: Whether the classifiers stay fixed.
        sample: The training pairs: all, one click and one random pair per query, or one random pair per query.
    """

    neighbours: int = 3
    depth: int = 1
    items: int = 2_000
    frozen: bool = True
    sample: SampleKind = "one-vs-all"


@dataclass(frozen=True)
class Study:
    """The parameters of a study.

    Args:
        dim: Number of principal axes that embeddings are reduced to.
        items: Observed items in the base setting.
        fewer: Other numbers of observed items.
        neighbours: Values of K other than the base setting's 3.
        depths: Depths other than the base setting's 1.
        held_out: Items that are excluded from training.
        queries: Training queries.
        held_out_queries: Queries to measure with.
        steps: Training steps, the same in every setting.
        learning_rate: Adam's rate at the start; it falls linearly to 0.
        seeds: Repetitions, each with its own items, queries and initial weights.
        generator: What is trained: the residual transformer, or the paper's post-norm layer.
    """

    dim: int = 96
    items: int = 2_000
    fewer: tuple[int, ...] = (250, 500, 1_000)
    neighbours: tuple[int, ...] = (1, 10, 20)
    depths: tuple[int, ...] = (2,)
    held_out: int = 1_000
    queries: int = 4_000
    held_out_queries: int = 2_000
    steps: int = 150
    learning_rate: float = 5e-4
    seeds: int = 5
    generator: GeneratorKind = "transformer"

    def settings(self) -> list[Setting]:
        """The base setting first, then one change at a time."""
        base = Setting(items=self.items)
        return [
            base,
            *(replace(base, neighbours=k) for k in self.neighbours),
            *(replace(base, depth=depth) for depth in self.depths),
            *(replace(base, items=items) for items in self.fewer),
            replace(base, frozen=False),
            replace(base, sample="paired"),
            replace(base, sample="paired, drawn"),
        ]


QUICK_STUDY = Study(
    dim=64, items=600, fewer=(150,), neighbours=(10,), depths=(), held_out=300, queries=1_000,
    held_out_queries=500, steps=60, seeds=3,
)  # fmt: skip
"""A small study that shows that everything runs; its verdicts mean little."""


class StudyRow(NamedTuple):
    """The result of one training run: both risks, R@10 among held-out items in percent, and the norms in the bounds."""

    setting: Setting
    seed: int
    train_risk: float
    new_risk: float
    recall: float
    norms: dict[str, float]

    @property
    def gap(self) -> float:
        """Held-out risk minus training risk."""
        return self.new_risk - self.train_risk

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return {**self._asdict(), "setting": asdict(self.setting), "gap": self.gap}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> StudyRow:
        """The inverse of `to_dict`."""
        values = {name: row[name] for name in cls._fields if name != "setting"}
        return cls(setting=Setting(**row["setting"]), **values)


@dataclass(frozen=True)
class PairBatch:
    """Query–item pairs.

    Args:
        queries: (n,) rows.
        items: (m,) rows; m = n for single pairs.
        clicked: (n, m) for all combinations, (n,) for single pairs.
    """

    queries: Rows
    items: Rows
    clicked: Mask

    def scores(self, queries: Tensor, meta_classifiers: Tensor) -> Tensor:
        """Inner products in the shape of `clicked`."""
        if self.clicked.ndim == 2:
            return queries @ meta_classifiers.T
        return (queries * meta_classifiers).sum(dim=1)


class PairSampler(ABC):
    """The training pairs of a setting.

    Args:
        clicks: (queries, items).
        random: The source of random draws.
    """

    def __init__(self, clicks: csr_array, random: np.random.Generator):
        self.clicks, self.random = clicks, random

    @abstractmethod
    def draw(self) -> PairBatch:
        """A random part of the pairs, for one step."""

    @abstractmethod
    def all_pairs(self) -> PairBatch:
        """All training pairs."""


class CartesianPairs(PairSampler):
    """Every query with every item: one-vs-all."""

    def draw(self) -> PairBatch:
        n, m = self.clicks.shape
        queries = self.random.permutation(n)[:QUERIES]
        items = self.random.permutation(m)[:ITEMS]
        return PairBatch(queries, items, self.clicks[queries][:, items].toarray() > 0)

    def all_pairs(self) -> PairBatch:
        n, m = self.clicks.shape
        return PairBatch(np.arange(n), np.arange(m), self.clicks.toarray() > 0)


class SinglePairs(PairSampler):
    """A fixed list of single pairs, drawn once by `draw_pairs`."""

    def __init__(self, clicks: csr_array, random: np.random.Generator):
        super().__init__(clicks, random)
        queries, items = self.draw_pairs()
        clicked = np.asarray(clicks[queries, items]).ravel() > 0
        self.pairs = PairBatch(queries, items, clicked)

    @abstractmethod
    def draw_pairs(self) -> tuple[Rows, Rows]:
        """The queries and items of the pairs."""

    def draw(self) -> PairBatch:
        rows = self.random.permutation(len(self.pairs.queries))[:PAIRS]
        return PairBatch(self.pairs.queries[rows], self.pairs.items[rows], self.pairs.clicked[rows])

    def all_pairs(self) -> PairBatch:
        return self.pairs


class RandomPairs(SinglePairs):
    """Each query with one random item, which is the theory's paired sample: it contains hardly any click."""

    def draw_pairs(self) -> tuple[Rows, Rows]:
        n, m = self.clicks.shape
        return np.arange(n), self.random.integers(0, m, size=n)


class ClickedAndRandomPairs(SinglePairs):
    """Each query with one item that it clicked, where it clicked any, and with one random item."""

    def draw_pairs(self) -> tuple[Rows, Rows]:
        n, m = self.clicks.shape
        counts = np.diff(self.clicks.indptr)
        with_click = np.flatnonzero(counts > 0)
        places = self.clicks.indptr[with_click] + self.random.integers(0, counts[with_click])
        clicked = self.clicks.indices[places].astype(np.int64)
        drawn = self.random.integers(0, m, size=n)
        return np.concatenate([with_click, np.arange(n)]), np.concatenate([clicked, drawn])


SAMPLERS: dict[SampleKind, type[PairSampler]] = {
    "one-vs-all": CartesianPairs,
    "paired": ClickedAndRandomPairs,
    "paired, drawn": RandomPairs,
}
