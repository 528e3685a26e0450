"""The record of a catalog: one SQLite file that survives `kill -9` and tells when it was damaged.

Written ahead (WAL) with `synchronous=FULL`: when `Store.writing` returns, what was written is on the disk. After each
commit its number goes into a small file beside, `mark`. A log that lost its end (SQLite drops a damaged tail without a
word) is then behind the mark, and the catalog is refused in place of answering without writes it had acknowledged.
The mark is not synced: it outlives a killed process, and after a power cut it can only be behind.

A store that is closed leaves `closed.json` with the checksum of its file: the next opening compares it, and need not
look at every row.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from metaxc.artifacts import sync, write_atomically
from metaxc.catalog.catalog_errors import RESTORE, CatalogError, StorageError, damaged
from metaxc.catalog.integrity import (
    CLOSED,
    FILE,
    MARK,
    check_rows,
    fits_checksum,
    packed_mark,
    read_facts,
    read_mark,
    write_checksum,
    write_facts,
)
from metaxc.catalog.schema import FORMAT, SCHEMA, TABLES, Sum, Table, Value, digest_of_row

Row = tuple[Any, ...]


class Writing:
    """One transaction: rows in and out, with their digests.

    Args:
        connection: In a transaction.
        facts: Of the catalog; may be changed.
    """

    def __init__(self, connection: sqlite3.Connection, facts: dict[str, str]):
        self.connection, self.facts = connection, facts
        self.sequence = int(facts["sequence"]) + 1
        self.sums = {table.name: Sum(facts[f"sum of {table.name}"]) for table in TABLES}

    def seal(self) -> None:
        """Write the facts."""
        self.facts["sequence"] = str(self.sequence)
        self.facts |= {f"sum of {name}": str(total) for name, total in self.sums.items()}
        write_facts(self.connection, self.facts)

    def put(self, table: Table, values: tuple[Value, ...]) -> None:
        """Write a row; one of the same key is replaced."""
        self.drop(table, values[0])
        digest = digest_of_row(table.name, values)
        self.connection.execute(table.insert, (*values, digest))
        self.sums[table.name].add(digest)

    def new_key(self, table: Table) -> int:
        """A key that no row ever had."""
        key = table.columns[0]
        ever = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        found = self.connection.execute(
            f"SELECT max(ifnull(({ever}), 0), ifnull((SELECT max({key}) FROM {table.name}), 0))",
            (table.name,),
        ).fetchone()
        return int(found[0]) + 1

    def drop(self, table: Table, key: Value) -> None:
        """Remove a row, if it is there."""
        name, column = table.name, table.columns[0]
        found = self.connection.execute(f"SELECT digest FROM {name} WHERE {column} = ?", (key,)).fetchone()
        if found:
            self.sums[name].drop(found[0])
            self.connection.execute(f"DELETE FROM {name} WHERE {column} = ?", (key,))

    def tag(self, key: int, before: Sequence[str], after: Sequence[str]) -> None:
        """Let an item be found by the tags that it has now."""
        for tag in set(before) - set(after):
            self.connection.execute("DELETE FROM tags WHERE tag = ? AND key = ?", (tag, key))
        for tag in set(after) - set(before):
            self.connection.execute("INSERT INTO tags VALUES (?, ?)", (tag, key))

    def run(self, statement: str, values: tuple[Value, ...] = ()) -> sqlite3.Cursor:
        """A statement on what carries no digest."""
        return self.connection.execute(statement, values)


class Store:
    """An open record.

    Args:
        folder: Of the record.
        read_only: Whether nothing may be written.
    """

    def __init__(self, folder: Path, read_only: bool = False):
        self.folder, self.read_only = folder, read_only
        self._lock = threading.RLock()
        self._reading = threading.RLock()
        file = folder / FILE
        if not file.is_file():
            raise CatalogError("The catalog has no record", got=file.name, fix=RESTORE)
        trusted = fits_checksum(folder)
        with _told():
            self._writer = None if read_only else _connect(file)
            self._reader = _connect(file, query_only=True)
        try:
            with self.snapshot() as connection:
                self.check(connection, trusted)
                self.facts = read_facts(connection)
        except BaseException:
            self._disconnect()
            raise
        self._mark: int | None = None
        if not read_only:
            (folder / CLOSED).unlink(missing_ok=True)
            sync(folder)
            self._mark = os.open(folder / MARK, os.O_RDWR)
            self._set_mark(self.sequence)

    @staticmethod
    def create(folder: Path, facts: dict[str, str]) -> Store:
        """An empty record with these facts."""
        folder.mkdir(parents=True)
        with _told():
            connection = _connect(folder / FILE)
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                connection.execute(statement)
            start = {f"sum of {table.name}": "0" for table in TABLES}
            known = {"format": str(FORMAT), "uuid": uuid4().hex, "sequence": "0", **start, **facts}
            write_facts(connection, known)
            connection.execute("COMMIT")
            connection.close()
        write_atomically(folder / MARK, packed_mark(known["uuid"], 0))
        return Store(folder)

    @staticmethod
    def accept(folder: Path) -> Store:
        """Open a record whose rows are whole though the mark or the checksum beside it does not fit: what is missing
        is given up."""
        with _told():
            connection = _connect(folder / FILE)
            try:
                facts = read_facts(connection)
                check_rows(connection, facts)
            finally:
                connection.close()
        write_atomically(folder / MARK, packed_mark(facts["uuid"], int(facts["sequence"])))
        (folder / CLOSED).unlink(missing_ok=True)
        return Store(folder)

    @property
    def uuid(self) -> str:
        """Names the catalog."""
        return self.facts["uuid"]

    @property
    def sequence(self) -> int:
        """The number of the last commit."""
        return int(self.rows("SELECT value FROM facts WHERE name = 'sequence'")[0][0])

    def rows(self, statement: str, values: tuple[Value, ...] = ()) -> list[Row]:
        """All rows of a query, from the last committed state."""
        with self._reading, _told():
            return self._reader.execute(statement, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state, whatever is committed meanwhile."""
        with self._reading, _told():
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                with suppress(sqlite3.Error):
                    self._reader.execute("COMMIT")

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """The same on a connection of its own, for what reads much: nobody waits for it."""
        with _told():
            connection = _connect(self.folder / FILE, query_only=True)
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                connection.close()

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """A transaction: all of it or nothing; on the disk when the block has ended."""
        if self._writer is None or self._mark is None:
            raise CatalogError("The catalog is open for reading only", fix="open it without read_only")
        with self._lock, _told():
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                change = Writing(connection, read_facts(connection))
                yield change
                change.seal()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise
            self._set_mark(change.sequence)

    def check(self, connection: sqlite3.Connection, trusted: bool) -> None:
        """Raise where the record is not what was written.

        Args:
            connection: In a transaction.
            trusted: Whether the file's checksum fits, so that its rows need not be read.
        """
        known = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        known.discard("CREATE TABLE sqlite_sequence(name,seq)")
        if known != set(SCHEMA):
            raise damaged("its tables are not those of a catalog")
        facts = read_facts(connection)
        if int(facts.get("format", "0")) > FORMAT:
            raise CatalogError(
                "The catalog was written by a newer metaxc",
                got=f"format {facts['format']}",
                fix="upgrade metaxc",
            )
        mark = read_mark(self.folder)
        if mark[0] != facts["uuid"] or mark[1] > int(facts["sequence"]):
            raise damaged(
                f"{mark[1]:,} writes of {mark[0][:8]} were acknowledged, the record has {facts['sequence']} "
                f"of {facts['uuid'][:8]}"
            )
        if not trusted:
            check_rows(connection, facts)

    def backup(self, file: Path) -> None:
        """Copy the last committed state into a new file, while writes go on."""
        with _told():
            source, target = _connect(self.folder / FILE, query_only=True), sqlite3.connect(file)
            try:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                source.close()
                target.close()

    def close(self) -> None:
        """Leave the record so that the next opening is quick."""
        last = self._disconnect()
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None
        wal = self.folder / f"{FILE}-wal"
        if last and not (wal.exists() and wal.stat().st_size):
            with suppress(OSError):  # on a full disk the next opening reads all rows
                write_checksum(self.folder)

    def _disconnect(self) -> bool:
        """Whether a writer was closed."""
        with self._lock, self._reading, suppress(sqlite3.Error):
            self._reader.close()
            if self._writer is not None:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._writer.close()
                self._writer = None
                return True
        return False

    def _set_mark(self, sequence: int) -> None:
        if self._mark is not None:
            with suppress(OSError):  # the mark is a witness, not the record
                os.pwrite(self._mark, packed_mark(self.uuid, sequence), 0)


def _connect(file: Path, query_only: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        if not query_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA query_only = {'ON' if query_only else 'OFF'}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _told() -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise StorageError(
                "The disk did not take it",
                got=str(error),
                expected="room to write",
                fix="free some space, then try again",
            ) from error
        if name.startswith("SQLITE_BUSY"):
            raise StorageError("The record is busy", got=str(error), fix="try again") from error
        raise damaged(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise damaged(str(error)) from error
