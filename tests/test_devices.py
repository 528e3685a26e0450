"""No GPU is needed: torch's device "meta" has shapes but no values, and refuses to mix with tensors of the processor as
a GPU does. So one step of each training on it shows that nothing was left behind."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.classifiers.one_vs_all import OneVsAllConfig, one_vs_all
from metaxc.devices import choose_device, current_device, to_array, to_device, use_device
from metaxc.encoders.adapted import TwoTowers
from metaxc.encoders.learning import TowerDualEncoder, train_towers
from metaxc.encoders.tokens import TokenBags
from metaxc.encoders.training import AdapterConfig
from metaxc.errors import ConfigError
from metaxc.generators import generator_training
from metaxc.generators.gated import Gated
from metaxc.generators.generator import WeightedSum
from metaxc.generators.generator_training import Episode, GeneratorTraining, train_generator
from metaxc.generators.transformer import PostNormTransformer, ResidualTransformer

META = torch.device("meta")
DIM, ITEMS, QUERIES = 16, 24, 48


class StoppedError(Exception):
    """Ends a training after its first step."""


def run_one_step(compute_loss: Any, optimizers: Any, *arguments: Any, **options: Any) -> list[float]:
    """Takes the place of `run_training`."""
    loss = compute_loss(0)
    assert loss.device == META
    loss.backward()
    parameters = [p for one in optimizers for group in one.param_groups for p in group["params"]]
    assert {parameter.device for parameter in parameters} == {META}
    raise StoppedError


@pytest.fixture
def world():
    """Queries, items, clicks: every query clicks one item."""
    random = np.random.default_rng(0)
    queries, items = (random.standard_normal((count, DIM)).astype(np.float32) for count in (QUERIES, ITEMS))
    clicks = csr_array(
        (np.ones(QUERIES, np.float32), (np.arange(QUERIES), np.arange(QUERIES) % ITEMS)),
        shape=(QUERIES, ITEMS),
    )
    return queries, items, clicks


@pytest.mark.parametrize("all_items", [1_000, 0], ids=["against all items", "against mined items"])
def test_classifiers_are_trained_on_the_device(world, all_items, monkeypatch):
    queries, _, clicks = world
    module = import_module("metaxc.classifiers.one_vs_all")  # the package has a function of this name
    monkeypatch.setattr(module, "run_training", run_one_step)
    monkeypatch.setattr(module, "_mine", lambda *given: np.zeros((QUERIES, 3), np.int64))
    with use_device(META), pytest.raises(StoppedError):
        one_vs_all(
            queries, clicks, OneVsAllConfig(epochs=1, batch=8, all_items=all_items, query_layer="linear")
        )


@pytest.mark.parametrize("loss", ["ranking", "cross_entropy"])
@pytest.mark.parametrize(
    "make",
    [Gated, lambda: WeightedSum(3), lambda: ResidualTransformer(DIM), lambda: PostNormTransformer(DIM)],
    ids=["gated", "weighted sum", "transformer", "post-norm"],
)
def test_generators_are_trained_on_the_device(world, make, loss, monkeypatch):
    queries, items, clicks = world
    near = np.tile(np.arange(3), (ITEMS, 1))
    episode = Episode(queries, items, clicks, items.copy(), near, np.full((ITEMS, 3), 0.5, np.float32))
    monkeypatch.setattr(generator_training, "run_training", run_one_step)
    monkeypatch.setattr(Gated, "prepare", lambda *given: None)  # picks rows by value
    with use_device(META), pytest.raises(StoppedError):
        train_generator(make(), [episode], GeneratorTraining(loss=loss, batch=8, candidates=8))


@pytest.mark.parametrize("with_base", [True, False], ids=["adapted", "static"])
def test_towers_embed_on_the_device(world, with_base):
    queries, items, _ = world
    bags = [
        TokenBags(np.arange(count, dtype=np.int32) % 8, np.arange(count + 1)) for count in (QUERIES, ITEMS)
    ]
    base = (queries, items) if with_base else (None, None)
    encoder = TowerDualEncoder(TwoTowers(8, DIM, base=with_base), *base, *bags, token_dropout=0.1)
    embedded = []
    with use_device(META):
        encoder.towers.to(current_device())
        for side in ("query", "item"):
            embedded.append(encoder.embed(side, np.arange(4)))
    assert {one.device for one in embedded} == {META}


def test_what_was_trained_comes_back_to_the_processor(world):
    queries, items, clicks = world
    bags = [
        TokenBags(np.arange(count, dtype=np.int32) % 8, np.arange(count + 1)) for count in (QUERIES, ITEMS)
    ]
    towers = TwoTowers(8, DIM)
    with use_device("cpu"):
        train_towers(
            TowerDualEncoder(towers, queries, items, *bags), clicks, AdapterConfig(epochs=1, batch=16)
        )
    assert towers.losses
    assert {parameter.device.type for parameter in towers.parameters()} == {"cpu"}


def test_a_block_chooses_the_device_and_what_was_before_returns():
    before = current_device()
    with use_device(META):
        with use_device("cpu"):
            assert current_device() == torch.device("cpu")
        assert current_device() == META
    assert current_device() == before


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device() == choose_device("cuda") == torch.device("cuda", 1)
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device() == torch.device("cpu")
    with pytest.raises(ConfigError, match="no GPU"):
        choose_device("cuda")
    with pytest.raises(ConfigError, match="Unknown device"):
        choose_device("tpu")


def test_arrays_go_to_the_device_and_come_back():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert to_device(array, META).device == META
    np.testing.assert_array_equal(to_array(to_device(array, torch.device("cpu")).requires_grad_()), array)
