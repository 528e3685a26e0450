"""What an item and a query cost, in milliseconds and against encoding alone.

Times of a shared machine mean little by themselves, so every stage is timed in turn with encoding the same texts and
the ratio of the medians stands beside the milliseconds. Embeddings come from the encoder, never from the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from metaxc.emmett import Emmett
from metaxc.generators import gather
from metaxc.index.topk import top_k
from metaxc.research.bench.context import Context
from metaxc.research.bench.makers import baseline_class, recipe_of
from metaxc.research.bench.rows import Outcome, Row, Table

BATCHES = {"single": 1, "batch 256": 256}
REPEATS = {"single": 31, "batch 256": 5}
FIRST = 10

Stage = Callable[[slice], object]


def times(stage: Stage, encode: Stage, texts: int) -> dict[str, dict[str, float]]:
    """Milliseconds per text and the ratio to encoding it, one at a time and in batches.

    Args:
        stage: Does the work for a slice of the texts.
        encode: Encodes a slice of the texts.
        texts: How many there are.
    """
    found = {}
    for name, batch in BATCHES.items():
        size = min(batch, texts)
        seconds: dict[str, list[float]] = {"stage": [], "encode": []}
        for repeat in range(REPEATS[name] + 1):
            at = repeat * size % (texts - size + 1)
            for what, work in (("encode", encode), ("stage", stage)):
                started = time.perf_counter()
                work(slice(at, at + size))
                if repeat:  # the first warms up
                    seconds[what].append(time.perf_counter() - started)
        spent, against = median(seconds["stage"]), median(seconds["encode"])
        found[name] = {
            "ms": 1000 * spent / size,
            "encode ms": 1000 * against / size,
            "times encoding": spent / against,
        }
    return found


def _model(context: Context) -> Emmett:
    """The default model with an encoder that has no cache; `context.default` has left it on disk."""
    inputs = context.irene(context.config).inputs(context.dataset)
    _ = context.default
    return Emmett.load(context.folder / "models" / inputs[:32], base=context.config.base)


def _sample(texts: Sequence[str], seed: int) -> list[str]:
    """Texts to time with, drawn from all: a batch, and one more for each repeat alone."""
    most = max(BATCHES.values()) + max(REPEATS.values())
    return [texts[row] for row in np.random.default_rng(seed).permutation(len(texts))[:most]]


def _of_items(name: str, group: str, make: Callable[[Emmett, list[str]], Stage]) -> Row:
    """A row for work on novel items, against encoding them."""

    def run(context: Context) -> Outcome:
        dataset, model = context.dataset, _model(context)
        items = _sample([dataset.items.texts[row] for row in dataset.novel_rows], context.config.seed)
        found = times(make(model, items), lambda at: model.encoder.encode_items(items[at]), len(items))
        return Outcome(found, note=f"K = {model.neighbours} of {len(model.observed):,} observed items")

    return Row(name, group, run, lambda context: {"stage": name, **recipe_of(context)})


def _of_queries(name: str, group: str, make: Callable[[Context, Emmett, list[str]], Stage]) -> Row:
    """A row for work on test queries, against encoding them."""

    def run(context: Context) -> Outcome:
        dataset, model = context.dataset, _model(context)
        log = dataset.train if dataset.test is None else dataset.test
        queries = _sample(log.queries.texts, context.config.seed)
        encode = model.encoder.encode_queries
        found = times(make(context, model, queries), lambda at: encode(queries[at]), len(queries))
        return Outcome(found, note=f"first {FIRST} of {len(dataset.items):,} items")

    return Row(name, group, run, lambda context: {"stage": name, **recipe_of(context)})


def _select(model: Emmett, items: list[str]) -> Stage:
    vectors = model.encoder.encode_items(items)
    return lambda at: model.selector.select(vectors[at], model.neighbours)


def _generate(model: Emmett, items: list[str]) -> Stage:
    vectors = model.encoder.encode_items(items)
    near, scores = model.selector.select(vectors, model.neighbours)
    selected = gather(model.neighbour_vectors, near)
    return lambda at: model.generator.generate(vectors[at], selected[at], scores[at])


def _search(context: Context, model: Emmett, queries: list[str]) -> Stage:
    vectors = model.encode_queries(queries)
    return lambda at: top_k(vectors[at], model.vectors, FIRST)


def _borrow(context: Context, model: Emmett, queries: list[str]) -> Stage:
    vectors = model.embed_queries(queries)
    return lambda at: vectors[at] if model.expansion is None else model.expansion.expand(vectors[at])


def _siamese(context: Context, model: Emmett, queries: list[str]) -> Stage:
    embeddings = context.default.encoder.encode_items(context.dataset.items.texts)  # from the cache, untimed
    return lambda at: top_k(model.encoder.encode_queries(queries[at]), embeddings, FIRST)


def _semsup(context: Context, model: Emmett, queries: list[str]) -> Stage:
    """Its scoring alone, to set beside `search`: a fitted one keeps the embeddings of test queries."""
    scorer: Any = baseline_class("SemSupXC")(context.bare).fit(context.dataset)
    return lambda at: scorer.scores(queries[at])


def latency_table() -> Table:
    """The rows of `metaxc bench latency`."""
    return Table(
        "latency",
        "milliseconds per item and per query, against encoding alone",
        [
            _of_items("select", "item", _select),
            _of_items("generate", "item", _generate),
            _of_items(
                "represent an item", "item", lambda model, items: lambda at: model.represent(items[at])
            ),
            _of_items(
                "represent an item, Siamese",
                "item",
                lambda model, items: lambda at: model.encoder.encode_items(items[at]),
            ),
            _of_queries("borrow from near queries", "query", _borrow),
            _of_queries("search", "query", _search),
            _of_queries(
                "answer a query",
                "query",
                lambda context, model, queries: lambda at: model.search_rows(queries[at], FIRST),
            ),
            _of_queries("answer a query, Siamese", "query", _siamese),
            _of_queries("score a query, SemSup-XC", "query", _semsup),
        ],
    )
