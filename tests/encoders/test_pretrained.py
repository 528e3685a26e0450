import numpy as np
import pytest

from metaxc.encoders import EmbeddingCache, Pretrained, pretrained
from metaxc.encoders.onnx import onnx_versions


def test_embeddings_are_equal_to_those_of_sentence_transformers():
    encoder = Pretrained()
    texts = ["red apple", "a long text about the price of fish in the market " * 40, "", "café – naïve", "x"]
    expected = encoder._model.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_items(texts), expected, atol=1e-6)


def test_what_a_digest_needs_never_chooses_a_backend_exports_or_encodes(tiny, tmp_path, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("this is not cheap")

    for name in ("choose_backend", "recall_or_choose", "export_or_reuse"):
        monkeypatch.setattr(pretrained, name, never)
    for name in ("sentence_transformer", "_encode_now", "_embed"):
        monkeypatch.setattr(Pretrained, name, never)
    encoder = Pretrained(tiny, EmbeddingCache(tmp_path), "auto", texts=["red apple", "old chair"])
    assert len(encoder.weights) == 64
    assert encoder.weights == Pretrained(tiny).fingerprint
    assert encoder.dim == 64
    assert "backend='auto'" in repr(encoder)
    assert all(isinstance(line, str) for line in onnx_versions())
    assert not list(tmp_path.iterdir())
    with pytest.raises(AssertionError, match="not cheap"):
        _ = encoder.backend


def test_an_encoder_without_word_pieces_is_read_by_the_library_itself(tiny, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    random = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 16)).astype(np.float32)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, random), Normalize()], device="cpu")
    model.save(str(tmp_path / "static"))
    texts = ["red apple", "old wooden chair", "fish"]
    encoder = Pretrained(tmp_path / "static")
    assert encoder.dim == 16
    np.testing.assert_allclose(
        encoder.encode_items(texts), model.encode(texts, normalize_embeddings=True), atol=1e-6
    )
