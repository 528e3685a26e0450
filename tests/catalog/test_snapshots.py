import pytest

from metaxc.catalog import Catalog, CatalogError, NewItem
from metaxc.catalog.export import export_vectors

NEW = NewItem("new", "i4", ("red",))


def names(catalog, query="t0"):
    return [hit.id for hit in catalog.search([query], 5)[0]]


def test_a_snapshot_is_what_the_catalog_was(catalog, folder, model, tmp_path):
    catalog.add([NEW])
    catalog.click("new", "q20")
    catalog.snapshot(tmp_path / "kept")
    before = catalog.search(["t0", "t4"], 300), catalog.explain("new")
    catalog.delete(["new", "i0"])
    catalog.close()
    Catalog.restore(tmp_path / "kept", folder)
    with Catalog.open(folder, model) as again:
        assert (again.search(["t0", "t4"], 300), again.explain("new")) == before
    Catalog.restore(tmp_path / "kept", tmp_path / "elsewhere")
    with Catalog.open(tmp_path / "elsewhere", model) as other:
        assert (other.search(["t0", "t4"], 300), other.explain("new")) == before


def test_a_snapshot_is_taken_while_others_write(catalog, model, tmp_path):
    with catalog.store.transaction() as transaction:
        catalog.snapshot(tmp_path / "kept")  # sees the last commit
        transaction.metadata["half"] = "done"
    Catalog.restore(tmp_path / "kept", tmp_path / "elsewhere")
    with Catalog.open(tmp_path / "elsewhere", model) as other:
        assert len(other) == len(catalog)
        assert "half" not in other.store.metadata


@pytest.mark.parametrize("name", ["catalog.sqlite", "manifest.json"])
def test_a_damaged_snapshot_is_refused_and_the_catalog_stays(catalog, folder, model, tmp_path, name):
    catalog.snapshot(tmp_path / "kept")
    file = tmp_path / "kept" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 4
    file.write_bytes(content)
    catalog.add([NEW])
    catalog.close()
    with pytest.raises(CatalogError, match="snapshot"):
        Catalog.restore(tmp_path / "kept", folder)
    with Catalog.open(folder, model) as again:
        assert "new" in again


def test_a_reader_is_told_when_the_catalog_was_restored(catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "kept")
    catalog.close()
    with Catalog.open(folder, model, read_only=True) as reader:
        names(reader)
        Catalog.restore(tmp_path / "kept", folder)
        with pytest.raises(CatalogError, match="open it again"):
            names(reader)


def test_restoring_needs_the_right_to_write(catalog, folder, tmp_path):
    catalog.snapshot(tmp_path / "kept")
    with pytest.raises(CatalogError, match="Another process"):
        Catalog.restore(tmp_path / "kept", folder)


def test_unknown_formats_are_refused(catalog, tmp_path):
    with pytest.raises(Exception, match="npy, parquet, faiss, pgvector"):
        export_vectors(catalog.store, tmp_path / "out", "csv")
