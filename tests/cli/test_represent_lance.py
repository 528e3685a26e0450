"""`metaxc represent --in items.lance --out vectors.lance`, in this process."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from commands import run
from world_model import build_model

from metaxc.emmett import Emmett


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    build_model(world).save(folder)
    return folder


def test_the_vectors_are_those_of_the_library_and_a_second_run_keeps_them(model, tmp_path):
    lance = pytest.importorskip("lance", reason="needs the extra sync-lance")
    items, out = tmp_path / "items.lance", tmp_path / "vectors.lance"
    table = pa.table({"id": ["x", "y"], "text": ["i4", "i9"]})
    lance.write_dataset(table, str(items), max_rows_per_file=1)
    result = run("represent", model, "--in", items, "--out", out)
    assert result.exit_code == 0
    assert "2 rows in 2 partitions\n" in result.stderr
    found = lance.dataset(str(out)).to_table()
    assert found["id"].to_pylist() == ["x", "y"]
    vectors = np.array(found["vector"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(vectors, Emmett.load(model).represent(["i4", "i9"]), atol=1e-6)
    assert "2 of them by an earlier run" in run("represent", model, "--in", items, "--out", out).stderr
    queries = run("represent", model, "--queries", "--in", items, "--out", out)
    assert "another kind" in str(queries.exception)


def test_without_lance_the_error_says_how_to_install_it(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    result = run("represent", model, "--in", tmp_path / "a.lance", "--out", tmp_path / "b.lance")
    assert "pip install 'metaxc[sync-lance]'" in str(result.exception)
    assert not (tmp_path / "b.lance").exists()


@pytest.mark.parametrize(("source", "out"), [("a.lance", "b"), ("a.parquet", "b.lance")])
def test_a_dataset_becomes_a_dataset(model, tmp_path, source, out):
    result = run("represent", model, "--in", tmp_path / source, "--out", tmp_path / out)
    assert "two names that end with .lance, or none" in str(result.exception)
    assert not (tmp_path / out).exists()
