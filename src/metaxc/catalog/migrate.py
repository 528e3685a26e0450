"""From one model to another: everything is represented anew in a generation of its own, then that one counts.

Killed at any moment, the old generation counts and the new one goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from metaxc.catalog.catalog_settings import CatalogSettings
from metaxc.catalog.generations import CatalogFolder
from metaxc.catalog.lifecycle import Lifecycle
from metaxc.catalog.rows import WHOLE, ItemRow, blob
from metaxc.catalog.schema import CLICKS, ITEMS, QUERIES
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError

BLOCK = 256


def migrate(
    folder: str | Path, model: Emmett, progress: Callable[[int, int], None] = lambda done, of: None
) -> bool:
    """Move a catalog to another model; False where it is of that model already.

    Items, tags, clicks and known queries stay; embeddings, vectors, classifiers and states are made anew. An item that
    the new model was trained on counts as trained.

    Args:
        folder: The catalog; nobody may write to it meanwhile.
        model: The new model.
        progress: Called with the items done and their number.
    """
    place = CatalogFolder(folder)
    generation = place.current()
    lock = place.lock()
    try:
        old = Store(generation, read_only=True)
        try:
            if old.facts["model"] == model.fingerprint:
                return False
            new, there = _begun(place, old, model)
            _Migration(old, new, model, progress).run()
            new.close()
            place.switch(there)
            return True
        finally:
            old.close()
    finally:
        lock.release()


def _begun(place: CatalogFolder, old: Store, model: Emmett) -> tuple[Store, Path]:
    """The generation that an earlier run has begun from the same state to the same model, or a new one."""
    origin = f"{old.folder.name} {old.sequence}"
    for there in place.others():
        try:
            store = Store(there)
        except MetaxcError:
            continue  # it was not even begun, or is damaged
        if (store.facts.get("origin"), store.facts["model"]) == (origin, model.fingerprint):
            return store, there
        store.close()
    facts = {
        "uuid": old.uuid,
        "model": model.fingerprint,
        "dim": str(model.encoder.dim),
        "settings": old.facts["settings"],
        "origin": origin,
    }
    there = place.next()
    return Store.create(there, facts), there


class _Migration:
    def __init__(self, old: Store, new: Store, model: Emmett, progress: Callable[[int, int], None]):
        self.old, self.new, self.model, self.progress = old, new, model, progress
        settings = CatalogSettings.model_validate_json(old.facts["settings"])
        self.life = Lifecycle(model, settings.observe_after)
        self.observed = {model.items.ids[row] for row in model.observed.tolist()}
        self.done = {row[0] for row in new.rows("SELECT key FROM items")}
        self.total = int(old.rows("SELECT count(*) FROM items")[0][0])

    def run(self) -> None:
        """Known queries; then the items that will inform others; then, with these, all others."""
        self._queries()
        rows = self.old.rows("SELECT key, id, clicks FROM items ORDER BY ifnull(since, 9e18), key")
        can_grow = self.model.pipeline.pool.trained.can_grow
        informers = [
            key
            for key, name, clicks in rows
            if clicks >= self.life.observe_after and name not in self.observed and can_grow
        ]
        self._items(informers)
        told = self.new.rows(f"{WHOLE} WHERE since IS NOT NULL ORDER BY since, key")
        self.life.inform([ItemRow.of(row).informer() for row in told])
        first = set(informers)
        self._items([key for key, _, _ in rows if key not in first])

    def _queries(self) -> None:
        known = {row[0] for row in self.new.rows("SELECT number FROM queries")}
        rows = [
            row
            for row in self.old.rows("SELECT number, text FROM queries ORDER BY number")
            if row[0] not in known
        ]
        for start in range(0, len(rows), BLOCK):
            some = rows[start : start + BLOCK]
            embeddings = self.model.encoder.encode_queries([row[1] for row in some])
            with self.new.writing() as change:
                for (number, text), embedding in zip(some, embeddings, strict=True):
                    change.put(QUERIES, (number, text, blob(embedding)))

    def _items(self, keys: Sequence[int]) -> None:
        left = [key for key in keys if key not in self.done]
        for start in range(0, len(left), BLOCK):
            self._block(left[start : start + BLOCK])
            self.progress(len(self.done), self.total)

    def _block(self, keys: Sequence[int]) -> None:
        marks = ", ".join("?" * len(keys))
        rows = [ItemRow.of(row) for row in self.old.rows(f"{WHOLE} WHERE key IN ({marks})", tuple(keys))]
        clicks = self.old.rows(
            f"SELECT number, key, query, at FROM clicks WHERE key IN ({marks}) ORDER BY number", tuple(keys)
        )
        encoder = self.model.encoder
        embeddings = encoder.encode_items([row.text for row in rows])
        queries = np.empty((0, encoder.dim), np.float32)
        if clicks:
            queries = encoder.encode_queries([click[2] for click in clicks])
        of = np.array([click[1] for click in clicks], dtype=np.int64)
        fresh = [
            replace(row, embedding=embedding, trained=row.id in self.observed)
            for row, embedding in zip(rows, embeddings, strict=True)
        ]
        stages = self.life.stages([row.subject(queries[of == row.key]) for row in fresh])
        with self.new.writing() as change:
            for row, stage in zip(fresh, stages, strict=True):
                since = None if stage.classifier is None else (row.since or change.sequence)
                made = replace(
                    row,
                    state=stage.state,
                    vector=stage.vector,
                    classifier=stage.classifier,
                    since=since,
                    sequence=change.sequence,
                )
                change.put(ITEMS, made.values())
                change.tag(row.key, (), row.tags)
            for (number, key, query, at), embedding in zip(clicks, queries, strict=True):
                change.put(CLICKS, (number, key, query, at, blob(embedding)))
        self.done |= set(keys)
