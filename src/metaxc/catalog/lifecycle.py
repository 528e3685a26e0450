"""The life of an item: what its vector is made of while it is novel, clicked, observed.

    novel     u = novel_scale · G(z, neighbours' classifiers)
    clicked   the same, with neighbours that its queries vote for, and what they say themselves: own · t(w)
    observed  u = z + own · t(w), w its own classifier, and w informs items that come later

Nothing is trained: w is the ridge classifier of the item's own queries in the space that the model was trained in, so
that no other item changes. `metaxc.emmett` has the formulas; here is which of them counts when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.records import State
from metaxc.classifiers import Classifiers, RevealedQueries
from metaxc.emmett import Emmett, Explanation
from metaxc.emmett.scoring import observed_vectors


@dataclass(frozen=True)
class ItemInputs:
    """An item, as far as its vector depends on it.

    Args:
        id: Its id.
        text: Its text.
        embedding: (dim,) of its text.
        queries: (clicks, dim) encoder's embeddings of the queries that clicked it.
        trained: Whether the model's training had clicks of it.
    """

    id: str
    text: str
    embedding: Floats
    queries: Floats
    trained: bool


@dataclass(frozen=True)
class Stage:
    """Where an item stands.

    Args:
        state: Its state.
        vector: (dim,) float32, what is searched.
        classifier: (dim,) its own, where the catalog has fitted one.
    """

    state: State
    vector: Floats
    classifier: Floats | None = None


@dataclass(frozen=True)
class ObservedItem:
    """An item that the catalog has seen become observed."""

    id: str
    text: str
    embedding: Floats
    classifier: Floats
    clicks: int


class Lifecycle:
    """Leads items from novel to observed, on a model and the items that have become observed since.

    Args:
        model: As it was trained.
        observe_after: Clicks after which an item is observed.
    """

    def __init__(self, model: Emmett, observe_after: int):
        self.trained, self.observe_after = model, observe_after
        self.pipeline = model.pipeline
        self._row_of = {model.items.ids[row]: place for place, row in enumerate(model.observed.tolist())}

    @property
    def base(self) -> int:
        """How many observed items inform others."""
        return len(self.pipeline.pool)

    def inform(self, informers: Sequence[ObservedItem], anew: bool = True) -> None:
        """Let these inform items from now on; whoever searches meanwhile is not disturbed.

        Args:
            informers: Items that have become observed.
            anew: Whether they come in the place of those told before, or are more of them.
        """
        before = self.trained.pipeline if anew else self.pipeline
        if not informers or not before.pool.trained.can_grow:
            self.pipeline = before
            return
        classifiers = Classifiers(
            np.stack([one.classifier for one in informers]), np.array([one.clicks for one in informers])
        )
        embeddings = np.stack([one.embedding for one in informers])
        ids, texts = [one.id for one in informers], [one.text for one in informers]
        self.pipeline = before.with_observed_items(ids, texts, embeddings, classifiers)

    def state(self, trained: bool, clicks: int) -> State:
        """The state of an item with so many clicks."""
        if trained or clicks >= self.observe_after:
            return "observed"
        return "clicked" if clicks else "novel"

    def stages(self, subjects: Sequence[ItemInputs]) -> list[Stage]:
        """Where each item stands, with its vector."""
        states = [self.state(subject.trained, len(subject.queries)) for subject in subjects]
        made: dict[int, Stage] = {}
        young = [place for place, state in enumerate(states) if state != "observed"]
        if young:
            vectors = self._young([subjects[place] for place in young])
            made |= {
                place: Stage(states[place], vector) for place, vector in zip(young, vectors, strict=True)
            }
        for place, (subject, state) in enumerate(zip(subjects, states, strict=True)):
            if state == "observed":
                made[place] = self._observed(subject)
        return [made[place] for place in range(len(subjects))]

    def explain(self, subject: ItemInputs, names: Sequence[str]) -> tuple[Explanation, Floats]:
        """What an item's vector would be made of now, its queries called `names`, and that vector (dim,)."""
        embedding = subject.embedding[None]
        if self.state(subject.trained, len(subject.queries)) == "observed":
            vector = self._observed(subject).vector
            share = 100 * float(subject.embedding @ vector) / max(float(vector @ vector), 1e-12)
            return Explanation(subject.text, [], share, 0.0, 0.0, 100.0 - share), vector
        pipeline = self.pipeline
        made = pipeline.run(embedding, texts=[subject.text], revealed=self._revealed([subject]))
        return pipeline.explain(made, subject.text, names), made.vectors[0]

    def _young(self, subjects: Sequence[ItemInputs]) -> Floats:
        """(n, dim) vectors of novel and clicked items."""
        embeddings = np.stack([one.embedding for one in subjects])
        texts = [one.text for one in subjects]
        return self.pipeline.vectors(embeddings, texts=texts, revealed=self._revealed(subjects))

    def _revealed(self, subjects: Sequence[ItemInputs]) -> RevealedQueries | None:
        queries = [one.queries for one in subjects]
        return RevealedQueries.embed(queries, len(subjects), self.trained.embed_queries)

    def _observed(self, subject: ItemInputs) -> Stage:
        embedding = subject.embedding[None]
        if subject.trained:  # its classifier stays as trained, whatever its text and its newer clicks say
            own = self.trained.classifiers.take([self._row_of[subject.id]])
            return Stage("observed", observed_vectors(embedding, own, self.trained.calibration)[0])
        revealed = self._revealed([subject])
        if revealed is None:
            raise ValueError("an observed item has clicks")
        own = self.pipeline.few_shot.fit(revealed)
        vector = observed_vectors(embedding, own, self.trained.calibration)[0]
        return Stage("observed", vector, own.weights[0])
