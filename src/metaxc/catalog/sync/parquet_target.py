"""A folder of Parquet files, each with a range of keys and replaced as a whole; one JSON file says which of them count.

`parquet://FOLDER` has

    metaxc-sync.json           the table in use, and of each table its state and its files; replaced by a rename
    metaxc_items_1/000000-….parquet   the items with the keys 0 to 9,999, and so on

A block of changes writes new files beside the old ones, then the JSON file, then removes the old ones. So a reader that
begins with the JSON file sees one state, and a crash leaves files that nothing names, which the next run removes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from metaxc.arrays import Floats
from metaxc.artifacts import make_folder, sync
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
from metaxc.catalog.sync.sync_target import DEFAULT_NAME, IndexKind, SyncError, SyncRow, SyncState, SyncTarget
from metaxc.index import top_k

POINTER = "metaxc-sync.json"
KEYS_PER_FILE = 10_000
"""Keys of one file: a changed item rewrites at most so many rows. With 385 numbers a vector, 15 MB."""


class ParquetTarget(SyncTarget):
    """A folder of Parquet files."""

    batch_rows = 50_000

    def __init__(self, folder: Path):
        super().__init__(DEFAULT_NAME, f"parquet://{folder.resolve()}")
        refuse_catalogs(folder)
        self.folder = folder
        self._pointer = read_pointer(folder / POINTER)
        if not self._pointer and folder.is_dir() and any(folder.iterdir()):
            raise SyncError(
                "The folder holds other data",
                got=folder,
                expected="a new or empty folder, or one that `metaxc sync` has written",
                fix="choose another folder; nothing was changed",
            )

    @property
    def _tables(self) -> dict[str, Any]:
        return dict(self._pointer.get("tables", {}))

    def tables(self) -> dict[str, SyncState]:
        self._pointer = read_pointer(self.folder / POINTER)  # another process may have been here meanwhile
        return {name: SyncState.parse(json.dumps(one["state"])) for name, one in self._tables.items()}

    def current(self) -> str | None:
        return self._pointer.get("current")

    def create(self, table: str, state: SyncState) -> None:
        shutil.rmtree(self.folder / table, ignore_errors=True)
        make_folder(self.folder / table)
        self._point({**self._tables, table: {"state": state.model_dump(), "files": {}}}, self.current())

    def drop(self, table: str) -> None:
        self._point({name: one for name, one in self._tables.items() if name != table}, self.current())
        shutil.rmtree(self.folder / table, ignore_errors=True)

    def _point(self, tables: dict[str, Any], current: str | None) -> None:
        pointer = {"tables": tables, "current": current}
        write_pointer(self.folder / POINTER, pointer)
        self._pointer = pointer

    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        digests: dict[int, str] = {}
        ranges = None if keys is None else {str(key // KEYS_PER_FILE) for key in keys}
        wanted = None if keys is None else set(keys)
        for one in self._read(table, ranges, ["key", "digest"]):
            found = zip(one["key"].to_pylist(), one["digest"].to_pylist(), strict=True)
            digests |= {key: digest for key, digest in found if wanted is None or key in wanted}
        return digests

    def _read(
        self, table: str, ranges: Iterable[str] | None = None, columns: list[str] | None = None
    ) -> list[Any]:
        """The files of these ranges of keys, of all if None, as Arrow tables."""
        import pyarrow.parquet as pq

        files = self._tables[table]["files"]
        chosen = files if ranges is None else [one for one in ranges if one in files]
        return [pq.read_table(self.folder / table / files[one], columns=columns) for one in chosen]

    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        old = dict(self._tables[table]["files"])
        files, replaced = dict(old), {*deleted, *(row.key for row in rows)}
        for one in sorted({str(key // KEYS_PER_FILE) for key in replaced}):
            kept = self._read(table, [one])
            new = to_table([row for row in rows if str(row.key // KEYS_PER_FILE) == one], state)
            if kept:
                old_keys = pa.array(sorted(replaced), pa.int64())
                stays = pc.invert(pc.is_in(kept[0]["key"], old_keys))
                new = pa.concat_tables([kept[0].filter(stays).cast(item_schema(state)), new])
            files.pop(one, None)
            if len(new):
                files[one] = f"{int(one):06d}-{token_hex(4)}.parquet"
                pq.write_table(new.sort_by("key"), self.folder / table / files[one])
                sync(self.folder / table / files[one])
        sync(self.folder / table)
        self._point({**self._tables, table: {"state": state.model_dump(), "files": files}}, self.current())
        self._remove_unnamed(table)

    def _remove_unnamed(self, table: str) -> None:
        named = set(self._tables[table]["files"].values())
        for file in (self.folder / table).glob("*.parquet"):
            if file.name not in named:
                file.unlink(missing_ok=True)

    def finish(self, table: str) -> None:
        self._remove_unnamed(table)

    def switch(self, table: str) -> None:
        self._point(self._tables, table)

    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        import pyarrow as pa

        parts = self._read(table)
        if not parts:
            return [[] for _ in vectors]
        items = pa.concat_tables(parts).sort_by("key")
        rows, scores = top_k(vectors, read_vectors(items), min(k, len(items)))
        return [to_hits(items.take(pa.array(line)), best) for line, best in zip(rows, scores, strict=True)]
