"""Exported vectors give the same ranking elsewhere as in the catalog."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from metaxc.catalog import NewItem
from metaxc.catalog.export import export_vectors
from metaxc.errors import ConfigError

QUERIES = ["t0", "t4", "t8"]


@pytest.fixture
def filled(catalog):
    catalog.add([NewItem('strange "id"\\ {1}', "i4", ('a "tag"', "b\\c", "ü,x")), NewItem("tab", "i9")])
    return catalog


def expected(catalog):
    return [[hit.id for hit in hits] for hits in catalog.search(QUERIES, 5)]


def ranked(catalog, ids, vectors):
    scores = catalog.encode(QUERIES) @ np.asarray(vectors, np.float32).T
    return [[ids[row] for row in np.argsort(-line, kind="stable")[:5]] for line in scores]


def test_npy(filled, tmp_path):
    assert filled.export(tmp_path / "out", "npy") == len(filled)
    ids = json.loads((tmp_path / "out" / "ids.json").read_text())
    assert ranked(filled, ids, np.load(tmp_path / "out" / "vectors.npy")) == expected(filled)


def test_parquet(filled, tmp_path):
    filled.export(tmp_path / "out", "parquet")
    table = pq.read_table(tmp_path / "out" / "items.parquet")
    ids = table["id"].to_pylist()
    assert ranked(filled, ids, table["vector"].to_pylist()) == expected(filled)
    row = ids.index('strange "id"\\ {1}')
    assert table["tags"][row].as_py() == ['a "tag"', "b\\c", "ü,x"]
    assert table["state"][row].as_py() == "novel"


def test_faiss(filled, tmp_path):
    faiss = pytest.importorskip("faiss")
    filled.export(tmp_path / "out", "faiss")
    ids = json.loads((tmp_path / "out" / "ids.json").read_text())
    _, rows = faiss.read_index(str(tmp_path / "out" / "index.faiss")).search(filled.encode(QUERIES), 5)
    assert [[ids[row] for row in line] for line in rows] == expected(filled)


def test_pgvector(filled, tmp_path, postgres):
    """A real PostgreSQL with pgvector reads the file and ranks by inner product."""
    filled.export(tmp_path / "out", "pgvector")
    postgres.file(tmp_path / "out" / "items.sql")
    found = []
    for vector in filled.encode(QUERIES):
        q = "[" + ",".join(map(str, vector.tolist())) + "]"
        found.append(postgres.rows(f"SELECT id FROM metaxc_items ORDER BY vector <#> '{q}' LIMIT 5"))
    assert found == expected(filled)
    assert postgres.rows("SELECT unnest(tags) FROM metaxc_items WHERE text = 'i4'") == [
        'a "tag"',
        "b\\c",
        "ü,x",
    ]


def test_unknown_formats_are_refused(catalog, tmp_path):
    with pytest.raises(ConfigError, match="npy, parquet, faiss, pgvector"):
        export_vectors(catalog.store, tmp_path / "out", "csv")
