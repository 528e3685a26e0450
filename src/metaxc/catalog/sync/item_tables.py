"""Items as Arrow tables, for the targets that are folders of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import make_folder, write_atomically
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.sync_target import SyncError, SyncRow, SyncState
from metaxc.data.item_fields import NO_FIELDS, dump_fields, load_fields
from metaxc.errors import ConfigError
from metaxc.output_claims import CATALOG_MARK

KIND = "metaxc sync"


def item_schema(state: SyncState) -> Any:
    """The Arrow schema of a table with this state; fields are JSON."""
    import pyarrow as pa

    return pa.schema(
        [
            ("key", pa.int64()),
            ("id", pa.string()),
            ("text", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("state", pa.string()),
            ("clicks", pa.int64()),
            ("digest", pa.string()),
            ("vector", pa.list_(pa.float32(), state.dim)),
            *([("fields", pa.string())] if state.fields else []),
        ]
    )


def to_table(rows: Sequence[SyncRow], state: SyncState) -> Any:
    """An Arrow table of rows."""
    import pyarrow as pa

    dim = state.dim
    vectors = np.stack([row.vector for row in rows]) if rows else np.empty((0, dim), np.float32)
    columns = {
        "key": [row.key for row in rows],
        "id": [row.id for row in rows],
        "text": [row.text for row in rows],
        "tags": [list(row.tags) for row in rows],
        "state": [row.state for row in rows],
        "clicks": [row.clicks for row in rows],
        "digest": [row.digest for row in rows],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim),
    }
    if state.fields:
        columns["fields"] = [dump_fields(row.fields) for row in rows]
    return pa.table(columns, schema=item_schema(state))


def read_vectors(table: Any) -> Floats:
    """(n, dim) float32 from the column `vector`."""
    column = table["vector"].combine_chunks()
    dim = table.schema.field("vector").type.list_size
    return np.asarray(column.flatten(), dtype=np.float32).reshape(-1, dim)


def to_hits(table: Any, scores: Sequence[float]) -> list[CatalogHit]:
    """The items of a table with their scores."""
    columns = (table[name].to_pylist() for name in ("id", "text", "tags", "state"))
    has_fields = "fields" in table.column_names
    fields = table["fields"].to_pylist() if has_fields else [NO_FIELDS] * len(table)
    return [
        CatalogHit(id, text, tuple(tags), state, float(score), load_fields(own))
        for id, text, tags, state, score, own in zip(*columns, scores, fields, strict=True)
    ]


def read_pointer(file: Path) -> dict[str, Any]:
    """The content of a pointer file, empty where there is none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["kind"] == KIND:
            return dict(content)
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError):
        pass
    raise SyncError(
        "The pointer file cannot be read",
        got=file,
        expected="what `metaxc sync` has written",
        fix="synchronise into another folder",
    )


def write_pointer(file: Path, content: dict[str, Any]) -> None:
    """Replace a pointer file at once."""
    make_folder(file.parent)
    text = json.dumps({**content, "kind": KIND}, indent=1, sort_keys=True)
    write_atomically(file, text.encode() + b"\n")


def refuse_catalogs(folder: Path) -> None:
    """Raise where a folder is a catalog or inside one: a slip of the hand must not destroy it."""
    for place in (folder.resolve(), *folder.resolve().parents):
        if (place / CATALOG_MARK).is_file():
            raise ConfigError(
                "The folder to synchronise to is a catalog or inside one",
                got=folder,
                expected="a folder of its own",
                fix="choose another folder; nothing was changed",
            )
