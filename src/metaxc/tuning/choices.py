"""The constants of a model, chosen on folds of pseudo-novel items, and the generator trained on them.

A generator that learns from items whose clicks its encoder has seen learns to trust embeddings too much. The folds are
encoded without their pseudo-novel items anyway, so a generator learns from these: on the other folds when it is
validated on one, on all folds when it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration, ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import scale_by_trust
from metaxc.encoders.learning import Encoding
from metaxc.generators import Episode
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.selectors import NearestSelector
from metaxc.tuning.fitted_folds import SLACK, FittedFold, Quality, TuningFold, zero_shot_quality
from metaxc.tuning.grids import (
    DEFAULT_COMBINE,
    NEIGHBOURS,
    CombineChoice,
    tune_calibration,
    tune_combine,
    tune_query_expansion,
)

GATED_START = CombineChoice(neighbours=20, strength=0.5, temperature=0.1, neighbour_prior=10.0)
"""Many neighbours and the combine's defaults: which of them count, and how much, is learnt."""


class ModelParts(Protocol):
    """How the parts of a model are made: for a fold of pseudo-novel items as for all items."""

    seed: int
    neighbours: int | None
    """K, when it is given and not to be chosen."""

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
class Constants:
    """The constants that the folds decided.

    Args:
        generator: The kind of generator.
        combine: The combine that it is, or starts at.
        calibration: How observed and novel items rank together.
        expansion: How queries are expanded; None for no expansion.
        pseudo_novel: The quality on the pseudo-novel items that the constants were chosen on, or why there is none.
        compared: The quality of each kind of generator.
    """

    generator: str
    combine: CombineChoice
    calibration: Calibration
    expansion: ExpansionConfig | None
    pseudo_novel: dict[str, Any]
    compared: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python for JSON."""
        return {
            "generator": self.generator,
            "combine": asdict(self.combine),
            "calibration": self.calibration.model_dump(),
            "expansion": None if self.expansion is None else self.expansion.model_dump(),
            "pseudo_novel": self.pseudo_novel,
            "compared": self.compared,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Constants:
        """Restore what `to_dict` returned."""
        return cls(
            values["generator"],
            CombineChoice(**values["combine"]),
            Calibration(**values["calibration"]),
            None if values["expansion"] is None else ExpansionConfig(**values["expansion"]),
            values["pseudo_novel"],
            values["compared"],
        )

    def __str__(self) -> str:
        numbers = {**asdict(self.combine), **self.calibration.model_dump()}
        numbers["query expansion"] = 0.0 if self.expansion is None else self.expansion.strength
        parts = [f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items()]
        return ", ".join([self.generator.replace("_", " "), *parts])


@dataclass(frozen=True)
class Candidate:
    """A kind of generator with its constants, and how well it does on the folds.

    Args:
        kind: The kind of generator.
        combine: The combine that it is, or starts at.
        generated: Per fold, (pseudo-novel, dim) meta-classifiers by a generator that has seen none of the fold's items.
        zero_shot: How well they rank among themselves.
        generalized: How well they rank among all items, with `calibration`.
        calibration: How observed and novel items rank together.
    """

    kind: str
    combine: CombineChoice
    generated: list[Floats]
    zero_shot: Quality
    generalized: Quality
    calibration: Calibration

    def beats(self, other: Candidate) -> bool:
        """Whether it is better zero-shot by more than `SLACK`, and generalized not worse by more than that."""
        return (
            self.zero_shot.mean > other.zero_shot.mean + SLACK
            and self.generalized.mean > other.generalized.mean - SLACK
        )


def choose_constants(
    parts: ModelParts, folds: Sequence[FittedFold]
) -> tuple[Constants, TrainedGenerator | None]:
    """Choose the constants on the pseudo-novel items of `folds`.

    Returns:
        The constants, and the generator where it is trained on the folds; None where it is still to be trained on the
        observed items.
    """
    kinds = parts.generator_kinds(len(folds))
    if not folds:
        combine = starting_combine(parts, kinds[0], [])
        return Constants(kinds[0], combine, Calibration(), None, {}), None
    best, *rest = candidates = [
        validate_generator(parts, kind, starting_combine(parts, kind, folds), folds) for kind in kinds
    ]
    for candidate in rest:
        best = candidate if candidate.beats(best) else best
    calibration, generalized = best.calibration, best.generalized
    expansion = tune_query_expansion(folds, best.generated, calibration)
    validation = folds
    if expansion is not None:
        validation = [fold.expanded(expansion) for fold in folds]
        calibration, generalized = tune_calibration(validation, best.generated)
    constants = Constants(
        best.kind,
        best.combine,
        calibration,
        expansion,
        {
            "zero_shot": zero_shot_quality(validation, best.generated).to_dict(),
            "generalized": generalized.to_dict(),
        },
        {
            one.kind: {"zero_shot": one.zero_shot.to_dict(), "generalized": one.generalized.to_dict()}
            for one in candidates
        },
    )
    if not parts.trains_out_of_fold(best.kind, len(folds)):
        return constants, None
    episodes = [_novel_episode(fold, best.combine) for fold in folds]
    return constants, parts.train_generator(best.kind, best.combine, episodes)


def validate_generator(
    parts: ModelParts, kind: str, combine: CombineChoice, folds: Sequence[FittedFold]
) -> Candidate:
    """A kind of generator, trained for every fold without that fold's pseudo-novel items and held-out queries."""
    generated = []
    for fold in folds:
        vectors = scale_by_trust(fold.neighbour_classifiers, combine.neighbour_prior)
        if parts.trains_out_of_fold(kind, len(folds)):
            held = fold.data.fold.held
            others = [_novel_episode(other, combine).without(held) for other in folds if other is not fold]
            generator = parts.train_generator(kind, combine, others).generator
        else:
            near = parts.training_neighbours(kind, fold.observed_embeddings, combine.neighbours)
            trained = parts.train_generator(kind, combine, [fold.observed_episode(vectors, *near)])
            generator, vectors = trained.generator, trained.classifiers
        generated.append(fold.generate(generator, vectors, combine.neighbours))
    calibration, generalized = tune_calibration(folds, generated)
    zero_shot = zero_shot_quality(folds, generated)
    return Candidate(kind, combine, generated, zero_shot, generalized, calibration)


def _novel_episode(fold: FittedFold, combine: CombineChoice) -> Episode:
    vectors = scale_by_trust(fold.neighbour_classifiers, combine.neighbour_prior)
    return fold.novel_episode(vectors, combine.neighbours)


def starting_combine(parts: ModelParts, kind: str, folds: Sequence[FittedFold]) -> CombineChoice:
    """The combine that a kind of generator is or starts at: chosen on the folds where it stays what it is."""
    if kind in ("combine", "transformer") and folds:
        return tune_combine(folds, parts.neighbours)
    start = GATED_START if kind == "gated" else DEFAULT_COMBINE
    if kind not in ("combine", "transformer", "gated"):  # the others take classifiers as they are
        start = replace(start, neighbour_prior=0.0)
    return replace(start, neighbours=parts.neighbours or start.neighbours)


def fit_fold(
    parts: ModelParts, encoding: Encoding, fold: Fold, observed: Rows, query_rows: Rows, clicks: csr_array
) -> FittedFold:
    """Fit everything but the generator without the fold's pseudo-novel items and held-out queries.

    Args:
        parts: How the parts of the model are made.
        encoding: Trains and applies encoders.
        fold: Which items and queries are held out.
        observed: (observed,) rows of the observed items in the data set.
        query_rows: (queries,) rows of the training queries in the data set.
        clicks: (queries, observed).
    """
    rows, learnt = fold.training(clicks)
    encoder = encoding.learn(query_rows[rows], observed[fold.observed], learnt, parts.seed)
    queries, items = encoding.embed(encoder, query_rows)
    items = items[observed]
    remaining, novel = items[fold.observed], items[fold.novel]
    classifiers = parts.fit_classifiers(queries[rows], learnt)
    queries = classifiers.transform_queries(queries)
    most = max(*NEIGHBOURS, parts.neighbours or 0)
    near, similarities = NearestSelector(remaining).select(novel, most)
    return FittedFold(
        TuningFold.build(fold, queries, clicks, parts.seed),
        classifiers,
        parts.neighbour_classifiers(classifiers, remaining, queries[rows], learnt),
        remaining,
        novel,
        queries,
        csr_array(clicks[:, fold.novel]),
        near,
        similarities,
        parts.query_expansion(queries[rows], learnt, remaining),
    )
