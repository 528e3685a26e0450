from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer, TokenBags, batches_by_length, count_bigrams, find_bigrams
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


def bags_of(*texts):
    lengths = [len(text) for text in texts]
    tokens = np.array([token for text in texts for token in text], np.int32)
    return TokenBags(tokens, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def test_bigrams_do_not_reach_from_one_text_into_the_next():
    pairs, text = bags_of([1, 2, 3], [], [4], [5, 6]).bigrams(10)
    assert pairs.tolist() == [12, 23, 56]
    assert text.tolist() == [0, 0, 3]


def test_bigrams_that_are_in_the_most_texts_are_taken_and_none_that_is_in_two():
    queries = bags_of([1, 2, 3], [1, 2], [7, 8, 7, 8, 7, 8], [4, 5], [1, 2])
    items = bags_of([4, 5], [4, 5], [2, 3], [2, 3, 9], [2, 3])
    assert count_bigrams([queries, items], 10, 100).tolist() == [12, 23, 45]  # 78 is in one text, three times
    assert count_bigrams([queries, items], 10, 1).tolist() == [23]  # in four texts
    assert count_bigrams([queries, items], 10, 2).tolist() == [12, 23]  # of those in three texts the first
    assert count_bigrams([queries, items], 10, 0).tolist() == []
    assert count_bigrams([bags_of([1]), bags_of([])], 10, 5).tolist() == []


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=7), max_size=6), st.sets(st.integers(0, 24), max_size=12)
)
def test_known_bigrams_stand_behind_the_pieces_of_their_text(texts, known):
    known = np.array(sorted(known), np.int64)
    found = find_bigrams(bags_of(*texts), known, 5)
    assert len(found) == len(texts)
    for row, text in enumerate(texts):
        pairs = [first * 5 + second for first, second in pairwise(text)]
        expected = text + [5 + known.tolist().index(pair) for pair in pairs if pair in known]
        assert found.tokens[found.starts[row] : found.starts[row + 1]].tolist() == expected


def test_a_tokenizer_with_bigrams_numbers_them_after_the_pieces():
    plain = BagTokenizer(Pretrained().tokenizer_file)
    pairs, _ = plain(["red apple"]).bigrams(plain.pieces)
    paired = plain.with_bigrams(pairs)
    assert paired.vocabulary == plain.vocabulary + 1
    texts = ["a red apple", "apple red"]
    assert paired.read_pieces(texts).tokens.tolist() == plain(texts).tokens.tolist()
    assert paired(texts).tokens.tolist()[:4] == [*plain(texts).tokens.tolist()[:3], plain.vocabulary]
    assert paired(texts).starts.tolist() == [0, 4, 6]
    assert len(plain.bigrams) == 0
