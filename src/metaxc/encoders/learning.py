"""An encoder as training sees it: what it may learn from, and all texts embedded by the result.

`Encoding.learn` is called twice by a training run, once on a fold without the pseudo-novel items (to choose
constants by) and once on all observed items. What does not depend on the clicks, the frozen embeddings and
the tokens, is computed once. `KeptEncoding` keeps what was learnt on disk, so that models which differ in
everything but the encoder learn it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from scipy.sparse import csr_array

from metaxc.arrays import Floats, Rows
from metaxc.artifacts import atomic_folder, json_digest, verify_folder, write_manifest
from metaxc.data import Dataset
from metaxc.encoders.adapted import Adapted, Static, static_towers
from metaxc.encoders.adapter import AdapterConfig, embed_with, train_towers
from metaxc.encoders.encoder import Encoder
from metaxc.encoders.pretrained import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.towers import TwoTowers
from metaxc.errors import MetaxcError

KEPT = "kept encoder"


class Encoding(Protocol):
    """Learns an encoder from a part of the clicks, and embeds everything with it."""

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        """An encoder that has seen these training queries, items and clicks (query_rows × item_rows) only."""

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        """(query_rows, dim) training queries and (items, dim) all items by an encoder from `learn`."""


class Learning(Encoding, Protocol):
    """An encoding worth keeping: what it learns takes minutes and comes back from a folder."""

    @property
    def fingerprint(self) -> str:
        """Names all that decides what is learnt, but the rows, the clicks and the seed."""

    def restore(self, folder: Path) -> Encoder:
        """The encoder that `Encoder.save` wrote into `folder`."""


class FixedEncoding:
    """An encoder that learns nothing: pretrained, or the user's own.

    Args:
        encoder: The encoder.
        dataset: Whose training queries and items are embedded.
    """

    def __init__(self, encoder: Encoder, dataset: Dataset):
        self.encoder = encoder
        self.queries = encoder.encode_queries(dataset.train.queries.texts)
        self.items = encoder.encode_items(dataset.items.texts)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        return self.encoder

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        return self.queries[query_rows], np.asarray(self.items)


class TowerEncoding:
    """Token-bag towers on a frozen encoder, or alone (`static`).

    Args:
        base: The frozen encoder, or where the static towers take their tokens and first vectors from.
        dataset: Whose training queries and items are embedded.
        config: How the towers are trained.
        static: Whether the towers stand alone.
    """

    def __init__(self, base: Pretrained, dataset: Dataset, config: AdapterConfig, *, static: bool = False):
        self.base, self.config, self.static = base, config, static
        self.texts = (dataset.train.queries.texts, dataset.items.texts)
        self.tokenizer = BagTokenizer(base.tokenizer_file)
        self.queries = None if static else base.encode_queries(dataset.train.queries.texts)
        self.items = None if static else base.encode_items(dataset.items.texts)
        self.query_bags = self.tokenizer(dataset.train.queries.texts)
        self.item_bags = self.tokenizer(dataset.items.texts)

    @cached_property
    def fingerprint(self) -> str:
        texts = [json_digest(list(part)) for part in self.texts]
        return json_digest([self.base.fingerprint, self.config.model_dump(), self.static, texts])

    def restore(self, folder: Path) -> Encoder:
        return Static.load(folder, None) if self.static else Adapted.load(folder, self.base)

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        torch.manual_seed(seed)
        if self.static:
            towers = static_towers(self.base, self.tokenizer.vocabulary, self.config.scale)
        else:
            towers = TwoTowers(self.tokenizer.vocabulary, self.base.dim, scale=self.config.scale)
        train_towers(
            None if self.queries is None else self.queries[query_rows],
            None if self.items is None else self.items[item_rows],
            self.query_bags.take(query_rows),
            self.item_bags.take(item_rows),
            clicks,
            self.config,
            towers=towers,
            seed=seed,
        )
        if self.static:
            return Static(None, towers, self.tokenizer)
        return Adapted(self.base, towers, self.tokenizer)

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        assert isinstance(encoder, Adapted)
        queries = None if self.queries is None else self.queries[query_rows]
        return (
            embed_with(encoder.towers.query, queries, self.query_bags.take(query_rows)),
            embed_with(encoder.towers.item, self.items, self.item_bags),
        )


class KeptEncoding:
    """An encoding that learns once from the same texts, clicks, settings, seed and threads, and remembers.

    Args:
        encoding: What learns.
        folder: Where learnt encoders and their embeddings are kept; grows until it is deleted.
    """

    def __init__(self, encoding: Learning, folder: Path):
        self.encoding, self.folder = encoding, folder

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        arrays = (query_rows, item_rows, clicks.indptr, clicks.indices)
        about = [self.encoding.fingerprint, *(_digest(array) for array in arrays)]
        key = json_digest([*about, seed, torch.get_num_threads()])

        def learn(out: Path) -> None:
            self.encoding.learn(query_rows, item_rows, clicks, seed).save(out)

        return self.encoding.restore(self._whole(f"encoder-{key[:32]}", learn))

    def embed(self, encoder: Encoder, query_rows: Rows) -> tuple[Floats, Floats]:
        def embed(out: Path) -> None:
            queries, items = self.encoding.embed(encoder, query_rows)
            np.save(out / "queries.npy", queries)
            np.save(out / "items.npy", items)

        threads = torch.get_num_threads()
        key = json_digest([self.encoding.fingerprint, encoder.fingerprint, _digest(query_rows), threads])
        place = self._whole(f"embeddings-{key[:32]}", embed)
        queries, items = (np.load(place / f"{name}.npy", mmap_mode="r") for name in ("queries", "items"))
        return queries, items

    def _whole(self, name: str, build: Callable[[Path], None]) -> Path:
        """The folder of that name, found whole or built now; two processes do not build it twice."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / name
        with FileLock(self.folder / f"{name}.lock"):
            try:
                verify_folder(place, KEPT)
            except MetaxcError:  # absent, unfinished or damaged
                with atomic_folder(place) as new:
                    build(new)
                    write_manifest(new, KEPT)
        return place


def _digest(array: NDArray[np.integer]) -> str:
    return hashlib.sha256(np.asarray(array, dtype=np.int64).tobytes()).hexdigest()
