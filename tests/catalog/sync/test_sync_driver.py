"""The parts of a synchronisation that do not depend on the vector store, with Parquet files."""

import json
import shutil

import numpy as np
import pytest
from sync_places import live

from metaxc.catalog import Catalog, NewItem
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.store import Store
from metaxc.catalog.sync import SyncError, roll_back, sync_catalog
from metaxc.catalog.sync.catalog_changes import read_changes
from metaxc.catalog.sync.sync_check import measure_recall, sample_query_vectors


def test_changes_can_be_read_in_blocks_of_any_size(catalog):
    live(catalog, 3, steps=30)
    whole = read_changes(catalog.store, 0, 0, 10_000)
    assert (whole.sequence, whole.key) == (catalog.sequence, 0)
    assert len(whole.rows) == len(catalog)
    assert len(whole.deleted) == len(catalog.store.fetch_all("SELECT key FROM deleted")) > 2
    for size in (1, 7, 64):
        rows, deleted, place = [], [], (0, 0)
        while True:
            part = read_changes(catalog.store, *place, size)
            if not part.rows and not part.deleted:
                break
            assert len(part.rows) + len(part.deleted) <= size
            rows += part.rows
            deleted += part.deleted
            place = (part.sequence, part.key)
        assert [row.key for row in rows] == [row.key for row in whole.rows]
        assert deleted == list(whole.deleted)
        assert part.sequence == catalog.sequence


def test_a_restored_history_with_later_numbers_hides_no_change(parquet, catalog, folder, model, tmp_path):
    """After the snapshot, the catalog lives on in two ways; the numbers of the writes are the same in both."""
    catalog.snapshot(tmp_path / "snapshot")
    catalog.add([NewItem("only in the first life", "i4")])
    catalog.delete(["i7"])
    catalog.click("i8", "t0")
    parquet.sync(catalog)
    reached = catalog.sequence
    catalog.close()
    Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    with Catalog.open(folder, model) as restored:
        restored.add([NewItem("only in the second life", "i9")])
        while restored.sequence <= reached:
            restored.click("i11", "t4")
        report = parquet.sync(restored)
        assert report.compared
        assert parquet.differences(restored) == []
        assert not parquet.sync(restored).compared


def test_a_catalog_that_went_back_takes_the_table_back(parquet, catalog, folder, model, tmp_path):
    catalog.snapshot(tmp_path / "snapshot")
    live(catalog, 5)
    parquet.sync(catalog)
    catalog.close()
    Catalog.restore(tmp_path / "snapshot", folder, overwrite=True)
    with Catalog.open(folder, model) as restored:
        assert parquet.sync(restored).compared
        assert parquet.differences(restored) == []


def test_rows_that_somebody_else_has_removed_come_back_with_a_comparison(postgresql, catalog):
    psycopg = pytest.importorskip("psycopg")
    table = postgresql.sync(catalog).table
    with psycopg.connect(postgresql.store.server.get_uri()) as connection:
        connection.execute(f"DELETE FROM {table} WHERE id IN ('i1', 'i2', 'i3')")
    assert len(postgresql.differences(catalog)) == 3
    report = postgresql.sync(catalog, compare=True)
    assert (report.upserted, report.compared) == (3, True)
    assert postgresql.differences(catalog) == []


def test_a_table_that_answers_badly_is_not_put_in_place(parquet, catalog, monkeypatch):
    from metaxc.catalog.sync.parquet_target import ParquetTarget

    before = parquet.sync(catalog).table
    search = ParquetTarget.search
    worse = lambda self, table, vectors, k, index: search(self, table, -vectors, k, index)  # noqa: E731
    monkeypatch.setattr(ParquetTarget, "search", worse)
    with pytest.raises(SyncError, match="does not answer well enough"):
        parquet.sync(catalog, cutover=True)
    with parquet.open() as target:
        assert target.current() == before
    assert parquet.sync(catalog, cutover=True, min_recall=0.0).recall < 0.2


def test_recall_is_the_share_of_the_ten_best(catalog):
    queries = sample_query_vectors(catalog.store, 20, 0, None)
    assert queries.shape == (20, catalog.store.vector_dim)
    assert np.all(queries[:, -1] == np.float32(0.1))
    exact = lambda vectors, k: catalog.search(vectors, k)  # noqa: E731
    half = lambda vectors, k: [hits[: k // 2] for hits in catalog.search(vectors, k)]  # noqa: E731
    assert measure_recall(catalog.store, queries, exact, lambda: catalog.sequence) == 1.0
    assert measure_recall(catalog.store, queries, half, lambda: catalog.sequence) == 0.5


def test_a_model_samples_queries_of_the_catalog(catalog, model):
    queries = sample_query_vectors(catalog.store, 1000, 0, model)
    known = sorted(row[0] for row in catalog.store.fetch_all("SELECT text FROM queries"))
    assert len(queries) == len(known) == 40
    wanted = model.encode_queries(known)
    assert np.allclose(np.sort(queries, axis=0), np.sort(wanted, axis=0), atol=1e-6)


def test_a_sync_sees_what_another_process_writes(parquet, catalog, folder):
    with Store(CatalogFolder(folder).current(), read_only=True) as store, parquet.open() as target:
        sync_catalog(store, target)
        catalog.add([NewItem("late", "i4")])
        assert sync_catalog(store, target).upserted == 1
    assert parquet.differences(catalog) == []


def test_one_sync_at_a_time(parquet, catalog):
    with parquet.open() as target, target.locked(), pytest.raises(SyncError, match="Another synchronisation"):
        parquet.sync(catalog)


def test_one_sync_at_a_time_in_postgresql(postgresql, catalog):
    with (
        postgresql.open() as target,
        target.locked(),
        pytest.raises(SyncError, match="Another synchronisation"),
    ):
        postgresql.sync(catalog)
    assert postgresql.sync(catalog).upserted == len(catalog)


def test_without_a_cutover_there_is_nothing_to_return_to(parquet, catalog):
    parquet.sync(catalog)
    with parquet.open() as target, pytest.raises(SyncError, match="no table to return to"):
        roll_back(target)


def test_a_newer_state_is_refused(parquet, catalog):
    parquet.sync(catalog)
    file = parquet.store.folder / parquet.name / "metaxc-sync.json"
    pointer = json.loads(file.read_text())
    pointer["tables"][pointer["current"]]["state"]["format"] = 99
    file.write_text(json.dumps(pointer))
    with pytest.raises(SyncError, match="newer version"):
        parquet.sync(catalog)


def test_what_a_killed_run_has_left_in_a_parquet_folder_goes(parquet, catalog):
    table = parquet.sync(catalog).table
    left = parquet.store.folder / parquet.name / table / "000000-dead.parquet"
    shutil.copy(next(left.parent.iterdir()), left)
    parquet.sync(catalog)
    assert not left.exists()
    assert parquet.differences(catalog) == []
