"""The first clicks of a new item: what n revealed queries add, without training, and what training again would.

The queries are drawn from a novel item's own hidden *training* clicks, the same first ones for every n; an item with
fewer gives what it has. Test queries are the same in all rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_array, csr_array

from metaxc.arrays import Rows
from metaxc.data import Dataset
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import model_search
from metaxc.research.bench.context import Context
from metaxc.research.bench.makers import (
    DEFAULT,
    baseline_class,
    kept_model,
    recipe_of,
    search_of,
    with_vectors,
)
from metaxc.research.bench.rows import Outcome, Row, Table

REVEALED = (1, 2, 5)
HOW = {"votes": (True, False), "evidence": (False, True), "both": (True, True)}
"""Whether the revealed queries vote for the neighbours, and whether they count as evidence of the item's own."""


def reveal(dataset: Dataset, n: int, seed: int) -> list[Rows]:
    """Per novel item (in the order of `dataset.novel_rows`) the rows of at most n training queries that clicked it,
    drawn at random; those of a smaller n are the first of those of a larger one."""
    hidden = csc_array(dataset.train.clicks[:, dataset.novel_rows])
    random = np.random.default_rng(seed)
    spans = zip(hidden.indptr[:-1], hidden.indptr[1:], strict=True)
    return [random.permutation(np.sort(hidden.indices[a:b])).astype(np.int64)[:n] for a, b in spans]


def _told(drawn: Sequence[Rows], n: int) -> str:
    lengths = np.asarray([len(rows) for rows in drawn])
    return (
        f"{n} revealed to {int((lengths == n).sum()):,} of {len(lengths):,} novel items, fewer to "
        f"{int(((lengths > 0) & (lengths < n)).sum()):,}, none to {int((lengths == 0).sum()):,}"
    )


def _row(n: int, how: str) -> Row:
    votes, evidence = HOW[how]

    def run(context: Context) -> Outcome:
        dataset, model = context.dataset, context.default
        drawn = reveal(dataset, n, context.config.seed)
        started = time.perf_counter()
        queries = model.encoder.encode_queries(dataset.train.queries.texts)
        novel = dataset.novel_rows
        vectors = model.vectors.copy()
        vectors[novel] = model.represent(
            np.asarray(model.encoder.encode_items(dataset.items.texts)[novel]),
            [np.asarray(queries[rows]) for rows in drawn],
            votes=votes,
            evidence=evidence,
        )
        seconds = time.perf_counter() - started
        found = evaluate(model_search(with_vectors(model, vectors), dataset), dataset)
        return Outcome.of(found, seconds, _told(drawn, n))

    return Row(
        f"{how} of {n}",
        f"{n} revealed",
        run,
        lambda context: {"revealed": n, "how": how, **recipe_of(context)},
    )


def _retrained(n: int) -> Row:
    def run(context: Context) -> Outcome:
        dataset = context.dataset
        drawn = reveal(dataset, n, context.config.seed)
        shape = dataset.train.clicks.shape
        columns = np.repeat(dataset.novel_rows, [len(rows) for rows in drawn])
        ones = np.ones(len(columns), np.float32)
        revealed = csr_array((ones, (np.concatenate(drawn), columns)), shape=shape)
        started = time.perf_counter()
        recipe = context.irene(context.config)
        scorer = baseline_class("Retrained")(recipe, revealed=revealed).fit(dataset)
        seconds = time.perf_counter() - started
        return Outcome.of(evaluate(search_of(scorer, context), dataset), seconds, _told(drawn, n))

    return Row(
        f"trained again with {n}",
        f"{n} revealed",
        run,
        lambda context: {"revealed": n, "how": "retrained", **recipe_of(context)},
    )


def oneshot_table() -> Table:
    """The rows of `metaxc bench oneshot`."""
    return Table(
        "oneshot",
        "what an item's first clicks add, without training",
        [
            kept_model(DEFAULT, "0 revealed", lambda context: context.default),
            *(_row(n, how) for n in REVEALED for how in HOW),
            _retrained(1),
        ],
    )
