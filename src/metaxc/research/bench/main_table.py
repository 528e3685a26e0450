"""The main table: everything a user would try instead, on the frozen and on the adapted encoder, and oracles.

An *oracle* gives each novel item a classifier of its own from its own hidden training clicks, as if it were observed:
what is left to gain by knowing an item's clicks, with the same encoder and the same constants.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.classifiers import ridge
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.emmett.scoring import observed_vectors
from metaxc.evaluation.protocol import evaluate
from metaxc.evaluation.searches import model_search
from metaxc.irene import SIZES, Irene
from metaxc.research.bench.context import Context
from metaxc.research.bench.makers import (
    ADAPTED,
    DEFAULT,
    FROZEN,
    ORACLE,
    SIZED,
    TERMS,
    alone,
    baseline,
    kept_model,
    recipe,
    recipe_of,
    with_vectors,
)
from metaxc.research.bench.rows import Outcome, Row, Table

BARE = "bare encoder"
ORACLE_ADAPTED, ORACLE_FROZEN = "oracle (adapted)", "oracle (frozen)"


def oracle_vectors(model: Emmett, dataset: Dataset) -> Floats:
    """(items, dim) float32: the model's items, but each novel item with training clicks as an observed one:
    w a ridge regression on all training clicks, the hidden ones included."""
    clicks = dataset.train.clicks
    queries = model.embed_queries(model.encoder.encode_queries(dataset.train.queries.texts))
    asked = np.flatnonzero(np.diff(clicks.indptr) > 0)
    everything = ridge(queries[asked], csr_array(clicks[asked]))
    known = np.flatnonzero(dataset.novel_mask & (everything.clicks > 0))
    embeddings = model.encoder.encode_items(dataset.items.texts)[known]
    vectors = model.vectors.copy()
    vectors[known] = observed_vectors(embeddings, everything.take(known), model.calibration)
    return vectors


def _oracle(name: str, model: Callable[[Context], Emmett], **changes: Any) -> Row:
    def run(context: Context) -> Outcome:
        made = model(context)
        started = time.perf_counter()
        oracle = with_vectors(made, oracle_vectors(made, context.dataset))
        seconds = time.perf_counter() - started
        found = evaluate(model_search(oracle, context.dataset), context.dataset)
        return Outcome.of(found, seconds, "sees the novel items' own training clicks")

    return Row(name, ORACLE, run, lambda context: {"oracle": True, **recipe_of(context, **changes)})


def main_table() -> Table:
    """The rows of `metaxc bench main`."""
    paper = Irene.paper().config.model_dump(exclude={"base", "seed"}) | {"folds": 1}
    on_either = [
        ("NGAME as served", "NGAME"),
        ("DEXA", "DEXA"),
        ("ESZSL", "ESZSL"),
        ("neighbour kernel", "NeighbourKernel"),
    ]
    return Table(
        "main",
        "metaxc beside what a user would try instead, and beside oracles",
        [
            kept_model(DEFAULT, ADAPTED, lambda context: context.default),
            *(recipe(f"metaxc --size {name}", SIZED, size) for name, size in SIZES.items() if size),
            alone("adapted encoder alone", ADAPTED),
            *(baseline(f"{name} (adapted)", kind, ADAPTED, ADAPTED) for name, kind in on_either),
            alone(BARE, FROZEN),
            *(baseline(f"{name} (frozen)", kind, FROZEN, FROZEN) for name, kind in on_either),
            recipe("IRENE as in the paper", FROZEN, paper),
            kept_model("metaxc (frozen)", FROZEN, lambda context: context.frozen, encoder="pretrained"),
            _oracle(ORACLE_ADAPTED, lambda context: context.default),
            _oracle(ORACLE_FROZEN, lambda context: context.frozen, encoder="pretrained"),
            baseline("TF-IDF", "TfIdf", TERMS),
            baseline("BM25", "BM25", TERMS),
            baseline("ZestXML", "ZestXML", TERMS),
            baseline("SemSup-XC", "SemSupXC", TERMS, FROZEN),
        ],
    )
