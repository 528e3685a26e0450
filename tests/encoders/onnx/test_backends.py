"""The ONNX backends of a pretrained encoder, held against torch."""

import sys

import numpy as np
import pytest
import torch

from metaxc.artifacts import load_json, save_json
from metaxc.encoders import Adapted, EmbeddingCache, Pretrained, frozen_base, load_encoder
from metaxc.encoders.onnx import onnx_export, onnx_install
from metaxc.encoders.tokens import BagTokenizer
from metaxc.encoders.towers import TwoTowers
from metaxc.errors import ConfigError, ModelError

LONG = "a long text about the price of old fish in the market of wooden chairs " * 30
TEXTS = ["red apple", LONG, "pear", "", "young plums", "an old wooden table", "red apple", "fish", LONG[:90]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return EmbeddingCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def without_onnxruntime(monkeypatch):
    monkeypatch.setattr(onnx_install, "missing", lambda: ["onnxruntime"])
    for module in ("pretrained", "onnx.choice"):
        monkeypatch.setattr(f"metaxc.encoders.{module}.missing", lambda: ["onnxruntime"])


def test_float32_is_torch_but_for_rounding(tiny, cache):
    expected = Pretrained(tiny).encode_items(TEXTS)
    np.testing.assert_allclose(Pretrained(tiny, cache, "onnx").encode_items(TEXTS), expected, atol=1e-5)


def test_int8_is_near_and_is_another(tiny, cache):
    expected = Pretrained(tiny).encode_items(TEXTS)
    found = Pretrained(tiny, cache, "onnx-int8").encode_items(TEXTS)
    cosines = (found * expected).sum(axis=1)
    assert cosines.min() > 0.998
    assert np.abs(found - expected).max() > 1e-4  # or nothing was quantised


@pytest.mark.parametrize("backend", ["onnx", "onnx-int8"])
class TestEveryText:
    def test_has_the_same_embedding_alone_and_in_any_company(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        together = encoder.encode_items(TEXTS)
        alone = np.concatenate([encoder.encode_items([text]) for text in TEXTS])
        np.testing.assert_allclose(alone, together, atol=1e-5)
        backwards = encoder.encode_items(TEXTS[::-1])[::-1]
        np.testing.assert_allclose(backwards, together, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)

    def test_none_is_none(self, tiny, cache, backend):
        assert Pretrained(tiny, cache, backend).encode_items([]).shape == (0, 64)

    def test_is_cut_where_torch_cuts_it(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        assert encoder.max_tokens == 32
        whole, cut = encoder.encode_items([LONG, " ".join(LONG.split()[:30])])
        np.testing.assert_allclose(whole, cut, atol=1e-5)

    def test_is_the_same_with_more_threads(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        one = encoder.encode_items(TEXTS)
        torch.set_num_threads(2)
        np.testing.assert_allclose(encoder.encode_items(TEXTS), one, atol=1e-5)
        assert encoder._onnx._session.get_session_options().intra_op_num_threads == 2


def test_each_backend_has_a_fingerprint_and_torch_keeps_the_old_one(tiny, cache):
    encoders = {name: Pretrained(tiny, cache, name) for name in ("torch", "onnx", "onnx-int8")}
    assert len({encoder.fingerprint for encoder in encoders.values()}) == 3
    assert encoders["torch"].fingerprint == encoders["onnx"].weights


def test_embeddings_of_two_backends_do_not_mix_in_the_cache(tiny, tmp_path):
    many = [
        f"{how} {what}"
        for how in TEXTS[:9]
        for what in ("apple", "pear", "chair", "fish", "x", "y", "z", "a")
    ]
    cache = EmbeddingCache(tmp_path)
    exact, rounded = (Pretrained(tiny, cache, name).encode_items(many) for name in ("torch", "onnx-int8"))
    assert np.abs(exact - rounded).max() > 1e-4


def adapted(base):
    torch.manual_seed(0)
    tokenizer = BagTokenizer(base.tokenizer_file)
    towers = TwoTowers(tokenizer.vocabulary, base.dim)
    with torch.no_grad():
        towers.item.table.normal_(0, 0.1)
        towers.item.out.weight.normal_(0, 0.1)
    return Adapted(base, towers, tokenizer)


class TestSaved:
    @pytest.mark.parametrize("make", [adapted, lambda base: base], ids=["adapted", "pretrained"])
    def test_a_loaded_encoder_has_the_backend_it_was_saved_with(self, tiny, cache, tmp_path, make):
        encoder = make(Pretrained(tiny, cache, "onnx-int8"))
        encoder.save(tmp_path)
        again = load_encoder(tmp_path, cache=cache)
        assert again.fingerprint == encoder.fingerprint
        assert frozen_base(again, tiny, cache, TEXTS).backend == "onnx-int8"
        np.testing.assert_array_equal(again.encode_items(TEXTS), encoder.encode_items(TEXTS))

    def test_a_folder_from_before_there_were_backends_is_torchs(self, tiny, tmp_path):
        encoder = adapted(Pretrained(tiny))
        encoder.save(tmp_path)
        facts = load_json(tmp_path / "encoder.json")
        del facts["base"]["backend"]
        save_json(tmp_path / "encoder.json", facts)
        again = load_encoder(tmp_path)
        assert again.base.backend == "torch"
        assert again.fingerprint == encoder.fingerprint

    def test_without_onnxruntime_the_error_says_what_to_install(self, tiny, cache, tmp_path, request):
        Pretrained(tiny, cache, "onnx-int8").save(tmp_path)
        request.getfixturevalue("without_onnxruntime")
        with pytest.raises(ModelError, match=r"no onnxruntime(.|\n)*pip install 'metaxc\[fast\]'"):
            load_encoder(tmp_path, cache=cache)


class TestKeptGraph:
    def test_is_exported_once(self, tiny, tmp_path, monkeypatch):
        first = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        monkeypatch.setattr(onnx_export, "_write", None)
        again = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8")
        np.testing.assert_array_equal(again.encode_items(TEXTS), first)
        assert "_model" not in again.__dict__  # served without torch's modules

    @pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:999] + b"?" + data[1000:]])
    def test_damaged_it_is_exported_again(self, tiny, tmp_path, damage):
        first = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        [file] = tmp_path.rglob("model.onnx")
        whole = file.read_bytes()
        file.write_bytes(damage(whole))
        again = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        np.testing.assert_array_equal(again, first)
        assert file.read_bytes() == whole

    def test_without_a_cache_it_goes_with_the_process(self, tiny):
        encoder = Pretrained(tiny, backend="onnx")
        encoder.encode_items(TEXTS)
        assert encoder._onnx.folder.parent == onnx_export._temporary()

    def test_that_cannot_be_made_is_an_error_with_a_way_out(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime.transformers", None)
        with pytest.raises(ModelError, match=r"cannot be exported(.|\n)*backend torch"):
            Pretrained(tiny, EmbeddingCache(tmp_path), "onnx").encode_items(TEXTS)
        assert not list(tmp_path.rglob("model.onnx"))


def test_tokens_are_made_once_and_give_the_same_embeddings(tiny, cache, monkeypatch):
    encoder = adapted(Pretrained(tiny, cache, "onnx-int8"))
    expected = encoder.encode_items(TEXTS)
    assert encoder.base.takes(encoder.tokenizer)
    monkeypatch.setattr(Pretrained, "takes", lambda *args: False)
    np.testing.assert_array_equal(encoder.encode_items(TEXTS), expected)
    monkeypatch.undo()
    monkeypatch.setattr(Pretrained, "encode_items", None)  # would tokenize again
    np.testing.assert_array_equal(encoder.encode_items(TEXTS), expected)
    assert not encoder.base.takes(BagTokenizer(tiny / "tokenizer.json", max_tokens=29))
    assert encoder.base.takes(BagTokenizer(tiny / "tokenizer.json", max_tokens=30))


def test_an_encoder_that_is_not_plain_stays_on_torch(tiny, tmp_path):
    import shutil

    other = tmp_path / "other"
    shutil.copytree(tiny, other)
    modules = load_json(other / "modules.json")
    modules[0]["type"] = "somewhere.Else"
    save_json(other / "modules.json", modules)
    assert Pretrained(other, backend="auto", texts=TEXTS).backend == "torch"
    with pytest.raises(ModelError, match="BERT-like"):
        _ = Pretrained(other, backend="onnx").backend


def test_an_unknown_backend_is_named_and_auto_asks_for_texts(tiny):
    with pytest.raises(ConfigError, match=r"magic(.|\n)*onnx-int8"):
        Pretrained(tiny, backend="magic")
    with pytest.raises(ConfigError, match="texts="):
        Pretrained(tiny, backend="auto")
