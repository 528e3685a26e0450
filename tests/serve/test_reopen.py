"""A service that only reads follows a catalog that another process migrates or restores."""

import logging

import pytest
from fastapi.testclient import TestClient
from running_service import HOME

from metaxc.catalog import Catalog, CatalogError, NewItem, migrate
from metaxc.cli.serve_command import reopen_catalog
from metaxc.emmett import Emmett
from metaxc.serve import service
from metaxc.serve.app import make_app


@pytest.fixture
def other(model, trained, tmp_path):
    """The folder of another model, and the model."""
    changed = Emmett.load(trained)
    changed.neighbours = model.neighbours + 1
    changed.save(tmp_path / "other")
    return tmp_path / "other", Emmett.load(tmp_path / "other")


@pytest.fixture
def reader(catalog, trained):
    """A service that only reads, and the folder of its catalog."""
    catalog.add([NewItem("new", "small cat")])
    catalog.snapshot(catalog.folder.path.with_name("snapshot"))
    catalog.close()
    opened = Catalog.open(catalog.folder.path, catalog.model, read_only=True)
    app = make_app(opened, reopen=lambda old: reopen_catalog(old, trained, None, None))
    with TestClient(app, base_url=HOME) as client:
        assert client.get("/readyz").status_code == 200
        yield client, catalog.folder.path


def answers(client):
    """The statuses of /readyz, a search and a lookup, in that order."""
    return (
        client.get("/readyz").status_code,
        client.post("/v1/search", json={"queries": ["cat"]}).status_code,
        client.get("/v1/items/new").status_code,
    )


def wait_until_ready(client):
    assert any(client.get("/readyz").status_code == 200 for _ in range(10_000))


def test_it_opens_a_migrated_catalog_with_the_model_it_was_migrated_to(reader, other):
    client, folder = reader
    place, model = other
    assert migrate(folder, model, model_folder=place)
    wait_until_ready(client)
    assert answers(client) == (200, 200, 200)
    assert client.get("/v1/about").json()["model"] == model.fingerprint
    represented = client.post("/v1/represent", json={"texts": ["cat"]}).json()
    assert represented["model"] == model.fingerprint


def test_without_the_new_model_it_is_not_ready_and_serves_nothing_old(reader, other, monkeypatch, caplog):
    client, folder = reader
    monkeypatch.setattr(service, "REOPEN_SECONDS", 0.01)
    assert migrate(folder, other[1])
    with caplog.at_level(logging.ERROR):
        assert answers(client) == (503, 503, 503)
        assert client.get("/v1/items").status_code == 503
        assert client.get("/metrics").status_code == 200
        assert any(
            "cannot be found" in caplog.text for _ in range(1_000) if answers(client) == (503, 503, 503)
        )
    Catalog.restore(folder.with_name("snapshot"), folder, overwrite=True)  # back to the model it has
    wait_until_ready(client)
    assert answers(client) == (200, 200, 200)


def test_it_opens_a_restored_catalog(reader, model):
    client, folder = reader
    with Catalog.open(folder, model) as writer:
        writer.delete(["new"])
    assert answers(client) == (200, 200, 404)
    Catalog.restore(folder.with_name("snapshot"), folder, overwrite=True)
    wait_until_ready(client)
    assert answers(client) == (200, 200, 200)


def test_a_reader_in_python_does_not_look_items_up_in_a_removed_generation(catalog, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    catalog.close()
    with Catalog.open(catalog.folder.path, catalog.model, read_only=True) as reader:
        Catalog.restore(tmp_path / "snapshot", catalog.folder.path, overwrite=True)
        for read in (lambda: reader.get("new"), reader.list, lambda: "new" in reader):
            with pytest.raises(CatalogError, match="open it again"):
                read()
