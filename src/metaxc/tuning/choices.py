"""The constants of a model, chosen on folds of pseudo-novel items, and the generator trained on them.

A generator that learns from items whose clicks its encoder has seen learns to trust embeddings too much. The folds are
encoded without their pseudo-novel items anyway, so a generator learns from these: on the other folds when it is
validated on one, on all folds when it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import NEIGHBOUR_PRIOR, ClassifierResponse, scale_by_trust
from metaxc.encoders import Encoder
from metaxc.encoders.learning import Encoding
from metaxc.generators import Episode
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.selectors import NearestSelector
from metaxc.tuning.calibration import CalibrationChoice, choose_calibration
from metaxc.tuning.constants import Constants
from metaxc.tuning.fitted_folds import FittedFold, TuningFold, ValidationQueries, zero_shot_quality
from metaxc.tuning.grids import (
    DEFAULT_COMBINE,
    NEIGHBOURS,
    CombineChoice,
    tune_combine,
    tune_query_expansion,
)
from metaxc.tuning.qualities import SLACK, MixedQuality, Quality, mean_mixed_quality
from metaxc.tuning.shortlists import ENCODER_ALONE, FoldItems, Setting, Shortlist

ENOUGH_QUERIES = 5_000
"""Validation queries of all folds from which more may be spent on novel items where more is gained (`GAIN_SHARE`). With
fewer, what the folds say of a gain of points is too uncertain: on a part of ha_commits with 1,889 the model fell below
its encoder (docs/decisions.md)."""

GATED_START = CombineChoice(neighbours=20, strength=0.5, temperature=0.1, neighbour_prior=10.0)
"""Many neighbours and the combine's defaults: which of them count, and how much, is learnt."""


class ModelParts(Protocol):
    """How the parts of a model are made: for a fold of pseudo-novel items as for all items."""

    seed: int
    neighbours: int | None
    """K, when it is given and not to be chosen."""
    exposure: float | None
    """The exposure of novel items, when it is given and not to be chosen."""
    exposure_cost: float
    """Points of overall accuracy that may be given up so that novel items are found."""

    @property
    def calibration(self) -> Calibration | None:
        """How items with many, few and no clicks rank together, when it is given and not to be chosen."""

    @property
    def reads_clicks(self) -> bool:
        """Whether a generator is told of the neighbours' clicks."""

    def generator_kinds(self, folds: int) -> tuple[str, ...]:
        """The kinds of generator to compare, the simplest first."""

    def trains_out_of_fold(self, kind: str, folds: int) -> bool:
        """Whether a kind of generator is trained on the folds' pseudo-novel items."""

    def fit_classifiers(self, queries: Floats, clicks: csr_array) -> Classifiers:
        """Classifiers of observed items."""

    def neighbour_classifiers(
        self, classifiers: Classifiers, embeddings: Floats, queries: Floats, clicks: csr_array
    ) -> Classifiers:
        """What of its neighbours informs an item: their classifiers, or an ablation."""

    def train_generator(
        self, kind: str, combine: CombineChoice, episodes: Sequence[Episode]
    ) -> TrainedGenerator:
        """A generator trained on the episodes, starting at the combine."""

    def training_neighbours(self, kind: str, embeddings: Floats, k: int) -> tuple[Rows, Floats]:
        """The neighbours of observed items among themselves, where the generator learns from these."""

    def query_expansion(
        self, queries: Floats, clicks: csr_array, embeddings: Floats
    ) -> QueryExpansion | None:
        """The training queries that expand a query; None for no expansion."""


@dataclass(frozen=True)
class Candidate:
    """A kind of generator with its constants, and how well it does on the folds.

    Args:
        kind: The kind of generator.
        combine: The combine that it is, or starts at.
        items: Per fold, the items with meta-classifiers by a generator that has seen none of the fold's items.
        choice: How all items rank together.
        zero_shot: How well the pseudo-novel items rank among themselves.
        expansion: How queries are expanded; None for no expansion.
        follows_response: Whether the exposure of a query is proportional to the classifiers' response to it.
    """

    kind: str
    combine: CombineChoice
    items: list[FoldItems]
    choice: CalibrationChoice
    zero_shot: Quality
    expansion: ExpansionConfig | None = None
    follows_response: bool = True

    def beats(self, other: Candidate) -> bool:
        """Whether it is better zero-shot by more than `SLACK`, and generalized not worse by more than that."""
        return (
            self.zero_shot.mean > other.zero_shot.mean + SLACK
            and self.choice.quality.mean > other.choice.quality.mean - SLACK
        )

    def to_dict(self) -> dict[str, Any]:
        """How well it does, in figures."""
        return {"zero_shot": self.zero_shot.to_dict(), "generalized": self.choice.quality.to_dict()}


def default_constants(parts: ModelParts) -> Constants:
    """The constants where there is nothing to choose by."""
    kind = parts.generator_kinds(0)[0]
    calibration = parts.calibration or Calibration(exposure=parts.exposure or 0.0)
    # An exposure that is the same for all queries, and 0, can be exported without metaxc.
    follows_response = parts.calibration is None
    return Constants(
        kind, starting_combine(parts, kind, []), calibration, None, {}, follows_response=follows_response
    )


def compare_generators(parts: ModelParts, folds: Sequence[FittedFold]) -> list[Candidate]:
    """The kinds of generator, each with its constants; the first is the one to take."""
    best, *rest = candidates = [
        validate_generator(parts, kind, starting_combine(parts, kind, folds), folds)
        for kind in parts.generator_kinds(len(folds))
    ]
    for candidate in rest:
        best = candidate if candidate.beats(best) else best
    return [best, *(one for one in candidates if one is not best)]


def choose_constants(
    parts: ModelParts, folds: Sequence[FittedFold], candidates: Sequence[Candidate] | None = None
) -> tuple[Constants, TrainedGenerator | None]:
    """Choose the constants on the pseudo-novel items of `folds`.

    Args:
        parts: How the parts of the model are made.
        folds: At least one.
        candidates: From `compare_generators`; None compares them now.

    Returns:
        The constants, and the generator where it is trained on the folds; None where it is still to be trained on the
        observed items.
    """
    candidates = compare_generators(parts, folds) if candidates is None else candidates
    best = _finish(parts, candidates[0], folds)
    queries = sum(len(fold.data.generalized.queries) for fold in folds)
    constants = Constants(
        best.kind,
        best.combine,
        best.choice.setting.calibration,
        best.expansion,
        {**best.to_dict(), "queries": queries, "standard_error": best.choice.quality.standard_error(queries)},
        {one.kind: one.to_dict() for one in candidates},
        best.choice.describe_curve(),
        follows_response=best.follows_response,
    )
    if not parts.trains_out_of_fold(best.kind, len(folds)):
        return constants, None
    episodes = [_novel_episode(fold, best.combine) for fold in folds]
    return constants, parts.train_generator(best.kind, best.combine, episodes)


def validate_generator(
    parts: ModelParts, kind: str, combine: CombineChoice, folds: Sequence[FittedFold]
) -> Candidate:
    """A kind of generator, trained for every fold without that fold's pseudo-novel items and held-out queries."""
    free = (
        kind == "combine"
    )  # its strength is chosen with the calibration; a generator that learns has found its own
    start = replace(combine, strength=1.0) if free else combine
    items = []
    for fold in folds:
        vectors = scale_by_trust(fold.neighbour_classifiers, combine.neighbour_prior)
        if parts.trains_out_of_fold(kind, len(folds)):
            held = fold.data.fold.held
            others = [_novel_episode(other, combine).without(held) for other in folds if other is not fold]
            generator = parts.train_generator(kind, start, others).generator
        else:
            near = parts.training_neighbours(kind, fold.observed_embeddings, combine.neighbours)
            trained = parts.train_generator(kind, start, [fold.observed_episode(vectors, *near)])
            generator, vectors = trained.generator, trained.classifiers
        items.append(fold.items(generator, vectors, combine.neighbours))
    setting = Setting(Calibration(), combine.strength if free else 1.0)
    shortlists = [fold.shortlist(one) for fold, one in zip(folds, items, strict=True)]
    alone = mean_mixed_quality([one.quality(ENCODER_ALONE) for one in shortlists])
    choice = _calibrate(parts, shortlists, alone, setting, free)
    return _candidate(kind, combine, folds, items, choice, None)


def _finish(parts: ModelParts, candidate: Candidate, folds: Sequence[FittedFold]) -> Candidate:
    """The candidate with query expansion where that helps, and with a calibration that was searched for thoroughly.

    The search runs for several forms of the exposure, of which the first is taken unless another is clearly better: an
    exposure that follows the response of the classifiers, or the same for all queries, which may be better where
    queries for novel items are unlike all others; and, where clicks have times, a share of it that follows an item's
    freshness instead of its number of clicks.
    """
    expansion = tune_query_expansion(folds, candidate.items, candidate.choice.setting)
    queried = folds if expansion is None else [fold.expanded(expansion) for fold in folds]
    free, start = candidate.kind == "combine", candidate.choice.setting
    shortlists = [fold.shortlist(one) for fold, one in zip(queried, candidate.items, strict=True)]
    best, follows_response = None, True
    for with_ages in (False, True) if shortlists[0].ages is not None else (False,):
        aged = shortlists if with_ages else [one.without_ages() for one in shortlists]
        for follows, variant in (True, aged), (False, [one.with_constant_exposure() for one in aged]):
            found = _calibrate(parts, variant, candidate.choice.alone, start, free, thorough=True)
            if best is None or found.is_clearly_better_than(best):
                best, follows_response = found, follows
    assert best is not None
    finished = _candidate(candidate.kind, candidate.combine, queried, candidate.items, best, expansion)
    return replace(finished, follows_response=follows_response)


def _calibrate(
    parts: ModelParts,
    shortlists: Sequence[Shortlist],
    alone: MixedQuality,
    start: Setting,
    free: bool,
    thorough: bool = False,
) -> CalibrationChoice:
    """Choose the calibration on the folds' shortlists; `alone` is the quality of the encoder alone, without query
    expansion."""
    return choose_calibration(
        shortlists,
        alone,
        start=start,
        strength=None if free else start.strength,
        exposure=parts.exposure,
        cost=parts.exposure_cost,
        gain_share=None if sum(len(one.rows) for one in shortlists) >= ENOUGH_QUERIES else 0.0,
        thorough=thorough,
    )


def _candidate(
    kind: str,
    combine: CombineChoice,
    folds: Sequence[FittedFold],
    items: list[FoldItems],
    choice: CalibrationChoice,
    expansion: ExpansionConfig | None,
) -> Candidate:
    strength = choice.setting.strength
    zero_shot = zero_shot_quality(folds, items, strength)
    if kind == "combine":
        combine = replace(combine, strength=strength)
    return Candidate(kind, combine, items, choice, zero_shot, expansion)


def _novel_episode(fold: FittedFold, combine: CombineChoice) -> Episode:
    vectors = scale_by_trust(fold.neighbour_classifiers, combine.neighbour_prior)
    return fold.novel_episode(vectors, combine.neighbours)


def starting_combine(parts: ModelParts, kind: str, folds: Sequence[FittedFold]) -> CombineChoice:
    """The combine that a kind of generator is or starts at: chosen on the folds where it stays what it is. One that is
    told of the neighbours' clicks needs classifiers that are trusted by them."""
    if kind in ("combine", "transformer") and folds:
        best = tune_combine(folds, parts.neighbours)
        told = kind == "transformer" and parts.reads_clicks
        return replace(best, neighbour_prior=best.neighbour_prior or NEIGHBOUR_PRIOR) if told else best
    start = GATED_START if kind == "gated" else DEFAULT_COMBINE
    if kind not in ("combine", "transformer", "gated"):  # the others take classifiers as they are
        start = replace(start, neighbour_prior=0.0)
    return replace(start, neighbours=parts.neighbours or start.neighbours)


def learn_fold_encoder(
    parts: ModelParts, encoding: Encoding, fold: Fold, observed: Rows, query_rows: Rows, clicks: csr_array
) -> Encoder:
    """An encoder that has not seen the fold's pseudo-novel items and held-out queries; the arguments are those of
    `fit_fold`."""
    rows, learnt = fold.training(clicks)
    return encoding.learn(query_rows[rows], observed[fold.observed], learnt, parts.seed)


def encoder_quality(
    encoding: Encoding,
    encoder: Encoder,
    fold: Fold,
    observed: Rows,
    query_rows: Rows,
    clicks: csr_array,
    seed: int,
    excluded: csr_array | None = None,
) -> float:
    """How well an encoder by itself ranks the items of a fold, zero-shot and among all items in the mean, percent.

    Args:
        encoding: Applies the encoder.
        encoder: One that has seen neither the fold's pseudo-novel items nor its held-out queries.
        fold: Which items and queries are held out.
        observed, query_rows, clicks, excluded: As for `fit_fold`.
        seed: Draws the validation queries.
    """
    held, judged = fold.validation(clicks)
    hidden = None if excluded is None else csr_array(excluded[held])
    places = np.arange(len(held), dtype=np.float32)[:, None]  # stand for the queries until these are embedded
    sampled = ValidationQueries.sample(places, judged, seed, hidden)
    queries, items = encoding.embed(encoder, query_rows[held[sampled.queries[:, 0].astype(np.int64)]])
    order = np.concatenate([fold.observed, fold.novel])
    embeddings = np.asarray(items[observed[order]])
    generalized = replace(sampled, queries=np.asarray(queries)).with_columns(order)
    novel = generalized.with_columns(np.arange(len(fold.observed), len(order)))
    some = np.flatnonzero(np.diff(novel.clicks.indptr) > 0)
    zero_shot = ValidationQueries(
        novel.queries[some],
        csr_array(novel.clicks[some]),
        None if novel.excluded is None else csr_array(novel.excluded[some]),
    )
    means = [
        zero_shot.quality(embeddings[len(fold.observed) :]).mean,
        generalized.quality(embeddings).mean,
    ]
    return sum(means) / 2


def fit_fold(
    parts: ModelParts,
    encoding: Encoding,
    encoder: Encoder,
    fold: Fold,
    observed: Rows,
    query_rows: Rows,
    clicks: csr_array,
    excluded: csr_array | None = None,
    *,
    keep_queries: bool = True,
) -> FittedFold:
    """Fit everything but the generator without the fold's pseudo-novel items and held-out queries.

    Args:
        parts: How the parts of the model are made.
        encoding: Applies encoders.
        encoder: From `learn_fold_encoder`.
        fold: Which items and queries are held out.
        observed: (observed,) rows of the observed items in the data set.
        query_rows: (queries,) rows of the training queries in the data set.
        clicks: (queries, observed).
        excluded: (queries, observed) pairs that are no answers whatever their score; None for none.
        keep_queries: Whether a generator is to learn from the fold, which then keeps all training queries.
    """
    rows, learnt = fold.training(clicks)
    queries, items = encoding.embed(encoder, query_rows)
    embeddings = items[observed[np.concatenate([fold.observed, fold.novel])]]
    del items  # a large array, and another follows
    remaining, novel = np.split(embeddings, [len(fold.observed)])
    learnt_from = queries[rows]
    ages = None if fold.ages is None else fold.ages[fold.observed]
    own = replace(parts.fit_classifiers(learnt_from, learnt), ages=ages).padded(len(novel))
    classifiers = own.take(slice(len(remaining)))
    queries, learnt_from = (classifiers.transform_queries(some) for some in (queries, learnt_from))
    most = max(*NEIGHBOURS, parts.neighbours or 0)
    # An item whose clicks are all held out informs nothing.
    informative = np.flatnonzero(classifiers.clicks > 0)
    place = np.full(len(remaining), -1)
    place[informative] = np.arange(len(informative))
    selector = NearestSelector(remaining if len(informative) == len(remaining) else remaining[informative])
    near, similarities = selector.select(novel, most)
    observed_near, observed_similarities = selector.select(remaining, most, exclude_self=place)
    data = TuningFold.build(fold, queries, clicks, parts.seed, excluded)
    return FittedFold(
        data,
        own,
        parts.neighbour_classifiers(classifiers, remaining, learnt_from, learnt),
        embeddings,
        queries if keep_queries else queries[:0].copy(),
        csr_array(clicks[:, fold.novel]),
        np.where(near < 0, -1, informative[near]),
        similarities,
        np.where(observed_near < 0, -1, informative[observed_near]),
        observed_similarities,
        ClassifierResponse.fit(classifiers, learnt_from),
        parts.query_expansion(learnt_from, learnt, remaining),
    )
