"""Constants chosen on pseudo-novel items, never on test.

A share of the *observed* items plays novel, and a share of the queries plays test. Everything that learns is
fitted without them; then the constants are those that rank the held-out queries best. What was learnt on
such a fold is thrown away, the constants stay. One fold is not enough: a few popular items decide its P@1, and
which of them happen to be pseudo-novel differs from fold to fold, so the constants are judged by the mean over
several.

The search is over small grids, one after the other: how the neighbours are combined (judged zero-shot, among the
pseudo-novel items), how observed and novel items rank together (judged generalized, among all), and how much a query
borrows from the training queries near it (judged by both).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Floats, Mask, Rows
from metaxc.classifiers import Classifiers
from metaxc.data.folds import FEWEST_QUERIES
from metaxc.emmett import Calibration
from metaxc.generators import Combine, gather
from metaxc.index.topk import best_rows
from metaxc.memory import QueryMemory, Recall
from metaxc.metrics import hits, precision, recall, relevant_counts

MOST_QUERIES = 1_000
"""Held-out queries that judge in each fold."""

MOST_SCORES = 50_000_000
"""Scores of judges × items held at once (200 MB); with millions of items there are fewer judges."""

SLACK = 0.3
"""Points of quality; half the standard error of three folds of 1,000 judges."""

NEIGHBOURS = (3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
NEIGHBOUR_PRIORS = (0.0, 10.0, 50.0)
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
OWN = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PRIOR_CLICKS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
NOVEL_SCALES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)
NEAR_QUERIES = ((5, 0.1), (20, 0.05))
RECALL_STRENGTHS = (0.2, 0.35, 0.5, 0.75)


@dataclass(frozen=True)
class Quality:
    """P@1 and R@10 in percent; settings are compared by their mean."""

    precision: float
    recall: float

    @property
    def mean(self) -> float:
        return (self.precision + self.recall) / 2

    def costs_little(self, other: Quality) -> bool:
        """Whether neither figure is more than `SLACK` below the other's."""
        return self.precision >= other.precision - SLACK and self.recall >= other.recall - SLACK

    def to_dict(self) -> dict[str, float]:
        """By the metrics' names."""
        return {"P@1": self.precision, "R@10": self.recall}


def mean_quality(found: Sequence[Quality]) -> Quality:
    """The mean over several folds."""
    return Quality(
        float(np.mean([one.precision for one in found])), float(np.mean([one.recall for one in found]))
    )


def quality(scores: Tensor, relevant: csr_array) -> Quality:
    """How well (queries, items) scores rank; every query has a relevant item."""
    _, columns = best_rows(scores, 10)
    hit = hits(columns.numpy(), relevant)
    counts = relevant_counts(relevant)
    return Quality(100 * float(precision(hit, 1).mean()), 100 * float(recall(hit, counts, 10).mean()))


@dataclass(frozen=True)
class Judges:
    """Held-out queries and what they clicked.

    Args:
        queries: (judges, dim).
        clicks: (judges, items); every judge has a click.
    """

    queries: Floats
    clicks: csr_array

    @staticmethod
    def draw(queries: Floats, clicks: csr_array, seed: int) -> Judges:
        """At most `MOST_QUERIES` of the queries that have a click."""
        rows = np.flatnonzero(np.diff(clicks.indptr) > 0)
        most = max(FEWEST_QUERIES, min(MOST_QUERIES, MOST_SCORES // max(clicks.shape[1], 1)))
        if len(rows) > most:
            rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
        return Judges(np.array(queries[rows]), csr_array(clicks[rows]))


@dataclass(frozen=True)
class Trial:
    """One fold, with everything fitted without its pseudo-novel items and held-out queries.

    Args:
        classifiers: Of the remaining observed items.
        seen: (remaining observed, dim) their embeddings.
        new: (pseudo-novel, dim) embeddings.
        near: (pseudo-novel, most K) neighbours of the pseudo-novel among the remaining observed items.
        scores: (pseudo-novel, most K) their similarities.
        zero_shot: Judges over the pseudo-novel items.
        generalized: Judges over all observed items.
        novel: (observed,) bool, which items are pseudo-novel.
        memory: The fold's training queries and what they clicked; None where queries borrow nothing.
    """

    classifiers: Classifiers
    seen: Floats
    new: Floats
    near: Rows
    scores: Floats
    zero_shot: Judges
    generalized: Judges
    novel: Mask
    memory: QueryMemory | None = None

    def recalling(self, recall: Recall) -> Trial:
        """The trial with judges that borrow from the memory."""
        if self.memory is None:
            return self
        memory = self.memory.using(recall)
        zero_shot, generalized = (
            replace(judges, queries=memory.expand(judges.queries))
            for judges in (self.zero_shot, self.generalized)
        )
        return replace(self, zero_shot=zero_shot, generalized=generalized)


@dataclass(frozen=True)
class CombineChoice:
    """How many neighbours, and how they are combined."""

    neighbours: int
    strength: float
    temperature: float
    neighbour_prior: float


DEFAULT_COMBINE = CombineChoice(neighbours=10, strength=0.5, temperature=0.1, neighbour_prior=10.0)


def choose_combine(trials: Sequence[Trial], neighbours: int | None = None) -> CombineChoice:
    """The weakest combine that ranks the pseudo-novel items as well as the best, in the mean over the trials.

    Many settings tie within the noise of the judges. Among those within `SLACK` of the best the one nearest to
    the item's own text is taken: what is not shown to help is left out.

    Args:
        trials: The folds.
        neighbours: K, when it is given and not to be chosen.
    """
    counts = NEIGHBOURS if neighbours is None else (neighbours,)
    totals: dict[CombineChoice, float] = {}
    for trial in trials:
        for choice, found in _combine_qualities(trial, counts):
            totals[choice] = totals.get(choice, 0.0) + found.mean
    enough = max(totals.values()) - SLACK * len(trials)
    as_good = [choice for choice, total in totals.items() if total >= enough]
    return min(as_good, key=lambda c: (c.strength, c.neighbour_prior, c.neighbours, -c.temperature))


def _combine_qualities(trial: Trial, counts: Sequence[int]) -> Iterator[tuple[CombineChoice, Quality]]:
    q = torch.from_numpy(trial.zero_shot.queries)
    own = q @ torch.from_numpy(trial.new).T
    yield CombineChoice(counts[0], 0.0, TEMPERATURES[0], 0.0), quality(own, trial.zero_shot.clicks)
    for prior in NEIGHBOUR_PRIORS:
        trusted = trial.classifiers.trusted(prior)
        for k, temperature in product(counts, TEMPERATURES):
            only_theirs = Combine(1.0, temperature).generate(
                np.zeros_like(trial.new), gather(trusted, trial.near[:, :k]), trial.scores[:, :k]
            )
            theirs = q @ torch.from_numpy(only_theirs).T
            for strength in STRENGTHS[1:]:
                choice = CombineChoice(k, strength, temperature, prior)
                yield choice, quality(own + strength * theirs, trial.zero_shot.clicks)


def zero_shot_quality(trials: Sequence[Trial], made: Sequence[Floats]) -> Quality:
    """How well meta-classifiers (one array of (pseudo-novel, dim) per trial) rank the pseudo-novel items."""
    pairs = zip(trials, made, strict=True)
    return mean_quality(
        [quality(torch.from_numpy(t.zero_shot.queries @ m.T), t.zero_shot.clicks) for t, m in pairs]
    )


class _Generalized:
    """The parts of a trial's generalized scores that do not depend on the calibration."""

    def __init__(self, trial: Trial, made: Floats):
        q = torch.from_numpy(trial.generalized.queries)
        order = np.concatenate([np.flatnonzero(~trial.novel), np.flatnonzero(trial.novel)])
        self.clicks = csr_array(trial.generalized.clicks[:, order])  # observed first, as in `scores`
        self.clicks.sort_indices()
        self.base = q @ torch.from_numpy(trial.seen).T
        self.evidence = q @ torch.from_numpy(trial.classifiers.weights).T
        self.meta = q @ torch.from_numpy(made).T
        self.scores = torch.empty(len(q), len(trial.novel))
        self.n = torch.from_numpy(trial.classifiers.clicks.astype(np.float32))

    def quality(self, calibration: Calibration) -> Quality:
        trust = calibration.own * self.n / (self.n + calibration.prior_clicks)
        observed = self.base.shape[1]
        torch.addcmul(self.base, self.evidence, trust.expand_as(self.base), out=self.scores[:, :observed])
        torch.mul(self.meta, calibration.novel_scale, out=self.scores[:, observed:])
        return quality(self.scores, self.clicks)


def choose_calibration(trials: Sequence[Trial], made: Sequence[Floats]) -> tuple[Calibration, Quality]:
    """The calibration under which observed and pseudo-novel items rank best together, in the mean over the
    trials, and how well they do.

    Args:
        trials: The folds.
        made: Per trial, (pseudo-novel, dim) meta-classifiers, not scaled.
    """
    parts = [_Generalized(trial, vectors) for trial, vectors in zip(trials, made, strict=True)]

    def judge(calibration: Calibration) -> Quality:
        return mean_quality([part.quality(calibration) for part in parts])

    best = Calibration()
    found = judge(best)
    for grid in (
        [{"own": own, "prior_clicks": prior} for own, prior in product(OWN, PRIOR_CLICKS)],
        [{"novel_scale": scale} for scale in NOVEL_SCALES],
        [{"own": own} for own in OWN],
    ):
        for change in grid:
            candidate = best.model_copy(update=change)
            judged = judge(candidate)
            if judged.mean > found.mean:
                best, found = candidate, judged
    return best, found


def choose_recall(trials: Sequence[Trial], made: Sequence[Floats], calibration: Calibration) -> Recall | None:
    """The weakest use of the memory that ranks as well as the best, zero-shot and generalized together, in the mean
    over the trials; None where no use of it is better than none by more than `SLACK`.

    A use that costs the pseudo-novel items more than `SLACK` of P@1 or R@10 among themselves is not looked at: what
    observed items gain, novel ones do not pay for.

    Args:
        trials: The folds, with a memory each.
        made: Per trial, (pseudo-novel, dim) meta-classifiers, not scaled.
        calibration: Chosen without the memory.
    """
    found: dict[Recall, list[tuple[Quality, Quality]]] = {}
    for trial, own in zip(trials, made, strict=True):
        if trial.memory is None:
            return None
        for use, zero_shot, generalized in _recall_qualities(trial, trial.memory, own, calibration):
            found.setdefault(use, []).append((zero_shot, generalized))
    among_novel = {use: mean_quality([one for one, _ in folds]) for use, folds in found.items()}
    both = {use: mean_quality([one for pair in folds for one in pair]).mean for use, folds in found.items()}
    without = among_novel[next(use for use in found if not use.strength)]
    fair = [use for use, ranked in among_novel.items() if ranked.costs_little(without)]
    enough = max(both[use] for use in fair) - SLACK
    chosen = min((use for use in fair if both[use] >= enough), key=lambda r: r.strength)
    return chosen if chosen.strength else None


def _recall_qualities(
    trial: Trial, memory: QueryMemory, made: Floats, calibration: Calibration
) -> Iterator[tuple[Recall, Quality, Quality]]:
    """Uses of the memory, the first of strength 0, and how well the judges rank with each: zero-shot, generalized."""
    observed = trial.seen + calibration.own * trial.classifiers.trusted(calibration.prior_clicks)
    everything = np.concatenate([observed, calibration.novel_scale * made])
    order = np.concatenate([np.flatnonzero(~trial.novel), np.flatnonzero(trial.novel)])
    among_novel = _Moved(trial.zero_shot, made, memory)
    among_all = _Moved(
        replace(trial.generalized, clicks=trial.generalized.clicks[:, order]), everything, memory
    )
    for k, temperature in NEAR_QUERIES:
        for side in (among_novel, among_all):
            side.towards(k, temperature)
        for strength in (0.0, *RECALL_STRENGTHS):
            use = Recall(neighbours=k, temperature=temperature, strength=strength)
            yield use, among_novel.quality(strength), among_all.quality(strength)


class _Moved:
    """Scores of judges who borrow: linear in the strength, so the items are multiplied once per neighbourhood."""

    def __init__(self, judges: Judges, items: Floats, memory: QueryMemory):
        self.clicks = csr_array(judges.clicks)
        self.clicks.sort_indices()
        self.items, self.memory = torch.from_numpy(items).T, memory
        self.near = memory.near(judges.queries, max(k for k, _ in NEAR_QUERIES))
        self.plain = torch.from_numpy(judges.queries) @ self.items

    def towards(self, k: int, temperature: float) -> None:
        rows, scores = self.near
        moved = self.memory.towards(rows[:, :k], scores[:, :k], temperature)
        self.move = torch.from_numpy(moved) @ self.items

    def quality(self, strength: float) -> Quality:
        return quality(self.plain + strength * self.move, self.clicks)
