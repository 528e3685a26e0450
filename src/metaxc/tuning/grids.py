"""Constants chosen on folds of pseudo-novel items, by small grids one after the other.

How the neighbours are combined is compared zero-shot, among the pseudo-novel items; how observed and novel items rank
together is compared generalized, among all; how far a query is expanded is compared by both. What was fitted on the
folds is thrown away, the constants stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from metaxc.arrays import Floats
from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration, ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import (
    NEIGHBOUR_PRIOR,
    mixed_scores,
    novel_vectors,
    observed_vectors,
    scale_by_trust,
)
from metaxc.generators import Combine, gather
from metaxc.tuning.fitted_folds import (
    SLACK,
    FittedFold,
    Quality,
    TuningFold,
    ValidationQueries,
    mean_quality,
    ranking_quality,
)

NEIGHBOURS = (3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
NEIGHBOUR_PRIORS = (0.0, 10.0, 50.0)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
OWN = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PRIOR_CLICKS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
NOVEL_SCALES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)
EXPANSION_NEIGHBOURS = ((5, 0.1), (20, 0.05))
EXPANSION_STRENGTHS = (0.2, 0.35, 0.5, 0.75)


@dataclass(frozen=True)
class CombineChoice:
    """How many neighbours inform an item, and how they are combined."""

    neighbours: int
    strength: float
    temperature: float
    neighbour_prior: float


DEFAULT_COMBINE = CombineChoice(neighbours=10, strength=0.5, temperature=0.1, neighbour_prior=NEIGHBOUR_PRIOR)


def tune_combine(folds: Sequence[FittedFold], neighbours: int | None = None) -> CombineChoice:
    """The weakest combine that ranks the pseudo-novel items as well as the best, in the mean over the folds.

    Many settings tie within the noise of the validation queries. Among those within `SLACK` of the best the one nearest
    to the item's own text is taken: what is not shown to help is left out.

    Args:
        folds: Where settings are compared.
        neighbours: K, when it is given and not to be chosen.
    """
    counts = NEIGHBOURS if neighbours is None else (neighbours,)
    totals: dict[CombineChoice, float] = {}
    for fold in folds:
        for choice, found in _combine_qualities(fold, counts):
            totals[choice] = totals.get(choice, 0.0) + found.mean
    enough = max(totals.values()) - SLACK * len(folds)
    as_good = [choice for choice, total in totals.items() if total >= enough]
    return min(as_good, key=lambda c: (c.strength, c.neighbour_prior, c.neighbours, -c.temperature))


def _combine_qualities(fold: FittedFold, counts: Sequence[int]) -> Iterator[tuple[CombineChoice, Quality]]:
    queries, clicks = torch.from_numpy(fold.data.zero_shot.queries), fold.data.zero_shot.clicks
    text_scores = queries @ torch.from_numpy(fold.novel_embeddings).T
    no_text = np.zeros_like(fold.novel_embeddings)
    yield CombineChoice(counts[0], 0.0, TEMPERATURES[0], 0.0), ranking_quality(text_scores, clicks)
    for prior in NEIGHBOUR_PRIORS:
        vectors = scale_by_trust(fold.neighbour_classifiers, prior)
        for k, temperature in product(counts, TEMPERATURES):
            combined = Combine(1.0, temperature).generate(
                no_text, gather(vectors, fold.neighbours[:, :k]), fold.similarities[:, :k]
            )
            neighbour_scores = queries @ torch.from_numpy(combined).T
            for strength in STRENGTHS[1:]:
                choice = CombineChoice(k, strength, temperature, prior)
                yield choice, ranking_quality(text_scores + strength * neighbour_scores, clicks)


class _GeneralizedScores:
    """The parts of a fold's generalized scores that do not depend on the calibration."""

    def __init__(
        self, fold: TuningFold, classifiers: Classifiers, observed_embeddings: Floats, generated: Floats
    ):
        ordered = fold.generalized.with_columns(fold.item_order)
        queries = torch.from_numpy(ordered.queries)
        self.relevant, self.clicks = ordered.clicks, classifiers.clicks
        self.text_scores = queries @ torch.from_numpy(observed_embeddings).T
        self.classifier_scores = queries @ torch.from_numpy(classifiers.weights).T
        self.novel_scores = queries @ torch.from_numpy(generated).T
        self.scores = torch.empty(len(queries), ordered.clicks.shape[1])

    def quality(self, calibration: Calibration) -> Quality:
        parts = (self.text_scores, self.classifier_scores, self.clicks, self.novel_scores)
        return ranking_quality(mixed_scores(*parts, calibration, self.scores), self.relevant)


def tune_calibration(folds: Sequence[FittedFold], generated: Sequence[Floats]) -> tuple[Calibration, Quality]:
    """The calibration under which observed and pseudo-novel items rank best together, in the mean over the folds, and
    how well they do.

    Args:
        folds: Where settings are compared.
        generated: Per fold, (pseudo-novel, dim) meta-classifiers, not scaled.
    """
    parts = [
        _GeneralizedScores(fold.data, fold.classifiers, fold.observed_embeddings, vectors)
        for fold, vectors in zip(folds, generated, strict=True)
    ]
    best = Calibration()
    found = mean_quality([part.quality(best) for part in parts])
    for grid in (
        [{"own": own, "prior_clicks": prior} for own, prior in product(OWN, PRIOR_CLICKS)],
        [{"novel_scale": scale} for scale in NOVEL_SCALES],
        [{"own": own} for own in OWN],
    ):
        for change in grid:
            candidate = best.model_copy(update=change)
            reached = mean_quality([part.quality(candidate) for part in parts])
            if reached.mean > found.mean:
                best, found = candidate, reached
    return best, found


def tune_own_classifiers(fold: TuningFold, item_vectors: Floats, classifiers: Classifiers) -> Calibration:
    """The weight and the prior of observed items' own classifiers that rank all items best together; novel items are
    not scaled. For methods without meta-classifiers.

    Args:
        fold: Where settings are compared.
        item_vectors: (observed, dim) all observed items as if they were novel.
        classifiers: Classifiers of the items that remain observed in the fold.
    """
    queries = classifiers.transform_queries(fold.generalized.queries)
    fold = TuningFold(
        fold.fold,
        fold.training_rows,
        fold.training_clicks,
        fold.zero_shot,
        ValidationQueries(queries, fold.generalized.clicks),
    )
    observed, novel = item_vectors[fold.fold.observed], item_vectors[fold.fold.novel]
    scores = _GeneralizedScores(fold, classifiers, observed, novel)
    # The default comes first: it stays where nothing is better.
    candidates = [Calibration(), *(Calibration(own=o, prior_clicks=p) for o, p in product(OWN, PRIOR_CLICKS))]
    return candidates[int(np.argmax([scores.quality(candidate).mean for candidate in candidates]))]


def tune_query_expansion(
    folds: Sequence[FittedFold], generated: Sequence[Floats], calibration: Calibration
) -> ExpansionConfig | None:
    """The weakest query expansion that ranks as well as the best, zero-shot and generalized together, in the mean over
    the folds; None where no expansion is better than none by more than `SLACK`.

    One that costs the pseudo-novel items more than `SLACK` of P@1 or R@10 among themselves is not considered: novel
    items do not pay for what observed items gain.

    Args:
        folds: Where settings are compared.
        generated: Per fold, (pseudo-novel, dim) meta-classifiers, not scaled.
        calibration: Chosen without expansion.
    """
    found: dict[ExpansionConfig, list[tuple[Quality, Quality]]] = {}
    for fold, vectors in zip(folds, generated, strict=True):
        if fold.expansion is None:
            return None
        for config, zero_shot, generalized in _expansion_qualities(
            fold, fold.expansion, vectors, calibration
        ):
            found.setdefault(config, []).append((zero_shot, generalized))
    among_novel = {config: mean_quality([one for one, _ in pairs]) for config, pairs in found.items()}
    both = {
        config: mean_quality([one for pair in pairs for one in pair]).mean for config, pairs in found.items()
    }
    without = among_novel[next(config for config in found if not config.strength)]
    fair = [config for config, quality in among_novel.items() if quality.is_close_to(without)]
    enough = max(both[config] for config in fair) - SLACK
    chosen = min((config for config in fair if both[config] >= enough), key=lambda config: config.strength)
    return chosen if chosen.strength else None


def _expansion_qualities(
    fold: FittedFold, expansion: QueryExpansion, generated: Floats, calibration: Calibration
) -> Iterator[tuple[ExpansionConfig, Quality, Quality]]:
    """Expansions, the first of strength 0, with the zero-shot and the generalized quality of each."""
    observed = observed_vectors(fold.observed_embeddings, fold.classifiers, calibration)
    everything = np.concatenate([observed, novel_vectors(generated, None, calibration)])
    among_novel = _ExpandedScores(fold.data.zero_shot, generated, expansion)
    among_all = _ExpandedScores(
        fold.data.generalized.with_columns(fold.data.item_order), everything, expansion
    )
    for k, temperature in EXPANSION_NEIGHBOURS:
        for side in (among_novel, among_all):
            side.set_direction(k, temperature)
        for strength in (0.0, *EXPANSION_STRENGTHS):
            config = ExpansionConfig(neighbours=k, temperature=temperature, strength=strength)
            yield config, among_novel.quality(strength), among_all.quality(strength)


class _ExpandedScores:
    """Scores of expanded queries: linear in the strength, so the items are multiplied once per neighbourhood."""

    def __init__(self, validation: ValidationQueries, items: Floats, expansion: QueryExpansion):
        self.clicks = validation.clicks.copy()
        self.clicks.sort_indices()
        self.items, self.expansion = torch.from_numpy(items).T, expansion
        self.nearest = expansion.nearest(validation.queries, max(k for k, _ in EXPANSION_NEIGHBOURS))
        self.plain = torch.from_numpy(validation.queries) @ self.items

    def set_direction(self, k: int, temperature: float) -> None:
        rows, scores = self.nearest
        direction = self.expansion.direction(rows[:, :k], scores[:, :k], temperature)
        self.move = torch.from_numpy(direction) @ self.items

    def quality(self, strength: float) -> Quality:
        return ranking_quality(self.plain + strength * self.move, self.clicks)
