"""Constants of baselines, chosen as ours are: on pseudo-novel items, never on test.

One fold instead of three: these have two constants at most. A setting is judged by the mean of its zero-shot and its
generalized quality, so that no setting is asked for one at the cost of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.data.folds import Fold
from metaxc.tuning import Judges, quality


@dataclass(frozen=True)
class HeldOut:
    """A fold's learning part and its judges.

    Args:
        seen: Columns of the observed items that remain observed.
        new: Columns of those that play novel.
        rows: Rows of the queries that remain to learn from.
        clicks: (rows, seen) what may be learnt from.
        zero_shot: Judges over `new`.
        generalized: Judges over all observed items.
    """

    seen: Rows
    new: Rows
    rows: Rows
    clicks: csr_array
    zero_shot: Judges
    generalized: Judges

    @staticmethod
    def draw(queries: Floats, clicks: csr_array, seed: int) -> HeldOut | None:
        """A random fold; None where the data are too few to choose by.

        Args:
            queries: (queries, dim) embeddings of the training queries.
            clicks: (queries, observed).
            seed: Of the fold and of the judges.
        """
        fold = Fold.draw(clicks, seed)
        if fold is None:
            return None
        rows, learnt = fold.training(clicks)
        held, new = np.flatnonzero(fold.held), np.flatnonzero(fold.pseudo_novel)
        return HeldOut(
            np.flatnonzero(~fold.pseudo_novel),
            new,
            rows,
            learnt,
            Judges.draw(queries[held], csr_array(clicks[held][:, new]), seed),
            Judges.draw(queries[held], csr_array(clicks[held]), seed),
        )

    def quality(self, vectors: Floats) -> float:
        """How well (observed, dim) item vectors rank, percent."""
        zero_shot = torch.from_numpy(self.zero_shot.queries @ vectors[self.new].T)
        generalized = torch.from_numpy(self.generalized.queries @ vectors.T)
        return (
            quality(zero_shot, self.zero_shot.clicks).mean
            + quality(generalized, self.generalized.clicks).mean
        ) / 2
