"""What the rows of a benchmark share: the data, the default model, the encoders, and where they are kept.

The expensive things are made once: an adapted encoder per part of the clicks (`metaxc.encoders.learning.KeptEncoding`)
and whole models by all that decides them. Both stay in the folder of the benchmark for other rows and tables.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Encoder
from metaxc.errors import ModelError
from metaxc.irene import Irene, IreneConfig


class Context:
    """A data set and the default recipe, with what was made from them.

    Args:
        dataset: With novel items and a test log.
        config: The default recipe, from which rows differ.
        folder: Where models and learnt encoders are kept; grows until it is deleted.
        cache: Of the pretrained encoder's embeddings.
        encoder: An encoder of your own in place of the recipe's, frozen and adapted alike.
        report: Called with one line per stage of a training run.
    """

    def __init__(
        self,
        dataset: Dataset,
        config: IreneConfig | None = None,
        *,
        folder: Path,
        cache: EmbeddingCache | None = None,
        encoder: Encoder | None = None,
        report: Callable[[str], None] = lambda line: None,
    ):
        self.dataset = dataset
        self.config = config or IreneConfig()
        self.folder = folder
        self.cache = cache
        self.encoder = encoder
        self.report = report

    @cached_property
    def bare(self) -> Encoder:
        """The frozen encoder."""
        return self.encoder or self.irene(self.changed(encoder="pretrained")).base_encoder(self.dataset)

    @cached_property
    def default(self) -> Emmett:
        """The default model."""
        return self.model(self.config)

    @cached_property
    def frozen(self) -> Emmett:
        """The default recipe on the frozen encoder."""
        return self.model(self.changed(encoder="pretrained"))

    def changed(self, **changes: Any) -> IreneConfig:
        """The default recipe with these changes; nested settings as dicts of what changes in them."""
        return IreneConfig.model_validate(_merged(self.config.model_dump(), changes))

    def irene(self, config: IreneConfig) -> Irene:
        """A recipe, ready to fit; its adapted encoders are kept."""
        return Irene(config, encoder=self.encoder, cache=self.cache, encoder_cache=self.folder / "encoders")

    def model(self, config: IreneConfig, dataset: Dataset | None = None) -> Emmett:
        """The model of a recipe on a data set (the context's when None), found in the folder or trained now and
        kept there. `about["seconds"]["fit"]` is how long the training took."""
        dataset = dataset or self.dataset
        recipe = self.irene(config)
        inputs = recipe.inputs(dataset)
        place = self.folder / "models" / inputs[:32]
        try:
            return Emmett.load(place, base=config.base, cache=self.cache)
        except ModelError:
            pass  # absent or damaged
        stages = place.with_name(f"{place.name}.stages")
        started = time.perf_counter()
        model = recipe.fit(dataset, stages=stages, report=self.report)
        model.about["seconds"] = {**recipe.seconds, "fit": time.perf_counter() - started}
        model.save(place)
        shutil.rmtree(stages, ignore_errors=True)
        return model


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for name, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merged(merged[name], value) if nested else value
    return merged
