"""The four recipes that the paper's encoders were trained with, each a choice of batches and negatives for the trainer.

- **dpr**: Karpukhin et al., *Dense Passage Retrieval for Open-Domain Question Answering* (EMNLP 2020). Random
  batches, in-batch negatives; `bm25` adds the item that BM25 ranks highest among those that a query did not click.
  The cheapest: a step costs the encoding of its texts. BM25 takes seconds once, its negatives half as much again per
  step.
- **ance**: Xiong et al., *Approximate Nearest Neighbor Negative Contrastive Learning* (ICLR 2021). Adds the items
  that the encoder itself ranks highest although they were not clicked, from an index of all items that is refreshed
  while training. Costs half as much again per step, and an encoding of all items per refresh.
- **ngame**: Dahiya et al., *NGAME: Negative Mining-aware Mini-batching for Extreme Classification* (WSDM 2023). Near
  queries share a batch, so that its items are hard negatives for one another; clusters are refreshed and grow. A step
  costs the same as DPR's; the clusters use embeddings that the steps compute anyway.
- **maclr**: Xiong et al., *Extreme Zero-Shot Learning for Extreme Text Classification* (NAACL 2022). Pre-training on
  pairs from texts alone (`text_pairs`), without clicks; `finetune` spends the second half of the steps on clicks.

All of them share the loss (clicked pairs are never negatives, logQ correction, softmax in both directions) and hold
some observed items out: the validation score is how well the encoder finds them, the best weights are kept, and
whatever is built on the encoder chooses its constants on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.artifacts import atomic_folder, discard_results, json_digest
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.devices import current_device
from metaxc.encoders import DEFAULT
from metaxc.encoders.encoder import EmbeddingCache
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.batches import Batches, ClusteredBatches, RandomBatches
from metaxc.encoders.training.encoder_record import (
    CHECKPOINT_KIND,
    ENCODER_KIND,
    Checkpoint,
    EncoderRecord,
)
from metaxc.encoders.training.negatives import IndexNegatives, ListedNegatives, Negatives, find_by_bm25
from metaxc.encoders.training.text_pairs import build_text_pairs
from metaxc.encoders.training.trainer import DualEncoder, TrainingHistory, Validate, embed_all, train
from metaxc.encoders.training.transformer_training import TransformerDualEncoder, has_bfloat16
from metaxc.index.topk import top_k
from metaxc.metrics import mean_precision_and_recall

MAX_VALIDATION_QUERIES, MAX_VALIDATION_ITEMS = 1_000, 2_000
"""Held-out queries and items of one validation: seconds of encoding on a CPU, and a standard error of 1.5 points."""

CURVE_POINTS = 50


@dataclass(frozen=True)
class _TrainingData:
    """What one run is trained and validated on.

    Args:
        queries: The texts of the training queries, followed by those of the validation queries.
        items: The texts of the training items, followed by those of the validation items.
        clicks: (training queries, training items).
        validation_clicks: (validation queries, validation items).
        query_rows: The rows of the training queries in the data set.
        item_rows: The rows of the training items in the data set.
        held_items: The ids of all items that are held out.
        held_queries: The ids of all queries that are held out.
    """

    queries: list[str]
    items: list[str]
    clicks: csr_array
    validation_clicks: csr_array
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
    overwrite: bool = False,
    fold: Fold | None = None,
    stop_after: int | None = None,
    checkpoints: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> EncoderRecord:
    """Train a transformer on a data set's observed clicks and write it as a sentence-transformers folder.

    A run that was killed resumes from its last checkpoint when it is called again, and ends with the same weights.

    Args:
        dataset: A data set with its novel items marked; their clicks are not used.
        config: The recipe and its settings.
        out: The folder to write: a new or empty one.
        base: The weights to start from.
        cache: Keeps the embeddings by those weights.
        overwrite: Whether an encoder that was trained into that folder is replaced; anything else there never is.
        fold: What is held out, in place of the share `config.holdout` at random.
        stop_after: Steps after which training ends, if that is before the learning rate has fallen to 0.
        checkpoints: The folder for checkpoints; `OUT.checkpoint` when None.
        report: Called with one line per stage.
    """
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    pretrained = Pretrained(base, cache, "auto", texts=texts)
    data = _hold_out(dataset, config, fold)
    steps = config.planned_steps(data.clicks.shape[0])
    report(
        f"train on {data.clicks.nnz:,} clicks of {data.clicks.shape[0]:,} queries on {data.clicks.shape[1]:,} items; "
        f"{len(data.held_items):,} items held out, {data.validation_clicks.shape[1]:,} of them for validation"
    )
    determines = [dataset.fingerprint, config.model_dump(), pretrained.weights, torch.get_num_threads()]
    key = json_digest([*determines, data.held_items, data.held_queries, stop_after])
    sentence_transformer = pretrained.sentence_transformer()
    checkpoints = checkpoints or out.with_name(f"{out.name}.checkpoint")
    schedule = _Schedule(steps, stop_after, checkpoints, key)
    history = _run_stages(sentence_transformer, pretrained, dataset, data, config, schedule, report)
    record = EncoderRecord(
        recipe=config.model_dump(),
        base=pretrained.weights,
        data=dataset.fingerprint,
        learnt_from_clicks=config.recipe != "maclr" or config.options.finetune,
        held_items=data.held_items,
        held_queries=data.held_queries,
        steps=steps,
        losses=_mean_losses(history.losses),
        validation=history.validation,
    )
    if int(os.environ.get("RANK", "0")) == 0:
        sentence_transformer.max_seq_length = min(
            config.max_tokens, sentence_transformer.max_seq_length or 512
        )
        if pretrained.prompts:
            prompts = {"query": pretrained.prompts.query, "document": pretrained.prompts.item}
            sentence_transformer.prompts = prompts
        with atomic_folder(out, ENCODER_KIND, overwrite=overwrite) as new:
            sentence_transformer.save(str(new), create_model_card=False)
            record.write(new)
        discard_results(checkpoints, CHECKPOINT_KIND)
    return record


def _hold_out(dataset: Dataset, config: EncoderTraining, fold: Fold | None) -> _TrainingData:
    """Split the observed clicks into those to train on and those held out for validation."""
    observed, query_rows, clicks = training_clicks(dataset)
    nothing = Fold(np.zeros(len(observed), dtype=bool), np.zeros(len(query_rows), dtype=bool))
    if fold is None and config.holdout:
        fold = Fold.draw(clicks, config.seed, config.holdout)
    fold = fold or nothing
    train_queries, train_clicks = fold.training(clicks)
    train_items = fold.observed
    held, judged = fold.validation(clicks)
    random = np.random.default_rng([config.seed, 1])
    validation_items = np.sort(random.permutation(fold.novel)[:MAX_VALIDATION_ITEMS])
    judged = csr_array(judged[:, validation_items])
    with_clicks = np.flatnonzero(np.diff(judged.indptr) > 0)
    validating = np.sort(random.permutation(with_clicks)[:MAX_VALIDATION_QUERIES])
    validation_queries = held[validating]
    queries, items = dataset.train.queries, dataset.items
    return _TrainingData(
        [queries.texts[query_rows[row]] for row in np.concatenate([train_queries, validation_queries])],
        [items.texts[observed[row]] for row in np.concatenate([train_items, validation_items])],
        train_clicks,
        csr_array(judged[validating]),
        query_rows[train_queries],
        observed[train_items],
        [items.ids[row] for row in observed[fold.pseudo_novel]],
        [queries.ids[row] for row in query_rows[fold.held]],
    )


@dataclass(frozen=True)
class _Schedule:
    """How long a run trains, and where it can be resumed from.

    Args:
        steps: Steps in which the learning rate falls to 0.
        stop_after: Steps after which it ends all the same; None for all.
        checkpoints: The folder for checkpoints.
        key: Identifies everything that decides the run.
    """

    steps: int
    stop_after: int | None
    checkpoints: Path
    key: str


def _run_stages(
    model: Any,
    pretrained: Pretrained,
    dataset: Dataset,
    data: _TrainingData,
    config: EncoderTraining,
    schedule: _Schedule,
    report: Callable[[str], None],
) -> TrainingHistory:
    """Pre-training on text pairs and training on clicks, as the recipe has them; each with a checkpoint of its own."""
    tokenizer = BagTokenizer(pretrained.tokenizer_file, config.max_tokens, special_tokens=True)
    history = TrainingHistory()

    def run(
        queries: list[str], items: list[str], clicks: csr_array, batches: Batches, steps: int, **parts: Any
    ) -> None:
        encoder = TransformerDualEncoder(
            model,
            tokenizer,
            pretrained.prompts.before_queries(queries),
            pretrained.prompts.before_items(items),
            scale=config.scale,
            low_precision=has_bfloat16(current_device().type),
        ).to(current_device())
        name = f"{len(history.losses)}-{steps}"
        checkpoint = Checkpoint(schedule.checkpoints / name, json_digest([schedule.key, name]))
        stage = train(
            encoder,
            clicks,
            batches,
            config.trainer_config(steps, schedule.stop_after),
            checkpoint=checkpoint,
            seed=config.seed,
            **parts,
        )
        history.validation += [(len(history.losses) + step, score) for step, score in stage.validation]
        history.losses += stage.losses

    click_steps = schedule.steps
    if config.recipe == "maclr":
        text_steps = click_steps // 2 if config.options.finetune else click_steps
        click_steps -= text_steps
        queries, items = data.queries[: data.clicks.shape[0]], data.items[: data.clicks.shape[1]]
        most = text_steps * config.batch // 3 + 1
        pairs = build_text_pairs(queries, items, most=most, seed=config.seed)
        report(f"pre-train on {pairs.clicks.nnz:,} pairs built from texts alone")
        batches = RandomBatches(len(pairs.queries), config.batch, config.seed)
        run(pairs.queries, pairs.items, pairs.clicks, batches, text_steps)
    if click_steps:
        validate = _build_validation(data) if data.validation_clicks.shape[0] else None
        click_batches, negatives = _choose_parts(pretrained, dataset, data, config, click_steps)
        run(
            data.queries,
            data.items,
            data.clicks,
            click_batches,
            click_steps,
            negatives=negatives,
            validate=validate,
        )
    return history


def _choose_parts(
    pretrained: Pretrained, dataset: Dataset, data: _TrainingData, config: EncoderTraining, steps: int
) -> tuple[Batches, Negatives | None]:
    """The batches and the hard negatives of a recipe."""
    options, seed = config.options, config.seed
    number_of_queries, number_of_items = data.clicks.shape
    refresh = max(1, steps // options.refreshes)
    random = RandomBatches(number_of_queries, config.batch, seed)
    if config.recipe == "ngame":
        # Encodes all texts, as training a model on the same base does, so that both find them in the cache.
        start = pretrained.encode_queries(dataset.train.queries.texts)[data.query_rows]
        return ClusteredBatches(
            start, config.batch, steps, cluster=options.cluster, refresh=refresh, seed=seed
        ), None
    if config.recipe == "ance" and options.negatives:
        start = pretrained.encode_items(dataset.items.texts)[data.item_rows]
        return random, IndexNegatives(
            start, data.clicks, per_query=options.negatives, refresh=refresh, seed=seed
        )
    if config.recipe == "dpr" and options.bm25 and options.negatives:
        listed = find_by_bm25(data.queries[:number_of_queries], data.items[:number_of_items], data.clicks)
        return random, ListedNegatives(listed, options.negatives, seed)
    return random, None


def _build_validation(data: _TrainingData) -> Validate:
    """The validation score: the mean of P@1 and R@10, percent, of held-out queries among held-out items."""
    first_query, first_item = data.clicks.shape
    queries, items = data.validation_clicks.shape

    def validate(encoder: DualEncoder) -> float:
        query_embeddings = embed_all(encoder, "query", np.arange(first_query, first_query + queries))
        item_embeddings = embed_all(encoder, "item", np.arange(first_item, first_item + items))
        ranked = top_k(query_embeddings, item_embeddings, min(10, items))[0]
        return sum(mean_precision_and_recall(ranked, data.validation_clicks, 10)) / 2

    return validate


def _mean_losses(losses: list[float]) -> list[float]:
    spans = np.array_split(np.asarray(losses), min(CURVE_POINTS, max(len(losses), 1)))
    return [round(float(span.mean()), 4) for span in spans if len(span)]
