"""Every recipe learns what it learnt before the code was consolidated, to the last digit."""

import pytest

from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.recipes import train_encoder

QUICK = {"steps": 8, "batch": 16, "learning_rate": 1e-3, "holdout": 0.5}


@pytest.mark.parametrize("recipe", ["dpr", "ance", "ngame", "maclr"])
def test_recipe(recipe, shop, tiny, golden, tmp_path):
    dataset = shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])
    record = train_encoder(dataset, EncoderTraining(recipe=recipe, **QUICK), tmp_path / "encoder", base=tiny)
    golden(f"recipe_{recipe}", {"losses": record.losses, "held": list(record.held_items)})
