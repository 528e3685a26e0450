"""Model folders and Parquet files to represent."""

from __future__ import annotations

from pathlib import Path

import pytest
from item_tables import write_items
from world_model import build_model

from metaxc.emmett import Calibration


@pytest.fixture(scope="session")
def model_folder(world, tmp_path_factory) -> Path:
    """A model of the small world, which knows the texts i0 to i199 and t0 to t159."""
    folder = tmp_path_factory.mktemp("scale") / "model"
    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.1)).save(folder)
    return folder


@pytest.fixture(scope="session")
def other_model_folder(world, tmp_path_factory) -> Path:
    """A model of the same world that gives items other vectors."""
    folder = tmp_path_factory.mktemp("scale") / "other"
    build_model(world, calibration=Calibration(novelty_prior=3.0, exposure=0.1), neighbours=2).save(folder)
    return folder


@pytest.fixture
def items(tmp_path) -> Path:
    """A folder with two files of 30 and 12 items, in row groups of 10: five partitions."""
    write_items(tmp_path / "items" / "a.parquet", range(30))
    write_items(tmp_path / "items" / "more" / "b.parquet", range(100, 112))
    return tmp_path / "items"
