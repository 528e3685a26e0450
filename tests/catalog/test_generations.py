"""Snapshots are restored and catalogs migrated completely or not at all."""

import numpy as np
import pytest

from metaxc.catalog import Catalog, CatalogError, LockedError, NewItem, migrate, migration

NEW = NewItem("new", "i4", ("red",))


def names(catalog, query="t0"):
    return [hit.id for hit in catalog.search([query], 5)[0]]


def test_a_restored_snapshot_is_the_catalog_of_that_moment(catalog, folder, model, tmp_path):
    catalog.add([NEW])
    catalog.click("new", "q20")
    catalog.snapshot(tmp_path / "snapshot")
    before = catalog.search(["t0", "t4"], 300), catalog.explain("new")
    catalog.delete(["new", "i0"])
    catalog.close()
    Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    with Catalog.open(folder, model) as again:
        assert (again.search(["t0", "t4"], 300), again.explain("new")) == before
    Catalog.restore(tmp_path / "snapshot", tmp_path / "elsewhere")
    with Catalog.open(tmp_path / "elsewhere", model) as other:
        assert (other.search(["t0", "t4"], 300), other.explain("new")) == before


def test_a_snapshot_during_a_transaction_holds_the_last_commit(catalog, model, tmp_path):
    with catalog.store.transaction() as transaction:
        catalog.snapshot(tmp_path / "snapshot")  # sees the last commit
        transaction.metadata["half"] = "done"
    Catalog.restore(tmp_path / "snapshot", tmp_path / "elsewhere")
    with Catalog.open(tmp_path / "elsewhere", model) as other:
        assert len(other) == len(catalog)
        assert "half" not in other.store.metadata


@pytest.mark.parametrize("name", ["catalog.sqlite", "manifest.json"])
def test_a_damaged_snapshot_is_refused_and_the_catalog_stays_unchanged(
    catalog, folder, model, tmp_path, name
):
    catalog.snapshot(tmp_path / "snapshot")
    file = tmp_path / "snapshot" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)
    catalog.add([NEW])
    catalog.close()
    with pytest.raises(CatalogError, match="snapshot"):
        Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    with Catalog.open(folder, model) as again:
        assert "new" in again


def test_a_reader_has_to_reopen_a_restored_catalog(catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    catalog.close()
    with Catalog.open(folder, model, read_only=True) as reader:
        names(reader)
        Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
        with pytest.raises(CatalogError, match="open it again"):
            names(reader)


def test_restoring_needs_the_writer_lock(catalog, folder, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    with pytest.raises(LockedError, match="Another process"):
        Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)


@pytest.fixture
def used_catalog(catalog):
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


def test_a_migrated_catalog_keeps_its_items_and_has_the_new_models_vectors(
    used_catalog, folder, model, other_model
):
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


def test_items_that_have_become_observed_inform_each_other_in_a_migrated_catalog(
    catalog, folder, other_model
):
    """Each is written before the other is known, so the vector of one of them has to be computed again."""
    catalog.add([NEW, NewItem("twin", "i4")])
    for query in ("q0", "q1", "q2"):
        catalog.clicks([("new", query), ("twin", query)])
    catalog.close()
    assert migrate(folder, other_model)
    with Catalog.open(folder, other_model) as moved:
        for name, other in (("new", "twin"), ("twin", "new")):
            told = moved.explain(name)
            assert other in {one.id for one in told.explanation.neighbours}
            assert told.current


def test_a_stopped_migration_resumes(used_catalog, folder, model, other_model, monkeypatch):
    monkeypatch.setattr(migration, "MIGRATION_BLOCK", 16)
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


def test_a_migration_starts_over_when_the_catalog_has_changed(
    used_catalog, folder, model, other_model, monkeypatch
):
    monkeypatch.setattr(migration, "MIGRATION_BLOCK", 16)

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


def test_migrating_needs_the_writer_lock(catalog, folder, other_model):
    with pytest.raises(LockedError, match="Another process"):
        migrate(folder, other_model)
