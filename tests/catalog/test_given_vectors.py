"""Queries, items and clicks given by their vectors do what their texts do."""

import numpy as np
import pytest

from metaxc.catalog import Catalog, ConflictError, NewClick, NewItem
from metaxc.errors import DataError


@pytest.fixture
def query(world):
    """The embedding of a query."""
    return lambda text: world.encoder.encode_queries([text])[0]


@pytest.fixture
def item(world):
    """The embedding of an item."""
    return lambda text: world.encoder.encode_items([text])[0]


def test_a_search_by_embedding_is_one_by_text(catalog, query):
    expected = catalog.search(["t0", "t5"], 5, exposure=0.3)
    embeddings = np.stack([query("t0"), query("t5")])
    assert catalog.search(embeddings, 5, exposure=0.3) == expected
    longer = catalog.search(7 * embeddings, 5, exposure=0.3)
    assert [[hit.id for hit in hits] for hits in longer] == [[hit.id for hit in hits] for hits in expected]
    assert longer[1][0].score == pytest.approx(expected[1][0].score, abs=1e-5)
    final = catalog.encode(embeddings, 0.3)
    assert final.shape == (2, 97)
    assert np.all(final[:, -1] == np.float32(0.3))
    assert catalog.search(final, 5) == expected


def test_texts_embeddings_and_final_vectors_may_be_mixed(catalog, query):
    final = catalog.encode(["t8"], 0.7)[0]
    mixed = catalog.encode(["t0", query("t5"), final], [0.2, None, None])
    expected = np.concatenate([catalog.encode(["t0"], 0.2), catalog.encode(["t5"]), [final]])
    assert np.allclose(mixed, expected, atol=1e-6)
    with pytest.raises(DataError, match="exposure is part of a final query vector"):
        catalog.encode(["t0", final], [None, 0.1])
    with pytest.raises(DataError, match=r"95 numbers(.|\n)*96 numbers(.|\n)*or 97"):
        catalog.encode([query("t0")[:-1]])
    with pytest.raises(DataError, match="too large"):
        catalog.encode([final * 1000])


def test_an_item_by_its_embedding_is_one_by_its_text(catalog, item, world):
    catalog.add([NewItem("by text", "i4")])
    added = catalog.add([{"id": "by vector", "vector": (3 * item("i4")).tolist(), "tags": ["x"]}])
    assert (added.added, catalog.get("by vector").text) == (1, "by vector")
    by_text, by_vector = (catalog._row(id) for id in ("by text", "by vector"))
    assert np.allclose(by_text.vector, by_vector.vector, atol=1e-5)
    assert np.allclose(catalog.represent([item("i4")]), catalog.represent(["i4"]), atol=1e-5)


def test_adding_an_item_again_compares_its_vector(catalog, item):
    new = NewItem("new", "any text", vector=item("i4"))
    catalog.add([new])
    for again in (NewItem("new", "any text", vector=np.round(item("i4"), 6)), NewItem("new", "any text")):
        assert catalog.add([again]).unchanged == 1
    with pytest.raises(ConflictError):
        catalog.add([NewItem("new", "any text", vector=item("i9"))])


def test_an_item_may_be_added_by_vector_where_its_text_cannot_be_encoded(catalog, item):
    with pytest.raises(DataError, match="No vector for this item"):
        catalog.add([NewItem("new", "unheard of")])
    catalog.add([NewItem("new", "unheard of", vector=item("i4"))])
    assert "new" in [hit.id for hit in catalog.search(["t0"], 10)[0]]
    with pytest.raises(DataError, match="No vector"):
        catalog.update("new", "also unheard of")
    before = catalog._row("new").vector
    changed = catalog.update("new", "also unheard of", vector=item("i9"))
    assert changed.text == "also unheard of"
    assert not np.allclose(catalog._row("new").vector, before, atol=0.1)
    assert "new" not in [hit.id for hit in catalog.search(["t0"], 10)[0]]


def test_a_vector_that_stays_changes_nothing(catalog, item):
    catalog.add([NewItem("new", "text", vector=item("i4"))])
    sequence = catalog.sequence
    catalog.update("new", vector=item("i4") * 2)
    assert catalog.sequence == sequence


def test_a_click_carries_its_query_vector(catalog, query, item, folder, model):
    """Two clicks with one name and two vectors: each keeps its own."""
    catalog.add([NewItem(name, "i4") for name in ("by text", "by vector")])
    catalog.clicks([("by text", "q0"), ("by text", "q20")])
    catalog.clicks(
        [
            NewClick("by vector", "a name", vector=query("q0")),
            NewClick("by vector", "a name", None, query("q20")),
        ]
    )
    assert catalog.click("i0", "a name", query("q0")).query == "a name"
    vectors = [catalog._row(id).vector for id in ("by text", "by vector")]
    assert np.allclose(*vectors, atol=1e-5)
    assert not np.allclose(vectors[0], catalog.represent(["i4"])[0], atol=1e-2), "the clicks count"
    with pytest.raises(DataError, match="No vector for this query"):
        catalog.click("by vector", "a name")
    catalog.close()
    with Catalog.open(folder, model) as opened:
        assert opened.explain("by vector").current
        click = opened.explain("by vector").clicks[0]
        opened.undo(click.number)
        assert opened.get("by vector").clicks == 1


def test_an_item_has_a_vector_and_fields_and_a_search_by_vector_filters_and_pages(catalog, item, query):
    near = NewItem("a", "anything", ("x",), {"price": 5}, item("i4"))
    catalog.add([near, {"id": "b", "vector": item("i4"), "fields": {"price": 7}}])
    assert catalog.add([near]).unchanged == 1
    with pytest.raises(ConflictError, match="other content"):
        catalog.add([NewItem("a", "anything", ("x",), {"price": 6}, item("i4"))])
    given, cheap = query("t0")[None], {"field": "price", "lt": 10}
    pages = [catalog.search(given, 1, filter=cheap, offset=start)[0] for start in (0, 1, 2)]
    assert sorted(hit.id for page in pages for hit in page) == ["a", "b"]
    assert pages[2] == []
    before = catalog._row("a")
    catalog.update("a", set_fields={"price": 8}, vector=item("i9"))
    after = catalog._row("a")
    assert (after.fields, after.text) == ({"price": 8}, "anything")
    assert np.abs(after.embedding - before.embedding).max() > 0.01
    catalog.update("a", vector=item("i9"), set_fields={"price": 9})
    assert (catalog._row("a").fields, catalog._row("a").vector.tolist()) == (
        {"price": 9},
        after.vector.tolist(),
    )
