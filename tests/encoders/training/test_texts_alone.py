import numpy as np
import pytest

from metaxc.encoders.training.texts_alone import FEWEST_WORDS, pairs_from_texts
from metaxc.errors import DataError

ITEMS = [
    f"{size} {animal} in the wooden house"
    for animal in ("cat", "dog", "cow", "pig")
    for size in ("old", "new")
]
QUERIES = [
    f"{animal} of {colour} colour" for animal in ("cat", "dog", "cow", "pig") for colour in ("red", "blue")
]


def pairs_of(found):
    rows, columns = found.clicks.nonzero()
    return [(found.queries[r], found.items[c]) for r, c in zip(rows, columns, strict=True)]


def test_a_span_is_paired_with_a_part_of_its_own_text():
    found = pairs_from_texts(QUERIES, ITEMS, most=100)
    texts = [text for text in (*ITEMS, *QUERIES) if len(text.split()) >= FEWEST_WORDS]
    halves = [(left, right) for left, right in pairs_of(found) if right not in {*ITEMS, *QUERIES}]
    assert len(halves) == len(texts)
    for left, right in halves:
        assert any(left in text and set(right.split()) <= set(text.split()) for text in texts)
    without = [(left, right) for left, right in halves if len(left.split()) + len(right.split()) in (4, 6)]
    assert any(set(left.split()).isdisjoint(right.split()) for left, right in without)


def test_queries_are_paired_with_the_items_they_share_rare_words_with():
    found = set(pairs_of(pairs_from_texts(QUERIES, ITEMS, most=100)))
    for query in QUERIES:
        for item in ITEMS:
            if query.split()[0] in item.split():
                assert (query, item) in found


def test_same_seed_same_pairs_and_no_more_than_asked():
    few = pairs_from_texts(QUERIES, ITEMS, most=3, seed=1)
    again = pairs_from_texts(QUERIES, ITEMS, most=3, seed=1)
    assert pairs_of(few) == pairs_of(again)
    assert pairs_of(few) != pairs_of(pairs_from_texts(QUERIES, ITEMS, most=3, seed=2))
    assert few.clicks.nnz < pairs_from_texts(QUERIES, ITEMS, most=100).clicks.nnz


def test_every_pseudo_query_has_a_click():
    found = pairs_from_texts(QUERIES, ITEMS, most=100)
    assert (np.diff(found.clicks.indptr) > 0).all()


def test_texts_without_words_are_an_error_that_says_so():
    with pytest.raises(DataError, match="no words"):
        pairs_from_texts(["?"], ["!"], most=5)
