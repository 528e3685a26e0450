import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.artifacts import json_digest
from metaxc.data import Dataset, split
from metaxc.data.clicks import training_clicks
from metaxc.encoders import EmbeddingCache, Pretrained, learning
from metaxc.encoders.adapted import TwoTowers
from metaxc.encoders.learning import CachedEncoding, TowerDualEncoder, TowerEncoding, train_towers
from metaxc.encoders.tokens import BagTokenizer, TokenBags, count_bigrams, find_bigrams
from metaxc.encoders.training import AdapterConfig
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


def test_another_model_on_the_same_encoder_does_not_train_it_again(dataset, trainings, tmp_path):
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


def test_other_settings_rows_or_seeds_train_other_encoders(dataset, trainings, tmp_path):
    base = Pretrained(cache=EmbeddingCache(tmp_path / "cache"))
    observed, rows, clicks = training_clicks(dataset)

    def learn(config=CONFIG.adapter, seed=0, some=rows, data=dataset):
        encoding = CachedEncoding(TowerEncoding(base, data, config, static=True), tmp_path / "kept")
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


def test_other_weights_of_the_clicks_are_another_encoder(dataset, trainings, tmp_path):
    cached = CachedEncoding(TowerEncoding(Pretrained(), dataset, CONFIG.adapter, static=True), tmp_path)
    observed, rows, clicks = training_clicks(dataset)
    weighted = clicks.copy()
    weighted.data[::2] = 1.5
    found = {cached.learn(rows, observed, given, 0).fingerprint for given in (clicks, weighted, clicks)}
    assert len(found) == 2
    assert len(trainings) == 2


def test_embeddings_are_cached_too_and_a_damaged_encoder_is_trained_again(dataset, trainings, tmp_path):
    towers = TowerEncoding(Pretrained(), dataset, CONFIG.adapter, static=True)
    cached = CachedEncoding(towers, tmp_path)
    observed, rows, clicks = training_clicks(dataset)
    encoder = cached.learn(rows, observed, clicks, 0)
    for wanted in (rows, rows[:7]):
        queries, items = cached.embed(encoder, wanted)
        plain_queries, plain_items = towers.embed(encoder, wanted)
        np.testing.assert_array_equal(queries, plain_queries)
        np.testing.assert_array_equal(items, plain_items)
    assert isinstance(queries, np.memmap)
    [file] = tmp_path.glob("encoder-*/towers.safetensors")
    file.write_bytes(file.read_bytes()[:-4])
    again = cached.learn(rows, observed, clicks, 0)
    assert again.fingerprint == encoder.fingerprint
    assert len(trainings) == 2


def group_world(groups=8, each=6):
    """Queries carry token g, items token groups + g; group g clicks group g."""
    tokens = np.repeat(np.arange(groups), each).astype(np.int32)
    starts = np.arange(groups * each + 1)
    clicks = csr_array(np.kron(np.eye(groups), np.ones((each, each))).astype(np.float32))
    return TokenBags(tokens, starts), TokenBags(tokens + groups, starts), clicks


def test_training_brings_clicked_texts_together():
    queries, items, clicks = group_world()
    towers = TwoTowers(16, 32, base=False)
    with torch.no_grad():
        towers.query.table.normal_(generator=torch.Generator().manual_seed(0))
        towers.item.table.normal_(generator=torch.Generator().manual_seed(1))
    config = AdapterConfig(epochs=60, batch=24, learning_rate=0.02, token_dropout=0.0)
    train_towers(TowerDualEncoder(towers, None, None, queries, items), clicks, config)
    scores = towers.query.embed(None, queries) @ towers.item.embed(None, items).T
    best = scores.argmax(axis=1) // 6
    assert best.tolist() == np.repeat(np.arange(8), 6).tolist()


def test_the_same_seed_trains_the_same_towers():
    queries, items, clicks = group_world()
    base = np.random.default_rng(0).normal(size=(48, 16)).astype(np.float32)

    def trained(seed):
        torch.manual_seed(0)
        config = AdapterConfig(epochs=2, batch=16)
        towers = TwoTowers(16, 16)
        train_towers(TowerDualEncoder(towers, base, base, queries, items, 0.1), clicks, config, seed=seed)
        return towers.query.embed(base, queries)

    np.testing.assert_array_equal(trained(3), trained(3))
    assert not np.array_equal(trained(3), trained(4))


def test_the_older_name_of_the_logq_correction_is_read():
    assert AdapterConfig.model_validate({"popularity": 0.5}).logq_correction == 0.5
    assert AdapterConfig(logq_correction=0.5).model_dump()["logq_correction"] == 0.5


def test_an_encoder_cached_under_the_older_name_is_found(dataset):
    """The fingerprint is computed from the settings with the names that they had before."""
    towers = TowerEncoding(Pretrained(), dataset, AdapterConfig(), static=True)
    texts = [json_digest(list(part)) for part in (dataset.train.queries.texts, dataset.items.texts)]
    names = ("epochs", "most_steps", "batch", "learning_rate", "popularity", "scale", "token_dropout")
    settings = {**dict(zip(names, (5, 800, 1024, 2e-3, 0.75, 12.0, 0.1), strict=True))}
    settings |= {"clustered": False, "mined": False}
    assert towers.fingerprint == json_digest([towers.base.fingerprint, settings, True, texts])


def test_steps_are_passes_over_the_queries_and_their_limit_is_at_least_one():
    config = AdapterConfig(epochs=5, batch=100)
    assert config.steps(50) == 5  # a batch is never larger than what there is
    assert config.steps(1_000) == 50
    assert config.steps(70_000) == 800
    assert config.steps(200_000) == 2_000
    assert AdapterConfig(epochs=5, batch=100, most_steps=7).steps(200_000) == 7


def test_towers_may_be_applied_to_any_extent_and_static_ones_only_as_trained(dataset, tiny):
    base = Pretrained(str(tiny), None, "torch")
    observed, rows, clicks = training_clicks(dataset)
    config = AdapterConfig(epochs=5, batch=32, learning_rate=0.02)
    encoding = TowerEncoding(base, dataset, config)
    assert encoding.extents == (1.0, 0.5, 0.0)
    assert TowerEncoding(base, dataset, config, static=True).extents == (1.0,)
    given = TowerEncoding(base, dataset, config.model_copy(update={"extent": 0.5}))
    assert given.extents == (0.5,)
    assert given.fingerprint == encoding.fingerprint  # applied after training: trained encoders are shared
    encoder = encoding.learn(rows, observed, clicks, 0)
    assert encoding.adapt(encoder, 1.0) is encoder
    frozen_queries, frozen_items = encoding.embed(encoding.adapt(encoder, 0.0), rows)
    np.testing.assert_allclose(frozen_queries, encoding.queries[rows], atol=1e-6)
    np.testing.assert_allclose(frozen_items, encoding.items, atol=1e-6)
    assert np.abs(encoding.embed(encoder, rows)[1] - frozen_items).max() > 0.1
    half = encoding.adapt(encoder, 0.5)
    texts = dataset.items.texts[:5]
    np.testing.assert_allclose(half.encode_items(texts), encoding.embed(half, rows)[1][:5], atol=1e-5)


def test_adapted_encoders_learn_vectors_of_bigrams_and_static_ones_do_not(tiny):
    items = {f"i{number}": f"red apple {word}" for number, word in enumerate(("cat", "pear", "plum"))}
    queries = {
        f"q{number}": f"small {word} fresh bread" for number, word in enumerate(("cat", "pear", "plum"))
    }
    dataset = Dataset.of(items, queries, [("q0", "i0"), ("q1", "i1"), ("q2", "i2")])
    base = Pretrained(tiny)
    towers = TowerEncoding(base, dataset, AdapterConfig(bigrams=4))
    pieces = BagTokenizer(base.tokenizer_file)
    bags = [pieces(texts) for texts in (dataset.train.queries.texts, dataset.items.texts)]
    expected = count_bigrams(bags, pieces.vocabulary, 4)
    assert towers.tokenizer.bigrams.tolist() == expected.tolist()
    assert len(expected) >= 2
    for found, plain in zip((towers.query_bags, towers.item_bags), bags, strict=True):
        assert found.tokens.tolist() == find_bigrams(plain, expected, pieces.pieces).tokens.tolist()
    without = TowerEncoding(base, dataset, AdapterConfig(bigrams=0))
    assert without.fingerprint != towers.fingerprint
    assert len(without.tokenizer.bigrams) == 0
    assert len(TowerEncoding(base, dataset, AdapterConfig(), static=True).tokenizer.bigrams) == 0
