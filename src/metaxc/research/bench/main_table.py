"""The main table, and the same systems with more novel items.

The main table compares metaxc with everything that a user could try instead, on the frozen and on the adapted encoder,
and with oracles. An *oracle* gives each novel item a classifier from its own hidden training clicks, as if it were
observed: what knowing an item's clicks could still add, with the same encoder and the same constants.

The novel-ratio table has 10 to 40 percent novel items, each set contained in the next larger one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Mask
from metaxc.classifiers import ridge
from metaxc.data import Dataset
from metaxc.data.clicks import weighted_clicks
from metaxc.emmett import Emmett
from metaxc.evaluation.searches import BARE_ENCODER, Search, encoder_search, model_search
from metaxc.irene import SIZES, Irene
from metaxc.research.bench.context import Context
from metaxc.research.bench.rows import (
    ADAPTED,
    DEFAULT,
    DEFAULT_MODEL,
    FINE_TUNED,
    FROZEN,
    FROZEN_MODEL,
    ORACLE,
    SIZES_GROUP,
    TERMS,
    Row,
    RowResult,
    Settings,
    SharedModel,
    Table,
    baseline_row,
    config_row,
    config_settings,
    encoder_row,
    evaluate_row,
    fine_tuned_row,
    fused_row,
    model_row,
    with_vectors,
)
from metaxc.research.code_version import MODEL_SOURCES

BARE = BARE_ENCODER
ORACLE_ADAPTED, ORACLE_FROZEN = "oracle (adapted)", "oracle (frozen)"
RATIOS = (10, 20, 30, 40)
SIZE_COST = {"fast": 400.0, "best": 3_000.0}
SOURCE = "research/bench/main_table.py"
"""This file, which decides what an oracle and a share of novel items are."""

RATIO_SYSTEMS = (BARE, "adapted encoder alone", DEFAULT)


def oracle_vectors(model: Emmett, dataset: Dataset) -> Floats:
    """(items, dim + 1) float32: the model's vectors, but each novel item with training clicks as an observed one, with
    a ridge classifier from all training clicks, the hidden ones included."""
    clicks = weighted_clicks(dataset.train)
    queries = model.embed_queries(model.encoder.encode_queries(dataset.train.queries.texts))
    with_click = np.flatnonzero(np.diff(clicks.indptr) > 0)
    classifiers = ridge(queries[with_click], csr_array(clicks[with_click]))
    hidden = np.flatnonzero(dataset.novel_mask & (classifiers.clicks > 0))
    embeddings = model.encoder.encode_items(dataset.items.texts)[hidden]
    vectors = model.vectors.copy()
    texts = [dataset.items.texts[row] for row in hidden.tolist()]
    vectors[hidden] = model.pipeline.vectors(embeddings, texts=texts, classifiers=classifiers.take(hidden))
    return vectors


def _oracle_row(name: str, model: Callable[[Context], Emmett], shared: SharedModel, **changes: Any) -> Row:
    def run(context: Context) -> RowResult:
        trained, dataset = model(context), context.dataset

        def build_search() -> Search:
            return model_search(with_vectors(trained, oracle_vectors(trained, dataset)), dataset)

        return evaluate_row(build_search, dataset, "uses the novel items' own training clicks")

    def settings(context: Context) -> Settings:
        return {"oracle": True, **config_settings(context, **changes)}

    return Row(name, ORACLE, run, settings, sources=(*MODEL_SOURCES, SOURCE), cost=20.0, uses=(shared,))


def main_table() -> Table:
    """The rows of `metaxc bench main`."""
    paper, paper_frozen = (
        irene.config.model_dump(exclude={"base", "seed"})
        for irene in (Irene.paper(), Irene.paper(fine_tuning=None))
    )
    on_encoders = [
        ("NGAME as served", "NGAME"),
        ("DEXA", "DEXA"),
        ("ESZSL", "ESZSL"),
        ("neighbour kernel", "Neighbour kernel"),
    ]
    return Table(
        "main",
        "metaxc compared with other methods and with oracles",
        [
            model_row(DEFAULT, ADAPTED, lambda context: context.default, DEFAULT_MODEL),
            *(
                config_row(f"metaxc --size {name}", SIZES_GROUP, size, cost=SIZE_COST[name])
                for name, size in SIZES.items()
                if size
            ),
            config_row("metaxc --fine-tuning 0", SIZES_GROUP, {"fine_tuning": None}, cost=300.0),
            encoder_row("adapted encoder alone", ADAPTED),
            *(baseline_row(f"{name} (adapted)", kind, ADAPTED, ADAPTED) for name, kind in on_encoders),
            encoder_row(BARE, FROZEN),
            fused_row(f"{BARE} + BM25 (RRF)", FROZEN, FROZEN),
            fine_tuned_row("fine-tuned sentence-transformers"),
            fused_row("fine-tuned sentence-transformers + BM25 (RRF)", FINE_TUNED, FINE_TUNED),
            *(baseline_row(f"{name} (frozen)", kind, FROZEN, FROZEN) for name, kind in on_encoders),
            config_row("IRENE as in the paper", FINE_TUNED, paper, cost=1800.0),
            config_row("IRENE as in the paper (frozen)", FROZEN, paper_frozen, cost=1800.0),
            model_row(
                "metaxc (frozen)", FROZEN, lambda context: context.frozen, FROZEN_MODEL, encoder="pretrained"
            ),
            _oracle_row(ORACLE_ADAPTED, lambda context: context.default, DEFAULT_MODEL),
            _oracle_row(ORACLE_FROZEN, lambda context: context.frozen, FROZEN_MODEL, encoder="pretrained"),
            baseline_row("TF-IDF", "TF-IDF", TERMS),
            baseline_row("BM25", "BM25", TERMS),
            baseline_row("ZestXML", "ZestXML", TERMS),
            baseline_row("SemSup-XC", "SemSup-XC", TERMS, FROZEN),
        ],
    )


def with_novel_ratio(dataset: Dataset, percent: int, seed: int) -> Dataset:
    """The data set with that share of its clicked items novel.

    The sets of one seed are nested. Where the data set's own novel items are 9 to 11 percent, they are the 10 percent
    set.
    """
    clicked: Mask = np.zeros(len(dataset.items), dtype=bool)
    for log in (dataset.train, dataset.test):
        if log is not None:
            clicked[log.clicks.indices] = True
    order = np.random.default_rng(seed).permutation(np.flatnonzero(clicked))
    own = np.zeros_like(clicked) if dataset.novel is None else dataset.novel
    if 9 <= 100 * own.sum() / clicked.sum() <= 11:
        if percent == RATIOS[0]:
            return dataset
        order = np.concatenate([np.flatnonzero(own), order[~own[order]]])
    novel = np.zeros_like(clicked)
    novel[order[: round(percent / 100 * clicked.sum())]] = True
    return dataset.with_novel(novel)


def _ratio_row(percent: int, system: str) -> Row:
    def run(context: Context) -> RowResult:
        dataset = with_novel_ratio(context.dataset, percent, context.config.seed)

        def build_search() -> Search:
            if system == BARE:
                return encoder_search(context.bare, dataset)
            model = context.model(context.changed(folds=min(1, context.config.folds)), dataset)
            by_model = system == DEFAULT
            return model_search(model, dataset) if by_model else encoder_search(model.encoder, dataset)

        novel, items = int(dataset.novel_mask.sum()), len(dataset.items)
        note = f"{novel:,} of {items:,} items novel; constants tuned on one fold"
        return evaluate_row(build_search, dataset, note)

    def settings(context: Context) -> Settings:
        return {"novel percent": percent, "system": system, **config_settings(context)}

    # Each ratio trains an encoder and a model of its own; the larger ratios leave fewer clicks to train on.
    shared = () if system == BARE else (SharedModel(f"{percent} % novel", 250.0),)
    return Row(
        f"{system}, {percent} % novel",
        f"{percent} % novel",
        run,
        settings,
        other_split=True,
        sources=(*MODEL_SOURCES, SOURCE),
        cost=10.0,
        uses=shared,
    )


def novel_ratio_table() -> Table:
    """The rows of `metaxc bench novel-ratio`."""
    rows = [_ratio_row(percent, system) for percent in RATIOS for system in RATIO_SYSTEMS]
    return Table("novel-ratio", "accuracy with a growing share of novel items", rows)
