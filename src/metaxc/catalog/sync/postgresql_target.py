"""PostgreSQL with pgvector: a view over numbered tables; rows and state are written in one transaction.

`postgresql://USER@HOST/DATABASE?table=NAME` is a libpq URL; `table` is ours and may be left out. The password may come
from `PGPASSWORD` or `~/.pgpass`. NAME_sync holds the states of the tables and which of them is in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from metaxc.arrays import Floats
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.sync_target import DEFAULT_NAME, IndexKind, SyncRow, SyncState, SyncTarget
from metaxc.data.item_fields import dump_fields
from metaxc.extras import import_extra

EXTRA = "sync-postgresql"
COLUMNS = "key, id, text, tags, state, clicks, digest, vector"
SHOWN = "id, text, tags, state, clicks, vector::vector AS vector"
"""What the view has. The cast takes the length of the vectors off the column's type, so that the view can be replaced
by one over vectors of another length, with all rights on it; an index on the vectors is used all the same."""

MOST_HNSW = 2_000
"""Numbers of a vector that pgvector can index; longer ones are compared one by one."""

MOST_EF_SEARCH = 1_000


class PostgresqlTarget(SyncTarget):
    """A view with its tables in a PostgreSQL database."""

    batch_rows = 2_000

    def __init__(self, url: str):
        psycopg = import_extra("psycopg", EXTRA)
        self._pgvector = import_extra("pgvector.psycopg", EXTRA)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        name = options.pop("table", DEFAULT_NAME)
        host = parts.netloc.rpartition("@")[2]
        super().__init__(name, urlunsplit((parts.scheme, host, parts.path, "", "")) + f" ({name})")
        self.errors = (psycopg.Error, OSError)
        self._url = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
        self._connect = psycopg.connect
        self._opened: object = None

    @property
    def _connection(self):  # type: ignore[no-untyped-def]
        """The connection, opened and prepared at the first use."""
        if self._opened is None:
            opened = self._connect(self._url, autocommit=True)
            # An extension that is there needs no rights; one that is not may need those of the database's owner.
            opened.execute("CREATE EXTENSION IF NOT EXISTS vector")
            self._pgvector.register_vector(opened)
            opened.execute(
                f"CREATE TABLE IF NOT EXISTS {self.name}_sync "
                "(name text PRIMARY KEY, current boolean NOT NULL DEFAULT false, state text NOT NULL)"
            )
            self._opened = opened
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._connection.close()
            self._opened = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A lock of the database, released when the connection ends."""
        lock = (f"metaxc sync {self.name}",)
        [taken] = self._connection.execute("SELECT pg_try_advisory_lock(hashtext(%s))", lock).fetchone()
        if not taken:
            raise self.busy()
        try:
            yield
        finally:
            if not self._connection.broken:
                self._connection.execute("SELECT pg_advisory_unlock(hashtext(%s))", lock)

    def tables(self) -> dict[str, SyncState]:
        found = self._connection.execute(f"SELECT name, state FROM {self.name}_sync").fetchall()
        return {name: SyncState.parse(state) for name, state in found}

    def current(self) -> str | None:
        found = self._connection.execute(f"SELECT name FROM {self.name}_sync WHERE current").fetchone()
        return None if found is None else str(found[0])

    def create(self, table: str, state: SyncState) -> None:
        fields = "fields jsonb NOT NULL, " if state.fields else ""
        with self._connection.transaction():
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")
            self._connection.execute(
                f"CREATE TABLE {table} (key bigint PRIMARY KEY, id text NOT NULL, text text NOT NULL, "
                "tags text[] NOT NULL, state text NOT NULL, clicks integer NOT NULL, digest text NOT NULL, "
                f"{fields}vector vector({state.dim}) NOT NULL)"
            )
            self._connection.execute(f"CREATE INDEX {table}_id ON {table} (id)")
            self._connection.execute(f"CREATE INDEX {table}_tags ON {table} USING gin (tags)")
            self._store(table, state)

    def drop(self, table: str) -> None:
        with self._connection.transaction():
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")
            self._connection.execute(f"DELETE FROM {self.name}_sync WHERE name = %s", (table,))

    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        if keys is None:
            return dict(self._connection.execute(f"SELECT key, digest FROM {table}").fetchall())
        select = f"SELECT key, digest FROM {table} WHERE key = ANY(%s)"
        return dict(self._connection.execute(select, (list(keys),)).fetchall())

    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        columns = [*COLUMNS.split(", "), *(["fields"] if state.fields else [])]
        places = ", ".join("%s::jsonb" if column == "fields" else "%s" for column in columns)
        values = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
        with self._connection.transaction(), self._connection.cursor() as cursor:
            if deleted:
                cursor.execute(f"DELETE FROM {table} WHERE key = ANY(%s)", (list(deleted),))
            if rows:
                cursor.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) "
                    f"ON CONFLICT (key) DO UPDATE SET {values}",
                    [
                        (r.key, r.id, r.text, list(r.tags), r.state, r.clicks, r.digest, r.vector)
                        + ((dump_fields(r.fields),) if state.fields else ())
                        for r in rows
                    ],
                )
            self._store(table, state)

    def _store(self, table: str, state: SyncState) -> None:
        self._connection.execute(
            f"INSERT INTO {self.name}_sync (name, state) VALUES (%s, %s) "
            "ON CONFLICT (name) DO UPDATE SET state = excluded.state",
            (table, state.model_dump_json()),
        )

    def finish(self, table: str) -> None:
        state = self.tables()[table]
        if state.index == "hnsw" and state.dim <= MOST_HNSW:
            # After the rows: building it at once takes a fraction of the time that it takes row by row.
            self._connection.execute(
                f"CREATE INDEX IF NOT EXISTS {table}_hnsw ON {table} USING hnsw (vector vector_ip_ops)"
            )

    def switch(self, table: str) -> None:
        with self._connection.transaction():
            shown = f"{SHOWN}, {self._fields(table)} AS fields"  # at the end: columns of a view can only be appended
            self._connection.execute(f"CREATE OR REPLACE VIEW {self.name} AS SELECT {shown} FROM {table}")
            self._connection.execute(f"UPDATE {self.name}_sync SET current = (name = %s)", (table,))

    def _fields(self, table: str) -> str:
        """The column of the fields; a table from before catalogs had fields has none."""
        return "fields" if self.tables()[table].fields else "'{}'::jsonb"

    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        select = (
            f"SELECT id, text, tags, state, -(vector <#> %(q)s) AS score, {self._fields(table)} FROM {table} "
            "ORDER BY vector <#> %(q)s LIMIT %(k)s"
        )
        found: list[list[CatalogHit]] = []
        with self._connection.transaction():
            # The index looks at 40 rows unless told otherwise, and never returns more than it looks at.
            self._connection.execute(f"SET LOCAL hnsw.ef_search = {min(max(100, 4 * k), MOST_EF_SEARCH)}")
            if index == "exact" or k > MOST_EF_SEARCH:
                self._connection.execute("SET LOCAL enable_indexscan = off")
            for vector in vectors:
                rows = self._connection.execute(select, {"q": vector, "k": k}).fetchall()
                found.append([CatalogHit(id, text, tuple(tags), *rest) for id, text, tags, *rest in rows])
        return found
