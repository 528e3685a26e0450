"""Who may write to a catalog, and where a catalog may be created."""

import shutil

import pytest

from metaxc.catalog import Catalog, CatalogError, LockedError, NewItem, StorageError
from metaxc.errors import ConfigError


def test_deleting_the_lock_file_admits_no_second_writer(catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    (folder / "writer.lock").unlink()
    with pytest.raises(LockedError, match="Another process"):
        Catalog.open(folder, model)
    with pytest.raises(LockedError, match="Another process"):
        Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    catalog.add([NewItem("new", "i4")])


@pytest.mark.parametrize("created", [True, False])
def test_moving_the_files_admits_no_second_writer(catalog, folder, model, tmp_path, created):
    if not created:
        catalog.close()
        catalog = Catalog.open(folder, model)
    moved = tmp_path / "moved"
    moved.mkdir()
    for entry in list(folder.iterdir()):
        if entry.name != "writer.lock":
            entry.rename(moved / entry.name)
    with pytest.raises(LockedError, match="Another process"):
        Catalog.open(moved, model)
    for entry in list(moved.iterdir()):
        if entry.name != "writer.lock":
            entry.rename(folder / entry.name)
    catalog.close()
    Catalog.open(folder, model).close()


def test_an_older_version_of_metaxc_is_locked_out_too(catalog, folder):
    from filelock import FileLock, Timeout

    with pytest.raises(Timeout):
        FileLock(folder / "writer.lock").acquire(timeout=0)


@pytest.mark.parametrize("name", ["notes.txt", "gen-5/notes.txt", "gen-5/catalog.sqlite/x"])
def test_a_catalog_is_not_created_among_other_data(folder, model, tmp_path, catalog, name):
    catalog.snapshot(tmp_path / "snapshot")
    place = tmp_path / "other"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_text("x")
    if name.startswith("gen-5/catalog"):
        (place / "gen-5" / "mark").write_bytes(b"anything")
    for create in (
        lambda: Catalog.create(place, model),
        lambda: Catalog.restore(tmp_path / "snapshot", place),
        lambda: Catalog.restore(tmp_path / "snapshot", place, overwrite=True),
    ):
        with pytest.raises(CatalogError, match="holds other data"):
            create()
    assert (place / name).read_text() == "x"


def test_a_catalog_that_has_lost_its_file_current_is_not_replaced(catalog, folder, model):
    catalog.add([NewItem("new", "i4")])
    catalog.close()
    current = (folder / "CURRENT").read_bytes()
    (folder / "CURRENT").unlink()
    with pytest.raises(CatalogError, match="holds other data"):
        Catalog.create(folder, model)
    (folder / "CURRENT").write_bytes(current)
    with Catalog.open(folder, model) as again:
        assert "new" in again


def test_what_a_killed_creation_has_left_is_replaced(model, tmp_path):
    Catalog.create(tmp_path / "catalog", model).close()
    (tmp_path / "catalog" / "CURRENT").unlink()
    (tmp_path / "catalog" / "gen-7").mkdir()
    Catalog.create(tmp_path / "catalog", model).close()
    names = sorted(path.name for path in (tmp_path / "catalog").iterdir())
    assert names == ["CURRENT", "gen-8", "writer.lock"]


def test_switching_removes_generations_and_nothing_else(catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    catalog.close()
    (folder / "gen-40").mkdir()
    (folder / "gen-40" / "thesis.txt").write_text("x")
    Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    assert sorted(path.name for path in folder.glob("gen-*")) == ["gen-40", "gen-41"]
    assert (folder / "gen-40" / "thesis.txt").read_text() == "x"


def test_an_existing_catalog_is_restored_only_with_overwrite(catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    catalog.add([NewItem("new", "i4")])
    catalog.close()
    with pytest.raises(CatalogError, match="already holds a catalog"):
        Catalog.restore(tmp_path / "snapshot", folder)
    with Catalog.open(folder, model) as again:
        assert "new" in again


@pytest.mark.parametrize("command", ["snapshot", "export"])
def test_a_snapshot_or_export_onto_a_catalog_is_refused(catalog, folder, model, tmp_path, command):
    with Catalog.create(tmp_path / "other", model):
        pass
    (tmp_path / "link").symlink_to(folder)
    write = getattr(catalog, command)
    options = {} if command == "snapshot" else {"format": "npy"}
    places = (folder, folder / "gen-1", folder / "new", tmp_path, tmp_path / "link", tmp_path / "other")
    for place in places:
        with pytest.raises(ConfigError):
            write(place, overwrite=True, **options)
    write(tmp_path / "out", **options)
    with pytest.raises(ConfigError, match="--overwrite"):
        write(tmp_path / "out", **options)
    write(tmp_path / "out", overwrite=True, **options)
    catalog.add([NewItem("new", "i4")])
    shutil.rmtree(tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_an_error_with_advice(catalog, folder, model, monkeypatch):
    import os

    catalog.close()
    refuse = os.open

    def read_only(path, flags, *more, **named):
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system", str(path))
        return refuse(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(StorageError, match="reading only"):
        Catalog.open(folder, model)
