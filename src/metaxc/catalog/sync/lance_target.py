"""Lance: a pointer file beside numbered datasets; rows are written before the state, which is the dataset's config.

`lance://FOLDER/NAME` has `NAME_1.lance`, `NAME_2.lance` and so on, and `NAME.metaxc-sync.json`, which names the one in
use. Each operation of Lance makes a version of its own, so rows and state are two steps. LanceDB opens the same
folders as tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import make_folder
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.item_tables import (
    item_schema,
    read_pointer,
    read_vectors,
    refuse_catalogs,
    to_hits,
    to_table,
    write_pointer,
)
from metaxc.catalog.sync.sync_target import IndexKind, SyncRow, SyncState, SyncTarget
from metaxc.extras import import_extra

EXTRA = "sync-lance"
CONFIG = "metaxc.sync"
MOST_FRAGMENTS = 32
"""Fragments, one for each block of changes, from which on a dataset is written anew."""

KEPT_VERSIONS = timedelta(days=1)
"""How long versions stay for readers that have opened them."""

SHOWN = ["id", "text", "tags", "state", "vector", "_distance"]

MOST_LISTED = 5_000
"""Keys in one filter expression."""


class LanceTarget(SyncTarget):
    """Datasets in a folder."""

    batch_rows = 10_000

    def __init__(self, folder: Path, name: str):
        self._library = import_extra("lance", EXTRA)
        super().__init__(name, f"lance://{folder.resolve()}/{name}")
        refuse_catalogs(folder)
        self.folder = folder
        # Lance reports conflicts and damaged files as RuntimeError and ValueError.
        self.errors = (OSError, RuntimeError, ValueError)

    @property
    def _pointer(self) -> Path:
        return self.folder / f"{self.name}.metaxc-sync.json"

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.lance"

    def _open(self, table: str) -> Any:
        return self._library.dataset(str(self._path(table)))

    def tables(self) -> dict[str, SyncState]:
        found: dict[str, SyncState] = {}
        for path in sorted(self.folder.glob(f"{self.name}_*.lance")):
            if self.is_table(path.stem) and (path / "_versions").is_dir():
                state = self._open(path.stem).config().get(CONFIG)
                if state is not None:
                    found[path.stem] = SyncState.parse(state)
        return found

    def current(self) -> str | None:
        return read_pointer(self._pointer).get("current")

    def create(self, table: str, state: SyncState) -> None:
        self.drop(table)
        make_folder(self.folder)
        empty = item_schema(state).empty_table()
        dataset = self._library.write_dataset(empty, str(self._path(table)), mode="create")
        dataset.update_config({CONFIG: state.model_dump_json()})

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table), ignore_errors=True)

    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        dataset, columns = self._open(table), ["key", "digest"]
        if keys is None:
            parts = [dataset.to_table(columns=columns)]
        else:
            parts = [dataset.to_table(columns=columns, filter=where) for where in _key_filters(keys)]
        return {
            key: digest
            for part in parts
            for key, digest in zip(part["key"].to_pylist(), part["digest"].to_pylist(), strict=True)
        }

    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        dataset = self._open(table)
        for where in _key_filters(deleted):
            dataset.delete(where)
        if rows:
            merge = dataset.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(to_table(rows, state))
        self._open(table).update_config({CONFIG: state.model_dump_json()})

    def finish(self, table: str) -> None:
        dataset = self._open(table)
        if len(dataset.get_fragments()) > MOST_FRAGMENTS:
            dataset.optimize.compact_files()
            dataset.cleanup_old_versions(older_than=KEPT_VERSIONS)

    def switch(self, table: str) -> None:
        write_pointer(self._pointer, {"current": table})

    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        dataset, found = self._open(table), []
        shown = [*SHOWN, *(["fields"] if "fields" in dataset.schema.names else [])]
        for vector in vectors:
            nearest = {"column": "vector", "q": vector, "k": k, "metric": "dot"}
            best = dataset.to_table(columns=shown, nearest=nearest)
            # Lance returns one minus the inner product, which has lost a digit.
            found.append(to_hits(best, (read_vectors(best) @ np.asarray(vector)).tolist()))
        return found


def _key_filters(keys: Sequence[int]) -> list[str]:
    """Filter expressions that together choose the rows with these keys."""
    blocks = [keys[start : start + MOST_LISTED] for start in range(0, len(keys), MOST_LISTED)]
    return [f"key IN ({', '.join(map(str, block))})" for block in blocks]
