"""ONNX graphs: compared with torch, quantised to int8, exported once."""

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from metaxc.artifacts import load_json, save_json, write_manifest
from metaxc.encoders import Adapted, EmbeddingCache, Pretrained, frozen_base, load_encoder, onnx_graph
from metaxc.encoders.adapted import TwoTowers
from metaxc.encoders.onnx_graph import products_saturate, quantise, start_session
from metaxc.encoders.tokens import BagTokenizer
from metaxc.errors import ConfigError, ModelError

LONG = "a long text about the price of old fish in the market of wooden chairs " * 30
TEXTS = ["red apple", LONG, "pear", "", "young plums", "an old wooden table", "red apple", "fish", LONG[:90]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return EmbeddingCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def without_onnxruntime(monkeypatch):
    for module in ("pretrained", "onnx"):
        monkeypatch.setattr(f"metaxc.encoders.{module}.missing_packages", lambda: ["onnxruntime"])


def test_float32_equals_torch_except_for_rounding(tiny, cache):
    expected = Pretrained(tiny).encode_items(TEXTS)
    np.testing.assert_allclose(Pretrained(tiny, cache, "onnx").encode_items(TEXTS), expected, atol=1e-5)


def test_int8_is_near_torch_but_not_equal(tiny, cache):
    expected = Pretrained(tiny).encode_items(TEXTS)
    found = Pretrained(tiny, cache, "onnx-int8").encode_items(TEXTS)
    cosines = (found * expected).sum(axis=1)
    assert cosines.min() > 0.998
    assert np.abs(found - expected).max() > 1e-4  # or nothing was quantised


@pytest.mark.parametrize("backend", ["onnx", "onnx-int8"])
class TestTexts:
    def test_a_text_has_the_same_embedding_alone_and_in_any_batch(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        together = encoder.encode_items(TEXTS)
        alone = np.concatenate([encoder.encode_items([text]) for text in TEXTS])
        np.testing.assert_allclose(alone, together, atol=1e-5)
        backwards = encoder.encode_items(TEXTS[::-1])[::-1]
        np.testing.assert_allclose(backwards, together, atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)

    def test_no_texts_give_no_embeddings(self, tiny, cache, backend):
        assert Pretrained(tiny, cache, backend).encode_items([]).shape == (0, 64)

    def test_long_texts_are_cut_where_torch_cuts_them(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        assert encoder.max_tokens == 32
        whole, cut = encoder.encode_items([LONG, " ".join(LONG.split()[:30])])
        np.testing.assert_allclose(whole, cut, atol=1e-5)

    def test_embeddings_are_the_same_with_more_threads(self, tiny, cache, backend):
        encoder = Pretrained(tiny, cache, backend)
        one = encoder.encode_items(TEXTS)
        torch.set_num_threads(2)
        np.testing.assert_allclose(encoder.encode_items(TEXTS), one, atol=1e-5)
        assert encoder._onnx._session.get_session_options().intra_op_num_threads == 2


def test_each_backend_has_its_own_fingerprint_and_torch_the_weights(tiny, cache):
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


def build_adapted(base):
    torch.manual_seed(0)
    tokenizer = BagTokenizer(base.tokenizer_file)
    towers = TwoTowers(tokenizer.vocabulary, base.dim)
    with torch.no_grad():
        towers.item.table.normal_(0, 0.1)
        towers.item.out.weight.normal_(0, 0.1)
    return Adapted(base, towers, tokenizer)


class TestSaved:
    @pytest.mark.parametrize("build", [build_adapted, lambda base: base], ids=["adapted", "pretrained"])
    def test_a_loaded_encoder_has_the_backend_it_was_saved_with(self, tiny, cache, tmp_path, build):
        encoder = build(Pretrained(tiny, cache, "onnx-int8"))
        encoder.save(tmp_path)
        again = load_encoder(tmp_path, cache=cache)
        assert again.fingerprint == encoder.fingerprint
        assert frozen_base(again, tiny, cache, TEXTS).backend == "onnx-int8"
        np.testing.assert_array_equal(again.encode_items(TEXTS), encoder.encode_items(TEXTS))

    def test_a_folder_from_before_there_were_backends_uses_torch(self, tiny, tmp_path):
        encoder = build_adapted(Pretrained(tiny))
        encoder.save(tmp_path)
        facts = load_json(tmp_path / "encoder.json")
        del facts["base"]["backend"]
        save_json(tmp_path / "encoder.json", facts)
        again = load_encoder(tmp_path)
        assert again.base.backend == "torch"
        assert again.fingerprint == encoder.fingerprint

    def test_without_onnxruntime_the_error_has_the_install_command(self, tiny, cache, tmp_path, request):
        Pretrained(tiny, cache, "onnx-int8").save(tmp_path)
        request.getfixturevalue("without_onnxruntime")
        with pytest.raises(ModelError, match=r"no onnxruntime(.|\n)*pip install 'metaxc\[fast\]'"):
            load_encoder(tmp_path, cache=cache)


class TestExportedGraph:
    def test_is_exported_once(self, tiny, tmp_path, monkeypatch):
        first = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        monkeypatch.setattr(onnx_graph, "write_graph", None)
        again = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8")
        np.testing.assert_array_equal(again.encode_items(TEXTS), first)
        assert "_model" not in again.__dict__  # used without torch modules

    @pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:999] + b"?" + data[1000:]])
    def test_a_damaged_graph_is_exported_again(self, tiny, tmp_path, damage):
        first = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        [file] = tmp_path.rglob("model.onnx")
        whole = file.read_bytes()
        file.write_bytes(damage(whole))
        again = Pretrained(tiny, EmbeddingCache(tmp_path), "onnx-int8").encode_items(TEXTS)
        np.testing.assert_array_equal(again, first)
        assert file.read_bytes() == whole

    def test_the_graph_of_another_encoder_is_not_taken_for_this_one(self, tiny, tmp_path):
        cache = EmbeddingCache(tmp_path)
        expected = Pretrained(tiny, cache, "onnx").encode_items(TEXTS)
        exact = Pretrained(tiny, cache, "onnx").fingerprint[:32]
        Pretrained(tiny, cache, "onnx-int8").encode_items(TEXTS)
        coarse = Pretrained(tiny, cache, "onnx-int8").fingerprint[:32]
        shutil.rmtree(tmp_path / "onnx" / exact)
        shutil.copytree(tmp_path / "onnx" / coarse, tmp_path / "onnx" / exact)  # whole, with its manifest
        np.testing.assert_array_equal(Pretrained(tiny, cache, "onnx").encode_items(TEXTS), expected)

    @pytest.mark.parametrize("facts", [[], {}, {"max_tokens": "32"}])
    def test_wrong_facts_with_a_manifest_that_fits_are_an_error(self, tiny, tmp_path, facts):
        cache = EmbeddingCache(tmp_path)
        encoder = Pretrained(tiny, cache, "onnx")
        encoder.encode_items(TEXTS)
        place = tmp_path / "onnx" / encoder.fingerprint[:32]
        save_json(place / "facts.json", facts)
        write_manifest(place, load_json(place / "manifest.json")["kind"])
        with pytest.raises(ModelError, match="damaged"):
            Pretrained(tiny, cache, "onnx").encode_items(TEXTS)

    def test_without_a_cache_it_is_in_a_temporary_folder(self, tiny):
        encoder = Pretrained(tiny, backend="onnx")
        encoder.encode_items(TEXTS)
        assert encoder._onnx.folder.parent == onnx_graph._temporary_folder()

    def test_a_failed_export_is_an_error_that_names_the_way_out(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnxruntime.transformers", None)
        with pytest.raises(ModelError, match=r"cannot be exported(.|\n)*backend torch"):
            Pretrained(tiny, EmbeddingCache(tmp_path), "onnx").encode_items(TEXTS)
        assert not list(tmp_path.rglob("model.onnx"))


def test_texts_are_tokenized_once_for_base_and_towers(tiny, cache, monkeypatch):
    encoder = build_adapted(Pretrained(tiny, cache, "onnx-int8"))
    expected = encoder.encode_items(TEXTS)
    assert encoder.base.accepts_bags_of(encoder.tokenizer)
    monkeypatch.setattr(Pretrained, "accepts_bags_of", lambda *args: False)
    np.testing.assert_array_equal(encoder.encode_items(TEXTS), expected)
    monkeypatch.undo()
    monkeypatch.setattr(Pretrained, "encode", None)  # would tokenize again
    np.testing.assert_array_equal(encoder.encode_items(TEXTS), expected)
    assert not encoder.base.accepts_bags_of(BagTokenizer(tiny / "tokenizer.json", max_tokens=29))
    assert encoder.base.accepts_bags_of(BagTokenizer(tiny / "tokenizer.json", max_tokens=30))


def test_an_encoder_that_is_not_bert_like_stays_on_torch(tiny, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny, other)
    modules = load_json(other / "modules.json")
    modules[0]["type"] = "sentence_transformers.models.StaticEmbedding"
    save_json(other / "modules.json", modules)
    assert Pretrained(other, backend="auto", texts=TEXTS).backend == "torch"
    with pytest.raises(ModelError, match="BERT-like"):
        _ = Pretrained(other, backend="onnx").backend


def test_an_unknown_backend_and_auto_without_texts_are_errors(tiny):
    with pytest.raises(ConfigError, match=r"magic(.|\n)*onnx-int8"):
        Pretrained(tiny, backend="magic")
    with pytest.raises(ConfigError, match="texts="):
        Pretrained(tiny, backend="auto")


RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(64, 8)).astype(np.float32) * np.logspace(-3, 2, 8, dtype=np.float32)


@pytest.fixture
def product(tmp_path):
    """The file of a graph that computes x · W in int8, and a function that runs it as the encoder does."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["texts", "tokens", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["texts", "tokens", 8])],
        [numpy_helper.from_array(WEIGHTS, "W")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(file))
    quantise(file)
    session = start_session(file, threads=1)
    return file, lambda x: session.run(None, {"x": x})[0]


def test_each_token_and_each_channel_has_its_own_scale(product):
    x = RANDOM.normal(size=(3, 5, 64)).astype(np.float32)
    x[0, 0] *= 1000  # one large token must not cost the others precision
    x[1, 1] /= 1000
    expected = x @ WEIGHTS
    error = np.abs(product[1](x) - expected)
    size = np.linalg.norm(x, axis=-1, keepdims=True) * np.linalg.norm(WEIGHTS, axis=0)
    assert (error / size).max() < 0.005
    assert (error / size).max() > 1e-5


def test_zeros_stay_zeros(product):
    assert product[1](np.zeros((1, 2, 64), np.float32)).tolist() == np.zeros((1, 2, 8)).tolist()


def test_the_float_weights_are_removed(product):
    stored = {tensor.name: tensor.data_type for tensor in onnx.load(str(product[0])).graph.initializer}
    assert "W" not in stored
    assert stored["W.int8"] == TensorProto.INT8


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", "avx2", True),
        ("AMD64", None, True),
        ("x86_64", "avx2 avx512_vnni", False),
        ("aarch64", None, False),
    ],
)
def test_products_saturate_on_x86_without_vnni(machine, flags, expected, monkeypatch):
    def read_text(path, **kwargs):
        if flags is None:
            raise OSError
        return flags

    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert products_saturate() is expected
