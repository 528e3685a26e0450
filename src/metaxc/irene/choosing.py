"""The constants of a recipe, chosen on folds of pseudo-novel items (`metaxc.tuning` has the grids)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.data.folds import Fold
from metaxc.emmett import Calibration
from metaxc.encoders.learning import Encoding
from metaxc.generators import gather
from metaxc.irene.config import IreneConfig
from metaxc.irene.parts import classifiers_of, generator_of, informing_of, memory_of, neighbours_of
from metaxc.memory import Recall
from metaxc.selectors import NearestSelector
from metaxc.tuning import (
    DEFAULT_COMBINE,
    NEIGHBOURS,
    CombineChoice,
    Judges,
    Trial,
    choose_calibration,
    choose_combine,
    choose_recall,
    zero_shot_quality,
)

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


def choose_constants(
    config: IreneConfig,
    encoding: Encoding,
    observed: Rows,
    query_rows: Rows,
    clicks: csr_array,
    folds: Sequence[Fold],
) -> dict[str, Any]:
    """The constants, and how well they do on the pseudo-novel items of `folds`, on which they are chosen."""
    combines = config.generator in (
        "combine",
        "transformer",
    )  # the others take classifiers as they are
    combine = CombineChoice(
        config.neighbours or DEFAULT_COMBINE.neighbours,
        DEFAULT_COMBINE.strength,
        DEFAULT_COMBINE.temperature,
        DEFAULT_COMBINE.neighbour_prior if combines else 0.0,
    )
    if not folds:
        why = "too few data to choose by" if config.folds else "not asked for"
        return _constants(combine, Calibration(), None, {"skipped": why})
    tried = [try_fold(config, encoding, fold, observed, query_rows, clicks) for fold in folds]
    trials = [trial for trial, _ in tried]
    informed = [replace(t, classifiers=informing_of(config, t.classifiers, t.seen, *of)) for t, of in tried]
    if combines:
        combine = choose_combine(informed, config.neighbours)
    k, made = combine.neighbours, []
    for trial, (_, (queries, fold_clicks)) in zip(informed, tried, strict=True):
        informing = trial.classifiers.trusted(combine.neighbour_prior)
        near, scores = neighbours_of(config, trial.seen, k)
        trained = generator_of(config, combine, queries, trial.seen, fold_clicks, informing, near, scores)
        selected = gather(trained.classifiers, trial.near[:, :k])
        made.append(trained.generator.generate(trial.new, selected, trial.scores[:, :k]))
    calibration, generalized = choose_calibration(trials, made)
    recall = choose_recall(trials, made, calibration)
    if recall is not None:
        trials = [trial.recalling(recall) for trial in trials]
        calibration, generalized = choose_calibration(trials, made)
    quality = {
        "zero_shot": zero_shot_quality(trials, made).to_dict(),
        "generalized": generalized.to_dict(),
    }
    return _constants(combine, calibration, recall, quality)


def try_fold(
    config: IreneConfig, encoding: Encoding, fold: Fold, observed: Rows, query_rows: Rows, clicks: csr_array
) -> tuple[Trial, tuple[Floats, csr_array]]:
    """A fold's trial, and the queries and clicks it was fitted on (what a generator learns from)."""
    rows, fold_clicks = fold.training(clicks)
    seen, new = np.flatnonzero(~fold.pseudo_novel), np.flatnonzero(fold.pseudo_novel)
    encoder = encoding.learn(query_rows[rows], observed[seen], fold_clicks, config.seed)
    queries, items = encoding.embed(encoder, query_rows)
    items = items[observed]
    classifiers = classifiers_of(config, queries[rows], fold_clicks)
    queries = classifiers.queries(queries)
    most = max(*NEIGHBOURS, config.neighbours or 0)
    near, scores = NearestSelector(items[seen]).select(items[new], most)
    held = np.flatnonzero(fold.held)
    trial = Trial(
        classifiers,
        items[seen],
        items[new],
        near,
        scores,
        Judges.draw(queries[held], csr_array(clicks[held][:, new]), config.seed),
        Judges.draw(queries[held], csr_array(clicks[held]), config.seed),
        fold.pseudo_novel,
        memory_of(config, queries[rows], fold_clicks, items[seen]),
    )
    return trial, (queries[rows], fold_clicks)


def _constants(
    combine: CombineChoice, calibration: Calibration, recall: Recall | None, pseudo_novel: dict[str, Any]
) -> dict[str, Any]:
    return {
        "combine": asdict(combine),
        "calibration": {**calibration.model_dump(), "neighbour_prior": combine.neighbour_prior},
        "memory": None if recall is None else recall.model_dump(),
        "pseudo_novel": pseudo_novel,
    }


def in_words(chosen: dict[str, Any]) -> str:
    """The constants in one line."""
    numbers = {**chosen["combine"], **chosen["calibration"]}
    numbers["memory strength"] = chosen["memory"]["strength"] if chosen["memory"] else 0.0
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())
