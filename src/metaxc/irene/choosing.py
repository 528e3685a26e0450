"""The constants of a recipe, chosen on folds of pseudo-novel items (`metaxc.tuning` has the grids), and the generator
trained on them.

A generator that learns from items whose clicks its encoder has seen learns to trust embeddings too much. The folds
are encoded without their pseudo-novel items anyway, so a generator learns from these (`Tried.episode`): on the other
folds to be judged on one, on all to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration
from metaxc.encoders.learning import Encoding
from metaxc.generators import Episode, TorchGenerator, gather
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.irene.config import IreneConfig
from metaxc.irene.parts import (
    classifiers_of,
    generator_of,
    informing_of,
    kinds_of,
    learns,
    memory_of,
    neighbours_of,
)
from metaxc.memory import Recall
from metaxc.selectors import NearestSelector
from metaxc.tuning import (
    DEFAULT_COMBINE,
    NEIGHBOURS,
    SLACK,
    CombineChoice,
    Judges,
    Quality,
    Trial,
    choose_calibration,
    choose_combine,
    choose_recall,
    zero_shot_quality,
)

GATED_START = CombineChoice(neighbours=20, strength=0.5, temperature=0.1, neighbour_prior=10.0)
"""Many neighbours, and the combine's defaults: which of them count, and how much, is learnt."""


@dataclass(frozen=True)
class Chosen:
    """What the folds decided.

    Args:
        constants: The constants, and how well they do on the pseudo-novel items they were chosen on.
        trained: The generator, where the folds trained it; None where it is still to be trained on the observed items.
    """

    constants: dict[str, Any]
    trained: TrainedGenerator | None = None


@dataclass(frozen=True)
class Tried:
    """A fold after everything but the generator was fitted without its pseudo-novel items and held-out queries.

    Args:
        trial: What judges.
        informing: What the neighbours lend, in the place of the trial's classifiers.
        queries: (queries, dim) all training queries by the fold's encoder.
        clicks: (queries, pseudo-novel) their clicks.
        rows: Rows of the queries that the fold was fitted on.
        learnt: (rows, seen) the clicks it was fitted on.
        held: (queries,) bool.
    """

    trial: Trial
    informing: Classifiers
    queries: Floats
    clicks: csr_array
    rows: Rows
    learnt: csr_array
    held: Mask

    def lent(self, combine: CombineChoice) -> Floats:
        """(seen, dim) what the neighbours lend, scaled by trust."""
        return self.informing.trusted(combine.neighbour_prior)

    def episode(self, combine: CombineChoice) -> Episode:
        """The pseudo-novel items, to learn a generator from: the encoder has seen none of their clicks."""
        k, trial = combine.neighbours, self.trial
        return Episode(
            self.queries, trial.new, self.clicks, self.lent(combine), trial.near[:, :k], trial.scores[:, :k]
        )

    def observed_episode(self, config: IreneConfig, kind: str, combine: CombineChoice) -> Episode:
        """The items that the fold's encoder was trained on; for comparison."""
        near, scores = neighbours_of(config, kind, self.trial.seen, combine.neighbours)
        return Episode(
            self.queries[self.rows], self.trial.seen, self.learnt, self.lent(combine), near, scores
        )

    def made(self, generator: TorchGenerator, lent: Floats, combine: CombineChoice) -> Floats:
        """(pseudo-novel, dim) meta-classifiers."""
        k, trial = combine.neighbours, self.trial
        return generator.generate(trial.new, gather(lent, trial.near[:, :k]), trial.scores[:, :k])


@dataclass(frozen=True)
class Candidate:
    """A kind of generator with constants of its own, judged on the folds.

    Args:
        kind: As in `IreneConfig.generator`.
        combine: The combine that it is, or starts at.
        made: Per fold, (pseudo-novel, dim) meta-classifiers by a generator that has seen none of the fold's items.
        zero_shot: How well they rank among themselves,
        generalized: and among all items,
        calibration: with this calibration.
    """

    kind: str
    combine: CombineChoice
    made: list[Floats]
    zero_shot: Quality
    generalized: Quality
    calibration: Calibration

    def beats(self, other: Candidate) -> bool:
        """Whether it is better zero-shot by more than `SLACK`, and not worse than that generalized."""
        return (
            self.zero_shot.mean > other.zero_shot.mean + SLACK
            and self.generalized.mean > other.generalized.mean - SLACK
        )


def choose_constants(
    config: IreneConfig,
    encoding: Encoding,
    observed: Rows,
    query_rows: Rows,
    clicks: csr_array,
    folds: Sequence[Fold],
) -> Chosen:
    """The constants, chosen on the pseudo-novel items of `folds`, and the generator where it is trained on them."""
    kinds = kinds_of(config, len(folds))
    if not folds:
        why = "too few data to choose by" if config.folds else "not asked for"
        combine = start_of(config, kinds[0], [])
        return Chosen(_constants(kinds[0], combine, Calibration(), None, {"skipped": why}))
    tried = [try_fold(config, encoding, fold, observed, query_rows, clicks) for fold in folds]
    best, *rest = candidates = [judged(config, kind, start_of(config, kind, tried), tried) for kind in kinds]
    for candidate in rest:
        best = candidate if candidate.beats(best) else best
    trials, calibration, generalized = [t.trial for t in tried], best.calibration, best.generalized
    recall = choose_recall(trials, best.made, calibration)
    if recall is not None:
        trials = [trial.recalling(recall) for trial in trials]
        calibration, generalized = choose_calibration(trials, best.made)
    quality = {
        "zero_shot": zero_shot_quality(trials, best.made).to_dict(),
        "generalized": generalized.to_dict(),
    }
    constants = _constants(best.kind, best.combine, calibration, recall, quality)
    constants["compared"] = {
        c.kind: {"zero_shot": c.zero_shot.to_dict(), "generalized": c.generalized.to_dict()}
        for c in candidates
    }
    trained = None
    if out_of_fold(config, best.kind, tried):
        trained = generator_of(config, best.kind, best.combine, [t.episode(best.combine) for t in tried])
    return Chosen(constants, trained)


def judged(config: IreneConfig, kind: str, combine: CombineChoice, tried: Sequence[Tried]) -> Candidate:
    """A kind of generator, trained anew for every fold without that fold's pseudo-novel items and held-out queries."""
    made = []
    for fold in tried:
        if out_of_fold(config, kind, tried):
            others = [other.episode(combine).without(fold.held) for other in tried if other is not fold]
            generator = generator_of(config, kind, combine, others).generator
            made.append(fold.made(generator, fold.lent(combine), combine))
        else:
            episode = fold.observed_episode(config, kind, combine)
            trained = generator_of(config, kind, combine, [episode])
            made.append(fold.made(trained.generator, trained.classifiers, combine))
    trials = [fold.trial for fold in tried]
    calibration, generalized = choose_calibration(trials, made)
    return Candidate(kind, combine, made, zero_shot_quality(trials, made), generalized, calibration)


def start_of(config: IreneConfig, kind: str, tried: Sequence[Tried]) -> CombineChoice:
    """The combine that a kind of generator is or starts at: chosen on the folds where it stays what it is."""
    if kind in ("combine", "transformer") and tried:
        informed = [replace(fold.trial, classifiers=fold.informing) for fold in tried]
        return choose_combine(informed, config.neighbours)
    start = GATED_START if kind == "gated" else DEFAULT_COMBINE
    if kind not in ("combine", "transformer", "gated"):  # the others take classifiers as they are
        start = replace(start, neighbour_prior=0.0)
    return replace(start, neighbours=config.neighbours or start.neighbours)


def out_of_fold(config: IreneConfig, kind: str, tried: Sequence[Tried]) -> bool:
    """Whether a generator is trained on the folds' pseudo-novel items; one fold alone could not be judged."""
    return config.meta_training == "out_of_fold" and learns(config, kind) and len(tried) > 1


def try_fold(
    config: IreneConfig, encoding: Encoding, fold: Fold, observed: Rows, query_rows: Rows, clicks: csr_array
) -> Tried:
    """Fit everything but the generator without the fold's pseudo-novel items and held-out queries."""
    rows, learnt = fold.training(clicks)
    seen, new = np.flatnonzero(~fold.pseudo_novel), np.flatnonzero(fold.pseudo_novel)
    encoder = encoding.learn(query_rows[rows], observed[seen], learnt, config.seed)
    queries, items = encoding.embed(encoder, query_rows)
    items = items[observed]
    classifiers = classifiers_of(config, queries[rows], learnt)
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
        memory_of(config, queries[rows], learnt, items[seen]),
    )
    informing = informing_of(config, classifiers, items[seen], queries[rows], learnt)
    return Tried(trial, informing, queries, csr_array(clicks[:, new]), rows, learnt, fold.held)


def _constants(
    kind: str,
    combine: CombineChoice,
    calibration: Calibration,
    recall: Recall | None,
    pseudo_novel: dict[str, Any],
) -> dict[str, Any]:
    return {
        "generator": kind,
        "combine": asdict(combine),
        "calibration": {**calibration.model_dump(), "neighbour_prior": combine.neighbour_prior},
        "memory": None if recall is None else recall.model_dump(),
        "pseudo_novel": pseudo_novel,
    }


def in_words(chosen: dict[str, Any]) -> str:
    """The constants in one line."""
    numbers = {**chosen["combine"], **chosen["calibration"]}
    numbers["memory strength"] = chosen["memory"]["strength"] if chosen["memory"] else 0.0
    parts = [f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items()]
    return ", ".join([chosen["generator"].replace("_", " "), *parts])
