"""A world in which the words of queries have shifted, as a model that was trained before cannot know.

Items are about topics, and their texts say so. Queries were asked with the words "old0", "old1" …, which the query
tower has next to the items of their topic. Now they are asked with "new0", "new1" …, which it has next to the items of
the *following* topic: every answer is wrong until the query tower learns the new words. No item changes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from metaxc.classifiers import ridge
from metaxc.data import ClickLog, Dataset, Texts
from metaxc.emmett import Calibration, Emmett
from metaxc.emmett.training_record import TrainingRecord
from metaxc.encoders import AdapterConfig
from metaxc.encoders.adapted import Static, TwoTowers
from metaxc.encoders.tokens import BagTokenizer
from metaxc.generators import Combine
from metaxc.irene import IreneConfig

TOPICS, ITEMS, QUERIES, DIM = 6, 4, 85, 16
CONFIG = IreneConfig(
    expansion_queries=0, adapter=AdapterConfig(epochs=25, batch=64, learning_rate=0.05, token_dropout=0.0)
)


def build_encoder(folder: Path) -> Static:
    """The encoder as it was trained before."""
    words = [f"{kind}{topic}" for kind in ("item", "old", "new") for topic in range(TOPICS)]
    words += [f"more{number}" for number in range(max(ITEMS, QUERIES))]
    tokenizer = Tokenizer(
        WordLevel({word: row for row, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    bags = BagTokenizer(folder / "tokenizer.json")
    towers = TwoTowers(bags.vocabulary, DIM, base=False)
    axes = torch.linalg.qr(torch.from_numpy(np.random.default_rng(0).normal(size=(DIM, DIM))).float())[0]
    with torch.no_grad():
        for tower, kind, shift in (
            (towers.item, "item", 0),
            (towers.query, "old", 0),
            (towers.query, "new", 1),
        ):
            for topic in range(TOPICS):
                tower.table[1 + words.index(f"{kind}{topic}")] = axes[(topic + shift) % TOPICS]
        for tower in (towers.item, towers.query):
            for number in range(max(ITEMS, QUERIES)):
                tower.table[1 + words.index(f"more{number}")] = 0.1 * axes[TOPICS + number % (DIM - TOPICS)]
    return Static(None, towers, bags)


def ask(word: str, numbers: range) -> tuple[list[str], list[int]]:
    """Queries of all topics, and their topics."""
    asked = [(f"{word}{topic} more{number}", topic) for number in numbers for topic in range(TOPICS)]
    return [text for text, _ in asked], [topic for _, topic in asked]


def build_log(word: str, numbers: range, items: int, begin: float) -> ClickLog:
    """A query clicks every item of its topic, one after the other; one query per second."""
    texts, topics = ask(word, numbers)
    rows = np.repeat(np.arange(len(texts)), ITEMS)
    columns = (np.array(topics)[:, None] * ITEMS + np.arange(ITEMS)).reshape(-1)
    names = Texts([text.replace(" ", "-") for text in texts], texts)
    return ClickLog.of_events(names, items, rows, columns, times=begin + rows + 0.1 * (columns % ITEMS))


def build_items(topics: int = TOPICS) -> Texts:
    """The items of the first topics."""
    ids = [f"{topic}-{number}" for topic in range(topics) for number in range(ITEMS)]
    return Texts(ids, [f"item{id.replace('-', ' more')}" for id in ids])


def build_dataset(word: str, numbers: range, begin: float = 0.0) -> Dataset:
    """Queries with this word, and one item that nobody clicks."""
    items = build_items()
    items = Texts([*items.ids, "unclicked"], [*items.texts, "more5"])
    novel = np.zeros(len(items), dtype=bool)
    novel[-1] = True
    return Dataset(items, build_log(word, numbers, len(items), begin), novel=novel, name=word)


def build_old_model(folder: Path, topics: int = TOPICS) -> Emmett:
    """A model of the first topics, as it was before the words shifted."""
    encoder, items = build_encoder(folder), build_items(topics)
    dataset = build_dataset("old", range(20))
    observed = np.arange(len(items))
    queries = encoder.encode_queries(dataset.train.queries.texts)
    return Emmett(
        encoder,
        ridge(queries, dataset.train.clicks[:, observed]),
        encoder.encode_items(items.texts),
        Combine(0.5, 0.1),
        items,
        observed,
        neighbours=3,
        calibration=Calibration(exposure=0.1),
        trained_on=TrainingRecord.of(dataset),
    )


def first_topics(model: Emmett, word: str) -> float:
    """The share of queries whose first answer is about their topic."""
    texts, topics = ask(word, range(QUERIES - 5, QUERIES))
    found = [hits[0].text.split()[0] for hits in model.search(texts, 1)]
    return float(np.mean([one == f"item{topic}" for one, topic in zip(found, topics, strict=True)]))
