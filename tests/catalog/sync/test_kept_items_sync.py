"""A vector store stays valid when a catalog is switched to a model with the same item side."""

import json
from pathlib import Path

import numpy as np
import pytest
from sync_places import live
from world_model import build_model

from metaxc.catalog import Catalog
from metaxc.catalog.model_switch import ModelSwitch
from metaxc.catalog.sync import SyncError, search_target
from metaxc.emmett import Calibration
from metaxc.emmett.model_identity import item_fingerprint


@pytest.fixture(scope="session")
def kept_model(world, model):
    calibration = Calibration(novelty_prior=3.0, novel_scale=1.2, exposure=0.9)
    return build_model(
        world, neighbours=4, calibration=calibration, about={"keeps_items": {"models": [model.fingerprint]}}
    )


@pytest.fixture
def switched(catalog, folder, kept_model):
    """Switches the catalog, and returns it as it is opened again."""

    def switch():
        moving = ModelSwitch(catalog, kept_model)
        moving.build()
        new = moving.finish()
        catalog.close()
        new.close()
        return Catalog.open(folder, kept_model)

    return switch


def scores(place, model, **options):
    """Scores, for equal items come in any order."""
    with place.open() as target:
        return np.array(
            [
                [hit.score for hit in hits]
                for hits in search_target(target, model, ["t0", "t40"], 10, **options)
            ]
        )


def test_no_row_is_written_again_and_both_models_search(
    parquet, catalog, switched, model, kept_model, other_model
):
    live(catalog, 3)
    parquet.sync(catalog)
    with switched() as new:
        report = parquet.sync(new)
        assert (report.upserted, report.deleted, report.compared) == (0, 0, False)
        assert parquet.differences(new) == []
        found = scores(parquet, kept_model)
        expected = [[hit.score for hit in hits] for hits in new.search(["t0", "t40"], 10)]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.testing.assert_allclose(scores(parquet, model, exposure=0.9), found, atol=1e-5)
        assert np.abs(scores(parquet, model) - found).max() > 0.5
        with pytest.raises(SyncError, match="another model"):
            scores(parquet, other_model)
        live(new, 4)
        assert parquet.sync(new).upserted > 0
        assert parquet.differences(new) == []


def state_file(place) -> Path:
    return next(Path(place.url.removeprefix("parquet://")).glob("metaxc-sync.json"))


def strip_item_side(place):
    """Make the state that of an older version, which knew the whole model alone."""
    file = state_file(place)

    def strip(value):
        if isinstance(value, dict):
            return {name: strip(inner) for name, inner in value.items() if name != "item_side"}
        if isinstance(value, list):
            return list(map(strip, value))
        if isinstance(value, str) and value.startswith("{"):
            return json.dumps(strip(json.loads(value)))
        return value

    before = file.read_text()
    assert "item_side" in before
    file.write_text(json.dumps(strip(json.loads(before))))
    assert "item_side" not in file.read_text()


def test_a_table_of_an_older_version_stays_valid(parquet, catalog, switched, model, kept_model, other_model):
    parquet.sync(catalog)
    strip_item_side(parquet)
    assert len(scores(parquet, model))
    assert len(scores(parquet, kept_model))  # by the model's own record of what it keeps
    with pytest.raises(SyncError, match="another model"):
        scores(parquet, other_model)
    with switched() as new:
        report = parquet.sync(new)
        assert (report.upserted, report.compared) == (0, False)
        assert item_fingerprint(kept_model) in state_file(parquet).read_text()
        assert "0.9" in state_file(parquet).read_text()  # the exposure of the new model


def test_a_model_with_another_item_side_still_needs_a_cutover(parquet, catalog, folder, other_model):
    parquet.sync(catalog)
    moving = ModelSwitch(catalog, other_model)
    moving.build()
    new = moving.finish()
    catalog.close()
    with new, pytest.raises(SyncError, match="another model"):
        parquet.sync(new)
