"""Training again: what it takes to learn a new item's clicks without meta-classifiers.

The same recipe is trained from the start on a log in which the revealed clicks are visible and the items they are on
are observed; items without a revealed click stay novel. It is the upper end of what clicks on new items can bring, at
the price of a whole training run whenever some arrive.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from metaxc.data import ClickLog, Dataset
from metaxc.data.dataset import click_matrix
from metaxc.errors import DataError
from metaxc.irene import Irene
from metaxc.research.baselines.baseline import Dense, encode_once


class Retrained:
    """The model trained again with some clicks on novel items.

    Args:
        recipe: What to train.
        revealed: (training queries, items) clicks on novel items that may be learnt from; None reveals none.
    """

    name: ClassVar[str] = "Retrained"

    def __init__(self, recipe: Irene, revealed: csr_array | None = None):
        self.recipe, self.revealed = recipe, revealed

    def fit(self, dataset: Dataset) -> Dense:
        visible = dataset if self.revealed is None else with_revealed(dataset, self.revealed)
        model = self.recipe.fit(visible)
        return Dense(encode_once(model.encoder, dataset), model.vectors)


def with_revealed(dataset: Dataset, revealed: csr_array) -> Dataset:
    """The data set in which exactly the revealed clicks on novel items are visible, and these items observed."""
    clicks, novel = dataset.train.clicks, dataset.novel_mask
    if revealed.shape != clicks.shape:
        raise DataError(
            "The revealed clicks do not fit the training log",
            got=f"shape {revealed.shape}",
            expected=f"shape {clicks.shape} (training queries, items)",
        )
    query_rows, item_rows = revealed.nonzero()
    shown = np.bincount(item_rows, minlength=len(novel)) > 0
    if shown[~novel].any():
        raise DataError(
            "A revealed click is on an observed item",
            got=f"item {dataset.items.ids[int(np.flatnonzero(shown & ~novel)[0])]!r}",
            expected="clicks on novel items",
        )
    seen_rows, seen_items = clicks.nonzero()
    kept = ~novel[seen_items]
    together = click_matrix(
        np.concatenate([seen_rows[kept], query_rows]),
        np.concatenate([seen_items[kept], item_rows]),
        clicks.shape,
    )
    log = ClickLog(dataset.train.queries, together)
    derived = replace(dataset, train=log, novel=None)
    # Not through `replace`: a mask without any novel item is refused, though here it says that all were clicked.
    object.__setattr__(derived, "novel", novel & ~shown)
    return derived
