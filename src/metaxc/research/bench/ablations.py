"""Ablations: the default recipe with one thing changed, constants chosen anew, on the same adapted encoder."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np

from metaxc.data.clicks import training_clicks
from metaxc.encoders import Pretrained
from metaxc.errors import ConfigError
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.makers import DEFAULT, kept_model, recipe, recipe_of, with_vectors
from metaxc.research.bench.rows import Outcome, Row, Table
from metaxc.selectors import Selector

QUERY, INFORMING, COUNT, GENERATOR, TRAINING, SELECTOR = (
    "the query's side",
    "what informs",
    "how many neighbours",
    "generator",
    "training of the generator",
    "selector",
)

SHORTLIST = 20

SELF: dict[str, Any] = {
    "generator": "transformer",
    "meta_training": {"items": "observed", "include_self": True},
}
LEAKY: dict[str, Any] = {"generator": "transformer", "meta_training": {"items": "observed"}}

CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("without query expansion", QUERY, {"expansion_queries": 0}),
    (
        "neighbours' embeddings in place of classifiers",
        INFORMING,
        {"meta_training": {"neighbour_input": "embeddings"}},
    ),
    ("centroids in place of classifiers", INFORMING, {"meta_training": {"neighbour_input": "centroids"}}),
    ("one-vs-all in place of ridge", INFORMING, {"classifiers": "one_vs_all"}),
    *((f"K = {k}", COUNT, {"neighbours": k}) for k in (1, 2, 3, 6, 20)),
    *(
        (f"transformer, depth {d}", GENERATOR, {"generator": "transformer", "training": {"depth": d}})
        for d in (1, 2, 4)
    ),
    ("sum, K = 3", GENERATOR, {"generator": "sum", "neighbours": 3}),
    ("weighted sum, K = 3", GENERATOR, {"generator": "weighted_sum", "neighbours": 3}),
    ("transformer, trained on observed items", TRAINING, LEAKY),
    (
        "transformer, self included in training",
        TRAINING,
        SELF,
    ),
    ("transformer, trainable classifiers", TRAINING, {**LEAKY, "training": {"train_classifiers": True}}),
]
"""Name, group and what changes; more rows are more lines here."""


def _reranked(name: str) -> Row:
    """The default model whose neighbours are chosen again by a cross-encoder trained on the observed items."""

    def run(context: Context) -> Outcome:
        model = context.default
        started = time.perf_counter()
        reranked = with_vectors(model, model.vectors.copy())
        reranked.selector = _rerank_selector(context)
        novel = np.flatnonzero(model.novel)
        reranked.vectors[novel] = reranked.represent([model.items.texts[int(row)] for row in novel])
        seconds = time.perf_counter() - started
        found = evaluate(model_search(reranked, context.dataset), context.dataset)
        return Outcome.of(found, seconds, f"constants of the default model, {SHORTLIST} candidates")

    return Row(name, SELECTOR, run, lambda context: {"rerank": SHORTLIST, **recipe_of(context)})


def _rerank_selector(context: Context) -> Selector:
    """The default model's selector, its shortlist re-ranked by what makes a neighbour useful to an observed item."""
    try:
        trained = import_module("metaxc.selectors.cross_encoder")
        selectors = import_module("metaxc.selectors.rerank")
    except ImportError as error:
        raise ConfigError("There is no cross-encoder to re-rank with", got=str(error)) from error
    model, dataset = context.default, context.dataset
    observed, query_rows, clicks = training_clicks(dataset)
    queries = model.embed_queries(model.encoder.encode_queries(dataset.train.queries.texts)[query_rows])
    texts = [dataset.items.texts[int(row)] for row in observed]
    itself = np.arange(len(observed))
    shortlists, _ = model.selector.select(model.embeddings, SHORTLIST, exclude_self=itself, texts=texts)
    useful = trained.neighbour_usefulness(queries, clicks, model.neighbour_vectors, shortlists)
    base = Pretrained(context.config.base).folder
    rerank = trained.train_cross_encoder(texts, shortlists, useful, base, seed=context.config.seed)
    selector: Selector = selectors.RerankSelector(model.selector, rerank, texts, shortlist=SHORTLIST)
    return selector


def ablations_table() -> Table:
    """The rows of `metaxc bench ablations`."""
    return Table(
        "ablations",
        "the default with one thing changed",
        [
            kept_model(DEFAULT, "default", lambda context: context.default),
            *(recipe(name, group, changes) for name, group, changes in CHANGES),
            _reranked("neighbours re-ranked by a cross-encoder"),
        ],
    )
