"""The tables of a catalog's SQLite file, and the checksums that reveal damage in it and beside it.

SQLite notices a page that it cannot parse, not one whose bytes have changed. So every row carries a checksum of its
content, and the metadata holds the sum of each table's row checksums: a changed row does not match its own checksum,
a lost or resurrected row does not match the sum. Both are written in the transaction that writes the row.

Two files stand beside the database. `closed.json` holds the checksum of a database file that was closed in order.
`mark` holds the sequence number of the last acknowledged transaction: a write-ahead log that has lost its tail is
then known to be behind.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import file_digest, write_atomically
from metaxc.catalog.catalog_errors import damaged_error
from metaxc.data.item_fields import NO_FIELDS

FORMAT = 4
"""In format 1 the items' vectors had no last coordinate, the novelty (`decode_item_vectors`). Formats 1 and 2 have no
table `click_sums`. Formats 1 to 3 have no column `fields`, and a table `tags` by which items were filtered. Such
catalogs open, and their first write makes them of this format (`upgrade`), which older versions of metaxc refuse."""

DATABASE = "catalog.sqlite"
CLOSED = "closed.json"
ACKNOWLEDGED = "mark"

Value = int | float | str | bytes | None

CLICK_SUMS_SCHEMA = (
    "CREATE TABLE click_sums (key INTEGER PRIMARY KEY, clicks INTEGER NOT NULL, total BLOB NOT NULL, "
    "digest BLOB NOT NULL)"
)
TAGS_SCHEMA = (
    "CREATE TABLE tags (tag TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (tag, key)) WITHOUT ROWID"
)
ITEMS_SCHEMA = (
    "CREATE TABLE items (key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, "
    "tags TEXT NOT NULL, state TEXT NOT NULL, clicks INTEGER NOT NULL, trained INTEGER NOT NULL, "
    "created REAL NOT NULL, updated REAL NOT NULL, sequence INTEGER NOT NULL, since INTEGER, "
    "embedding BLOB NOT NULL, vector BLOB NOT NULL, classifier BLOB, digest BLOB NOT NULL"
)
FIELDS_SCHEMA = f"fields TEXT NOT NULL DEFAULT '{NO_FIELDS}'"
SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    f"{ITEMS_SCHEMA}, {FIELDS_SCHEMA})",  # as SQLite writes it when it adds the column
    "CREATE INDEX items_by_sequence ON items (sequence)",
    "CREATE INDEX items_by_state ON items (state)",
    "CREATE INDEX items_that_inform ON items (since) WHERE since IS NOT NULL",
    "CREATE TABLE clicks (number INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL, query TEXT NOT NULL, "
    "at REAL NOT NULL, embedding BLOB NOT NULL, digest BLOB NOT NULL)",
    "CREATE INDEX clicks_by_item ON clicks (key)",
    "CREATE TABLE deleted (sequence INTEGER NOT NULL, key INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
    "CREATE INDEX deleted_by_sequence ON deleted (sequence)",
    "CREATE TABLE queries (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, embedding BLOB NOT NULL, "
    "digest BLOB NOT NULL)",
    CLICK_SUMS_SCHEMA,
)


@dataclass(frozen=True)
class Table:
    """A table whose rows carry checksums.

    Args:
        name: The table's name.
        column_list: All columns but the checksum, which is called `digest`; the first is the primary key.
    """

    name: str
    column_list: str

    @property
    def columns(self) -> list[str]:
        """The columns' names."""
        return self.column_list.split(", ")

    @property
    def select(self) -> str:
        """The statement that reads every row, without checksums; `select_items` reads items of older formats too."""
        return f"SELECT {self.column_list} FROM {self.name}"

    @property
    def insert(self) -> str:
        """The statement that inserts a row with its checksum."""
        values = placeholders(len(self.columns) + 1)
        return f"INSERT INTO {self.name} ({self.column_list}, digest) VALUES ({values})"

    def checksum(self, values: tuple[Value, ...]) -> bytes:
        """The checksum of a row. An item without fields has that of a row of an older format, so that an upgrade need
        not write every row again."""
        without_fields = self == ITEMS and values[-1] == NO_FIELDS
        return row_checksum(self.name, values[:-1] if without_fields else values)


_FIRST_ITEMS = Table(
    "items",
    "key, id, text, tags, state, clicks, trained, created, updated, sequence, since, embedding, vector, classifier",
)
ITEMS = Table("items", f"{_FIRST_ITEMS.column_list}, fields")
CLICKS = Table("clicks", "number, key, query, at, embedding")
DELETED = Table("deleted", "key, sequence")
QUERIES = Table("queries", "number, text, embedding")
CLICK_SUMS = Table("click_sums", "key, clicks, total")
TABLES = (ITEMS, CLICKS, DELETED, QUERIES, CLICK_SUMS)


def _read_format(metadata: dict[str, str]) -> int:
    return int(metadata.get("format", "0"))


def schema_of(metadata: dict[str, str]) -> set[str]:
    """The statements that make the tables of a catalog with this metadata."""
    statements = set(SCHEMA)
    if _read_format(metadata) < 4:
        statements = statements - {SCHEMA[1]} | {f"{ITEMS_SCHEMA})", TAGS_SCHEMA}
    return statements if _read_format(metadata) >= 3 else statements - {CLICK_SUMS_SCHEMA}


def tables_of(metadata: dict[str, str]) -> tuple[Table, ...]:
    """The tables with checksums of a catalog with this metadata."""
    tables = (
        TABLES if _read_format(metadata) >= 3 else tuple(table for table in TABLES if table != CLICK_SUMS)
    )
    return tables if _read_format(metadata) >= 4 else (_FIRST_ITEMS, *tables[1:])


def fields_column(connection: sqlite3.Connection) -> str:
    """What to select for the column `fields` of `items` in the state that a connection sees: older formats lack it."""
    found = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
    return "fields" if int(found[0]) >= 4 else f"'{NO_FIELDS}'"


def select_items(connection: sqlite3.Connection) -> str:
    """The statement that reads all columns of `items` (`ITEMS`), in the state that a connection sees."""
    return f"SELECT {_FIRST_ITEMS.column_list}, {fields_column(connection)} FROM items"


def upgrade(connection: sqlite3.Connection, metadata: dict[str, str]) -> None:
    """Make a catalog of an older format one of this format, inside the transaction of its first write."""
    if _read_format(metadata) < 3:
        connection.execute(CLICK_SUMS_SCHEMA)
    if _read_format(metadata) < 4:
        connection.execute(f"ALTER TABLE items ADD COLUMN {FIELDS_SCHEMA}")
        connection.execute("DROP TABLE tags")
    metadata |= {"format": str(FORMAT)} | {
        f"sum of {table.name}": metadata.get(f"sum of {table.name}", "0") for table in TABLES
    }


def placeholders(count: int) -> str:
    """`?, ?, ?` for as many parameters of a statement."""
    return ", ".join("?" * count)


def encode_vector(vector: Floats) -> bytes:
    """A vector as little-endian float32 bytes."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode_vector(content: bytes) -> Floats:
    """(dim,) float32 from the bytes of one vector."""
    return np.frombuffer(content, dtype="<f4").astype(np.float32, copy=False)


def decode_vectors(contents: Iterable[bytes], dim: int) -> Floats:
    """(n, dim) float32 from the bytes of n vectors."""
    return np.frombuffer(b"".join(contents), dtype="<f4").reshape(-1, dim).astype(np.float32)


VECTOR_COLUMNS = "vector, clicks, trained"
"""What `decode_item_vectors` needs of a row of the table `items`."""


def vector_dim(dim: int) -> int:
    """The length of the vectors that are searched, with embeddings of length `dim`: there is one more coordinate, the
    novelty of an item and the exposure of a query (`metaxc.emmett.scoring`)."""
    return dim + 1


def decode_item_vectors(rows: Iterable[tuple[bytes, int, int]], dim: int) -> Floats:
    """(n, dim + 1) float32 from the `VECTOR_COLUMNS` of n items with embeddings of length `dim`.

    Vectors of format 1 have no last coordinate. In their time the first click ended an item's novelty: it is 1 without
    clicks, and 0 with clicks or where the model was trained on clicks of the item.
    """
    short = len(encode_vector(np.empty(dim, np.float32)))
    novelty = {False: encode_vector(np.ones(1, np.float32)), True: encode_vector(np.zeros(1, np.float32))}
    return decode_vectors(
        (
            vector if len(vector) > short else vector + novelty[bool(clicks or trained)]
            for vector, clicks, trained in rows
        ),
        vector_dim(dim),
    )


def row_checksum(table: str, values: tuple[Value, ...]) -> bytes:
    """16 bytes over a row's content; an equal value of another type gives another checksum."""
    hashed = hashlib.blake2b(table.encode(), digest_size=16)
    for value in values:
        if value is None:
            kind, content = b"n", b""
        elif isinstance(value, bytes):
            kind, content = b"b", value
        elif isinstance(value, str):
            kind, content = b"s", value.encode("utf-8", "surrogatepass")
        elif isinstance(value, float):
            kind, content = b"f", struct.pack("<d", value)
        else:
            kind, content = b"i", str(value).encode()
        hashed.update(kind + struct.pack("<Q", len(content)))
        hashed.update(content)
    return hashed.digest()


class TableChecksum:
    """The sum of the checksums of a table's rows, which does not depend on their order.

    Args:
        text: The hexadecimal form that `str` gives.
    """

    def __init__(self, text: str = "0"):
        self.value = int(text, 16)

    def add(self, checksum: bytes) -> None:
        """Count a row in."""
        self.value = (self.value + int.from_bytes(checksum, "big")) % (1 << 128)

    def remove(self, checksum: bytes) -> None:
        """Count a row out."""
        self.value = (self.value - int.from_bytes(checksum, "big")) % (1 << 128)

    def __str__(self) -> str:
        return f"{self.value:x}"


def read_metadata(connection: sqlite3.Connection) -> dict[str, str]:
    """The catalog's metadata, verified against its checksum."""
    metadata = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    if metadata.get("seal") != _metadata_checksum(metadata):
        raise damaged_error("the metadata was changed")
    return metadata


def write_metadata(connection: sqlite3.Connection, metadata: dict[str, str]) -> None:
    """Write the catalog's metadata with its checksum."""
    complete = {**metadata, "seal": _metadata_checksum(metadata)}
    connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(complete.items()))


def _metadata_checksum(metadata: dict[str, str]) -> str:
    pairs = sorted((name, value) for name, value in metadata.items() if name != "seal")
    return row_checksum("facts", tuple(text for pair in pairs for text in pair)).hex()


def verify_rows(connection: sqlite3.Connection, metadata: dict[str, str]) -> None:
    """Run SQLite's integrity check, then compare every row and every table with its checksum."""
    answer = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if answer != "ok":
        raise damaged_error(str(answer))
    for table in tables_of(metadata):
        total = TableChecksum()
        for row in connection.execute(f"SELECT {table.column_list}, digest FROM {table.name}"):
            if table.checksum(row[:-1]) != row[-1]:
                raise damaged_error(f"row {row[0]} of the table {table.name} was changed")
            total.add(row[-1])
        if str(total) != metadata[f"sum of {table.name}"]:
            raise damaged_error(f"rows of the table {table.name} are missing or were added")


def write_closed_checksum(folder: Path) -> None:
    """Write the checksum of a database file that no process has open."""
    write_atomically(folder / CLOSED, _file_checksum(folder / DATABASE))


def verify_closed_checksum(folder: Path) -> bool:
    """Compare the database file with the checksum of its last orderly close.

    Returns:
        True where it matches, False where the database was not closed in order, so that its rows must be verified.
        A file that differs is an error.
    """
    closed, file, log = folder / CLOSED, folder / DATABASE, folder / f"{DATABASE}-wal"
    try:
        known = closed.read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise damaged_error(f"{CLOSED}: {error}") from error
    if log.exists() and log.stat().st_size:
        reason = "a closed database has a write-ahead log"
    elif known != _file_checksum(file):
        reason = f"{DATABASE} does not match its checksum in {CLOSED}"
    else:
        return True
    if closed.exists():
        raise damaged_error(reason)
    return False  # a writer has opened it meanwhile


def _file_checksum(file: Path) -> bytes:
    facts = {"bytes": file.stat().st_size, "sha256": file_digest(file)}
    return (json.dumps(facts) + "\n").encode()


_LAYOUT = struct.Struct("<8s32sQ")
_MAGIC = b"metaxc\x00\x01"


def encode_acknowledged(uuid: str, sequence: int) -> bytes:
    """The content of the file that holds the last acknowledged sequence number."""
    packed = _LAYOUT.pack(_MAGIC, uuid.encode(), sequence)
    return packed + struct.pack("<I", zlib.crc32(packed))


def read_acknowledged(folder: Path) -> tuple[str, int]:
    """The catalog's uuid and its last acknowledged sequence number."""
    try:
        content = (folder / ACKNOWLEDGED).read_bytes()
    except OSError as error:
        raise damaged_error(f"the file {ACKNOWLEDGED} cannot be read") from error
    if len(content) == _LAYOUT.size + 4:
        magic, uuid, sequence = _LAYOUT.unpack(content[: _LAYOUT.size])
        if magic == _MAGIC and content == encode_acknowledged(uuid.decode("ascii", "replace"), sequence):
            return uuid.decode("ascii"), sequence
    raise damaged_error(f"the file {ACKNOWLEDGED} was changed")
