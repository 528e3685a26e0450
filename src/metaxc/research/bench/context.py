"""What the rows of a benchmark share: the data, the default model, the encoders, and the folder that keeps them.

Expensive results are computed once: an adapted encoder per part of the clicks, and whole models, by everything that
determines them, the source code included. They stay in the benchmark's folder for other rows and tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from metaxc.artifacts import STAGE_KIND, discard_results, json_digest, load_json, reuse_or_build, save_json
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Encoder, Pretrained
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.recipes import train_encoder
from metaxc.errors import ConfigError, ModelError
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.config import merge_settings
from metaxc.research.baselines.fine_tuned import FineTuningConfig, fine_tune
from metaxc.research.code_version import METHOD_SOURCES, MODEL_SOURCES, source_digest

FINE_TUNED_KIND = "fine-tuned encoder"
RECIPE_KIND = "encoder of a recipe"


class Context:
    """A data set and the default configuration, with the models trained from them.

    Args:
        dataset: A data set with novel items and a test log.
        config: The default configuration, from which rows differ.
        folder: Folder for models and adapted encoders; it grows until it is deleted.
        cache: Cache of the pretrained encoder's embeddings.
        encoder: An encoder that replaces the configuration's, as the frozen and as the adapted one.
        fine_tuning: How the encoder of the rows "fine-tuned sentence-transformers" is trained.
        encoder_passes: Passes over the training queries of each encoder of the table "encoders".
        arguments: The data set and the options on the command line, for the result lines; None without one.
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
        fine_tuning: FineTuningConfig | None = None,
        encoder_passes: float = 1.0,
        arguments: str | None = None,
        report: Callable[[str], None] = lambda line: None,
    ):
        self.dataset = dataset
        self.config = config or IreneConfig()
        self.folder = folder
        self.cache = cache
        self.encoder = encoder
        self.fine_tuning = fine_tuning or FineTuningConfig()
        self.encoder_passes = encoder_passes
        self.arguments = arguments
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

    @cached_property
    def fine_tuned(self) -> tuple[Encoder, float]:
        """The frozen encoder, fine-tuned with sentence-transformers, and the seconds of the training; loaded from the
        folder, or trained now and saved there."""
        base = self.bare
        if not isinstance(base, Pretrained):
            raise ConfigError(
                "Only a pretrained encoder can be fine-tuned with sentence-transformers",
                got=f"an encoder of the kind {base.kind}",
                expected="a sentence-transformers encoder",
                fix="leave this row out, or give --base",
            )
        settings = self.fine_tuning.model_dump()
        determines = [base.fingerprint, self.dataset.fingerprint, settings, self.config.seed]
        key = json_digest([*determines, source_digest(METHOD_SOURCES)])

        def build(folder: Path) -> None:
            started = time.perf_counter()
            fine_tune(base, self.dataset, self.fine_tuning, folder / "encoder", self.config.seed)
            save_json(folder / "training.json", {"seconds": time.perf_counter() - started, **settings})

        folder, _ = reuse_or_build(self.folder / "fine-tuned" / key[:32], FINE_TUNED_KIND, build)
        config = self.changed(
            encoder="pretrained", base=str(folder / "encoder"), prompts=base.prompts.model_dump()
        )
        seconds = float(load_json(folder / "training.json")["seconds"])
        return self.irene(config).base_encoder(self.dataset), seconds

    def recipe_encoder(self, config: EncoderTraining) -> tuple[Pretrained, float]:
        """The frozen encoder, trained by one of the paper's recipes, and the seconds of the training; loaded from the
        folder, or trained now and saved there.

        Args:
            config: The recipe and its budget.
        """
        base = self.config.base
        determines = [Pretrained(base).weights, self.dataset.fingerprint, config.model_dump()]
        key = json_digest([*determines, source_digest(MODEL_SOURCES)])

        def build(folder: Path) -> None:
            started = time.perf_counter()
            train_encoder(
                self.dataset, config, folder / "encoder", base=base, cache=self.cache, report=self.report
            )
            save_json(folder / "training.json", {"seconds": time.perf_counter() - started})

        folder, _ = reuse_or_build(self.folder / "recipes" / key[:32], RECIPE_KIND, build)
        config_there = self.changed(encoder="pretrained", base=str(folder / "encoder"))
        seconds = float(load_json(folder / "training.json")["seconds"])
        return self.irene(config_there).base_encoder(self.dataset), seconds

    def changed(self, **changes: Any) -> IreneConfig:
        """The default configuration with these changes; nested settings as dicts of their changes."""
        return IreneConfig.model_validate(merge_settings(self.config.model_dump(), changes))

    def irene(self, config: IreneConfig) -> Irene:
        """The training of a configuration; its adapted encoders are kept in the folder."""
        encoders = self.folder / "encoders" / source_digest(MODEL_SOURCES)[:16]
        return Irene(config, encoder=self.encoder, cache=self.cache, encoder_cache=encoders)

    def model(self, config: IreneConfig, dataset: Dataset | None = None) -> Emmett:
        """The model of a configuration, loaded from the folder, or trained now and saved there.

        `about["seconds"]["fit"]` is the training time.

        Args:
            config: The configuration.
            dataset: The data set; the context's when None.
        """
        dataset = dataset or self.dataset
        irene = self.irene(config)
        # Not what older code has trained: a row that is run again must not find its model there.
        key = json_digest([irene.inputs(dataset), source_digest(MODEL_SOURCES)])
        folder = self.folder / "models" / key[:32]
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
