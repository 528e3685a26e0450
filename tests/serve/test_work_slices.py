"""Requests in slices of bounded work."""

import pytest

from metaxc.encoders import Pretrained
from metaxc.encoders.tokens import BagTokenizer
from metaxc.serve.work_slices import Cutter, Slice, estimate_tokens, most_tokens

CUTTER = Cutter(slice_tokens=256, slice_texts=64, text_tokens=256)


def test_a_large_request_is_cut_into_slices_of_bounded_padded_tokens():
    texts = [text for place in range(80) for text in ("ab " * (1 + place % 9), "a" * 3900, "x " * 100)]
    slices = CUTTER.cut(texts)
    lengths = estimate_tokens(texts, 256)
    assert sorted(row for one in slices for row in one.rows) == list(range(240))
    assert all(one.weight == len(one.rows) * lengths[list(one.rows)].max() for one in slices)
    assert max(one.weight for one in slices) <= 256
    assert len([one for one in slices if len(one.rows) == 1]) == 80  # the longest texts
    assert [len(one.rows) for one in Cutter(10_000, 64).cut(["a b"] * 130)] == [64, 64, 2]
    assert CUTTER.cut([]) == []


def test_the_last_slice_is_apart_where_the_texts_need_several():
    long = "a" * 3900
    assert CUTTER.cut_before(["grey cat"]) == [Slice(5)]
    assert CUTTER.cut_before([]) == [Slice(1)]
    assert CUTTER.cut_before([long]) == [Slice(256)]
    assert CUTTER.cut_before([long, long], last_weight=2) == [Slice(256, (0,)), Slice(256, (1,)), Slice(2)]
    assert CUTTER.cut_before(["grey cat"], ["grey dog"]) == [Slice(10)]
    assert CUTTER.cut_before(["grey cat"], [long]) == [Slice(5, (0,)), Slice(257)]
    assert CUTTER.cut_before([], [long]) == [Slice(256)]


@pytest.mark.parametrize(
    "text",
    [
        "red running shoes for men, size 43",
        "Type 2 diabetes mellitus without complications (E11.9)",
        "红色跑步鞋",
    ],
)
def test_the_estimate_is_near_the_number_of_tokens(text):
    tokenizer = BagTokenizer(Pretrained().tokenizer_file, 256, special_tokens=True)
    [count] = [len(tokenizer([text]).tokens)]
    assert count / 1.6 <= estimate_tokens([text])[0] <= 1.6 * count


def test_an_encoder_that_does_not_say_how_much_it_reads_is_taken_to_read_512_tokens(tiny):
    assert most_tokens(object()) == 512
    assert most_tokens(Pretrained(tiny)) == Pretrained(tiny).max_tokens
