import numpy as np
import pytest

from metaxc.encoders.training.text_pairs import MIN_WORDS, build_text_pairs
from metaxc.errors import DataError

ITEMS = [
    f"{size} {animal} in the wooden house"
    for animal in ("cat", "dog", "cow", "pig")
    for size in ("old", "new")
]
QUERIES = [
    f"{animal} of {colour} colour" for animal in ("cat", "dog", "cow", "pig") for colour in ("red", "blue")
]


def list_pairs(found):
    rows, columns = found.clicks.nonzero()
    return [(found.queries[r], found.items[c]) for r, c in zip(rows, columns, strict=True)]


def test_a_span_is_paired_with_a_part_of_its_own_text():
    found = build_text_pairs(QUERIES, ITEMS, most=100)
    texts = [text for text in (*ITEMS, *QUERIES) if len(text.split()) >= MIN_WORDS]
    halves = [(left, right) for left, right in list_pairs(found) if right not in {*ITEMS, *QUERIES}]
    assert len(halves) == len(texts)
    for left, right in halves:
        assert any(left in text and set(right.split()) <= set(text.split()) for text in texts)
    without = [(left, right) for left, right in halves if len(left.split()) + len(right.split()) in (4, 6)]
    assert any(set(left.split()).isdisjoint(right.split()) for left, right in without)


def test_queries_are_paired_with_the_items_they_share_rare_words_with():
    found = set(list_pairs(build_text_pairs(QUERIES, ITEMS, most=100)))
    for query in QUERIES:
        for item in ITEMS:
            if query.split()[0] in item.split():
                assert (query, item) in found


def test_the_seed_decides_the_pairs_and_most_limits_them():
    few = build_text_pairs(QUERIES, ITEMS, most=3, seed=1)
    again = build_text_pairs(QUERIES, ITEMS, most=3, seed=1)
    assert list_pairs(few) == list_pairs(again)
    assert list_pairs(few) != list_pairs(build_text_pairs(QUERIES, ITEMS, most=3, seed=2))
    assert few.clicks.nnz < build_text_pairs(QUERIES, ITEMS, most=100).clicks.nnz


def test_every_pseudo_query_has_a_click():
    found = build_text_pairs(QUERIES, ITEMS, most=100)
    assert (np.diff(found.clicks.indptr) > 0).all()


def test_texts_without_words_are_an_error():
    with pytest.raises(DataError, match="no words"):
        build_text_pairs(["?"], ["!"], most=5)
