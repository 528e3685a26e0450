"""A sentence-transformers encoder that is fine-tuned on the clicks, as its documentation recommends.

Pairs of a training query and an item that it clicked, with mined hard negatives, trained with
`MultipleNegativesRankingLoss` in batches without duplicates. Together with BM25 (`rank_fusion`) it is what a
practitioner would build today without metaxc.

Loss, model and its folder are those of sentence-transformers. Its trainer and `mine_hard_negatives` need the packages
datasets and accelerate, which metaxc does not depend on: the loop is `metaxc.training_loop`, and negatives are mined
here by the rule of `mine_hard_negatives` with a relative margin. A negative is among the `candidates` observed items
nearest to the query by the encoder as it was before training, was not clicked by the query, and its similarity is at
least `margin` × |similarity of the clicked item| below that of the clicked item. Novel items are never negatives: that
nobody has clicked them is no evidence.

Texts pass the model in chunks of similar length, in bfloat16 where the processor has it (as `bf16=True` of
sentence-transformers' training arguments): on a CPU several times as fast as a padded batch in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import csr_array
from torch import Tensor

from metaxc.arrays import Floats, Rows
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.devices import current_device
from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.training.negatives import hardest
from metaxc.encoders.training.trainer import Side
from metaxc.encoders.training.transformer_training import TransformerDualEncoder, has_bfloat16
from metaxc.errors import DataError
from metaxc.training_loop import run_training


class FineTuningConfig(BaseModel):
    """How the encoder is fine-tuned. The values are those of sentence-transformers' examples, except for the steps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(
        300,
        ge=1,
        description="training steps of fine-tuned sentence-transformers: its budget, small by default",
    )
    batch: int = Field(32, ge=2, description="pairs per step; all other items of the batch are negatives")
    negatives: int = Field(1, ge=0, description="mined hard negatives per pair")
    candidates: int = Field(50, ge=1, description="nearest items that negatives are mined from")
    margin: float = Field(
        0.05,
        ge=0,
        description="how far below the clicked item's a negative's similarity must be, relative to it",
    )
    learning_rate: float = Field(2e-5, gt=0, description="AdamW's rate, which falls linearly to 0")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises first")


def fine_tune(
    base: Pretrained, dataset: Dataset, config: FineTuningConfig, folder: Path, seed: int = 0
) -> None:
    """Fine-tune an encoder on the clicks on observed items, and write it as a sentence-transformers folder.

    Args:
        base: The encoder to start from; it stays unchanged.
        dataset: Has the training log.
        config: How it is trained.
        folder: Where it is written.
        seed: Decides the order of the pairs, and the dropout.
    """
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    random = np.random.default_rng(seed)
    observed, query_rows, clicks = training_clicks(dataset)
    items = base.prompts.before_items([dataset.items.texts[row] for row in observed])
    # No more pairs than the steps use, twice: some have no negatives. What is not used need not be encoded.
    pairs = random.permutation(click_pairs(clicks))[: 2 * config.steps * config.batch]
    used, pairs[:, 0] = np.unique(pairs[:, 0], return_inverse=True)
    texts = dataset.train.queries.texts
    queries = base.prompts.before_queries([texts[row] for row in query_rows[used].tolist()])
    negatives = mine_negatives(
        base.encode(queries), base.encode(items), csr_array(clicks[used]), pairs, config
    )
    columns = [queries, *([items] * (1 + config.negatives))]
    rows = np.concatenate([pairs, negatives], axis=1)
    rows = rows[
        (rows >= 0).all(axis=1)
    ]  # a pair without enough negatives is left out, as by mine_hard_negatives
    if len(rows) < 2:
        raise DataError(
            "There is too little to fine-tune an encoder on",
            got=f"{len(rows):,} pairs of a query and a clicked item with {config.negatives} hard negatives",
            expected="two or more",
            fix="use more data, or fewer hard negatives",
        )
    model = base.sentence_transformer().to(current_device())
    loss = MultipleNegativesRankingLoss(model)
    tokenizer = BagTokenizer(base.tokenizer_file, base.max_tokens, special_tokens=True)
    low_precision = has_bfloat16(current_device().type)
    encoder = TransformerDualEncoder(model, tokenizer, queries, items, low_precision=low_precision)
    batches = batches_without_duplicates(columns, rows, config.batch, random)
    item_side: Side = "item"
    sides: list[Side] = ["query", *[item_side] * (1 + config.negatives)]

    def compute_loss(step: int) -> Tensor:
        batch = rows[next(batches)]
        embeddings = [embed_rows(encoder, side, batch[:, place]) for place, side in enumerate(sides)]
        value: Tensor = loss.compute_loss_from_embeddings(embeddings, torch.empty(0))
        return value

    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        run_training(
            compute_loss, [optimizer], config.steps, label="fine-tune the encoder", warmup=config.warmup
        )
    model.eval()
    model.to("cpu").save(str(folder), create_model_card=False)


def embed_rows(encoder: TransformerDualEncoder, side: Side, rows: Rows) -> Tensor:
    """(rows, dim) unit embeddings of texts, with gradients; they pass the model in chunks of similar length."""
    chunks = encoder.chunks(side, rows)
    places = np.argsort(np.concatenate(chunks))
    return torch.cat([encoder.embed(side, rows[chunk]) for chunk in chunks])[torch.from_numpy(places)]


def click_pairs(clicks: csr_array) -> Rows:
    """(pairs, 2) int64: the query and the item of every click."""
    query_rows = np.repeat(np.arange(clicks.shape[0]), np.diff(clicks.indptr))
    return np.stack([query_rows, clicks.indices.astype(np.int64)], axis=1)


def mine_negatives(
    queries: Floats, items: Floats, clicks: csr_array, pairs: Rows, config: FineTuningConfig
) -> Rows:
    """(pairs, negatives) int64: for each pair the most similar items that its query did not click and that are `margin`
    less similar than the pair's item; −1 pads.

    Args:
        queries: (queries, dim) unit embeddings.
        items: (items, dim) unit embeddings.
        clicks: (queries, items).
        pairs: (pairs, 2) rows of queries and of items.
        config: Number of negatives and candidates, and the margin.
    """
    near = hardest(lambda rows: queries[rows] @ items.T, clicks, config.candidates)
    mined = np.full((len(pairs), config.negatives), -1, dtype=np.int64)
    for place, (query, item) in enumerate(pairs.tolist()):
        candidates = near[query][near[query] >= 0]
        clicked = float(queries[query] @ items[item])
        similar = items[candidates] @ queries[query]
        kept = candidates[similar <= clicked - config.margin * abs(clicked)][: config.negatives]
        mined[place, : len(kept)] = kept
    return mined


def batches_without_duplicates(
    columns: Sequence[Sequence[str]], rows: Rows, batch: int, random: np.random.Generator
) -> Iterator[list[int]]:
    """Batches of places in `rows` without end, in a new random order for each pass, such that no text occurs twice in a
    batch: an item that another query of the batch clicked would be a negative of its own query.

    Args:
        columns: The texts of each column.
        rows: (pairs, columns) rows of texts.
        batch: Pairs per batch; a pass ends with smaller ones.
        random: Draws the order.
    """
    while True:
        waiting = random.permutation(len(rows)).tolist()
        while waiting:
            taken: list[int] = []
            later: list[int] = []
            texts: set[str] = set()
            for place, number in enumerate(waiting):
                if len(taken) == batch:
                    later += waiting[place:]
                    break
                own = {column[row] for column, row in zip(columns, rows[number].tolist(), strict=True)}
                if texts & own:
                    later.append(number)
                else:
                    taken.append(number)
                    texts |= own
            waiting = later
            yield taken
