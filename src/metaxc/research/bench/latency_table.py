"""The latency table: what an item and a query cost, in milliseconds and relative to encoding alone.

Absolute times on a shared machine mean little, so every stage takes turns with encoding the same texts, and the ratio
of the medians is reported with the milliseconds (`metaxc.research.latency`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metaxc.index.topk import top_k
from metaxc.research.baselines import BASELINES
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import Row, RowResult, Table, config_settings
from metaxc.research.latency import (
    BATCH,
    TOP,
    Work,
    generate_work,
    seconds_per_text,
    select_work,
    without_cache,
)

BATCHES = {"single": 1, "batch 256": BATCH}
REPEATS = {"single": 31, "batch 256": 5}

BuildWork = Callable[[Context, list[str]], Work]
"""From the context and the texts to what is timed."""


def compare_with_encoding(work: Work, encode: Work, texts: int) -> dict[str, dict[str, float]]:
    """Milliseconds per text and the ratio to encoding, one text at a time and in batches.

    Args:
        work: Processes a slice of the texts.
        encode: Encodes a slice of the texts.
        texts: Number of texts.
    """
    metrics = {}
    for name, batch in BATCHES.items():
        encoding, working = seconds_per_text([encode, work], texts, batch, REPEATS[name])
        metrics[name] = {
            "ms": 1000 * float(working),
            "encode ms": 1000 * float(encoding),
            "times encoding": float(working / encoding),
        }
    return metrics


def _sample(texts: Sequence[str], seed: int) -> list[str]:
    """Random texts: enough for a batch, and one more for each repeat."""
    count = max(BATCHES.values()) + max(REPEATS.values())
    return [texts[row] for row in np.random.default_rng(seed).permutation(len(texts))[:count]]


def _item_row(name: str, build_work: BuildWork) -> Row:
    """A row for work on novel items, compared with encoding them."""

    def run(context: Context) -> RowResult:
        dataset, model = context.dataset, context.default
        items = _sample([dataset.items.texts[row] for row in dataset.novel_rows], context.config.seed)
        work = build_work(context, items)
        with without_cache(model.encoder):
            metrics = compare_with_encoding(
                work, lambda at: model.encoder.encode_items(items[at]), len(items)
            )
        note = f"K = {model.neighbours} of {len(model.observed):,} observed items"
        return RowResult(metrics, note=note)

    return Row(name, "item", run, lambda context: {"stage": name, **config_settings(context)})


def _query_row(name: str, build_work: BuildWork) -> Row:
    """A row for work on test queries, compared with encoding them."""

    def run(context: Context) -> RowResult:
        dataset, model = context.dataset, context.default
        log = dataset.train if dataset.test is None else dataset.test
        queries = _sample(log.queries.texts, context.config.seed)
        work, encode = build_work(context, queries), model.encoder.encode_queries
        with without_cache(model.encoder):
            metrics = compare_with_encoding(work, lambda at: encode(queries[at]), len(queries))
        return RowResult(metrics, note=f"first {TOP} of {len(dataset.items):,} items")

    return Row(name, "query", run, lambda context: {"stage": name, **config_settings(context)})


def _represent(context: Context, items: list[str]) -> Work:
    return lambda at: context.default.represent(items[at])


def _encode_items(context: Context, items: list[str]) -> Work:
    return lambda at: context.default.encoder.encode_items(items[at])


def _expand(context: Context, queries: list[str]) -> Work:
    model = context.default
    vectors = model.embed_queries(queries)
    return lambda at: vectors[at] if model.memory is None else model.memory.expand(vectors[at])


def _rank(context: Context, queries: list[str]) -> Work:
    vectors = context.default.encode_queries(queries)
    return lambda at: top_k(vectors[at], context.default.vectors, TOP)


def _search(context: Context, queries: list[str]) -> Work:
    return lambda at: context.default.search_rows(queries[at], TOP)


def _search_siamese(context: Context, queries: list[str]) -> Work:
    encoder = context.default.encoder
    embeddings = encoder.encode_items(context.dataset.items.texts)
    return lambda at: top_k(encoder.encode_queries(queries[at]), embeddings, TOP)


def _score_semsup(context: Context, queries: list[str]) -> Work:
    """Scoring without encoding, comparable with "search": the fitted baseline encodes the test queries once."""
    scorer = BASELINES["SemSup-XC"].build(context.bare).fit(context.dataset)
    scorer.scores(queries[:1])
    return lambda at: scorer.scores(queries[at])


def latency_table() -> Table:
    """The rows of `metaxc bench latency`."""
    return Table(
        "latency",
        "milliseconds per item and per query, relative to encoding alone",
        [
            _item_row("select", lambda context, items: select_work(context.default, items)),
            _item_row("generate", lambda context, items: generate_work(context.default, items)),
            _item_row("represent an item", _represent),
            _item_row("represent an item, Siamese", _encode_items),
            _query_row("borrow from near queries", _expand),
            _query_row("search", _rank),
            _query_row("answer a query", _search),
            _query_row("answer a query, Siamese", _search_siamese),
            _query_row("score a query, SemSup-XC", _score_semsup),
        ],
    )
