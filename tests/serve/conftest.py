"""A shop behind the service: a real model, a real catalog, a real app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from served import HOME

from metaxc.catalog import Catalog
from metaxc.data import split
from metaxc.emmett import Emmett
from metaxc.irene import Irene, IreneConfig
from metaxc.serve.app import make_app


@pytest.fixture(scope="session")
def trained(shop, tmp_path_factory) -> Path:
    """A model folder: food queries find animal items, as their clicks say."""
    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)
    config = IreneConfig(encoder="static", adapter={"epochs": 40, "batch": 64, "learning_rate": 0.01})
    folder = tmp_path_factory.mktemp("served") / "model"
    Irene(config).fit(dataset).save(folder)
    return folder


@pytest.fixture(scope="session")
def model(trained) -> Emmett:
    return Emmett.load(trained)


@pytest.fixture
def catalog(model, shop, tmp_path) -> Catalog:
    """Closed by the app that serves it."""
    return Catalog.create(tmp_path / "catalog", model, queries=shop.train.queries.texts[:50])


@pytest.fixture
def http(catalog) -> Iterator[TestClient]:
    """The service without tokens, as this machine calls it."""
    with TestClient(make_app(catalog), base_url=HOME) as client:
        yield client
