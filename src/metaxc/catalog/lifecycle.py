"""The life cycle of an item: its state, and what its vector is computed from in that state.

    novel     the meta-classifier of its text and its neighbours' classifiers
    clicked   the same, with neighbours that its clicked queries vote for, plus a small classifier of these queries
    observed  its text and its own classifier, which from then on informs newer items

Nothing is trained here: an item's own classifier is the ridge classifier of its queries in the space in which the model
was trained, so no other item changes. `metaxc.emmett.scoring` has the formulas; this module decides which one applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.records import ItemRow, State
from metaxc.classifiers import Classifiers, RevealedQueries
from metaxc.emmett import Emmett, Explanation
from metaxc.emmett.scoring import observed_vectors


@dataclass(frozen=True)
class Stage:
    """An item's state, and the vector that follows from it.

    Args:
        state: The item's state.
        vector: (dim,) float32 vector that is searched.
        classifier: (dim,) float32 classifier of its own; None where the catalog has not fitted one.
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

    def stages(self, rows: Sequence[ItemRow], queries: Sequence[Floats]) -> list[Stage]:
        """The state and vector of each item.

        Args:
            rows: (n,) items; their texts, embeddings and whether they were trained count here.
            queries: (n,) arrays, each (clicks, dim), of the embeddings of the queries that clicked an item.
        """
        states = [self.state(row.trained, len(clicked)) for row, clicked in zip(rows, queries, strict=True)]
        others = [place for place, state in enumerate(states) if state != "observed"]
        vectors = iter(())
        if others:
            vectors = iter(
                self.pipeline.vectors(
                    np.stack([rows[place].embedding for place in others]),
                    texts=[rows[place].text for place in others],
                    revealed=self._reveal([queries[place] for place in others]),
                )
            )
        return [
            self._observed_stage(row, clicked) if state == "observed" else Stage(state, next(vectors))
            for row, clicked, state in zip(rows, queries, states, strict=True)
        ]

    def explain(self, row: ItemRow, queries: Floats, names: Sequence[str]) -> tuple[Explanation, Floats]:
        """What an item's vector would be computed from now, and that vector.

        Args:
            row: The item.
            queries: (clicks, dim) embeddings of the queries that clicked it.
            names: (clicks,) the texts of these queries.
        """
        if self.state(row.trained, len(queries)) == "observed":
            vector = self._observed_stage(row, queries).vector
            share = 100 * float(row.embedding @ vector) / max(float(vector @ vector), 1e-12)
            return Explanation(row.text, [], share, 0.0, 0.0, 100.0 - share), vector
        pipeline = self.pipeline
        computed = pipeline.run(row.embedding[None], texts=[row.text], revealed=self._reveal([queries]))
        return pipeline.explain(computed, row.text, names), computed.vectors[0]

    def _observed_stage(self, row: ItemRow, queries: Floats) -> Stage:
        if row.trained:  # its classifier stays as trained, whatever its text and its newer clicks are
            own, classifier = self.model.classifiers.take([self._trained_row[row.id]]), None
        else:
            revealed = self._reveal([queries])
            if revealed is None:
                raise ValueError("an observed item that was not trained must have clicks")
            own = self.pipeline.few_shot.fit(revealed)
            classifier = own.weights[0]
        vector = observed_vectors(row.embedding[None], own, self.model.calibration)[0]
        return Stage("observed", vector, classifier)

    def _reveal(self, queries: Sequence[Floats]) -> RevealedQueries | None:
        return RevealedQueries.embed(queries, len(queries), self.model.embed_queries)
