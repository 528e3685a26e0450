"""The first clicks of a new item: what n revealed queries add without training, and what training again would add.

The queries are drawn from a novel item's own hidden *training* clicks. Larger n contain the queries of smaller ones; an
item with fewer clicks reveals all of them. Test queries are the same in all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from metaxc.arrays import Rows
from metaxc.data import Dataset
from metaxc.evaluation.searches import Search, model_search
from metaxc.research.baselines import Retrained
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import (
    DEFAULT,
    DEFAULT_MODEL,
    Row,
    RowResult,
    Settings,
    Table,
    config_settings,
    evaluate_row,
    model_row,
    with_vectors,
)
from metaxc.research.code_version import METHOD_SOURCES

REVEALED = (1, 2, 5)
USES = {"votes": (True, False), "evidence": (False, True), "both": (True, True)}
"""Whether the revealed queries vote for neighbours, and whether they contribute a classifier of the item's own."""


def sample_hidden_clicks(dataset: Dataset, n: int, seed: int) -> list[Rows]:
    """For each novel item (in the order of `dataset.novel_rows`) the rows of at most n random training queries that
    clicked it; those of a smaller n are the first of those of a larger one."""
    hidden = csc_array(dataset.train.clicks[:, dataset.novel_rows])
    random = np.random.default_rng(seed)
    spans = zip(hidden.indptr[:-1], hidden.indptr[1:], strict=True)
    return [random.permutation(np.sort(hidden.indices[a:b])).astype(np.int64)[:n] for a, b in spans]


def _describe(revealed: Sequence[Rows], n: int) -> str:
    counts = np.asarray([len(rows) for rows in revealed])
    return (
        f"{n} revealed for {int((counts == n).sum()):,} of {len(counts):,} novel items, fewer for "
        f"{int(((counts > 0) & (counts < n)).sum()):,}, none for {int((counts == 0).sum()):,}"
    )


def _revealed_row(n: int, use: str) -> Row:
    votes, evidence = USES[use]

    def run(context: Context) -> RowResult:
        dataset, model = context.dataset, context.default
        revealed = sample_hidden_clicks(dataset, n, context.config.seed)

        def build_search() -> Search:
            queries = model.encoder.encode_queries(dataset.train.queries.texts)
            novel = dataset.novel_rows
            vectors = model.vectors.copy()
            vectors[novel] = model.represent(
                np.asarray(model.encoder.encode_items(dataset.items.texts)[novel]),
                [np.asarray(queries[rows]) for rows in revealed],
                votes=votes,
                evidence=evidence,
            )
            return model_search(with_vectors(model, vectors), dataset)

        return evaluate_row(build_search, dataset, _describe(revealed, n))

    return _row(f"{use} of {n}", n, use, run)


def _retrained_row(n: int) -> Row:
    def run(context: Context) -> RowResult:
        dataset = context.dataset
        revealed = sample_hidden_clicks(dataset, n, context.config.seed)
        columns = np.repeat(dataset.novel_rows, [len(rows) for rows in revealed])
        ones = np.ones(len(columns), np.float32)
        clicks = csr_array((ones, (np.concatenate(revealed), columns)), shape=dataset.train.clicks.shape)

        def build_search() -> Search:
            return Retrained(context.irene(context.config), revealed=clicks).search(dataset)

        return evaluate_row(build_search, dataset, _describe(revealed, n))

    return _row(f"trained again with {n}", n, "retrained", run)


def _row(name: str, n: int, use: str, run: Callable[[Context], RowResult]) -> Row:
    def settings(context: Context) -> Settings:
        return {"revealed": n, "how": use, **config_settings(context)}

    sources = (*METHOD_SOURCES, "research/bench/first_clicks_table.py")
    if use == "retrained":
        return Row(name, f"{n} revealed", run, settings, sources=sources, cost=DEFAULT_MODEL.cost)
    return Row(name, f"{n} revealed", run, settings, sources=sources, cost=20.0, uses=(DEFAULT_MODEL,))


def first_clicks_table() -> Table:
    """The rows of `metaxc bench oneshot`."""
    return Table(
        "oneshot",
        "what an item's first clicks add without training",
        [
            model_row(DEFAULT, "0 revealed", lambda context: context.default, DEFAULT_MODEL),
            *(_revealed_row(n, use) for n in REVEALED for use in USES),
            _retrained_row(1),
        ],
    )
