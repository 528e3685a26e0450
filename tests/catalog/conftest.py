"""A catalog of the world in groups: what is right is known by construction."""

from __future__ import annotations

import pytest

from metaxc.catalog import Catalog, CatalogSettings
from metaxc.irene import Irene, IreneConfig

KNOWN = [f"t{number}" for number in range(0, 160, 4)]


@pytest.fixture(scope="session")
def model(world):
    return Irene(IreneConfig(encoder="pretrained"), encoder=world.encoder).fit(world.dataset)


@pytest.fixture(scope="session")
def other_model(world):
    """Trained on the same clicks with other constants."""
    config = IreneConfig(encoder="pretrained", neighbours=2, folds=0)
    return Irene(config, encoder=world.encoder).fit(world.dataset)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "catalog"


@pytest.fixture
def catalog(folder, model):
    """Without the novel item of the first two groups: i4 and i9 are to be added by the tests."""
    with Catalog.create(folder, model, settings=CatalogSettings(observe_after=3), queries=KNOWN) as made:
        made.delete(["i4", "i9"])
        yield made
