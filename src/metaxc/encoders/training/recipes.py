"""The four recipes of the paper's encoders, each a choice of parts for the one trainer.

- **dpr**: Karpukhin et al., *Dense Passage Retrieval for Open-Domain Question Answering* (EMNLP 2020). Random batches,
  the other items of the batch are the negatives; `bm25` adds the best item by BM25 that a query did not click. The
  cheapest: a step costs its texts. BM25's lists cost seconds once, its negatives half as much again per step.
- **ance**: Xiong et al., *Approximate Nearest Neighbor Negative Contrastive Learning* (ICLR 2021). Adds the items that
  the encoder itself ranks highest though they were not clicked, from an index of all items refreshed while training.
  Costs half as much again per step, and an encoding of all items per refresh.
- **ngame**: Dahiya et al., *NGAME: Negative Mining-aware Mini-batching for Extreme Classification* (WSDM 2023). Near
  queries share a batch, so that its items are hard negatives for one another; clusters are refreshed and grow. A step
  costs what DPR's does; the clusters are made from embeddings that the steps leave behind.
- **maclr**: Xiong et al., *Extreme Zero-Shot Learning for Extreme Text Classification* (NAACL 2022). Pre-training on
  pairs made from texts alone (`texts_alone`), needing no clicks; `finetune` spends the second half on clicks.

In all of them pairs that were clicked are never negatives, popular items are excused, the softmax runs in both
directions, and some observed items are held out: the encoder is judged by how well it finds them, the best weights
stay, and what is built on it chooses its constants on them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.artifacts import atomic_folder, json_digest
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.encoders.cache import EmbeddingCache
from metaxc.encoders.pretrained import DEFAULT, Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.training.batches import Batches, ClusteredBatches, RandomBatches
from metaxc.encoders.training.checkpoint import Checkpoint
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.encoders.training.negatives import IndexNegatives, ListedNegatives, Negatives, best_by_bm25
from metaxc.encoders.training.sides import Sides, TransformerSides
from metaxc.encoders.training.texts_alone import pairs_from_texts
from metaxc.encoders.training.trainer import Judge, Trained, TrainingConfig, embed_all, train
from metaxc.index.topk import top_k
from metaxc.metrics import hits, recall, relevant_counts

MOST_JUDGES, MOST_JUDGED = 400, 1_000
"""Held-out queries and items that judge while training: a few seconds of encoding on a CPU."""

CURVE_POINTS = 50


class EncoderTraining(BaseModel):
    """How `metaxc encoder train` trains. The defaults are for minutes of a CPU; on a GPU raise steps and batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: Literal["dpr", "ance", "ngame", "maclr"] = Field("dpr", description="see the recipes")
    steps: int = Field(300, ge=1, description="of training")
    batch: int = Field(128, ge=2, description="pairs per step; every other item of the batch is a negative")
    learning_rate: float = Field(
        1e-4, gt=0, description="Adam's: rises in a tenth of the steps, then falls to 0"
    )
    scale: float = Field(20.0, gt=0, description="of the logits at the start; learnt")
    max_tokens: int = Field(64, ge=4, description="of a text; the trained encoder cuts texts there too")
    negatives: int = Field(1, ge=0, description="hard negatives per query, of ance and of dpr with bm25")
    bm25: bool = Field(False, description="dpr: hard negatives by BM25")
    refreshes: int = Field(4, ge=1, description="of ance's index or ngame's clusters")
    cluster: int = Field(32, ge=1, description="ngame: near queries that share a batch, at the end")
    finetune: bool = Field(False, description="maclr: the second half of the steps on clicks, as dpr")
    holdout: float = Field(
        0.1, ge=0, lt=1, description="share of observed items and queries held out to judge by"
    )
    seed: int = Field(0, ge=0, description="of everything random")

    def training(self, steps: int) -> TrainingConfig:
        """For the trainer."""
        return TrainingConfig(
            steps=steps, learning_rate=self.learning_rate, warmup=0.1, judge_every=max(1, -(-steps // 4))
        )


@dataclass(frozen=True)
class _Material:
    """What one run learns from and is judged by.

    Args:
        queries: Texts to learn from, and behind them those of the judges.
        items: Likewise.
        clicks: Of the queries and items to learn from,
        judging: of the judges.
        dataset: Where they come from,
        query_rows: and the rows of those to learn from
        item_rows: in it.
        held_items: Ids of all that was held out.
        held_queries: Likewise.
    """

    queries: list[str]
    items: list[str]
    clicks: csr_array
    judging: csr_array
    dataset: Dataset
    query_rows: Rows
    item_rows: Rows
    held_items: list[str]
    held_queries: list[str]


def train_encoder(
    dataset: Dataset,
    config: EncoderTraining,
    out: Path,
    *,
    base: str | Path = DEFAULT,
    cache: EmbeddingCache | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> EncoderRecord:
    """Train a transformer on a data set's observed clicks and write it as a sentence-transformers folder.

    Killed and called again it goes on from its last checkpoint (`OUT.checkpoint`), and ends with the same weights.

    Args:
        dataset: With its novel items marked; nothing of their clicks is looked at.
        config: How.
        out: The folder to write.
        base: The weights to start from.
        cache: Where embeddings by those weights are kept.
        report: Called with one line per stage.
    """
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    pretrained = Pretrained(base, cache, "auto", texts=texts)
    material = _material(dataset, config)
    report(
        f"learn from {material.clicks.nnz:,} clicks of {material.clicks.shape[0]:,} queries on "
        f"{material.clicks.shape[1]:,} items; {len(material.held_items):,} items held out, "
        f"{material.judging.shape[1]:,} of them to judge by"
    )
    key = json_digest([dataset.fingerprint, config.model_dump(), pretrained.weights, torch.get_num_threads()])
    sentence_transformer = pretrained.sentence_transformer()
    checkpoints = out.with_name(f"{out.name}.checkpoint")
    trained = _train(sentence_transformer, pretrained, material, config, checkpoints, key, report)
    clicked = config.recipe != "maclr" or config.finetune
    record = EncoderRecord(
        recipe=config.model_dump(),
        base=pretrained.weights,
        data=dataset.fingerprint,
        learnt_from_clicks=clicked,
        held_items=material.held_items,
        held_queries=material.held_queries,
        losses=_curve(trained.losses),
        judged=trained.judged,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        sentence_transformer.max_seq_length = min(
            config.max_tokens, sentence_transformer.max_seq_length or 512
        )
        with atomic_folder(out) as new:
            sentence_transformer.save(str(new), create_model_card=False)
            record.write(new)
        shutil.rmtree(checkpoints, ignore_errors=True)
    return record


def _material(dataset: Dataset, config: EncoderTraining) -> _Material:
    observed, query_rows, clicks = training_clicks(dataset)
    nobody = Fold(np.zeros(len(observed), dtype=bool), np.zeros(len(query_rows), dtype=bool))
    fold = (Fold.draw(clicks, config.seed, config.holdout) if config.holdout else None) or nobody
    learnt, learnt_clicks = fold.training(clicks)
    seen, held = np.flatnonzero(~fold.pseudo_novel), np.flatnonzero(fold.held)
    random = np.random.default_rng([config.seed, 1])
    judged = np.sort(random.permutation(np.flatnonzero(fold.pseudo_novel))[:MOST_JUDGED])
    some = held[np.diff(csr_array(clicks[held][:, judged]).indptr) > 0]
    judges = np.sort(random.permutation(some)[:MOST_JUDGES])
    queries, items = dataset.train.queries, dataset.items
    return _Material(
        [queries.texts[query_rows[row]] for row in np.concatenate([learnt, judges])],
        [items.texts[observed[row]] for row in np.concatenate([seen, judged])],
        learnt_clicks,
        csr_array(clicks[judges][:, judged]),
        dataset,
        query_rows[learnt],
        observed[seen],
        [items.ids[row] for row in observed[fold.pseudo_novel]],
        [queries.ids[row] for row in query_rows[fold.held]],
    )


def _train(
    model: Any,
    pretrained: Pretrained,
    material: _Material,
    config: EncoderTraining,
    checkpoints: Path,
    key: str,
    report: Callable[[str], None],
) -> Trained:
    """Pre-training and fine-tuning, as the recipe has it; each with a checkpoint of its own."""
    tokenizer = BagTokenizer(pretrained.tokenizer_file, config.max_tokens, special_tokens=True)
    learnt, seen = material.clicks.shape
    queries, items = material.queries[:learnt], material.items[:seen]
    trained = Trained()

    def run(sides: TransformerSides, clicks: csr_array, batches: Batches, steps: int, **parts: Any) -> None:
        name = f"{len(trained.losses)}-{steps}"
        place = Checkpoint(checkpoints / name, json_digest([key, name]))
        done = train(
            sides, clicks, batches, config.training(steps), checkpoint=place, seed=config.seed, **parts
        )
        trained.judged += [(len(trained.losses) + step, value) for step, value in done.judged]
        trained.losses += done.losses

    def sides_of(query_texts: list[str], item_texts: list[str]) -> TransformerSides:
        return TransformerSides(
            model, tokenizer, query_texts, item_texts, scale=config.scale, low_precision=has_bfloat16()
        ).to(device_to_train_on())

    judge = _judge(material) if material.judging.shape[0] else None
    clicked_steps = config.steps
    if config.recipe == "maclr":
        alone = config.steps // 2 if config.finetune else config.steps
        clicked_steps = config.steps - alone
        pairs = pairs_from_texts(queries, items, most=alone * config.batch // 3 + 1, seed=config.seed)
        report(f"pre-train on {pairs.clicks.nnz:,} pairs made from texts alone")
        sides = sides_of(pairs.queries, pairs.items)
        run(sides, pairs.clicks, RandomBatches(len(pairs.queries), config.batch, config.seed), alone)
    if clicked_steps:
        sides = sides_of(material.queries, material.items)
        batches, negatives = _parts(pretrained, material, config, clicked_steps)
        run(sides, material.clicks, batches, clicked_steps, negatives=negatives, judge=judge)
    return trained


def _parts(
    pretrained: Pretrained, material: _Material, config: EncoderTraining, steps: int
) -> tuple[Batches, Negatives | None]:
    """What the recipe is made of."""
    learnt, seen = material.clicks.shape
    refresh = max(1, steps // config.refreshes)
    random = RandomBatches(learnt, config.batch, config.seed)
    if config.recipe == "ngame":
        # The whole list, as training a model on the same base encodes it: found in the cache where that was done.
        start = pretrained.encode_queries(material.dataset.train.queries.texts)[material.query_rows]
        return ClusteredBatches(
            start, config.batch, steps, cluster=config.cluster, refresh=refresh, seed=config.seed
        ), None
    if config.recipe == "ance" and config.negatives:
        start = pretrained.encode_items(material.dataset.items.texts)[material.item_rows]
        return random, IndexNegatives(
            start, material.clicks, per_query=config.negatives, refresh=refresh, seed=config.seed
        )
    if config.recipe == "dpr" and config.bm25 and config.negatives:
        listed = best_by_bm25(material.queries[:learnt], material.items[:seen], material.clicks)
        return random, ListedNegatives(listed, config.negatives, config.seed)
    return random, None


def _judge(material: _Material) -> Judge:
    """Zero-shot R@10, percent, of held-out queries among held-out items."""
    learnt, seen = material.clicks.shape
    judges, judged = material.judging.shape

    def judge(sides: Sides) -> float:
        queries = embed_all(sides, "query", np.arange(learnt, learnt + judges))
        items = embed_all(sides, "item", np.arange(seen, seen + judged))
        ranked = top_k(queries, items, min(10, judged))[0]
        found = recall(hits(ranked, material.judging), relevant_counts(material.judging), 10)
        return 100 * float(found.mean())

    return judge


def has_bfloat16() -> bool:
    """Whether this machine multiplies bfloat16 faster than float32: most GPUs, and CPUs with AVX-512 BF16 or AMX."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def device_to_train_on() -> torch.device:
    """The GPU of this process, where there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def _curve(losses: list[float]) -> list[float]:
    spans = np.array_split(np.asarray(losses), min(CURVE_POINTS, max(len(losses), 1)))
    return [round(float(span.mean()), 4) for span in spans if len(span)]
