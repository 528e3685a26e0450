"""Export of ids and vectors to other vector databases, which search them by inner product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import atomic_folder, save_json
from metaxc.catalog.schema import VECTOR_COLUMNS, decode_item_vectors, fields_column
from metaxc.catalog.store import Store
from metaxc.errors import ConfigError
from metaxc.extras import import_extra
from metaxc.output_claims import claim_folder

Format = Literal["npy", "parquet", "faiss", "pgvector"]

EXPORT_KIND = "catalog export"
ROW_GROUP = 10_000
"""Items per row group of a Parquet file."""


README = """\
# Vectors of a metaxc catalog

{items} items, each with a vector of {dim} numbers. The score of an item for a query is the inner product of their
vectors; do not normalise them.

- The last number of an item's vector is its **novelty**: 1 for an item that nobody has clicked, less with each click.
- The last number of a query's vector is the **exposure**: what is added to the score of an item of novelty 1. The
  model's own value is {exposure:g}. A larger one shows new items earlier, a smaller one later; it may differ from query
  to query.

Vectors of queries, with the model's exposure and with another one:

    metaxc represent MODEL --queries "a query"
    metaxc represent MODEL --queries --exposure 0.3 "a query"
"""

PGVECTOR_README = """
## PostgreSQL

`psql -f items.sql` creates the table `metaxc_items`. With a query vector `q`, or with all of its numbers `e` but the
last and an exposure of your own:

    SELECT id, text, -(vector <#> 'q') AS score FROM metaxc_items ORDER BY vector <#> 'q' LIMIT 10;
    SELECT id, text FROM metaxc_items ORDER BY vector <#> ('e'::vector || '[0.3]'::vector) LIMIT 10;

This runs as it stands (pgvector 0.7 or newer). It takes an item's vector as the query, with the exposure in place of
the novelty:

```sql
{example}
```

With filters and an HNSW index, set `hnsw.iterative_scan = strict_order`; else too few rows come back.
"""

PGVECTOR_EXAMPLE = """\
WITH query AS (
  SELECT subvector(vector, 1, {dim}) || '[{exposure:g}]'::vector AS q FROM metaxc_items ORDER BY id LIMIT 1
)
SELECT id, text, -(vector <#> q) AS score FROM metaxc_items, query ORDER BY vector <#> q LIMIT 10;"""


def export_vectors(store: Store, folder: Path, format: Format, *, overwrite: bool = False) -> int:
    """Write one committed state of the catalog; returns the number of items.

    Each vector has dim + 1 numbers, the last one being the item's novelty. A query's vector ends with the exposure
    instead, so that the inner product of the two is the score that the catalog gives. README.md and about.json in the
    folder say so, with the exposure that the model has chosen in training.

    Args:
        store: The catalog's store.
        folder: A new or empty folder outside the catalog; written completely or not at all.
        format: `npy` writes vectors.npy and ids.json with a row each. `parquet` writes items.parquet with id, text,
            tags, state, fields (JSON) and vector. `faiss` writes index.faiss (flat, inner product), whose rows are
            those of ids.json. `pgvector` writes items.sql for psql.
        overwrite: Whether an earlier export in that folder is replaced.
    """
    if format not in get_args(Format):
        raise ConfigError(
            "Unknown export format",
            got=repr(format),
            expected=", ".join(get_args(Format)),
            fix="use one of these; items and clicks are exported with --format dataset, in Python `export_dataset`",
        )
    sources = [store.folder.parent]
    claim_folder(folder, EXPORT_KIND, overwrite=overwrite, sources=sources)
    with store.read_snapshot(own_connection=True) as connection:
        rows = connection.execute(
            f"SELECT id, text, tags, state, {fields_column(connection)}, {VECTOR_COLUMNS} FROM items ORDER BY key"
        ).fetchall()
    ids, vectors = [row[0] for row in rows], decode_item_vectors((row[5:] for row in rows), store.dim)
    with atomic_folder(folder, EXPORT_KIND, overwrite=overwrite, sources=sources) as new:
        if format == "npy":
            np.save(new / "vectors.npy", vectors, allow_pickle=False)
        elif format == "parquet":
            _write_parquet(new / "items.parquet", rows, vectors)
        elif format == "faiss":
            faiss = import_extra("faiss", "serve")
            index = faiss.IndexFlatIP(store.vector_dim)
            index.add(vectors)
            faiss.write_index(index, str(new / "index.faiss"))
        else:
            with (new / "items.sql").open("w", encoding="utf-8") as file:
                file.writelines(_render_sql(rows, vectors))
        if format in ("npy", "faiss"):
            save_json(new / "ids.json", ids)
        about = {
            "format": format,
            "items": len(ids),
            "model": store.metadata["model"],
            "dim": store.vector_dim,
            "similarity": "inner product",
            "last coordinate of an item": "novelty",
            "last coordinate of a query": "exposure",
            "default exposure": store.exposure,
        }
        save_json(new / "about.json", about)
        readme = README.format(items=f"{len(ids):,}", dim=store.vector_dim, exposure=store.exposure)
        if format == "pgvector":
            example = PGVECTOR_EXAMPLE.format(dim=store.dim, exposure=store.exposure)
            readme += PGVECTOR_README.format(example=example)
        (new / "README.md").write_text(readme, encoding="utf-8")
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
            "fields": pa.array([row[4] for row in rows], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim),
        }
    )
    pq.write_table(table, file, row_group_size=ROW_GROUP)


def _render_sql(rows: list[tuple[str, ...]], vectors: Floats) -> Iterator[str]:
    yield "CREATE EXTENSION IF NOT EXISTS vector;\n"
    yield "BEGIN;\nDROP TABLE IF EXISTS metaxc_items;\n"
    yield (
        "CREATE TABLE metaxc_items (id text PRIMARY KEY, text text NOT NULL, tags text[] NOT NULL, "
        f"state text NOT NULL, fields jsonb NOT NULL, vector vector({vectors.shape[1]}) NOT NULL);\n"
    )
    yield "COPY metaxc_items (id, text, tags, state, fields, vector) FROM stdin;\n"
    for (id, text, tags, state, fields, *_), vector in zip(rows, vectors, strict=True):
        listed = "{" + ",".join(_quote_element(tag) for tag in json.loads(tags)) + "}"
        numbers = "[" + ",".join(f"{number:.9g}" for number in vector.tolist()) + "]"
        yield (
            "\t".join([*map(_escape_field, (id, text, listed)), state, _escape_field(fields), numbers]) + "\n"
        )
    yield "\\.\nCOMMIT;\n"
    yield "-- README.md beside this file says what the numbers of a vector mean, and how to search.\n"


def _escape_field(text: str) -> str:
    """A text as a field of COPY's text format."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _quote_element(text: str) -> str:
    """A text as an element of an array literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
