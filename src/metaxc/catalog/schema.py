"""The tables of a catalog, and how a row proves that it is whole.

SQLite notices a page that cannot be read, not one whose bytes were changed. So every row carries a digest of its
content, and `facts` holds the sum of all digests of a table: a changed row does not fit its digest, a lost or revived
row does not fit the sum. Both are written in the transaction that writes the row.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

FORMAT = 1

Value = int | float | str | bytes | None

SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE items (key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, "
    "tags TEXT NOT NULL, state TEXT NOT NULL, clicks INTEGER NOT NULL, trained INTEGER NOT NULL, "
    "created REAL NOT NULL, updated REAL NOT NULL, sequence INTEGER NOT NULL, since INTEGER, "
    "embedding BLOB NOT NULL, vector BLOB NOT NULL, classifier BLOB, digest BLOB NOT NULL)",
    "CREATE INDEX items_by_sequence ON items (sequence)",
    "CREATE INDEX items_by_state ON items (state)",
    "CREATE INDEX items_that_inform ON items (since) WHERE since IS NOT NULL",
    "CREATE TABLE tags (tag TEXT NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (tag, key)) WITHOUT ROWID",
    "CREATE TABLE clicks (number INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL, query TEXT NOT NULL, "
    "at REAL NOT NULL, embedding BLOB NOT NULL, digest BLOB NOT NULL)",
    "CREATE INDEX clicks_by_item ON clicks (key)",
    "CREATE TABLE deleted (sequence INTEGER NOT NULL, key INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
    "CREATE INDEX deleted_by_sequence ON deleted (sequence)",
    "CREATE TABLE queries (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, embedding BLOB NOT NULL, "
    "digest BLOB NOT NULL)",
)


@dataclass(frozen=True)
class Table:
    """A table whose rows carry digests.

    Args:
        name: Its name.
        columns: All but the digest; the first is the primary key.
    """

    name: str
    columns: tuple[str, ...]

    @property
    def insert(self) -> str:
        """The statement that writes a whole row."""
        names = ", ".join((*self.columns, "digest"))
        return f"INSERT INTO {self.name} ({names}) VALUES ({', '.join('?' * (len(self.columns) + 1))})"

    @property
    def select(self) -> str:
        """The statement that reads every row, the digest last."""
        return f"SELECT {', '.join(self.columns)}, digest FROM {self.name}"


ITEMS = Table(
    "items",
    (
        "key",
        "id",
        "text",
        "tags",
        "state",
        "clicks",
        "trained",
        "created",
        "updated",
        "sequence",
        "since",
        "embedding",
        "vector",
        "classifier",
    ),
)
CLICKS = Table("clicks", ("number", "key", "query", "at", "embedding"))
DELETED = Table("deleted", ("key", "sequence"))
QUERIES = Table("queries", ("number", "text", "embedding"))
TABLES = (ITEMS, CLICKS, DELETED, QUERIES)


def digest_of_row(table: str, values: tuple[Value, ...]) -> bytes:
    """16 bytes over a row's content; values of another type give another digest."""
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


def seal_of(facts: dict[str, str]) -> str:
    """A digest over all facts but the seal itself."""
    pairs = sorted((name, value) for name, value in facts.items() if name != "seal")
    return digest_of_row("facts", tuple(text for pair in pairs for text in pair)).hex()


class Sum:
    """The sum of the digests of a set of rows: whatever the order they came in."""

    def __init__(self, text: str = "0"):
        self.value = int(text, 16)

    def add(self, digest: bytes) -> None:
        """A row is there."""
        self.value = (self.value + int.from_bytes(digest, "big")) % (1 << 128)

    def drop(self, digest: bytes) -> None:
        """A row is gone."""
        self.value = (self.value - int.from_bytes(digest, "big")) % (1 << 128)

    def __str__(self) -> str:
        return f"{self.value:x}"
