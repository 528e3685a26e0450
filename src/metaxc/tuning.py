"""Constants chosen on pseudo-novel items, never on test.

A share of the *observed* items plays novel, and a share of the queries plays test. Everything that learns is
fitted without them; then the constants are those that rank the held-out queries best. What was learnt on
this fold is thrown away, the constants stay.

The search is over two small grids: how the neighbours are combined (judged zero-shot, among the pseudo-novel
items), then how observed and novel items rank together (judged generalized, among all).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration
from metaxc.generators import Combine, gather
from metaxc.index.topk import best_rows
from metaxc.metrics import hits, precision, recall, relevant_counts

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

SHARE = 0.15
MOST_QUERIES = 2_000
"""Held-out queries that judge: ±1 point of standard error, a quarter of a second per setting."""

FEWEST_ITEMS, FEWEST_QUERIES = 10, 50
"""Below this many pseudo-novel items, or queries that click one, the defaults are a better guess."""

NEIGHBOURS = (3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
NEIGHBOUR_PRIORS = (0.0, 10.0, 50.0)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
OWN = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PRIOR_CLICKS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
NOVEL_SCALES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)


@dataclass(frozen=True)
class Fold:
    """Which observed items play novel and which queries play test.

    Args:
        pseudo_novel: (observed,) bool.
        held: (queries,) bool.
    """

    pseudo_novel: Mask
    held: Mask

    def training(self, clicks: csr_array) -> tuple[Rows, csr_array]:
        """Rows of the queries that remain to learn from, and their clicks on the remaining items."""
        kept = csr_array(clicks[:, np.flatnonzero(~self.pseudo_novel)])
        rows = np.flatnonzero((np.diff(kept.indptr) > 0) & ~self.held)
        return rows, csr_array(kept[rows])

    @staticmethod
    def draw(clicks: csr_array, seed: int, share: float = SHARE) -> Fold | None:
        """A random fold, or None where the data are too few to choose anything by."""
        random = np.random.default_rng(seed)
        queries, items = clicks.shape
        pseudo_novel, held = np.zeros(items, dtype=bool), np.zeros(queries, dtype=bool)
        pseudo_novel[random.permutation(items)[: int(share * items)]] = True
        held[random.permutation(queries)[: int(share * queries)]] = True
        judges = np.diff(csr_array(clicks[held][:, np.flatnonzero(pseudo_novel)]).indptr) > 0
        if pseudo_novel.sum() < FEWEST_ITEMS or judges.sum() < FEWEST_QUERIES:
            return None
        fold = Fold(pseudo_novel, held)
        return fold if fold.training(clicks)[1].shape[0] else None


@dataclass(frozen=True)
class Quality:
    """P@1 and R@10 in percent; settings are compared by their mean."""

    precision: float
    recall: float

    @property
    def mean(self) -> float:
        return (self.precision + self.recall) / 2

    def to_dict(self) -> dict[str, float]:
        """By the metrics' names."""
        return {"P@1": self.precision, "R@10": self.recall}


def quality(scores: Tensor, relevant: csr_array) -> Quality:
    """How well (queries, items) scores rank; every query has a relevant item."""
    _, columns = best_rows(scores, 10)
    hit = hits(columns.numpy(), relevant)
    counts = relevant_counts(relevant)
    return Quality(100 * float(precision(hit, 1).mean()), 100 * float(recall(hit, counts, 10).mean()))


def judges_of(clicks: csr_array, seed: int) -> tuple[Rows, csr_array]:
    """At most `MOST_QUERIES` rows that have a click, and their clicks."""
    rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
    if len(rows) > MOST_QUERIES:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_QUERIES, replace=False))
    return rows, csr_array(clicks[rows])


@dataclass(frozen=True)
class CombineChoice:
    """How many neighbours, and how they are combined."""

    neighbours: int
    strength: float
    temperature: float
    neighbour_prior: float


DEFAULT_COMBINE = CombineChoice(neighbours=10, strength=0.5, temperature=0.1, neighbour_prior=10.0)


def choose_combine(
    queries: Floats,
    clicks: csr_array,
    embeddings: Floats,
    rows: Rows,
    scores: Floats,
    classifiers: Classifiers,
    neighbours: int | None = None,
) -> CombineChoice:
    """The combine that ranks the pseudo-novel items best.

    Args:
        queries: (judges, dim) held-out queries.
        clicks: (judges, pseudo-novel).
        embeddings: (pseudo-novel, dim).
        rows: (pseudo-novel, max K) neighbours among the remaining observed items.
        scores: (pseudo-novel, max K).
        classifiers: Of the remaining observed items.
        neighbours: K, when it is given and not to be chosen.
    """
    q = torch.from_numpy(np.array(queries))
    own = q @ torch.from_numpy(embeddings).T
    counts = NEIGHBOURS if neighbours is None else (neighbours,)
    best, most = CombineChoice(counts[0], 0.0, TEMPERATURES[0], 0.0), quality(own, clicks).mean
    trusted = {prior: classifiers.trusted(prior) for prior in NEIGHBOUR_PRIORS}
    for prior, k, temperature in product(NEIGHBOUR_PRIORS, counts, TEMPERATURES):
        selected = gather(trusted[prior], rows[:, :k])
        only_neighbours = Combine(1.0, temperature).generate(
            np.zeros_like(embeddings), selected, scores[:, :k]
        )
        theirs = q @ torch.from_numpy(only_neighbours).T
        for strength in STRENGTHS[1:]:
            found = quality(own + strength * theirs, clicks).mean
            if found > most:
                best, most = CombineChoice(k, strength, temperature, prior), found
    return best


def choose_calibration(
    queries: Floats,
    clicks: csr_array,
    embeddings: Floats,
    classifiers: Classifiers,
    made: Floats,
    novel: Mask,
) -> tuple[Calibration, Quality]:
    """The calibration under which observed and pseudo-novel items rank best together.

    Args:
        queries: (judges, dim) held-out queries.
        clicks: (judges, items), items in the order of `novel`.
        embeddings: (remaining observed, dim).
        classifiers: Of the remaining observed items.
        made: (pseudo-novel, dim) meta-classifiers, not scaled.
        novel: (items,) bool, which items are pseudo-novel.
    """
    q = torch.from_numpy(np.array(queries))
    base = q @ torch.from_numpy(embeddings).T
    evidence = q @ torch.from_numpy(classifiers.weights).T
    meta = q @ torch.from_numpy(made).T
    seen, new = torch.from_numpy(np.flatnonzero(~novel)), torch.from_numpy(np.flatnonzero(novel))
    scores = torch.empty(len(q), len(novel))
    n = torch.from_numpy(classifiers.clicks.astype(np.float32))

    def judge(calibration: Calibration) -> Quality:
        trust = calibration.own * n / (n + calibration.prior_clicks)
        scores[:, seen] = base + trust * evidence
        scores[:, new] = calibration.novel_scale * meta
        return quality(scores, clicks)

    best = Calibration()
    found = judge(best)
    for grid in (
        [{"own": own, "prior_clicks": prior} for own, prior in product(OWN, PRIOR_CLICKS)],
        [{"novel_scale": scale} for scale in NOVEL_SCALES],
        [{"own": own} for own in OWN],
        [{"novel_scale": scale} for scale in NOVEL_SCALES],
    ):
        for change in grid:
            candidate = best.model_copy(update=change)
            judged = judge(candidate)
            if judged.mean > found.mean:
                best, found = candidate, judged
    return best, found
