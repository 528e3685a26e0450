import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags, batches_by_length
from metaxc.errors import ModelError


def test_a_batch_has_the_texts_at_its_rows():
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


def test_long_texts_are_cut_and_a_missing_file_is_an_error(tmp_path):
    tokenizer = BagTokenizer(Pretrained().tokenizer_file, max_tokens=8)
    assert len(tokenizer(["word " * 100]).tokens) == 8
    with pytest.raises(ModelError, match="tokenizer"):
        BagTokenizer(tmp_path / "tokenizer.json")


def test_no_texts_give_no_bags():
    bags = BagTokenizer(Pretrained().tokenizer_file)([])
    assert len(bags) == 0
    assert bags.batch(np.empty(0, np.int64))[0].dtype == torch.int64


def test_special_tokens_are_added_as_the_tokenizer_adds_them():
    path = Pretrained().tokenizer_file
    texts = ["red apple", "", "word " * 100, "x"]
    plain = BagTokenizer(path, max_tokens=40)
    expected = BagTokenizer(path, max_tokens=12, special_tokens=True)(texts)
    found = plain(texts).with_special_tokens(*plain.boundary_tokens, 12)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.starts.tolist() == expected.starts.tolist()
    assert len(plain([]).with_special_tokens(*plain.boundary_tokens, 12)) == 0


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 120))
def test_batches_hold_every_row_once_and_not_too_many_tokens(lengths, tokens):
    batches = list(batches_by_length(np.array(lengths, dtype=np.int64), tokens))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= tokens
