"""A sentence-transformers folder small enough to be exported in every test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

WORDS = (
    "a red green old young apple pear plum chair table wooden long short text about price of fish market".split()  # noqa: SIM905
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A BERT of two layers with random weights, mean pooling, 64 dimensions, at most 32 tokens of a text."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    place = tmp_path_factory.mktemp("tiny")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##er"]
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
