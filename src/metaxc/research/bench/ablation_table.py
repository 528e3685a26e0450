"""Ablations: the default configuration with one change, its constants tuned again, on the same adapted encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaxc.data.clicks import training_clicks
from metaxc.encoders import Pretrained
from metaxc.evaluation.protocol import Search
from metaxc.evaluation.searches import model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import (
    DEFAULT,
    Row,
    RowResult,
    Table,
    config_row,
    config_settings,
    evaluate_row,
    model_row,
    with_vectors,
)
from metaxc.selectors import Selector, cross_encoder
from metaxc.selectors.rerank import RerankSelector

SHORTLIST = 20

ON_OBSERVED: dict[str, Any] = {"generator": "transformer", "meta_training": "observed"}

CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("without the query memory", "query expansion", {"memory": 0}),
    (
        "neighbours' embeddings in place of classifiers",
        "neighbour vectors",
        {"informing": "embeddings"},
    ),
    ("centroids in place of classifiers", "neighbour vectors", {"informing": "centroids"}),
    ("one-vs-all in place of ridge", "neighbour vectors", {"classifiers": "one_vs_all"}),
    *((f"K = {k}", "number of neighbours", {"neighbours": k}) for k in (1, 2, 3, 6, 20)),
    *((f"transformer, depth {d}", "generator", {"generator": "transformer", "depth": d}) for d in (1, 2, 4)),
    ("sum, K = 3", "generator", {"generator": "sum", "neighbours": 3}),
    ("weighted sum, K = 3", "generator", {"generator": "weighted_sum", "neighbours": 3}),
    ("transformer, trained on observed items", "generator training", ON_OBSERVED),
    (
        "transformer, self included in training",
        "generator training",
        {**ON_OBSERVED, "include_self": True},
    ),
    (
        "transformer, trainable classifiers",
        "generator training",
        {**ON_OBSERVED, "training": {"train_classifiers": True}},
    ),
]
"""Row name, group and the change. Row names identify rows in existing result files, so they stay as they are."""


def _rerank_row(name: str) -> Row:
    """The default model with neighbours re-ranked by a cross-encoder that is trained on the observed items."""

    def run(context: Context) -> RowResult:
        model = context.default

        def build_search() -> Search:
            reranked = with_vectors(model, model.vectors.copy())
            reranked.selector = _train_reranker(context)
            novel = np.flatnonzero(model.novel)
            reranked.vectors[novel] = reranked.represent([model.items.texts[int(row)] for row in novel])
            return model_search(reranked, context.dataset)

        note = f"constants of the default model, {SHORTLIST} candidates"
        return evaluate_row(build_search, context.dataset, note)

    return Row(name, "selector", run, lambda context: {"rerank": SHORTLIST, **config_settings(context)})


def _train_reranker(context: Context) -> Selector:
    """The default model's selector, re-ranked by how useful a neighbour is to an observed item."""
    model, dataset = context.default, context.dataset
    observed, query_rows, clicks = training_clicks(dataset)
    queries = model.embed_queries(model.encoder.encode_queries(dataset.train.queries.texts)[query_rows])
    texts = [dataset.items.texts[int(row)] for row in observed]
    shortlists, _ = model.selector.select(
        model.embeddings, SHORTLIST, exclude_self=np.arange(len(observed)), texts=texts
    )
    usefulness = cross_encoder.neighbour_usefulness(queries, clicks, model.informing, shortlists)
    base = Pretrained(context.config.base).folder
    rerank = cross_encoder.train_cross_encoder(texts, shortlists, usefulness, base, seed=context.config.seed)
    return RerankSelector(model.selector, rerank, texts, shortlist=SHORTLIST)


def ablation_table() -> Table:
    """The rows of `metaxc bench ablations`."""
    return Table(
        "ablations",
        "the default configuration with one change",
        [
            model_row(DEFAULT, "default", lambda context: context.default),
            *(config_row(name, group, changes) for name, group, changes in CHANGES),
            _rerank_row("neighbours re-ranked by a cross-encoder"),
        ],
    )
