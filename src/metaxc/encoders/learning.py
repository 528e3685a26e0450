"""Encoders as model training uses them: learn from some of the clicks, then embed all texts with the result.

Model training calls `Encoding.learn` once per fold, without the fold's pseudo-novel items, to choose constants, and
once more on all observed items. Frozen embeddings and tokens, which do not depend on the clicks, are computed once.
`CachedEncoding` keeps trained encoders on disk, so that models that differ in everything else train each encoder
once.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import json_digest, reuse_or_build
from metaxc.data import Dataset
from metaxc.devices import current_device, to_device
from metaxc.encoders import word_matches
from metaxc.encoders.adapted import Adapted, Static, TwoTowers, build_static_towers
from metaxc.encoders.encoder import Encoder
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags, count_bigrams
from metaxc.encoders.training import MOST_STEPS, AdapterConfig, TrainingConfig
from metaxc.encoders.training.batches import Batches, ClusteredBatches, RandomBatches
from metaxc.encoders.training.negatives import IndexNegatives
from metaxc.encoders.training.trainer import Side, embed_all, train

KIND = "kept encoder"


EXTENTS = (1.0, 0.5, 0.0)
"""How far a trained adapter may be applied: as trained, half way, not at all."""


class Encoding(Protocol):
    """Learns an encoder from a part of the clicks, and embeds all texts with it."""

    extents: tuple[float, ...]
    """How far the encoder may be adapted, from 1 (as trained) to 0 (not at all); one value where there is no choice."""

    word_weights: tuple[float, ...]
    """How much word matches may count (`metaxc.encoders.word_matches`); one value where there is no choice."""

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        """An encoder that has seen only these training queries, items and clicks (query_rows × item_rows)."""

    def adapt(self, encoder: Encoder, extent: float, words: float = 0.0) -> Encoder:
        """An encoder that `learn` returned, adapted only so far, in which word matches count so much."""

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        """(query_rows, dim) training queries and (items, dim) all items, by an encoder that `adapt` returned."""


class FixedEncoding:
    """An encoder that learns nothing: pretrained, or the user's own.

    Args:
        encoder: The encoder.
        dataset: The data set whose training queries and items are embedded.
    """

    def __init__(self, encoder: Encoder, dataset: Dataset):
        self.encoder = encoder
        self.extents: tuple[float, ...] = (1.0,)
        self.word_weights: tuple[float, ...] = (0.0,)
        self.queries = encoder.encode_queries(dataset.train.queries.texts)
        self.items = encoder.encode_items(dataset.items.texts)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        return self.encoder

    def adapt(self, encoder: Encoder, extent: float, words: float = 0.0) -> Encoder:
        return encoder

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        return self.queries[query_rows], np.asarray(self.items)


class TowerEncoding:
    """Token-bag towers on top of a frozen encoder, or alone (`static`).

    Args:
        base: The frozen encoder; static towers take only their tokenizer and start vectors from it.
        dataset: The data set whose training queries and items are embedded.
        config: How the towers are trained.
        static: Whether the towers are used without the frozen encoder.
    """

    def __init__(self, base: Pretrained, dataset: Dataset, config: AdapterConfig, *, static: bool = False):
        self.base, self.config, self.static = base, config, static
        self.extents: tuple[float, ...] = (
            (1.0,) if static else EXTENTS if config.extent is None else (config.extent,)
        )
        given = config.word_matches
        self.word_weights: tuple[float, ...] = (
            (0.0,) if static else word_matches.WEIGHTS if given is None else (given,)
        )
        self.texts = (dataset.train.queries.texts, dataset.items.texts)
        pieces = BagTokenizer(base.tokenizer_file)
        bags = [pieces.read_pieces(texts) for texts in self.texts]
        most = 0 if static else config.bigrams
        self.tokenizer = pieces.with_bigrams(count_bigrams(bags, pieces.pieces, most))
        self.query_bags, self.item_bags = (self.tokenizer.add_bigrams(one) for one in bags)
        self.queries = None if static else base.encode_queries(dataset.train.queries.texts)
        self.items = None if static else base.encode_items(dataset.items.texts)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies everything that decides what is learnt, except for the rows, the clicks and the seed."""
        texts = [json_digest(list(part)) for part in self.texts]
        # By alias, so that encoders that were cached under the settings' older names are found.
        applied_later = {"extent", "word_matches"}
        config = self.config.model_dump(by_alias=True, exclude=applied_later)
        config["most_steps"] = config["most_steps"] or MOST_STEPS  # the same, as far as encoders were cached
        if not len(self.tokenizer.bigrams):  # as before there were any
            del config["bigrams"]
        return json_digest([self.base.fingerprint, config, self.static, texts])

    def load(self, folder: Path) -> Encoder:
        """Load the encoder that `Encoder.save` wrote into `folder`."""
        return Static.load(folder, None) if self.static else Adapted.load(folder, self.base)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        torch.manual_seed(seed)
        if self.static:
            towers = build_static_towers(self.base, self.tokenizer.vocabulary, self.config.scale)
        else:
            towers = TwoTowers(self.tokenizer.vocabulary, self.base.dim, scale=self.config.scale)
        dual_encoder = TowerDualEncoder(
            towers,
            None if self.queries is None else self.queries[query_rows],
            None if self.items is None else self.items[item_rows],
            self.query_bags.take(query_rows),
            self.item_bags.take(item_rows),
            self.config.token_dropout,
        )
        train_towers(dual_encoder, clicks, self.config, seed=seed)
        if self.static:
            return Static(None, towers, self.tokenizer)
        return Adapted(self.base, towers, self.tokenizer)

    @cached_property
    def _word_directions(self) -> Floats:
        bags = [self.query_bags, self.item_bags]
        tokens = self.tokenizer
        return word_matches.word_directions(bags, tokens.pieces, self.base.dim, len(tokens.bigrams))

    def adapt(self, encoder: Encoder, extent: float, words: float = 0.0) -> Encoder:
        assert isinstance(encoder, Adapted)
        towers = encoder.towers if extent == 1 else encoder.towers.scaled(extent)
        if words:
            assert self.queries is not None
            assert self.items is not None
            towers = word_matches.with_word_matches(
                towers,
                self._word_directions,
                words,
                (self.queries, self.query_bags),
                (self.items, self.item_bags),
            )
        return encoder if towers is encoder.towers else Adapted(self.base, towers, self.tokenizer)

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        assert isinstance(encoder, Adapted)
        queries = None if self.queries is None else self.queries[query_rows]
        return (
            encoder.towers.query.embed(queries, self.query_bags.take(query_rows)),
            encoder.towers.item.embed(self.items, self.item_bags),
        )


class CachedEncoding:
    """Learns an encoder once for the same texts, clicks, settings, seed and number of threads.

    Args:
        encoding: Learns the encoders that are not in the cache.
        folder: Keeps trained encoders and their embeddings; it grows until it is deleted.
    """

    def __init__(self, encoding: TowerEncoding, folder: Path):
        self.encoding, self.folder = encoding, folder
        self.extents, self.word_weights = encoding.extents, encoding.word_weights

    def adapt(self, encoder: Encoder, extent: float, words: float = 0.0) -> Encoder:
        return self.encoding.adapt(encoder, extent, words)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        digests = [_digest(array) for array in (query_rows, item_rows, clicks.indptr, clicks.indices)]
        if (clicks.data != 1).any():  # encoders that were cached before clicks had weights are still found
            digests.append(hashlib.sha256(clicks.data.astype(np.float32).tobytes()).hexdigest())
        key = json_digest([self.encoding.fingerprint, *digests, seed, torch.get_num_threads()])

        def learn(out: Path) -> None:
            self.encoding.learn(query_rows, item_rows, clicks, seed).save(out)

        return self.encoding.load(reuse_or_build(self.folder / f"encoder-{key[:32]}", KIND, learn)[0])

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        threads = torch.get_num_threads()
        key = json_digest([self.encoding.fingerprint, encoder.fingerprint, _digest(query_rows), threads])

        def embed(out: Path) -> None:
            queries, items = self.encoding.embed(encoder, query_rows)
            np.save(out / "queries.npy", queries)
            np.save(out / "items.npy", items)

        folder = reuse_or_build(self.folder / f"embeddings-{key[:32]}", KIND, embed)[0]
        queries, items = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("queries", "items"))
        return queries, items


def _digest(array: NDArray[np.integer]) -> str:
    return hashlib.sha256(np.asarray(array, dtype=np.int64).tobytes()).hexdigest()


class TowerDualEncoder:
    """Two token-bag towers with the texts they are trained on, for the trainer.

    Args:
        towers: What is trained.
        queries: (queries, dim) frozen embeddings, None for static towers.
        items: (items, dim) frozen embeddings, None for static towers.
        query_bags: The tokens of the queries.
        item_bags: The tokens of the items.
        token_dropout: Share of the tokens left out while training.
    """

    def __init__(
        self,
        towers: TwoTowers,
        queries: Floats | None,
        items: Floats | None,
        query_bags: TokenBags,
        item_bags: TokenBags,
        token_dropout: float = 0.0,
    ):
        self.towers, self.token_dropout = towers, token_dropout
        self._sides = {"query": (towers.query, queries, query_bags), "item": (towers.item, items, item_bags)}

    @property
    def module(self) -> nn.Module:
        return self.towers

    @property
    def log_scale(self) -> nn.Parameter:
        return self.towers.log_scale

    def optimizers(self, learning_rate: float) -> list[torch.optim.Optimizer]:
        tables = [self.towers.query.table, self.towers.item.table]
        others = [p for p in self.towers.parameters() if all(p is not table for table in tables)]
        return [torch.optim.SparseAdam(tables, lr=learning_rate), torch.optim.Adam(others, lr=learning_rate)]

    def chunks(self, side: Side, rows: Rows) -> list[Rows]:
        return [np.arange(len(rows))]

    def cost(self, side: Side, rows: Rows) -> int:
        return 0

    def embed(self, side: Side, rows: Rows) -> Tensor:
        tower, base, bags = self._sides[side]
        device = self.log_scale.device
        x = None if base is None else to_device(np.array(base[rows]), device)
        tokens, offsets = (part.to(device) for part in bags.batch(rows))
        kept = None
        if self.towers.training and self.token_dropout:
            kept = (torch.rand(len(tokens)) >= self.token_dropout).float().to(device)
        embedded: Tensor = tower(x, tokens, offsets, kept)
        return embedded


def train_towers(
    encoder: TowerDualEncoder, clicks: csr_array, config: AdapterConfig, *, seed: int = 0
) -> None:
    """Train an encoder's towers in place: a minute or two on two cores, where fine-tuning a transformer takes hours.

    Args:
        encoder: The towers and the texts to train them on.
        clicks: (queries, items); every query has at least one click.
        config: How the towers are trained.
        seed: Decides the order of the queries, the choice among a query's clicks, and the dropout.
    """
    encoder.towers.to(current_device())
    queries, items = clicks.shape
    steps = config.steps(queries)
    refresh = max(1, steps // 10)
    batches: Batches = RandomBatches(queries, config.batch, seed)
    if config.clustered:
        start = embed_all(encoder, "query", queries)
        batches = ClusteredBatches(start, config.batch, steps, refresh=refresh, seed=seed)
    negatives = None
    if config.mined:
        negatives = IndexNegatives(embed_all(encoder, "item", items), clicks, refresh=refresh, seed=seed)
    trainer_config = TrainingConfig(
        steps=steps, learning_rate=config.learning_rate, logq_correction=config.logq_correction
    )
    history = train(
        encoder, clicks, batches, trainer_config, negatives=negatives, seed=seed, label="adapt the encoder"
    )
    encoder.towers.cpu()
    encoder.towers.losses += history.losses
