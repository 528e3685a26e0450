"""A small shop behind a real service: model, catalog and app."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from running_service import HOME, running

from metaxc.catalog import Catalog, CatalogSettings
from metaxc.data import split
from metaxc.emmett import Emmett
from metaxc.serve.app import make_app

CURVE = [
    {"exposure": -0.19996, "P@1": 81.0, "R@10": 91.0, "novel R@10": 40.0, "observed R@10": 93.0, "H": 55.9},
    {"exposure": -0.05, "P@1": 80.0, "R@10": 92.0, "novel R@10": 60.0, "observed R@10": 92.5, "H": 72.8},
    {"exposure": 0.3, "P@1": 76.0, "R@10": 90.0, "novel R@10": 70.0, "observed R@10": 90.0, "H": 78.7},
    {"exposure": 0.8, "P@1": 50.0, "R@10": 70.0, "novel R@10": 74.0, "observed R@10": 60.0, "H": 66.3},
]
CURVE = [
    {**point, "novel share": 0.1 + point["exposure"], "chosen": point["exposure"] == -0.05} for point in CURVE
]


@pytest.fixture(scope="session")
def trained(shop, tmp_path_factory) -> Path:
    """A model folder; by the clicks, queries for food find animals. Its exposure and what others cost are made up."""
    from metaxc.irene import Irene, IreneConfig

    dataset, _ = split(shop, novel=0.1, test=0.2, seed=0)
    config = IreneConfig(encoder="static", adapter={"epochs": 40, "batch": 64, "learning_rate": 0.01})
    folder = tmp_path_factory.mktemp("served") / "model"
    model = Irene(config).fit(dataset)
    model.calibration = model.calibration.model_copy(update={"exposure": CURVE[1]["exposure"]})
    model.about["exposure_curve"] = CURVE
    model.save(folder)
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
    """The service without tokens, called from this machine."""
    with TestClient(make_app(catalog), base_url=HOME) as client:
        yield client


@pytest.fixture(scope="session")
def site(trained, shop, tmp_path_factory) -> Iterator[str]:
    """The address of a service whose items are observed after two clicks."""
    folder = tmp_path_factory.mktemp("page") / "catalog"
    settings = CatalogSettings(observe_after=2)
    catalog = Catalog.create(
        folder, Emmett.load(trained), settings=settings, queries=shop.train.queries.texts
    )
    with running(catalog) as url:
        yield url


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """A browser; its tests are skipped if chromium is missing."""
    from page_browser import CHROMIUM, DRIVER, browser

    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium is not installed: apt install chromium chromium-driver")
    with browser() as driver:
        yield driver


@pytest.fixture
def look(site, driver) -> Iterator[Any]:
    """The page on a wide screen with a light theme; the browser's console must be empty at the end."""
    from page_browser import PageBrowser

    look = PageBrowser(driver, site)
    look.resize(1280)
    look.prefer("light")
    look.console_errors()
    yield look
    assert look.console_errors() == []
