"""`metaxc represent --in`: Parquet files, in this process."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from world_model import build_model

from metaxc.emmett import Emmett


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    build_model(world).save(folder)
    return folder


@pytest.fixture
def items(tmp_path):
    table = pa.table({"id": ["x", "y"], "text": ["i4", "i9"]})
    pq.write_table(table, tmp_path / "items.parquet", row_group_size=1)
    return tmp_path / "items.parquet"


def read(folder):
    table = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("*.parquet")))
    return table["id"].to_pylist(), np.array(table["vector"].to_pylist(), dtype=np.float32)


@pytest.mark.parametrize("engine", [(), ("--engine", "local")])
def test_the_vectors_are_those_of_the_library_and_a_second_run_keeps_them(model, items, tmp_path, engine):
    result = run("represent", model, "--in", items, "--out", tmp_path / "out", *engine)
    assert result.exit_code == 0
    assert "2 rows in 2 files\n" in result.stderr
    ids, vectors = read(tmp_path / "out")
    assert ids == ["x", "y"]
    np.testing.assert_allclose(vectors, Emmett.load(model).represent(["i4", "i9"]), atol=1e-6)
    again = run("represent", model, "--in", items, "--out", tmp_path / "out", *engine)
    assert "2 of them by an earlier run" in again.stderr


def test_queries_with_an_exposure(model, tmp_path):
    pq.write_table(pa.table({"id": ["q"], "text": ["t0"]}), tmp_path / "queries.parquet")
    options = (
        "--queries",
        "--exposure",
        "-0.25",
        "--in",
        tmp_path / "queries.parquet",
        "--out",
        tmp_path / "out",
    )
    assert run("represent", model, *options).exit_code == 0
    expected = Emmett.load(model).encode_queries(["t0"], -0.25)
    np.testing.assert_allclose(read(tmp_path / "out")[1], expected, atol=1e-6)
    assert "another exposure" in str(run("represent", model, "--queries", *options[3:]).exception)
    assert run("represent", model, "--queries", *options[3:], "--overwrite").exit_code == 0
    assert "--queries" in str(run("represent", model, *options[1:]).exception)


def test_without_ray_the_error_says_how_to_install_it(model, items, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.data", raising=False)
    result = run("represent", model, "--in", items, "--out", tmp_path / "out", "--engine", "ray")
    assert "pip install 'metaxc[ray]'" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--in", "ITEMS"), "--in without --out"),
        (("--in", "ITEMS", "--out", "OUT", "a text"), "--in with texts"),
        (("--in", "ITEMS", "--out", "OUT", "--file", "-"), "--in with texts"),
        (("--engine", "ray", "a text"), "--engine ray without --in"),
        (("--in", "ITEMS", "--out", "OUT", "--address", "auto"), "without --engine ray"),
    ],
)
def test_options_that_do_not_belong_together(model, items, tmp_path, options, message):
    places = {"ITEMS": items, "OUT": tmp_path / "out"}
    result = run("represent", model, *(places.get(option, option) for option in options))
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_an_unknown_engine(model, items, tmp_path):
    result = run("represent", model, "--in", items, "--out", tmp_path / "out", "--engine", "spark")
    assert result.exit_code == 2
    assert "'local', 'ray'" in result.stderr
