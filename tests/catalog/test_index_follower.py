import threading

import numpy as np
import pytest

from metaxc.catalog import Catalog, NewItem, index_follower
from metaxc.index import KINDS, ExactIndex, load_index

NEW = NewItem("new", "i4", ("red", "blue"))


def test_catching_up_with_a_write_does_not_read_the_unchanged_items(catalog):
    """Counted in steps of SQLite's virtual machine: reading each item would take at least three."""
    steps = []
    catalog.store._reader.set_progress_handler(lambda: steps.append(1) and 0, 1)
    catalog.add([NEW])
    catalog.search(["t0"], 5)
    catalog.store._reader.set_progress_handler(None, 1)
    assert 0 < len(steps) < 2 * len(catalog)


def test_a_search_does_not_wait_for_a_newly_observed_item_to_inform_others(catalog, monkeypatch):
    catalog.add([NEW])
    base, lifecycle = catalog.about().base, catalog.follower.lifecycle
    entered, go_on, use_observed = threading.Event(), threading.Event(), lifecycle.use_observed

    def slow(rows, *, extend):
        entered.set()
        assert go_on.wait(30)
        use_observed(rows, extend=extend)

    monkeypatch.setattr(lifecycle, "use_observed", slow)
    clicking = threading.Thread(target=catalog.clicks, args=([("new", f"t{place}") for place in range(3)],))
    clicking.start()
    assert entered.wait(30)
    found = [hit.state for hit in catalog.search(["t0"], 300)[0] if hit.id == "new"]
    waited = lifecycle.pipeline is lifecycle.model.pipeline
    go_on.set()
    clicking.join()
    assert found == ["observed"]
    assert waited
    assert catalog.about().base == base + 1


@pytest.fixture
def kinds(monkeypatch):
    """Kinds of index by the number of vectors, and a list of those that were built. The catalog of the tests has few
    items of few dimensions, so all of them are exact indexes by other names."""
    built = []

    def choose(count, dim):
        kind = "exact" if count < 300 else "scan" if count < 400 else "ivf"
        return KINDS[kind], f"{kind}: {count}"

    def build(keys, vectors):
        index = ExactIndex(vectors.shape[1])
        index.kind = choose(len(keys), 0)[0].kind
        index.add(keys, vectors)
        built.append((len(keys), index.kind))
        return index, f"{index.kind}: {len(keys)} built"

    monkeypatch.setattr(index_follower, "choose_kind", choose)
    monkeypatch.setattr(index_follower, "build_index", build)
    return built


def add_until(catalog, count):
    """Add items until there are this many, and wait for a rebuild."""
    items = [NewItem(f"more{place}", f"i{place % 7}") for place in range(len(catalog), count)]
    catalog.add(items)
    catalog.search(["t0"], 1)
    while (rebuild := catalog.follower._rebuild) is not None:
        rebuild.join()


def test_a_catalog_that_grows_gets_the_index_for_its_size_and_one_that_shrinks_keeps_it(folder, model, kinds):
    with Catalog.create(folder, model) as catalog:
        first = len(catalog)
        for count in (320, 350, 410, 430):
            add_until(catalog, count)
        assert kinds == [(first, "exact"), (320, "scan"), (410, "ivf")]
        catalog.delete([f"more{place}" for place in range(330, 420)])
        add_until(catalog, len(catalog) + 1)
        assert len(kinds) == 3
        assert {hit.id for hit in catalog.search(["t0"], 500)[0]} >= {"more329", "more429"}
    saved = folder / catalog.store.folder.name / "index"
    assert load_index(saved)[1]["reason"] == "ivf: 410 built"


def test_all_vectors_are_read_in_blocks(catalog, monkeypatch):
    monkeypatch.setattr(index_follower, "READ_BLOCK", 7)
    index, _, sequence = catalog.follower._build()
    assert (len(index), sequence) == (len(catalog), catalog.store.sequence)
    queries = catalog.model.encode_queries(["t0", "t3"])
    for found, expected in zip(
        index.search(queries, 9), catalog.follower.index.search(queries, 9), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
