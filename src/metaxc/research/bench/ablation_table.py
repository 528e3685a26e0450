"""Ablations: the default configuration with one change, its constants tuned again, on the same adapted encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from metaxc.data.clicks import training_clicks
from metaxc.emmett.neighbour_pool import NeighbourPool, TrainedPool
from metaxc.encoders import Pretrained
from metaxc.evaluation.searches import Search, model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import (
    DEFAULT,
    DEFAULT_MODEL,
    Row,
    RowResult,
    Settings,
    Table,
    config_row,
    config_settings,
    evaluate_row,
    model_row,
    with_vectors,
)
from metaxc.research.code_version import MODEL_SOURCES
from metaxc.selectors import Selector, cross_encoder
from metaxc.selectors.rerank import RerankSelector

SHORTLIST = 20
NEIGHBOURS = (1, 2, 3, 6, 20)

ON_OBSERVED: dict[str, Any] = {"generator": "transformer", "meta_training": {"items": "observed"}}

CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("without query expansion", "query expansion", {"expansion_queries": 0}),
    *(
        (
            f"{name} in place of classifiers",
            "neighbour vectors",
            {"meta_training": {"neighbour_input": kind}},
        )
        for name, kind in (("neighbours' embeddings", "embeddings"), ("centroids", "centroids"))
    ),
    ("one-vs-all in place of ridge", "neighbour vectors", {"classifiers": "one_vs_all"}),
    *((f"K = {k}", "number of neighbours", {"neighbours": k}) for k in NEIGHBOURS),
    *(
        (f"transformer, K = {k}", "number of neighbours", {"generator": "transformer", "neighbours": k})
        for k in NEIGHBOURS
    ),
    *(
        (f"transformer, depth {d}", "generator", {"generator": "transformer", "training": {"depth": d}})
        for d in (1, 2, 4)
    ),
    (
        "transformer without neighbours (K = 0)",
        "number of neighbours",
        {"generator": "transformer", "meta_training": {"neighbour_input": "none"}},
    ),
    ("without word matches", "encoder", {"adapter": {"word_matches": 0.0}}),
    ("sum, K = 3", "generator", {"generator": "sum", "neighbours": 3}),
    ("weighted sum, K = 3", "generator", {"generator": "weighted_sum", "neighbours": 3}),
    ("transformer, trained on observed items", "generator training", ON_OBSERVED),
    (
        "transformer, self included in training",
        "generator training",
        {"generator": "transformer", "meta_training": {"items": "observed", "include_self": True}},
    ),
    (
        "transformer, trainable classifiers",
        "generator training",
        {**ON_OBSERVED, "training": {"train_classifiers": True}},
    ),
]
"""Row name, group and the change."""


def _rerank_row(name: str) -> Row:
    """The default model with neighbours re-ranked by a cross-encoder that is trained on the observed items."""

    def run(context: Context) -> RowResult:
        model = context.default

        def build_search() -> Search:
            pool = NeighbourPool(TrainedPool(_train_reranker(context), model.neighbour_vectors, None, False))
            novel = np.flatnonzero(model.novel)
            texts = [model.items.texts[int(row)] for row in novel]
            vectors = model.vectors.copy()
            embeddings = model.encoder.encode_items(texts)
            vectors[novel] = replace(model.pipeline, pool=pool).vectors(embeddings, texts=texts)
            return model_search(with_vectors(model, vectors), context.dataset)

        note = f"constants of the default model, {SHORTLIST} candidates"
        return evaluate_row(build_search, context.dataset, note)

    def settings(context: Context) -> Settings:
        return {"rerank": SHORTLIST, **config_settings(context)}

    sources = (*MODEL_SOURCES, "research/bench/ablation_table.py")
    return Row(name, "selector", run, settings, sources=sources, cost=900.0, uses=(DEFAULT_MODEL,))


def _train_reranker(context: Context) -> Selector:
    """The default model's selector, re-ranked by how useful a neighbour is to an observed item."""
    model, dataset = context.default, context.dataset
    observed, query_rows, clicks = training_clicks(dataset)
    queries = model.embed_queries(model.encoder.encode_queries(dataset.train.queries.texts)[query_rows])
    texts = [dataset.items.texts[int(row)] for row in observed]
    shortlists, _ = model.selector.select(
        model.embeddings, SHORTLIST, exclude_self=np.arange(len(observed)), texts=texts
    )
    usefulness = cross_encoder.neighbour_usefulness(queries, clicks, model.neighbour_vectors, shortlists)
    base = Pretrained(context.config.base).folder
    rerank = cross_encoder.train_cross_encoder(texts, shortlists, usefulness, base, seed=context.config.seed)
    return RerankSelector(model.selector, rerank, texts, shortlist=SHORTLIST)


def ablation_table() -> Table:
    """The rows of `metaxc bench ablations`."""
    return Table(
        "ablations",
        "the default configuration with one change",
        [
            model_row(DEFAULT, "default", lambda context: context.default, DEFAULT_MODEL),
            *(config_row(name, group, changes) for name, group, changes in CHANGES),
            _rerank_row("neighbours re-ranked by a cross-encoder"),
        ],
    )
