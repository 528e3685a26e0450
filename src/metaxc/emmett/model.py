"""The framework: encoder + classifiers + selector + generator as one model.

A novel item's embedding selects K observed classifiers; the generator makes its meta-classifier from them.
An observed item has learnt from clicks of its own. Either way a classifier is trusted by the number of clicks
it was fitted on, t(w) = n / (n + prior) · w:

    novel:     u = novel_scale · G(z, t(w₁), …, t(w_K))
    observed:  u = z + own · t(w)

A query may borrow from its neighbours too, the training queries nearest to it (`metaxc.memory`).

The constants are chosen on pseudo-novel items (`metaxc.tuning`), so that both kinds rank fairly together. Between
the two stands an item with its first few clicks: the queries revealed for it vote for its neighbours
(`metaxc.selectors.voting`), and count as a small classifier of its own:

    few clicks: u = novel_scale · G(…) + own · t(w),  w a ridge classifier of the revealed queries

The parts are exchangeable. Other selectors and another bank of vectors make other methods of the same model:
`metaxc.research.baselines` has NGAME and DEXA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Doubles, Floats, Mask, Rows
from metaxc.artifacts import Arrays, json_digest
from metaxc.classifiers import Classifiers
from metaxc.data import Texts
from metaxc.emmett.calibration import Calibration
from metaxc.emmett.explanation import Explanation, Made, Selected, explained
from metaxc.emmett.growth import Base
from metaxc.emmett.model_folder import read_facts, read_parts, write_model
from metaxc.encoders import EmbeddingCache, Encoder, unit_rows
from metaxc.errors import DataError
from metaxc.generators import TorchGenerator, gather
from metaxc.index.topk import top_k
from metaxc.memory import QueryMemory
from metaxc.selectors import ClusterSelector, NearestSelector, Selector, Voters
from metaxc.selectors.revealed import FewClicks, Revealed, gram, inverted
from metaxc.selectors.voting import OWN_TEXT


@dataclass(frozen=True)
class Hit:
    """One answer of a search."""

    id: str
    text: str
    score: float
    novel: bool


class Emmett:
    """A trained meta-classification model.

    Args:
        encoder: Texts to embeddings.
        classifiers: Of the observed items.
        embeddings: (observed, dim) the observed items' embeddings, in the classifiers' order: what they are
            represented by beside their classifiers.
        generator: Selected vectors to meta-classifier.
        items: All items the model can answer with.
        observed: (observed,) rows of the observed items among `items`, in the classifiers' order.
        neighbours: K.
        calibration: How observed and novel items rank together.
        vectors: (items, dim) representations of `items`; made now when None.
        about: How it was trained, for people and reports.
        selector: What informs an item; the nearest observed items when None.
        bank: (m, dim) the vectors that the selector's rows point at; when None the observed classifiers, scaled
            by trust.
        memory: Training queries that a query borrows from; None for none.
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
        calibration: Calibration | None = None,
        vectors: Floats | None = None,
        about: dict[str, Any] | None = None,
        selector: Selector | None = None,
        bank: Floats | None = None,
        memory: QueryMemory | None = None,
    ):
        self.encoder = encoder
        self.classifiers = classifiers
        self.embeddings = embeddings
        self.selector: Selector = NearestSelector(embeddings) if selector is None else selector
        self.bank = bank
        self.memory = memory
        if len(self.selector.embeddings) != len(classifiers if bank is None else bank):
            raise DataError(
                "The selector and the bank do not fit together",
                got=f"{self.selector!r} over {len(classifiers if bank is None else bank):,} vectors",
                expected="a vector per row that the selector can select",
                fix="give the bank that belongs to the selector",
            )
        self.generator = generator
        self.items = items
        self.observed = observed
        self.neighbours = neighbours
        self.calibration = calibration or Calibration()
        self.about = about or {}
        self._vectors = vectors
        self._base: Base | None = None

    def __repr__(self) -> str:
        return (
            f"Emmett({self.encoder!r}, {self.classifiers!r}, K={self.neighbours}, {self.generator!r}, "
            f"{len(self.items):,} items, {len(self.items) - len(self.observed):,} of them novel)"
        )

    @cached_property
    def novel(self) -> Mask:
        """(items,) bool, True where an item has no classifier of its own."""
        mask = np.ones(len(self.items), dtype=bool)
        mask[self.observed] = False
        return mask

    @cached_property
    def informing(self) -> Floats:
        """(m, dim) float32: the bank, by default the observed classifiers scaled by trust."""
        if self.bank is not None:
            return self.bank
        return self.classifiers.trusted(self.calibration.neighbour_prior)

    @property
    def vectors(self) -> Floats:
        """(items, dim) float32, what `search` ranks: own for observed items, meta for novel ones."""
        if self._vectors is None:
            self._vectors = self.index(self.encoder.encode_items(self.items.texts))
        return self._vectors

    def index(self, embeddings: Floats) -> Floats:
        """(items, dim) float32: every item as `search` ranks it, from the items' embeddings."""
        made = np.empty((len(self.items), self.encoder.dim), dtype=np.float32)
        made[self.observed] = self.represent_observed()
        novel = self._embed(np.asarray(embeddings[self.novel]), self.encoder.encode_items, "item")
        texts = [self.items.texts[row] for row in np.flatnonzero(self.novel).tolist()]
        made[self.novel] = self.scaled(self._make(novel, texts))
        return made

    def take_vectors(self, vectors: Floats) -> None:
        """Use these vectors, made by `index` before."""
        self._vectors = vectors

    def represent(
        self,
        items: Sequence[str] | Floats,
        revealed: Revealed | None = None,
        *,
        votes: bool = True,
        evidence: bool = True,
    ) -> Floats:
        """(n, dim) float32: the meta-classifiers of novel items, at once, without training.

        Args:
            items: Texts, or (n, dim) item embeddings of this model's encoder.
            revealed: Per item its first clicked queries, as texts or as (n, dim) query embeddings; an item without
                any gets what it would get without `revealed`.
            votes: Whether revealed queries vote for the neighbours.
            evidence: Whether they count as a small classifier of the item's own.
        """
        embeddings = self._embed(items, self.encoder.encode_items, "item")
        texts = None if isinstance(items, np.ndarray) else items
        return self.scaled(
            self._make(embeddings, texts, self.few_clicks(revealed, len(embeddings)), votes, evidence)
        )

    def _make(
        self,
        embeddings: Floats,
        texts: Sequence[str] | None,
        few: FewClicks | None = None,
        votes: bool = True,
        evidence: bool = True,
    ) -> Made:
        chosen = self.select(embeddings, texts, few if votes else None)
        return self.make(embeddings, chosen, few if evidence else None)

    def select(
        self, embeddings: Floats, texts: Sequence[str] | None = None, few: FewClicks | None = None
    ) -> Selected:
        """What informs items of these embeddings; with their first clicks (`few_clicks`) after the votes."""
        rows, scores = self.selector.select(embeddings, self.neighbours, texts=texts)
        voters = np.full(rows.shape, OWN_TEXT, dtype=np.int64)
        if few is not None:
            rows, scores, voters = self.voters.elect(embeddings, rows, scores, few.queries, few.owner)
        return Selected(rows, scores, voters)

    def make(self, embeddings: Floats, chosen: Selected, few: FewClicks | None = None) -> Made:
        """Meta-classifiers from what was selected, and with what they are made of."""
        selected = gather(self.informing, chosen.rows)
        generated = self.generator.generate(embeddings, selected, chosen.scores)
        own = None
        if few is not None:  # counted as an observed item's own clicks are
            own = self.calibration.own * self.fitted(few).trusted(self.calibration.prior_clicks)
        return Made(chosen, selected, generated, own)

    def scaled(self, made: Made) -> Floats:
        """(n, dim) float32: what was made, as `search` ranks it."""
        scaled = self.calibration.novel_scale * made.generated
        return scaled if made.evidence is None else scaled + made.evidence

    @cached_property
    def voters(self) -> Voters:
        """How revealed queries vote: by their scores with the bank."""
        return Voters(self.selector.embeddings, self.informing)

    @cached_property
    def _inverse(self) -> Doubles:
        return inverted(gram(self.embeddings))

    def few_clicks(self, revealed: Revealed | None, items: int) -> FewClicks | None:
        """The first clicked queries of n items; None where there are none."""
        return None if revealed is None else FewClicks.of(revealed, items, self.embed_queries)

    def represent_observed(self) -> Floats:
        """(observed, dim) float32: the observed items by their own classifiers."""
        return self.with_own(self.embeddings, self.classifiers)

    def with_own(self, embeddings: Floats, classifiers: Classifiers) -> Floats:
        """(n, dim) float32: items by classifiers of their own."""
        return embeddings + self.calibration.own * classifiers.trusted(self.calibration.prior_clicks)

    def fitted(self, few: FewClicks) -> Classifiers:
        """Classifiers of items by their clicks, without a change to any other."""
        return few.classifiers(self._inverse)

    def encode_queries(self, queries: Sequence[str] | Floats) -> Floats:
        """(n, dim) float32: queries as `search` scores them, with what they borrow from the memory."""
        embedded = self.embed_queries(queries)
        return embedded if self.memory is None else self.memory.expand(embedded)

    def embed_queries(self, queries: Sequence[str] | Floats) -> Floats:
        """(n, dim) float32: queries by themselves, as the classifiers were fitted on them."""
        return self.classifiers.queries(self._embed(queries, self.encoder.encode_queries, "query"))

    def search(
        self, queries: Sequence[str] | Floats, k: int = 10, among: Mask | None = None
    ) -> list[list[Hit]]:
        """The k best items of each query, best first; fewer where there are fewer.

        Args:
            queries: Texts, or (n, dim) query embeddings.
            k: How many.
            among: (items,) bool, the items that may be answered.
        """
        rows, scores = self.search_rows(queries, k, among)
        return [
            [
                Hit(self.items.ids[row], self.items.texts[row], float(score), bool(self.novel[row]))
                for row, score in zip(line, line_scores, strict=True)
                if row >= 0
            ]
            for line, line_scores in zip(rows, scores, strict=True)
        ]

    def search_rows(
        self, queries: Sequence[str] | Floats, k: int = 10, among: Mask | None = None
    ) -> tuple[Rows, Floats]:
        """Like `search`, as rows of `items` (n, min(k, items)) and scores; −1 pads."""
        if k < 1:
            raise DataError("k must be positive", got=k, expected="1 or more")
        return top_k(self.encode_queries(queries), self.vectors, min(k, len(self.items)), among)

    def explain(self, item: str | Floats, revealed: Sequence[str] | Floats | None = None) -> Explanation:
        """Where the meta-classifier of an item comes from.

        Args:
            item: A text, or one (dim,) item embedding.
            revealed: Its first clicked queries, as for one item of `represent`.
        """
        given = [item] if isinstance(item, str) else np.asarray(item, dtype=np.float32)[None]
        embedding = self._embed(given, self.encoder.encode_items, "item")
        few = None if revealed is None else self.few_clicks([revealed], 1)
        made = self._make(embedding, [item] if isinstance(item, str) else None, few)
        names = [] if few is None else few.names
        return self.explained(item if isinstance(item, str) else "", embedding, made, names)

    def explained(self, text: str, embedding: Floats, made: Made, names: Sequence[str] = ()) -> Explanation:
        """Where one meta-classifier comes from.

        Args:
            text: The item's.
            embedding: (1, dim).
            made: By `make`.
            names: What to call its revealed queries.
        """
        weights = self.calibration.novel_scale * self.generator.weights(
            embedding, made.selected, made.chosen.scores
        )
        return explained(text, made, embedding[0], weights[0], self.scaled(made)[0], self.name_of, names)

    def name_of(self, row: int) -> tuple[str, str]:
        """Id and text of a row of the bank."""
        if isinstance(self.selector, ClusterSelector):
            return f"cluster {row}", ""
        if len(self.informing) != len(self.classifiers):
            return f"vector {row}", ""
        return self.items.ids[self.observed[row]], self.items.texts[self.observed[row]]

    def grown(
        self, ids: Sequence[str], texts: Sequence[str], embeddings: Floats, classifiers: Classifiers
    ) -> Emmett:
        """A model of the observed items with more of them to inform others. Those that it was trained with stay as
        they are; one of the same id as a new one gives way to it. Grow the last one grown: it shares its arrays with
        those before it.

        Args:
            ids: Of the new observed items.
            texts: Theirs.
            embeddings: (n, dim) theirs.
            classifiers: Theirs, by `fitted`.
        """
        if not self.can_grow:
            raise DataError(
                "A model with a selector of its own cannot take more observed items",
                got=repr(self.selector),
                fix="train again",
            )
        base = self._base or self._first_base()
        base.put(ids, texts, embeddings, classifiers)
        items = Texts(list(base.ids), list(base.texts))
        made = Emmett(
            self.encoder,
            base.classifiers,
            base.embeddings,
            self.generator,
            items,
            np.arange(len(items)),
            neighbours=self.neighbours,
            calibration=self.calibration,
            about=self.about,
            memory=self.memory,
        )
        made._base, made.informing, made.voters = base, base.informing, base.voters
        made._inverse = self._inverse  # first clicks count as they did
        return made

    def _first_base(self) -> Base:
        """The observed items, with room for more."""
        rows = self.observed.tolist()
        ids, texts = [self.items.ids[row] for row in rows], [self.items.texts[row] for row in rows]
        return Base(ids, texts, self.embeddings, self.classifiers, self.calibration.neighbour_prior)

    @property
    def can_grow(self) -> bool:
        """Whether it can take more observed items: where the nearest items inform by their classifiers."""
        return isinstance(self.selector, NearestSelector) and self.bank is None

    def add(self, ids: Sequence[str], texts: Sequence[str], revealed: Revealed | None = None) -> None:
        """Take novel items in, with their first clicked queries where known: from the next search on they are
        found."""
        known = [name for name in ids if name in self.items.row_of]
        if known:
            raise DataError("An item of that id is already there", got=repr(known[0]), fix="use a new id")
        made = np.concatenate([self.vectors, self.represent(texts, revealed)])
        self.items = Texts([*self.items.ids, *ids], [*self.items.texts, *texts])
        self._vectors = made
        self.__dict__.pop("novel", None)

    def _embed(
        self, given: Sequence[str] | Floats, encode: Callable[[Sequence[str]], Floats], what: str
    ) -> Floats:
        if isinstance(given, np.ndarray):
            return unit_rows(given, self.encoder.dim, f"{what} vectors")
        if isinstance(given, str):
            raise DataError(f"One {what} in place of a list", got=repr(given), fix=f"pass [{given!r}]")
        empty = [row for row, text in enumerate(given) if not text.strip()]
        if empty:
            raise DataError(f"An empty {what}", got=f"position {empty[0]}", expected=f"the {what}'s text")
        return encode(given)

    @cached_property
    def fingerprint(self) -> str:
        """Names the model: same fingerprint, same meta-classifiers."""
        arrays: Arrays = {
            **self.generator.arrays(),
            "weights": self.classifiers.weights,
            "clicks": self.classifiers.clicks,
            "embeddings": self.embeddings,
            "selector": self.selector.embeddings,
            **({} if self.bank is None else {"bank": self.bank}),
            **({} if self.memory is None else self.memory.arrays()),
        }
        return json_digest(
            [
                self.encoder.fingerprint,
                self.neighbours,
                self.calibration.model_dump(),
                self.generator.kind,
                self.generator.settings(),
                repr(self.selector),
                None if self.memory is None else self.memory.recall.model_dump(),
                {name: sha256(array.tobytes()).hexdigest() for name, array in arrays.items()},
            ]
        )

    def save(self, folder: str | Path) -> None:
        """Write the model folder, whole or not at all; what stood there is replaced. A selector that calls a
        function is not written and has to be given again to `load`."""
        write_model(Path(folder), self)

    @staticmethod
    def about_of(folder: str | Path) -> dict[str, Any]:
        """How the model in a folder was trained, without loading it."""
        return dict(read_facts(Path(folder))["about"])

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
            base: Where the pretrained encoder is, when it has moved since training.
            cache: Where embeddings of long lists are kept.
            selector: In place of the one in the folder; needed where that one calls a function.
        """
        return cls(**read_parts(Path(folder), base, cache, selector))
