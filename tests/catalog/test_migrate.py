import numpy as np
import pytest

from metaxc.catalog import Catalog, CatalogError, NewItem, generations
from metaxc.catalog.generations import migrate

NEW = NewItem("new", "i4", ("red",))


@pytest.fixture
def lived(catalog):
    """A catalog with an item of every state."""
    catalog.add([NEW, NewItem("clicked", "i9"), NewItem("novel", "i14")])
    for query in ("q0", "q1", "q2"):
        catalog.click("new", query)
    catalog.click("clicked", "q20")
    catalog.add([NewItem("younger", "i4")])
    catalog.close()
    return catalog


def facts(catalog):
    return [
        (item.id, item.text, item.tags, item.state, item.clicks) for item in catalog.list(limit=1000).items
    ]


def test_everything_is_there_and_as_the_new_model_makes_it(lived, folder, model, other_model):
    with Catalog.open(folder, model) as old:
        before = facts(old)
    seen = []
    assert migrate(folder, other_model, lambda done, of: seen.append((done, of)))
    assert seen[-1] == (len(before), len(before))
    with pytest.raises(CatalogError, match="another model"):
        Catalog.open(folder, model)
    with Catalog.open(folder, other_model) as moved:
        assert facts(moved) == before
        assert moved.about().base == len(other_model.observed) + 1
        for name in ("new", "clicked", "novel", "younger", "i0"):
            assert moved.explain(name).current, name
        assert "new" in {one.id for one in moved.explain("younger").explanation.neighbours}
        texts = [moved.get(name).text for name in ("i14", "novel")]
        np.testing.assert_allclose(*moved.represent(texts), atol=1e-6)
        assert moved.preview("i4").pool == 40
    assert not migrate(folder, other_model)


def test_a_migration_that_was_stopped_goes_on(lived, folder, model, other_model, monkeypatch):
    monkeypatch.setattr(generations, "MIGRATION_BLOCK", 16)
    done = []

    def stop_after_five(count, of):
        done.append(count)
        if len(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(folder, other_model, stop_after_five)
    with Catalog.open(folder, model) as old:  # it still counts
        before = facts(old)
    more = []
    assert migrate(folder, other_model, lambda count, of: more.append(count))
    assert more[0] > done[-1]
    with Catalog.open(folder, other_model) as moved:
        assert facts(moved) == before
        assert moved.explain("younger").current


def test_a_migration_that_was_overtaken_starts_anew(lived, folder, model, other_model, monkeypatch):
    monkeypatch.setattr(generations, "MIGRATION_BLOCK", 16)

    def stop(count, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(folder, other_model, stop)
    with Catalog.open(folder, model) as old:
        old.delete(["i0", "clicked"])
        before = facts(old)
    assert migrate(folder, other_model)
    with Catalog.open(folder, other_model) as moved:
        assert facts(moved) == before


def test_migrating_needs_the_right_to_write(catalog, folder, other_model):
    with pytest.raises(CatalogError, match="Another process"):
        migrate(folder, other_model)
