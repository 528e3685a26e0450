"""The rules that all sources share: merge, drop, split."""

import pytest

from metaxc.data.sources import SOURCES, build
from metaxc.data.sources.assembly import Phrase, assemble
from metaxc.errors import DataError


def clicks_of(data):
    """Clicked item texts by query text, over both parts."""
    found = {}
    for log in (data.train, data.test):
        for row, text in enumerate(log.queries.texts):
            span = slice(log.clicks.indptr[row], log.clicks.indptr[row + 1])
            found[text] = {data.items.texts[item] for item in log.clicks.indices[span]}
    return found


def test_same_texts_are_merged_and_no_phrase_clicks_its_own_text():
    phrases = [
        Phrase("1", "Red  Apple", ["Fruit", "food"]),
        Phrase("2", "red apple", ["FRUIT", "tree"]),
        Phrase("3", "pear", ["fruit", "Tree", "food"]),
        Phrase("4", "fruit", ["Fruit", "food"]),
    ]
    data = assemble(phrases, name="x", largest_share=1, test_fraction=0.4)
    assert data.items.texts == ["food", "Fruit", "tree"]
    assert data.items.ids == ["i0", "i1", "i2"]
    assert clicks_of(data) == {
        "Red Apple": {"Fruit", "food", "tree"},
        "pear": {"Fruit", "food", "tree"},
        "fruit": {"food"},
    }


def test_rare_and_common_items_are_dropped_with_queries_left_without_clicks():
    phrases = [Phrase(str(n), f"p{n}", ["all", "even" if n % 2 == 0 else "odd"]) for n in range(8)]
    phrases += [Phrase("8", "p8", ["all", "once"]), Phrase("9", "p9", [])]
    data = assemble(phrases, name="x", largest_share=0.5, test_fraction=0.25)
    assert data.items.texts == ["even", "odd"]
    assert set(clicks_of(data)) == {f"p{n}" for n in range(8)}


def test_concepts_that_share_a_phrase_stay_on_one_side():
    phrases = [Phrase(f"{n}", f"name {n}", ["x", f"h{n % 5}"]) for n in range(50)]
    phrases += [Phrase(f"{n}", f"shared {n // 2}", ["x", f"h{n % 5}"]) for n in range(50)]
    data = assemble(phrases, name="x", largest_share=1, test_fraction=0.3)
    test = set(data.test.queries.texts)
    assert 23 <= len(test) <= 25  # 75 queries in triples, of which the share asks for 22.5
    for n in range(50):
        assert (f"name {n}" in test) == (f"shared {n // 2}" in test)
    assert data.test.queries.ids[0] == "q0"
    assert data.train.queries.ids[0] == f"q{len(test)}"


def test_seed_determines_the_split():
    phrases = [Phrase(str(n), f"p{n}", ["a", "b"]) for n in range(40)]
    first, again, other = (assemble(phrases, name="x", largest_share=1, seed=seed) for seed in (7, 7, 8))
    assert first.fingerprint == again.fingerprint
    assert set(first.test.queries.texts) != set(other.test.queries.texts)
    assert len(first.test) == 6


def test_bad_input_is_an_error():
    with pytest.raises(DataError, match="has no usable click"):
        assemble([Phrase("1", "a", ["b"])], name="x")
    with pytest.raises(DataError, match="out of range"):
        assemble([], name="x", test_fraction=1.0)


def test_sources_are_found_by_name():
    assert list(SOURCES) == ["books", "commits", "icd10cm", "wordnet", "biotax", "taxa", "debian"]
    with pytest.raises(DataError, match="one of books, commits, icd10cm, wordnet, biotax, taxa, debian"):
        build("amazon")
