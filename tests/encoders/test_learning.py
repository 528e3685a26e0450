import numpy as np
import pytest

from metaxc.data import split
from metaxc.data.clicks import training_clicks
from metaxc.encoders import EmbeddingCache, Pretrained, learning
from metaxc.encoders.adapter import AdapterConfig
from metaxc.encoders.learning import KeptEncoding, TowerEncoding
from metaxc.irene import Irene, IreneConfig

CONFIG = IreneConfig(encoder="static", adapter=AdapterConfig(epochs=2, batch=32))


@pytest.fixture(scope="module")
def dataset(shop):
    return split(shop, novel=0.15, test=0.2)[0]


@pytest.fixture
def trainings(monkeypatch):
    """How often towers were trained."""
    calls = []
    train = learning.train_towers

    def counted(*args, **kwargs):
        calls.append(kwargs["seed"])
        return train(*args, **kwargs)

    monkeypatch.setattr(learning, "train_towers", counted)
    return calls


def test_another_model_on_the_same_encoder_learns_it_no_more(dataset, trainings, tmp_path):
    first = Irene(CONFIG, encoder_cache=tmp_path / "kept").fit(dataset)
    learnt = len(trainings)
    assert learnt >= 1
    other = CONFIG.model_copy(update={"generator": "sum", "neighbours": 3})
    second = Irene(other, encoder_cache=tmp_path / "kept").fit(dataset)
    assert len(trainings) == learnt
    assert second.encoder.fingerprint == first.encoder.fingerprint
    plain = Irene(other).fit(dataset)
    assert len(trainings) == 2 * learnt
    np.testing.assert_array_equal(second.vectors, plain.vectors)
    assert second.calibration == plain.calibration


def test_what_decides_the_encoder_is_not_mixed_up(dataset, trainings, tmp_path):
    base = Pretrained(cache=EmbeddingCache(tmp_path / "cache"))
    observed, rows, clicks = training_clicks(dataset)

    def learn(config=CONFIG.adapter, seed=0, some=rows, data=dataset):
        encoding = KeptEncoding(TowerEncoding(base, data, config, static=True), tmp_path / "kept")
        return encoding.learn(some, observed, clicks[: len(some)], seed).fingerprint

    first = learn()
    assert learn() == first
    assert len(trainings) == 1
    others = {
        learn(seed=1),
        learn(config=CONFIG.adapter.model_copy(update={"scale": 5.0})),
        learn(some=rows[:-5]),
    }
    assert len(others | {first}) == 4
    assert len(trainings) == 4


def test_embeddings_are_kept_beside_the_encoder_and_a_damaged_file_is_made_again(
    dataset, trainings, tmp_path
):
    towers = TowerEncoding(Pretrained(), dataset, CONFIG.adapter, static=True)
    kept = KeptEncoding(towers, tmp_path)
    observed, rows, clicks = training_clicks(dataset)
    encoder = kept.learn(rows, observed, clicks, 0)
    for wanted in (rows, rows[:7]):
        queries, items = kept.embed(encoder, wanted)
        plain_queries, plain_items = towers.embed(encoder, wanted)
        np.testing.assert_array_equal(queries, plain_queries)
        np.testing.assert_array_equal(items, plain_items)
    assert isinstance(queries, np.memmap)
    [file] = tmp_path.glob("encoder-*/towers.safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    again = kept.learn(rows, observed, clicks, 0)
    assert again.fingerprint == encoder.fingerprint
    assert len(trainings) == 2
