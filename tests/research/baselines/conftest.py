"""A small world of texts in which words in common and learnable associations both lead to the right items."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.encoders import unit_rows

GROUPS, ITEMS, TRAIN, TEST, DIM = 24, 5, 12, 3, 256


def _items() -> list[str]:
    """Item j of group g is named by the group's own word and a word of its own."""
    return [f"thing{g} variant{j}" for g in range(GROUPS) for j in range(ITEMS)]


def _queries(times: int, part: str) -> list[str]:
    """A query says the group's other word, which no item has, and every third one the items' word as well."""
    return [
        f"want{g} {part}{n % 4}" + (f" thing{g}" if n % 3 == 0 else "")
        for g in range(GROUPS)
        for n in range(times)
    ]


@pytest.fixture(scope="session")
def market() -> Dataset:
    """Items in groups; a query clicks every item of its group; the last item of each group is novel.

    One query in three shares a word with its items. In the others only the clicks tell that "want7" means
    "thing7"; a novel item has the same word as its group, so what was learnt holds for it too.
    """

    def log(name: str, times: int) -> ClickLog:
        texts = _queries(times, name)
        clicks = np.kron(np.eye(GROUPS), np.ones((times, ITEMS))).astype(np.float32)
        return ClickLog(Texts([f"{name}-{row}" for row in range(len(texts))], texts), csr_array(clicks))

    items = _items()
    novel = np.zeros(len(items), dtype=bool)
    novel[ITEMS - 1 :: ITEMS] = True
    return Dataset(
        Texts([f"i{row}" for row in range(len(items))], items),
        log("now", TRAIN),
        log("later", TEST),
        novel,
        name="market",
    )


class Hashed:
    """A bag of words in which each word has a fixed random direction: deterministic, and as quick as it gets."""

    kind: ClassVar[str] = "hashed"
    dim = DIM
    fingerprint = "hashed"

    def __init__(self, tokenizer_file: Path):
        self.tokenizer_file = tokenizer_file

    def token_table(self) -> np.ndarray | None:
        words = json.loads(self.tokenizer_file.read_text())["model"]["vocab"]
        return np.stack([self._word(word) for word in words])

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts)

    def encode_items(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode(texts)

    def save(self, folder: Path) -> None:
        """Nothing: it is never loaded."""

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        if not len(texts):
            return np.empty((0, DIM), np.float32)
        return unit_rows(np.stack([sum(self._word(word) for word in text.split()) for text in texts]))

    @staticmethod
    def _word(word: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return np.random.default_rng(seed).normal(size=DIM).astype(np.float32)


@pytest.fixture(scope="session")
def hashed(market: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Hashed:
    """The encoder, with a tokenizer of whole words of the market."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    texts = [*market.items.texts, *market.train.queries.texts, *market.test.queries.texts]
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: place for place, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    file = tmp_path_factory.mktemp("words") / "tokenizer.json"
    tokenizer.save(str(file))
    return Hashed(file)
