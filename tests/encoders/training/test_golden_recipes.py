"""Every recipe learns what it learnt before the code was consolidated."""

import pytest

from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.recipes import train_encoder

KNOWN_LOSSES = {"dpr": 3, "ance": 1, "ngame": 2, "maclr": 0}
"""The first losses of each recipe that two processors agree on."""

QUICK = {"steps": 8, "batch": 16, "learning_rate": 1e-3, "holdout": 0.5}


@pytest.mark.parametrize("recipe", ["dpr", "ance", "ngame", "maclr"])
def test_recipe(recipe, shop, tiny, golden, tmp_path):
    dataset = shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])
    record = train_encoder(dataset, EncoderTraining(recipe=recipe, **QUICK), tmp_path / "encoder", base=tiny)
    # What comes after a few steps depends on the last digits, which differ between processors: batches of clusters and
    # mined negatives at once, everything else a little later.
    losses = record.losses[: KNOWN_LOSSES[recipe]]
    golden(f"recipe_{recipe}", {"losses": losses, "held": list(record.held_items)})
