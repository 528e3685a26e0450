"""Constants chosen on folds of pseudo-novel items by small grids: which neighbours inform an item, and how far a query
is expanded. `metaxc.tuning.calibration` chooses how strongly all parts count.

Which neighbours inform an item is compared zero-shot, among the pseudo-novel items; how far a query is expanded is
compared zero-shot and among all items. What was fitted on the folds is thrown away, the constants stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration, ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import NEIGHBOUR_PRIOR, query_vectors, scale_by_trust
from metaxc.generators import Combine, gather
from metaxc.index.array_search import ArraySearch
from metaxc.index.topk import best_rows
from metaxc.metrics import without_pairs
from metaxc.tuning.fitted_folds import FittedFold, TuningFold
from metaxc.tuning.qualities import DEPTH, SLACK, Quality, Relevance, mean_quality, ranking_quality
from metaxc.tuning.shortlists import FoldItems, Setting, Shortlist

NEIGHBOURS = (3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
NEIGHBOUR_PRIORS = (0.0, 10.0, 50.0)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
OWN = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PRIOR_CLICKS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
MOST_NOVEL = 20_000
"""Pseudo-novel items among which combines are compared, at most: what the neighbours should weigh differs little from
one large sample of items to another, and hundreds of combines are compared."""

EXPANSION_NEIGHBOURS = ((5, 0.1), (20, 0.05))
EXPANSION_STRENGTHS = (0.2, 0.35, 0.5, 0.75, 1.0, 1.5)


@dataclass(frozen=True)
class CombineChoice:
    """How many neighbours inform an item, and how they are combined."""

    neighbours: int
    strength: float
    temperature: float
    neighbour_prior: float


DEFAULT_COMBINE = CombineChoice(neighbours=10, strength=0.5, temperature=0.1, neighbour_prior=NEIGHBOUR_PRIOR)


def tune_combine(folds: Sequence[FittedFold], neighbours: int | None = None) -> CombineChoice:
    """The combine that ranks the pseudo-novel items best among themselves, in the mean over the folds.

    Its strength is where the search for the calibration starts; it is chosen there, among all items.

    Args:
        folds: Where settings are compared.
        neighbours: K, when it is given and not to be chosen.
    """
    counts = NEIGHBOURS if neighbours is None else (neighbours,)
    totals: dict[CombineChoice, float] = {}
    for fold in folds:
        for choice, found in _combine_qualities(fold, counts):
            totals[choice] = totals.get(choice, 0.0) + found.mean
    best = max(totals, key=lambda choice: totals[choice])
    if best.strength:
        return best
    # Nothing is better than the text alone: the neighbours still count in the ranking of all items.
    return replace(DEFAULT_COMBINE, neighbours=neighbours or DEFAULT_COMBINE.neighbours, strength=0.0)


def _combine_qualities(fold: FittedFold, counts: Sequence[int]) -> Iterator[tuple[CombineChoice, Quality]]:
    items = _sample_novel(fold)
    validation = fold.data.zero_shot.with_columns(items)
    embeddings, similarities = (part[items] for part in (fold.novel_embeddings, fold.similarities))
    neighbours = fold.neighbours[items]
    queries, text_scores = torch.from_numpy(validation.queries), validation.scores(embeddings)

    def quality(scores: Tensor) -> Quality:
        return ranking_quality(best_rows(scores, DEPTH)[1].numpy(), validation.clicks)

    no_text = np.zeros_like(embeddings)
    yield CombineChoice(counts[0], 0.0, TEMPERATURES[0], 0.0), quality(text_scores)
    for prior in NEIGHBOUR_PRIORS:
        vectors = scale_by_trust(fold.neighbour_classifiers, prior)
        for k, temperature in product(counts, TEMPERATURES):
            combined = Combine(1.0, temperature).generate(
                no_text, gather(vectors, neighbours[:, :k]), similarities[:, :k]
            )
            neighbour_scores = queries @ torch.from_numpy(combined).T
            for strength in STRENGTHS[1:]:
                choice = CombineChoice(k, strength, temperature, prior)
                yield choice, quality(text_scores + strength * neighbour_scores)


def _sample_novel(fold: FittedFold) -> Rows:
    """Rows of at most `MOST_NOVEL` pseudo-novel items, or of all that a validation query clicked."""
    count = len(fold.novel_embeddings)
    if count <= MOST_NOVEL:
        return np.arange(count)
    clicked = np.zeros(count, dtype=bool)
    clicked[fold.data.zero_shot.clicks.indices] = True
    others = np.random.default_rng(0).permutation(np.flatnonzero(~clicked))
    clicked[others[: max(MOST_NOVEL - int(clicked.sum()), 0)]] = True
    return np.flatnonzero(clicked)


def tune_own_classifiers(fold: TuningFold, vectors: Floats, classifiers: Classifiers) -> Calibration:
    """The weight and the prior of observed items' own classifiers that rank all items best together; novel items are
    not scaled. For methods without meta-classifiers.

    Args:
        fold: Where settings are compared.
        vectors: (observed, dim) all observed items as if they were novel.
        classifiers: Classifiers of the items that remain observed in the fold.
    """
    order = fold.item_order
    validation = fold.generalized.with_columns(order)
    novel = np.arange(len(order)) >= len(classifiers)
    clicks = np.where(novel, 0, np.pad(classifiers.clicks, (0, int(novel.sum()))))
    own = np.pad(classifiers.weights, ((0, int(novel.sum())), (0, 0)))
    items = FoldItems(np.ascontiguousarray(vectors[order]), np.zeros_like(own), Classifiers(own, clicks))
    shortlist = Shortlist(
        classifiers.transform_queries(validation.queries), items, Relevance(validation.clicks, novel, clicks)
    )
    # The default comes first: it stays where nothing is better.
    candidates = [
        Calibration(novelty_prior=0.0),
        *(Calibration(own=o, prior_clicks=p, novelty_prior=0.0) for o, p in product(OWN, PRIOR_CLICKS)),
    ]
    found = [shortlist.quality(Setting(candidate, 0.0)).mean for candidate in candidates]
    return candidates[int(np.argmax(found))]


def tune_query_expansion(
    folds: Sequence[FittedFold], items: Sequence[FoldItems], setting: Setting
) -> ExpansionConfig | None:
    """The query expansion that ranks best, zero-shot and generalized together, in the mean over the folds; None where
    no expansion is better than none by more than `SLACK`.

    One that costs the pseudo-novel items more than `SLACK` of P@1 or R@10 among themselves is not considered: novel
    items do not pay for what observed items gain.

    Args:
        folds: Where settings are compared.
        items: The items of each fold.
        setting: Chosen without expansion.
    """
    found: dict[ExpansionConfig, list[tuple[Quality, Quality]]] = {}
    for fold, fold_items in zip(folds, items, strict=True):
        if fold.expansion is None:
            return None
        for config, zero_shot, generalized in _expansion_qualities(fold, fold.expansion, fold_items, setting):
            found.setdefault(config, []).append((zero_shot, generalized))
    among_novel = {config: mean_quality([one for one, _ in pairs]) for config, pairs in found.items()}
    both = {
        config: mean_quality([one for pair in pairs for one in pair]).mean for config, pairs in found.items()
    }
    none = next(config for config in found if not config.strength)
    fair = [config for config, quality in among_novel.items() if quality.is_close_to(among_novel[none])]
    best = max(fair, key=lambda config: both[config])
    return best if both[best] > both[none] + SLACK else None


def _expansion_qualities(
    fold: FittedFold, expansion: QueryExpansion, items: FoldItems, setting: Setting
) -> Iterator[tuple[ExpansionConfig, Quality, Quality]]:
    """Expansions, the first of strength 0, with the zero-shot and the generalized quality of each."""
    calibration = setting.calibration
    everything = items.vectors(setting)
    search = ArraySearch(everything)
    relevance = fold.relevance(items)
    among_novel = everything[len(fold.observed_embeddings) :, :-1]
    hidden = fold.data.generalized.with_columns(fold.data.item_order).excluded
    extra = 0 if hidden is None else int(np.diff(hidden.indptr).max(initial=0))
    sides = [_Expanded(one.queries, expansion) for one in (fold.data.zero_shot, fold.data.generalized)]
    for k, temperature in EXPANSION_NEIGHBOURS:
        for side in sides:
            side.set_direction(k, temperature)
        for strength in (0.0, *EXPANSION_STRENGTHS):
            config = ExpansionConfig(neighbours=k, temperature=temperature, strength=strength)
            zero_shot = replace(fold.data.zero_shot, queries=sides[0].queries(strength))
            moved = sides[1].queries(strength)
            expanded = query_vectors(moved, calibration.exposure * fold.response(moved))
            ranked, _ = search.search(expanded, min(DEPTH + extra, len(everything)))
            if hidden is not None:
                ranked = without_pairs(ranked, hidden)[:, :DEPTH]
            yield config, zero_shot.quality(among_novel), relevance.quality(ranked)


class _Expanded:
    """Expanded queries: linear in the strength, so that their neighbours are searched once."""

    def __init__(self, queries: Floats, expansion: QueryExpansion):
        self.plain, self.expansion = queries, expansion
        self.nearest = expansion.nearest(queries, max(k for k, _ in EXPANSION_NEIGHBOURS))

    def set_direction(self, k: int, temperature: float) -> None:
        rows, scores = self.nearest
        self.direction = self.expansion.direction(rows[:, :k], scores[:, :k], temperature)

    def queries(self, strength: float) -> Floats:
        return self.plain + np.float32(strength) * self.direction
