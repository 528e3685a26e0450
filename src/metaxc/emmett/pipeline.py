"""From embeddings to the vectors of items: select neighbours, generate, weigh the parts; and the share of each part.

The same function serves `Emmett.represent`, explanations, previews, the life cycle of a live item and the measurement
of latency.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import Classifiers, FewShotFitter, RevealedQueries
from metaxc.emmett.hits import html_table, shorten
from metaxc.emmett.neighbour_pool import NeighbourPool, Selection
from metaxc.emmett.scoring import Calibration, item_vectors, scale_by_trust, weigh_parts
from metaxc.generators import TorchGenerator

BLOCK = 1_024
"""Items represented at once: 1,024 × 20 neighbours × 384 float32 are 30 MB."""


@dataclass(frozen=True)
class MetaClassifiers:
    """Meta-classifiers of n items, and what they were made of.

    Args:
        embeddings: (n, dim) the items' embeddings.
        selection: The neighbours that inform them.
        excluded: Neighbours of the first item that were selected and then left out.
        neighbours: (n, K, dim) the vectors of the selected neighbours.
        generated: (n, dim) what the generator made of them.
        classifiers: The items' own classifiers; None where no item has a click.
        vectors: (n, dim + 1) the finished vectors, as `search` ranks them.
    """

    embeddings: Floats
    selection: Selection
    excluded: list[Neighbour]
    neighbours: Floats
    generated: Floats
    classifiers: Classifiers | None
    vectors: Floats


@dataclass(frozen=True)
class MetaClassifierPipeline:
    """Makes meta-classifiers.

    Args:
        pool: What can inform an item.
        generator: Selected vectors to meta-classifier.
        calibration: How observed and novel items rank together.
        neighbours: K, how many neighbours inform an item.
        neighbour_prior: Clicks at which a neighbour's classifier has half its weight.
        few_shot: Fits classifiers to first clicks.
        selects_itself: Whether an item that is in the pool may be its own neighbour, as the paper's selector has it.
    """

    pool: NeighbourPool
    generator: TorchGenerator
    calibration: Calibration
    neighbours: int
    neighbour_prior: float
    few_shot: FewShotFitter
    selects_itself: bool = False

    def run(
        self,
        embeddings: Floats,
        *,
        texts: Sequence[str] | None = None,
        revealed: RevealedQueries | None = None,
        classifiers: Classifiers | None = None,
        itself: Rows | None = None,
        votes: bool = True,
        evidence: bool = True,
        exclude: Collection[str] = (),
        seconds: dict[str, float] | None = None,
    ) -> MetaClassifiers:
        """Make the vectors of n items.

        Args:
            embeddings: (n, dim) the items' embeddings.
            texts: (n,) their texts, for selectors that read them.
            revealed: Their first clicked queries.
            classifiers: Their own classifiers, where these are known; otherwise fitted to the revealed queries.
            itself: (n,) the row of the pool that each item is itself, −1 for none: no item informs itself, unless
                `selects_itself`.
            votes: Whether revealed queries vote for the neighbours.
            evidence: Whether revealed queries count as a small classifier of the item's own.
            exclude: Ids of neighbours to leave out after selection.
            seconds: Filled with the wall-clock time of the stages `select` and `generate`.
        """
        seconds = {} if seconds is None else seconds
        with timed(seconds, "select"):
            selection = self.pool.select(
                embeddings,
                self.neighbours,
                texts,
                revealed if votes else None,
                None if self.selects_itself else itself,
            )
            selection, excluded = self._exclude(selection, exclude)
        with timed(seconds, "generate"):
            neighbours = self.pool.vectors_at(selection.rows)
            generated = self.generator.generate(embeddings, neighbours, selection.scores)
            if classifiers is None and revealed is not None and evidence:
                classifiers = self.few_shot.fit(revealed)
            vectors = item_vectors(embeddings, generated, classifiers, self.calibration)
        return MetaClassifiers(embeddings, selection, excluded, neighbours, generated, classifiers, vectors)

    def vectors(
        self,
        embeddings: Floats,
        *,
        texts: Sequence[str] | None = None,
        revealed: RevealedQueries | None = None,
        classifiers: Classifiers | None = None,
        itself: Rows | None = None,
        votes: bool = True,
        evidence: bool = True,
    ) -> Floats:
        """(n, dim + 1) float32: the vectors alone, of any number of items; the arguments are those of `run`."""
        vectors = np.empty((len(embeddings), embeddings.shape[1] + 1), np.float32)
        for start in range(0, len(embeddings), BLOCK):
            stop = min(start + BLOCK, len(embeddings))
            made = self.run(
                np.asarray(embeddings[start:stop]),
                texts=None if texts is None else texts[start:stop],
                revealed=None if revealed is None else revealed.of_items(start, stop),
                classifiers=None if classifiers is None else classifiers.take(np.arange(start, stop)),
                itself=None if itself is None else itself[start:stop],
                votes=votes,
                evidence=evidence,
            )
            vectors[start:stop] = made.vectors
        return vectors

    def explain(self, made: MetaClassifiers, text: str, query_names: Sequence[str] = ()) -> Explanation:
        """Where the first of these vectors comes from.

        Args:
            made: As `run` returned it.
            text: The item's text.
            query_names: What to call the revealed queries.
        """
        own = made.classifiers
        if own is None:
            parts = weigh_parts(np.zeros(1, np.int64), self.calibration)
        else:
            first = own.take([0])
            parts = weigh_parts(first.clicks, self.calibration, first.learnt_clicks, first.ages)
        weights = parts.generated[0] * self.generator.weights(
            made.embeddings[:1], made.neighbours[:1], made.selection.scores[:1]
        )
        weights[0, 0] += parts.text[0]
        return decompose(
            text,
            made.vectors[0, :-1],
            weights[0, :, None] * np.concatenate([made.embeddings[:1], made.neighbours[0]]),
            weights[0, 1:],
            [self.pool.name(int(row)) if row >= 0 else None for row in made.selection.rows[0]],
            made.selection.scores[0],
            [query_names[voter] if voter >= 0 else None for voter in made.selection.voters[0]],
            None if own is None else parts.own[0] * own.weights[0],
        )

    def with_observed_items(
        self, ids: Sequence[str], texts: Sequence[str], embeddings: Floats, classifiers: Classifiers
    ) -> MetaClassifierPipeline:
        """A pipeline in which these items inform others too; one with the id of an item that is there replaces it.

        Args:
            ids: (n,) ids of the items.
            texts: (n,) their texts.
            embeddings: (n, dim) their embeddings.
            classifiers: Their classifiers.
        """
        vectors = scale_by_trust(classifiers, self.neighbour_prior)
        return replace(self, pool=self.pool.with_items(ids, texts, embeddings, vectors))

    def _exclude(self, selection: Selection, ids: Collection[str]) -> tuple[Selection, list[Neighbour]]:
        if not ids:
            return selection, []
        excluded, rows = [], []
        for row, score in zip(selection.rows[0].tolist(), selection.scores[0].tolist(), strict=True):
            name, text = self.pool.name(row) if row >= 0 else ("", "")
            if row >= 0 and name in ids:
                rows.append(row)
                excluded.append(Neighbour(name, text, score, 0.0, 0.0))
        return selection.without(rows), excluded


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Record the wall-clock time of a block, in seconds, under the name of a stage."""
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started


@dataclass(frozen=True)
class Neighbour:
    """Something that informs an item: an observed item by its classifier, or a cluster by its vector.

    `weight` is what the generator multiplies its vector with; `share` is its part of the meta-classifier in percent:
    the weighted vector projected on the whole. `voter` is the revealed query that brought it, None where the item's
    own text did.
    """

    id: str
    text: str
    similarity: float
    weight: float
    share: float
    voter: str | None = None


@dataclass(frozen=True, repr=False)
class Explanation:
    """Where the vector of an item comes from; the shares add up to 100 percent. `revealed_share` is that of the item's
    own clicks, `learnt_share` what a trained generator adds to the sum of its inputs."""

    text: str
    neighbours: list[Neighbour]
    text_share: float
    neighbour_share: float
    learnt_share: float
    revealed_share: float = 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Percent of the vector by part; parts that add nothing are left out, the text and the neighbours never."""
        shares = {
            "its own text": self.text_share,
            "neighbours' classifiers": self.neighbour_share,
            "learnt": self.learnt_share,
            "its own clicks": self.revealed_share,
        }
        kept = ("its own text", "neighbours' classifiers")
        return {name: share for name, share in shares.items() if name in kept or abs(share) >= 0.05}

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.1f} %" for name, share in self.shares.items())
        lines = [
            f"  {neighbour.share:5.1f} %  {neighbour.id}: {shorten(neighbour.text)}"
            for neighbour in self.neighbours
        ]
        return "\n".join([f"Explanation({shorten(self.text)!r}: {shares})", *lines])

    def _repr_html_(self) -> str:
        shares = ", ".join(f"{name} {share:.1f} %" for name, share in self.shares.items())
        rows = [
            [f"{one.similarity:.3f}", f"{one.weight:.3f}", f"{one.share:.1f} %", one.id, one.text]
            for one in self.neighbours
        ]
        columns = ["similarity", "weight", "share", "id", "neighbour"]
        return html_table(f"{self.text}: {shares}", columns, rows)


def decompose(
    text: str,
    vector: Floats,
    parts: Floats,
    weights: Floats,
    names: Sequence[tuple[str, str] | None],
    similarities: Floats,
    voters: Sequence[str | None],
    own: Floats | None,
) -> Explanation:
    """Split the vector of an item into the shares of its parts.

    Args:
        text: The item's text.
        vector: (dim,) the vector, without its last coordinate.
        parts: (K + 1, dim) the weighted embedding of its text, then the weighted vector of each neighbour.
        weights: (K,) the weights of the neighbours.
        names: (K,) id and text of each neighbour; None where there is no neighbour.
        similarities: (K,) similarity of each neighbour.
        voters: (K,) the revealed query that brought each neighbour; None for the item's own text.
        own: (dim,) what the item's own clicks add; None where there are none.
    """
    if own is not None:
        parts = np.concatenate([parts, own[None]])
    shares = (100 * (parts @ vector) / max(float(vector @ vector), 1e-12)).tolist()
    revealed_share = shares.pop() if own is not None else 0.0
    found = zip(names, similarities.tolist(), weights.tolist(), shares[1:], voters, strict=True)
    neighbours = [
        Neighbour(*name, similarity, weight, share, voter)
        for name, similarity, weight, share, voter in found
        if name is not None
    ]
    return Explanation(
        text,
        neighbours,
        text_share=shares[0],
        neighbour_share=sum(shares[1:]),
        learnt_share=100 - sum(shares) - revealed_share,
        revealed_share=revealed_share,
    )
