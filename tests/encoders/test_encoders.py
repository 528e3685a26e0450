"""One contract for every encoder."""

import shutil

import numpy as np
import pytest
import torch

from metaxc.encoders import Adapted, Encoder, Pretrained, Static, Vectors, load_encoder, unit_rows
from metaxc.encoders.adapted import static_towers
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.towers import TwoTowers
from metaxc.errors import DataError, ModelError

TEXTS = ["red apple", "green pear", "a much longer text about an old wooden chair", "red apple"]


def make(kind):
    base = Pretrained()
    tokenizer = BagTokenizer(base.tokenizer_file)
    if kind == "pretrained":
        return base
    if kind == "static":
        return Static(None, static_towers(base, tokenizer.vocabulary), tokenizer)
    if kind == "adapted":
        torch.manual_seed(0)
        towers = TwoTowers(tokenizer.vocabulary, base.dim)
        with torch.no_grad():
            towers.item.table[2000:2600].normal_(0, 0.1)
            towers.item.out.weight.normal_(0, 0.1)
        return Adapted(base, towers, tokenizer)
    random = np.random.default_rng(0)
    return Vectors(TEXTS[:3], random.normal(size=(3, 12)), TEXTS[:3], random.normal(size=(3, 12)))


@pytest.mark.parametrize("kind", ["pretrained", "adapted", "static", "vectors"])
class TestContract:
    def test_unit_float32_rows_in_order(self, kind):
        encoder = make(kind)
        assert isinstance(encoder, Encoder)
        for encode in (encoder.encode_queries, encoder.encode_items):
            vectors = encode(TEXTS)
            assert vectors.shape == (4, encoder.dim)
            assert vectors.dtype == np.float32
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
            np.testing.assert_allclose(vectors[0], vectors[3], atol=1e-5)
            assert abs(vectors[0] @ vectors[1]) < 0.99

    def test_saved_and_loaded_it_is_the_same(self, kind, tmp_path):
        encoder = make(kind)
        encoder.save(tmp_path)
        again = load_encoder(tmp_path)
        assert type(again) is type(encoder)
        assert again.fingerprint == encoder.fingerprint
        np.testing.assert_allclose(again.encode_items(TEXTS), encoder.encode_items(TEXTS), atol=1e-6)


def test_related_texts_are_nearer():
    apple, fruit, chair = Pretrained().encode_items(["apple", "a fruit", "office chair"])
    assert apple @ fruit > apple @ chair + 0.1


def test_weights_other_than_those_trained_with_are_refused(tmp_path):
    make("adapted").save(tmp_path / "saved" if (tmp_path / "saved").mkdir() is None else tmp_path)
    other = tmp_path / "other"
    shutil.copytree(Pretrained().folder, other)
    config = other / "config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(ModelError, match="not the one the model was trained with"):
        load_encoder(tmp_path / "saved", base=other)


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="sentence-transformers folder"):
        Pretrained(tmp_path)


class TestVectors:
    def test_nan_wrong_dimension_and_zero_are_named(self):
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

    def test_an_unknown_text_is_named(self):
        with pytest.raises(DataError, match="blue plum"):
            make("vectors").encode_items(["blue plum"])
