"""Ids and vectors for other systems: what is searched here can be searched there by inner product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import atomic_folder, save_json, write_manifest
from metaxc.catalog.rows import stacked
from metaxc.catalog.store import Store
from metaxc.errors import ConfigError
from metaxc.extras import import_extra

Format = Literal["npy", "parquet", "faiss", "pgvector"]

BLOCK = 10_000


def export(store: Store, folder: Path, format: Format) -> int:
    """Write one state of the catalog; returns the number of items.

    Args:
        store: The record.
        folder: Written whole or not at all; what stood there is replaced.
        format: `npy`: vectors.npy and ids.json, a row each. `parquet`: items.parquet with id, text, tags, state,
            vector. `faiss`: index.faiss (flat, inner product) whose rows are those of ids.json. `pgvector`: items.sql,
            for psql.
    """
    if format not in get_args(Format):
        raise ConfigError("An unknown format", got=repr(format), expected=", ".join(get_args(Format)))
    with store.apart() as connection:
        rows = connection.execute("SELECT id, text, tags, state, vector FROM items ORDER BY key").fetchall()
    dim = int(store.facts["dim"])
    ids, vectors = [row[0] for row in rows], stacked((row[4] for row in rows), dim)
    with atomic_folder(folder) as new:
        if format == "npy":
            np.save(new / "vectors.npy", vectors, allow_pickle=False)
            save_json(new / "ids.json", ids)
        elif format == "parquet":
            _write_parquet(new / "items.parquet", rows, vectors)
        elif format == "faiss":
            faiss = import_extra("faiss", "serve")
            index = faiss.IndexFlatIP(dim)
            index.add(vectors)
            faiss.write_index(index, str(new / "index.faiss"))
            save_json(new / "ids.json", ids)
        else:
            with (new / "items.sql").open("w", encoding="utf-8") as file:
                file.writelines(_sql(rows, vectors, dim))
        save_json(
            new / "about.json",
            {
                "format": format,
                "items": len(ids),
                "dim": dim,
                "model": store.facts["model"],
                "similarity": "inner product",
            },
        )
        write_manifest(new, "catalog export")
    return len(ids)


def _write_parquet(file: Path, rows: list[tuple[str, ...]], vectors: Floats) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    dim = vectors.shape[1]
    table = pa.table(
        {
            "id": pa.array([row[0] for row in rows], pa.string()),
            "text": pa.array([row[1] for row in rows], pa.string()),
            "tags": pa.array([json.loads(row[2]) for row in rows], pa.list_(pa.string())),
            "state": pa.array([row[3] for row in rows], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim),
        }
    )
    pq.write_table(table, file, row_group_size=BLOCK)


def _sql(rows: list[tuple[str, ...]], vectors: Floats, dim: int) -> Iterator[str]:
    yield "CREATE EXTENSION IF NOT EXISTS vector;\n"
    yield "BEGIN;\nDROP TABLE IF EXISTS metaxc_items;\n"
    yield (
        "CREATE TABLE metaxc_items (id text PRIMARY KEY, text text NOT NULL, tags text[] NOT NULL, "
        f"state text NOT NULL, vector vector({dim}) NOT NULL);\n"
    )
    yield "COPY metaxc_items (id, text, tags, state, vector) FROM stdin;\n"
    for (name, text, tags, state, _), vector in zip(rows, vectors, strict=True):
        listed = "{" + ",".join(_quoted(tag) for tag in json.loads(tags)) + "}"
        numbers = "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"
        yield "\t".join([*map(_copied, (name, text, listed)), state, numbers]) + "\n"
    yield "\\.\nCOMMIT;\n"
    yield "-- the ten best of a query's vector q, by inner product:\n"
    yield "--   SELECT id, text, -(vector <#> q) AS score FROM metaxc_items ORDER BY vector <#> q LIMIT 10;\n"
    yield "-- with filters and an HNSW index, set hnsw.iterative_scan = strict_order, or too few rows come back.\n"


def _copied(text: str) -> str:
    """A text as a field of COPY."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _quoted(text: str) -> str:
    """An element of an array's text form."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
