"""Connections to the SQLite file of a catalog, on writable and on read-only file systems, and SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from metaxc.catalog.catalog_errors import StorageError, damaged_error

DISK_ERRORS = ("SQLITE_FULL", "SQLITE_IOERR")
ACCESS_ERRORS = ("SQLITE_CANTOPEN", "SQLITE_READONLY")


@dataclass(frozen=True)
class FileVersion:
    """What tells whether a file is still the one that was opened.

    Args:
        place: Device and inode; None for a file that does not exist.
        content: Size and time of the last change, where the file is opened as one that nobody changes.
    """

    place: tuple[int, int] | None
    content: tuple[int, int] | None

    @staticmethod
    def of(file: Path, unchanging: bool) -> FileVersion:
        """The version of a file now."""
        try:
            found = file.stat()
        except FileNotFoundError:
            return FileVersion(None, None)
        content = (found.st_size, found.st_mtime_ns) if unchanging else None
        return FileVersion((found.st_dev, found.st_ino), content)

    def is_current(self, file: Path) -> bool:
        """Whether the file is still this version, and not about to be changed if it must not be."""
        unchanging = self.content is not None
        return self == FileVersion.of(file, unchanging) and (not unchanging or is_unchanging(file))


def is_unchanging(file: Path) -> bool:
    """Whether a database is to be read without a log and without locks: it is on a read-only file system, or in a
    folder that is read-only for us, and it was closed in order."""
    log, index = (file.with_name(f"{file.name}{suffix}") for suffix in ("-wal", "-shm"))
    in_use = index.exists() or (log.exists() and log.stat().st_size)
    return not in_use and not os.access(file.parent, os.W_OK)


def connect(file: Path, query_only: bool = False) -> sqlite3.Connection:
    """A connection for reading and writing, or for reading alone."""
    unchanging = query_only and is_unchanging(file)
    address = f"file:{quote(str(file.absolute()))}{'?immutable=1' if unchanging else ''}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
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
def translated_errors() -> Iterator[None]:
    """Raise SQLite's errors as errors of the catalog."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(DISK_ERRORS):
            raise StorageError(
                "Disk full or I/O error",
                got=str(error),
                expected="a writable disk with free space",
                fix="free some space, then try again",
            ) from error
        if name.startswith(ACCESS_ERRORS):
            raise StorageError(
                "The database cannot be opened where it is",
                got=f"{error}; the file system or the folder is read-only",
                expected="a writable folder, or a catalog that was closed in order",
                fix="open it for reading only (`metaxc serve --read-only`, read_only=True); if its last process was "
                "killed, copy the catalog to a writable folder and open it there",
            ) from error
        if name.startswith("SQLITE_BUSY"):
            raise StorageError("The database is busy", got=str(error), fix="try again") from error
        raise damaged_error(str(error)) from error
    except sqlite3.DatabaseError as error:
        raise damaged_error(str(error)) from error
