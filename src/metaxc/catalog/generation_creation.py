"""The generation that a migration writes to: one that was begun or used before, a copy, or a new one."""

from __future__ import annotations

from pathlib import Path

from metaxc.artifacts import sync
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.generation_record import (
    FOLLOWS,
    IN_STEP,
    MODEL_FOLDER,
    PREVIOUS,
    STALE,
    has_item_vectors,
    model_metadata,
    read_previous,
)
from metaxc.catalog.schema import DATABASE, QUERIES
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import MetaxcError


def resume_or_create(folder: CatalogFolder, old: Store, model: Emmett, model_folder: Path | None) -> Store:
    """A generation of this model to continue: one that an earlier run has begun, the one that was in use before, or a
    new one."""
    previous, sequence = read_previous(old), old.sequence
    for generation in folder.unfinished():
        try:
            store = Store(generation)
        except MetaxcError:
            continue  # stopped before its database was complete, or damaged
        if (store.uuid, store.metadata["model"]) == (old.uuid, model.fingerprint):
            name, _, at = store.metadata.get(FOLLOWS, "").partition(" ")
            if name == old.folder.name and int(at) <= sequence:
                return store
            if previous is not None and generation.name == previous.generation:
                with store.transaction() as transaction:
                    transaction.metadata |= {FOLLOWS: f"{old.folder.name} {previous.at}", IN_STEP: "yes"}
                return store
        store.close()
    known = model_metadata(model)
    known |= {} if model_folder is None else {MODEL_FOLDER: str(model_folder.resolve())}
    if has_item_vectors(old.metadata, model):
        return _copy_generation(folder.next(), old, known)
    metadata = {
        "uuid": old.uuid,
        **known,
        "settings": old.metadata["settings"],
        FOLLOWS: f"{old.folder.name} {sequence}",
    }
    return Store.create(folder.next(), metadata)


def _copy_generation(generation: Path, old: Store, metadata: dict[str, str]) -> Store:
    """A generation with all items of another one, their vectors and clicks, but with the metadata of another model and
    without known queries, which that one has to encode."""
    generation.mkdir()
    old.backup(generation / DATABASE)
    sync(generation / DATABASE)
    store = Store.recover(generation)
    sequence = store.sequence
    with store.transaction() as transaction:
        for (number,) in transaction.connection.execute("SELECT number FROM queries").fetchall():
            transaction.delete(QUERIES, number)
        if MODEL_FOLDER in transaction.metadata and MODEL_FOLDER not in metadata:
            del transaction.metadata[MODEL_FOLDER]
            transaction.connection.execute("DELETE FROM facts WHERE name = ?", (MODEL_FOLDER,))
        transaction.metadata |= {
            **metadata,
            **dict.fromkeys((PREVIOUS, STALE), ""),
            FOLLOWS: f"{old.folder.name} {sequence}",
            IN_STEP: "yes",
        }
    store.close()
    return Store(generation)
