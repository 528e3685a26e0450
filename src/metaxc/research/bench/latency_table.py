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
from metaxc.research.bench.rows import DEFAULT_MODEL, Row, RowResult, Settings, Table, config_settings
from metaxc.research.code_version import METHOD_SOURCES
from metaxc.research.latency import (
    BATCH,
    TOP,
    Timer,
    pipeline_timer,
    seconds_per_text,
    timed,
    without_cache,
)

BATCHES = {"single": 1, "batch 256": BATCH}
REPEATS = {"single": 31, "batch 256": 5}

BuildTimer = Callable[[Context, list[str]], Timer]
"""From the context and the texts to what is timed."""


def compare_with_encoding(work: Timer, encode: Timer, texts: int) -> dict[str, dict[str, float]]:
    """Milliseconds per text and the ratio to encoding, one text at a time and in batches.

    Args:
        work: Times work on a slice of the texts.
        encode: Times encoding of a slice of the texts.
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


def _item_row(name: str, build_timer: BuildTimer) -> Row:
    """A row for work on novel items, compared with encoding them."""

    def run(context: Context) -> RowResult:
        dataset, model = context.dataset, context.default
        items = _sample([dataset.items.texts[row] for row in dataset.novel_rows], context.config.seed)
        timer, encode = build_timer(context, items), model.encoder.encode_items
        with without_cache(model.encoder):
            metrics = compare_with_encoding(timer, timed(lambda at: encode(items[at])), len(items))
        note = f"K = {model.neighbours} of {len(model.observed):,} observed items"
        return RowResult(metrics, note=note)

    return _row(name, "item", run)


def _query_row(name: str, build_timer: BuildTimer) -> Row:
    """A row for work on test queries, compared with encoding them."""

    def run(context: Context) -> RowResult:
        dataset, model = context.dataset, context.default
        log = dataset.train if dataset.test is None else dataset.test
        queries = _sample(log.queries.texts, context.config.seed)
        timer, encode = build_timer(context, queries), model.encoder.encode_queries
        with without_cache(model.encoder):
            metrics = compare_with_encoding(timer, timed(lambda at: encode(queries[at])), len(queries))
        return RowResult(metrics, note=f"first {TOP} of {len(dataset.items):,} items")

    return _row(name, "query", run)


def _row(name: str, group: str, run: Callable[[Context], RowResult]) -> Row:
    """SemSup-XC is trained for its row; all other rows time the default model."""

    def settings(context: Context) -> Settings:
        return {"stage": name, **config_settings(context)}

    sources = (*METHOD_SOURCES, "research/latency.py", "research/bench/latency_table.py")
    cost = 200.0 if "SemSup" in name else 30.0
    return Row(name, group, run, settings, sources=sources, cost=cost, uses=(DEFAULT_MODEL,))


def _expand(context: Context, queries: list[str]) -> Timer:
    expansion, vectors = context.default.expansion, context.default.embed_queries(queries)
    return timed(lambda at: vectors[at] if expansion is None else expansion.expand(vectors[at]))


def _rank(context: Context, queries: list[str]) -> Timer:
    model, vectors = context.default, context.default.encode_queries(queries)
    return timed(lambda at: top_k(vectors[at], model.vectors, TOP))


def _search_siamese(context: Context, queries: list[str]) -> Timer:
    encoder = context.default.encoder
    embeddings = encoder.encode_items(context.dataset.items.texts)
    return timed(lambda at: top_k(encoder.encode_queries(queries[at]), embeddings, TOP))


def _score_semsup(context: Context, queries: list[str]) -> Timer:
    """Scoring without encoding, comparable with "search": the fitted baseline encodes the test queries once."""
    scorer = BASELINES["SemSup-XC"].build(context.bare).fit(context.dataset)
    scorer.scores(queries[:1])
    return timed(lambda at: scorer.scores(queries[at]))


ROWS = [
    _item_row("select", lambda context, items: pipeline_timer(context.default, items, "select")),
    _item_row("generate", lambda context, items: pipeline_timer(context.default, items, "generate")),
    _item_row(
        "represent an item", lambda context, items: timed(lambda at: context.default.represent(items[at]))
    ),
    _item_row(
        "represent an item, Siamese",
        lambda context, items: timed(lambda at: context.default.encoder.encode_items(items[at])),
    ),
    _query_row("expand a query", _expand),
    _query_row("search", _rank),
    _query_row(
        "answer a query",
        lambda context, queries: timed(lambda at: context.default.search_rows(queries[at], TOP)),
    ),
    _query_row("answer a query, Siamese", _search_siamese),
    _query_row("score a query, SemSup-XC", _score_semsup),
]


def latency_table() -> Table:
    """The rows of `metaxc bench latency`."""
    return Table("latency", "milliseconds per item and per query, relative to encoding alone", ROWS)
