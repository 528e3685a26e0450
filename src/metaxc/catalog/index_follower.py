"""What is derived from the store and follows its commits: the index, and the observed items that inform others."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Container

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog.lifecycle import Lifecycle
from metaxc.catalog.records import ItemRow
from metaxc.catalog.schema import VECTOR_COLUMNS, decode_item_vectors, placeholders, vector_dim
from metaxc.catalog.store import Store, read_sequence
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError
from metaxc.index import KINDS, Index, build_index, choose_kind, load_index

log = logging.getLogger(__name__)

# The index is named because SQLite's planner would rather read the whole table in the order of its keys.
CHANGED = f"SELECT key, {VECTOR_COLUMNS} FROM items INDEXED BY items_by_sequence WHERE sequence > ?"
CHANGED_INFORMING = (
    "SELECT key FROM items INDEXED BY items_by_sequence WHERE sequence > ? AND since IS NOT NULL"
)
INFORMING = "SELECT key FROM items WHERE since IS NOT NULL ORDER BY since, key"

BLOCK = 500

READ_BLOCK = 8_192
"""Items that are read at a time when an index is built: 13 MB of vectors of 385 dimensions."""


class IndexFollower:
    """The index and the life cycle of a catalog, kept up to date with the store.

    Args:
        store: The catalog's store.
        model: The model as it was trained.
        observe_after: Number of clicks after which an item is observed.
    """

    def __init__(self, store: Store, model: Emmett, observe_after: int):
        self.store, self.dim = store, store.vector_dim
        self.lifecycle = Lifecycle(model, observe_after)
        self.index, self._reason, self.sequence = self._load_or_build()
        self._informing: list[int] = []
        self._informing_sequence = -1
        self._lock, self._informing_lock = threading.RLock(), threading.RLock()
        self._rebuild: threading.Thread | None = None
        self.catch_up()

    @property
    def reason(self) -> str:
        """Why the index is of its kind."""
        chosen, reason = choose_kind(len(self.index), self.dim)
        return reason if chosen.kind == self.index.kind else self._reason

    def catch_up(self) -> None:
        """Apply what was committed since the last call to the index and to the observed items."""
        self.catch_up_index()
        if self._informing_sequence >= self.sequence:
            return
        with self._informing_lock:
            with self.store.read_snapshot() as connection:
                sequence = read_sequence(connection)
                keys = [row[0] for row in connection.execute(INFORMING)]
                changed = {
                    row[0] for row in connection.execute(CHANGED_INFORMING, (self._informing_sequence,))
                }
            self._set_informing(keys, changed)
            self._informing_sequence = sequence

    def catch_up_index(self) -> None:
        """Apply what was committed to the index alone, so that searches do not wait for the observed items."""
        if self.store.sequence == self.sequence:
            return
        with self._lock:
            with self.store.read_snapshot() as connection:
                sequence, keys, vectors, deleted = _read_changes(connection, self.sequence, self.store.dim)
            if len(keys):
                self.index.add(keys, vectors)
            deleted = [key for key in deleted if key in self.index]
            if deleted:
                self.index.remove(np.array(deleted, dtype=np.int64))
            self.sequence = sequence
        self._rebuild_if_outgrown()

    def exclude(self, key: int) -> None:
        """Stop an item from informing others, ahead of the commit that records it."""
        with self._informing_lock:
            self._set_informing([other for other in self._informing if other != key])

    def close(self, save: bool) -> None:
        """Wait for a rebuild that is running, and save the index beside the store."""
        with self._lock:
            rebuild = self._rebuild
        if rebuild is not None:
            rebuild.join()
        if save:
            facts = {
                "uuid": self.store.uuid,
                "model": self.store.metadata["model"],
                "sequence": self.sequence,
                "reason": self._reason,
            }
            try:
                self.index.save(self.store.folder / "index", facts)
            except OSError as error:
                log.warning("The index could not be saved; it will be rebuilt at the next opening: %s", error)

    def _set_informing(self, keys: list[int], changed: Container[int] = ()) -> None:
        """Let the items with these keys inform others, in this order.

        Where the keys only continue the earlier ones, only the new and the changed items are read.
        """
        before = len(self._informing)
        extends = keys[:before] == self._informing
        new = [key for place, key in enumerate(keys) if not extends or place >= before or key in changed]
        self._informing = keys
        if extends and not new:
            return
        rows: dict[int, ItemRow] = {}
        for start in range(0, len(new), BLOCK):
            block = new[start : start + BLOCK]
            found = self.store.fetch_items(f"WHERE key IN ({placeholders(len(block))})", block)
            rows |= {row.key: row for row in map(ItemRow.from_values, found)}
        self.lifecycle.use_observed([rows[key] for key in new if key in rows], extend=extends)

    def _load_or_build(self) -> tuple[Index, str, int]:
        """The saved index where it belongs to the store, otherwise a new one."""
        folder = self.store.folder / "index"
        if folder.is_dir():
            try:
                index, facts = load_index(folder)
                belongs = (facts["uuid"], facts["model"]) == (self.store.uuid, self.store.metadata["model"])
                if belongs and index.dim == self.dim and 0 <= int(facts["sequence"]) <= self.store.sequence:
                    reason = str(facts.get("reason", f"{index.kind}: the saved index is of this kind"))
                    return index, reason, int(facts["sequence"])
                log.warning("The saved index belongs to another state of the catalog; rebuilding it")
            except (MetaxcError, KeyError, TypeError, ValueError) as error:
                log.warning("The saved index cannot be used; rebuilding it: %s", str(error).splitlines()[0])
                if not self.store.read_only:
                    shutil.rmtree(
                        folder, ignore_errors=True
                    )  # a derivative without a manifest is not replaced
        return self._build()

    def _build(self) -> tuple[Index, str, int]:
        with self.store.read_snapshot(own_connection=True) as connection:
            sequence, keys, vectors, _ = _read_changes(connection, -1, self.store.dim)
        return *build_index(keys, vectors), sequence

    def _is_outgrown(self) -> bool:
        """Whether there are so many items that a kind of index for more of them is better."""
        chosen, kinds = choose_kind(len(self.index), self.dim)[0].kind, list(KINDS)
        return kinds.index(chosen) > kinds.index(self.index.kind)

    def _rebuild_if_outgrown(self) -> None:
        """Where the catalog has outgrown its kind of index, build one of another kind in the background."""
        if not self._is_outgrown():
            return
        with self._lock:
            if self._rebuild is not None or not self._is_outgrown():
                return
            self._rebuild = threading.Thread(target=self._rebuild_index, name="metaxc-index", daemon=True)
        self._rebuild.start()

    def _rebuild_index(self) -> None:
        try:
            index, reason, sequence = self._build()
            with self._lock:
                self.index, self._reason, self.sequence = index, reason, sequence
                self.catch_up_index()
        finally:
            self._rebuild = None


def _read_changes(
    connection: sqlite3.Connection, sequence: int, dim: int
) -> tuple[int, Keys, Floats, list[int]]:
    """What was committed after `sequence`: the last sequence number, keys and vectors of new and changed items, and
    keys of deleted items; `dim` is that of the embeddings."""
    if sequence < 0:
        return read_sequence(connection), *_read_all(connection, dim), []
    rows = sorted(connection.execute(CHANGED, (sequence,)).fetchall())
    keys = np.array([row[0] for row in rows], dtype=np.int64)
    deleted = [
        row[0] for row in connection.execute("SELECT key FROM deleted WHERE sequence > ?", (sequence,))
    ]
    return read_sequence(connection), keys, decode_item_vectors((row[1:] for row in rows), dim), deleted


def _read_all(connection: sqlite3.Connection, dim: int) -> tuple[Keys, Floats]:
    """Keys and vectors of all items, in the order of the keys, a block at a time: a million rows as Python objects
    would take several times the memory of their vectors."""
    count = connection.execute("SELECT COUNT(*) FROM items").fetchone()[0]
    keys, vectors = np.empty(count, np.int64), np.empty((count, vector_dim(dim)), np.float32)
    cursor = connection.execute(f"SELECT key, {VECTOR_COLUMNS} FROM items ORDER BY key")
    start = 0
    while rows := cursor.fetchmany(READ_BLOCK):
        end = start + len(rows)
        keys[start:end] = [row[0] for row in rows]
        vectors[start:end] = decode_item_vectors((row[1:] for row in rows), dim)
        start = end
    return keys, vectors
