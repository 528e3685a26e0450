"""Worlds whose right answer is known by construction."""

from __future__ import annotations

import os
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.encoders import Vectors

GROUPS, ITEMS, TRAIN, TEST, DIM = 40, 5, 20, 4, 96


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@dataclass(frozen=True)
class World:
    """Items in groups; a query clicks every item of its group; the last item of each group is novel.

    An item's embedding points along its group's item direction, a query's along its group's *query*
    direction, and the two are orthogonal: the embeddings alone know nothing, the classifiers of an item's
    neighbours know everything.
    """

    dataset: Dataset
    encoder: Vectors


@pytest.fixture(scope="session")
def world() -> World:
    random = np.random.default_rng(0)
    axes = np.linalg.qr(random.normal(size=(DIM, DIM)))[0].astype(np.float32)
    item_axes, query_axes = axes[:GROUPS], axes[GROUPS : 2 * GROUPS]

    def around(directions, times):
        noise = 0.03 * random.normal(size=(len(directions) * times, DIM))
        return (np.repeat(directions, times, axis=0) + noise).astype(np.float32)

    def log(name, times):
        ids = [f"{name}{i}" for i in range(GROUPS * times)]
        dense = np.kron(np.eye(GROUPS), np.ones((times, ITEMS))).astype(np.float32)
        return ClickLog(Texts(ids, ids), csr_array(dense))

    items = [f"i{i}" for i in range(GROUPS * ITEMS)]
    novel = np.zeros(GROUPS * ITEMS, dtype=bool)
    novel[ITEMS - 1 :: ITEMS] = True
    train, test = log("q", TRAIN), log("t", TEST)
    dataset = Dataset(Texts(items, items), train, test, novel, name="world")
    encoder = Vectors(
        [*train.queries.ids, *test.queries.ids],
        np.concatenate([around(query_axes, TRAIN), around(query_axes, TEST)]),
        items,
        around(item_axes, ITEMS),
    )
    return World(dataset, encoder)


ANIMALS = "cat dog horse cow sheep goat pig duck goose chicken lion tiger bear wolf fox deer".split()  # noqa: SIM905
FOODS = "bread cheese apple pear plum cherry grape melon lemon orange onion carrot potato tomato pepper bean".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def shop() -> Dataset:
    """Texts: a query about food i clicks the items named after animal i. Only the clicks tell which."""
    items = {
        f"{animal}-{size}": f"{size} {animal}"
        for animal in ANIMALS
        for size in ("small", "large", "old", "young", "wild")
    }
    queries, clicks = {}, []
    for animal, food in zip(ANIMALS, FOODS, strict=True):
        for how in ("fresh", "cheap", "sweet", "dried", "boiled", "raw", "organic", "sliced"):
            queries[f"{food}-{how}"] = f"{how} {food}"
            clicks += [(f"{food}-{how}", name) for name in items if name.startswith(f"{animal}-")]
    return Dataset.of(items, queries, clicks, name="shop")
