"""The contract of every encoder, and the embedding cache."""

import shutil

import numpy as np
import pytest
import torch

from metaxc.encoders import (
    Adapted,
    EmbeddingCache,
    Encoder,
    Pretrained,
    Static,
    Vectors,
    load_encoder,
    unit_rows,
)
from metaxc.encoders import encoder as encoder_module
from metaxc.encoders.adapted import TwoTowers, build_static_towers
from metaxc.encoders.tokens import BagTokenizer
from metaxc.errors import DataError, ModelError

TEXTS = ["red apple", "green pear", "a much longer text about an old wooden chair", "red apple"]


def build(kind):
    base = Pretrained()
    tokenizer = BagTokenizer(base.tokenizer_file)
    if kind == "pretrained":
        return base
    if kind == "static":
        return Static(None, build_static_towers(base, tokenizer.vocabulary), tokenizer)
    if kind == "adapted":
        torch.manual_seed(0)
        towers = TwoTowers(tokenizer.vocabulary, base.dim)
        with torch.no_grad():
            towers.item.table[2000:2600].normal_(0, 0.1)
            towers.item.out.weight.normal_(0, 0.1)
        return Adapted(base, towers, tokenizer)
    if kind == "bigrams":
        torch.manual_seed(0)
        tokenizer = tokenizer.with_bigrams(np.unique(tokenizer(TEXTS).bigrams(tokenizer.pieces)[0]))
        towers = TwoTowers(tokenizer.vocabulary, base.dim)
        with torch.no_grad():
            towers.item.table[-len(tokenizer.bigrams) :].normal_(0, 0.1)
        return Adapted(base, towers, tokenizer)
    random = np.random.default_rng(0)
    return Vectors(TEXTS[:3], random.normal(size=(3, 12)), TEXTS[:3], random.normal(size=(3, 12)))


@pytest.mark.parametrize(
    ("row", "message"), [([1e30, 1e30], "too large"), ([1e39, 0.0], "infinity"), ([0.0, 0.0], "zero vector")]
)
def test_vectors_that_have_no_unit_vector_are_refused(row, message):
    """A length that overflows would otherwise divide all numbers to zero."""
    with pytest.raises(DataError, match=message):
        unit_rows(np.array([[1.0, 0.0], row]))


@pytest.mark.parametrize("kind", ["pretrained", "adapted", "bigrams", "static", "vectors"])
class TestContract:
    def test_unit_float32_rows_in_order(self, kind):
        encoder = build(kind)
        assert isinstance(encoder, Encoder)
        for encode in (encoder.encode_queries, encoder.encode_items):
            vectors = encode(TEXTS)
            assert vectors.shape == (4, encoder.dim)
            assert vectors.dtype == np.float32
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
            np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-5)
            assert abs(vectors[0] @ vectors[1]) < 0.99

    def test_a_loaded_encoder_is_equal_to_the_saved_one(self, kind, tmp_path):
        encoder = build(kind)
        encoder.save(tmp_path)
        again = load_encoder(tmp_path)
        assert type(again) is type(encoder)
        assert again.fingerprint == encoder.fingerprint
        np.testing.assert_allclose(again.encode_items(TEXTS), encoder.encode_items(TEXTS), atol=1e-6)


def test_related_texts_are_nearer():
    apple, fruit, chair = Pretrained().encode_items(["apple", "a fruit", "office chair"])
    assert apple @ fruit > apple @ chair + 0.1


def test_loading_refuses_weights_other_than_those_of_training(tmp_path):
    (tmp_path / "saved").mkdir()
    build("adapted").save(tmp_path / "saved")
    other = tmp_path / "other"
    shutil.copytree(Pretrained().folder, other)
    config = other / "config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(ModelError, match="not the one the model was trained with"):
        load_encoder(tmp_path / "saved", base=other)


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(ModelError, match="sentence-transformers folder"):
        Pretrained(tmp_path)


class TestVectors:
    def test_nan_wrong_dimension_and_zero_vectors_are_errors(self):
        with pytest.raises(DataError, match="NaN"):
            unit_rows(np.array([[1.0, np.nan]]))
        with pytest.raises(DataError, match="wrong shape"):
            unit_rows(np.ones((2, 3)), dim=4)
        with pytest.raises(DataError, match="zero vector"):
            unit_rows(np.zeros((1, 3)))
        with pytest.raises(DataError, match="wrong shape"):
            Vectors(["q"], np.ones((1, 3)), ["i"], np.ones((1, 4)))
        with pytest.raises(DataError, match="differ in number"):
            Vectors(["q", "p"], np.ones((1, 3)), ["i"], np.ones((1, 3)))

    def test_an_unknown_text_is_an_error(self):
        with pytest.raises(DataError, match="blue plum"):
            build("vectors").encode_items(["blue plum"])


class CountingEncoder:
    """Encodes a text as its length and counts the calls; raises after `stop_after` calls."""

    def __init__(self, stop_after=None):
        self.calls, self.stop_after = 0, stop_after

    def __call__(self, texts):
        if self.calls == self.stop_after:
            raise RuntimeError("killed")
        self.calls += 1
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(encoder_module, "CHUNK", 3)
    return EmbeddingCache(tmp_path)


CACHED_TEXTS = ["a" * n for n in range(1, 11)]


def test_texts_are_encoded_once_and_then_read_from_disk(cache):
    encode = CountingEncoder()
    first = cache.get("f", CACHED_TEXTS, 2, encode)
    assert first[:, 0].tolist() == list(range(1, 11))
    assert encode.calls == 4
    assert isinstance(cache.get("f", CACHED_TEXTS, 2, CountingEncoder(0)), np.memmap)
    cache.get("another encoder", CACHED_TEXTS, 2, encode)
    assert encode.calls == 8


def test_a_killed_run_resumes_with_its_unfinished_chunk(cache):
    with pytest.raises(RuntimeError, match="killed"):
        cache.get("f", CACHED_TEXTS, 2, CountingEncoder(stop_after=2))
    encode = CountingEncoder()
    vectors = cache.get("f", CACHED_TEXTS, 2, encode)
    assert encode.calls == 2
    assert vectors[:, 0].tolist() == list(range(1, 11))


def test_a_damaged_file_is_encoded_again(cache, tmp_path):
    cache.get("f", CACHED_TEXTS, 2, CountingEncoder())
    file = next(tmp_path.rglob("*.npy"))
    data = bytearray(file.read_bytes())
    data[-3] ^= 0xFF
    file.write_bytes(bytes(data))
    encode = CountingEncoder()
    assert cache.get("f", CACHED_TEXTS, 2, encode)[-1].tolist() == [10, 1]
    assert encode.calls == 4


def test_embeddings_of_other_texts_or_another_encoder_are_not_taken_for_these(cache, tmp_path):
    others = [text + "b" for text in CACHED_TEXTS]
    cache.get("f", others, 2, CountingEncoder())
    foreign = {file.suffix: file for file in tmp_path.rglob("*") if file.suffix in (".npy", ".json")}
    cache.get("f", CACHED_TEXTS, 2, CountingEncoder())
    for file in foreign["." + "npy"].parent.iterdir():
        if file.suffix in foreign and file.stem != foreign[file.suffix].stem:
            shutil.copy(foreign[file.suffix], file)
    encode = CountingEncoder()
    assert cache.get("f", CACHED_TEXTS, 2, encode)[:, 0].tolist() == list(range(1, 11))
    assert encode.calls == 4
    for place in list(tmp_path.rglob("*")):
        if place.name == "f":
            shutil.copytree(place, place.with_name("g"))
    cache.get("g", CACHED_TEXTS, 2, encode)
    assert encode.calls == 8


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused_and_not_kept(cache, bad):
    def encode(texts):
        return np.full((len(texts), 2), bad, np.float32)

    with pytest.raises(ModelError, match="NaN or infinity"):
        cache.get("f", CACHED_TEXTS, 2, encode)
    assert cache.get("f", CACHED_TEXTS, 2, CountingEncoder())[:, 0].tolist() == list(range(1, 11))


@pytest.mark.parametrize(("name", "content"), [(".done", b"many"), (".done", b"99"), (".part", b"x")])
def test_damaged_files_of_a_killed_run_are_made_again(cache, tmp_path, name, content):
    with pytest.raises(RuntimeError, match="killed"):
        cache.get("f", CACHED_TEXTS, 2, CountingEncoder(stop_after=2))
    next(tmp_path.rglob(f"*{name}")).write_bytes(content)
    encode = CountingEncoder()
    assert cache.get("f", CACHED_TEXTS, 2, encode)[:, 0].tolist() == list(range(1, 11))
    assert encode.calls == 4


def test_the_default_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("METAXC_CACHE", str(tmp_path / "elsewhere"))
    assert EmbeddingCache().folder == tmp_path / "elsewhere"
    monkeypatch.delenv("METAXC_CACHE")
    assert EmbeddingCache().folder.parts[-2:] == (".cache", "metaxc")


def test_bigrams_are_part_of_what_an_encoder_is(tmp_path):
    encoder, other = build("bigrams"), build("bigrams")
    pieces = BagTokenizer(encoder.base.tokenizer_file)
    changed = encoder.tokenizer.bigrams.copy()
    changed[-1] += 1
    other.tokenizer = pieces.with_bigrams(changed)
    assert other.fingerprint != encoder.fingerprint
    alone = encoder.encode_items(["apple red"])  # its pieces are known, in another order
    assert np.abs(encoder.encode_items(["red apple"]) - alone).max() > 0.01
    np.testing.assert_allclose(alone, encoder.base.encode_items(["apple red"]), atol=1e-6)
    assert len(encoder.encode_queries(TEXTS)) == len(TEXTS)


@pytest.mark.parametrize(
    "damage", [lambda keys: keys[::-1], lambda keys: keys - 10**10, lambda keys: keys * 10**6]
)
def test_bigrams_that_cannot_be_are_refused(tmp_path, damage):
    encoder = build("bigrams")
    encoder.tokenizer.bigrams = np.ascontiguousarray(damage(encoder.tokenizer.bigrams))
    encoder.save(tmp_path)
    with pytest.raises(ModelError, match="bigrams"):
        load_encoder(tmp_path)
