"""Exported vectors give the same ranking elsewhere as in the catalog."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from metaxc.catalog import NewItem
from metaxc.catalog.export import export_vectors
from metaxc.errors import ConfigError

QUERIES = ["t0", "t4", "t8"]
FIELDS = {"price": 19.9, "ü \\ '": ["a\tb", '"'], "sale": True}


@pytest.fixture
def filled(catalog):
    strange = NewItem('strange "id"\\ {1}', "i4", ('a "tag"', "b\\c", "ü,x"), FIELDS)
    catalog.add([strange, NewItem("tab", "i9")])
    return catalog


def expected(catalog, exposure=None):
    return [[hit.id for hit in hits] for hits in catalog.search(QUERIES, 5, exposure=exposure)]


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
    assert json.loads(table["fields"][row].as_py()) == FIELDS


def test_faiss(filled, tmp_path):
    faiss = pytest.importorskip("faiss")
    filled.export(tmp_path / "out", "faiss")
    ids = json.loads((tmp_path / "out" / "ids.json").read_text())
    _, rows = faiss.read_index(str(tmp_path / "out" / "index.faiss")).search(filled.encode(QUERIES), 5)
    assert [[ids[row] for row in line] for line in rows] == expected(filled)


def test_pgvector(filled, tmp_path, postgres):
    """A real PostgreSQL with pgvector reads the file and ranks by inner product, with any exposure."""
    filled.export(tmp_path / "out", "pgvector")
    postgres.file(tmp_path / "out" / "items.sql")
    rankings = []
    for exposure in (None, -0.6, 0.9):
        found = []
        for vector in filled.encode(QUERIES, exposure):
            q = "[" + ",".join(map(str, vector.tolist())) + "]"
            found.append(postgres.rows(f"SELECT id FROM metaxc_items ORDER BY vector <#> '{q}' LIMIT 5"))
        assert found == expected(filled, exposure)
        rankings.append(found)
    assert rankings[1] != rankings[2]
    assert postgres.rows("SELECT unnest(tags) FROM metaxc_items WHERE text = 'i4'") == [
        'a "tag"',
        "b\\c",
        "ü,x",
    ]
    [fields] = postgres.rows("SELECT fields FROM metaxc_items WHERE text = 'i4'")
    assert json.loads(fields) == FIELDS
    assert postgres.rows("SELECT id FROM metaxc_items WHERE (fields->>'price')::float < 20") == [
        'strange "id"\\ {1}'
    ]


def test_the_example_in_the_readme_runs_in_postgresql(filled, model, tmp_path, postgres):
    filled.export(tmp_path / "out", "pgvector")
    postgres.file(tmp_path / "out" / "items.sql")
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```sql\n(.*?)```", readme, re.DOTALL)
    first = filled.store.fetch_all("SELECT vector FROM items ORDER BY id LIMIT 1")[0][0]
    query = np.frombuffer(first, "<f4").copy()
    query[-1] = model.calibration.exposure
    rows = [line.split("|") for line in postgres.rows(example.strip().removesuffix(";"))]
    best = filled.search(query[None], 10)[0]
    assert [row[0] for row in rows] == [hit.id for hit in best]
    assert [float(row[2]) for row in rows] == pytest.approx([hit.score for hit in best], abs=1e-4)


@pytest.mark.parametrize("format", ["npy", "parquet", "faiss", "pgvector"])
def test_the_last_coordinate_is_explained_and_is_the_novelty(filled, model, tmp_path, format):
    filled.export(tmp_path / "out", format)
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert about["dim"] == filled.store.vector_dim == model.encoder.dim + 1
    assert about["last coordinate of an item"] == "novelty"
    assert about["last coordinate of a query"] == "exposure"
    assert about["default exposure"] == model.calibration.exposure
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"own value is {model.calibration.exposure:g}." in " ".join(readme.split())
    if format == "npy":
        vectors = np.load(tmp_path / "out" / "vectors.npy")
        row = json.loads((tmp_path / "out" / "ids.json").read_text()).index("tab")
        assert vectors.shape == (len(filled), 97)
        assert vectors[row, -1] == 1


def test_unknown_formats_are_refused(catalog, tmp_path):
    with pytest.raises(ConfigError, match="npy, parquet, faiss, pgvector"):
        export_vectors(catalog.store, tmp_path / "out", "csv")
