"""The query side of a model trained again on newer clicks, while every item vector stays valid.

A score is the inner product of a query's vector and an item's. Item vectors are stored in many places: in the model, in
live catalogs, in vector stores. What stands on the other side of the product can be trained without touching any of
them: the query tower of the encoder, and the training queries by which queries are expanded. Both are compared on
queries that the model has not seen, the latest ones where times are known. Where nothing helps, the query tower stays.

Item side, kept to the last bit: the item tower, classifiers, neighbours, generator, all of the calibration but the
exposure, and the vectors of the model's items. Items that the model does not know are represented as it represents any
novel item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, vstack

from metaxc.arrays import Floats, Mask, Rows
from metaxc.artifacts import json_digest
from metaxc.data import Dataset, Texts
from metaxc.data.clicks import training_clicks, training_times
from metaxc.data.folds import FEWEST_QUERIES, SHARE
from metaxc.data.same_texts import own_text_pairs, rows_by_text
from metaxc.emmett import Emmett, QueryExpansion
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.emmett.scoring import ClassifierResponse
from metaxc.emmett.training_record import TrainingRecord, hash_queries
from metaxc.encoders import Encoder
from metaxc.encoders.adapted import Adapted
from metaxc.encoders.query_tower import QueryTexts, blend_query_towers, train_query_tower
from metaxc.irene.config import IreneConfig
from metaxc.irene.query_side import Compared, HeldOutQueries, QuerySide, choose_query_side
from metaxc.tuning import Relevance

EXTENTS = (0.0, 0.25, 0.5, 1.0)
"""How far the query tower may move from the present one to the trained one."""

EXPOSURE_STEPS = (0.0, 0.05, 0.1, 0.2)
"""What may be added to the exposure. A tower that learns from clicks moves queries towards items that have many of
them; novel items get back by their exposure what they lose by that."""

MOST_VALIDATION_QUERIES = 2_000
"""As many as a fold has: more cost time, and the figures are certain to about a point."""

COVERED = 0.9
"""Share of the model's training queries in the data from which on these replace the kept training queries."""


def retrain_queries(
    model: Emmett,
    dataset: Dataset,
    config: IreneConfig | None = None,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> Emmett:
    """A model with the item vectors of another one and a query side trained on these clicks.

    Args:
        model: Its item side is kept.
        dataset: With its novel items marked. It may have the clicks that the model was trained on and newer ones, or
            the newer ones alone.
        config: Its adapter, seed, exposure and number of expansion queries are used; the rest belongs to the item side.
        report: Called with one line per step.

    Example:
        >>> new = retrain_queries(model, dataset)  # doctest: +SKIP
        >>> (new.vectors[: len(model.items)] == model.vectors).all()  # doctest: +SKIP
        True
    """
    return _QueryRetraining(model, dataset, config or IreneConfig(), report).run()


def retraining_inputs(model: Emmett, dataset: Dataset, config: IreneConfig) -> str:
    """SHA-256 of everything that decides what `retrain_queries` returns."""
    times = None if dataset.train.times is None else np.asarray(dataset.train.times, np.float64).tobytes()
    return json_digest(
        [model.fingerprint, dataset.fingerprint, times, config.model_dump(), torch.get_num_threads()]
    )


class _QueryRetraining:
    def __init__(self, model: Emmett, dataset: Dataset, config: IreneConfig, report: Callable[[str], None]):
        self.model, self.dataset, self.config, self.report = model, dataset, config, report
        self.exposure = model.calibration.exposure if config.exposure is None else config.exposure
        self.items, self.vectors = extend_items(model, dataset)
        observed, self.query_rows, clicks = training_clicks(dataset)
        columns = self.items.rows(dataset.items.ids[row] for row in observed.tolist())
        self.clicks = csr_array(
            (clicks.data, columns[clicks.indices], clicks.indptr), shape=(clicks.shape[0], len(self.items))
        )
        self.clicks.sort_indices()
        times = training_times(dataset, observed, self.query_rows)
        self.times = None if times is None else np.maximum.reduceat(times.last, clicks.indptr[:-1])
        self.texts = [dataset.train.queries.texts[row] for row in self.query_rows.tolist()]
        self.new = self._find_new_queries()
        report(
            f"keep the vectors of {len(model.items):,} items, add {len(self.items) - len(model.items):,} novel ones; "
            f"learn from {self.clicks.nnz:,} clicks, {len(self.texts):,} queries, {int(self.new.sum()):,} of them new"
        )
        self.queries: QueryTexts | Floats
        if isinstance(model.encoder, Adapted):
            self.queries = QueryTexts(model.encoder, self.texts)
        else:
            self.queries = model.encoder.encode_queries(self.texts)

    def _find_new_queries(self) -> Mask:
        """(queries,) bool: those that the model was not trained on."""
        record = self.model.trained_on
        if record is None:
            return np.ones(len(self.texts), dtype=bool)
        return ~record.knows_queries(hash_queries(self.dataset.train.queries, self.query_rows))

    def run(self) -> Emmett:
        held = self._hold_out()
        compared: Compared = []
        if len(held):
            compared = self._compare(held)
            chosen = choose_query_side(compared)
            for side, quality in compared:
                if side is chosen or side.kept:
                    self.report(
                        f"{'kept' if side.kept else 'chosen'}: {side.describe()}: {quality.to_dict()}"
                    )
        else:
            self.report(f"fewer than {FEWEST_QUERIES} new queries to choose by: the query tower stays")
            chosen = QuerySide(self.model.encoder, self.model.expansion, self.exposure)
        return self._assemble(self._fit(chosen), compared)

    def _hold_out(self) -> Rows:
        """Rows of the new queries that validate, the latest where times are known; none where they are too few."""
        new = np.flatnonzero(self.new)
        count = int(SHARE * len(new))
        if count < FEWEST_QUERIES:
            return new[:0]
        random = np.random.default_rng(self.config.seed)
        order = (
            random.permutation(new)
            if self.times is None
            else new[np.argsort(-self.times[new], kind="stable")]
        )
        return np.sort(order[:count])

    def _train(self, rows: Rows) -> Encoder:
        """The encoder with a query tower trained on these queries; itself where it has none."""
        encoder = self.model.encoder
        if not isinstance(encoder, Adapted) or not isinstance(self.queries, QueryTexts):
            return encoder
        return train_query_tower(
            encoder,
            self.queries,
            rows,
            self.vectors,
            csr_array(self.clicks[rows]),
            self.config.adapter,
            exposure=self.exposure,
            query_layer=self.model.classifiers.query_function,
            seed=self.config.seed,
        )

    def _blend(self, trained: Encoder, extent: float) -> Encoder:
        before = self.model.encoder
        if not isinstance(before, Adapted) or not isinstance(trained, Adapted):
            return before
        return blend_query_towers(before, trained, extent)

    def _embed(self, encoder: Encoder) -> Floats:
        """(queries, dim) float32: all queries as the classifiers see them."""
        if isinstance(encoder, Adapted) and isinstance(self.queries, QueryTexts):
            embedded = self.queries.embed(encoder)
        else:
            assert isinstance(self.queries, np.ndarray)
            embedded = self.queries
        return self.model.classifiers.transform_queries(embedded)

    def _compare(self, held: Rows) -> Compared:
        """Query sides with their quality on held-out queries: the model's own first, then that with newer training
        queries to expand by, then all others."""
        rest = np.setdiff1d(np.arange(len(self.texts)), held)
        started_from, trained = self.model.encoder, self._train(rest)
        rows, validation = self._validation(held, rest)
        before = QuerySide(started_from, self.model.expansion, self.exposure, kept=True)
        compared = [(before, validation.quality(self._expand(before, rows), self.exposure))]
        steps = EXPOSURE_STEPS if self.config.exposure is None else EXPOSURE_STEPS[:1]
        for extent in EXTENTS if trained is not started_from else EXTENTS[:1]:
            encoder = self._blend(trained, extent)
            expansion = None
            if before.expansion is not None:
                expansion = self._expansion(self._embed(encoder), rest)
            queries = self._expand(QuerySide(encoder, expansion), rows)
            for step in steps if extent else steps[:1]:
                side = QuerySide(encoder, expansion, self.exposure + step, extent)
                compared.append((side, validation.quality(queries, side.exposure)))
        best = choose_query_side(compared)
        embedded = self._embed(best.encoder)
        expansion = self._expansion(embedded, rest)
        if expansion is not None:
            for config, quality in validation.expansions(embedded[rows], expansion, best.exposure):
                side = replace(best, expansion=expansion.with_config(config), kept=False)
                compared.append((side, quality))
        if best.expansion is not None:
            side = replace(best, expansion=None, kept=False)
            compared.append((side, validation.quality(embedded[rows], best.exposure)))
        return compared

    def _expand(self, side: QuerySide, rows: Rows) -> Floats:
        """(rows, dim) float32: these queries as a query side scores them."""
        queries = self._embed(side.encoder)[rows]
        return queries if side.expansion is None else side.expansion.expand(queries)

    def _validation(self, held: Rows, rest: Rows) -> tuple[Rows, HeldOutQueries]:
        """Rows of held-out queries, at most `MOST_VALIDATION_QUERIES`, and what they validate by. Items that play novel
        have no click that the model or the query tower has learnt from, as novel items will have none."""
        if len(held) > MOST_VALIDATION_QUERIES:
            random = np.random.default_rng(self.config.seed)
            held = np.sort(random.choice(held, MOST_VALIDATION_QUERIES, replace=False))
        clicks = np.bincount(self.clicks[rest].indices, minlength=len(self.items)).astype(np.float64)
        novel = self._novel() & (clicks == 0)
        clicks[self.model.observed] = self.model.classifiers.clicks
        own = None
        if self.dataset.exclude_self:
            texts = [self.texts[row] for row in held.tolist()]
            own = own_text_pairs(texts, rows_by_text(self.items.texts), len(self.items))
        response = ClassifierResponse.of(self.model.classifiers, self.model.calibration.response_unit)
        relevance = Relevance(csr_array(self.clicks[held]), novel, clicks)
        return held, HeldOutQueries(relevance, self.vectors, own, response)

    def _expansion(self, embedded: Floats, rows: Rows) -> QueryExpansion | None:
        """The training queries at `rows` and, unless these have them too, those that the model has."""
        most = self.config.expansion_queries
        if not most:
            return None
        model, kept = self.model, self.model.expansion
        own = len(model.embeddings)
        known = model.trained_on
        covered = known is not None and (~self.new).sum() >= COVERED * len(known.queries)
        rows = rows if kept is None or covered else rows[self.new[rows]]
        clicks = csr_array(self.clicks[rows])
        place = np.full(len(self.items), -1, dtype=np.int64)
        place[model.observed] = np.arange(own)
        later = np.setdiff1d(clicks.indices, model.observed)
        before = 0 if kept is None or covered else kept.later
        place[later] = own + before + np.arange(len(later))
        embeddings = [model.embeddings]
        if kept is not None and before:
            embeddings.append(kept.embeddings[own:])
        if len(later):
            embeddings.append(model.encoder.encode_items([self.items.texts[row] for row in later.tolist()]))
        items = np.concatenate(embeddings)
        shape = (len(rows), len(items))
        clicks = csr_array((np.ones_like(clicks.data), place[clicks.indices], clicks.indptr), shape=shape)
        queries = embedded[rows]
        if kept is not None and not covered:
            old = csr_array(
                (kept.clicks.data, kept.clicks.indices, kept.clicks.indptr), shape=(len(kept), len(items))
            )
            clicks, queries = csr_array(vstack([old, clicks])), np.concatenate([kept.queries, queries])
        sampled = QueryExpansion.sample(queries, clicks, items, most, self.config.seed)
        return QueryExpansion(
            sampled.queries,
            sampled.clicks,
            items,
            None if kept is None else kept.config,
            later=len(items) - own,
        )

    def _fit(self, chosen: QuerySide) -> QuerySide:
        """What was chosen, fitted on all queries."""
        rows = np.arange(len(self.texts))
        encoder = self._blend(self._train(rows), chosen.extent) if chosen.extent else self.model.encoder
        if chosen.kept or chosen.expansion is None:
            return replace(chosen, encoder=encoder)
        expansion = self._expansion(self._embed(encoder), rows)
        used = None if expansion is None else expansion.with_config(chosen.expansion.config)
        return replace(chosen, encoder=encoder, expansion=used)

    def _assemble(self, side: QuerySide, compared: Compared) -> Emmett:
        model, dataset = self.model, self.dataset
        calibration = model.calibration.model_copy(update={"exposure": side.exposure})
        record = TrainingRecord.of(dataset)
        return Emmett(
            side.encoder,
            model.classifiers,
            model.embeddings,
            model.generator,
            self.items,
            model.observed,
            neighbours=model.neighbours,
            neighbour_prior=model.neighbour_prior,
            calibration=calibration,
            vectors=self.vectors,
            about=self._about(side, compared),
            selector=model.selector,
            neighbour_vectors=model.custom_neighbour_vectors,
            expansion=side.expansion,
            trained_on=record if model.trained_on is None else model.trained_on.join(record),
            selects_itself=model.selects_itself,
        )

    def _about(self, side: QuerySide, compared: Compared) -> dict[str, Any]:
        """How the item side was trained, and what was learnt since."""
        about, model = dict(self.model.about), self.model
        before = about.get("keeps_items", {}).get("models", [])
        held_out = {self.dataset.items.ids[row] for row in self.dataset.novel_rows.tolist()}
        unclicked = [id for id, novel in zip(self.items.ids, self._novel(), strict=True) if novel]
        marked = sum(id in held_out for id in unclicked)
        chosen = side.describe()
        return {
            **about,
            "inputs": retraining_inputs(model, self.dataset, self.config),
            "constants": {
                **about.get("constants", {}),
                "exposure": side.exposure,
                "expansion": chosen["expansion"],
            },
            "novel_items": {"held_out": marked, "without_clicks": len(unclicked) - marked},
            "keeps_items": {
                "item_side": item_fingerprint(model),
                "models": [*before, model.fingerprint],
                "data": {"name": self.dataset.name, "fingerprint": self.dataset.fingerprint},
                "clicks": int(self.clicks.nnz),
                "queries": len(self.texts),
                "new_queries": int(self.new.sum()),
                "chosen": chosen,
                "compared": [{**one.describe(), **quality.to_dict()} for one, quality in compared],
            },
        }

    def _novel(self) -> Mask:
        novel = np.ones(len(self.items), dtype=bool)
        novel[self.model.observed] = False
        return novel


def extend_items(model: Emmett, dataset: Dataset) -> tuple[Texts, Floats]:
    """The model's items with the vectors that they have, and those of the data set that it does not know, as novel
    ones."""
    rows = [row for row, id in enumerate(dataset.items.ids) if id not in model.items.row_of]
    items = model.items
    if not rows:
        return items, model.vectors
    new = dataset.items.take(np.asarray(rows, dtype=np.int64))
    return items.extended(new), np.concatenate([model.vectors, model.represent(new.texts)])
