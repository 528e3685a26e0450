"""Worlds whose right answer is known by construction."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The last digits of matrix products depend on the number of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

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


WORDS = (
    "a red green old young apple pear plum chair table wooden long short text about price of fish market".split()  # noqa: SIM905
)


@pytest.fixture(scope="session")
def shop_words(shop) -> list[str]:
    return sorted({word for text in (*shop.items.texts, *shop.train.queries.texts) for word in text.split()})


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, shop_words) -> Path:
    """A folder small enough to be exported in every test: a BERT of two layers with random weights, mean pooling, 64
    dimensions, at most 32 tokens of a text."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place = tmp_path_factory.mktemp("tiny")
    words = dict.fromkeys([*WORDS, *shop_words])
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "##s", "##er"]
    (place / "vocab.txt").write_text("\n".join(pieces) + "\n")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    bert = BertModel(config)
    for parameter in bert.parameters():  # the usual start, 0.02, makes all texts nearly the same
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    bert.save_pretrained(place / "bert")
    BertTokenizerFast(vocab=str(place / "vocab.txt")).save_pretrained(place / "bert")
    transformer = Transformer(str(place / "bert"), max_seq_length=32)
    model = SentenceTransformer(modules=[transformer, Pooling(64)], device="cpu")
    model.save(str(place / "model"))
    return place / "model"


GOLDEN = Path(__file__).parent / "golden"


NOT_RECORDED = {"P@30", "P@50", "P@100", "R@50"}
"""Metrics that are younger than the golden records; `tests/test_metrics.py` has their values."""


def without_unrecorded(value: object) -> object:
    """Nested dictionaries without the metrics that the golden records do not have."""
    if not isinstance(value, dict):
        return value
    return {name: without_unrecorded(inner) for name, inner in value.items() if name not in NOT_RECORDED}


def differences(recorded: object, found: object, path: str = "") -> Iterator[str]:
    """Where a value differs from its record by more than another processor's rounding explains: a figure by more than
    half a percent or 0.01, a list of hits in more than a tenth of its places."""
    if isinstance(recorded, dict) and isinstance(found, dict) and recorded.keys() == found.keys():
        for name, value in recorded.items():
            yield from differences(value, found[name], f"{path}.{name}")
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        if recorded and all(isinstance(line, str) for line in recorded):
            words, others = (" ".join(lines).split(" ") for lines in (recorded, found))
            moved = sum(word != other for word, other in zip(words, others, strict=False))
            if len(words) != len(others) or moved > len(words) / 10:
                yield f"{path}: {moved} of {len(words)} differ"
        else:
            for place, pair in enumerate(zip(recorded, found, strict=True)):
                yield from differences(*pair, f"{path}[{place}]")
    elif isinstance(recorded, float) and isinstance(found, float | int):
        if abs(recorded - found) > max(0.01, 0.005 * abs(recorded)):
            yield f"{path}: {found}, recorded {recorded}"
    elif recorded != found:
        yield f"{path}: {found!r:.60}, recorded {recorded!r:.60}"


@pytest.fixture(scope="session")
def golden():
    """Compares a JSON-able value with the record `golden/NAME.json`, as closely as `differences` does.

    `METAXC_GOLDEN=record` writes them anew: only after a change that is meant to change results. Those of folders that
    older code wrote (`old_…`) are never written. `METAXC_GOLDEN=skip` skips them: they are of the versions in
    constraints.txt.
    """

    def compare(name: str, value: object) -> None:
        if os.environ.get("METAXC_GOLDEN") == "skip":
            pytest.skip("the golden records are of the pinned versions")
        file = GOLDEN / f"{name}.json"
        text = json.dumps(without_unrecorded(value), indent=1, sort_keys=True) + "\n"
        if os.environ.get("METAXC_GOLDEN") == "record" and not name.startswith("old_"):
            file.write_text(text)
        different = list(differences(json.loads(file.read_text()), json.loads(text)))
        assert not different, f"{name} differs from its golden record: {different[:5]}"

    return compare
