"""The life cycle of an item: what its vector is computed from, and the label of its state.

One path computes the vector of every item (`metaxc.emmett.scoring` has the formula): from its text, from the neighbours
that its text and its clicked queries vote for, and from its own classifier, more of it with each click. The state is a
label: *novel* without clicks, *clicked* with the first ones, *observed* with `observe_after` of them or where the model
was trained on clicks of the item. From then on the item informs others, never itself; its own vector does not jump.

Nothing is trained here: an item's own classifier is the ridge classifier of its queries in the space in which the model
was trained, so no other item changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.catalog.item_clicks import ItemClicks
from metaxc.catalog.records import ItemRow, State
from metaxc.classifiers import Classifiers, RevealedQueries
from metaxc.emmett import Emmett, Explanation
from metaxc.emmett.pipeline import MetaClassifierPipeline


@dataclass(frozen=True)
class Stage:
    """An item's state and vector.

    Args:
        state: The item's state.
        vector: (dim + 1,) float32 vector that is searched; the last entry is the novelty.
        classifier: (dim,) float32 classifier by which it informs others; None where it does not, or where the model
            has it.
    """

    state: State
    vector: Floats
    classifier: Floats | None = None

    def apply_to(self, row: ItemRow, sequence: int) -> ItemRow:
        """The row with this state and vector, as the transaction `sequence` writes it."""
        changed = replace(row, state=self.state, vector=self.vector, classifier=self.classifier)
        since = None if self.classifier is None else (row.since or sequence)
        return replace(changed, since=since, sequence=sequence)


class Lifecycle:
    """Computes states and vectors from a model and the items that have become observed since its training.

    Args:
        model: The model as it was trained.
        observe_after: Number of clicks after which an item is observed.
    """

    def __init__(self, model: Emmett, observe_after: int):
        self.model, self.observe_after = model, observe_after
        self.pipeline = model.pipeline
        self._trained_row = {model.items.ids[row]: place for place, row in enumerate(model.observed.tolist())}

    @property
    def can_grow(self) -> bool:
        """Whether items that become observed can inform others."""
        return self.model.pipeline.pool.trained.can_grow

    @property
    def observed_count(self) -> int:
        """Number of observed items that inform others."""
        return len(self.pipeline.pool)

    def use_observed(self, rows: Sequence[ItemRow], *, extend: bool = False) -> None:
        """Let items that have become observed inform others; computations under way are not disturbed.

        Args:
            rows: Items with classifiers of their own; others are ignored.
            extend: Adds them to those of earlier calls instead of replacing them.
        """
        pipeline = self.pipeline if extend else self.model.pipeline
        observed = [(row, row.classifier) for row in rows if row.classifier is not None]
        if observed and self.can_grow:
            pipeline = pipeline.with_observed_items(
                [row.id for row, _ in observed],
                [row.text for row, _ in observed],
                np.stack([row.embedding for row, _ in observed]),
                Classifiers(
                    np.stack([classifier for _, classifier in observed]),
                    np.array([row.clicks for row, _ in observed]),
                ),
            )
        self.pipeline = pipeline

    def state(self, trained: bool, clicks: int) -> State:
        """The state of an item with this many clicks; `trained` where the model was trained on clicks of it."""
        if trained or clicks >= self.observe_after:
            return "observed"
        return "clicked" if clicks else "novel"

    def stages(self, rows: Sequence[ItemRow], clicks: Sequence[ItemClicks]) -> list[Stage]:
        """The state and vector of each item.

        Args:
            rows: (n,) items; their ids, texts, embeddings and whether they were trained count here.
            clicks: (n,) their clicks.
        """
        pipeline = self.pipeline  # another thread may replace it meanwhile
        inputs = self._inputs(pipeline, rows, clicks)
        vectors = pipeline.vectors(
            np.stack([row.embedding for row in rows]),
            texts=[row.text for row in rows],
            revealed=inputs.revealed,
            classifiers=inputs.classifiers,
            itself=inputs.itself,
        )
        stages = []
        for place, (row, clicked) in enumerate(zip(rows, clicks, strict=True)):
            state = self.state(row.trained, clicked.count)
            informs = state == "observed" and not row.trained
            classifier = inputs.classifiers.weights[place] if informs else None
            stages.append(Stage(state, vectors[place], classifier))
        return stages

    def explain(self, row: ItemRow, clicks: ItemClicks, names: Sequence[str]) -> tuple[Explanation, Floats]:
        """What an item's vector would be computed from now, and that vector.

        Args:
            row: The item.
            clicks: Its clicks.
            names: (voters,) the texts of the queries that vote.
        """
        pipeline = self.pipeline
        inputs = self._inputs(pipeline, [row], [clicks])
        computed = pipeline.run(
            row.embedding[None],
            texts=[row.text],
            revealed=inputs.revealed,
            classifiers=inputs.classifiers,
            itself=inputs.itself,
        )
        return pipeline.explain(computed, row.text, names), computed.vectors[0]

    def _inputs(
        self, pipeline: MetaClassifierPipeline, rows: Sequence[ItemRow], clicks: Sequence[ItemClicks]
    ) -> _ItemInputs:
        """What the pipeline needs to know of items beside their texts.

        An item that the model was trained on keeps its trained classifier and the number of clicks behind it, whatever
        its text and its newer clicks are; these do not vote either. They do make it fresh again.
        """
        dim = self.model.encoder.dim
        own = [ItemClicks.none(dim) if row.trained else one for row, one in zip(rows, clicks, strict=True)]
        revealed = RevealedQueries.embed([one.voters for one in own], len(rows), self.model.embed_queries)
        weights, counts = np.zeros((len(rows), dim), np.float32), np.zeros(len(rows))
        learnt, ages = np.zeros(len(rows)), np.zeros(len(rows), np.float32)
        if revealed is not None:
            totals = revealed.totals().astype(np.float64)
            for place, one in enumerate(own):
                if one.total is not None:
                    totals[place] = one.total
            fitted = pipeline.few_shot.fit_totals(totals, np.array([one.count for one in own]))
            weights, counts = fitted.weights, fitted.clicks.astype(np.float64)
        trained = [place for place, row in enumerate(rows) if row.trained]
        if trained:
            known = self.model.classifiers.take([self._trained_row[rows[place].id] for place in trained])
            weights[trained], counts[trained], learnt[trained] = known.weights, known.clicks, known.clicks
            if known.ages is not None:
                ages[trained] = np.where([clicks[place].count > 0 for place in trained], 0, known.ages)
        itself = np.array([pipeline.pool.row_of(row.id) for row in rows], dtype=np.int64)
        return _ItemInputs(revealed, Classifiers(weights, counts, learnt_clicks=learnt, ages=ages), itself)


@dataclass(frozen=True)
class _ItemInputs:
    """What the pipeline needs to know of n items beside their texts.

    Args:
        revealed: The queries that vote for their neighbours; None where there are none.
        classifiers: Their own classifiers with their click counts, which may be sums of weights.
        itself: (n,) the row of the neighbour pool that each item is itself, −1 for none.
    """

    revealed: RevealedQueries | None
    classifiers: Classifiers
    itself: Rows
