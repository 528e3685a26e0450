"""A click costs the same however many clicks an item has, and the result is that of all of them."""

import sqlite3

import numpy as np
import pytest
from older_formats import make_older

from metaxc.catalog import Catalog, CatalogSettings, NewItem, migrate
from metaxc.catalog.item_clicks import MOST_VOTERS, ItemClicks
from metaxc.catalog.schema import CLICK_SUMS, decode_vectors

MANY = MOST_VOTERS + 40


def clicked(catalog, count, id="new"):
    """An item with this many clicks of twenty queries, in transactions of thirty."""
    if id not in catalog:
        catalog.add([NewItem(id, "i4")])
    pairs = [(id, f"q{number % 20}") for number in range(count)]
    return [click for start in range(0, count, 30) for click in catalog.clicks(pairs[start : start + 30])]


def all_queries(catalog, id="new"):
    rows = catalog.store.fetch_all(
        "SELECT clicks.embedding FROM clicks JOIN items USING (key) WHERE id = ? ORDER BY number", (id,)
    )
    return decode_vectors((row[0] for row in rows), catalog.store.dim)


def assert_equals_full_computation(catalog, id="new"):
    """The vector and classifier that are stored are those of all clicks, computed anew."""
    row, lifecycle = catalog._row(id), catalog.follower.lifecycle
    queries = all_queries(catalog, id)
    assert row.clicks == len(queries)
    [stage] = lifecycle.stages([row], [ItemClicks.of(queries, catalog.model.embed_queries)])
    np.testing.assert_allclose(row.vector, stage.vector, atol=1e-6)
    np.testing.assert_allclose(row.classifier, stage.classifier, atol=1e-6)
    totals = np.sum(catalog.model.embed_queries(queries), axis=0, dtype=np.float64)[None]
    [classifier] = catalog.model.pipeline.few_shot.fit_totals(totals, np.array([len(queries)])).weights
    np.testing.assert_allclose(row.classifier, classifier, atol=1e-6)
    assert catalog.explain(id).current


@pytest.fixture
def aloof(folder, model):
    """A catalog in which no item informs others, so that its own clicks alone decide on a vector."""
    with Catalog.create(folder, model, settings=CatalogSettings(observe_after=100_000)) as catalog:
        yield catalog


def test_a_click_and_its_undo_equal_the_computation_from_all_clicks(catalog):
    numbers = [click.number for click in clicked(catalog, MOST_VOTERS)]
    assert_equals_full_computation(catalog)
    numbers += [click.number for click in clicked(catalog, 40)]
    assert_equals_full_computation(catalog)
    for number in (numbers[-1], numbers[3], numbers[-20]):
        catalog.undo(number)
        assert_equals_full_computation(catalog)
    catalog.update("new", text="i8")
    assert catalog.explain("new").current
    for number in numbers[4:42]:
        catalog.undo(number)
    assert catalog.get("new").clicks == MANY - 41 < MOST_VOTERS
    assert catalog.store.fetch_all("SELECT * FROM click_sums") == []
    assert_equals_full_computation(catalog)


def rows_read(catalog, monkeypatch, work):
    """How many rows an operation reads from the store."""
    read, fetch_all = [], catalog.store.fetch_all

    def counted(*arguments):
        rows = fetch_all(*arguments)
        read.append(len(rows))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(catalog.store, "fetch_all", counted)
        work()
    return sum(read)


def test_the_cost_of_a_click_does_not_depend_on_the_number_of_clicks(aloof, monkeypatch):
    operations = (
        lambda: aloof.click("new", "q3"),
        lambda: aloof.explain("new"),
        lambda: aloof.undo(aloof.click("new", "q3").number),
        lambda: aloof.update("new", text=f"i{aloof.get('new').clicks % 7}"),
    )
    clicked(aloof, MANY)
    few = [rows_read(aloof, monkeypatch, work) for work in operations]
    clicked(aloof, 4 * MANY)
    assert [rows_read(aloof, monkeypatch, work) for work in operations] == few


def test_clicks_on_a_trained_item_read_no_earlier_ones(aloof, monkeypatch):
    before = aloof._row("i0").vector
    clicked(aloof, MANY, "i0")
    assert rows_read(aloof, monkeypatch, lambda: aloof.click("i0", "q3")) < 5
    np.testing.assert_allclose(aloof._row("i0").vector, before, atol=1e-6)
    assert aloof.get("i0").clicks == MANY + 1
    assert aloof.store.fetch_all("SELECT * FROM click_sums") == []


def test_the_explanation_lists_the_newest_clicks_and_the_state_after_each(folder, model):
    with Catalog.create(folder, model, settings=CatalogSettings(observe_after=MANY - 10)) as catalog:
        made = clicked(catalog, MANY)
        shown = catalog.explain("new").clicks
    assert list(shown) == made[::-1][:50]
    assert [click.state for click in shown[:12]] == ["observed"] * 11 + ["clicked"]


def test_a_deleted_item_leaves_no_sum(catalog):
    clicked(catalog, MANY)
    assert [row[:2] for row in catalog.store.fetch_all(CLICK_SUMS.select)] == [
        (catalog._row("new").key, MANY)
    ]
    catalog.delete(["new"])
    assert catalog.store.fetch_all(CLICK_SUMS.select) == []
    catalog.store.verify()


def test_a_changed_sum_is_detected(catalog):
    clicked(catalog, MANY)
    catalog.close()
    file = catalog.store.folder / "catalog.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE click_sums SET clicks = clicks - 1")
    connection.close()
    (catalog.store.folder / "closed.json").unlink()
    with pytest.raises(Exception, match="click_sums was changed"):
        Catalog.open(catalog.folder.path, catalog.model)


def test_a_catalog_without_sums_opens_and_its_first_click_adds_them(catalog, model):
    clicked(catalog, MANY)
    clicked(catalog, 3, "few")
    make_older(catalog, 2)
    with Catalog.open(catalog.folder.path, model, read_only=True) as reader:
        assert reader.explain("new").current
        assert reader.store.metadata["format"] == "2"
    with Catalog.open(catalog.folder.path, model) as opened:
        opened.click("few", "q3")
        assert opened.store.fetch_all("SELECT * FROM click_sums") == []
        opened.click("new", "q3")
        assert_equals_full_computation(opened)
        assert [row[1] for row in opened.store.fetch_all(CLICK_SUMS.select)] == [MANY + 1]
    with Catalog.open(catalog.folder.path, model) as again:
        assert again.store.metadata["format"] == "4"
        again.store.verify()


def test_a_migration_computes_the_sums_for_the_other_model(catalog, other_model):
    clicked(catalog, MANY)
    catalog.close()
    assert migrate(catalog.folder.path, other_model)
    with Catalog.open(catalog.folder.path, other_model) as migrated:
        assert [row[1] for row in migrated.store.fetch_all(CLICK_SUMS.select)] == [MANY]
        migrated.click("new", "q5")
        assert_equals_full_computation(migrated)
