"""How much of the catalog may be new: 10 to 40 percent novel items, each set within the next larger one."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from metaxc.data import Dataset
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import encoder_search, model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.makers import recipe_of
from metaxc.research.bench.rows import Outcome, Row, Settings, Table

RATIOS = (10, 20, 30, 40)
SYSTEMS = ("bare encoder", "adapted encoder alone", "metaxc")


def with_ratio(dataset: Dataset, percent: int, seed: int) -> Dataset:
    """The data set with that share of its clicked items novel.

    The sets of one seed are nested. Where the data set's own novel items are 9 to 11 percent they are the
    10 percent set.
    """
    clicked = np.zeros(len(dataset.items), dtype=bool)
    for log in (dataset.train, dataset.test):
        if log is not None:
            clicked[log.clicks.indices] = True
    order = np.random.default_rng(seed).permutation(np.flatnonzero(clicked))
    own = np.zeros(len(dataset.items), dtype=bool) if dataset.novel is None else dataset.novel
    share = 100 * own.sum() / clicked.sum()
    if 9 <= share <= 11:
        if percent == RATIOS[0]:
            return dataset
        order = np.concatenate([np.flatnonzero(own), order[~own[order]]])
    novel: NDArray[np.bool_] = np.zeros(len(dataset.items), dtype=bool)
    novel[order[: round(percent / 100 * clicked.sum())]] = True
    return dataset.with_novel(novel)


def _row(percent: int, system: str) -> Row:
    def run(context: Context) -> Outcome:
        dataset = with_ratio(context.dataset, percent, context.config.seed)
        started = time.perf_counter()
        if system == "bare encoder":
            search = encoder_search(context.bare, dataset)
        else:
            model = context.model(context.changed(folds=min(1, context.config.folds)), dataset)
            by_model = system == "metaxc"
            search = model_search(model, dataset) if by_model else encoder_search(model.encoder, dataset)
        seconds = time.perf_counter() - started
        note = (
            f"{int(dataset.novel_mask.sum()):,} of {len(dataset.items):,} items novel; constants by one fold"
        )
        return Outcome.of(evaluate(search, dataset), seconds, note)

    def settings(context: Context) -> Settings:
        return {"novel percent": percent, "system": system, **recipe_of(context)}

    return Row(f"{system}, {percent} % novel", f"{percent} % novel", run, settings, other_split=True)


def ratio_table() -> Table:
    """The rows of `metaxc bench novel-ratio`."""
    rows = [_row(percent, system) for percent in RATIOS for system in SYSTEMS]
    return Table("novel-ratio", "how accuracy falls as more of the catalog is new", rows)
