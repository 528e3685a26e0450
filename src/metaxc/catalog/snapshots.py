"""Copies of a catalog that can be kept elsewhere, and the way back."""

from __future__ import annotations

import shutil
from pathlib import Path

from metaxc.artifacts import atomic_folder, sync, verify_folder, write_manifest
from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.generations import CatalogFolder
from metaxc.catalog.integrity import FILE, write_checksum
from metaxc.catalog.store import Store
from metaxc.errors import ModelError

KIND = "catalog snapshot"


def write_snapshot(store: Store, folder: Path) -> None:
    """The last committed state, with checksums; writes go on meanwhile."""
    with atomic_folder(folder) as new:
        store.backup(new / FILE)
        write_manifest(new, KIND)


def restore_snapshot(snapshot: Path, place: CatalogFolder) -> None:
    """Make the snapshot the current generation of a catalog, at once or not at all."""
    try:
        verify_folder(snapshot, KIND)
    except ModelError as error:
        raise CatalogError(
            "The snapshot cannot be used", got=f"{error.what}: {error.got}", fix="use another snapshot"
        ) from error
    lock = place.lock()
    try:
        generation = place.next()
        generation.mkdir()
        shutil.copyfile(snapshot / FILE, generation / FILE)
        sync(generation / FILE)
        Store.accept(generation).close()
        write_checksum(generation)
        place.switch(generation)
    finally:
        lock.release()
