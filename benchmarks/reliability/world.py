"""A small world for tests of reliability: texts of made-up words, a model that is trained in a second, children that
may be killed.

Children are forked from a process that has everything loaded, so that a thousand of them can be killed in minutes.
"""

from __future__ import annotations

import json
import os
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from metaxc import Dataset, Emmett, Irene, IreneConfig, split
from metaxc.catalog import Catalog, Item
from metaxc.encoders import unit_rows

DIM = 32
WORDS = [f"word{number}" for number in range(60)]


class Hashed:
    """Texts to embeddings by their words alone; any text has one.

    Args:
        dim: Length of an embedding.
    """

    kind: ClassVar[str] = "hashed"
    max_tokens = 256
    token_seconds = 0.0
    """What reading a token takes: a transformer needs 0.4 ms on one core."""

    def __init__(self, dim: int = DIM):
        self.dim = dim
        self.fingerprint = f"hashed words, {dim}"

    def encode_items(self, texts: Sequence[str]) -> np.ndarray:
        """(n, dim) float32, unit rows."""
        if self.token_seconds:
            tokens = sum(min(2 + len(text) // 4, self.max_tokens) for text in texts)
            time.sleep(self.token_seconds * tokens)
        return unit_rows(np.stack([_vector(text, self.dim) for text in texts]))

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """(n, dim) float32, unit rows."""
        return self.encode_items(texts)

    def save(self, folder: Path) -> None:
        """Nothing to save."""


@cache
def _word(word: str, dim: int) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=dim)


def _vector(text: str, dim: int) -> np.ndarray:
    return np.sum([_word(word, dim) for word in text.split()], axis=0) + 1e-3


def dataset() -> Dataset:
    """Items and queries of three words; a query clicks what shares two words with it."""
    drawn = random.Random(0)
    items = {f"base{number}": " ".join(drawn.sample(WORDS, 3)) for number in range(150)}
    queries = {f"query{number}": " ".join(drawn.sample(WORDS, 3)) for number in range(1500)}
    clicks = [
        (query, item)
        for query, asked in queries.items()
        for item, text in items.items()
        if len(set(asked.split()) & set(text.split())) >= 2
    ]
    made, _ = split(Dataset.of(items, queries, clicks, name="words"), novel=0.1, seed=0)
    return made


@cache
def model(neighbours: int = 3, dim: int = DIM) -> Emmett:
    """A model of the world; another K, another model.

    On one thread: service and script make it by themselves, and sums in another order have other last digits.
    """
    torch.set_num_threads(1)
    config = IreneConfig(encoder="pretrained", neighbours=neighbours, folds=0)
    with threadpool_limits(1):
        return Irene(config, encoder=Hashed(dim)).fit(dataset())


def text_of(drawn: random.Random) -> str:
    """A text of the world."""
    return " ".join(drawn.sample(WORDS, 3))


class Child:
    """A forked process that runs `work` and tells lines of JSON; killed whenever its parent wants.

    Args:
        work: Called in the child with a function that tells one value.
    """

    def __init__(self, work: Callable[[Callable[[Any], None]], None]):
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(reading)
            code = 1
            try:
                work(lambda value: _tell(writing, value))
                code = 0
            except BaseException as error:  # told to the parent, who judges
                _tell(writing, {"error": type(error).__name__, "says": str(error)[:300]})
            finally:
                os._exit(code)
        os.close(writing)
        self.reading = os.fdopen(reading, "rb")

    def lines(self) -> Iterator[Any]:
        """What it has told, until it ends."""
        for line in self.reading:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def wait(self) -> int:
        """Its exit code; negative for a signal."""
        self.reading.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _tell(writing: int, value: Any) -> None:
    os.write(writing, json.dumps(value).encode() + b"\n")


def ask(work: Callable[[Callable[[Any], None]], None]) -> tuple[list[Any], int]:
    """All that a child told, and its exit code."""
    child = Child(work)
    told = list(child.lines())
    return told, child.wait()


def all_items(catalog: Catalog) -> list[Item]:
    """The items of a catalog, page by page."""
    items: list[Item] = []
    after: str | None = None
    while True:
        page = catalog.list(after=after, limit=1000)
        items += page.items
        if (after := page.next) is None:
            return items


def content_of(catalog: Catalog) -> dict[str, list[Any]]:
    """Everything that a user can see of the items, after a check that index and store agree."""
    items = all_items(catalog)
    clicks = {
        item.id: sorted([click.number, click.query] for click in catalog.explain(item.id).clicks)
        for item in items
        if item.clicks
    }
    queries = catalog.encode([" ".join(WORDS[place : place + 3]) for place in range(0, 60, 12)])
    keys, scores = catalog.index_search(queries, len(items) + 10)
    rows = catalog.store.fetch_all("SELECT key, vector FROM items ORDER BY key")
    held = {key: np.frombuffer(vector, np.float32) for key, vector in rows}
    for query, line, line_scores in zip(queries, keys, scores, strict=True):
        found = [key for key in line.tolist() if key >= 0]
        if sorted(found) != sorted(held):
            raise AssertionError("the index and the store hold different items")
        exact = np.array([held[key] @ query for key in found])
        if not np.allclose(exact, line_scores[: len(found)], atol=1e-4):
            raise AssertionError("the index and the store hold different vectors")
    return {
        item.id: [item.text, list(item.tags), item.state, clicks.get(item.id, [])]
        for item in items
        if not item.id.startswith("base")
    }
