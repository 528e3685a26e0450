import numpy as np
import pytest
import torch

from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.errors import ModelError


def test_batches_are_the_texts_asked_for():
    bags = TokenBags(np.array([5, 6, 7, 8, 9], np.int32), np.array([0, 2, 2, 5]))
    tokens, offsets = bags.batch(np.array([2, 0]))
    assert tokens.tolist() == [7, 8, 9, 5, 6]
    assert offsets.tolist() == [0, 3]
    taken = bags.take(np.array([1, 2]))
    assert taken.starts.tolist() == [0, 0, 3]
    assert taken.tokens.tolist() == [7, 8, 9]


def test_tokens_are_those_of_the_transformer():
    encoder = Pretrained()
    bags = BagTokenizer(encoder.tokenizer_file)(["red apple", "Red apples"])
    words = [line.strip() for line in (encoder.folder / "vocab.txt").open(encoding="utf-8")]
    assert [words[t] for t in bags.tokens] == ["red", "apple", "red", "apples"]
    assert bags.starts.tolist() == [0, 2, 4]


def test_long_texts_are_cut_and_a_missing_file_is_named(tmp_path):
    tokenizer = BagTokenizer(Pretrained().tokenizer_file, max_tokens=8)
    assert len(tokenizer(["word " * 100]).tokens) == 8
    with pytest.raises(ModelError, match="tokenizer"):
        BagTokenizer(tmp_path / "tokenizer.json")


def test_bags_of_no_texts():
    bags = BagTokenizer(Pretrained().tokenizer_file)([])
    assert len(bags) == 0
    assert bags.batch(np.empty(0, np.int64))[0].dtype == torch.int64


def test_bags_framed_are_what_the_tokenizer_frames():
    path = Pretrained().tokenizer_file
    texts = ["red apple", "", "word " * 100, "x"]
    plain = BagTokenizer(path, max_tokens=40)
    expected = BagTokenizer(path, max_tokens=12, special_tokens=True)(texts)
    framed = plain(texts).framed(*plain.frame, 12)
    assert framed.tokens.tolist() == expected.tokens.tolist()
    assert framed.starts.tolist() == expected.starts.tolist()
    assert len(plain([]).framed(*plain.frame, 12)) == 0
