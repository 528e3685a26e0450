"""Every vector store keeps the same promises, each against a real process or the real library."""

import numpy as np
import pytest
from sync_places import live

from metaxc.catalog import Catalog, CatalogSettings, migrate
from metaxc.catalog.sync import (
    SyncError,
    SyncSettings,
    open_target,
    roll_back,
    search_target,
    sync_catalog,
)

QUERIES = ["t0", "t4", "t8"]


class TestContract:
    def test_after_any_life_the_table_equals_the_catalog_and_only_changes_are_written(self, place, catalog):
        first = place.sync(catalog, batch_rows=64)
        assert (first.upserted, first.deleted, first.sequence) == (len(catalog), 0, catalog.sequence)
        assert place.differences(catalog) == []
        for seed in range(3):
            changed, deleted = live(catalog, seed)
            report = place.sync(catalog, batch_rows=5)
            assert place.differences(catalog) == []
            assert report.sequence == catalog.sequence
            assert report.deleted == len(deleted)
            assert report.upserted <= len(changed)  # an update to the same tags changes nothing
            assert report.upserted > 0
            assert not report.compared

    def test_a_catalog_that_has_not_changed_costs_no_rows(self, place, catalog):
        place.sync(catalog)
        report = place.sync(catalog)
        assert (report.upserted, report.deleted, report.compared) == (0, 0, False)

    def test_searches_rank_as_the_catalog_does_with_any_exposure(self, place, catalog, model):
        """Items with equal vectors may stand in any order among each other; all else is the same."""
        live(catalog, 7)
        place.sync(catalog)
        rankings = []
        with place.open() as target:
            for exposure in (None, -0.6, 0.9):
                found = search_target(target, model, QUERIES, 10, exposure)
                for hits, wanted in zip(
                    found, catalog.search(QUERIES, len(catalog), exposure=exposure), strict=True
                ):
                    scores = [hit.score for hit in wanted[:10]]
                    assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-5)
                    by_id = {hit.id: hit for hit in wanted}
                    for hit in hits:
                        expected = by_id.pop(hit.id)
                        assert hit.score == pytest.approx(expected.score, abs=1e-5)
                        assert (hit.text, hit.tags, hit.state, hit.fields) == (
                            expected.text,
                            expected.tags,
                            expected.state,
                            expected.fields,
                        )
                rankings.append([hit.id for hits in found for hit in hits])
        assert rankings[1] != rankings[2]

    def test_a_sync_that_was_stopped_between_rows_and_state_resumes(self, place, catalog):
        class StoppedError(Exception):
            pass

        with place.open(batch_rows=20) as target:
            apply, calls = target.apply, []

            def stop_at_the_third(table, rows, deleted, state):
                calls.append(state)
                if len(calls) == 3:
                    apply(table, rows, deleted, calls[1])  # the rows are there, the state is the one before
                    raise StoppedError
                apply(table, rows, deleted, state)

            target.apply = stop_at_the_third
            with pytest.raises(StoppedError):
                sync_catalog(catalog.store, target, SyncSettings(index="exact"))
        with place.open() as target:
            assert target.current() is None  # nobody sees half of it
        report = place.sync(catalog, batch_rows=20)
        assert report.upserted == len(catalog) - 60
        assert place.differences(catalog) == []

    def test_vectors_of_another_model_are_refused_then_built_beside_switched_and_rolled_back(
        self, place, folder, catalog, model, other_model
    ):
        place.sync(catalog)
        old = place.store.read(place.name)
        catalog.close()
        migrate(folder, other_model)
        with Catalog.open(folder, other_model) as migrated:
            with pytest.raises(SyncError, match="--cutover"):
                place.sync(migrated)
            with place.open() as target, pytest.raises(SyncError, match="another model"):
                search_target(target, other_model, QUERIES)
            report = place.sync(migrated, cutover=True, model=other_model)
            assert report.recall == 1.0
            assert place.differences(migrated) == []
            with place.open() as target:
                assert roll_back(target) != report.table
            back = place.store.read(place.name)
            assert back.keys() == old.keys()
            assert all(np.array_equal(back[id][5], old[id][5]) for id in old)
            live(migrated, 1)
            again = place.sync(migrated, cutover=True)
            assert again.table == report.table
            assert 0 < again.upserted < 20  # the table of the first cutover was still there
            assert place.differences(migrated) == []

    def test_a_second_cutover_removes_the_table_before_the_last(self, place, catalog):
        tables = [place.sync(catalog).table]
        for _ in range(2):
            report = place.sync(catalog, cutover=True)
            assert report.upserted == len(catalog)
            tables.append(report.table)
        assert len(set(tables)) == 3
        with place.open() as target:
            assert sorted(target.tables()) == sorted(tables[1:])
            assert target.current() == tables[2]

    def test_another_catalog_is_refused(self, place, catalog, model, tmp_path):
        place.sync(catalog)
        with (
            Catalog.create(tmp_path / "other", model, settings=CatalogSettings()) as other,
            pytest.raises(SyncError, match="another catalog"),
        ):
            place.sync(other)
        assert place.differences(catalog) == []

    def test_a_search_before_the_first_sync_says_what_to_do(self, place, model):
        with open_target(place.url) as target, pytest.raises(SyncError, match="metaxc sync CATALOG --to"):
            search_target(target, model, QUERIES)
