"""The framework: encoder, classifiers, selector and generator as one model.

A novel item's embedding selects K observed classifiers, from which the generator makes its meta-classifier. An observed
item has a classifier of its own, trained on its clicks. `metaxc.emmett.scoring` has one formula for both and for all
that is between them; its constants are chosen on pseudo-novel items (`metaxc.tuning`) so that items with many, few and
no clicks rank fairly together. The queries that clicked a new item first vote for its neighbours
(`metaxc.selectors.voting`) and count as a small classifier of its own.

The parts are exchangeable: `metaxc.research.baselines` has NGAME and DEXA, with other selectors and vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metaxc.arrays import Floats, Mask, Rows
from metaxc.artifacts import Arrays
from metaxc.classifiers import Classifiers, FewShotFitter, Revealed, RevealedQueries
from metaxc.data import Dataset, Texts
from metaxc.data.same_texts import own_text_pairs, rows_by_text
from metaxc.data.text_lists import as_texts
from metaxc.emmett.hits import Hits, html_table, list_hits, top_k_except
from metaxc.emmett.model_folder import read_model, write_model
from metaxc.emmett.model_identity import compute_fingerprint, describe_model, find_item
from metaxc.emmett.neighbour_pool import NeighbourPool, TrainedPool
from metaxc.emmett.pipeline import Explanation, MetaClassifierPipeline
from metaxc.emmett.query_expansion import QueryExpansion
from metaxc.emmett.scoring import (
    NEIGHBOUR_PRIOR,
    Calibration,
    ClassifierResponse,
    item_vectors,
    query_vectors,
    scale_by_trust,
)
from metaxc.emmett.training_record import TrainingRecord
from metaxc.encoders.encoder import EmbeddingCache, Encoder, embed_given
from metaxc.errors import DataError
from metaxc.generators import TorchGenerator
from metaxc.index.array_search import ArraySearch
from metaxc.selectors import ClusterSelector, NearestSelector, Selector

if TYPE_CHECKING:
    from metaxc.evaluation import Evaluation


class Emmett:
    """A trained meta-classification model.

    Args:
        encoder: Turns texts into embeddings.
        classifiers: Those of the observed items.
        embeddings: (observed, dim) embeddings of the observed items, in the classifiers' order.
        generator: Turns selected vectors into meta-classifiers.
        items: All items that a search can return.
        observed: (observed,) rows of the observed items among `items`, in the classifiers' order.
        neighbours: K, how many neighbours inform an item.
        neighbour_prior: Clicks at which a neighbour's classifier has half its weight.
        calibration: How observed and novel items rank together.
        vectors: (items, dim + 1) the items as they are ranked; computed when first needed if None.
        index: What the folder of a model kept of the index of these vectors; None if an index is still to be built.
        item_embeddings: (items, dim) embeddings to compute `vectors` from; None encodes the texts.
        about: How the model was trained, for people and reports. Where it has a true "exclude_self" (from
            `Dataset.exclude_self`), queries are items, and a search by an item's own text leaves that item out.
        selector: Selects what informs an item; the nearest observed items if None.
        neighbour_vectors: (m, dim) those at the selector's rows; if None the observed classifiers, scaled by trust.
        expansion: Expands queries by similar training queries; None for no expansion.
        trained_on: What the model has learnt from, so that nobody evaluates it on that; None if unknown.
        selects_itself: Whether an observed item's own classifier may be among those that inform it, as in the paper.

    Example:
        >>> model = Emmett.load("model")  # doctest: +SKIP
        >>> model.search(["marathon gear"], k=3), model.explain("running sandals").neighbours  # doctest: +SKIP
    """

    def __init__(
        self,
        encoder: Encoder,
        classifiers: Classifiers,
        embeddings: Floats,
        generator: TorchGenerator,
        items: Texts,
        observed: Rows,
        *,
        neighbours: int = 10,
        neighbour_prior: float = NEIGHBOUR_PRIOR,
        calibration: Calibration | None = None,
        vectors: Floats | None = None,
        index: Arrays | None = None,
        item_embeddings: Floats | None = None,
        about: dict[str, Any] | None = None,
        selector: Selector | None = None,
        neighbour_vectors: Floats | None = None,
        expansion: QueryExpansion | None = None,
        trained_on: TrainingRecord | None = None,
        selects_itself: bool = False,
    ):
        self.encoder = encoder
        self.classifiers = classifiers
        self.embeddings = embeddings
        self.selector: Selector = NearestSelector(embeddings) if selector is None else selector
        count = len(classifiers if neighbour_vectors is None else neighbour_vectors)
        if len(self.selector.embeddings) != count:
            raise DataError(
                "The selector and the neighbour vectors do not fit together",
                got=f"{self.selector!r} over {count:,} vectors",
                expected="a vector for each row that the selector can select",
                fix="give the neighbour vectors that belong to the selector",
            )
        self.custom_neighbour_vectors = neighbour_vectors
        self.expansion = expansion
        self.trained_on = trained_on
        self.selects_itself = selects_itself
        self.generator = generator
        self.items = items
        self.observed = observed
        self.neighbours = neighbours
        self.neighbour_prior = neighbour_prior
        self.calibration = calibration or Calibration()
        self.about = about or {}
        self.exclude_self = bool(self.about.get("exclude_self", False))
        self._search = None if vectors is None else ArraySearch(vectors, index)
        self._item_embeddings = item_embeddings

    def __repr__(self) -> str:
        facts = describe_model(self)
        return f"Emmett({facts['items']}; {facts['encoder']}, K={facts['K']}, {facts['generator']})"

    def _repr_html_(self) -> str:
        return html_table("metaxc model", [], list(describe_model(self).items()))

    @cached_property
    def novel(self) -> Mask:
        """(items,) bool, True where an item has no classifier of its own."""
        mask = np.ones(len(self.items), dtype=bool)
        mask[self.observed] = False
        return mask

    @cached_property
    def _rows_by_text(self) -> dict[str, list[int]]:
        return rows_by_text(self.items.texts)

    @cached_property
    def neighbour_vectors(self) -> Floats:
        """(m, dim) float32: the vectors that inform items, by default the observed classifiers scaled by trust."""
        if self.custom_neighbour_vectors is not None:
            return self.custom_neighbour_vectors
        return scale_by_trust(self.classifiers, self.neighbour_prior)

    @cached_property
    def _response(self) -> ClassifierResponse:
        return ClassifierResponse.of(self.classifiers, self.calibration.response_unit)

    @cached_property
    def pipeline(self) -> MetaClassifierPipeline:
        """What makes meta-classifiers."""
        by_cluster = isinstance(self.selector, ClusterSelector)
        named = len(self.neighbour_vectors) == len(self.classifiers) and not by_cluster
        can_grow = isinstance(self.selector, NearestSelector) and self.custom_neighbour_vectors is None
        observed = self.items.take(self.observed) if named else None
        return MetaClassifierPipeline(
            NeighbourPool(TrainedPool(self.selector, self.neighbour_vectors, observed, can_grow)),
            self.generator,
            self.calibration,
            self.neighbours,
            self.neighbour_prior,
            FewShotFitter(self.embeddings),
            self.selects_itself,
        )

    @property
    def vectors(self) -> Floats:
        """(items, dim + 1) float32, what `search` ranks; the last coordinate is the share of the exposure."""
        return self._vector_search.vectors

    @vectors.setter
    def vectors(self, vectors: Floats) -> None:
        self._search = ArraySearch(vectors)

    @property
    def _vector_search(self) -> ArraySearch:
        if self._search is None:
            embeddings = self._item_embeddings
            if embeddings is None:
                embeddings = self.encoder.encode_items(self.items.texts)
            vectors = np.empty((len(self.items), self.encoder.dim + 1), dtype=np.float32)
            vectors[self.observed] = self._observed_vectors()
            novel = self._embed(np.asarray(embeddings[self.novel]), self.encoder.encode_items, "item")
            texts = [self.items.texts[row] for row in np.flatnonzero(self.novel).tolist()]
            vectors[self.novel] = self.pipeline.vectors(novel, texts=texts)
            self._search, self._item_embeddings = ArraySearch(vectors), None
        return self._search

    def _observed_vectors(self) -> Floats:
        """(observed, dim + 1) float32: observed items by their texts, their neighbours and their own classifiers."""
        if not self.calibration.novelty_prior:  # then the first click ends the neighbours' part
            return item_vectors(self.embeddings, self.embeddings, self.classifiers, self.calibration)
        texts = [self.items.texts[row] for row in self.observed.tolist()]
        itself = np.arange(len(self.observed)) if self.pipeline.pool.trained.items is not None else None
        return self.pipeline.vectors(
            self.embeddings, texts=texts, classifiers=self.classifiers, itself=itself
        )

    def represent(
        self,
        items: Sequence[str] | Floats,
        revealed: Revealed | None = None,
        *,
        votes: bool = True,
        evidence: bool = True,
    ) -> Floats:
        """(n, dim + 1) float32: meta-classifiers of novel items, at once, without training; last, the exposure's share.

        Args:
            items: Texts, or (n, dim) item embeddings of this model's encoder.
            revealed: Per item its first clicked queries, as texts or as (n, dim) query embeddings; may be empty.
            votes: Whether revealed queries vote for the neighbours.
            evidence: Whether revealed queries count as a small classifier of the item's own.
        """
        items = as_texts(items, "item")
        embeddings = self._embed(items, self.encoder.encode_items, "item")
        return self.pipeline.vectors(
            embeddings,
            texts=None if isinstance(items, np.ndarray) else items,
            revealed=self._embed_revealed(revealed, len(embeddings)),
            votes=votes,
            evidence=evidence,
        )

    def encode_queries(self, queries: Sequence[str] | Floats, exposure: float | None = None) -> Floats:
        """(n, dim + 1) float32: queries as `search` scores them, expanded; the last is the exposure times the response.

        Args:
            queries: Texts, or (n, dim) query embeddings.
            exposure: For a query with the mean response; None for the value chosen in training.
        """
        found = self.embed_queries(queries)
        expanded = found if self.expansion is None else self.expansion.expand(found)
        exposure = self.calibration.exposure if exposure is None else exposure
        return query_vectors(expanded, exposure * self._response(expanded))

    def embed_queries(self, queries: Sequence[str] | Floats) -> Floats:
        """(n, dim) float32: queries without expansion, as the classifiers were fitted on them."""
        return self.classifiers.transform_queries(self._embed(queries, self.encoder.encode_queries, "query"))

    def search(
        self,
        queries: Sequence[str] | Floats,
        k: int = 10,
        among: Mask | None = None,
        *,
        exposure: float | None = None,
    ) -> list[Hits]:
        """The k best items for each query, best first; of 100,000 items or more an index finds nearly all of them.

        Args:
            queries: Texts, or (n, dim) query embeddings.
            k: How many.
            among: (items,) bool, the items that may be returned.
            exposure: Of items without clicks; None for the value chosen in training (`about["exposure_curve"]`).
        """
        rows, scores = self.search_rows(queries, k, among, exposure=exposure)
        return list_hits(rows, scores, self.items, self.novel)

    def search_rows(
        self,
        queries: Sequence[str] | Floats,
        k: int = 10,
        among: Mask | None = None,
        *,
        exposure: float | None = None,
    ) -> tuple[Rows, Floats]:
        """Like `search`, as rows of `items` (n, min(k, items)) and scores; −1 pads."""
        if k < 1:
            raise DataError("k must be positive", got=k, expected="1 or more")
        queries = as_texts(queries, "query")
        vectors = self.encode_queries(queries, exposure)
        hidden = None if among is None else ~among
        if not self.exclude_self or isinstance(queries, np.ndarray):
            return self._vector_search.search(vectors, min(k, len(self.items)), hidden)
        own = own_text_pairs(queries, self._rows_by_text, len(self.items))
        return top_k_except(self._vector_search, vectors, k, hidden, own)

    def explain(
        self,
        item: str | Floats | None = None,
        revealed: Sequence[str] | Floats | None = None,
        *,
        id: str | None = None,
    ) -> Explanation:
        """Where the vector of an item comes from: of a new item by its text, or of one of the model's items by its id.

        Args:
            item: The text of a new item, or one (dim,) item embedding.
            revealed: Its first clicked queries, as for one item of `represent`.
            id: The id of one of the model's items, in place of `item`. An observed item is explained with its own
                classifier, and is not its own neighbour.
        """
        if (item is None) == (id is None):
            raise DataError(
                "explain takes either a new item or the id of one that the model has",
                got="neither" if id is None else "both",
                expected="a text or an embedding, or id=",
            )
        place = None
        if id is not None:
            item, place = find_item(self, id)
        text = item if isinstance(item, str) else ""
        given = [item] if isinstance(item, str) else np.asarray(item, dtype=np.float32)[None]
        queries = self._embed_revealed(None if revealed is None else [revealed], 1)
        embedded = (
            self._embed(given, self.encoder.encode_items, "item") if place is None else self.embeddings[place]
        )
        made = self.pipeline.run(
            embedded,
            texts=[text] if isinstance(item, str) else None,
            revealed=queries,
            classifiers=None if place is None else self.classifiers.take(place),
            itself=place if self.pipeline.pool.trained.items is not None else None,
        )
        return self.pipeline.explain(made, text, [] if queries is None else queries.names)

    def evaluate(
        self,
        dataset: Dataset,
        *,
        exposure: float | None = None,
        allow_overlap: bool = False,
        intervals: bool = True,
    ) -> Evaluation:
        """Accuracy on the test part of a data set, zero-shot and generalized: `metaxc.evaluation.evaluate_model`.

        Args:
            dataset: A data set with a test log and novel items, such as the one that the model was trained on.
            exposure: What is added to the score of an item without clicks; None for the value chosen in training.
            allow_overlap: Also where the model was trained on the test part, which is otherwise an error.
            intervals: Whether to compute 95 % confidence intervals.
        """
        from metaxc.evaluation import evaluate_model

        return evaluate_model(
            self, dataset, exposure=exposure, allow_overlap=allow_overlap, intervals=intervals
        )

    def add(self, ids: Sequence[str], texts: Sequence[str], revealed: Revealed | None = None) -> None:
        """Add novel items, with their first clicked queries where known; the next search finds them."""
        ids, texts = list(as_texts(ids, "id")), list(as_texts(texts, "item"))
        known = [name for name in ids if name in self.items.row_of]
        if known:
            raise DataError("An item with this id already exists", got=repr(known[0]), fix="use a new id")
        self._vector_search.extend(self.represent(texts, revealed))
        self.items = self.items.extended(Texts(ids, texts))
        for outdated in ("novel", "_rows_by_text"):
            self.__dict__.pop(outdated, None)

    def _embed_revealed(self, revealed: Revealed | None, items: int) -> RevealedQueries | None:
        return None if revealed is None else RevealedQueries.embed(revealed, items, self.embed_queries)

    def _embed(
        self, given: Sequence[str] | Floats, encode: Callable[[Sequence[str]], Floats], what: str
    ) -> Floats:
        return embed_given(as_texts(given, what), encode, self.encoder.dim, what)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the model: the same fingerprint means the same meta-classifiers."""
        return compute_fingerprint(self)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model folder atomically, without a selector that calls a function: `load` needs that again.

        Args:
            folder: A new or empty folder.
            overwrite: Whether a model in that folder is replaced; anything else there never is.
        """
        write_model(Path(folder), self, overwrite)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        base: str | Path | None = None,
        cache: EmbeddingCache | None = None,
        selector: Selector | None = None,
    ) -> Emmett:
        """Read a model folder; every file is checked against its SHA-256 first.

        Args:
            folder: As `save` wrote it.
            base: The folder of the pretrained encoder, if it has moved since training.
            cache: Keeps the embeddings of long lists on disk.
            selector: Replaces the one in the folder; required where that one calls a function.
        """
        return cls(**read_model(Path(folder), base, cache, selector))
