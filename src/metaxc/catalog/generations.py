"""The generations of a catalog: the three ways in which a new one comes into being, and snapshots.

A new catalog is filled with the items of its model, a snapshot is restored, or a catalog is migrated to another model.
Each builds a generation beside the current one and then switches to it. A process that is killed at any moment leaves
the old generation in use; a migration resumes where it was stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from metaxc.artifacts import atomic_folder, make_folder, sync, verify_folder
from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.generation_creation import resume_or_create
from metaxc.catalog.generation_record import MODEL_FOLDER
from metaxc.catalog.migration import Migration, Progress, embed_texts
from metaxc.catalog.records import ItemRow, NewItem
from metaxc.catalog.schema import DATABASE, ITEMS, QUERIES, encode_vector, write_closed_checksum
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import ModelError

SNAPSHOT_KIND = "catalog snapshot"


def fill_from_model(store: Store, model: Emmett, queries: Sequence[str]) -> None:
    """Write the model's items with the vectors they have, and the known queries, in one transaction."""
    encoder, texts = model.encoder, model.items.texts
    embeddings = np.empty((len(model.items), encoder.dim), np.float32)
    embeddings[model.observed] = model.embeddings
    novel = np.flatnonzero(model.novel)
    embeddings[novel] = embed_texts(encoder.encode_items, [texts[row] for row in novel.tolist()], encoder.dim)
    known = list(dict.fromkeys(query for query in queries if query.strip()))
    query_embeddings = embed_texts(encoder.encode_queries, known, encoder.dim)
    tags, fields = model.items.tags or [()] * len(model.items), model.items.fields or [{}] * len(model.items)
    now = time.time()
    with store.transaction() as transaction:
        for row, (id, text) in enumerate(zip(model.items.ids, texts, strict=True)):
            trained = not model.novel[row]
            item = replace(
                ItemRow.novel(NewItem(id, text, tags[row], fields[row]), embeddings[row], now),
                key=row + 1,
                sequence=transaction.sequence,
                vector=model.vectors[row],
                state="observed" if trained else "novel",
                trained=trained,
            )
            transaction.put(ITEMS, item.values())
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
    """Repair a catalog whose rows are intact, giving up lost writes; returns its last sequence number.

    Generations that are not in use may have these writes, and are removed.
    """
    folder.current()
    with folder.locked(), Store.recover(folder.current()) as store:
        folder.remove_others([store.folder])
        return store.sequence


def migrate(
    folder: str | Path,
    model: Emmett,
    progress: Progress = lambda done, total: None,
    *,
    model_folder: Path | None = None,
) -> bool:
    """Move a catalog to another model; returns False where it has that model already.

    Items, tags, fields, clicks and known queries stay; embeddings, vectors, classifiers and states are computed again.
    An item that the new model was trained on counts as trained.

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
        new = resume_or_create(catalog, old, model, model_folder)
        migration = Migration(old, new, model, progress)
        migration.write_all()
        migration.catch_up()
        migration.refresh_vectors()
        migration.complete(old.metadata.get(MODEL_FOLDER))
        new.close()
        catalog.switch(new.folder)
        return True
