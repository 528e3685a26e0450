"""The durable store of a catalog: one SQLite file that survives `kill -9` and notices when it was damaged.

The database uses a write-ahead log with `synchronous=FULL`: when `Store.transaction` ends, what it wrote is on disk.
After each commit its sequence number goes into a small file beside the database. SQLite silently drops the damaged
tail of a log; the database is then behind that number, and the catalog refuses to open instead of answering without
writes that it had acknowledged. The number is not synced: it outlives a killed process, and after a power cut it can
only be too low.

When the sync of a commit fails, the log may already hold all of it: SQLite forgets it, the next opening would find it.
The store then commits an empty transaction, which takes its place in the log. Where that fails too, the outcome is
unknown, and every later write says so until the disk works again (`OutcomeUnknownError`).

A store that is closed in order leaves a checksum of its file, so that the next opening need not verify every row.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from metaxc.artifacts import make_folder, sync, write_atomically
from metaxc.catalog.catalog_errors import RECOVERY, CatalogError, damaged_error, outcome_unknown
from metaxc.catalog.connections import FileVersion, connect, is_unchanging, translated_errors
from metaxc.catalog.schema import (
    ACKNOWLEDGED,
    CLICK_SUMS,
    CLICKS,
    CLOSED,
    DATABASE,
    DELETED,
    FORMAT,
    ITEMS,
    SCHEMA,
    TABLES,
    Table,
    TableChecksum,
    Value,
    encode_acknowledged,
    fields_column,
    read_acknowledged,
    read_metadata,
    schema_of,
    select_items,
    upgrade,
    vector_dim,
    verify_closed_checksum,
    verify_rows,
    write_closed_checksum,
    write_metadata,
)

Row = tuple[Any, ...]
CERTAIN_ERRORS = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE")
"""Errors of a commit that leave it incomplete in the log; after any other it may be there as a whole."""


class Transaction:
    """Writes and deletes rows with their checksums; `Store.transaction` makes it.

    Args:
        connection: A connection inside a transaction.
        metadata: The catalog's metadata; entries that are changed here are written at the commit.
    """

    def __init__(self, connection: sqlite3.Connection, metadata: dict[str, str]):
        self.connection, self.metadata = connection, metadata
        upgrade(connection, metadata)
        self.sequence = int(metadata["sequence"]) + 1
        self._checksums = {table.name: TableChecksum(metadata[f"sum of {table.name}"]) for table in TABLES}

    def write_metadata(self) -> None:
        """Write the metadata with this transaction's sequence number and the tables' checksums."""
        self.metadata |= {"sequence": str(self.sequence)}
        self.metadata |= {f"sum of {name}": str(total) for name, total in self._checksums.items()}
        write_metadata(self.connection, self.metadata)

    def put(self, table: Table, values: tuple[Value, ...]) -> None:
        """Insert a row, or replace the one with its primary key."""
        self.delete(table, values[0])
        checksum = table.checksum(values)
        self.connection.execute(table.insert, (*values, checksum))
        self._checksums[table.name].add(checksum)

    def delete(self, table: Table, key: Value) -> None:
        """Delete the row with this primary key, if there is one."""
        name, column = table.name, table.columns[0]
        found = self.connection.execute(f"SELECT digest FROM {name} WHERE {column} = ?", (key,)).fetchone()
        if found:
            self._checksums[name].remove(found[0])
            self.connection.execute(f"DELETE FROM {name} WHERE {column} = ?", (key,))

    def new_key(self, table: Table) -> int:
        """A primary key that no row of the table has ever had."""
        key = table.columns[0]
        ever = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        found = self.connection.execute(
            f"SELECT max(ifnull(({ever}), 0), ifnull((SELECT max({key}) FROM {table.name}), 0))",
            (table.name,),
        ).fetchone()
        return int(found[0]) + 1

    def remove_item(self, key: int) -> None:
        """Delete an item with its clicks, and note that it was deleted."""
        clicks = self.connection.execute("SELECT number FROM clicks WHERE key = ?", (key,)).fetchall()
        for (number,) in clicks:
            self.delete(CLICKS, number)
        self.delete(CLICK_SUMS, key)
        self.delete(ITEMS, key)
        self.put(DELETED, (key, self.sequence))


class Store:
    """An open database of a catalog.

    Args:
        folder: Holds the database file and the files beside it.
        read_only: Whether writing is refused.
    """

    def __init__(self, folder: Path, read_only: bool = False):
        self.folder, self.read_only = folder, read_only
        self._write_lock = threading.RLock()
        self._read_lock = threading.RLock()
        self.retired = (
            False  # whether another generation has taken its place, so that writes here would be lost
        )
        self._unsettled = False  # whether the log may hold a commit that was not acknowledged
        file = folder / DATABASE
        if not file.is_file():
            raise CatalogError("The catalog's database is missing", got=file.name, fix=RECOVERY)
        self._version = FileVersion.of(file, is_unchanging(file))
        unchanged = verify_closed_checksum(folder)
        with translated_errors():
            self._writer = None if read_only else connect(file)
            self._reader = connect(file, query_only=True)
        try:
            with self.read_snapshot() as connection:
                self.metadata = self._verify(connection, rows=not unchanged)
        except BaseException:
            self._disconnect()
            raise
        self._acknowledged: int | None = None  # file descriptor
        if not read_only:
            (folder / CLOSED).unlink(missing_ok=True)
            sync(folder)
            self._acknowledged = os.open(folder / ACKNOWLEDGED, os.O_RDWR)
            self._acknowledge(self.sequence)

    @staticmethod
    def create(folder: Path, metadata: dict[str, str]) -> Store:
        """Create an empty database with this metadata, and open it."""
        make_folder(folder.parent)
        folder.mkdir()
        empty = {f"sum of {table.name}": "0" for table in TABLES}
        metadata = {"format": str(FORMAT), "uuid": uuid4().hex, "sequence": "0", **empty, **metadata}
        with translated_errors():
            connection = connect(folder / DATABASE)
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                connection.execute(statement)
            write_metadata(connection, metadata)
            connection.execute("COMMIT")
            connection.close()
        write_atomically(folder / ACKNOWLEDGED, encode_acknowledged(metadata["uuid"], 0))
        sync(folder.parent)
        return Store(folder)

    @staticmethod
    def recover(folder: Path) -> Store:
        """Open a database whose rows are intact though a file beside it is missing or does not match.

        Acknowledged writes that the database has lost are given up.
        """
        with translated_errors():
            connection = connect(folder / DATABASE)
            try:
                metadata = read_metadata(connection)
                verify_rows(connection, metadata)
            finally:
                connection.close()
        acknowledged = encode_acknowledged(metadata["uuid"], int(metadata["sequence"]))
        write_atomically(folder / ACKNOWLEDGED, acknowledged)
        (folder / CLOSED).unlink(missing_ok=True)
        return Store(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def uuid(self) -> str:
        """Identifies the catalog."""
        return self.metadata["uuid"]

    @property
    def dim(self) -> int:
        """The dimension of the embeddings of texts and queries, and of classifiers."""
        return int(self.metadata["dim"])

    @property
    def vector_dim(self) -> int:
        """The dimension of the vectors that are searched."""
        return vector_dim(self.dim)

    @property
    def exposure(self) -> float:
        """The model's exposure, chosen in training. Catalogs of older models, which had none, do not record it."""
        return float(self.metadata.get("exposure", 0.0))

    @property
    def sequence(self) -> int:
        """The sequence number of the last commit."""
        with self._read_lock, translated_errors():
            return read_sequence(self._reader)

    @property
    def replaced(self) -> bool:
        """Whether the file was replaced, or, if it was opened as one that nobody changes, was changed."""
        return not self._version.is_current(self.folder / DATABASE)

    def fetch_all(self, statement: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """All rows of a SELECT on the last committed state."""
        with self._read_lock, translated_errors():
            return self._reader.execute(statement, parameters).fetchall()

    def fetch_items(self, where: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """All columns (`ITEMS`) of the items that meet a WHERE clause, in the last committed state."""
        with self._read_lock, translated_errors():
            return self._reader.execute(f"{select_items(self._reader)} {where}", parameters).fetchall()

    @property
    def fields_column(self) -> str:
        """What to select for the column `fields` of `items`."""
        with self._read_lock, translated_errors():
            return fields_column(self._reader)

    @contextmanager
    def read_snapshot(self, own_connection: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection that sees one committed state, whatever is committed meanwhile.

        Args:
            own_connection: Opens another connection, so that other readers do not wait for a long read.
        """
        if own_connection:
            with translated_errors():
                connection = connect(self.folder / DATABASE, query_only=True)
                try:
                    connection.execute("BEGIN")
                    yield connection
                finally:
                    connection.close()
            return
        with self._read_lock, translated_errors():
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                with suppress(sqlite3.Error):
                    self._reader.execute("COMMIT")

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction, committed and on disk when the block ends; an exception rolls it back."""
        if self._writer is None or self._acknowledged is None:
            raise CatalogError("The catalog is open for reading only", fix="open it without read_only")
        with self._write_lock, translated_errors():
            if self.retired:
                raise CatalogError("The catalog was switched to another model", fix="open it again")
            connection = self._writer
            self._settle(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(connection, read_metadata(connection))
                yield transaction
                transaction.write_metadata()
                self._commit(connection)
            except BaseException:
                _roll_back(connection)
                raise
            self._acknowledge(transaction.sequence)

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit; if it is not certain that a failed commit has left nothing, take its place in the log."""
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            name = getattr(error, "sqlite_errorname", "") or ""
            if not name.startswith(CERTAIN_ERRORS):
                self._unsettled = True
                self._settle(connection)
            raise

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Commit an empty transaction where a commit that was not acknowledged may be in the log; an
        `OutcomeUnknownError` if that fails."""
        if not self._unsettled:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            empty = Transaction(connection, read_metadata(connection))
            empty.write_metadata()
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            raise outcome_unknown(str(error)) from error
        self._unsettled = False
        self._acknowledge(empty.sequence)

    def verify(self) -> None:
        """Verify every row; damage is a `CatalogError`."""
        with self.read_snapshot() as connection:
            self._verify(connection, rows=True)

    def _verify(self, connection: sqlite3.Connection, rows: bool) -> dict[str, str]:
        """Verify schema, metadata and sequence number, and every row where asked; returns the metadata."""
        found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        found.discard("CREATE TABLE sqlite_sequence(name,seq)")
        if SCHEMA[0] not in found:
            raise damaged_error("its tables are not those of a catalog")
        metadata = read_metadata(connection)
        if int(metadata.get("format", "0")) > FORMAT:
            raise CatalogError(
                "The catalog was written by a newer version of metaxc",
                got=f"format {metadata['format']}",
                expected=f"format {FORMAT} or older",
                fix="upgrade metaxc",
            )
        if found != schema_of(metadata):
            raise damaged_error("its tables are not those of a catalog")
        uuid, acknowledged = read_acknowledged(self.folder)
        if uuid != metadata["uuid"] or acknowledged > int(metadata["sequence"]):
            raise damaged_error(
                f"catalog {uuid[:8]} has acknowledged {acknowledged:,} transactions, "
                f"the database of {metadata['uuid'][:8]} holds {metadata['sequence']}"
            )
        if rows:
            verify_rows(connection, metadata)
        return metadata

    def backup(self, file: Path) -> None:
        """Copy the last committed state into a new file, while writes continue."""
        with translated_errors():
            source, target = connect(self.folder / DATABASE, query_only=True), sqlite3.connect(file)
            try:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                source.close()
                target.close()

    def close(self) -> None:
        """Close the database, and leave its checksum so that the next opening is quick."""
        was_writer = self._disconnect()
        if self._acknowledged is not None:
            os.close(self._acknowledged)
            self._acknowledged = None
        log = self.folder / f"{DATABASE}-wal"
        if was_writer and not (log.exists() and log.stat().st_size):
            with suppress(OSError):  # on a full disk, the next opening verifies all rows
                sync(self.folder)  # the log is gone before the checksum says so
                write_closed_checksum(self.folder)

    def _disconnect(self) -> bool:
        """Close the connections; returns whether there was one for writing."""
        with self._write_lock, self._read_lock, suppress(sqlite3.Error):
            self._reader.close()
            if self._writer is not None:
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._writer.close()
                self._writer = None
                return True
        return False

    def _acknowledge(self, sequence: int) -> None:
        if self._acknowledged is not None:
            with suppress(OSError):  # the commit itself is on disk already
                os.pwrite(self._acknowledged, encode_acknowledged(self.uuid, sequence), 0)


def read_sequence(connection: sqlite3.Connection) -> int:
    """The sequence number of the last commit that a connection sees."""
    return int(connection.execute("SELECT value FROM facts WHERE name = 'sequence'").fetchone()[0])


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
