"""Every recipe learns what it learnt before the code was consolidated."""

import pytest

from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.recipes import train_encoder

QUICK = {"steps": 8, "batch": 16, "learning_rate": 1e-3, "holdout": 0.5}


@pytest.mark.parametrize("recipe", ["dpr", "ance", "ngame", "maclr"])
def test_recipe(recipe, shop, tiny, golden, tmp_path):
    dataset = shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])
    record = train_encoder(dataset, EncoderTraining(recipe=recipe, **QUICK), tmp_path / "encoder", base=tiny)
    # Which batches MACLR draws depends on clusters, and these on the last digits, which differ between processors.
    losses = record.losses[:1] if recipe == "maclr" else record.losses
    golden(f"recipe_{recipe}", {"losses": losses, "held": list(record.held_items)})
