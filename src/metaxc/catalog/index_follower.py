"""What is made from the record and follows it: the index, and the base set of observed items."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Container

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog.lifecycle import Lifecycle
from metaxc.catalog.rows import WHOLE, ItemRow, stacked
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError
from metaxc.index import SCAN_FROM, Index, build_index, choose_index, load_index

log = logging.getLogger(__name__)

INFORMING = "SELECT key FROM items WHERE since IS NOT NULL ORDER BY since, key"
INFORMING_ANEW = "SELECT key FROM items INDEXED BY items_by_sequence WHERE sequence > ? AND since IS NOT NULL"
CHANGED = "SELECT key, vector FROM items INDEXED BY items_by_sequence WHERE sequence > ?"
"""Named, for the planner would rather read the whole table in order of its keys."""

BLOCK = 500


class IndexFollower:
    """The index and the life of a catalog, as of commit `sequence`.

    Args:
        store: The record.
        model: As trained.
        observe_after: Clicks after which an item is observed.
    """

    def __init__(self, store: Store, model: Emmett, observe_after: int):
        self.store, self.dim = store, model.encoder.dim
        self.life = Lifecycle(model, observe_after)
        self.index, self._reason, self.sequence = self._ready()
        self._informing: list[int] = []
        self._informed = -1
        self._lock, self._base_lock = threading.RLock(), threading.RLock()
        self._building: threading.Thread | None = None
        self.follow()

    @property
    def reason(self) -> str:
        """Why the index is of its kind."""
        fit, reason = choose_index(len(self.index), self.dim)
        return reason if fit.kind == self.index.kind else self._reason

    def follow(self) -> None:
        """Take over what was committed since the last time."""
        self.follow_index()
        if self._informed >= self.sequence:
            return
        with self._base_lock:
            with self.store.snapshot() as connection:
                sequence = _last(connection)
                keys = [row[0] for row in connection.execute(INFORMING)]
                changed = {row[0] for row in connection.execute(INFORMING_ANEW, (self._informed,))}
            self._inform(keys, changed)
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
            self._inform([one for one in self._informing if one != key])

    def close(self, save: bool) -> None:
        """Save the index beside the record; a disk that is full only costs the next opening time."""
        with self._lock:
            building = self._building
        if building is not None:
            building.join()
        if save:
            facts = {"uuid": self.store.uuid, "model": self.store.facts["model"], "sequence": self.sequence}
            try:
                self.index.save(self.store.folder / "index", facts)
            except OSError as error:
                log.warning("the index is not saved, and will be made anew: %s", error)

    def _inform(self, keys: list[int], changed: Container[int] = ()) -> None:
        """Let the items of these keys inform others, in this order. Where they are those of before and some more, only
        these and the changed ones are read."""
        told = len(self._informing)
        more = keys[:told] == self._informing
        new = [key for place, key in enumerate(keys) if not more or place >= told or key in changed]
        self._informing = keys
        if more and not new:
            return
        rows: dict[int, ItemRow] = {}
        for start in range(0, len(new), BLOCK):
            some = new[start : start + BLOCK]
            found = self.store.rows(f"{WHOLE} WHERE key IN ({', '.join('?' * len(some))})", tuple(some))
            rows |= {row.key: row for row in map(ItemRow.of, found)}
        informers = [rows[key].informer() for key in new if key in rows and rows[key].classifier is not None]
        self.life.inform(informers, anew=not more)

    def _ready(self) -> tuple[Index, str, int]:
        """The saved index where it fits the record, else one made from it."""
        place = self.store.folder / "index"
        if place.is_dir():
            try:
                index, facts = load_index(place)
                fits = (facts["uuid"], facts["model"]) == (self.store.uuid, self.store.facts["model"])
                if fits and index.dim == self.dim and 0 <= int(facts["sequence"]) <= self.store.sequence:
                    return index, choose_index(len(index), self.dim)[1], int(facts["sequence"])
                log.warning("the saved index is of another state of the catalog: it is made anew")
            except (MetaxcError, KeyError, TypeError, ValueError) as error:
                log.warning("the saved index cannot be used and is made anew: %s", str(error).splitlines()[0])
        return self._built()

    def _built(self) -> tuple[Index, str, int]:
        with self.store.apart() as connection:
            sequence, keys, vectors, _ = _since(connection, -1, self.dim)
        return *build_index(keys, vectors), sequence

    def _grow(self) -> None:
        """Where the catalog has outgrown its kind of index, build one of another kind beside it, then change over."""
        if self.index.kind == "scan" or len(self.index) < SCAN_FROM:
            return
        with self._lock:
            if (
                self._building is not None
                or choose_index(len(self.index), self.dim)[0].kind == self.index.kind
            ):
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
    """What was committed after `sequence`: the number of the last commit, keys and vectors that are new or changed, and
    keys that are gone."""
    rows = sorted(connection.execute(CHANGED, (sequence,)).fetchall())
    keys = np.array([row[0] for row in rows], dtype=np.int64)
    gone = [row[0] for row in connection.execute("SELECT key FROM deleted WHERE sequence > ?", (sequence,))]
    return _last(connection), keys, stacked((row[1] for row in rows), dim), gone


def _last(connection: sqlite3.Connection) -> int:
    """The number of the last commit."""
    return int(connection.execute("SELECT value FROM facts WHERE name = 'sequence'").fetchone()[0])
