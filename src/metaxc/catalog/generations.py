"""The generations of a catalog: the three ways in which a new one comes into being, and snapshots.

A new catalog is filled with the items of its model, a snapshot is restored, or a catalog is migrated to another model.
Each builds a generation beside the current one and then switches to it. A process that is killed at any moment leaves
the old generation in use; a migration resumes where it was stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import atomic_folder, make_folder, sync, verify_folder
from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.click_files import CLICK_FILES
from metaxc.catalog.item_clicks import ItemClicks, read_item_clicks
from metaxc.catalog.lifecycle import Lifecycle
from metaxc.catalog.records import CatalogSettings, ItemRow
from metaxc.catalog.schema import (
    CLICKS,
    DATABASE,
    ITEMS,
    QUERIES,
    encode_vector,
    placeholders,
    write_closed_checksum,
)
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError, ModelError

SNAPSHOT_KIND = "catalog snapshot"
MODEL_FOLDER = "model folder"
"""The metadata that says where the model of a migrated catalog was, so that readers find it."""

MIGRATION_BLOCK = 256
"""Items that a migration writes in one transaction."""


def model_metadata(model: Emmett) -> dict[str, str]:
    """What a catalog records of its model."""
    return {
        "model": model.fingerprint,
        "dim": str(model.encoder.dim),
        "exposure": repr(model.calibration.exposure + 0.0),  # never −0.0
    }


def fill_from_model(store: Store, model: Emmett, queries: Sequence[str]) -> None:
    """Write the model's items with the vectors they have, and the known queries, in one transaction."""
    encoder, texts = model.encoder, model.items.texts
    embeddings = np.empty((len(model.items), encoder.dim), np.float32)
    embeddings[model.observed] = model.embeddings
    novel = np.flatnonzero(model.novel)
    embeddings[novel] = _embed(encoder.encode_items, [texts[row] for row in novel.tolist()], encoder.dim)
    known = list(dict.fromkeys(query for query in queries if query.strip()))
    query_embeddings = _embed(encoder.encode_queries, known, encoder.dim)
    tags = model.items.tags or [()] * len(model.items)
    now = time.time()
    with store.transaction() as transaction:
        for row, (id, text) in enumerate(zip(model.items.ids, texts, strict=True)):
            trained = not model.novel[row]
            item = replace(
                ItemRow.novel(id, text, tags[row], embeddings[row], now),
                key=row + 1,
                sequence=transaction.sequence,
                vector=model.vectors[row],
                state="observed" if trained else "novel",
                trained=trained,
            )
            transaction.put(ITEMS, item.values())
            transaction.replace_tags(item.key, (), item.tags)
        for number, (query, embedding) in enumerate(zip(known, query_embeddings, strict=True), 1):
            transaction.put(QUERIES, (number, query, encode_vector(embedding)))


def write_snapshot(store: Store, folder: Path, *, overwrite: bool = False) -> None:
    """Write a copy of the last committed state, with checksums, while writes continue.

    Args:
        store: The catalog's store.
        folder: A new or empty folder outside the catalog.
        overwrite: Whether an earlier snapshot in that folder is replaced.
    """
    with atomic_folder(folder, SNAPSHOT_KIND, overwrite=overwrite, sources=[store.folder.parent]) as new:
        store.backup(new / DATABASE)


def restore_snapshot(snapshot: Path, folder: CatalogFolder, *, overwrite: bool = False) -> None:
    """Make a snapshot the current generation of a catalog, which is created where there is none.

    Args:
        snapshot: A folder that `write_snapshot` has written.
        folder: A new or empty folder, or with `overwrite` that of a catalog.
        overwrite: Whether the content of an existing catalog is replaced.
    """
    try:
        verify_folder(snapshot, SNAPSHOT_KIND)
    except ModelError as error:
        raise CatalogError(
            "The snapshot cannot be used",
            got=f"{error.what}: {error.got}",
            expected="a folder written by `metaxc catalog snapshot`",
            fix="use another snapshot",
        ) from error
    if not (overwrite and folder.exists):
        folder.claim()
    make_folder(folder.path)
    with folder.locked():
        generation = folder.next()
        generation.mkdir()
        shutil.copyfile(snapshot / DATABASE, generation / DATABASE)
        sync(generation / DATABASE)
        Store.recover(generation).close()
        write_closed_checksum(generation)
        folder.switch(generation)


def recover(folder: CatalogFolder) -> int:
    """Repair a catalog whose rows are intact, giving up lost writes; returns its last sequence number."""
    folder.current()
    with folder.locked(), Store.recover(folder.current()) as store:
        return store.sequence


def migrate(
    folder: str | Path,
    model: Emmett,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    model_folder: Path | None = None,
) -> bool:
    """Move a catalog to another model; returns False where it has that model already.

    Items, tags, clicks and known queries stay; embeddings, vectors, classifiers and states are computed again. An item
    that the new model was trained on counts as trained.

    Args:
        folder: The catalog's folder; no other process may write to it meanwhile.
        model: The new model.
        progress: Called with the number of items done and their total.
        model_folder: Where the model is; services that read the catalog meanwhile load it from there.
    """
    catalog = CatalogFolder(folder)
    catalog.current()
    with catalog.locked(), Store(catalog.current(), read_only=True) as old:
        if old.metadata["model"] == model.fingerprint:
            return False
        new = _resume_or_create(catalog, old, model, model_folder)
        _Migration(old, new, model, progress).run()
        new.close()
        catalog.switch(new.folder)
        return True


def _resume_or_create(folder: CatalogFolder, old: Store, model: Emmett, model_folder: Path | None) -> Store:
    """The generation that an earlier run has begun from the same state for the same model, or a new one."""
    origin = f"{old.folder.name} {old.sequence}"
    for generation in folder.unfinished():
        try:
            store = Store(generation)
        except MetaxcError:
            continue  # stopped before its database was complete, or damaged
        if (store.metadata.get("origin"), store.metadata["model"]) == (origin, model.fingerprint):
            return store
        store.close()
    metadata = {
        "uuid": old.uuid,
        **model_metadata(model),
        "settings": old.metadata["settings"],
        "origin": origin,
        **({} if model_folder is None else {MODEL_FOLDER: str(model_folder.resolve())}),
        **{name: old.metadata[name] for name in (CLICK_FILES,) if name in old.metadata},
    }
    return Store.create(folder.next(), metadata)


class _Migration:
    def __init__(self, old: Store, new: Store, model: Emmett, progress: Callable[[int, int], None]):
        self.old, self.new, self.model, self.progress = old, new, model, progress
        settings = CatalogSettings.model_validate_json(old.metadata["settings"])
        self.lifecycle = Lifecycle(model, settings.observe_after)
        self.trained = {model.items.ids[row] for row in model.observed.tolist()}
        self.done = {row[0] for row in new.fetch_all("SELECT key FROM items")}
        self.total = int(old.fetch_all("SELECT count(*) FROM items")[0][0])

    def run(self) -> None:
        """Write the known queries, then the items that inform others, then all other items, informed by those. The
        first ones inform each other too, so their vectors are computed once more when all of them are known."""
        self._write_queries()
        rows = self.old.fetch_all("SELECT key, id, clicks FROM items ORDER BY ifnull(since, 9e18), key")
        informing = [
            key
            for key, id, clicks in rows
            if clicks >= self.lifecycle.observe_after and id not in self.trained and self.lifecycle.can_grow
        ]
        self._write_items(informing)
        observed = self.new.fetch_all(f"{ITEMS.select} WHERE since IS NOT NULL ORDER BY since, key")
        self.lifecycle.use_observed(list(map(ItemRow.from_values, observed)))
        for start in range(0, len(informing), MIGRATION_BLOCK):
            self._update_vectors(informing[start : start + MIGRATION_BLOCK])
        written = set(informing)
        self._write_items([key for key, _, _ in rows if key not in written])

    def _write_queries(self) -> None:
        done = {row[0] for row in self.new.fetch_all("SELECT number FROM queries")}
        stored = self.old.fetch_all("SELECT number, text FROM queries ORDER BY number")
        left = [row for row in stored if row[0] not in done]
        for start in range(0, len(left), MIGRATION_BLOCK):
            block = left[start : start + MIGRATION_BLOCK]
            embeddings = self.model.encoder.encode_queries([text for _, text in block])
            with self.new.transaction() as transaction:
                for (number, text), embedding in zip(block, embeddings, strict=True):
                    transaction.put(QUERIES, (number, text, encode_vector(embedding)))

    def _write_items(self, keys: Sequence[int]) -> None:
        left = [key for key in keys if key not in self.done]
        for start in range(0, len(left), MIGRATION_BLOCK):
            self._write_block(left[start : start + MIGRATION_BLOCK])
            self.progress(len(self.done), self.total)

    def _write_block(self, keys: Sequence[int]) -> None:
        where = f"WHERE key IN ({placeholders(len(keys))})"
        stored = map(ItemRow.from_values, self.old.fetch_all(f"{ITEMS.select} {where}", keys))
        clicks = self.old.fetch_all(
            f"SELECT number, key, query, at FROM clicks {where} ORDER BY number", keys
        )
        encoder = self.model.encoder
        rows = [replace(row, trained=row.id in self.trained) for row in stored]
        embeddings = encoder.encode_items([row.text for row in rows])
        rows = [replace(row, embedding=new) for row, new in zip(rows, embeddings, strict=True)]
        queries = _embed(encoder.encode_queries, [click[2] for click in clicks], encoder.dim)
        clicked = np.array([click[1] for click in clicks], dtype=np.int64)
        embed = self.model.embed_queries
        item_clicks = [ItemClicks.of(queries[clicked == row.key], embed) for row in rows]
        stages = self.lifecycle.stages(rows, item_clicks)
        with self.new.transaction() as transaction:
            for row, its_clicks, stage in zip(rows, item_clicks, stages, strict=True):
                transaction.put(ITEMS, stage.apply_to(row, transaction.sequence).values())
                transaction.replace_tags(row.key, (), row.tags)
                its_clicks.write(transaction, row)
            for (number, key, query, at), embedding in zip(clicks, queries, strict=True):
                transaction.put(CLICKS, (number, key, query, at, encode_vector(embedding)))
        self.done |= set(keys)

    def _update_vectors(self, keys: Sequence[int]) -> None:
        """Compute the vectors of items that the new generation has again, from what it has of them."""
        where = f"WHERE key IN ({placeholders(len(keys))})"
        rows = list(map(ItemRow.from_values, self.new.fetch_all(f"{ITEMS.select} {where}", keys)))
        clicks = [read_item_clicks(self.new, row, self.model.embed_queries) for row in rows]
        stages = self.lifecycle.stages(rows, clicks)
        with self.new.transaction() as transaction:
            for row, stage in zip(rows, stages, strict=True):
                transaction.put(ITEMS, stage.apply_to(row, transaction.sequence).values())


def _embed(encode: Callable[[Sequence[str]], Floats], texts: Sequence[str], dim: int) -> Floats:
    """(n, dim) float32; an encoder need not accept an empty list."""
    return encode(texts) if texts else np.empty((0, dim), np.float32)
