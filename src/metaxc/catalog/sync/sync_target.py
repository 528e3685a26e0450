"""What a synchronisation needs of a vector store: ten operations on tables, and the state that stands beside the rows.

A *place* (one URL) has one name under which others search, and any number of tables behind it, called NAME_1, NAME_2
and so on. The name is an alias (Milvus, Qdrant), a view (PostgreSQL) or a pointer file (Lance, Parquet), so that a
cutover to another table happens at once.
"""

from __future__ import annotations

import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from metaxc.arrays import Floats
from metaxc.artifacts import json_digest
from metaxc.catalog.records import CatalogHit
from metaxc.data.item_fields import Fields
from metaxc.errors import ConfigError, MetaxcError

FORMAT = 1
"""Version of the tables and of `SyncState`; a newer one is refused."""

DEFAULT_NAME = "metaxc_items"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""Names that all of the vector stores accept as they are, with room for a number behind them."""

IndexKind = Literal["hnsw", "exact"]


class SyncError(MetaxcError):
    """The vector store is out of reach, holds something else, or refused what it was asked for."""


@dataclass(frozen=True)
class SyncRow:
    """One item as it stands in a table.

    Args:
        key: The item's key in the catalog, never reused; the primary key of the table.
        digest: The checksum of the catalog's row, hexadecimal: equal digests, equal rows.
        vector: (dim,) float32; the last coordinate is the item's novelty.
        fields: The item's fields.
    """

    key: int
    id: str
    text: str
    tags: tuple[str, ...]
    state: str
    clicks: int
    digest: str
    vector: Floats
    fields: Fields = field(default_factory=dict)


class SyncState(BaseModel):
    """What a table holds, and how far it has followed the catalog.

    Args:
        catalog: The catalog's uuid.
        model: Fingerprint of the model that the vectors were computed with.
        item_side: What of that model the vectors depend on (`item_fingerprint`); None in older tables.
        dim: Length of the vectors.
        exposure: The model's exposure, for people who search without metaxc.
        index: Whether searches use an approximate index.
        sequence: The write number reached: every write up to this one is in the table.
        key: Of the write after that, the items up to this key are in the table too.
        checksum: The sum of the digests of the table's rows, as `TableChecksum` prints it.
        replaces: The table that was in use when this one was begun; a rollback returns to it.
        fields: Whether the table holds the items' fields. One that was created before catalogs had fields does not; it
            is kept up to date without them until a cutover replaces it.
    """

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    catalog: str
    model: str
    item_side: str | None = None
    dim: int
    exposure: float
    index: IndexKind
    sequence: int = 0
    key: int = 0
    checksum: str = "0"
    replaces: str | None = None
    fields: bool = False

    @staticmethod
    def parse(text: str) -> SyncState:
        """The state from the JSON that `model_dump_json` has written."""
        try:
            state = SyncState.model_validate_json(text)
        except ValidationError as error:
            raise SyncError(
                "The state of a synchronised table cannot be read",
                got=text[:200],
                expected="what `metaxc sync` has written",
                fix="remove the table and its state, then run `metaxc sync` again",
            ) from error
        if state.format > FORMAT:
            raise SyncError(
                "The table was written by a newer version of metaxc",
                got=f"format {state.format}",
                expected=f"format {FORMAT} or older",
                fix="upgrade metaxc",
            )
        return state


class SyncTarget(ABC):
    """A place in a vector store, opened by `open_target`.

    Args:
        name: The name under which others search.
        label: The URL without a password, for messages.
    """

    batch_rows: ClassVar[int]
    """Rows that one `apply` writes."""

    errors: tuple[type[Exception], ...] = (OSError,)
    """What the client library raises when the vector store fails."""

    def __init__(self, name: str, label: str):
        if not NAME.fullmatch(name):
            raise ConfigError(
                "Invalid name of a table or collection",
                got=repr(name),
                expected="a letter or underscore, then at most 39 letters, digits and underscores",
                fix="choose another name at the end of the URL",
            )
        self.name, self.label = name, label

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def is_table(self, table: str) -> bool:
        """Whether a table may be one of this place, by its name."""
        return re.fullmatch(rf"{self.name}_[0-9]+", table) is not None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other synchronisations to this place out during a block; two at once would undo each other's work.

        This lock is one of the machine. Vector stores with locks of their own override it.
        """
        user = os.getuid() if hasattr(os, "getuid") else 0
        file = Path(tempfile.gettempdir()) / f"metaxc-sync-{user}-{json_digest(self.label)[:24]}.lock"
        try:
            with FileLock(file, timeout=0):
                yield
        except Timeout as error:
            raise self.busy() from error

    def busy(self) -> SyncError:
        """The error for a place that another synchronisation has locked."""
        return SyncError(
            "Another synchronisation to this place is running",
            got=self.label,
            expected="one at a time",
            fix="wait until it has ended; running the command again is then cheap",
        )

    def close(self) -> None:
        """Close the connection."""
        return

    @abstractmethod
    def tables(self) -> dict[str, SyncState]:
        """The tables of this place with their states; those without a state are not there."""

    @abstractmethod
    def current(self) -> str | None:
        """The table behind the name; None before the first synchronisation is complete."""

    @abstractmethod
    def create(self, table: str, state: SyncState) -> None:
        """Create an empty table with this state; what a stopped attempt has left of it is replaced."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table and its state, which need not be there."""

    @abstractmethod
    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        """The digests of the rows with these keys as far as they are there; of all rows if None."""

    @abstractmethod
    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        """Delete, insert or replace rows by their keys, and store the state that this leads to.

        In one transaction where the vector store has them. Elsewhere the state is stored last, after the rows are
        safe: a crash in between leads to the same work once more, and never to missing work.
        """

    @abstractmethod
    def finish(self, table: str) -> None:
        """Build the index where it is missing, and tidy up after many small writes."""

    @abstractmethod
    def switch(self, table: str) -> None:
        """Let the name stand for this table, at once."""

    @abstractmethod
    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        """The k items of each (n, dim) query vector with the largest inner products, best first."""


@contextmanager
def target_errors(target: SyncTarget) -> Iterator[None]:
    """Raise what the client library raises as a `SyncError`."""
    try:
        yield
    except target.errors as error:
        raise SyncError(
            "The vector store could not be reached or refused an operation",
            got=f"{target.label}: {' '.join(str(error).split())[:300] or type(error).__name__}",
            expected="a vector store that runs, and the rights to create tables and collections there",
            fix="check the URL and the vector store, then run the command again: it resumes where it was",
        ) from error
