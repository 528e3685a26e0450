"""Settings compared on shortlists: the items that any setting could rank among the first ten.

The score of an item is linear in its parts (`metaxc.emmett.scoring`), so the parts are scored once. Of all items only
those are kept that rank near the top under one of several settings that lie far apart; a setting is then compared in
milliseconds, however large the catalogue is.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask, Rows
from metaxc.classifiers import Classifiers
from metaxc.emmett.scoring import (
    ITEM_BLOCK,
    Calibration,
    PartWeights,
    item_scores,
    item_vectors,
    weigh_parts,
)
from metaxc.index.topk import best_rows
from metaxc.metrics import hits
from metaxc.tuning.qualities import DEPTH, MixedQuality, Relevance

EVERY = slice(None)
"""All rows."""

DEPTH_OF_PROBE = 40
"""Items that each probe adds to a query's shortlist."""

BLOCK_SCORES = 20_000_000
"""Scores of queries × items computed at once; a handful of such arrays (80 MB each) are in memory. A tenth of it stays
in the processor's cache and takes half the time, but malloc keeps what it frees of arrays of that size: the peak of
30,000 items was 2.0 instead of 1.5 GB."""

LEAST_AGE = 1e-3
"""Days; below this, ages say nothing."""

LEAST_QUERIES = 20
"""Queries whose scores are computed at once at least: for fewer, reading a million items costs more than scoring
them."""


def queries_at_once(items: int) -> int:
    """The number of queries whose scores with so many items are computed at once."""
    return max(LEAST_QUERIES, BLOCK_SCORES // max(items, 1))


@dataclass(frozen=True)
class Setting:
    """What is chosen together: how the parts of a vector are weighted, and how strongly neighbours count.

    Args:
        calibration: The constants of the vector.
        strength: Multiplies what the generator adds to the embedding of an item's text.
    """

    calibration: Calibration
    strength: float


ENCODER_ALONE = Setting(Calibration(own=0.0, novelty_prior=0.0), 0.0)
"""Items by their texts alone: what the encoder does by itself."""

PROBES = (
    ENCODER_ALONE,
    *(
        Setting(Calibration(own=own, prior_clicks=prior, novelty_prior=3.0), 1.0)
        for own, prior in ((0.0, 1.0), (1.5, 3.0), (3.0, 30.0), (10.0, 30.0), (10.0, 300.0))
    ),
    *(
        Setting(Calibration(own=own, prior_clicks=30.0, novelty_prior=novelty, exposure=1.0), strength)
        for own, novelty, strength in ((1.5, 0.3, 0.0), (1.5, 3.0, 1.0), (1.5, 30.0, 5.0))
    ),
    Setting(Calibration(novelty_prior=3.0, exposure=1.0, exposure_bonus=(1.0, 1.0, 0.5, 0.0, 0.0)), 1.0),
)
"""Settings that lie far apart: little and much of an item's own classifier, and novel items, or those with a few
clicks, above all others."""


@dataclass(frozen=True)
class FoldItems:
    """The items of a fold by the parts of their vectors, those that remain observed first.

    Args:
        embeddings: (items, dim) embeddings of their texts.
        direction: (items, dim) what the generator adds to them at strength 1.
        classifiers: Their own classifiers; zeros and no clicks where an item plays novel.
    """

    embeddings: Floats
    direction: Floats
    classifiers: Classifiers

    def generated(self, strength: float, rows: slice = EVERY) -> Floats:
        """(items, dim): what the generator makes of the items, or some of them, at this strength."""
        return self.embeddings[rows] + strength * self.direction[rows]

    def vectors(self, setting: Setting) -> Floats:
        """(items, dim + 1): the items as they are served under a setting."""
        count, dim = self.embeddings.shape
        vectors = np.empty((count, dim + 1), np.float32)
        for start in range(0, count, ITEM_BLOCK):
            rows = slice(start, start + ITEM_BLOCK)
            own = self.classifiers.take(rows)
            generated = self.generated(setting.strength, rows)
            vectors[rows] = item_vectors(self.embeddings[rows], generated, own, setting.calibration)
        return vectors


class Shortlist:
    """The items that could rank first for each of a fold's validation queries, and the scores of their parts.

    Args:
        queries: (queries, dim) the validation queries, expanded where queries are.
        items: The fold's items.
        relevance: What the queries clicked.
        probes: The settings whose best items are kept.
        excluded: (queries, items) pairs that are on no shortlist; None for none.
        response: (queries,) what the exposure is multiplied with for each query; None for 1.
    """

    def __init__(
        self,
        queries: Floats,
        items: FoldItems,
        relevance: Relevance,
        probes: Sequence[Setting] = PROBES,
        excluded: csr_array | None = None,
        response: Floats | None = None,
    ):
        self.relevance = relevance
        self.response = _as_column(response, len(queries))
        clicks = items.classifiers.clicks.astype(np.float32)
        ages = items.classifiers.ages
        if ages is not None:
            probes = (*probes, *_fresh_probes(ages))
        parts = [
            torch.from_numpy(part) for part in (items.embeddings, items.direction, items.classifiers.weights)
        ]
        size = queries_at_once(len(clicks))
        blocks = []
        for start in range(0, len(queries), size):
            block = torch.from_numpy(queries[start : start + size])
            scores = [(block @ part.T).numpy() for part in parts]
            responses = self.response[start : start + size]
            found = [
                best_rows(
                    torch.from_numpy(
                        _score(scores, weigh_parts(clicks, probe.calibration, ages=ages), probe, responses)
                    ),
                    DEPTH_OF_PROBE,
                )[1].numpy()
                for probe in probes
            ]
            blocks.append(_gather(_unique_rows(np.concatenate(found, axis=1)), scores))
        width = max(rows.shape[1] for rows, _ in blocks)
        padded = [
            np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1) for rows, _ in blocks
        ]
        self.rows: Rows = np.concatenate(padded)
        if excluded is not None:
            self.rows = np.where(hits(self.rows, excluded), -1, self.rows)
        # Weights depend on clicks and ages alone: they are computed once for each number of clicks or, where there are
        # ages, once for each item.
        if ages is None:
            self.levels, level = np.unique(clicks, return_inverse=True)
            self.level: Rows = level[np.maximum(self.rows, 0)]
        else:
            listed = np.unique(np.maximum(self.rows, 0))
            self.levels, ages = clicks[listed], ages[listed]
            self.level = np.searchsorted(listed, np.maximum(self.rows, 0))
        self.ages = ages
        self.scores = [
            np.concatenate([_widen(scores[part], width) for _, scores in blocks])
            for part in range(len(parts))
        ]

        self.absent = self.rows < 0
        self.novel = relevance.novel[np.maximum(self.rows, 0)] & ~self.absent
        self.relevant_query, self.relevant_place = np.nonzero(hits(self.rows, relevance.relevant))

    def with_constant_exposure(self) -> Shortlist:
        """The same shortlists with the same exposure for every query."""
        constant = copy(self)
        constant.response = _as_column(None, len(self.response))
        return constant

    def without_ages(self) -> Shortlist:
        """The same shortlists as if nobody knew when items were clicked."""
        ageless = copy(self)
        ageless.ages = None
        return ageless

    def quality(self, setting: Setting) -> MixedQuality:
        """How well the queries rank their shortlists under a setting. Only what is relevant is placed, not everything
        sorted: thousands of settings are compared."""
        weights = weigh_parts(self.levels, setting.calibration, ages=self.ages).at(self.level)
        scores = _score(self.scores, weights, setting, self.response)
        scores[self.absent] = -np.inf
        places = scores.shape[1]
        tenth = np.partition(scores, places - DEPTH, axis=1)[:, places - DEPTH] if places > DEPTH else None
        found = self._is_found(scores, tenth)
        query = self.relevant_query[found]
        shown = ~self.absent if tenth is None else (scores >= tenth[:, None]) & ~self.absent
        first = np.zeros(len(scores), dtype=bool)
        best = scores.argmax(axis=1)
        first[query[self.relevant_place[found] == best[query]]] = True
        return self.relevance.summarize(
            first,
            query,
            self.rows[query, self.relevant_place[found]],
            100 * float((self.novel & shown).sum() / max(shown.sum(), 1)),
        )

    def _is_found(self, scores: Floats, tenth: Floats | None) -> Mask:
        """Which relevant items are among the first ten of their query; ties go to the item that comes first."""
        own = scores[self.relevant_query, self.relevant_place]
        if tenth is None:
            return np.ones(len(own), dtype=bool)
        found = own > tenth[self.relevant_query]
        tied = np.flatnonzero(own == tenth[self.relevant_query])
        rows, place = scores[self.relevant_query[tied]], self.relevant_place[tied]
        before = np.arange(scores.shape[1]) < place[:, None]
        ahead = (rows > own[tied, None]) | ((rows == own[tied, None]) & before)
        found[tied] = ahead.sum(axis=1) < DEPTH
        return found


def _fresh_probes(ages: Floats) -> list[Setting]:
    """Settings that put fresh items above all others."""
    usual = max(float(np.median(ages)), LEAST_AGE)
    return [
        Setting(Calibration(own=own, exposure=0.3, freshness_days=factor * usual), 1.0)
        for own in (0.3, 1.5)
        for factor in (0.25, 2.0)
    ]


def _as_column(response: Floats | None, queries: int) -> Floats:
    """(queries, 1) what the exposure is multiplied with for each query."""
    return (np.ones(queries, np.float32) if response is None else response)[:, None]


def _score(
    scores: Sequence[NDArray[np.float32]], weights: PartWeights, setting: Setting, response: Floats
) -> NDArray[np.float32]:
    """The scores of items, from the (queries, n) scores of text, direction and own classifier, and the (queries, 1)
    responses to the queries."""
    text, direction, own = scores
    generated = text
    if setting.strength:
        generated = torch.add(
            torch.from_numpy(text), torch.from_numpy(direction), alpha=setting.strength
        ).numpy()
    return item_scores(text, generated, own, weights, np.float32(setting.calibration.exposure) * response)


def _unique_rows(found: Rows) -> Rows:
    """(queries, n): the distinct rows of each line in ascending order, then −1."""
    found = np.sort(found, axis=1)
    repeated = np.zeros(found.shape, dtype=bool)
    repeated[:, 1:] = found[:, 1:] == found[:, :-1]
    order = np.argsort(repeated, axis=1, kind="stable")
    distinct = np.take_along_axis(np.where(repeated, -1, found), order, axis=1)
    return distinct[:, : int((~repeated).sum(axis=1).max(initial=0))]


def _gather(rows: Rows, scores: Sequence[NDArray[np.float32]]) -> tuple[Rows, list[NDArray[np.float32]]]:
    return rows, [np.take_along_axis(part, np.maximum(rows, 0), axis=1) for part in scores]


def _widen(scores: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    return np.pad(scores, ((0, 0), (0, width - scores.shape[1])))
