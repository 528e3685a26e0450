"""Witnesses of a record: what shows that it is whole, inside its file (seal, digests, sums) and beside it.

`closed.json` holds the checksum of a file that was closed. `mark` holds the number of the last acknowledged write.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from pathlib import Path

from metaxc.artifacts import file_digest, write_atomically
from metaxc.catalog.catalog_errors import damaged
from metaxc.catalog.schema import TABLES, Sum, digest_of_row, seal_of

FILE = "catalog.sqlite"
CLOSED = "closed.json"
MARK = "mark"
_LAYOUT = struct.Struct("<8s32sQ")
_MAGIC = b"metaxc\x00\x01"


def read_facts(connection: sqlite3.Connection) -> dict[str, str]:
    """The facts, after a look at their seal."""
    facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    if facts.get("seal") != seal_of(facts):
        raise damaged("the facts were changed")
    return facts


def write_facts(connection: sqlite3.Connection, facts: dict[str, str]) -> None:
    """Write the facts with their seal."""
    sealed = {**facts, "seal": seal_of(facts)}
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(sealed.items()))


def check_rows(connection: sqlite3.Connection, facts: dict[str, str]) -> None:
    """Read every row and compare it with its digest, and all of them with their sum."""
    answer = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if answer != "ok":
        raise damaged(str(answer))
    for table in TABLES:
        total = Sum()
        for row in connection.execute(table.select):
            if digest_of_row(table.name, row[:-1]) != row[-1]:
                raise damaged(f"row {row[0]} of {table.name} was changed")
            total.add(row[-1])
        if str(total) != facts[f"sum of {table.name}"]:
            raise damaged(f"rows of {table.name} are missing or too many")
    tagged = sorted(
        (tag, key)
        for key, tags in connection.execute("SELECT key, tags FROM items")
        for tag in set(json.loads(tags))
    )
    if tagged != sorted(connection.execute("SELECT tag, key FROM tags").fetchall()):
        raise damaged("the tags do not fit the items")


def write_checksum(folder: Path) -> None:
    """Leave the checksum of a record that nobody has open."""
    write_atomically(folder / CLOSED, _checksum(folder / FILE))


def fits_checksum(folder: Path) -> bool:
    """Whether the file is, byte by byte, what was closed; False where it was not closed, an error where it is not."""
    closed, file, wal = folder / CLOSED, folder / FILE, folder / f"{FILE}-wal"
    try:
        known = closed.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise damaged(f"{CLOSED}: {error}") from error
    if wal.exists() and wal.stat().st_size:
        why = "a log that a closed record does not have"
    elif known != _checksum(file):
        why = f"{FILE} is not the file that was closed"
    else:
        return True
    if closed.exists():
        raise damaged(why)
    return False  # a writer has come meanwhile


def _checksum(file: Path) -> bytes:
    facts = {"bytes": file.stat().st_size, "sha256": file_digest(file)}
    return (json.dumps(facts) + "\n").encode()


def packed_mark(uuid: str, sequence: int) -> bytes:
    """The mark as it stands in its file."""
    packed = _LAYOUT.pack(_MAGIC, uuid.encode(), sequence)
    return packed + struct.pack("<I", zlib.crc32(packed))


def read_mark(folder: Path) -> tuple[str, int]:
    """The catalog and the number of the last acknowledged write."""
    try:
        read = (folder / MARK).read_bytes()
    except OSError as error:
        raise damaged(f"{MARK} cannot be read") from error
    if len(read) == _LAYOUT.size + 4:
        magic, uuid, sequence = _LAYOUT.unpack(read[: _LAYOUT.size])
        if magic == _MAGIC and read == packed_mark(uuid.decode("ascii", "replace"), sequence):
            return uuid.decode("ascii"), sequence
    raise damaged(f"{MARK} was changed")
