"""What the rows of a benchmark share: the data, the default model, the encoders, and the folder that keeps them.

Expensive results are computed once: an adapted encoder per part of the clicks, and whole models, by everything that
determines them. Both stay in the benchmark's folder for other rows and tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from metaxc.artifacts import STAGE_KIND, discard_results
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Encoder
from metaxc.errors import ModelError
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.config import merge_settings


class Context:
    """A data set and the default configuration, with the models trained from them.

    Args:
        dataset: A data set with novel items and a test log.
        config: The default configuration, from which rows differ.
        folder: Folder for models and adapted encoders; it grows until it is deleted.
        cache: Cache of the pretrained encoder's embeddings.
        encoder: An encoder that replaces the configuration's, as the frozen and as the adapted one.
        report: Called with one line per training stage.
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
        """The default configuration on the frozen encoder."""
        return self.model(self.changed(encoder="pretrained"))

    def changed(self, **changes: Any) -> IreneConfig:
        """The default configuration with these changes; nested settings as dicts of their changes."""
        return IreneConfig.model_validate(merge_settings(self.config.model_dump(), changes))

    def irene(self, config: IreneConfig) -> Irene:
        """The training of a configuration; its adapted encoders are kept in the folder."""
        return Irene(config, encoder=self.encoder, cache=self.cache, encoder_cache=self.folder / "encoders")

    def model(self, config: IreneConfig, dataset: Dataset | None = None) -> Emmett:
        """The model of a configuration, loaded from the folder, or trained now and saved there.

        `about["seconds"]["fit"]` is the training time.

        Args:
            config: The configuration.
            dataset: The data set; the context's when None.
        """
        dataset = dataset or self.dataset
        irene = self.irene(config)
        folder = self.folder / "models" / irene.inputs(dataset)[:32]
        try:
            return Emmett.load(folder, base=config.base, cache=self.cache)
        except ModelError:
            pass  # absent or damaged
        stages = folder.with_name(f"{folder.name}.stages")
        started = time.perf_counter()
        model = irene.fit(dataset, stages=stages, report=self.report)
        model.about["seconds"] = {**irene.seconds, "fit": time.perf_counter() - started}
        model.save(folder, overwrite=True)
        discard_results(stages, STAGE_KIND)
        return model
