"""URLs of vector stores, and what is refused."""

import sys

import pytest

from metaxc.catalog.sync import SyncError, open_target, roll_back
from metaxc.errors import ConfigError, MetaxcError


@pytest.mark.parametrize(
    "url",
    [
        "items",
        "mysql://host/items",
        "milvus://host:19530",
        "milvus://user:secret@host/items",
        "qdrant://host:6333/items?color=red",
        "lance://items",
        "lance:///items",
        "parquet://",
        "qdrant://host:6333/a b",
        "postgresql://host/db?table=drop-table",
    ],
)
def test_invalid_urls_are_refused(url):
    if url.startswith(("qdrant", "postgresql")):
        pytest.importorskip("qdrant_client" if url.startswith("qdrant") else "psycopg")
    with pytest.raises(ConfigError) as refused:
        open_target(url)
    assert "secret" not in str(refused.value)


def test_a_missing_client_library_is_an_error_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MetaxcError, match=r"pip install 'metaxc\[sync-milvus\]'"):
        open_target("milvus://localhost:19530/items")


def test_a_password_is_in_no_message():
    pytest.importorskip("psycopg")
    with open_target("postgresql://me:secret@127.0.0.1:1/db") as target:
        assert target.label == "postgresql://127.0.0.1:1/db (metaxc_items)"
        with pytest.raises(SyncError) as refused:
            roll_back(target)
    assert "secret" not in str(refused.value)


def test_a_folder_with_other_data_and_a_catalog_are_refused(catalog, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(SyncError, match="holds other data"):
        open_target(f"parquet://{tmp_path}/mine")
    for inside in ("", "/sub"):
        with pytest.raises(ConfigError, match="is a catalog or inside one"):
            open_target(f"parquet://{catalog.folder.path}{inside}")
