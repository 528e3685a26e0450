"""What is made from the record and follows it: the index, and the base set of observed items."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from metaxc.catalog.life import Life
from metaxc.catalog.rows import WHOLE, ItemRow, stacked
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError
from metaxc.index import SCAN_FROM, Index, index_for, load_index, made_index

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

log = logging.getLogger(__name__)


class Followed:
    """The index and the life of a catalog, as of commit `sequence`.

    Args:
        store: The record.
        model: As trained.
        observe_after: Clicks after which an item is observed.
    """

    def __init__(self, store: Store, model: Emmett, observe_after: int):
        self.store, self.dim = store, model.encoder.dim
        self.life = Life(model, observe_after)
        self.index, self._reason, self.sequence = self._ready()
        self._informing: list[int] = []
        self._informed = -1
        self._lock, self._base_lock = threading.RLock(), threading.RLock()
        self._building: threading.Thread | None = None
        self.follow()

    @property
    def reason(self) -> str:
        """Why the index is of its kind."""
        fit, reason = index_for(len(self.index), self.dim)
        return reason if fit.kind == self.index.kind else self._reason

    def follow(self) -> None:
        """Take over what was committed since the last time."""
        self.follow_index()
        if self._informed == self.sequence:
            return
        with self._base_lock:
            with self.store.snapshot() as connection:
                sequence, informing = _last(connection), _informing(connection)
            if informing != self._informing or self._informed < 0:
                self._inform()
            self._informed = sequence

    def follow_index(self) -> None:
        """Take over what searches need: they do not wait until a base set that has grown is made."""
        if self.store.sequence == self.sequence:
            return
        with self._lock:
            with self.store.snapshot() as connection:
                sequence, keys, vectors, gone = _since(connection, self.sequence, self.dim)
            if len(keys):
                self.index.add(keys, vectors)
            gone = [key for key in gone if key in self.index]
            if gone:
                self.index.remove(np.array(gone, dtype=np.int64))
            self.sequence = sequence
        self._grow()

    def dismiss(self, key: int) -> None:
        """Let an item inform others no more, ahead of the commit that says so."""
        with self._base_lock:
            self._informing = [one for one in self._informing if one != key]
            self.life.inform([row.informer() for row in self._rows(self._informing)])

    def close(self, save: bool) -> None:
        """Save the index beside the record; a disk that is full only costs the next opening time."""
        with self._lock:
            building = self._building
        if building is not None:
            building.join()
        if save:
            facts = {"uuid": self.store.uuid, "model": self.store.facts["model"], "sequence": self.sequence}
            with suppress(OSError):
                self.index.save(self.store.folder / "index", facts)

    def _inform(self) -> None:
        rows = [
            ItemRow.of(row) for row in self.store.rows(f"{WHOLE} WHERE since IS NOT NULL ORDER BY since, key")
        ]
        self._informing = [row.key for row in rows]
        self.life.inform([row.informer() for row in rows])

    def _rows(self, keys: list[int]) -> list[ItemRow]:
        rows = self.store.rows(f"{WHOLE} WHERE since IS NOT NULL ORDER BY since, key")
        return [row for row in map(ItemRow.of, rows) if row.key in set(keys)]

    def _ready(self) -> tuple[Index, str, int]:
        """The saved index where it fits the record, else one made from it."""
        place = self.store.folder / "index"
        if place.is_dir():
            try:
                index, facts = load_index(place)
                fits = (facts["uuid"], facts["model"]) == (self.store.uuid, self.store.facts["model"])
                if fits and index.dim == self.dim and 0 <= int(facts["sequence"]) <= self.store.sequence:
                    return index, index_for(len(index), self.dim)[1], int(facts["sequence"])
                log.warning("the saved index is of another state of the catalog: it is made anew")
            except (MetaxcError, KeyError, TypeError, ValueError) as error:
                log.warning("the saved index cannot be used and is made anew: %s", str(error).splitlines()[0])
        return self._built()

    def _built(self) -> tuple[Index, str, int]:
        with self.store.snapshot() as connection:
            sequence, keys, vectors, _ = _since(connection, -1, self.dim)
        return *made_index(keys, vectors), sequence

    def _grow(self) -> None:
        """Where the catalog has outgrown its kind of index, build one of another kind beside it, then change over."""
        if self.index.kind == "scan" or len(self.index) < SCAN_FROM:
            return
        with self._lock:
            if self._building is not None or index_for(len(self.index), self.dim)[0].kind == self.index.kind:
                return
            self._building = threading.Thread(target=self._change_over, name="metaxc-index", daemon=True)
        self._building.start()

    def _change_over(self) -> None:
        try:
            index, reason, sequence = self._built()
            with self._lock:
                self.index, self._reason, self.sequence = index, reason, sequence
                self.follow_index()
        finally:
            self._building = None


def _since(connection: sqlite3.Connection, sequence: int, dim: int) -> tuple[int, Keys, Floats, list[int]]:
    """What was committed after `sequence`: the number of the last commit, keys and vectors that are new or changed,
    and keys that are gone."""
    # Left to itself, SQLite reads the whole table in the order of its keys, however few rows are new.
    hint = "INDEXED BY items_by_sequence" if sequence >= 0 else ""
    rows = connection.execute(
        f"SELECT key, vector FROM items {hint} WHERE sequence > ? ORDER BY key", (sequence,)
    ).fetchall()
    keys = np.array([row[0] for row in rows], dtype=np.int64)
    gone = [row[0] for row in connection.execute("SELECT key FROM deleted WHERE sequence > ?", (sequence,))]
    return _last(connection), keys, stacked((row[1] for row in rows), dim), gone


def _last(connection: sqlite3.Connection) -> int:
    """The number of the last commit."""
    return int(connection.execute("SELECT value FROM facts WHERE name = 'sequence'").fetchone()[0])


def _informing(connection: sqlite3.Connection) -> list[int]:
    """Keys of all items that inform others."""
    asked = "SELECT key FROM items WHERE since IS NOT NULL ORDER BY since, key"
    return [row[0] for row in connection.execute(asked)]
